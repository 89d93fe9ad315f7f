/* SPDX-License-Identifier: BSD-3-Clause */
/* unexpected_test SECONDS [OPERATIONS [SHARE [LENGTH [SLOT]]]], started by `weft run -n 5`: rank 1
 * floods rank 0 for SECONDS with tagged messages for which rank 0 posts no receive. Then rank 0
 * posts receives for all of them.
 *
 *   SECONDS     time in which rank 1 sends; may have a fraction
 *   OPERATIONS  sends that rank 1 has in flight at most (4096)
 *   SHARE       least percentage that the other ranks keep of their traffic (80; 0: any)
 *   LENGTH      bytes of a message; "mixed" (default): 4 B to 1 MiB, most of them odd; "each": the
 *               powers of two from 4 B to 1 MiB, in turn, each for its part of SECONDS
 *   SLOT        milliseconds of a measurement (20)
 *
 * The flood. Rank 1 sends whatever weft_msg_send takes, and never waits. The number of operations
 * that may be in flight grows in proportion to the time, so that new messages come until the flood
 * ends. When no more operations may be in flight, rank 1 goes on with messages without operation,
 * if the length permits that.
 *
 * The other traffic. Rank 3 and rank 4 measure how many operations they complete with rank 0, with
 * each other, and with rank 2, the twin: it serves them as rank 0 does, but nobody floods it. They
 * measure in short slots of several kinds (enum kind), in turn. The flood pauses in every third
 * slice of the time. So there are two comparisons, each within a fraction of a second: rank 0 in
 * the flood with rank 0 in a pause, and rank 0 with the twin, both in the flood. The receives of
 * the tagged traffic name their source, so no message of the flood matches them.
 *
 * The processors. The test compares what the library does, not what a scheduler does if ranks
 * outnumber processors. So rank 1 has a processor of its own, and polls without end in the pauses;
 * rank 0 and the twin never sleep, in the flood and in the pauses. Other programs on the machine
 * change the rates, so only long runs on a quiet machine measure them.
 *
 * Fails when: resident memory of rank 0 or rank 1 grows by more than a figure that follows from the
 * configuration (printed), one of the two comparisons gives less than SHARE, a message of the flood
 * is lost, doubled, out of order or has wrong bytes, or anything waits for a minute. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdbool.h>
#include <unistd.h>
#include <weft/job.h>
#include <weft/msg.h>

#include "config/config.h"
#include "contract/support.h"
#include "core/match_table.h"
#include "core/msg_recv.h"
#include "transport/shm/shm.h"

enum rank { RECEIVER, FLOODER, TWIN, CALLER, PUTTER, RANKS };

enum kind {
    CALLS, /* an active message and its reply, 8 bytes each */
    CALLS_TWIN,
    TAGGED, /* a tagged message and one back, 8 bytes each */
    TAGGED_TWIN,
    PUTS, /* a put of 64 KiB */
    PUTS_TWIN,
    BETWEEN, /* active messages of 8 bytes between the ranks that measure */
    KINDS
};
static const struct {
    const char *name;
    enum rank from, to;
} kinds[KINDS] = {
    [CALLS] = {"active messages", CALLER, RECEIVER},
    [CALLS_TWIN] = {"active messages", CALLER, TWIN},
    [TAGGED] = {"tagged messages", CALLER, RECEIVER},
    [TAGGED_TWIN] = {"tagged messages", CALLER, TWIN},
    [PUTS] = {"puts of 64 KiB", PUTTER, RECEIVER},
    [PUTS_TWIN] = {"puts of 64 KiB", PUTTER, TWIN},
    [BETWEEN] = {"other peers' own", CALLER, PUTTER},
};

enum phase { PAUSE, FLOOD, PHASES };

enum { ASK = 1, ANSWER = 2, PUT_LEN = 65536, GROUPS = 7, WINDOW = 16, PAUSE_EVERY = 3 };
#define LEN_MIN ((size_t)4)
#define LEN_MAX ((size_t)1 << 20)
#define LEN_MIXED ((size_t)0)
#define STARTS 65536 /* places of the pattern at which a message may begin */

#define START_NS 20000000 /* until all ranks have left the barrier */

/* A message's tag: its group, its length, its number. Receives select the group. */
#define TAG_GROUP_SHIFT 56
#define TAG_LEN_SHIFT 32
#define TAG_GROUP_MASK ((uint64_t)0xff << TAG_GROUP_SHIFT)
#define TAG_OTHER ((uint64_t)0xff << TAG_GROUP_SHIFT) /* of the traffic that is measured */

/* The figures of one kind of traffic in one phase. */
struct tally {
    uint64_t count, ns, longest_ns;
};

/* What a rank knows of itself at the end of a flood. */
struct report {
    struct tally tally[PHASES][KINDS];
    uint64_t sent, bytes, refused;       /* FLOODER: messages; sends that got AGAIN */
    uint64_t base, flood_peak, all_peak; /* resident memory, bytes */
};

/* Slices of time that all ranks pass together, each of them KINDS slots. The first and the last one
 * are pauses. */
struct plan {
    uint64_t begin_ns, slot_ns;
    unsigned slices;
};

static struct weft_job *job;
static struct weft_ep *ep;
static unsigned me, operations = 4096, share = 80, slot_ms = 20;
static size_t length = LEN_MIXED;
static unsigned char *pattern; /* [STARTS + LEN_MAX] */
static struct weft_remote *remotes[RANKS];
static struct report mine;
static unsigned answers;
static const char *doing = "starting";
static uint64_t deadline_ns;

__attribute__((noreturn)) static void fail(const char *what, const char *why)
{
    fprintf(stderr, "unexpected: rank %u, %s: %s: %s\n", me, doing, what, why);
    weft_job_abort(job, 1, "unexpected");
}

static void must(enum weft_status s, const char *what)
{
    if (s != WEFT_OK)
        fail(what, weft_status_name(s));
}
#define MUST(call) must((call), #call)

/* A new deadline for everything that begins now. */
static void begin(const char *what)
{
    doing = what;
    deadline_ns = test_now_ns() + TEST_LIMIT_NS;
}

/* Returns the time. Fails if the deadline has passed. */
static uint64_t now(void)
{
    uint64_t t = test_now_ns();
    if (t > deadline_ns)
        fail("deadline", "something waits for ever");
    return t;
}

/* Wait for an event, but not longer than until [until_ns]. */
static void wait_event(uint64_t until_ns)
{
    uint64_t t = now();
    int n = t < until_ns ? weft_ep_wait(ep, (int64_t)(until_ns - t)) : weft_ep_poll(ep);
    if (n < 0)
        must((enum weft_status)n, "weft_ep_wait");
}

static int poll_once(void)
{
    int n = weft_ep_poll(ep);
    if (n < 0)
        must((enum weft_status)n, "weft_ep_poll");
    return n;
}

static void finish(enum weft_status s, struct weft_op *op, const char *what)
{
    if (s == WEFT_PENDING)
        s = weft_op_wait(ep, op, (int64_t)TEST_LIMIT_NS);
    must(s, what);
}

/* ---- memory ---- */

static void memory_sample(uint64_t *peak)
{
    uint64_t bytes = (uint64_t)test_status_kib("VmRSS") * 1024;
    if (bytes > *peak)
        *peak = bytes;
}

/* What rings may come to take, at one end of the connections to the other ranks: rings that
 * were not used in full before the flood may be used in full during it. */
static uint64_t rings_bound(void)
{
    const struct wf_config *c = wf_config();
    struct wf_shm_geometry full = wf_shm_geometry_full((uint32_t)weft_am_max(ep));
    uint64_t shm = 2 * wf_shm_ring_bytes(&full);
    uint64_t net = c->tcp_lanes * 2 * (WF_MAX(c->tcp_send, c->tcp_send_max) + 65536);
    return (RANKS - 1) * (shm + net);
}

#define SLACK (1u << 20) /* stdio, the allocator's own pages */
#define MALLOC_HEAD 16u

/* How much memory the receiver may take for messages that no receive has matched: what the credit
 * of a peer handle admits, an entry for each offer, and the entries of the matcher's tables. */
static uint64_t receiver_bound(void)
{
    uint64_t messages = WF_MSG_WINDOW / WF_MSG_CHARGE;
    uint64_t offer = sizeof(struct weft_msg) + WF_KEPT_BRIEF + MALLOC_HEAD;
    uint64_t table = 2 * sizeof(union wf_match_block) + 2 * sizeof(void *);
    return WF_MSG_WINDOW + messages * MALLOC_HEAD + operations * offer +
           (messages + operations) * table + rings_bound() + SLACK;
}

/* How much memory the flooder may take: a request for each operation. */
static uint64_t flooder_bound(void)
{
    return operations * (sizeof(struct wf_req) + MALLOC_HEAD + 2 * sizeof(void *)) + rings_bound() +
           SLACK;
}

/* ---- the messages of the flood ---- */

static unsigned group_of(uint64_t number)
{
    return (unsigned)(test_mix(number) % GROUPS);
}

static const unsigned char *bytes_of(uint64_t number)
{
    return pattern + test_mix(number + 7) % STARTS;
}

static uint64_t tag_of(uint64_t number, size_t len)
{
    return (uint64_t)group_of(number) << TAG_GROUP_SHIFT | (uint64_t)len << TAG_LEN_SHIFT | number;
}

/* The length of a message, at most [max] if that is possible. */
static size_t length_of(uint64_t number, size_t max)
{
    uint64_t r = test_mix(number + 13);
    unsigned powers = (unsigned)(__builtin_ctzl(max) - __builtin_ctzl(LEN_MIN)) + 1;
    size_t len = LEN_MIN << (r % powers);
    if (length != LEN_MIXED)
        return length;
    len += (size_t)(r >> 32) % 3 - 1; /* one byte less, none, or one more */
    return WF_MIN(WF_MAX(len, LEN_MIN), max);
}

/* ---- the flooder ---- */

static struct weft_op *ops, **idle_ops;
static unsigned nidle;

static void sent_done(struct weft_op *op)
{
    must((enum weft_status)op->status, "send");
    idle_ops[nidle++] = op;
}

static void flooder_init(void)
{
    ops = calloc(operations, sizeof *ops);
    idle_ops = calloc(operations, sizeof(struct weft_op *));
    if (!ops || !idle_ops)
        must(WEFT_ENOMEM, "operations");
    for (unsigned i = 0; i < operations; i++) { /* resident before it counts */
        ops[i].done = sent_done;
        idle_ops[nidle++] = &ops[i];
    }
}

/* Send one more message. At most [allowed] operations are in flight then. Returns false if nothing
 * was sent. */
static bool send_one(unsigned allowed)
{
    size_t alone_max = WF_MIN((size_t)wf_config()->msg_eager, weft_am_max(ep));
    struct weft_op *op = nidle && operations - nidle < allowed ? idle_ops[nidle - 1] : NULL;
    size_t len = length_of(mine.sent, op ? LEN_MAX : 4096);
    enum weft_status s;
    if (!op && len > alone_max)
        return false;
    if (op)
        nidle--;
    s = weft_msg_send(weft_job_peer(job, RECEIVER), tag_of(mine.sent, len), bytes_of(mine.sent),
                      len, op);
    if (s == WEFT_AGAIN && !op) {
        mine.refused++;
        return false;
    }
    if (s != WEFT_PENDING)
        must(s, "weft_msg_send");
    if (op && s == WEFT_OK)
        idle_ops[nidle++] = op;
    mine.sent++;
    mine.bytes += len;
    return true;
}

/* Send until [end_ns], the end of a slot of [slice]. */
static void flood_until(uint64_t end_ns, const struct plan *p, unsigned slice)
{
    uint64_t slice_ns = p->slot_ns * KINDS, slice_begin_ns = p->begin_ns + slice * slice_ns;
    unsigned last = p->slices - 1, floods = last - last / PAUSE_EVERY;
    unsigned before = slice - slice / PAUSE_EVERY - 1; /* slices of the flood */
    uint64_t t;
    while ((t = now()) < end_ns) {
        double part = before + (double)(t - slice_begin_ns) / (double)slice_ns;
        if (!send_one((unsigned)(operations * part / floods) + 1))
            poll_once();
    }
}

/* ---- the other traffic ---- */

static void on_ask(const struct weft_am *am)
{
    must(am->len == 8 ? WEFT_OK : WEFT_EPROTO, "request");
    must(weft_am_reply(am, ANSWER, NULL, 0, am->data, 8), "weft_am_reply");
}

static void on_answer(const struct weft_am *am)
{
    (void)am;
    answers++;
}

static void call(enum rank to)
{
    uint64_t data = test_now_ns();
    unsigned before = answers;
    enum weft_status s;
    while ((s = weft_am_request(weft_job_peer(job, to), ASK, NULL, 0, &data, 8, 9)) == WEFT_AGAIN)
        wait_event(deadline_ns);
    must(s, "weft_am_request");
    while (answers == before)
        wait_event(deadline_ns);
}

static void send_short(enum rank to, uint64_t data)
{
    enum weft_status s;
    while ((s = weft_msg_send(weft_job_peer(job, to), TAG_OTHER, &data, 8, NULL)) == WEFT_AGAIN)
        wait_event(deadline_ns);
    must(s, "weft_msg_send");
}

static void exchange(enum rank with)
{
    static uint64_t number;
    struct weft_op op = {0};
    uint64_t in = 0;
    enum weft_status s =
        weft_msg_recv(ep, weft_job_peer(job, with), TAG_OTHER, WEFT_TAG_FULL, &in, 8, &op);
    send_short(with, ++number);
    finish(s, &op, "tagged message back");
    must(in == number ? WEFT_OK : WEFT_EPROTO, "tagged message");
}

static void put(enum rank to)
{
    struct weft_op op = {0};
    enum weft_status s;
    while ((s = weft_put(remotes[to], 0, pattern, PUT_LEN, &op)) == WEFT_AGAIN)
        wait_event(deadline_ns);
    finish(s, &op, "weft_put");
}

static void operate(enum kind kind)
{
    enum rank to = kinds[kind].to;
    switch (kind) {
    case TAGGED:
    case TAGGED_TWIN: exchange(to); break;
    case PUTS:
    case PUTS_TWIN: put(to); break;
    default: call(to); break;
    }
}

/* Connect to all ranks, so that none has fewer connections to serve than another. */
static void connect_all(void)
{
    begin("connecting");
    MUST(weft_job_barrier(job)); /* handlers are registered */
    for (unsigned rank = 0; rank < RANKS; rank++)
        for (unsigned i = 0; i < 4; i++)
            call(rank);
    MUST(weft_job_barrier(job));
}

/* Repeat an operation of [kind] from [begin_ns] to [end_ns]. */
static void measure(enum kind kind, struct tally *t, uint64_t begin_ns, uint64_t end_ns)
{
    uint64_t first, last, count = 0;
    while (now() < begin_ns)
        wait_event(begin_ns);
    first = last = now();
    while (last < end_ns) {
        uint64_t at = last;
        operate(kind);
        last = now();
        count++;
        t->longest_ns = WF_MAX(t->longest_ns, last - at);
    }
    t->count += count;
    t->ns += last - first;
}

/* The receive for the tagged messages of the rank CALLER. */
static struct {
    struct weft_op op;
    uint64_t data;
    bool posted;
} served;

static void serve_until(uint64_t end_ns)
{
    bool serves = me == RECEIVER || me == TWIN;
    while (now() < end_ns) {
        if (serves && served.posted && served.op.status == WEFT_OK) {
            served.posted = false;
            send_short(CALLER, served.data);
        }
        if (serves && !served.posted) {
            enum weft_status s = weft_msg_recv(ep, weft_job_peer(job, CALLER), TAG_OTHER,
                                               WEFT_TAG_FULL, &served.data, 8, &served.op);
            if (s != WEFT_PENDING)
                must(s, "weft_msg_recv");
            served.posted = true;
            if (s == WEFT_OK)
                continue;
        }
        if (!serves)
            wait_event(end_ns);
        else if (!poll_once())
            sched_yield();
    }
}

/* ---- the plan ---- */

static void slot_pass(const struct plan *p, unsigned slice, enum kind kind)
{
    uint64_t begin_ns = p->begin_ns + ((uint64_t)slice * KINDS + kind) * p->slot_ns;
    uint64_t end_ns = begin_ns + p->slot_ns;
    enum phase phase = slice % PAUSE_EVERY ? FLOOD : PAUSE;
    if (me == FLOODER && phase == FLOOD)
        flood_until(end_ns, p, slice);
    else if (me == FLOODER)
        while (now() < end_ns)
            poll_once();
    else if (me == kinds[kind].from)
        /* The other ranks may be late if they had no processor. */
        measure(kind, &mine.tally[phase][kind], begin_ns + p->slot_ns / 8, end_ns);
    else
        serve_until(end_ns);
}

/* A barrier, until whose end this rank serves: a rank that had no processor may be late. */
static void barrier_serving(void)
{
    enum weft_status s = weft_job_barrier_notify(job, 0, WEFT_BARRIER_ANONYMOUS);
    must(s, "weft_job_barrier_notify");
    while ((s = weft_job_barrier_try(job, 0, WEFT_BARRIER_ANONYMOUS)) == WEFT_AGAIN)
        serve_until(now() + 1000000);
    must(s, "weft_job_barrier_try");
}

/* Pass [slices] slices, beginning at the same time at all ranks. */
static void pass(unsigned slices)
{
    struct plan p = {test_now_ns() + START_NS, slot_ms * (uint64_t)1000000, slices}, all[RANKS];
    begin("flood");
    MUST(weft_job_allgather(job, &p, sizeof p, all));
    p.begin_ns = all[RECEIVER].begin_ns;
    serve_until(p.begin_ns);
    for (unsigned slice = 0; slice < slices; slice++)
        for (enum kind kind = 0; kind < KINDS; kind++) {
            begin("flood");
            memory_sample(slice ? &mine.flood_peak : &mine.base);
            slot_pass(&p, slice, kind);
        }
    while (me == FLOODER && nidle) { /* what the flood left, if this rank had no processor */
        (void)send_one(operations);
        poll_once();
    }
    barrier_serving();
    memory_sample(&mine.flood_peak);
}

/* ---- receiving the kept messages ---- */

static struct {
    struct weft_op op;
    unsigned char *buf; /* [LEN_MAX] */
    uint64_t number;    /* of the message that this receive must get */
    bool posted;
} receives[WINDOW];

static void receiver_init(void)
{
    for (unsigned i = 0; i < WINDOW; i++) {
        receives[i].buf = malloc(LEN_MAX);
        if (!receives[i].buf)
            must(WEFT_ENOMEM, "buffers");
        memset(receives[i].buf, 0x5a, LEN_MAX); /* resident before it counts */
    }
}

/* Post the receive [i] for the next message of a group that has one. [next] has the number of the
 * next message of each group, at least [total] if there is none. */
static enum weft_status receive_post(unsigned i, uint64_t next[GROUPS], uint64_t total)
{
    static uint64_t turn;
    unsigned group = (unsigned)(test_mix(turn++) % GROUPS);
    for (unsigned k = 0; k < GROUPS && next[group] >= total; k++)
        group = (group + 1) % GROUPS;
    receives[i].posted = next[group] < total;
    if (!receives[i].posted)
        return WEFT_AGAIN;
    receives[i].number = next[group];
    while (++next[group] < total && group_of(next[group]) != group)
        ;
    return weft_msg_recv(ep, NULL, (uint64_t)group << TAG_GROUP_SHIFT, TAG_GROUP_MASK,
                         receives[i].buf, LEN_MAX, &receives[i].op);
}

static void receive_check(unsigned i)
{
    const struct weft_op *op = &receives[i].op;
    uint64_t number = receives[i].number;
    must((enum weft_status)op->status, "receive");
    must(op->len <= LEN_MAX && op->tag == tag_of(number, op->len) &&
                 weft_sender_peer(op->sender) == weft_job_peer(job, FLOODER)
             ? WEFT_OK
             : WEFT_EPROTO,
         "a message that was lost, doubled, or out of order");
    must(memcmp(receives[i].buf, bytes_of(number), op->len) ? WEFT_EPROTO : WEFT_OK, "wrong bytes");
    memset(receives[i].buf, 0x5a, op->len);
}

static void receive_all(uint64_t total)
{
    uint64_t next[GROUPS], received = 0;
    for (unsigned group = 0; group < GROUPS; group++)
        for (next[group] = 0; next[group] < total && group_of(next[group]) != group;)
            next[group]++;
    while (received < total) {
        bool waits = true;
        for (unsigned i = 0; i < WINDOW; i++) {
            if (receives[i].posted && receives[i].op.status == WEFT_PENDING)
                continue;
            if (receives[i].posted) {
                receive_check(i);
                begin("receiving");
                if (++received % 64 == 0)
                    memory_sample(&mine.all_peak);
            }
            if (receive_post(i, next, total) != WEFT_AGAIN)
                waits = false;
        }
        if (waits && received < total)
            wait_event(deadline_ns);
    }
}

/* No message of the flood is left. */
static void receive_none(void)
{
    struct weft_msg_info info;
    for (unsigned group = 0; group < GROUPS; group++)
        must(weft_msg_probe(ep, NULL, (uint64_t)group << TAG_GROUP_SHIFT, TAG_GROUP_MASK, &info) ==
                     WEFT_AGAIN
                 ? WEFT_OK
                 : WEFT_EPROTO,
             "no message is left");
}

static void drain(void)
{
    struct report all[RANKS];
    begin("receiving");
    MUST(weft_job_allgather(job, &mine, sizeof mine, all));
    if (me == RECEIVER)
        receive_all(all[FLOODER].sent);
    while (me == FLOODER && nidle < operations) {
        unsigned before = nidle;
        wait_event(deadline_ns);
        if (nidle != before)
            begin("receiving");
    }
    begin("barrier");
    MUST(weft_job_barrier(job));
    memory_sample(&mine.all_peak);
}

/* ---- results ---- */

static double rate(const struct tally *t)
{
    return t->ns ? 1e9 * (double)t->count / (double)t->ns : 0;
}

/* The rate of [t] in percent of that of [other]; 0 if one of them was not measured. */
static double percent(const struct tally *t, const struct tally *other)
{
    return other->ns ? 100 * rate(t) / rate(other) : 0;
}

static bool print_kind(const struct report all[RANKS], enum kind kind, enum kind twin)
{
    const struct report *r = &all[kinds[kind].from];
    const struct tally *flood = &r->tally[FLOOD][kind], *pause = &r->tally[PAUSE][kind];
    double of_pause = percent(flood, pause), of_twin = percent(flood, &r->tally[FLOOD][twin]);
    printf(
        "measured   %s: %.0f /s in the flood, longest %.2f ms; %.0f /s in its pauses, longest %.2f "
        "ms: %.0f%%",
        kinds[kind].name, rate(flood), (double)flood->longest_ns / 1e6, rate(pause),
        (double)pause->longest_ns / 1e6, of_pause);
    if (twin != kind)
        printf("; %.0f /s with the twin: %.0f%%", rate(&r->tally[FLOOD][twin]), of_twin);
    printf("\n");
    return of_pause >= share && of_twin >= share;
}

static bool print_rates(const struct report all[RANKS])
{
    bool good = print_kind(all, CALLS, CALLS_TWIN);
    good &= print_kind(all, TAGGED, TAGGED_TWIN);
    good &= print_kind(all, PUTS, PUTS_TWIN);
    good &= print_kind(all, BETWEEN, BETWEEN);
    if (!good)
        fprintf(stderr, "unexpected: other peers keep less than %u%% of their traffic\n", share);
    return good;
}

static bool print_memory(const char *who, const struct report *r, uint64_t bound)
{
    uint64_t peak = WF_MAX(r->flood_peak, r->all_peak);
    printf(
        "measured   %s: %.1f MiB before the flood; it grew by %.1f MiB during the flood, and %.1f "
        "until the end; at most %.1f\n",
        who, (double)r->base / 1048576, ((double)r->flood_peak - (double)r->base) / 1048576,
        ((double)peak - (double)r->base) / 1048576, (double)bound / 1048576);
    if (peak <= r->base + bound || TEST_SANITIZED) /* a sanitizer's shadow grows */
        return true;
    fprintf(stderr, "unexpected: memory of the %s grew beyond the figure\n", who);
    return false;
}

static bool print_all(const struct report all[RANKS], double seconds)
{
    bool good;
    struct weft_path path = {0};
    char text[32] = "4 B to 1 MiB";
    if (length != LEN_MIXED)
        snprintf(text, sizeof text, "%zu B", length);
    MUST(weft_path_of(weft_job_peer(job, FLOODER), WEFT_OP_MSG, NULL, LEN_MIN, &path));
    printf("measured %s, %s: %llu messages, %.1f MiB, at most %u operations, %llu sends refused, "
           "%.1f s\n",
           path.transport, text, (unsigned long long)all[FLOODER].sent,
           (double)all[FLOODER].bytes / 1048576, operations,
           (unsigned long long)all[FLOODER].refused, seconds);
    good = print_memory("receiver", &all[RECEIVER], receiver_bound());
    good &= print_memory("sender", &all[FLOODER], flooder_bound());
    good &= print_rates(all);
    return good;
}

/* ---- all of it ---- */

/* Give the flooder a processor of its own, if there are two. */
static void pin(void)
{
    cpu_set_t all, own;
    int first = 0;
    if (sched_getaffinity(0, sizeof all, &all) || CPU_COUNT(&all) < 2)
        return;
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&own);
    CPU_SET(first, &own);
    CPU_CLR(first, &all);
    must(sched_setaffinity(0, sizeof all, me == FLOODER ? &own : &all) ? WEFT_ESYSTEM : WEFT_OK,
         "sched_setaffinity");
}

/* One flood of [seconds]. Returns true if all figures are within their bounds. */
static bool flood(double seconds)
{
    struct report all[RANKS];
    double slice_s = slot_ms * 1e-3 * KINDS;
    unsigned periods = (unsigned)(seconds / (slice_s * (PAUSE_EVERY - 1)) + 0.5);
    memset(&mine, 0, sizeof mine);
    pass(WF_MAX(periods, 1u) * PAUSE_EVERY + 1);
    drain();
    begin("results");
    if (me == RECEIVER)
        receive_none();
    MUST(weft_job_allgather(job, &mine, sizeof mine, all));
    return me != RECEIVER || print_all(all, seconds);
}

static void arguments(int argc, char **argv)
{
    if (argc > 2)
        operations = (unsigned)strtoul(argv[2], NULL, 10);
    if (argc > 3)
        share = (unsigned)strtoul(argv[3], NULL, 10);
    if (argc > 4 && strcmp(argv[4], "mixed") && strcmp(argv[4], "each"))
        length = strtoul(argv[4], NULL, 10);
    if (argc > 5)
        slot_ms = (unsigned)strtoul(argv[5], NULL, 10);
    if (argc < 2 || !operations || !slot_ms || (length && (length < LEN_MIN || length > LEN_MAX)))
        fail("arguments", "SECONDS [OPERATIONS [SHARE [LENGTH [SLOT]]]]");
}

int main(int argc, char **argv)
{
    struct weft_mr *mr;
    bool good = true, each = argc > 4 && !strcmp(argv[4], "each");
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 1;
    alarm(300 + 5 * (unsigned)seconds); /* collective calls have no time limit */
    deadline_ns = test_now_ns() + TEST_LIMIT_NS;
    MUST(weft_job_open(NULL, &job));
    ep = weft_job_ep(job);
    me = weft_job_rank(job);
    arguments(argc, argv);
    pin();
    if (weft_job_size(job) != RANKS)
        fail("job", "it takes 5 ranks");
    pattern = malloc(STARTS + LEN_MAX);
    if (!pattern)
        must(WEFT_ENOMEM, "pattern");
    test_fill(pattern, STARTS + LEN_MAX, 1);
    if (me == FLOODER)
        flooder_init();
    if (me == RECEIVER)
        receiver_init();
    MUST(weft_am_register(ep, ASK, on_ask, NULL));
    MUST(weft_am_register(ep, ANSWER, on_answer, NULL));
    MUST(weft_job_mem_alloc(job, PUT_LEN, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &mr, remotes));
    connect_all();
    if (!each)
        good = flood(seconds);
    for (length = each ? LEN_MIN : LEN_MAX + 1; length <= LEN_MAX; length *= 2)
        good &= flood(seconds / 19);
    begin("the end");
    MUST(weft_job_barrier(job));
    if (served.posted)
        MUST(weft_msg_cancel(ep, &served.op));
    for (unsigned rank = 0; rank < RANKS; rank++)
        MUST(weft_remote_close(remotes[rank]));
    MUST(weft_mr_close(mr));
    fflush(stdout);
    return weft_job_close(job) != WEFT_OK || !good;
}
