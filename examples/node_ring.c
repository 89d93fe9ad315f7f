/* SPDX-License-Identifier: BSD-3-Clause */
/* A ring of processes by weft/node.h: what a runtime with a protocol of its own does.
 *
 *     node_ring [--wrong-key] [PROCESSES [ROUNDS]]
 *
 * Each process is a node of its own (WEFT_NODE_NAME), with a service. A token goes round: each
 * process counts it up, and writes it to the memory of its right neighbour, with an immediate.
 * Sockets between neighbours are the runtime's own way for short messages: they carry addresses and
 * keys at first.
 *
 * A write that fails is not repeated by Weft. The process asks its right neighbour, by the socket,
 * whether the token came, and writes it again if it did not: so the token is never lost, and never
 * twice. With --wrong-key the first write of process 0 has a wrong key, and fails.
 *
 * Exits 77 if the node has no NIC for it. */
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/node.h>

enum { MOST = 16, BYTES = 1 << 20, EVENTS = 64, LIMIT_S = 120, NO_NIC = 77 };

static const char key[] = "the key of the ring's job";

/* What the right neighbour sends first. */
struct introduction {
    unsigned char address[WEFT_ADDR_MAX];
    size_t address_len;
    uint64_t at;
    uint32_t rkey, index;
};

/* Then the left neighbour asks, or leaves; the right one answers with the tokens that it has. */
struct question {
    uint32_t leaves;
};

static struct {
    unsigned rank;
    int left, right; /* sockets */
    bool left_leaves;
    struct weft_node *node;
    struct weft_node_info info;
    struct weft_node_peer *peer; /* the right neighbour */
    struct introduction to;
    struct weft_node_mr in_mr, out_mr;
    uint64_t *in, *out;
    uint32_t received;                /* tokens */
    struct weft_node_event_entry end; /* of the last write */
    bool has_end, wrong_key;
    unsigned failures;
} me;

static void fail(const char *call, enum weft_status status)
{
    fprintf(stderr, "node_ring: process %u: %s: %s\n", me.rank, call, weft_status_text(status));
    exit(1);
}

static void check(const char *call, enum weft_status status)
{
    if (status != WEFT_OK)
        fail(call, status);
}

static void give(int sock, const void *bytes, size_t len)
{
    if (send(sock, bytes, len, MSG_NOSIGNAL) != (ssize_t)len)
        fail("send", WEFT_ESYSTEM);
}

static void take(int sock, void *bytes, size_t len)
{
    if (recv(sock, bytes, len, MSG_WAITALL) != (ssize_t)len)
        fail("recv", WEFT_ESYSTEM);
}

static bool is_readable(int sock)
{
    struct pollfd p = {.fd = sock, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

/* ---- progress ---- */

/* Take all events, then answer the left neighbour: so the answer counts every token that is there.
 */
static void progress(void)
{
    struct weft_node_event_entry e;
    struct question q;
    enum weft_status status;
    while ((status = weft_node_event(me.node, &e)) == WEFT_OK) {
        if (e.kind == WEFT_NODE_RECEIVED) {
            me.received++;
        } else {
            me.end = e;
            me.has_end = true;
        }
    }
    if (status != WEFT_AGAIN)
        fail("weft_node_event", status);
    if (!me.left_leaves && is_readable(me.left)) {
        take(me.left, &q, sizeof q);
        if (q.leaves)
            me.left_leaves = true;
        else
            give(me.left, &me.received, sizeof me.received);
    }
    sched_yield(); /* a runtime computes here */
}

/* Does the right neighbour have [count] tokens? */
static bool has_come(uint32_t count)
{
    const struct question q = {0};
    uint32_t has;
    give(me.right, &q, sizeof q);
    while (!is_readable(me.right))
        progress();
    take(me.right, &has, sizeof has);
    return has >= count;
}

/* ---- the token ---- */

/* Write once. Returns whether it is done. */
static bool write_once(uint32_t count)
{
    struct weft_node_post post = {.mr = &me.out_mr,
                                  .addr = me.out,
                                  .len = BYTES,
                                  .remote = me.to.at,
                                  .remote_key = me.to.rkey,
                                  .immediate = me.to.index << (32 - me.info.index_bits) |
                                               (count & ((1u << (32 - me.info.index_bits)) - 1)),
                                  .id = count};
    enum weft_status status;
    uint32_t connects;
    if (me.wrong_key)
        post.remote_key ^= 0x5500;
    me.wrong_key = me.has_end = false;
    while ((status = weft_node_write(me.peer, &post, NULL)) == WEFT_AGAIN)
        progress();
    check("weft_node_write", status);
    while (!me.has_end)
        progress();
    if (me.end.status == WEFT_OK)
        return true;
    me.failures++;
    /* When the count has moved on, no event of the write that failed can come any more. */
    do
        check("weft_node_connects", weft_node_connects(me.peer, me.end.connection, &connects));
    while (connects == me.end.count);
    return false;
}

static void token_pass(uint32_t count)
{
    while (!write_once(count) && !has_come(count))
        continue;
}

static void rounds_go(unsigned processes, unsigned rounds)
{
    for (uint32_t i = 0; i < rounds; i++) {
        if (me.rank || i) {
            while (me.received < (me.rank ? i + 1 : i))
                progress();
            memcpy(me.out, me.in, BYTES);
        }
        me.out[0]++;
        me.out[BYTES / sizeof *me.out - 1] = me.out[0];
        token_pass(i + 1);
    }
    if (me.rank)
        return;
    while (me.received < rounds)
        progress();
    if (me.in[0] != (uint64_t)processes * rounds || me.in[0] != me.in[BYTES / sizeof *me.in - 1])
        fail("the token", WEFT_EPROTO);
    printf("the token went %u times round %u processes, and counts %llu; %u writes failed\n",
           rounds, processes, (unsigned long long)me.in[0], me.failures);
    fflush(stdout);
}

/* ---- beginning and end ---- */

static void begin(void)
{
    struct weft_node_params params = WEFT_NODE_PARAMS_INIT;
    struct introduction self = {.address_len = sizeof self.address};
    enum weft_status status;
    char name[16];
    snprintf(name, sizeof name, "ring-%u", me.rank);
    params.key = key;
    params.key_len = sizeof key;
    params.events = EVENTS;
    params.name = name;
    status = weft_node_open(&params, &me.node);
    if (status == WEFT_EUNREACH || status == WEFT_ENOSYS)
        exit(NO_NIC);
    check("weft_node_open", status);
    check("weft_node_query", weft_node_query(me.node, &me.info));
    me.in = aligned_alloc(4096, BYTES);
    me.out = aligned_alloc(4096, BYTES);
    if (!me.in || !me.out)
        fail("aligned_alloc", WEFT_ENOMEM);
    memset(me.in, 0, BYTES);
    memset(me.out, 0, BYTES);
    check("weft_node_mr_open",
          weft_node_mr_open(me.node, me.in, BYTES, WEFT_NODE_LOCAL_WRITE | WEFT_NODE_REMOTE_WRITE,
                            &me.in_mr));
    check("weft_node_mr_open", weft_node_mr_open(me.node, me.out, BYTES, 0, &me.out_mr));
    check("weft_node_address", weft_node_address(me.node, self.address, &self.address_len));
    self.at = me.in_mr.at;
    self.rkey = me.in_mr.rkey;
    self.index = me.info.index;
    give(me.left, &self, sizeof self);
    take(me.right, &me.to, sizeof me.to);
    check("weft_node_peer_open",
          weft_node_peer_open(me.node, me.to.address, me.to.address_len, &me.peer));
    check("weft_node_connect", weft_node_connect(me.peer));
    while ((status = weft_node_connected(me.peer)) == WEFT_PENDING)
        progress();
    check("weft_node_connected", status);
}

static int process_main(unsigned processes, unsigned rounds)
{
    const struct question leaves = {1};
    alarm(LIMIT_S);
    begin();
    rounds_go(processes, rounds);
    give(me.right, &leaves, sizeof leaves);
    while (!me.left_leaves) /* it may still ask */
        progress();
    check("weft_node_close", weft_node_close(me.node));
    return 0;
}

/* Process [i] has the first end of pair i, the way to its right neighbour, and the second one of
 * the pair before. */
static void process_start(unsigned i, unsigned processes, unsigned rounds, int pairs[MOST][2])
{
    pid_t pid = fork();
    if (pid < 0)
        fail("fork", WEFT_ESYSTEM);
    if (pid)
        return;
    me.rank = i;
    me.right = pairs[i][0];
    me.left = pairs[(i + processes - 1) % processes][1];
    me.wrong_key = me.wrong_key && !i;
    exit(process_main(processes, rounds));
}

int main(int argc, char **argv)
{
    unsigned processes = 2, rounds = 4;
    int pairs[MOST][2], status, code = 0;
    if (argc > 1 && !strcmp(argv[1], "--wrong-key")) {
        me.wrong_key = true;
        argc--;
        argv++;
    }
    if (argc > 1)
        processes = (unsigned)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        rounds = (unsigned)strtoul(argv[2], NULL, 10);
    if (processes < 2 || processes > MOST || !rounds || argc > 3) {
        fprintf(stderr, "usage: node_ring [--wrong-key] [PROCESSES [ROUNDS]], 2 to %d processes\n",
                MOST);
        return 2;
    }
    for (unsigned i = 0; i < processes; i++)
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]))
            fail("socketpair", WEFT_ESYSTEM);
    for (unsigned i = 0; i < processes; i++)
        process_start(i, processes, rounds, pairs);
    while (wait(&status) > 0)
        if (status && !code)
            code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    return code;
}
