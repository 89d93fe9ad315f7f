/* SPDX-License-Identifier: BSD-3-Clause */
/* src/transport/names and src/core/resolve.c: names without a server, false servers, other
 * versions, forks. Sockets of the test play the false servers. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <weft/msg.h>
#include <weft/weft.h>

#include "contract/support.h"
#include "core/core.h"
#include "transport/names/names_int.h"
#include "transport/names/question.h"

#define OK(call) assert_int_equal((call), WEFT_OK)
#define TIMEOUT_NS ((uint64_t)1000000000) /* WEFT_CONNECT_TIMEOUT, set in main */
#define SLACK_NS ((uint64_t)10000000000)  /* what a busy machine may add */
#define HELD 300                          /* more than the callers that there may be */

enum { TAG = 1 };

static unsigned strangers = 2000, names = 300;

struct bed {
    struct weft_ctx *ctx;
    struct weft_ep *client, *server;
    struct weft_peer *peer;
    struct sockaddr_in name;
    int downs;
    enum weft_status why;
};

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    struct bed *b = arg;
    (void)ep;
    b->downs++;
    b->why = why;
    if (weft_peer_status(peer) != why)
        b->downs = -1000;
}

static enum weft_status serve(struct bed *b, struct weft_ep **out)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    params.name = (struct sockaddr *)(void *)&b->name;
    params.name_size = sizeof b->name;
    return weft_ep_open(b->ctx, &params, out);
}

static void server_open(struct bed *b)
{
    size_t len = sizeof b->name;
    OK(serve(b, &b->server));
    OK(weft_ep_name(b->server, (struct sockaddr *)(void *)&b->name, &len));
}

static struct bed *bed_open(bool serves)
{
    struct bed *b = calloc(1, sizeof *b);
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    unsigned char bytes[WEFT_ADDR_MAX];
    size_t len = sizeof bytes;
    params.peer_down = on_down;
    params.arg = b;
    b->name = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(test_own_ip())}};
    OK(weft_ctx_open(NULL, &b->ctx));
    OK(weft_ep_open(b->ctx, &params, &b->client));
    server_open(b); /* for a port */
    if (!serves) {
        OK(weft_ep_close(b->server));
        b->server = NULL;
    }
    OK(weft_name_address((struct sockaddr *)(void *)&b->name, sizeof b->name, bytes, &len));
    OK(weft_peer_open(b->client, bytes, len, &b->peer));
    return b;
}

static void bed_close(struct bed *b)
{
    OK(weft_peer_close(b->peer));
    OK(weft_ep_close(b->client));
    if (b->server)
        OK(weft_ep_close(b->server));
    OK(weft_ctx_close(b->ctx));
    free(b);
}

static void poll_both(struct bed *b)
{
    assert_true(weft_ep_poll(b->client) >= 0);
    assert_true(!b->server || weft_ep_poll(b->server) >= 0);
}

#define UNTIL(b, cond)                                                                             \
    do {                                                                                           \
        uint64_t end_ = test_now_ns() + TEST_LIMIT_NS;                                             \
        while (!(cond)) {                                                                          \
            poll_both(b);                                                                          \
            assert_true(test_now_ns() < end_);                                                     \
        }                                                                                          \
    } while (0)

static enum weft_status send_end(struct bed *b)
{
    uint64_t word = 1;
    struct weft_op op = {0};
    enum weft_status status = weft_msg_send(b->peer, TAG, &word, sizeof word, &op);
    if (status != WEFT_PENDING)
        return status;
    UNTIL(b, op.status != WEFT_PENDING);
    return (enum weft_status)op.status;
}

static int listener(struct bed *b)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)(void *)&b->name, sizeof b->name), 0);
    assert_int_equal(listen(fd, 64), 0);
    return fd;
}

static int stranger(const struct bed *b)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (const struct sockaddr *)(const void *)&b->name, sizeof b->name)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Fails when: operations to a name without a server do not end with EUNREACH in time, or earlier;
 * the next one does not ask again; a send that cannot wait gets no error; or a later server is not
 * found. */
static void nobody(void **state)
{
    struct bed *b = bed_open(false);
    uint64_t begin = test_now_ns(), took, asked;
    struct weft_op op = {0};
    bool is_in_time;
    (void)state;
    for (int i = 1; i <= 2; i++, begin = test_now_ns()) {
        assert_int_equal(send_end(b), WEFT_EUNREACH);
        took = test_now_ns() - begin;
        assert_true(took >= TIMEOUT_NS && took < TIMEOUT_NS + SLACK_NS);
        assert_int_equal(b->downs, i);
        assert_int_equal(b->why, WEFT_EUNREACH);
        assert_int_equal(weft_peer_status(b->peer), WEFT_EUNREACH);
    }
    assert_int_equal(weft_flush(b->peer, NULL), WEFT_EUNREACH); /* the last of the two sends */
    assert_int_equal(weft_msg_send(b->peer, TAG, &took, 8, NULL), WEFT_AGAIN);
    UNTIL(b, b->downs == 3);
    assert_int_equal(weft_msg_send(b->peer, TAG, &took, 8, NULL), WEFT_EUNREACH);
    asked = test_now_ns();
    assert_int_equal(weft_msg_send(b->peer, TAG, &took, 8, NULL), WEFT_AGAIN);
    OK(weft_peer_status(b->peer));
    server_open(b);
    UNTIL(b, weft_msg_send(b->peer, TAG, &took, 8, NULL) == WEFT_OK);
    is_in_time = test_now_ns() - asked < TIMEOUT_NS; /* a busy machine may stop for longer */
    if (weft_msg_recv(b->server, NULL, TAG, WEFT_TAG_FULL, &begin, 8, &op) == WEFT_PENDING)
        UNTIL(b, op.status != WEFT_PENDING);
    assert_int_equal(begin, took);
    assert_true(b->downs == 3 || !is_in_time);
    bed_close(b);
}

/* Poll both endpoints. Returns a connection that has come to the listener [fd], or -1. */
static int caller(struct bed *b, int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int at;
    poll_both(b);
    if (poll(&p, 1, 1) != 1)
        return -1;
    at = accept(fd, NULL, NULL);
    assert_true(at >= 0);
    return at;
}

/* Fails when: a program that is no process of Weft is believed, ends the look-up at once, or keeps
 * a later server from being found; or an answer in pieces is refused. */
static void others(void **state)
{
    static const char *const texts[] = {"", "HTTP/1.1 400 Bad Request\r\n\r\n", "WNAM"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct bed *b = bed_open(false);
        int fd = listener(b), calls = 0;
        struct weft_op op = {0};
        uint64_t word = 1;
        assert_int_equal(weft_msg_send(b->peer, TAG, &word, 8, &op), WEFT_PENDING);
        while (op.status == WEFT_PENDING) {
            int at = caller(b, fd);
            if (at >= 0) {
                calls++;
                (void)send(at, texts[i], strlen(texts[i]), MSG_NOSIGNAL);
                close(at);
            }
        }
        assert_int_equal(op.status, WEFT_EUNREACH);
        assert_true(calls > 1);
        close(fd);
        server_open(b);
        OK(send_end(b));
        bed_close(b);
    }
}

static void answer_by(struct bed *b, int fd, const void *bytes, size_t len, enum weft_status want)
{
    struct weft_op op = {0};
    uint64_t word = 1;
    assert_int_equal(weft_msg_send(b->peer, TAG, &word, 8, &op), WEFT_PENDING);
    while (op.status == WEFT_PENDING) {
        int at = caller(b, fd);
        if (at >= 0) {
            struct wf_names_question q;
            assert_int_equal(recv(at, &q, sizeof q, MSG_WAITALL), sizeof q);
            OK(wf_names_question_parse(&q, sizeof q));
            /* the look-up may end before the last byte */
            for (size_t i = 0; i < len; i++)
                if (send(at, (const char *)bytes + i, 1, MSG_NOSIGNAL) != 1)
                    break;
            close(at);
        }
    }
    assert_int_equal(op.status, want);
}

/* Fails when: another version is not reported, its address is accepted, or an address that no
 * transport reaches is not refused at once. */
static void answers(void **state)
{
    struct bed *b = bed_open(false);
    struct wf_names_answer a;
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    int fd = listener(b);
    (void)state;
    OK(weft_ep_address(b->client, address, &len));
    wf_names_answer_make(&a);
    memcpy(a.address, address, sizeof a.address);
    answer_by(b, fd, &a, sizeof a, WEFT_OK); /* the client itself */
    bed_close(b);
    b = bed_open(false);
    close(fd);
    fd = listener(b);
    a.head.version = 9;
    answer_by(b, fd, &a, sizeof a, WEFT_EVERSION);
    wf_names_answer_make(&a);
    a.address[0] = 4;
    answer_by(b, fd, &a, sizeof a, WEFT_EVERSION);
    a.address[0] = address[0];
    a.address[8] ^= 1; /* another host, and there is no key */
    answer_by(b, fd, &a, sizeof a, WEFT_EUNREACH);
    assert_int_equal(b->why, WEFT_EUNREACH);
    close(fd);
    bed_close(b);
}

static int sockets(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    assert_non_null(dir);
    for (struct dirent *d; (d = readdir(dir));) {
        char to[8] = "";
        n += readlinkat(dirfd(dir), d->d_name, to, sizeof to) > 0 && !memcmp(to, "socket:", 7);
    }
    closedir(dir);
    return n;
}

/* Fails when: connections that are half open, silent, wrong or closed early take too many
 * descriptors, delay a caller's answer, stay for ever, or end the server. */
static void flood(void **state)
{
    struct bed *b = bed_open(true);
    struct wf_names_question q;
    struct pollfd held[HELD];
    int before = sockets(), closed = 0;
    uint64_t end;
    (void)state;
    wf_names_question_make(&q);
    for (int i = 0; i < HELD; i++) {
        held[i] = (struct pollfd){.fd = stranger(b), .events = POLLIN};
        assert_true(held[i].fd >= 0);
        if (i % 3 == 1)
            (void)send(held[i].fd, &q, i % sizeof q, MSG_NOSIGNAL);
        if (i % 3 == 2)
            (void)send(held[i].fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
    }
    OK(send_end(b));
    assert_true(sockets() - before - HELD <= 64 + 8);
    for (unsigned i = 0; i < strangers; i++) {
        int fd = stranger(b);
        if (fd >= 0 && i % 2)
            (void)send(fd, &q, sizeof q, MSG_NOSIGNAL); /* and does not wait for the answer */
        if (fd >= 0)
            close(fd);
    }
    OK(weft_peer_close(b->peer));
    b->peer = NULL;
    OK(weft_ep_close(b->client));
    {
        struct bed *again = b;
        unsigned char bytes[WEFT_ADDR_MAX];
        size_t len = sizeof bytes;
        OK(weft_ep_open(b->ctx, NULL, &again->client));
        OK(weft_name_address((struct sockaddr *)(void *)&b->name, sizeof b->name, bytes, &len));
        OK(weft_peer_open(again->client, bytes, len, &again->peer));
        OK(send_end(again));
    }
    end = test_now_ns() + TEST_LIMIT_NS;
    while (closed < HELD && test_now_ns() < end) { /* within 2 s each is closed */
        char byte;
        closed = 0;
        (void)poll(held, HELD, 100);
        for (int i = 0; i < HELD; i++) {
            ssize_t n = recv(held[i].fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
            closed += !n || (n < 0 && errno == ECONNRESET);
        }
    }
    assert_int_equal(closed, HELD);
    for (int i = 0; i < HELD; i++)
        close(held[i].fd);
    bed_close(b);
}

static unsigned name_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    unsigned n = 0;
    assert_non_null(dir);
    for (struct dirent *d; (d = readdir(dir));) {
        char path[sizeof d->d_name + 32], name[32] = "";
        FILE *f;
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", d->d_name);
        f = fopen(path, "re");
        if (f && fgets(name, sizeof name, f))
            n += !strcmp(name, "weft-names\n");
        if (f)
            fclose(f);
    }
    closedir(dir);
    return n;
}

/* Fails when: a context without names has a thread for them, or a context with some has two. */
static void thread_lazy(void **state)
{
    struct bed *b, more = {.name = {.sin_family = AF_INET}};
    struct weft_ctx *ctx;
    (void)state;
    OK(weft_ctx_open(NULL, &ctx));
    b = bed_open(true);
    more.ctx = b->ctx;
    server_open(&more);
    UNTIL(b, name_threads() == 1); /* the kernel may still list a thread that has been joined */
    OK(weft_ctx_close(ctx));
    OK(weft_ep_close(more.server));
    bed_close(b);
}

/* Fails when: a forked child keeps the name after its parent has released it, or can use it; or the
 * parent's look-up stops. */
static void forked(void **state)
{
    struct bed *b = bed_open(true);
    struct weft_ep *again;
    struct weft_op op = {0};
    uint64_t word = 1;
    int pipes[2], status;
    pid_t pid;
    char byte;
    (void)state;
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    assert_int_equal(weft_msg_send(b->peer, TAG, &word, 8, &op), WEFT_PENDING);
    pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        struct sockaddr_in name;
        size_t len = sizeof name;
        bool right =
            weft_ep_name(b->server, (struct sockaddr *)(void *)&name, &len) == WEFT_EFORKED &&
            weft_msg_send(b->peer, TAG, &word, 8, NULL) == WEFT_EFORKED;
        close(pipes[1]);
        right = read(pipes[0], &byte, 1) == 0 && right;
        _exit(!right);
    }
    close(pipes[0]);
    UNTIL(b, op.status != WEFT_PENDING);
    assert_int_equal(op.status, WEFT_OK);
    assert_int_equal(serve(b, &again), WEFT_EBUSY);
    OK(weft_ep_close(b->server));
    OK(serve(b, &b->server));
    close(pipes[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    bed_close(b);
}

static uint64_t steps(struct bed *b)
{
    uint64_t n;
    names_lock(&b->ctx->names);
    n = b->ctx->names.steps;
    names_unlock(&b->ctx->names);
    return n;
}

/* Send a message to each of [names] peers of b->name. They end with [want]. Returns how many
 * watches the thread has looked at for each of them. */
static uint64_t many_asked(struct bed *b, enum weft_status want)
{
    struct weft_peer **peers = calloc(names, sizeof(struct weft_peer *));
    struct weft_op *ops = calloc(names, sizeof *ops);
    uint64_t word = 1, begin = steps(b);
    int before = sockets();
    unsigned done = 0;
    for (unsigned i = 0; i < names; i++) {
        unsigned char bytes[WEFT_ADDR_MAX];
        size_t len = sizeof bytes;
        OK(weft_name_address((struct sockaddr *)(void *)&b->name, sizeof b->name, bytes, &len));
        OK(weft_peer_open(b->client, bytes, len, &peers[i]));
        assert_int_equal(weft_msg_send(peers[i], TAG, &word, 8, &ops[i]), WEFT_PENDING);
    }
    while (done < names) {
        poll_both(b);
        while (done < names && ops[done].status != WEFT_PENDING)
            done++;
        assert_true(sockets() - before < 2 * 64 + 64);
    }
    for (unsigned i = 0; i < names; i++) {
        assert_int_equal(ops[i].status, want);
        OK(weft_peer_close(peers[i]));
    }
    free(peers);
    free(ops);
    return (steps(b) - begin) / names;
}

/* Fails when: some of many concurrent look-ups fail, take too many descriptors, or one takes longer
 * because of the others. */
static void many(void **state)
{
    struct bed *b = bed_open(true);
    uint64_t each = many_asked(b, WEFT_OK);
    (void)state;
    printf("# %u names found: %u steps for each\n", names, (unsigned)each);
    assert_true(each < 20);
    bed_close(b);
}

/* Fails when: look-ups of names without servers do not end together, or an attempt takes longer
 * because of the others. */
static void many_nobodies(void **state)
{
    struct bed *b = bed_open(false);
    uint64_t each = many_asked(b, WEFT_EUNREACH);
    (void)state;
    printf("# %u names of nobody: %u steps for each\n", names, (unsigned)each);
    assert_true(each < 100); /* at most 9 attempts in a second */
    bed_close(b);
}

/* Connect to b->name, which does not accept, until the kernel drops the requests. */
static void backlog_fill(const struct bed *b, int *fds, int n)
{
    struct pollfd last = {.events = POLLOUT};
    for (int i = 0; i < n; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_true(fds[i] >= 0);
        assert_true(
            !connect(fds[i], (const struct sockaddr *)(const void *)&b->name, sizeof b->name) ||
            errno == EINPROGRESS);
    }
    last.fd = fds[n - 1];
    assert_int_equal(poll(&last, 1, 0), 0); /* over loopback a request is answered at once */
}

/* Fails when: a look-up does not end in time if the name's host drops packets, or reads a question
 * and does not answer; such a look-up delays another one's answer; or a later server is not found.
 */
static void silent(void **state)
{
    enum { FILLERS = 8 };
    (void)state;
    for (int backlog = 0; backlog <= 64; backlog += 64) {
        struct bed *b = bed_open(false), other = {.name = b->name};
        uint64_t begin, took, word = 1;
        struct weft_op op = {0}, found = {0};
        int fd = listener(b), fds[FILLERS], n = backlog ? 0 : FILLERS;
        unsigned char bytes[WEFT_ADDR_MAX];
        size_t len = sizeof bytes;
        assert_int_equal(listen(fd, backlog), 0);
        if (n)
            backlog_fill(b, fds, n);
        other.ctx = b->ctx;
        other.name.sin_port = 0;
        server_open(&other);
        b->server = other.server; /* polled with the others */
        OK(weft_name_address((struct sockaddr *)(void *)&other.name, sizeof other.name, bytes,
                             &len));
        OK(weft_peer_open(b->client, bytes, len, &other.peer));
        begin = test_now_ns();
        assert_int_equal(weft_msg_send(b->peer, TAG, &word, 8, &op), WEFT_PENDING);
        assert_int_equal(weft_msg_send(other.peer, TAG, &word, 8, &found), WEFT_PENDING);
        UNTIL(b, found.status != WEFT_PENDING);
        assert_int_equal(found.status, WEFT_OK);
        assert_true(op.status == WEFT_PENDING || test_now_ns() - begin >= TIMEOUT_NS);
        UNTIL(b, op.status != WEFT_PENDING);
        took = test_now_ns() - begin;
        assert_int_equal(op.status, WEFT_EUNREACH);
        assert_true(took >= TIMEOUT_NS && took < TIMEOUT_NS + SLACK_NS);
        OK(weft_peer_close(other.peer));
        OK(weft_ep_close(other.server));
        while (n)
            close(fds[--n]);
        close(fd);
        server_open(b);
        OK(send_end(b));
        bed_close(b);
    }
}

/* Fails when: a name with an IPv6 address cannot be taken, sent or found, or is that of the same
 * IPv4 port. */
static void six(void **state)
{
    struct bed *b = bed_open(true);
    struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    unsigned char bytes[WEFT_ADDR_MAX];
    size_t len = sizeof name;
    enum weft_status status;
    struct weft_ep *ep;
    (void)state;
    name.sin6_port = b->name.sin_port;
    params.name = (struct sockaddr *)(void *)&name;
    params.name_size = sizeof name;
    status = weft_ep_open(b->ctx, &params, &ep);
    if (status == WEFT_EUNREACH || status == WEFT_ESYSTEM) { /* this host has no IPv6 */
        bed_close(b);
        skip();
    }
    OK(status);
    OK(weft_ep_name(ep, (struct sockaddr *)(void *)&name, &len));
    assert_int_equal(len, sizeof name);
    assert_int_equal(name.sin6_port, b->name.sin_port);
    OK(weft_ep_close(b->server));
    b->server = ep;
    OK(weft_peer_close(b->peer));
    len = sizeof bytes;
    OK(weft_name_address((struct sockaddr *)(void *)&name, sizeof name, bytes, &len));
    OK(weft_peer_open(b->client, bytes, len, &b->peer));
    OK(send_end(b));
    bed_close(b);
}

/* names_test [STRANGERS [NAMES]] */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody), cmocka_unit_test(others), cmocka_unit_test(answers),
        cmocka_unit_test(flood),  cmocka_unit_test(many),   cmocka_unit_test(many_nobodies),
        cmocka_unit_test(silent), cmocka_unit_test(forked), cmocka_unit_test(thread_lazy),
        cmocka_unit_test(six),
    };
    struct rlimit files;
    if (argc > 1)
        strangers = (unsigned)strtoul(argv[1], NULL, 0);
    if (argc > 2)
        names = (unsigned)strtoul(argv[2], NULL, 0);
    if (!names)
        return 2;
    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur < 1000) {
        printf("fewer than 1000 open files are allowed\n");
        return 77;
    }
    if (setenv("WEFT_CONNECT_TIMEOUT", "1s", 1))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
