/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes of two nodes whose messages go by their nodes' services: as the public interface shows
 * it. A node is a value of WEFT_NODE_NAME, so both are on this host.
 *
 *   join_test                      the cases
 *   join_test latency              half the time of a request and its reply, between two nodes
 *   join_test kills COUNT SEED [N]   clients and services that are killed or stopped among traffic,
 *                                  N rounds at a time; in a build with hooks, clients also at
 *                                  each point between their attaching and their closing
 *   join_test streams COUNT        how far apart the ends of equal streams are, which all processes
 *                                  send at a time, each COUNT messages of 4,096 bytes
 *   join_test queue-pairs ONE TWO  the services' lanes are queue pairs, of one device on each node
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/hook.h"
#include "services.h"
#include "stress/kill/proc.h"

enum { SIDE = 4, ALL = 2 * SIDE, LANES = 4, FEW = 50, MOST = 1 << 20 };
enum { ASK, ANSWER, TELL };

static unsigned each = 2000;   /* requests to each peer */
static const char *devices[2]; /* of the two nodes; NULL: the lanes are TCP */
static const unsigned char key[WEFT_KEY_SIZE] = "the key of the join test";

/* Of the processes of a case: when a service was killed last among traffic, or 0, and how long the
 * last client then had no answer to a request that it sent after that. */
struct deaths {
    _Atomic uint64_t killed_ns, away_ns;
};
static struct deaths *deaths;

struct member {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peers[ALL];
    unsigned asked[ALL], sent[ALL], got[ALL], answered, downs, me;
    enum weft_status why;
    uint64_t killed_ns; /* of [deaths], seen */
    unsigned old[ALL];  /* requests sent before that */
    bool goes_on;       /* a later one was answered */
};

/* A request to [from] was answered. */
static void answer_note(struct member *m, unsigned from, unsigned number)
{
    uint64_t ns, most = deaths->away_ns;
    if (!m->killed_ns || m->goes_on || number < m->old[from])
        return;
    m->goes_on = true;
    ns = proc_now_ns() - m->killed_ns;
    while (ns > most && !atomic_compare_exchange_weak(&deaths->away_ns, &most, ns))
        continue;
}

static void death_note(struct member *m)
{
    uint64_t killed_ns = deaths->killed_ns;
    if (m->killed_ns == killed_ns)
        return;
    m->killed_ns = killed_ns;
    memcpy(m->old, m->sent, sizeof m->old);
    m->goes_on = false;
}

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    struct member *m = arg;
    (void)ep;
    (void)peer;
    m->downs++;
    m->why = why;
}

/* The number of each sender's requests grows by one each time. */
static void on_ask(const struct weft_am *am)
{
    struct member *m = am->arg;
    unsigned from = am->args[0];
    uint32_t args[2] = {m->me};
    enum weft_status status;
    CHECK(from < ALL && am->args[1] == m->asked[from]);
    CHECK(am->len == am->args[1] % 300);
    for (unsigned i = 0; i < am->len; i++)
        CHECK(((const unsigned char *)am->data)[i] == (unsigned char)(am->args[1] + i));
    args[1] = m->asked[from]++;
    status = weft_am_reply(am, ANSWER, args, 2, NULL, 0);
    CHECK(status == WEFT_OK || status == WEFT_EPEER);
}

/* Each request is answered once; answers have no order. */
static void on_answer(const struct weft_am *am)
{
    static unsigned char seen[ALL][MOST / 8];
    struct member *m = am->arg;
    unsigned from = am->args[0], number = am->args[1];
    CHECK(from < ALL && number < MOST && !(seen[from][number / 8] >> number % 8 & 1));
    seen[from][number / 8] |= (unsigned char)(1u << number % 8);
    m->got[from]++;
    m->answered++;
    answer_note(m, from, number);
}

static void on_tell(const struct weft_am *am)
{
    ((struct member *)am->arg)->answered++;
}

static void poll_once(struct member *m)
{
    CHECK(weft_ep_wait(m->ep, 10000000) >= 0);
}

/* Open an endpoint, and peers of the other side: addresses go by the parent. */
static void member_open(struct member *m, int sock, unsigned me)
{
    struct weft_ctx_params ctx = WEFT_CTX_PARAMS_INIT;
    struct weft_ep_params ep = WEFT_EP_PARAMS_INIT;
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    *m = (struct member){.me = me};
    CHECK(!setenv("WEFT_NODE_NAME", me < SIDE ? "left" : "right", 1));
    if (devices[0])
        CHECK(!setenv("WEFT_RDMA_DEVICE", devices[me >= SIDE], 1));
    ctx.flags = WEFT_CTX_NETWORK;
    ep.peer_down = on_down;
    ep.arg = m;
    CHECK_STATUS(weft_ctx_open(&ctx, &m->ctx), WEFT_OK);
    CHECK_STATUS(weft_ctx_set_key(m->ctx, key, sizeof key), WEFT_OK);
    CHECK_STATUS(weft_ep_open(m->ctx, &ep, &m->ep), WEFT_OK);
    CHECK_STATUS(weft_am_register(m->ep, ASK, on_ask, m), WEFT_OK);
    CHECK_STATUS(weft_am_register(m->ep, ANSWER, on_answer, m), WEFT_OK);
    CHECK_STATUS(weft_am_register(m->ep, TELL, on_tell, m), WEFT_OK);
    CHECK_STATUS(weft_ep_address(m->ep, addr, &len), WEFT_OK);
    proc_say(sock, addr, len);
    for (unsigned i = 0; i < SIDE; i++) {
        unsigned to = me < SIDE ? SIDE + i : i;
        len = proc_hear(sock, addr, sizeof addr);
        if (len) /* else it was killed before it had an address */
            CHECK_STATUS(weft_peer_open(m->ep, addr, len, &m->peers[to]), WEFT_OK);
    }
}

static void member_close(struct member *m)
{
    for (unsigned i = 0; i < ALL; i++)
        if (m->peers[i])
            while (weft_peer_close(m->peers[i]) == WEFT_EBUSY)
                poll_once(m);
    CHECK_STATUS(weft_ep_close(m->ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(m->ctx), WEFT_OK);
}

/* Returns the length. */
static unsigned payload(unsigned char *data, unsigned number)
{
    for (unsigned i = 0; i < number % 300; i++)
        data[i] = (unsigned char)(number + i);
    return number % 300;
}

static void ask(struct member *m, unsigned to, unsigned number)
{
    unsigned char data[300];
    unsigned len = payload(data, number);
    const uint32_t args[2] = {m->me, number};
    uint64_t end = proc_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    enum weft_status status;
    while ((status = weft_am_request(m->peers[to], ASK, args, 2, data, len, 1)) == WEFT_AGAIN &&
           proc_now_ns() < end)
        poll_once(m);
    CHECK_STATUS(status, WEFT_OK);
}

static unsigned asked_all(const struct member *m)
{
    unsigned n = 0;
    for (unsigned i = 0; i < ALL; i++)
        n += m->asked[i];
    return n;
}

/* ---- all to all ---- */

static void talk(int sock, void *arg)
{
    struct member m;
    char go;
    uint64_t end;
    member_open(&m, sock, *(unsigned *)arg);
    for (unsigned i = 0; i < each; i++)
        for (unsigned to = 0; to < ALL; to++)
            if (m.peers[to])
                ask(&m, to, i);
    end = proc_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    while ((m.answered < SIDE * each || asked_all(&m) < SIDE * each) && proc_now_ns() < end)
        poll_once(&m);
    CHECK(m.answered == SIDE * each && asked_all(&m) == SIDE * each);
    proc_say(sock, "done", 4);
    CHECK(proc_hear(sock, &go, 1) == 1);
    member_close(&m);
}

/* How many TCP connections there are in this network namespace. */
static unsigned connections(void)
{
    char line[512];
    unsigned ends = 0, state;
    FILE *f = fopen("/proc/self/net/tcp", "re");
    CHECK(f);
    while (fgets(line, sizeof line, f))
        ends += sscanf(line, "%*u: %*x:%*x %*x:%*x %x", &state) == 1 && state == 1;
    fclose(f);
    return ends / 2; /* both ends are here */
}

/* Start [fn] for each member of both sides, and give each the addresses of the other side. */
static void members_start(struct proc *p, void (*fn)(int sock, void *arg))
{
    static unsigned numbers[ALL];
    static unsigned char addr[ALL][WEFT_ADDR_MAX];
    size_t len[ALL];
    for (unsigned i = 0; i < ALL; i++) {
        numbers[i] = i;
        p[i] = proc_start(fn, &numbers[i]);
        len[i] = proc_hear(p[i].sock, addr[i], sizeof addr[i]);
    }
    for (unsigned i = 0; i < ALL; i++)
        for (unsigned k = 0; k < SIDE && len[i]; k++) {
            unsigned to = i < SIDE ? SIDE + k : k;
            proc_say(p[i].sock, addr[to], len[to]);
        }
}

/* Each has sent four bytes. */
static void members_await(const struct proc *p)
{
    char said[8];
    for (unsigned i = 0; i < ALL; i++)
        CHECK(proc_hear(p[i].sock, said, sizeof said) == 4);
}

static void members_end(struct proc *p)
{
    for (unsigned i = 0; i < ALL; i++)
        proc_say(p[i].sock, "!", 1);
    for (unsigned i = 0; i < ALL; i++)
        proc_join(&p[i]);
}

static void begin(void)
{
    services_begin(devices[0] != NULL);
    deaths = mmap(NULL, sizeof *deaths, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(deaths != MAP_FAILED);
}

/* Fails when: messages are lost, come twice or out of order, or the services of two nodes have more
 * connections than WEFT_NODE_CONNECTIONS. */
static void talk_all(void (*look)(void))
{
    struct proc p[ALL];
    members_start(p, talk);
    members_await(p);
    look();
    members_end(p);
}

static void connections_look(void)
{
    CHECK(connections() == LANES);
}

static void all_to_all(void)
{
    begin();
    talk_all(connections_look);
    services_end();
}

/* ---- by queue pairs ---- */

struct held { /* by the kernel, of a device */
    unsigned pds, qps, mrs, contexts;
};

static struct held before[2];

static struct held held(const char *device)
{
    char command[128];
    struct held h = {0};
    FILE *f;
    snprintf(command, sizeof command, "rdma resource show %s", device);
    f = popen(command, "re");
    CHECK(f);
    CHECK(fscanf(f, "%*u: %*s pd %u cq %*u qp %u cm_id %*u mr %u ctx %u", &h.pds, &h.qps, &h.mrs,
                 &h.contexts) == 4);
    CHECK(pclose(f) == 0);
    return h;
}

static void queue_pairs_look(void)
{
    for (int i = 0; i < 2; i++) {
        struct held h = held(devices[i]);
        printf("%s: %u queue pairs, %u contexts, %u protection domains, %u registrations\n",
               devices[i], h.qps - before[i].qps, h.contexts - before[i].contexts,
               h.pds - before[i].pds, h.mrs - before[i].mrs);
        fflush(stdout);
        CHECK(h.qps - before[i].qps == LANES);
        CHECK(h.contexts - before[i].contexts == 1 && h.pds - before[i].pds == 1);
    }
}

/* Fails when: messages are lost, come twice or out of order; a client opens a device, or two
 * services have more queue pairs than WEFT_NODE_CONNECTIONS; or something of them is left. */
static void queue_pairs(void)
{
    begin();
    for (int i = 0; i < 2; i++)
        before[i] = held(devices[i]);
    talk_all(queue_pairs_look);
    services_end();
    for (int i = 0; i < 2; i++) {
        struct held h = held(devices[i]);
        CHECK(!memcmp(&h, &before[i], sizeof h));
    }
}

/* ---- deaths ---- */

static bool starved; /* the process opens no more descriptors */

static void starve(void)
{
    struct rlimit few = {16, 16};
    CHECK(!setrlimit(RLIMIT_NOFILE, &few));
}

/* Ask each peer once, then wait until [wanted] peers are down. */
static void mourn(int sock, unsigned me, unsigned wanted)
{
    struct member m;
    uint64_t end = proc_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    member_open(&m, sock, me);
    for (unsigned to = 0; to < ALL; to++)
        if (m.peers[to])
            ask(&m, to, 0);
    while ((m.answered < SIDE || asked_all(&m) < SIDE) && proc_now_ns() < end)
        poll_once(&m);
    CHECK(m.answered == SIDE);
    if (starved)
        starve();
    proc_say(sock, "done", 4);
    end = proc_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    while (m.downs < wanted && proc_now_ns() < end)
        poll_once(&m);
    CHECK(m.downs == wanted && (!wanted || m.why == WEFT_EPEER));
    proc_say(sock, "gone", 4);
    CHECK(proc_hear(sock, &m.me, 1) == 1);
    _exit(0); /* as a process that has given up */
}

static void mourn_one(int sock, void *arg)
{
    unsigned me = *(unsigned *)arg;
    mourn(sock, me, me < SIDE ? 1 : 0);
}

/* Fails when: the end of a killed process is not reported, or ends another process's peers. */
static void client_killed(void)
{
    struct proc p[ALL];
    char said[8];
    begin();
    members_start(p, mourn_one);
    for (unsigned i = 0; i < ALL; i++)
        CHECK(proc_hear(p[i].sock, said, 4) == 4);
    CHECK(WIFSIGNALED(proc_kill(&p[SIDE], SIGKILL)));
    for (unsigned i = 0; i < SIDE; i++)
        CHECK(proc_hear(p[i].sock, said, 4) == 4);
    for (unsigned i = 0; i < ALL; i++)
        if (i != SIDE) {
            proc_say(p[i].sock, "!", 1);
            if (i > SIDE)
                (void)proc_kill(&p[i], SIGKILL);
            else
                proc_join(&p[i]);
        }
    services_end();
}

static void mourn_starved(int sock, void *arg)
{
    starved = true;
    mourn(sock, *(unsigned *)arg, SIDE);
}

/* Fails when: clients of a service that was killed, of which none can start a successor, wait for
 * their peers for ever; or those of the other service do. */
static void no_successor(void)
{
    struct proc p[ALL];
    char said[8];
    pid_t services[2];
    CHECK(!setenv("WEFT_PEER_TIMEOUT", "1s", 1));
    begin();
    members_start(p, mourn_starved);
    members_await(p);
    services_await(services, 2);
    CHECK(!kill(services[0], SIGKILL));
    for (unsigned i = 0; i < ALL; i++)
        CHECK(proc_hear(p[i].sock, said, 4) == 4);
    for (unsigned i = 0; i < ALL; i++) {
        proc_say(p[i].sock, "!", 1);
        proc_join(&p[i]);
    }
    services_end();
}

/* ---- kills among traffic ---- */

enum { MORE = 100, STOP_MS = 100, BURST = 16, BEFORE_MS = 40, MOST_HITS = 100 };
#define MOST_AWAY_NS UINT64_C(2000000000) /* that clients are to be without a service */
enum victim {
    CLIENT,
    CLIENT_AT_POINT,
    SERVICE,
    SERVICES,
    SUCCESSOR,
    BOTH,
    OPENS,
    CLOSES,
    CLIENT_STOPS,
    SERVICE_STOPS
};
static const char *const victim_names[] = {"client killed",
                                           "client killed at",
                                           "service killed",
                                           "both services killed",
                                           "a killed one's successor killed",
                                           "services and a client killed",
                                           "service killed while clients open",
                                           "service killed while clients close",
                                           "client stopped",
                                           "service stopped"};
static const enum victim turns[] = {CLIENT, CLIENT_AT_POINT, SERVICE,   SERVICES,  CLIENT_STOPS,
                                    OPENS,  CLIENT_AT_POINT, SUCCESSOR, SERVICES,  SERVICE_STOPS,
                                    BOTH,   CLIENT_AT_POINT, SERVICE,   SUCCESSOR, CLOSES};
static enum victim victim;
static unsigned at_ms; /* of traffic before */
static unsigned whose; /* client, or service */

/* Points of a client, in the order in which it passes them for the first time. */
enum when { OPENING, TRAFFIC, CLOSING };
static const struct point {
    const char *label;
    enum when when;
    unsigned hits; /* the client is killed at one of the first so many; CLOSING: at the last */
} points[] = {
    {"node.hello", OPENING, 1},           {"node.proof", OPENING, 1},
    {"node.welcome", OPENING, 1},         {"node.asked", OPENING, 1}, /* for rings */
    {"node.rings", OPENING, 1},           {"node.record", TRAFFIC, SIDE},
    {"node.place", TRAFFIC, MOST_HITS},   {"node.entry", TRAFFIC, MOST_HITS},
    {"node.posted", TRAFFIC, MOST_HITS},  {"node.delivered", TRAFFIC, MOST_HITS},
    {"node.reply", TRAFFIC, MOST_HITS},   {"node.taken", TRAFFIC, MOST_HITS},
    {"node.replied", TRAFFIC, MOST_HITS}, {"node.asked", CLOSING, 2}}; /* to let the rings go */
enum { POINTS = sizeof points / sizeof *points };
/* And those that it passes when its service has died. */
static const struct point changes[] = {{"node.successor", TRAFFIC, 1},
                                       {"node.reattached", TRAFFIC, 1}};
static const struct point *point;
static unsigned at_hit;

/* Wait until the client has killed itself. */
static void await_kill(struct proc *p)
{
    char said[8];
    int status;
    while (proc_hear(p->sock, said, sizeof said))
        continue;
    CHECK(waitpid(p->pid, &status, 0) == p->pid && WIFSIGNALED(status));
    close(p->sock);
    p->pid = -1;
}

#ifdef WF_HOOKS
static int on_point(const char *label)
{
    static _Atomic unsigned hits;
    if (!strcmp(label, point->label) && ++hits == at_hit)
        (void)kill(getpid(), SIGKILL);
    return 0;
}

static void point_set(unsigned me)
{
    if ((victim == CLIENT_AT_POINT || victim == BOTH) && me == whose)
        weft_test_hook = on_point;
}

static void client_await(struct proc *p)
{
    await_kill(p);
}
#else
static void point_set(unsigned me)
{
    (void)me;
}

static void client_await(struct proc *p)
{
    CHECK(WIFSIGNALED(proc_kill(p, SIGKILL)));
}
#endif

static bool dies_at(enum when when)
{
    return victim == CLIENT_AT_POINT && point->when == when;
}

static bool is_up(const struct member *m, unsigned to)
{
    return m->peers[to] && weft_peer_status(m->peers[to]) == WEFT_OK;
}

/* Send to each peer that is up as much as there is room for, at most [most] requests. */
static void burst(struct member *m, unsigned most)
{
    unsigned char data[300];
    death_note(m);
    for (unsigned to = 0; to < ALL; to++)
        for (unsigned i = 0; i < most && is_up(m, to); i++) {
            const uint32_t args[2] = {m->me, m->sent[to]};
            unsigned len = payload(data, m->sent[to]);
            enum weft_status status = weft_am_request(m->peers[to], ASK, args, 2, data, len, 1);
            if (status != WEFT_OK) {
                CHECK(status == WEFT_AGAIN || status == WEFT_EPEER);
                break;
            }
            m->sent[to]++;
        }
    CHECK(weft_ep_poll(m->ep) >= 0);
}

static bool all_answered(const struct member *m)
{
    for (unsigned to = 0; to < ALL; to++)
        if (is_up(m, to) && m->got[to] != m->sent[to])
            return false;
    return true;
}

/* Has each peer answered that lives? One that was never reached is lost only after
 * WEFT_CONNECT_TIMEOUT. */
static bool has_heard_all(const struct member *m)
{
    for (unsigned to = 0; to < ALL; to++)
        if (is_up(m, to) && !m->got[to])
            return false;
    return true;
}

/* Traffic until the parent says how many peers are lost; until these are; and then some more with
 * those that are left, of which nothing is lost. */
static void flood(int sock, void *arg)
{
    struct member m;
    unsigned lost;
    uint64_t end;
    point_set(*(unsigned *)arg);
    member_open(&m, sock, *(unsigned *)arg);
    end = proc_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    while (!has_heard_all(&m) && proc_now_ns() < end)
        burst(&m, BURST);
    CHECK(has_heard_all(&m));
    proc_say(sock, "busy", 4);
    while (recv(sock, &lost, sizeof lost, MSG_DONTWAIT) < 0)
        burst(&m, BURST);
    end = proc_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    while (m.downs < lost && proc_now_ns() < end)
        burst(&m, BURST);
    for (unsigned i = 0; i < MORE || (m.killed_ns && !m.goes_on && proc_now_ns() < end); i++)
        burst(&m, 1);
    while (!all_answered(&m) && proc_now_ns() < end)
        poll_once(&m);
    if (m.downs != lost || (lost && m.why != WEFT_EPEER) || !all_answered(&m) ||
        (m.killed_ns && !m.goes_on))
        proc_fail(__FILE__, __LINE__, "member %u lost %u peers of %u (%s), %s", m.me, m.downs, lost,
                  weft_status_name(m.why),
                  all_answered(&m) ? "all answered" : "answers are missing");
    proc_say(sock, "done", 4);
    while (recv(sock, &lost, 1, MSG_DONTWAIT) < 0) /* others wait for answers */
        poll_once(&m);
    member_close(&m);
}

static void wait_ms(unsigned ms)
{
    const struct timespec t = {.tv_nsec = ms * 1000000L};
    CHECK(!nanosleep(&t, NULL));
}

static void service_kill(pid_t pid)
{
    uint64_t now = proc_now_ns();
    CHECK(!kill(pid, SIGKILL));
    if (victim != OPENS && victim != CLOSES)
        deaths->killed_ns = now;
}

/* Kill a service, or both, and then one that is its successor, or the other one. */
static void services_kill(void)
{
    pid_t services[2];
    services_await(services, 2);
    wait_ms(at_ms);
    service_kill(services[whose % 2]);
    if (victim == SERVICES || victim == BOTH) /* one of the two is the client's */
        service_kill(services[!(whose % 2)]);
    if (victim != SUCCESSOR)
        return;
    while (services_runs(services[whose % 2]))
        CHECK(!sched_yield());
    services_await(services, 2);
    wait_ms(at_ms / 4);
    service_kill(services[!(whose & 4)]);
}

static void killer(int sock, void *arg)
{
    (void)sock;
    (void)arg;
    services_kill();
}

static void strike(struct proc *p)
{
    pid_t services[2];
    if (victim == CLIENT_AT_POINT) {
        if (point->when != CLOSING)
            await_kill(&p[whose]);
        return;
    }
    if (victim == SERVICE || victim == SERVICES || victim == SUCCESSOR || victim == BOTH)
        services_kill();
    if (victim == BOTH)
        client_await(&p[whose]);
    if (victim == CLIENT) {
        wait_ms(at_ms);
        CHECK(WIFSIGNALED(proc_kill(&p[whose], SIGKILL)));
    }
    if (victim == CLIENT_STOPS || victim == SERVICE_STOPS) {
        pid_t pid;
        services_await(services, 2);
        wait_ms(at_ms);
        pid = victim == CLIENT_STOPS ? p[whose].pid : services[whose % 2];
        CHECK(!kill(pid, SIGSTOP));
        wait_ms(STOP_MS);
        CHECK(!kill(pid, SIGCONT));
    }
}

/* How many peers member [i] loses. */
static unsigned loses(unsigned i)
{
    if (victim == CLIENT || victim == BOTH || dies_at(TRAFFIC))
        return (i < SIDE) != (whose < SIDE);
    return 0;
}

static bool is_left(unsigned i)
{
    return i != whose ||
           !(victim == CLIENT || victim == BOTH || dies_at(OPENING) || dies_at(TRAFFIC));
}

/* No socket has the name of a service. */
static bool names_are_gone(void)
{
    char line[512];
    bool gone = true;
    FILE *f = fopen("/proc/self/net/unix", "re");
    CHECK(f);
    while (fgets(line, sizeof line, f))
        gone &= !strstr(line, "@weft-node-");
    fclose(f);
    return gone;
}

/* Fails when: a member hangs, or loses another peer than a dead one, or one whose service was
 * killed; a message between two that live is lost, or comes twice or out of order; a process, a
 * connection or a name is left. */
static void kill_round(void)
{
    struct proc p[ALL];
    char said[8];
    struct proc kills;
    begin();
    if (victim == OPENS)
        kills = proc_start(killer, NULL);
    members_start(p, flood);
    if (victim == OPENS)
        proc_join(&kills);
    for (unsigned i = 0; i < ALL; i++)
        CHECK(!is_left(i) || proc_hear(p[i].sock, said, sizeof said) == 4);
    strike(p);
    for (unsigned i = 0; i < ALL; i++) {
        unsigned lost = loses(i);
        if (is_left(i))
            proc_say(p[i].sock, &lost, sizeof lost);
    }
    for (unsigned i = 0; i < ALL; i++)
        CHECK(!is_left(i) || proc_hear(p[i].sock, said, sizeof said) == 4);
    if (victim == CLOSES)
        kills = proc_start(killer, NULL);
    for (unsigned i = 0; i < ALL; i++)
        if (is_left(i)) {
            proc_say(p[i].sock, "!", 1);
            if (i == whose && dies_at(CLOSING))
                await_kill(&p[i]);
            else
                proc_join(&p[i]);
        }
    if (victim == CLOSES)
        proc_join(&kills);
    services_end();
    CHECK(connections() == 0 && names_are_gone());
    if (deaths->away_ns) /* as scripts/soak reads it */
        printf("%s: to the first new answer %d of 1 held; slowest %.1f ms\n", victim_names[victim],
               deaths->away_ns <= MOST_AWAY_NS, (double)deaths->away_ns / 1e6);
    fflush(stdout);
}

/* Round [i]. Returns 0 if it held. */
static int kill_once(unsigned i, uint64_t seed)
{
    char name[64];
    uint64_t x = (seed + i) * UINT64_C(0x9e3779b97f4a7c15);
    int bad;
    x ^= x >> 29;
    victim = turns[i % (sizeof turns / sizeof *turns)];
#ifndef WF_HOOKS
    if (victim == CLIENT_AT_POINT)
        victim = CLIENT;
#endif
    at_ms = (unsigned)(x % BEFORE_MS) / (victim == OPENS || victim == CLOSES ? 4 : 1);
    whose = (unsigned)(x >> 32) % ALL;
    point = &points[(seed + i / 2) % POINTS];
    at_hit = point->when == CLOSING ? point->hits : 1 + (unsigned)(x >> 40) % point->hits;
    if (victim == BOTH) {
        point = &changes[(x >> 40) % 2];
        at_hit = 1;
    }
    if (victim == CLIENT_AT_POINT)
        snprintf(name, sizeof name, "%s %s, hit %u", victim_names[victim], point->label, at_hit);
    else
        snprintf(name, sizeof name, "%s after %u ms", victim_names[victim], at_ms);
    bad = proc_case(name, kill_round);
    printf("counted %s%s%s: %d\n", victim_names[victim], victim == CLIENT_AT_POINT ? " " : "",
           victim == CLIENT_AT_POINT ? point->label : "", !bad);
    fflush(stdout);
    return bad;
}

/* Every [abreast]th round from [first] on. */
struct lane {
    unsigned first, abreast, count;
    uint64_t seed;
};

static void lane_run(int sock, void *arg)
{
    const struct lane *lane = arg;
    (void)sock;
    alarm(0); /* each round has its own */
    for (unsigned i = lane->first; i < lane->count; i += lane->abreast)
        if (kill_once(i, lane->seed))
            _exit(1);
}

/* Rounds at a time need networks of their own, since all have the same services' names. */
static unsigned most_abreast(unsigned wanted)
{
    int status;
    pid_t pid = fork();
    if (!pid)
        _exit(unshare(CLONE_NEWNET) != 0);
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    return status ? 1 : wanted;
}

static int kills(unsigned count, uint64_t seed, unsigned wanted)
{
    enum { MOST_LANES = 8 };
    struct lane lanes[MOST_LANES];
    struct proc p[MOST_LANES];
    unsigned n;
    CHECK(wanted && wanted <= MOST_LANES);
    n = most_abreast(wanted);
    for (unsigned i = 0; i < n; i++) {
        lanes[i] = (struct lane){i, n, count, seed};
        p[i] = proc_start(lane_run, &lanes[i]);
    }
    for (unsigned i = 0; i < n; i++)
        proc_join(&p[i]);
    return 0;
}

/* ---- latency ---- */

enum { ROUNDS = 20000 };

static void measure(int sock, void *arg)
{
    struct member m;
    unsigned me = *(unsigned *)arg, to = me < SIDE ? SIDE : 0;
    uint64_t begin_ns = 0;
    member_open(&m, sock, me);
    for (unsigned i = 0; !me && i <= ROUNDS; i++) {
        if (i == 1)
            begin_ns = proc_now_ns();
        ask(&m, to, i);
        while (m.answered <= i)
            CHECK(weft_ep_wait(m.ep, 1000000000) >= 0);
    }
    if (!me)
        printf("%.2f us: half the time of a request and its reply\n",
               (double)(proc_now_ns() - begin_ns) / 2e3 / ROUNDS);
    fflush(stdout);
    while (me == SIDE && m.asked[0] <= ROUNDS)
        CHECK(weft_ep_wait(m.ep, 1000000000) >= 0);
    proc_say(sock, "done", 4);
    CHECK(proc_hear(sock, &me, 1) == 1);
    member_close(&m);
}

static void latency(void)
{
    struct proc p[ALL];
    begin();
    members_start(p, measure);
    members_await(p);
    members_end(p);
    services_end();
}

/* ---- equal streams ---- */

enum { CHUNK = 4096 };

/* Send to the member of the same number on the other side, and report when all of its messages have
 * come. */
static void stream(int sock, void *arg)
{
    static const unsigned char data[CHUNK];
    struct member m;
    unsigned me = *(unsigned *)arg, to = (me + SIDE) % ALL;
    uint64_t begin_ns, ns = 0;
    member_open(&m, sock, me);
    ask(&m, to, 0);
    while (!m.answered || !m.asked[to])
        poll_once(&m);
    m.answered = 0;
    proc_say(sock, "open", 4);
    CHECK(proc_hear(sock, &me, 1) == 1);
    begin_ns = proc_now_ns();
    while (!ns || m.sent[to] < each) {
        enum weft_status status = WEFT_OK;
        for (unsigned i = 0; i < BURST && m.sent[to] < each && status == WEFT_OK; i++) {
            status = weft_am_request(m.peers[to], TELL, NULL, 0, data, CHUNK, 0);
            m.sent[to] += status == WEFT_OK;
        }
        CHECK(status == WEFT_OK || status == WEFT_AGAIN);
        if (status == WEFT_AGAIN || m.sent[to] == each) /* the processors are the services' then */
            poll_once(&m);
        else
            CHECK(weft_ep_poll(m.ep) >= 0);
        if (!ns && m.answered == each)
            ns = proc_now_ns() - begin_ns;
    }
    proc_say(sock, &ns, sizeof ns);
    while (recv(sock, &me, 1, MSG_DONTWAIT) < 0)
        poll_once(&m);
    member_close(&m);
}

static void streams(void)
{
    struct proc p[ALL];
    begin();
    members_start(p, stream);
    members_await(p);
    for (unsigned i = 0; i < ALL; i++)
        proc_say(p[i].sock, "!", 1);
    for (unsigned side = 0; side < 2; side++) {
        uint64_t least = UINT64_MAX, most = 0;
        for (unsigned i = side * SIDE; i < (side + 1) * SIDE; i++) {
            uint64_t ns;
            CHECK(proc_hear(p[i].sock, &ns, sizeof ns) == sizeof ns);
            least = ns < least ? ns : least;
            most = ns > most ? ns : most;
            printf("%.3f ", (double)ns / 1e9);
        }
        printf("s: %u streams to one node end after %.3f to %.3f s: %.1f%% apart\n", SIDE,
               (double)least / 1e9, (double)most / 1e9,
               100.0 * (double)(most - least) / (double)most);
    }
    fflush(stdout);
    members_end(p);
    services_end();
}

int main(int argc, char **argv)
{
    int bad = 0;
    if (argc == 3 && !strcmp(argv[1], "streams")) {
        each = (unsigned)atoi(argv[2]);
        return proc_case("streams", streams);
    }
    if (argc > 1 && !strcmp(argv[1], "latency"))
        return proc_case("latency", latency);
    if (argc == 4 && !strcmp(argv[1], "queue-pairs")) {
        devices[0] = argv[2];
        devices[1] = argv[3];
        each = FEW;
        return proc_case("queue pairs", queue_pairs);
    }
    CHECK(!setenv("WEFT_PEER_TIMEOUT", "3s", 1));
    if (argc >= 4 && !strcmp(argv[1], "kills"))
        return kills((unsigned)atoi(argv[2]), strtoull(argv[3], NULL, 10),
                     argc > 4 ? (unsigned)atoi(argv[4]) : 1);
    bad += proc_case("all to all", all_to_all);
    bad += proc_case("a client is killed", client_killed);
    victim = SERVICE;
    bad += proc_case("a service is killed", kill_round);
    victim = SERVICES;
    bad += proc_case("both services are killed", kill_round);
    bad += proc_case("a service has no successor", no_successor);
    return bad != 0;
}
