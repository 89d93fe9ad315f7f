/* SPDX-License-Identifier: BSD-3-Clause */
/* The node's service, its clients, and the ends of both: attach_test WEFT_NODE WEFT
 *
 * Each case's comment says what makes it fail. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/process.h"
#include "contract/support.h"
#include "near.h"

#define RACERS 16

static const uint8_t key[WF_NODE_KEY] = "attach_test", other_key[WF_NODE_KEY] = "attach_test 2";
static const char *tool;

/* A client in a process of its own: it reports its link, and ends when its parent asks for that. */
static void client_main(int sock, void *arg)
{
    struct wf_node_link link;
    char byte;
    (void)arg;
    CHECK(proc_hear(sock, &byte, 1) == 1);
    near_attach(key, &link);
    proc_say(sock, &link, sizeof link);
    if (proc_hear(sock, &byte, 1) == 1)
        wf_node_detach(&link);
}

static struct wf_node_link client_start(struct proc *p)
{
    struct wf_node_link link;
    *p = proc_start(client_main, NULL);
    proc_say(p->sock, "", 1);
    CHECK(proc_hear(p->sock, &link, sizeof link) == sizeof link);
    return link;
}

static void client_leave(struct proc *p)
{
    proc_say(p->sock, "", 1);
    proc_join(p);
}

static void await_clients(unsigned count)
{
    uint64_t until = wf_now_ns() + PROC_WAIT_MS * 1000000ull;
    while (near_clients(key) != count) /* each look takes the service's turn: no sleep is needed */
        CHECK(wf_now_ns() < until);
}

/* Wait until the process has ended, and it is seconds since [since_ns]. */
static double ended_after(pid_t pid, uint64_t since_ns)
{
    CHECK(near_reap(pid) == 0);
    return (double)(wf_now_ns() - since_ns) / 1e9;
}

/* Fails when: the name is no lock, so that two services start; a starter that loses the race says
 * so to its client as an error; two clients get one index. */
static void race(void)
{
    struct proc p[RACERS];
    struct wf_node_link links[RACERS];
    uint64_t begin;
    near_begin();
    for (int i = 0; i < RACERS; i++)
        p[i] = proc_start(client_main, NULL);
    begin = wf_now_ns();
    for (int i = 0; i < RACERS; i++)
        proc_say(p[i].sock, "", 1);
    for (int i = 0; i < RACERS; i++) {
        CHECK(proc_hear(p[i].sock, &links[i], sizeof links[i]) == sizeof links[i]);
        CHECK(links[i].pid == links[0].pid && links[i].incarnation == links[0].incarnation);
        CHECK(links[i].index < 512);
        for (int j = 0; j < i; j++)
            CHECK(links[j].index != links[i].index);
    }
    dprintf(STDOUT_FILENO, "  %d clients attached at once in %.1f ms\n", RACERS,
            (double)(wf_now_ns() - begin) / 1e6);
    CHECK(near_clients(key) == RACERS);
    for (int i = 0; i < RACERS; i++)
        client_leave(&p[i]);
    near_end(key);
}

/* Fails when: the service ends with its last client, or does not, or takes longer; the descriptors
 * of a link or of starting are left open. */
static void last_client(void)
{
    struct wf_node_link link;
    uint64_t begin = wf_now_ns();
    double after;
    int next = dup(0);
    near_begin();
    close(next);
    near_attach(key, &link);
    dprintf(STDOUT_FILENO, "  attached %.1f ms after the start\n",
            (double)(wf_now_ns() - begin) / 1e6);
    begin = wf_now_ns();
    wf_node_detach(&link);
    after = ended_after(link.pid, begin);
    dprintf(STDOUT_FILENO, "  the service ended %.2f s after its last client\n", after);
    CHECK(after >= 0.99 && after < 4);
    CHECK(dup(0) == next);
    near_end(key);
}

/* Fails when: a client that comes within the second finds no service, or another one. */
static void comes_back(void)
{
    struct wf_node_link first, second;
    near_begin();
    near_attach(key, &first);
    wf_node_detach(&first);
    near_attach(key, &second);
    CHECK(second.pid == first.pid && second.incarnation == first.incarnation);
    CHECK(second.index != first.index); /* round robin */
    wf_node_detach(&second);
    near_end(key);
}

/* Fails when: the index of a killed client is not free again, or its death ends others. */
static void killed_client(void)
{
    struct wf_node_link link;
    struct proc p;
    near_begin();
    near_attach(key, &link);
    (void)client_start(&p);
    await_clients(2);
    CHECK(WTERMSIG(proc_kill(&p, SIGKILL)) == SIGKILL);
    await_clients(1);
    CHECK_STATUS(wf_node_hear(&link), WEFT_OK);
    wf_node_detach(&link);
    near_end(key);
}

/* Its child lives on, and has a copy of the socket. */
static void parent_main(int sock, void *arg)
{
    struct wf_node_link link;
    char byte;
    int copy;
    pid_t pid;
    (void)arg;
    near_attach(key, &link);
    copy = dup(link.sock);
    CHECK(copy >= 0);
    pid = fork();
    if (!pid) {
        alarm(PROC_ALARM_S);
        pause();
    }
    proc_say(sock, &pid, sizeof pid);
    (void)proc_hear(sock, &byte, 1);
}

/* Fails when: only the end of its socket shows a client's death, which a forked child hides. */
static void killed_parent(void)
{
    struct wf_node_link link;
    struct proc p;
    pid_t child;
    near_begin();
    near_attach(key, &link);
    p = proc_start(parent_main, NULL);
    CHECK(proc_hear(p.sock, &child, sizeof child) == sizeof child);
    await_clients(2);
    CHECK(WTERMSIG(proc_kill(&p, SIGKILL)) == SIGKILL);
    await_clients(1);
    (void)kill(child, SIGKILL);
    CHECK(WTERMSIG(near_reap(child)) == SIGKILL);
    wf_node_detach(&link);
    near_end(key);
}

static int count_open(const int *fds, int count)
{
    int n = 0;
    for (int i = 0; i < count; i++)
        n += fcntl(fds[i], F_GETFD) >= 0;
    return n;
}

/* Fails when: a forked child keeps the socket or the pidfd of its parent's link, or what a
 * successor is to get: then the port of a job that has ended stays in use. */
static void forked_child(void)
{
    struct wf_node_attach_params params;
    struct wf_node_link link, first;
    int status, sock, pidfd;
    pid_t pid;
    near_begin();
    params = near_client(key);
    CHECK_STATUS(wf_node_attach(&params, &link), WEFT_OK);
    sock = link.sock;
    pidfd = link.pidfd;
    first = link;
    pid = fork();
    if (!pid)
        _exit(fcntl(sock, F_GETFD) < 0 && fcntl(pidfd, F_GETFD) < 0 && link.sock < 0 &&
                      !count_open(first.estate, first.nestate)
                  ? 0
                  : 1);
    CHECK(count_open(first.estate, first.nestate) == first.nestate && first.nestate > 2);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK_STATUS(wf_node_hear(&link), WEFT_OK);
    wf_node_detach(&link);
    near_end(key);
}

/* Kill the service. Returns what its client needs to attach to a successor. */
static struct wf_node_attach_params service_kill(struct wf_node_link *link)
{
    struct wf_node_attach_params params = near_client(key);
    CHECK(!kill(link->pid, SIGKILL));
    CHECK_STATUS(near_hear(link), WEFT_EPEER);
    CHECK(WTERMSIG(near_reap(link->pid)) == SIGKILL);
    params.held = link->index + 1;
    params.last = link->incarnation;
    params.line = link->line;
    params.estate = link->estate;
    params.nestate = link->nestate;
    return params;
}

/* Fails when: a client does not notice that its service was killed, or takes it for its own error;
 * its successor has not a greater incarnation, or another port, or does not give a held index back;
 * or a second successor does not, which has never seen the first service. */
static void killed_service(void)
{
    struct wf_node_attach_params params;
    struct wf_node_link links[3];
    near_begin();
    near_attach(key, &links[0]);
    for (int i = 1; i < 3; i++) {
        params = service_kill(&links[i - 1]);
        CHECK_STATUS(wf_node_attach(&params, &links[i]), WEFT_OK);
        CHECK(links[i].index == links[0].index && links[i].pid != links[i - 1].pid);
        CHECK((int32_t)(links[i].incarnation - links[i - 1].incarnation) > 0);
        CHECK(links[i].line == links[0].incarnation);
        CHECK(!memcmp(&links[i].contact, &links[0].contact, sizeof links[0].contact));
        wf_node_detach(&links[i - 1]);
    }
    wf_node_detach(&links[2]);
    near_end(key);
}

/* A client of a service that is killed. It attaches to a successor when its parent asks for that,
 * and ends when it is asked once more. */
static void heir_main(int sock, void *arg)
{
    struct wf_node_attach_params params = near_client(key);
    struct wf_node_link first, second;
    char byte;
    (void)arg;
    near_attach(key, &first);
    proc_say(sock, &first, sizeof first);
    CHECK(proc_hear(sock, &byte, 1) == 1);
    CHECK_STATUS(near_hear(&first), WEFT_EPEER);
    params.held = first.index + 1;
    params.last = first.incarnation;
    params.line = first.line;
    params.estate = first.estate;
    params.nestate = first.nestate;
    CHECK_STATUS(wf_node_attach(&params, &second), WEFT_OK);
    proc_say(sock, &second, sizeof second);
    CHECK(proc_hear(sock, &byte, 1) == 1);
    wf_node_detach(&first);
    wf_node_detach(&second);
}

static struct wf_node_link heir_start(struct proc *p)
{
    struct wf_node_link link;
    *p = proc_start(heir_main, NULL);
    CHECK(proc_hear(p->sock, &link, sizeof link) == sizeof link);
    return link;
}

static struct wf_node_link heir_comes(const struct proc *p)
{
    struct wf_node_link link;
    proc_say(p->sock, "", 1);
    CHECK(proc_hear(p->sock, &link, sizeof link) == sizeof link);
    return link;
}

/* Fails when: a process gets an index that another one had, which lives and has not come to the
 * successor yet, by claiming it or by attaching; also if a second successor is started by a client
 * that knows it from the first one's page only. */
static void heir_robbed(void)
{
    struct wf_node_attach_params params, lie;
    struct wf_node_link links[3], heir, refused;
    struct proc p;
    near_begin();
    CHECK(!setenv("WEFT_NODE_INDEX_BITS", "1", 1));
    near_attach(key, &links[0]);
    heir = heir_start(&p);
    for (int i = 1; i < 3; i++) {
        params = service_kill(&links[i - 1]);
        CHECK_STATUS(wf_node_attach(&params, &links[i]), WEFT_OK);
        lie = params;
        lie.held = heir.index + 1;
        near_stderr_begin();
        CHECK_STATUS(wf_node_attach(&lie, &refused), WEFT_ELIMIT);
        params = near_client(key);
        CHECK_STATUS(wf_node_attach(&params, &refused), WEFT_ELIMIT);
        CHECK(strstr(near_stderr_end(), "WEFT_NODE_INDEX_BITS"));
        wf_node_detach(&links[i - 1]);
    }
    CHECK(heir_comes(&p).index == heir.index);
    client_leave(&p);
    wf_node_detach(&links[2]);
    near_end(key);
}

/* Fails when: a successor ends with the last client that has come, while another one that lives has
 * not: that one's peers lose it. */
static void heir_late(void)
{
    struct wf_node_attach_params params;
    struct wf_node_link first, second, heir;
    struct pollfd ended = {.events = POLLIN};
    struct proc p;
    near_begin();
    near_attach(key, &first);
    heir = heir_start(&p);
    params = service_kill(&first);
    CHECK_STATUS(wf_node_attach(&params, &second), WEFT_OK);
    ended.fd = wf_pidfd_open(second.pid);
    CHECK(ended.fd >= 0);
    wf_node_detach(&first);
    wf_node_detach(&second);
    CHECK(poll(&ended, 1, 1500) == 0);
    close(ended.fd);
    CHECK(heir.index == heir_comes(&p).index);
    client_leave(&p);
    near_end(key);
}

/* A service and one of its two clients, [heir], are killed; the other one attaches to a successor.
 */
static struct wf_node_attach_params heir_killed(const char *index_bits, struct wf_node_link *first,
                                                struct wf_node_link *heir,
                                                struct wf_node_link *second)
{
    struct wf_node_attach_params params;
    struct proc p;
    near_begin();
    CHECK(!setenv("WEFT_NODE_INDEX_BITS", index_bits, 1));
    near_attach(key, first);
    *heir = heir_start(&p);
    params = service_kill(first);
    CHECK(WTERMSIG(proc_kill(&p, SIGKILL)) == SIGKILL);
    CHECK_STATUS(wf_node_attach(&params, second), WEFT_OK);
    return params;
}

/* Fails when: an index is awaited for ever whose client has ended before WELCOME. */
static void heir_half_come(void)
{
    struct wf_node_attach_params params;
    struct wf_node_packet hello, challenge, proof;
    struct wf_node_link first, second, third, heir;
    int sock;
    params = heir_killed("1", &first, &heir, &second);
    sock = near_connect(key);
    hello = near_hello(WF_NODE_ATTACH);
    hello.u.hello.held = heir.index + 1;
    hello.u.hello.last = heir.incarnation;
    hello.u.hello.line = heir.line;
    CHECK(!wf_node_packet_send(sock, &hello, NULL, 0));
    CHECK(near_receive(sock, &challenge) == WF_NODE_CHALLENGE);
    near_stop(second.pid);
    wf_node_packet_init(&proof, WF_NODE_PROOF);
    proof.u.proof.parameters = params.parameters;
    wf_node_proof_sign(key, &hello, &challenge, &proof);
    CHECK(!wf_node_packet_send(sock, &proof, NULL, 0));
    close(sock);
    CHECK(!kill(second.pid, SIGCONT));
    near_attach(key, &third);
    CHECK(third.index == heir.index);
    wf_node_detach(&first);
    wf_node_detach(&second);
    wf_node_detach(&third);
    near_end(key);
}

/* Fails when: a successor gives a new client the index of a dead one while others are free. Another
 * client may start the next successor with a page that shows the dead one there. */
static void heir_dead(void)
{
    struct wf_node_link first, second, heir, some[3];
    (void)heir_killed("2", &first, &heir, &second);
    for (int i = 0; i < 3; i++) {
        near_attach(key, &some[i]);
        CHECK((some[i].index == heir.index) == (i == 2));
    }
    wf_node_detach(&first);
    wf_node_detach(&second);
    for (int i = 0; i < 3; i++)
        wf_node_detach(&some[i]);
    near_end(key);
}

/* Fails when: a service that cannot begin a line, since clients of the one before live, takes the
 * name for a moment: then it keeps those clients' successor from starting. */
static void held(void)
{
    struct wf_node_attach_params params;
    char name[WF_NODE_SOCKET_ROOM], hold[WF_NODE_SOCKET_ROOM], why[512];
    struct wf_node_scope place;
    struct sockaddr_un sa;
    socklen_t len;
    int fds[2];
    near_begin();
    params = near_client(key);
    wf_node_scope_here(&place);
    wf_node_socket_name(key, &place, params.name, name);
    wf_node_hold_name(name, hold);
    len = wf_node_sockaddr(hold, &sa);
    fds[0] = near_bind(key);
    fds[1] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(fds[1] >= 0 && !bind(fds[1], (struct sockaddr *)&sa, len));
    CHECK_STATUS(wf_node_spawn(&params, false, why), WEFT_EBUSY);
    close(fds[1]);
    CHECK_STATUS(wf_node_spawn(&params, false, why), WEFT_OK); /* the name is taken */
    close(fds[0]);
    near_end(key);
}

/* Fails when: a process that attaches for the first time starts a service of its own while a client
 * of the dead one could start the successor; waits for that client for ever; or that client then
 * gets its index from a service with another port. */
static void killed_and_late(void)
{
    struct wf_node_attach_params params, fresh;
    struct wf_node_link first, second, third;
    near_begin();
    near_attach(key, &first);
    params = service_kill(&first);
    fresh = near_client(key);
    fresh.until_ns = wf_now_ns() + UINT64_C(400000000);
    CHECK_STATUS(wf_node_attach(&fresh, &second), WEFT_OK);
    CHECK(wf_now_ns() >= fresh.until_ns - UINT64_C(200000000));
    CHECK(second.line == second.incarnation);
    CHECK_STATUS(wf_node_attach(&params, &third), WEFT_OK);
    CHECK(third.pid == second.pid && third.line != first.line);
    CHECK(third.contact.port != first.contact.port);
    wf_node_detach(&first);
    wf_node_detach(&second);
    wf_node_detach(&third);
    near_end(key);
}

/* A client whose service is killed starts a successor, and ends. */
static void last_heir(int sock, void *arg)
{
    struct wf_node_attach_params params = near_client(key);
    struct wf_node_link link;
    char why[512];
    (void)arg;
    near_attach(key, &link);
    CHECK(!kill(link.pid, SIGKILL));
    proc_say(sock, &link.pid, sizeof link.pid);
    CHECK_STATUS(near_hear(&link), WEFT_EPEER);
    params.line = link.line;
    params.estate = link.estate;
    params.nestate = link.nestate;
    CHECK_STATUS(wf_node_spawn(&params, false, why), WEFT_OK);
}

/* Fails when: a successor waits long for clients that have all ended. */
static void killed_and_gone(void)
{
    struct proc p;
    uint64_t begin;
    pid_t pid;
    near_begin();
    p = proc_start(last_heir, NULL);
    CHECK(proc_hear(p.sock, &pid, sizeof pid) == sizeof pid);
    CHECK(WTERMSIG(near_reap(pid)) == SIGKILL);
    proc_join(&p);
    begin = wf_now_ns();
    near_end(key);
    CHECK(wf_now_ns() - begin < 4000000000u);
}

/* Fails when: two clients hold one index; a claim to an index of the same service is granted. */
static void claimed_twice(void)
{
    struct wf_node_attach_params params;
    struct wf_node_link first, second, third;
    near_begin();
    params = near_client(key);
    near_attach(key, &first);
    params.held = first.index + 1;
    params.last = first.incarnation - 1;
    params.line = first.line;
    CHECK_STATUS(wf_node_attach(&params, &second), WEFT_OK);
    CHECK(second.index != first.index);
    wf_node_detach(&second);
    params.held = second.index + 1;
    params.last = first.incarnation;
    CHECK_STATUS(wf_node_attach(&params, &third), WEFT_OK);
    CHECK(third.index != second.index && third.index != first.index);
    wf_node_detach(&third);
    wf_node_detach(&first);
    near_end(key);
}

/* Fails when: processes with other keys, or other values of WEFT_NODE_NAME, share a service. */
static void another_job(void)
{
    struct wf_node_attach_params params;
    struct wf_node_link a, b, c;
    near_begin();
    params = near_client(key);
    near_attach(key, &a);
    near_attach(other_key, &b);
    params.name = "near 2";
    CHECK_STATUS(wf_node_attach(&params, &c), WEFT_OK);
    CHECK(a.pid != b.pid && a.pid != c.pid && b.pid != c.pid);
    wf_node_detach(&a);
    wf_node_detach(&b);
    wf_node_detach(&c);
    near_end(key);
}

/* Fails when: a parameter is not compared, or the warning does not name it and both values. */
static void other_parameters(void)
{
    static const char *const names[] = {
        "WEFT_NODE_CONNECTIONS", "WEFT_NODE_INDEX_BITS", "longest",
        "WEFT_NODE_RING",        "WEFT_NODE_RECEIVES",   "WEFT_TCP_ENCRYPT",
        "lanes to other nodes",  "version of the memory"};
    struct wf_node_link link, refused;
    near_begin();
    near_attach(key, &link);
    for (size_t i = 0; i < 8; i++) {
        struct wf_node_attach_params params = near_client(key);
        uint32_t values[8];
        char mine[32], theirs[32];
        const char *text;
        memcpy(values, &params.parameters, sizeof values);
        snprintf(theirs, sizeof theirs, "%u in the service", values[i]);
        snprintf(mine, sizeof mine, "is %u here", ++values[i]);
        memcpy(&params.parameters, values, sizeof values);
        near_stderr_begin();
        CHECK_STATUS(wf_node_attach(&params, &refused), WEFT_EBUSY);
        text = near_stderr_end();
        if (!strstr(text, names[i]) || !strstr(text, mine) || !strstr(text, theirs))
            proc_fail(__FILE__, __LINE__, "%s: %s", names[i], text);
        CHECK(strchr(text, '\n') == text + strlen(text) - 1); /* one line */
    }
    CHECK(near_clients(key) == 1);
    wf_node_detach(&link);
    near_end(key);
}

/* Fails when: more clients than indexes are taken, or the warning does not say what to change; an
 * index that was given back is not given again. */
static void full(void)
{
    struct wf_node_attach_params params;
    struct wf_node_link a, b, c;
    const char *text;
    near_begin();
    CHECK(!setenv("WEFT_NODE_INDEX_BITS", "1", 1));
    params = near_client(key);
    near_attach(key, &a);
    near_attach(key, &b);
    CHECK(a.index + b.index == 1);
    near_stderr_begin();
    CHECK_STATUS(wf_node_attach(&params, &c), WEFT_ELIMIT);
    text = near_stderr_end();
    CHECK(strstr(text, "WEFT_NODE_INDEX_BITS"));
    wf_node_detach(&b);
    near_attach(key, &c); /* the service reads BYE before it accepts this connection */
    CHECK(c.index == b.index);
    wf_node_detach(&a);
    wf_node_detach(&c);
    near_end(key);
}

/* A client that gives its service few descriptors. */
static void poor_main(int sock, void *arg)
{
    struct rlimit few = {32, 32}; /* the service itself needs about 18 */
    CHECK(!setrlimit(RLIMIT_NOFILE, &few));
    client_main(sock, arg);
}

/* Fails when: a client waits for a service that has no descriptor left, or gives up at once; or
 * that service does not serve the others. */
static void out_of_descriptors(void)
{
    struct wf_node_attach_params params;
    struct wf_node_link link, some[16];
    struct proc poor;
    enum weft_status status = WEFT_OK;
    unsigned count = 0;
    uint64_t begin = 0;
    const char *text;
    near_begin();
    poor = proc_start(poor_main, NULL);
    proc_say(poor.sock, "", 1);
    CHECK(proc_hear(poor.sock, &link, sizeof link) == sizeof link);
    near_stderr_begin();
    while (count < 16) {
        params = near_client(key);
        begin = wf_now_ns();
        status = wf_node_attach(&params, &some[count]);
        if (status != WEFT_OK)
            break;
        count++;
    }
    text = near_stderr_end();
    CHECK_STATUS(status, WEFT_ELIMIT);
    CHECK(wf_now_ns() - begin >= 400000000u && wf_now_ns() - begin < 5000000000u);
    CHECK(strstr(text, "ulimit") && count >= 4);
    wf_node_detach(&some[--count]);
    near_attach(key, &some[count]);
    count++;
    while (count--)
        wf_node_detach(&some[count]);
    client_leave(&poor);
    near_end(key);
}

/* Run a command; returns its exit code and what it wrote. */
static int run(const char *command, char *out, size_t room)
{
    char line[1024];
    FILE *f;
    int status;
    snprintf(line, sizeof line, "%s node %s 2>&1", tool, command);
    f = popen(line, "re");
    CHECK(f != NULL);
    out[fread(out, 1, room - 1, f)] = 0;
    status = pclose(f);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Fails when: the list lacks a service or a client, or is no JSON; a stop does not end the service
 * at once, or its clients take it for a death. */
static void list_and_stop(void)
{
    char out[4096], want[128], job[17], command[64], *at;
    struct wf_node_link link;
    uint64_t begin;
    near_begin();
    if (near_alone) {
        CHECK(run("--list", out, sizeof out) == 0 && strstr(out, "no service"));
        CHECK(run("--list --json", out, sizeof out) == 0 && !strcmp(out, "[]\n"));
    }
    CHECK(run("</dev/null", out, sizeof out) == 2 && strstr(out, "usage"));
    CHECK(run("--stop 0", out, sizeof out) == 1 && strstr(out, "no job is 0"));
    CHECK(run("--stop ../x", out, sizeof out) == 2);
    near_attach(key, &link);
    CHECK(run("--list", out, sizeof out) == 0);
    snprintf(want, sizeof want, "client %4u  process %d ", link.index, (int)getpid());
    CHECK(strstr(out, want));
    CHECK(strstr(out, "  clients 1 of at most 512, endpoints 0 (at most 64 of a client)\n"));
    CHECK(strstr(out, "  other services at most 4095, 4 connections to each, not encrypted\n"));
    CHECK(run("--list --json", out, sizeof out) == 0);
    CHECK(strstr(out, "\"limits\":{\"clients\":512,\"endpoints\":64,\"services\":4095,"));
    snprintf(want, sizeof want, "\"clients\":[{\"index\":%u,\"pid\":%d,", link.index,
             (int)getpid());
    CHECK(strstr(out, want));
    snprintf(want, sizeof want, "\",\"pid\":%d,", (int)link.pid);
    at = strstr(out, want);
    CHECK(at && at - out >= 16);
    snprintf(job, sizeof job, "%.16s", at - 16);
    CHECK(strspn(job, "0123456789abcdef") == 16);
    snprintf(command, sizeof command, "--stop %.9s", job);
    begin = wf_now_ns();
    CHECK(run(command, out, sizeof out) == 0 && !out[0]);
    CHECK(ended_after(link.pid, begin) < 0.9);
    CHECK_STATUS(near_hear(&link), WEFT_ECLOSED);
    wf_node_detach(&link);
    CHECK(run("--list --json", out, sizeof out) == 0 && !strstr(out, job));
    near_end(key);
}

/* Fails when: a service that is started with the key in a pipe takes another key from
 * WEFT_KEY_FILE, too, or does not start because of it. */
static void by_hand(void)
{
    char path[] = "/tmp/weft-by-hand-XXXXXX", line[32], out[4096];
    struct wf_node_attach_params params;
    struct wf_node_link link;
    int file, pipes[2];
    near_begin();
    file = mkstemp(path); /* a file of mode 600 */
    CHECK(file >= 0 && write(file, other_key, sizeof other_key) == sizeof other_key);
    CHECK(!pipe(pipes) && write(pipes[1], key, sizeof key) == sizeof key);
    close(pipes[1]);
    CHECK(!setenv("WEFT_KEY_FILE", path, 1) && !setenv("WEFT_NODE_NAME", "near", 1));
    snprintf(line, sizeof line, "<&%d", pipes[0]);
    CHECK(run(line, out, sizeof out) == 0);
    dprintf(STDOUT_FILENO, "  %s", out);
    CHECK(!strcmp(out, "started\n"));
    close(pipes[0]);
    params = near_client(key);
    params.program = "/nowhere/weft-node";
    CHECK_STATUS(wf_node_attach(&params, &link), WEFT_OK);
    wf_node_detach(&link);
    CHECK(!unlink(path));
    close(file);
    near_end(key);
}

/* Their rows need more room than a socket has: 212,992 bytes by default, 768 for each packet. */
#define MANY 400

/* Fails when: a list ends, or waits for ever, where its reader's socket is full. */
static void long_list(void)
{
    static struct wf_node_link links[MANY];
    struct wf_node_packet p;
    unsigned clients = 0;
    int sock;
    near_begin();
    for (int i = 0; i < MANY; i++)
        near_attach(key, &links[i]);
    p = near_hello(WF_NODE_LIST);
    sock = near_connect(key);
    CHECK(!wf_node_packet_send(sock, &p, NULL, 0));
    CHECK(near_clients(key) ==
          MANY); /* the other list is full by now, and its reader holds nobody up */
    CHECK(near_receive(sock, &p) == WF_NODE_ROW);
    while (near_receive(sock, &p) == WF_NODE_ROW)
        clients++;
    CHECK(p.type == WF_NODE_BYE && clients == MANY);
    close(sock);
    for (int i = 0; i < MANY; i++)
        wf_node_detach(&links[i]);
    near_end(key);
}

/* A program of a launcher: it attaches, and ends. */
static void rank_main(int out)
{
    struct wf_node_link link;
    if (dup2(out, STDOUT_FILENO) != STDOUT_FILENO || dup2(out, 100) != 100) /* not close-on-exec */
        _exit(1);
    near_attach(key, &link);
    if (write(STDOUT_FILENO, &link, sizeof link) != sizeof link)
        _exit(1);
    _exit(0);
}

/* Fails when: the service keeps the standard output, or another descriptor, of the process that
 * started it, whose launcher waits for the end of it. */
static void launcher(void)
{
    struct wf_node_link link;
    struct pollfd p = {.events = POLLIN};
    int pipes[2], status;
    char byte;
    pid_t pid;
    near_begin();
    CHECK(!pipe(pipes));
    pid = fork();
    if (!pid)
        rank_main(pipes[1]);
    close(pipes[1]);
    p.fd = pipes[0];
    CHECK(poll(&p, 1, PROC_WAIT_MS) == 1 && read(pipes[0], &link, sizeof link) == sizeof link);
    CHECK(poll(&p, 1, PROC_WAIT_MS) == 1 && read(pipes[0], &byte, 1) == 0);
    CHECK(!kill(link.pid, 0)); /* it is there for a second yet */
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(waitpid(link.pid, &status, WNOHANG) == 0);
    close(pipes[0]);
    near_end(key);
}

static void read_of(pid_t pid, const char *what, char *out, size_t room)
{
    char path[64];
    int fd;
    ssize_t n;
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, out, room - 1);
    CHECK(n >= 0);
    for (ssize_t i = 0; i < n; i++)
        if (!out[i])
            out[i] = '\n';
    out[n] = 0;
    close(fd);
}

/* Fails when: the service inherits a working directory, session, environment, mask or disposition
 * of signals, or processor of the process that started it, or keeps its low limits. */
static void inherits_nothing(void)
{
    char text[8192], cwd[64] = {0}, path[64];
    struct rlimit limit, soft;
    struct wf_node_link link;
    sigset_t usr;
    cpu_set_t one, all;
    int cpu;
    near_begin();
    CHECK(!sched_getaffinity(0, sizeof all, &all));
    for (cpu = 0; !CPU_ISSET(cpu, &all); cpu++)
        ;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK(!sched_setaffinity(0, sizeof one, &one) && !chdir("/tmp"));
    signal(SIGUSR1, SIG_IGN);
    sigemptyset(&usr);
    sigaddset(&usr, SIGUSR2);
    CHECK(!sigprocmask(SIG_BLOCK, &usr, NULL));
    CHECK(!setenv("PMIX_RANK", "0", 1) && !setenv("LD_BIND_NOW", "1", 1) &&
          !setenv("WEFT_SPIN", "7", 1));
    CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
    soft = (struct rlimit){limit.rlim_max / 2, limit.rlim_max};
    CHECK(!setrlimit(RLIMIT_NOFILE, &soft));
    near_attach(key, &link);
    read_of(link.pid, "environ", text, sizeof text);
    CHECK(!strstr(text, "PMIX_RANK") && !strstr(text, "LD_BIND_NOW") && !strstr(text, "\nPATH="));
    CHECK(strstr(text, "WEFT_SPIN=7\n") && strstr(text, "WEFT_NODE_NAME=near\n"));
    read_of(link.pid, "status", text, sizeof text);
    CHECK(strstr(text, "SigBlk:\t0000000000000000") && !strstr(text, "SigIgn:\t0000000000000200"));
    for (int fd = 0; fd < 3; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)link.pid, fd);
        CHECK(readlink(path, cwd, sizeof cwd - 1) == 9 && !memcmp(cwd, "/dev/null", 9));
    }
    snprintf(path, sizeof path, "/proc/%d/cwd", (int)link.pid);
    CHECK(readlink(path, cwd, sizeof cwd - 1) == 1 && getsid(link.pid) == link.pid);
    CHECK(!sched_getaffinity(link.pid, sizeof one, &one) && CPU_EQUAL(&one, &all));
    CHECK(!prlimit(link.pid, RLIMIT_NOFILE, NULL, &soft) && soft.rlim_cur == limit.rlim_max);
    read_of(link.pid, "cmdline", text, sizeof text);
    CHECK(!strstr(text, (const char *)key));
    wf_node_detach(&link);
    near_end(key);
}

/* Write a program in the place of a service's, to a name of mkstemp(3). */
static void program_write(char *path, const char *program)
{
    ssize_t len = (ssize_t)strlen(program);
    int file = mkstemp(path);
    CHECK(file >= 0 && write(file, program, (size_t)len) == len);
    CHECK(!fchmod(file, 0700) && !close(file));
}

/* Fails when: while a service starts, its client has copies of what the service gets: a child that
 * it forks meanwhile would keep them, and so the hold, and the port. */
static void few_copies(void)
{
    static const char program[] = "#!/bin/sh\n" /* it lists its parent's pages */
                                  "for i in $(seq 200); do\n"
                                  "n=$(ls -l /proc/$PPID/fd | grep -c weft-node-page)\n"
                                  "[ $n = 1 ] && break\n"
                                  "done\n"
                                  "echo $n pages\n";
    char path[] = "/tmp/weft-few-copies-XXXXXX", why[512];
    struct wf_node_attach_params params;
    struct wf_node_link link;
    near_begin();
    program_write(path, program);
    near_attach(key, &link);
    params = service_kill(&link);
    params.program = path;
    CHECK_STATUS(wf_node_spawn(&params, false, why), WEFT_ESYSTEM);
    CHECK(!unlink(path));
    if (strcmp(why, "1 pages"))
        proc_fail(__FILE__, __LINE__, "%s", why);
    wf_node_detach(&link);
    near_end(key);
}

#ifdef WF_HOOKS
static int pages_here(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        char path[32], to[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        count += readlink(path, to, sizeof to - 1) > 0 && strstr(to, "weft-node-page");
    }
    return count;
}

static int fork_at(const char *label)
{
    if (!strcmp(label, "node.given"))
        near_fork_beside(pages_here);
    return 0;
}

/* Fails when: a child that another thread forks while a service gets its descriptors keeps copies
 * of them, and so the hold, and the port. */
static void forked_beside(void)
{
    struct wf_node_attach_params params;
    struct wf_node_link link;
    char why[512];
    near_begin();
    near_attach(key, &link);
    params = service_kill(&link);
    params.program = "/bin/true";
    weft_test_hook = fork_at;
    CHECK_STATUS(wf_node_spawn(&params, false, why), WEFT_ECLOSED);
    weft_test_hook = NULL;
    CHECK(near_fork_join());
    wf_node_detach(&link);
    near_end(key);
}
#endif

/* Fails when: a context that closes waits for a service that it has started, and that does not come
 * further. */
static void stuck_program(void)
{
    static const char program[] = "#!/bin/sh\nexec sleep 30\n";
    char path[] = "/tmp/weft-stuck-XXXXXX", why[512];
    struct wf_node_attach_params params;
    near_begin();
    program_write(path, program);
    params = near_client(key);
    params.program = path;
    params.stop_fd = eventfd(1, EFD_CLOEXEC);
    params.until_ns = wf_now_ns() + UINT64_C(4000000000);
    CHECK(params.stop_fd > 0);
    CHECK_STATUS(wf_node_spawn(&params, false, why), WEFT_ETIMEDOUT);
    CHECK(wf_now_ns() < params.until_ns - UINT64_C(2000000000));
    close(params.stop_fd);
    CHECK(!unlink(path));
    CHECK(waitpid(-1, NULL, 0) < 0);
    near_end(key);
}

/* Fails when: a context that closes waits for the end of a program that has started its service. */
static void stuck_starter(void)
{
    char fifo[] = "/tmp/weft-stuck-fifo-XXXXXX", path[] = "/tmp/weft-stuck-XXXXXX";
    char program[128], why[512];
    struct wf_node_attach_params params;
    near_begin();
    CHECK(mkdtemp(fifo) && !rmdir(fifo) && !mkfifo(fifo, 0600));
    snprintf(program, sizeof program, "#!/bin/sh\necho started\necho > %s\nexec sleep 30\n", fifo);
    program_write(path, program);
    params = near_client(key);
    params.program = path;
    params.stop_fd = open(fifo, O_RDWR | O_NONBLOCK | O_CLOEXEC); /* the program writes to it */
    params.until_ns = wf_now_ns() + UINT64_C(4000000000);
    CHECK(params.stop_fd > 0);
    CHECK_STATUS(wf_node_spawn(&params, false, why), WEFT_OK);
    CHECK(wf_now_ns() < params.until_ns - UINT64_C(2000000000));
    close(params.stop_fd);
    CHECK(!unlink(path) && !unlink(fifo));
    CHECK(waitpid(-1, NULL, 0) < 0);
    near_end(key);
}

/* Fails when: a service that cannot be started makes the client wait, or the warning does not say
 * what is wrong. */
static void no_program(void)
{
    struct wf_node_attach_params params;
    struct wf_node_link link;
    near_begin();
    params = near_client(key);
    params.program = "/nowhere/weft-node";
    near_stderr_begin();
    CHECK_STATUS(wf_node_attach(&params, &link), WEFT_ESYSTEM);
    CHECK(strstr(near_stderr_end(), "/nowhere/weft-node: No such file"));
    params.program = "/dev/null";
    near_stderr_begin();
    CHECK_STATUS(wf_node_attach(&params, &link), WEFT_ESYSTEM);
    CHECK(strstr(near_stderr_end(), "execute permission"));
    params.program = "/bin/true";
    near_stderr_begin();
    CHECK_STATUS(wf_node_attach(&params, &link), WEFT_ESYSTEM);
    CHECK(strstr(near_stderr_end(), "ended without a word"));
    near_end(key);
}

int main(int argc, char **argv)
{
    int failed = 0;
    CHECK(argc == 3);
    near_program = realpath(argv[1], NULL); /* a case changes the working directory */
    tool = realpath(argv[2], NULL);
    CHECK(near_program && tool);
    failed += proc_case("race", race);
    failed += proc_case("last_client", last_client);
    failed += proc_case("comes_back", comes_back);
    failed += proc_case("killed_client", killed_client);
    failed += proc_case("killed_parent", killed_parent);
    failed += proc_case("forked_child", forked_child);
    failed += proc_case("killed_service", killed_service);
    failed += proc_case("heir_robbed", heir_robbed);
    failed += proc_case("heir_late", heir_late);
    failed += proc_case("heir_half_come", heir_half_come);
    failed += proc_case("heir_dead", heir_dead);
    failed += proc_case("held", held);
    failed += proc_case("killed_and_late", killed_and_late);
    failed += proc_case("killed_and_gone", killed_and_gone);
    failed += proc_case("claimed_twice", claimed_twice);
    failed += proc_case("another_job", another_job);
    failed += proc_case("other_parameters", other_parameters);
    failed += proc_case("full", full);
    if (!TEST_SANITIZED) /* its runtime needs descriptors */
        failed += proc_case("out_of_descriptors", out_of_descriptors);
    failed += proc_case("list_and_stop", list_and_stop);
    failed += proc_case("by_hand", by_hand);
    failed += proc_case("long_list", long_list);
    failed += proc_case("launcher", launcher);
    failed += proc_case("inherits_nothing", inherits_nothing);
    failed += proc_case("no_program", no_program);
    failed += proc_case("few_copies", few_copies);
#ifdef WF_HOOKS
    failed += proc_case("forked_beside", forked_beside);
#endif
    failed += proc_case("stuck_program", stuck_program);
    failed += proc_case("stuck_starter", stuck_starter);
    return failed ? 1 : 0;
}
