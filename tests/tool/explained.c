/* SPDX-License-Identifier: BSD-3-Clause */
/* Does each transfer take the way that weft_path_of tells? Rank 0 asks, performs
 * it, and compares transport, protocol and number of copies with what all ranks
 * counted. Run with and without the variables that forbid ways.
 *
 * usage: explained [TRANSPORT]; between the two ranks, by default shm
 *
 * Fails when: an operation takes another way than was told, copies its bytes
 * more or less often, or is not counted. */
#define WEFT_COUNT_INLINE
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/job.h>
#include <weft/msg.h>

#define COUNTERS 96
#define HANDLER 7
#define TAG 11
#define PATIENCE INT64_C(30000000000)
#define REGION ((size_t)1 << 20)
#define RW (WEFT_REMOTE_READ | WEFT_REMOTE_WRITE)

static const size_t sizes[] = {1, 8, 64, 512, 4096, 4097, 20000, 300000, REGION};
#define SIZES (sizeof sizes / sizeof *sizes)

static const char *between = "shm";
static struct weft_job *job;
static struct weft_ep *ep;
static unsigned rank;
static unsigned handled;
static uint8_t *data, *received;
static const char *names[COUNTERS];
static unsigned counters;

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "rank %u: %s:%d: %s: ", rank, __FILE__, __LINE__, #cond);              \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call)                                                                                   \
    do {                                                                                           \
        enum weft_status ok_ = (call);                                                             \
        CHECK(ok_ == WEFT_OK, "%s (%s)", weft_status_text(ok_), #call);                            \
    } while (0)

/* ---- counters of all ranks ---- */

struct counts {
    uint64_t v[COUNTERS];
};

static void take(void *arg, const char *name, uint64_t value, const char *doc)
{
    struct counts *c = arg;
    (void)doc;
    CHECK(counters < COUNTERS, "more than %d counters", COUNTERS);
    names[counters] = name;
    c->v[counters++] = value;
}

static struct counts counts_now(void)
{
    struct counts c;
    memset(&c, 0, sizeof c);
    counters = 0;
    weft_stat_rows(weft_job_ctx(job), take, &c);
    return c;
}

static unsigned index_of(const char *name)
{
    for (unsigned i = 0; i < counters; i++)
        if (!strcmp(names[i], name))
            return i;
    CHECK(false, "there is no counter %s", name);
    return 0;
}

/* What [rank_] counted since [before]; -1: all ranks together. Collective. */
struct grown {
    struct counts all, of[2];
};

static struct grown grown_since(const struct counts *before)
{
    struct counts now = counts_now(), mine;
    struct grown g;
    memset(&g, 0, sizeof g);
    for (unsigned i = 0; i < COUNTERS; i++)
        mine.v[i] = now.v[i] - before->v[i];
    OK(weft_job_allgather(job, &mine, sizeof mine, g.of));
    for (unsigned i = 0; i < COUNTERS; i++)
        g.all.v[i] = g.of[0].v[i] + g.of[1].v[i];
    return g;
}

/* ---- one transfer ---- */

enum memory { NONE, SHARED, PRIVATE };

struct transfer {
    const char *name;
    unsigned operation;
    enum memory memory;
};

static const struct transfer transfers[] = {
    {"active message", WEFT_OP_AM, NONE},         {"tagged message", WEFT_OP_MSG, NONE},
    {"put to shared", WEFT_OP_PUT, SHARED},       {"put to private", WEFT_OP_PUT, PRIVATE},
    {"get from shared", WEFT_OP_GET, SHARED},     {"get from private", WEFT_OP_GET, PRIVATE},
    {"long to shared", WEFT_OP_AM_LONG, SHARED},  {"long to private", WEFT_OP_AM_LONG, PRIVATE},
    {"atomic on shared", WEFT_OP_ATOMIC, SHARED}, {"atomic on private", WEFT_OP_ATOMIC, PRIVATE},
};

static void on_message(const struct weft_am *am)
{
    (void)am;
    handled++;
}

static enum weft_status start(const struct transfer *t, struct weft_peer *peer,
                              struct weft_remote *r, size_t len, struct weft_op *op)
{
    static uint64_t old;
    switch (t->operation) {
    case WEFT_OP_AM: return weft_am_request(peer, HANDLER, NULL, 0, data, len, 0);
    case WEFT_OP_MSG: return weft_msg_send(peer, TAG, data, len, op);
    case WEFT_OP_PUT: return weft_put(r, 0, data, len, op);
    case WEFT_OP_GET: return weft_get(r, 0, received, len, op);
    case WEFT_OP_AM_LONG: return weft_am_long(r, 0, data, len, HANDLER, NULL, 0, 0, op);
    default: return weft_atomic(r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &old, op);
    }
}

/* Rank 0's part: to its end, also at the target. */
static void perform(const struct transfer *t, struct weft_peer *peer, struct weft_remote *r,
                    size_t len)
{
    struct weft_op op;
    enum weft_status s;
    memset(&op, 0, sizeof op);
    s = start(t, peer, r, len, &op);
    CHECK(s == WEFT_OK || s == WEFT_PENDING, "%s of %zu: %s", t->name, len, weft_status_text(s));
    if (s == WEFT_PENDING)
        OK(weft_op_wait(ep, &op, PATIENCE));
}

/* The target polls until what was sent to it has arrived. */
static void await(const struct transfer *t, struct weft_op *recv)
{
    bool message = t->operation == WEFT_OP_AM || t->operation == WEFT_OP_AM_LONG;
    while (message && !handled)
        CHECK(weft_ep_wait(ep, PATIENCE) > 0, "%s did not arrive", t->name);
    if (t->operation == WEFT_OP_MSG)
        OK(weft_op_wait(ep, recv, PATIENCE));
}

/* ---- what must have been counted ---- */

static const char *counter_of(const struct transfer *t, const char *protocol)
{
    static const struct {
        unsigned operation;
        const char *protocol, *counter;
    } table[] = {
        {WEFT_OP_AM, "eager", "REQUESTS_SENT"},
        {WEFT_OP_MSG, "eager", "MSG_EAGER"},
        {WEFT_OP_MSG, "parts", "MSG_PARTS"},
        {WEFT_OP_MSG, "pull", "MSG_PULL"},
        {WEFT_OP_MSG, "pieces", "MSG_PIECES"},
        {WEFT_OP_MSG, "bulk", "MSG_BULK"},
        {WEFT_OP_MSG, "rdma read", "MSG_NIC"},
        {WEFT_OP_PUT, "pull", "PUT_PULL"},
        {WEFT_OP_PUT, "pieces", "PUT_PIECES"},
        {WEFT_OP_PUT, "bulk", "PUT_BULK"},
        {WEFT_OP_GET, "pull", "GET_PULL"},
        {WEFT_OP_GET, "pieces", "GET_PIECES"},
        {WEFT_OP_GET, "bulk", "GET_BULK"},
        {WEFT_OP_ATOMIC, "message", "ATOMIC_SENT"},
        {WEFT_OP_ATOMIC, "rdma atomic", "ATOMIC_NIC"},
        {WEFT_OP_AM_LONG, "pull", "LONG_SENT"},
        {WEFT_OP_AM_LONG, "pieces", "LONG_SENT"},
        {WEFT_OP_AM_LONG, "bulk", "LONG_SENT"},
        {WEFT_OP_AM_LONG, "here", "LONG_SENT"},
        {WEFT_OP_AM_LONG, "put, then message", "LONG_SENT"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].operation == t->operation && !strcmp(table[i].protocol, protocol))
            return table[i].counter;
    return NULL;
}

/* Each counter that names a protocol: one more for the one told, none for others. */
static void check_protocol(const struct transfer *t, const struct weft_path *path, size_t len,
                           const struct grown *g)
{
    static const char *const protocols[] = {"MSG_EAGER",   "MSG_PARTS",  "MSG_PULL",   "MSG_PIECES",
                                            "MSG_BULK",    "MSG_NIC",    "PUT_PULL",   "PUT_PIECES",
                                            "PUT_BULK",    "GET_PULL",   "GET_PIECES", "GET_BULK",
                                            "ATOMIC_SENT", "ATOMIC_NIC", "LONG_SENT"};
    const char *told = counter_of(t, path->protocol);
    CHECK(told || path->inlined || !strcmp(path->protocol, "here"),
          "%s of %zu: protocol \"%s\" is not known to this test", t->name, len, path->protocol);
    for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++) {
        uint64_t want = told && !strcmp(told, protocols[i]);
        uint64_t have = g->all.v[index_of(protocols[i])];
        CHECK(have == want, "%s of %zu goes \"%s\", but %s grew by %llu", t->name, len,
              path->protocol, protocols[i], (unsigned long long)have);
    }
}

/* Inlined ones count only in programs compiled with WEFT_COUNT_INLINE, as this one. */
static void check_inlined(const struct transfer *t, const struct weft_path *path, size_t len,
                          const struct grown *g)
{
    uint64_t grew = 0;
    bool any = false;
    for (unsigned i = 0; i < counters; i++)
        if (!strncmp(names[i], "INLINE_", 7) && !strstr(names[i], "BYTES")) {
            any = true;
            grew += g->of[0].v[i];
        }
    CHECK(!any || grew == path->inlined, "%s of %zu is told to be %s, but %llu were counted",
          t->name, len, path->inlined ? "inlined" : "not inlined", (unsigned long long)grew);
}

static void check_copies(const struct transfer *t, const struct weft_path *path, size_t len,
                         const struct grown *g)
{
    uint64_t copied = g->all.v[index_of("COPIED_BYTES")];
    bool counted = t->operation != WEFT_OP_AM && t->operation != WEFT_OP_ATOMIC && !path->inlined &&
                   strcmp(path->protocol, "put, then message") != 0;
    /* A copy in this process's own region is the caller's own; it may go uncounted. */
    if (!strcmp(path->protocol, "here") && !copied)
        return;
    if (!strcmp(path->protocol, "bulk")) { /* sockets copy it, at most the last copy is counted */
        CHECK(copied <= len, "%s of %zu goes by sockets, but %llu bytes were copied", t->name, len,
              (unsigned long long)copied);
        return;
    }
    CHECK(copied == (counted ? path->copies * len : 0),
          "%s of %zu goes \"%s\" in %u copies, but %llu bytes were copied", t->name, len,
          path->protocol, path->copies, (unsigned long long)copied);
}

/* A message through loop is received where it was sent. */
static void check_transport(const struct transfer *t, const struct weft_path *path, unsigned target,
                            size_t len, const struct grown *g)
{
    const char *want = target ? between : "loop";
    uint64_t sent = g->all.v[index_of("TCP_BYTES_SENT")];
    CHECK(!strcmp(path->transport, want), "%s to rank %u: told to go by %s", t->name, target,
          path->transport);
    CHECK(strcmp(want, "tcp") ? strcmp(between, "tcp") == 0 || !sent : sent >= len,
          "%s of %zu goes by %s, but %llu bytes went to sockets", t->name, len, want,
          (unsigned long long)sent);
    if (t->operation == WEFT_OP_AM) { /* across a network barriers are messages, too */
        uint64_t came = g->of[target].v[index_of("REQUESTS_RECEIVED")];
        CHECK(strcmp(between, "tcp") ? came == 1 : came >= 1, "it arrived elsewhere");
    }
}

/* ---- all of them ---- */

struct regions {
    struct weft_mr *shared, *private;
    struct weft_remote **shared_of, *private_of[2]; /* by rank */
};

static void regions_open(struct regions *g)
{
    unsigned char key[WEFT_KEY_MAX] = {0}, keys[2][WEFT_KEY_MAX];
    size_t len = sizeof key;
    g->shared_of = calloc(2, sizeof(struct weft_remote *));
    CHECK(g->shared_of, "memory");
    OK(weft_job_mem_alloc(job, REGION, RW, &g->shared, g->shared_of));
    OK(weft_mr_register(weft_job_ctx(job), calloc(1, REGION), REGION, WEFT_MEM_HOST, RW,
                        &g->private));
    OK(weft_mr_key(g->private, key, &len));
    OK(weft_job_allgather(job, key, sizeof key, keys));
    for (unsigned i = 0; i < 2; i++)
        OK(weft_remote_open(weft_job_peer(job, i), keys[i], len, &g->private_of[i]));
}

static void regions_close(struct regions *g)
{
    void *memory = weft_mr_base(g->private);
    for (unsigned i = 0; i < 2; i++) {
        OK(weft_remote_close(g->private_of[i]));
        OK(weft_remote_close(g->shared_of[i]));
    }
    OK(weft_job_barrier(job));
    OK(weft_mr_close(g->private));
    OK(weft_mr_close(g->shared));
    free(memory);
    free(g->shared_of);
}

/* Collective. Returns whether the transfer is possible. */
static bool compare(const struct transfer *t, const struct regions *g, unsigned target, size_t len)
{
    struct weft_peer *peer = weft_job_peer(job, target);
    struct weft_remote *r = t->memory == NONE     ? NULL
                            : t->memory == SHARED ? g->shared_of[target]
                                                  : g->private_of[target];
    struct weft_path path;
    struct weft_op recv;
    struct counts before;
    struct grown grown;
    memset(&path, 0, sizeof path);
    memset(&recv, 0, sizeof recv);
    if (t->operation == WEFT_OP_AM && len > weft_am_max(ep)) {
        CHECK(weft_path_of(peer, t->operation, r, len, &path) == WEFT_EMSGSIZE, "too long");
        return false;
    }
    if (rank == 0)
        OK(weft_path_of(peer, t->operation, r, len, &path));
    handled = 0;
    if (rank == target && t->operation == WEFT_OP_MSG)
        CHECK(weft_msg_recv(ep, NULL, TAG, WEFT_TAG_FULL, received, len, &recv) == WEFT_PENDING,
              "posting a receive");
    OK(weft_job_barrier(job));
    before = counts_now();
    OK(weft_job_barrier(job));
    if (rank == 0 && target == 0 && t->operation == WEFT_OP_MSG) {
        struct weft_op send;
        enum weft_status s;
        memset(&send, 0, sizeof send);
        s = start(t, peer, r, len, &send);
        CHECK(s >= 0, "sending to itself");
        await(t, &recv);
        OK(s == WEFT_PENDING ? weft_op_wait(ep, &send, PATIENCE) : WEFT_OK);
    } else {
        if (rank == 0)
            perform(t, peer, r, len);
        if (rank == target)
            await(t, &recv);
    }
    OK(weft_job_barrier(job));
    grown = grown_since(&before);
    if (rank == 0) {
        check_transport(t, &path, target, len, &grown);
        check_protocol(t, &path, len, &grown);
        check_inlined(t, &path, len, &grown);
        check_copies(t, &path, len, &grown);
        printf("%-17s %7zu to rank %u: %s, %s, %u copies\n", t->name, len, target, path.transport,
               path.protocol, path.copies);
    }
    return true;
}

int main(int argc, char **argv)
{
    struct regions g;
    unsigned done = 0;
    if (argc > 1)
        between = argv[1];
    OK(weft_job_open(NULL, &job));
    rank = weft_job_rank(job);
    ep = weft_job_ep(job);
    CHECK(weft_job_size(job) == 2, "run it as weft run -n 2");
    data = calloc(1, REGION);
    received = calloc(1, REGION);
    CHECK(data && received, "memory");
    OK(weft_am_register(ep, HANDLER, on_message, NULL));
    regions_open(&g);
    for (unsigned target = 0; target < 2; target++)
        for (size_t s = 0; s < SIZES; s++)
            for (size_t t = 0; t < sizeof transfers / sizeof *transfers; t++)
                if (transfers[t].operation != WEFT_OP_ATOMIC || sizes[s] == 8)
                    done += compare(&transfers[t], &g, target, sizes[s]);
    regions_close(&g);
    if (rank == 0)
        printf("%u transfers went as was told\n", done);
    OK(weft_job_close(job));
    free(data);
    free(received);
    return 0;
}
