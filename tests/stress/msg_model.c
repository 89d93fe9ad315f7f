/* SPDX-License-Identifier: BSD-3-Clause */
/* msg_model [SEED [OPERATIONS [threads]]]: three endpoints of one process, moved by
 * one thread or by a thread each, send, receive, receive many, probe, claim, take, drop
 * and cancel tagged messages at random, in all spaces, to each other and to themselves. Some sends
 * have flags (enum weft_op_flags). They cancel sends, too, and close and reopen peers. SEED 0:
 * another one each time, printed. OPERATIONS are those of all endpoints.
 *
 * What a receiver may match is known from its own calls, whatever the timing.
 * Its calls are numbered; a message's taker is the receive or claim that got it.
 *  - A call that takes, or names, a message of a source, and would have matched an
 *    earlier one of that source, comes after that one's taker was called.
 *  - So does a call that finds nothing, for all messages known to have come.
 *  - When a receive gets a message, receives posted before that would match it
 *    have a message already, or, if they are for many, are full.
 *  - A message whose send was cancelled may reach its taker or not. Its taker may end with
 *    ECANCELED. So may the taker of a message whose receiver closes the peer meanwhile.
 *  - When a matched send is complete, its message has a taker (seen by one thread). When a fenced
 *    one is, so are all earlier ones to the same endpoint.
 * The bytes depend on sender, receiver and number; a buffer's other bytes and all
 * bytes of a send that is over are overwritten.
 *
 * Fails when: one of these does not hold, a message is lost or comes twice, its
 * length, tag, space, data, source or bytes are wrong, bytes beyond it are touched, a sent
 * buffer is read after its send is over, a call's status is not one it may have, a receive ends
 * with ECANCELED though neither side has cancelled its message or closed the peer. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>
#include <weft/msg.h>

#include "contract/support.h"

enum {
    ENDS = 3,
    WINDOW = 96, /* numbers a sender may be ahead of the oldest untaken one */
    RING = 256,  /* messages of a source that are remembered: more than twice that */
    SENDS = 48,
    RECVS = 48,
    MANYS = 6,
    ROOM_OF_MANY = 60000,
    LENGTH = 20000,
    BIG = 3000000, /* one message in thousands; the first buffers have room for it */
    GUARD = 32,
    NUMBERS = 1 << 20, /* messages of a pair, at most */
};
enum {
    SENT,
    LONG,
    FLAGGED,
    RECEIVED,
    CUT,
    PROBED,
    CLAIMED,
    CANCELLED,
    NOTHING,
    DROPPED,
    MANY,
    TAKEN_BACK,
    BROKEN_OFF,
    CLOSED,
    DIDS
};
#define FULL WEFT_TAG_FULL
#define NEVER UINT64_MAX

/* What became of a send. The sender sets ASKED before it cancels, and GONE if the send ended with
 * ECANCELED. */
enum fate { WHOLE, ASKED, GONE };

/* A message, as its receiver knows it. */
struct known {
    uint64_t taker;  /* the number of the call; NEVER: not yet */
    uint64_t before; /* its taker has a smaller number */
    bool here;       /* it has come */
};

struct send {
    struct weft_op op;
    struct end *end;
    unsigned char *data;
    size_t used;
    int to;
    uint32_t number;
    bool busy, cancels;
};

struct recv {
    struct weft_op op;
    struct end *end;
    unsigned char *data;
    size_t room;
    int source; /* -1: any */
    uint64_t tag, mask;
    uint32_t space;
    uint64_t call;   /* its number */
    uint64_t latest; /* by then it has met its message */
    bool busy, posted;
    bool cancels;             /* in weft_msg_cancel */
    struct weft_msg *claimed; /* not taken yet */
    struct weft_msg_info info;
};

/* A receive of many messages. */
struct many {
    struct weft_msg_many m;
    struct recv like; /* what it matches */
    unsigned char *data;
    size_t filled; /* bytes of complete messages */
    bool busy;
};

struct end {
    int me;
    struct weft_ep *ep;
    struct weft_peer *peers[ENDS];
    int closes; /* the peer that is being closed; -1: none */
    uint64_t rand, calls, operations;
    uint64_t busy;        /* for so many operations with other things than polling */
    uint32_t sent[ENDS];  /* to */
    uint32_t first[ENDS]; /* from: the oldest untaken one */
    struct known known[ENDS][RING];
    struct send sends[SENDS];
    struct recv recvs[RECVS];
    struct many manys[MANYS];
    uint64_t did[DIDS];
};

static struct end ends[ENDS];
static uint64_t seed;
static size_t eager_max, copied_max;
static bool threads;                       /* one each */
static uint64_t quota;                     /* operations per endpoint */
static _Atomic uint32_t taken[ENDS][ENDS]; /* [to][from]: all below are taken */
static _Atomic uint32_t total[ENDS][ENDS]; /* [to][from]: once over[from] is set */
static _Atomic int over[ENDS], finished;
static _Atomic uint8_t fates[ENDS][ENDS][NUMBERS]; /* [to][from]: enum fate */
static uint8_t seen[ENDS][ENDS][NUMBERS];          /* [to][from]: taken */
static _Atomic uint8_t anew[ENDS][ENDS][NUMBERS];  /* [to][from]: the first by a new peer */
static _Atomic bool closed[ENDS][ENDS];            /* [by][whom]: once at least */

static const char *const did_names[] = {"sent",
                                        "of these long",
                                        "with flags",
                                        "received",
                                        "cut off",
                                        "probed",
                                        "claimed",
                                        "cancelled",
                                        "finding nothing",
                                        "dropped",
                                        "by receives of many",
                                        "taken back",
                                        "broken off",
                                        "peers closed"};

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            broken(__LINE__, #condition, __VA_ARGS__);                                             \
    } while (0)

static void broken(int line, const char *condition, const struct end *e, const char *what,
                   int source, uint64_t number)
{
    fprintf(stderr, "seed %llu, endpoint %d, call %llu, line %d: %s (message %llu of %d): not %s\n",
            (unsigned long long)seed, e->me, (unsigned long long)e->calls, line, what,
            (unsigned long long)number, source, condition);
    _exit(1);
}

static uint64_t below(struct end *e, uint64_t n)
{
    return test_rand(&e->rand) % n;
}

/* ---- messages ---- */

static uint64_t id_of(int from, int to, uint32_t number)
{
    return seed ^ (uint64_t)(from * ENDS + to) << 40 ^ number;
}

/* The number, and 6 bits that many share. */
static uint64_t tag_of(int from, int to, uint32_t number)
{
    return (uint64_t)number << 8 | (test_mix(id_of(from, to, number)) & 0x3f);
}

static uint32_t number_of(uint64_t tag)
{
    return (uint32_t)(tag >> 8);
}

static uint32_t space_of(int from, int to, uint32_t number)
{
    return test_mix(id_of(from, to, number) + 2) % WEFT_MSG_SPACES;
}

/* What a message carries besides its bytes: data, or none. */
static struct weft_msg_head head_of(int from, int to, uint32_t number)
{
    uint64_t r = test_mix(id_of(from, to, number) + 3);
    return (struct weft_msg_head){tag_of(from, to, number), r & 1 ? r >> 1 : 0,
                                  space_of(from, to, number), r & 1 ? WEFT_MSG_DATA : 0};
}

static size_t length_of(int from, int to, uint32_t number)
{
    uint64_t r = test_mix(id_of(from, to, number) + 1);
    switch (r & 31) {
    case 0: return (r >> 5) % 100 ? (r >> 12) % (LENGTH + 1) : (r >> 12) % (BIG + 1);
    case 1: return eager_max + (r >> 5) % 9 - (eager_max ? 4 : 0); /* about where the way changes */
    case 2:
    case 3: return 0;
    case 4:
    case 5:
    case 6:
    case 7: return (r >> 5) % 2000;
    default: return (r >> 5) % 65;
    }
}

/* The flags of its send. */
static uint32_t flags_of(int from, int to, uint32_t number)
{
    static const uint32_t all =
        WEFT_OP_COPIED | WEFT_OP_FENCED | WEFT_OP_DELIVERED | WEFT_OP_MATCHED;
    uint64_t r = test_mix(id_of(from, to, number) + 4);
    uint32_t flags = r % 4 ? 0 : (uint32_t)(r >> 8) & all;
    return length_of(from, to, number) > copied_max ? flags & ~(uint32_t)WEFT_OP_COPIED : flags;
}

/* Does its receive complete when it matches? */
static bool comes_whole(int from, int to, uint32_t number)
{
    return length_of(from, to, number) <= eager_max &&
           !(flags_of(from, to, number) & WEFT_OP_MATCHED);
}

static size_t room_of(int k)
{
    return k ? LENGTH : BIG;
}

/* As test_fill, in words, so that a million do not take long. */
static void fill(unsigned char *data, size_t len, uint64_t id)
{
    size_t i = 0;
    uint64_t word = test_mix(id);
    for (; i + 8 <= len; i += 8, word = word * 0x9e3779b97f4a7c15u + 1)
        memcpy(data + i, &word, 8);
    memcpy(data + i, &word, len - i);
}

static bool same(const unsigned char *data, size_t len, uint64_t id)
{
    size_t i = 0;
    uint64_t word = test_mix(id);
    for (; i + 8 <= len; i += 8, word = word * 0x9e3779b97f4a7c15u + 1)
        if (memcmp(data + i, &word, 8))
            return false;
    return !memcmp(data + i, &word, len - i);
}

static unsigned pieces(struct end *e, unsigned char *data, size_t len, struct iovec *iov)
{
    unsigned n = (unsigned)below(e, 4);
    size_t at = 0;
    for (unsigned i = 0; i < n; i++) {
        iov[i] = (struct iovec){data + at, below(e, len - at + 1)};
        at += iov[i].iov_len;
    }
    iov[n] = (struct iovec){data + at, len - at};
    return n + 1;
}

static unsigned one_piece(unsigned char *data, size_t len, struct iovec *iov)
{
    *iov = (struct iovec){data, len};
    return 1;
}

/* ---- the model ---- */

static struct known *known_of(struct end *e, int source, uint32_t number)
{
    return &e->known[source][number % RING];
}

static bool matches(const struct recv *r, int source, uint64_t tag)
{
    return (r->source < 0 || r->source == source) && !((tag ^ r->tag) & r->mask) &&
           r->space == space_of(source, r->end->me, number_of(tag));
}

static enum fate fate_of(const struct end *e, int source, uint32_t number)
{
    return (enum fate)atomic_load(&fates[e->me][source][number]);
}

/* Returns true if the receiver has forgotten the message: its send was cancelled, and it had not
 * come by then. */
static bool is_late(const struct end *e, int source, uint32_t number)
{
    return number < e->first[source] && !seen[e->me][source][number] &&
           fate_of(e, source, number) == GONE;
}

/* Call [call] would have matched the message: it was taken before. */
static void was_taken(struct end *e, int source, uint32_t number, uint64_t call)
{
    struct known *k = known_of(e, source, number);
    if (k->taker != NEVER)
        CHECK(k->taker <= call, e, "it was there for an earlier call", source, number);
    else if (call < k->before)
        k->before = call;
}

/* Returns the oldest message that comes before [number] in any case. Messages that were sent by
 * different handles of a peer may overtake each other. */
static uint32_t oldest_before(const struct end *e, int source, uint32_t number)
{
    uint32_t least = number > WINDOW ? number - WINDOW : 0;
    while (number > least && !atomic_load(&anew[e->me][source][number]))
        number--;
    return number;
}

/* [r] matched none of the messages before [end]. */
static void none_before(struct end *e, const struct recv *r, int source, uint32_t end)
{
    for (uint32_t number = oldest_before(e, source, end); number < end; number++)
        if (matches(r, source, tag_of(source, e->me, number)))
            was_taken(e, source, number, r->call);
}

static void is_here(struct end *e, int source, uint32_t number)
{
    uint32_t least = oldest_before(e, source, number);
    for (number++; number-- > least && !known_of(e, source, number)->here;)
        known_of(e, source, number)->here = true;
}

/* [r] found no message. */
static void found_none(struct end *e, const struct recv *r)
{
    e->did[NOTHING]++;
    for (int source = 0; source < ENDS; source++)
        for (uint32_t i = 0; i < WINDOW && (r->source < 0 || r->source == source); i++) {
            uint32_t number = e->first[source] + i;
            if (known_of(e, source, number)->here &&
                matches(r, source, tag_of(source, e->me, number)))
                was_taken(e, source, number, r->call);
        }
}

/* ENDS: the sender is none of the peers. While a peer is closed, its sender has no peer. */
static int source_of(const struct end *e, const struct weft_sender *sender)
{
    const struct weft_peer *peer = weft_sender_peer(sender);
    int source = 0;
    if (!peer && e->closes >= 0)
        return e->closes;
    while (source < ENDS && e->peers[source] != peer)
        source++;
    return source;
}

/* Call [r] named a message: which, of which source. */
static uint32_t named(struct end *e, const struct recv *r, const struct weft_msg_info *info,
                      int *from)
{
    const uint64_t tag = info->tag, len = info->len;
    int source = source_of(e, info->sender);
    uint32_t number = number_of(tag);
    struct weft_msg_head head;
    CHECK(source < ENDS, e, "a source that is no peer", -1, number);
    CHECK(tag == tag_of(source, e->me, number), e, "its tag", source, number);
    CHECK(matches(r, source, tag), e, "it does not match", source, number);
    head = head_of(source, e->me, number);
    CHECK(info->data == head.data && info->has_data == head.flags, e, "its data", source, number);
    CHECK(len == length_of(source, e->me, number), e, "its length", source, number);
    *from = source;
    if (is_late(e, source, number))
        return number;
    CHECK(number >= e->first[source] && number < e->first[source] + 2 * WINDOW, e, "its number",
          source, number);
    is_here(e, source, number);
    none_before(e, r, source, number);
    return number;
}

/* Pass over the messages of [source] that were taken, and those that need not come. */
static void advance(struct end *e, int source)
{
    while (e->first[source] < NUMBERS && (known_of(e, source, e->first[source])->taker != NEVER ||
                                          fate_of(e, source, e->first[source]) == GONE)) {
        uint32_t done = e->first[source]++;
        *known_of(e, source, done + RING / 2) = (struct known){NEVER, NEVER, false};
    }
    atomic_store_explicit(&taken[e->me][source], e->first[source], memory_order_relaxed);
}

/* Call [r] took a message. */
static void took(struct end *e, const struct recv *r, int source, uint32_t number)
{
    struct known *k = known_of(e, source, number);
    uint64_t tag = tag_of(source, e->me, number);
    bool late = is_late(e, source, number);
    CHECK(!seen[e->me][source][number], e, "it comes twice", source, number);
    seen[e->me][source][number] = 1;
    if (!late) {
        CHECK(r->call <= k->before, e, "it was there for an earlier call", source, number);
        k->taker = r->call;
    }
    for (int i = 0; i < MANYS; i++) {
        struct many *other = &e->manys[i];
        if (other->busy && other->like.posted && other->like.call < r->call &&
            matches(&other->like, source, tag) && other->like.latest > e->calls)
            other->like.latest = e->calls;
    }
    for (int i = 0; i < RECVS; i++) {
        struct recv *other = &e->recvs[i];
        if (other->busy && other->posted && other->call < r->call && matches(other, source, tag) &&
            other->latest > e->calls)
            other->latest = e->calls;
    }
    advance(e, source);
}

/* May a receive of the message end with ECANCELED? */
static bool may_break_off(const struct end *e, int source, uint32_t number)
{
    return fate_of(e, source, number) != WHOLE || e->closes == source;
}

/* ---- sending ---- */

/* [s] is complete. If it had a fence, those before it to the same endpoint are over. */
static void fence_check(const struct send *s)
{
    struct end *e = s->end;
    for (int i = 0; i < SENDS && s->op.flags & WEFT_OP_FENCED; i++) {
        const struct send *other = &e->sends[i];
        CHECK(!other->busy || other->to != s->to || other->number >= s->number, e,
              "a fenced send is complete before an earlier one", s->to, s->number);
    }
}

static void send_end(struct send *s)
{
    memset(s->data, 0xee, s->used); /* it is ours again */
    s->busy = false;
}

static void on_sent(struct weft_op *op)
{
    struct send *s = op->user;
    struct end *e = s->end;
    if (op->status == WEFT_ECANCELED) {
        CHECK(s->cancels || e->closes == s->to || atomic_load(&closed[s->to][e->me]), e,
              "a send ends with ECANCELED", s->to, s->number);
        atomic_store(&fates[s->to][e->me][s->number], GONE);
        e->did[TAKEN_BACK]++;
    } else {
        CHECK(op->status == WEFT_OK, e, "status of a send", e->me, (uint64_t)-op->status);
        fence_check(s);
        if (op->flags & WEFT_OP_MATCHED && !threads)
            CHECK(seen[s->to][e->me][s->number], e, "a matched send is complete", s->to, s->number);
        if (s->cancels || e->closes == s->to)
            atomic_store(&fates[s->to][e->me][s->number], WHOLE);
    }
    send_end(s);
}

/* Cancel a send that is under way, if there is one. */
static void send_cancel(struct end *e)
{
    enum weft_status status;
    struct send *s = &e->sends[below(e, SENDS)];
    for (int i = 0; i < SENDS && !s->busy; i++)
        s = s < &e->sends[SENDS - 1] ? s + 1 : e->sends;
    if (!s->busy)
        return;
    atomic_store(&fates[s->to][e->me][s->number], ASKED);
    s->cancels = true;
    status = weft_msg_cancel(e->ep, &s->op);
    CHECK(status == WEFT_OK && !s->busy, e, weft_status_name(status), s->to, s->number);
}

static bool send_one(struct end *e, int to)
{
    uint32_t number = e->sent[to];
    const struct weft_msg_head head = head_of(e->me, to, number);
    size_t len = length_of(e->me, to, number);
    struct send *s = &e->sends[len > LENGTH ? 0 : below(e, SENDS)];
    struct weft_op *op = &s->op;
    const uint32_t flags = flags_of(e->me, to, number);
    struct iovec iov[4];
    enum weft_status status;
    if (s->busy || number - atomic_load_explicit(&taken[to][e->me], memory_order_relaxed) >= WINDOW)
        return false;
    CHECK(number < NUMBERS - 1, e, "too many operations", to, number);
    if (len <= eager_max && !flags && below(e, 3) == 0)
        op = NULL;
    fill(s->data, len, id_of(e->me, to, number));
    s->op = (struct weft_op){.user = s, .done = on_sent, .flags = flags};
    s->busy = true;
    s->cancels = false;
    s->used = len;
    s->to = to;
    s->number = number;
    if (head.space || head.flags || below(e, 8) == 0)
        status = weft_msg_post_send(
            e->peers[to], &head, iov,
            below(e, 4) ? one_piece(s->data, len, iov) : pieces(e, s->data, len, iov), op);
    else if (flags || below(e, 4) == 0)
        status = weft_msg_sendv(e->peers[to], head.tag, iov, pieces(e, s->data, len, iov), op);
    else
        status = weft_msg_send(e->peers[to], head.tag, s->data, len, op);
    if (status == WEFT_OK)
        fence_check(s);
    if (status != WEFT_PENDING)
        send_end(s);
    else if (flags & WEFT_OP_COPIED)
        memset(s->data, 0xee, len); /* it is ours again */
    if (status == WEFT_AGAIN && !op)
        return false;
    CHECK(status == WEFT_OK || (status == WEFT_PENDING && op), e, weft_status_name(status), to,
          number);
    e->sent[to]++;
    e->did[SENT]++;
    e->did[LONG] += len > eager_max;
    e->did[FLAGGED] += flags != 0;
    return true;
}

/* One, or more than a small ring has room for. */
static bool send_some(struct end *e)
{
    int to = (int)below(e, ENDS);
    bool done = false;
    for (uint64_t i = below(e, 16) ? 1 : below(e, SENDS); i--;)
        done |= send_one(e, to);
    return done;
}

/* ---- receiving ---- */

static void check_bytes(const struct recv *r, int source, uint32_t number)
{
    const struct end *e = r->end;
    size_t len = length_of(source, e->me, number), n = len < r->room ? len : r->room;
    CHECK(same(r->data, n, id_of(source, e->me, number)), e, "its bytes", source, number);
    for (size_t i = n; i < n + GUARD; i++)
        CHECK(r->data[i] == 0xdb, e, "bytes behind it", source, number);
}

/* A receive is over, by [status]. */
static void recv_end(struct recv *r, enum weft_status status)
{
    struct end *e = r->end;
    struct weft_op *op = &r->op;
    int source;
    uint32_t number = number_of(op->tag);
    r->busy = false;
    CHECK(op->status == (int32_t)status, e, weft_status_name(status), r->source, number);
    if (status == WEFT_ECANCELED && r->cancels) {
        CHECK(e->calls <= r->latest, e, "a cancelled receive has been passed over", r->source, 0);
        e->did[CANCELLED]++;
        return;
    }
    if (status == WEFT_ECLOSED) { /* no message has matched it */
        CHECK(r->source >= 0 && e->closes == r->source, e, "a receive ends with ECLOSED", r->source,
              0);
        e->did[CANCELLED]++;
        return;
    }
    if (r->info.sender) { /* it was claimed */
        CHECK(op->sender == r->info.sender && op->tag == r->info.tag && op->len == r->info.len &&
                  op->data == r->info.data && op->has_data == r->info.has_data,
              e, "another one than was claimed", r->source, number);
        source = source_of(e, op->sender);
    } else {
        const struct weft_msg_info info = {.tag = op->tag,
                                           .len = op->len,
                                           .sender = op->sender,
                                           .data = op->data,
                                           .has_data = op->has_data};
        number = named(e, r, &info, &source);
        if (comes_whole(source, e->me, number) && r->posted && status != WEFT_ECANCELED)
            CHECK(e->calls <= r->latest, e, "a receive has been passed over", source, number);
        took(e, r, source, number);
    }
    if (status == WEFT_ECANCELED) {
        CHECK(may_break_off(e, source, number), e, "a receive ends with ECANCELED", source, number);
        e->did[BROKEN_OFF]++;
        return;
    }
    CHECK(status == (op->len > r->room ? WEFT_ETRUNC : WEFT_OK), e, weft_status_name(status),
          source, number);
    check_bytes(r, source, number);
    e->did[RECEIVED]++;
    e->did[CUT] += status == WEFT_ETRUNC;
}

static void on_received(struct weft_op *op)
{
    struct recv *r = op->user;
    r->end->calls++; /* no call, but a moment */
    recv_end(r, (enum weft_status)op->status);
}

/* A source, a tag and a mask under which there may be a message some time; is it
 * a big one? */
static bool choose(struct end *e, struct recv *r)
{
    static const uint64_t masks[] = {FULL, FULL, FULL, 0,    0x3,        0xc,
                                     0x3f, 0x1,  0x30, 0x1f, FULL << 10, FULL ^ 0x3f};
    int source = (int)below(e, ENDS);
    uint32_t number = e->first[source] + (uint32_t)below(e, below(e, 2) ? 8 : WINDOW);
    r->source = below(e, 3) ? source : -1;
    r->tag = tag_of(source, e->me, number);
    r->mask = masks[below(e, sizeof masks / sizeof masks[0])];
    r->space = space_of(source, e->me, number);
    r->tag ^= test_rand(&e->rand) & ~r->mask; /* what the mask leaves out does not matter */
    r->call = ++e->calls;
    return length_of(source, e->me, number) > LENGTH;
}

static struct weft_peer *peer_of(const struct end *e, const struct recv *r)
{
    return r->source < 0 ? NULL : e->peers[r->source];
}

static struct weft_msg_filter filter_of(const struct end *e, const struct recv *r)
{
    return (struct weft_msg_filter){peer_of(e, r), r->tag, r->mask, r->space, 0};
}

/* A receive as [like]; null: it is busy. */
static struct recv *recv_new(struct end *e, const struct recv *like, bool big)
{
    struct recv *r = &e->recvs[big ? 0 : 1 + below(e, RECVS - 1)];
    unsigned char *data = r->data;
    if (r->busy)
        return NULL;
    *r = *like;
    r->end = e;
    r->data = data;
    r->op = (struct weft_op){.user = r, .done = on_received, .status = 77};
    r->room = below(e, 6) ? room_of(!big) : below(e, 2) ? below(e, 60) : below(e, LENGTH);
    r->latest = NEVER;
    memset(r->data, 0xdb, r->room + GUARD);
    return r;
}

static void recv_started(struct recv *r, enum weft_status status)
{
    CHECK(status == WEFT_OK || status == WEFT_ETRUNC || status == WEFT_PENDING ||
              status == WEFT_ECANCELED,
          r->end, weft_status_name(status), r->source, 0);
    if (status != WEFT_PENDING)
        recv_end(r, status);
}

static void recv_start(struct end *e, struct recv *r)
{
    const struct weft_msg_filter filter = filter_of(e, r);
    struct iovec iov[4];
    enum weft_status status;
    r->busy = true;
    if (r->space || below(e, 8) == 0)
        status = weft_msg_post_recv(e->ep, &filter, iov, pieces(e, r->data, r->room, iov), &r->op);
    else if (below(e, 4) == 0)
        status = weft_msg_recvv(e->ep, peer_of(e, r), r->tag, r->mask, iov,
                                pieces(e, r->data, r->room, iov), &r->op);
    else
        status = weft_msg_recv(e->ep, peer_of(e, r), r->tag, r->mask, r->data, r->room, &r->op);
    r->posted = status == WEFT_PENDING;
    recv_started(r, status);
}

static bool recv_one(struct end *e)
{
    struct recv like = {.end = e}, *r;
    bool big = choose(e, &like);
    r = recv_new(e, &like, big);
    if (r)
        recv_start(e, r);
    return r;
}

static void probe(struct end *e)
{
    struct recv like = {.end = e};
    struct weft_msg_info info;
    enum weft_status status;
    int source;
    struct weft_msg_filter filter;
    choose(e, &like);
    filter = filter_of(e, &like);
    if (like.space)
        status = weft_msg_find(e->ep, &filter, &info, NULL);
    else
        status = weft_msg_probe(e->ep, filter.source, like.tag, like.mask, &info);
    CHECK(status == WEFT_OK || status == WEFT_AGAIN, e, weft_status_name(status), like.source, 0);
    e->did[PROBED]++;
    if (status == WEFT_OK) {
        uint32_t number = named(e, &like, &info, &source);
        CHECK(!seen[e->me][source][number], e, "it was taken", source, number);
    } else {
        found_none(e, &like);
    }
}

static void drop(struct recv *r)
{
    enum weft_status status = weft_msg_drop(r->end->ep, r->claimed);
    CHECK(status == WEFT_OK, r->end, weft_status_name(status), r->source, 0);
    r->claimed = NULL;
    r->busy = false;
    r->end->did[DROPPED]++;
}

static void take(struct recv *r)
{
    struct weft_msg *msg = r->claimed;
    r->end->calls++;
    if (below(r->end, 4) == 0) {
        drop(r);
        return;
    }
    r->claimed = NULL;
    recv_started(r, weft_msg_take(r->end->ep, msg, r->data, r->room, &r->op));
}

static void claim(struct end *e)
{
    struct recv like = {.end = e}, *r;
    bool big = choose(e, &like);
    struct weft_msg_filter filter = filter_of(e, &like);
    enum weft_status status;
    int source;
    uint32_t number;
    r = recv_new(e, &like, big);
    if (!r)
        return;
    if (like.space)
        status = weft_msg_find(e->ep, &filter, &r->info, &r->claimed);
    else
        status = weft_msg_claim(e->ep, filter.source, r->tag, r->mask, &r->info, &r->claimed);
    CHECK(status == WEFT_OK || status == WEFT_AGAIN, e, weft_status_name(status), r->source, 0);
    if (status == WEFT_AGAIN) {
        found_none(e, r);
        return;
    }
    number = named(e, r, &r->info, &source);
    took(e, r, source, number);
    r->busy = true;
    e->did[CLAIMED]++;
    if (below(e, 2))
        take(r);
}

static void cancel(struct end *e, struct recv *r)
{
    enum weft_status status;
    if (!r->busy || !r->posted)
        return;
    e->calls++;
    r->cancels = true;
    status = weft_msg_cancel(e->ep, &r->op);
    r->cancels = false;
    CHECK(status == WEFT_EBUSY ? r->busy : status == WEFT_OK && !r->busy, e,
          weft_status_name(status), r->source, 0);
}

static void take_or_cancel(struct end *e, struct recv *r)
{
    if (r->busy && r->claimed)
        take(r);
    else
        cancel(e, r);
}

/* ---- receiving many ---- */

static void on_many(struct weft_msg_many *m, const struct weft_op *message, void *at)
{
    struct many *many = m->op.user;
    struct recv *like = &many->like;
    struct end *e = like->end;
    const struct weft_msg_info info = {.tag = message->tag,
                                       .len = message->len,
                                       .sender = message->sender,
                                       .data = message->data,
                                       .has_data = message->has_data};
    size_t offset = (size_t)((unsigned char *)at - many->data), left = m->len - offset;
    size_t n = message->len < left ? (size_t)message->len : left;
    int source;
    uint32_t number;
    e->calls++;
    number = named(e, like, &info, &source);
    CHECK(offset <= m->len, e, "its place", source, number);
    if (comes_whole(source, e->me, number) && like->posted && message->status != WEFT_ECANCELED)
        CHECK(e->calls <= like->latest, e, "a receive has been passed over", source, number);
    took(e, like, source, number);
    if (message->status == WEFT_ECANCELED) {
        CHECK(may_break_off(e, source, number), e, "a message ends with ECANCELED", source, number);
        memset(many->data + offset, 0xaa, n);
        many->filled += n;
        e->did[BROKEN_OFF]++;
        return;
    }
    CHECK(message->status == (message->len > n ? WEFT_ETRUNC : WEFT_OK), e, "its status", source,
          number);
    CHECK(same(many->data + offset, n, id_of(source, e->me, number)), e, "its bytes", source,
          number);
    memset(many->data + offset, 0xaa, n); /* no other message has its place there */
    many->filled += n;
    e->did[RECEIVED]++;
    e->did[MANY]++;
    e->did[CUT] += message->status == WEFT_ETRUNC;
}

/* A receive of many is over, by [status]. */
static void many_end(struct many *many, enum weft_status status)
{
    struct end *e = many->like.end;
    size_t len = many->m.len, left = len - many->filled;
    CHECK(many->m.op.status == (int32_t)status, e, weft_status_name(status), many->like.source, 0);
    CHECK(status == WEFT_OK        ? left < many->m.least
          : status == WEFT_ECLOSED ? many->like.source >= 0 && e->closes == many->like.source
                                   : status == WEFT_ECANCELED,
          e, weft_status_name(status), many->like.source, left);
    if (status == WEFT_ECANCELED && left >= many->m.least)
        CHECK(e->calls <= many->like.latest, e, "a cancelled receive has been passed over",
              many->like.source, 0);
    for (size_t i = 0; i < len + GUARD; i++)
        CHECK(many->data[i] == (i < many->filled ? 0xaa : 0xdb), e, "bytes behind all",
              many->like.source, i);
    many->busy = false;
}

static void on_many_end(struct weft_op *op)
{
    struct many *many = op->user;
    many->like.end->calls++;
    many_end(many, (enum weft_status)op->status);
}

static bool many_start(struct end *e)
{
    struct many *many = &e->manys[below(e, MANYS)];
    struct weft_msg_filter filter;
    enum weft_status status;
    if (many->busy)
        return false;
    many->like = (struct recv){.end = e};
    choose(e, &many->like);
    if (below(e, 2)) /* else it may wait for one message */
        many->like.mask &= 0x1f;
    filter = filter_of(e, &many->like);
    many->m = (struct weft_msg_many){.op = {.user = many, .done = on_many_end, .status = 77},
                                     .received = on_many,
                                     .buf = many->data,
                                     .len = 1 + below(e, below(e, 4) ? 2000 : ROOM_OF_MANY)};
    many->m.least = 1 + below(e, below(e, 2) ? many->m.len : 1 + many->m.len / 20);
    many->like.latest = NEVER;
    many->filled = 0;
    memset(many->data, 0xdb, many->m.len + GUARD);
    many->busy = true;
    status = weft_msg_recv_many(e->ep, &filter, &many->m);
    many->like.posted = status == WEFT_PENDING;
    CHECK(status == WEFT_OK || status == WEFT_PENDING, e, weft_status_name(status),
          many->like.source, 0);
    if (status == WEFT_OK)
        many_end(many, status);
    return true;
}

static void many_cancel(struct end *e, struct many *many)
{
    enum weft_status status;
    if (!many->busy)
        return;
    e->calls++;
    status = weft_msg_cancel(e->ep, &many->m.op);
    CHECK(status == WEFT_EBUSY ? many->busy : status == WEFT_OK && !many->busy, e,
          weft_status_name(status), many->like.source, 0);
    if (status == WEFT_EBUSY) { /* it ends after those that are arriving */
        many->like.posted = false;
        many->like.latest = NEVER;
    }
}

/* ---- closing peers ---- */

/* Close a peer in the middle of its operations, and open it again. Claimed messages of the peer are
 * dropped first. */
static void reopen(struct end *e, int whom)
{
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    enum weft_status status = weft_ep_address(ends[whom].ep, addr, &len);
    CHECK(status == WEFT_OK, e, weft_status_name(status), whom, 0);
    for (int i = 0; i < RECVS; i++)
        if (e->recvs[i].busy && e->recvs[i].claimed &&
            source_of(e, e->recvs[i].info.sender) == whom)
            drop(&e->recvs[i]);
    for (int i = 0; i < SENDS; i++)
        if (e->sends[i].busy && e->sends[i].to == whom)
            atomic_store(&fates[whom][e->me][e->sends[i].number], ASKED);
    e->calls++;
    e->closes = whom;
    atomic_store(&closed[e->me][whom], true);
    status = weft_peer_close(e->peers[whom]);
    CHECK(status == WEFT_OK, e, weft_status_name(status), whom, 0);
    for (int i = 0; i < SENDS; i++)
        CHECK(!e->sends[i].busy || e->sends[i].to != whom, e, "a send outlives its peer", whom,
              e->sends[i].number);
    status = weft_peer_open(e->ep, addr, len, &e->peers[whom]);
    CHECK(status == WEFT_OK, e, weft_status_name(status), whom, 0);
    e->closes = -1;
    e->did[CLOSED]++;
    atomic_store(&anew[whom][e->me][e->sent[whom]], 1);
}

/* ---- the endpoints ---- */

/* Others may have no core while this one finds nothing. */
static void poll_one(struct end *e)
{
    int n = e->calls++ % 512 ? weft_ep_poll(e->ep) : weft_ep_wait(e->ep, 100000);
    CHECK(n >= 0, e, "poll", -1, (uint64_t)-n);
    for (int source = 0; source < ENDS; source++)
        advance(e, source);
    if (!n && threads)
        sched_yield();
}

/* The last numbers are known now; receives that wait could wait for ever. */
static void operations_end(struct end *e)
{
    for (int to = 0; to < ENDS; to++)
        atomic_store(&total[to][e->me], e->sent[to]);
    atomic_store(&over[e->me], 1);
    for (int i = 0; i < RECVS; i++)
        take_or_cancel(e, &e->recvs[i]);
    for (int i = 0; i < MANYS; i++)
        many_cancel(e, &e->manys[i]);
}

static void operate(struct end *e)
{
    uint64_t r = below(e, 100);
    bool done = true;
    if (r < 34)
        done = send_some(e);
    else if (r < 66)
        done = recv_one(e);
    else if (r < 72)
        probe(e);
    else if (r < 78)
        claim(e);
    else if (r < 82)
        done = many_start(e);
    else if (r < 83)
        many_cancel(e, &e->manys[below(e, MANYS)]);
    else if (r < 91)
        take_or_cancel(e, &e->recvs[below(e, RECVS)]);
    else if (r < 93)
        send_cancel(e);
    else if (r < 94 && below(e, 20) == 0)
        reopen(e, (int)below(e, ENDS));
    else if (!e->busy)
        poll_one(e);
    e->operations += done;
    if (e->operations == quota)
        operations_end(e);
}

static bool all_received(const struct end *e)
{
    for (int from = 0; from < ENDS; from++)
        if (!atomic_load(&over[from]) || e->first[from] != atomic_load(&total[e->me][from]))
            return false;
    return true;
}

static bool idle(const struct end *e)
{
    bool busy = false;
    for (int i = 0; i < SENDS; i++)
        busy |= e->sends[i].busy;
    for (int i = 0; i < RECVS; i++)
        busy |= e->recvs[i].busy;
    for (int i = 0; i < MANYS; i++)
        busy |= e->manys[i].busy;
    return !busy;
}

/* Whatever is left; then the receives that meet nothing any more. True: finished. */
static bool drain(struct end *e)
{
    struct recv any = {.source = -1, .space = (uint32_t)below(e, WEFT_MSG_SPACES), .end = e};
    struct recv *r;
    any.call = ++e->calls;
    r = all_received(e) ? NULL : recv_new(e, &any, false);
    if (r)
        recv_start(e, r);
    else /* it may wait in a space without messages */
        cancel(e, &e->recvs[below(e, RECVS)]);
    if (all_received(e))
        for (int i = 0; i < RECVS; i++)
            cancel(e, &e->recvs[i]);
    many_cancel(e, &e->manys[below(e, MANYS)]);
    poll_one(e);
    return all_received(e) && idle(e);
}

/* One operation of [e]; true once it has no more to do of its own. */
static bool step(struct end *e)
{
    if (e->operations >= quota)
        return drain(e);
    operate(e);
    if (e->busy)
        e->busy--;
    else if (below(e, 3) == 0)
        poll_one(e);
    else if (below(e, 300) == 0)
        e->busy = below(e, 300);
    return false;
}

static void *run(void *arg)
{
    struct end *e = arg;
    while (!step(e))
        ;
    atomic_fetch_add(&finished, 1);
    while (atomic_load(&finished) < ENDS) /* others may still need an answer */
        poll_one(e);
    return NULL;
}

static void run_alone(void)
{
    bool done[ENDS] = {false};
    uint64_t state = seed;
    for (int left = ENDS; left;) {
        int i = (int)(test_rand(&state) % ENDS);
        if (done[i]) {
            poll_one(&ends[i]);
        } else if (step(&ends[i])) {
            done[i] = true;
            left--;
        }
    }
}

static int run_threads(void)
{
    pthread_t thread[ENDS];
    for (int i = 0; i < ENDS; i++)
        if (pthread_create(&thread[i], NULL, run, &ends[i]))
            return 2;
    for (int i = 0; i < ENDS; i++)
        pthread_join(thread[i], NULL);
    return 0;
}

static int end_open(struct end *e, struct weft_ctx *ctx)
{
    e->me = (int)(e - ends);
    e->rand = test_mix(seed + (uint64_t)e->me);
    e->closes = -1;
    for (int i = 0; i < ENDS; i++)
        for (int k = 0; k < RING; k++)
            e->known[i][k] = (struct known){NEVER, NEVER, false};
    for (int i = 0; i < SENDS; i++) {
        e->sends[i] = (struct send){.end = e, .data = malloc(room_of(i))};
        if (!e->sends[i].data)
            return 1;
    }
    for (int i = 0; i < RECVS; i++) {
        e->recvs[i] = (struct recv){.end = e, .data = malloc(room_of(i) + GUARD)};
        if (!e->recvs[i].data)
            return 1;
    }
    for (int i = 0; i < MANYS; i++) {
        e->manys[i].data = malloc(ROOM_OF_MANY + GUARD);
        if (!e->manys[i].data)
            return 1;
    }
    return weft_ep_open(ctx, NULL, &e->ep);
}

static int peers_open(struct end *e)
{
    for (int i = 0; i < ENDS; i++) {
        unsigned char addr[WEFT_ADDR_MAX];
        size_t len = sizeof addr;
        if (weft_ep_address(ends[i].ep, addr, &len) ||
            weft_peer_open(e->ep, addr, len, &e->peers[i]))
            return 1;
    }
    return 0;
}

static int end_close(struct end *e)
{
    for (int i = 0; i < SENDS; i++)
        free(e->sends[i].data);
    for (int i = 0; i < RECVS; i++)
        free(e->recvs[i].data);
    for (int i = 0; i < MANYS; i++)
        free(e->manys[i].data);
    for (int i = 0; i < ENDS; i++)
        if (weft_peer_close(e->peers[i]))
            return 1;
    return weft_ep_close(e->ep) != WEFT_OK;
}

static int report(uint64_t begin)
{
    uint64_t sum[DIDS] = {0}, operations = 0, never = 0;
    for (int i = 0; i < ENDS; i++) {
        operations += ends[i].operations;
        for (int k = 0; k < DIDS; k++)
            sum[k] += ends[i].did[k];
    }
    for (int to = 0; to < ENDS; to++)
        for (int from = 0; from < ENDS; from++)
            for (uint32_t number = 0; number < ends[from].sent[to]; number++)
                never += !seen[to][from][number];
    printf("seed %llu: %llu operations, all as in the model; %.1f s\n", (unsigned long long)seed,
           (unsigned long long)operations, (double)(test_now_ns() - begin) / 1e9);
    for (int k = 0; k < DIDS; k++)
        printf("# %-16s %llu\n", did_names[k], (unsigned long long)sum[k]);
    printf("# %-16s %llu\n", "never come", (unsigned long long)never);
    if (sum[RECEIVED] + sum[DROPPED] + sum[BROKEN_OFF] + never == sum[SENT] &&
        never <= sum[TAKEN_BACK] && sum[DROPPED] && sum[SENT] > operations / 20 && sum[LONG] &&
        sum[CUT] && sum[MANY] && sum[FLAGGED] && sum[BROKEN_OFF] + never)
        return 0;
    fprintf(stderr, "too little was done, or not all was received\n");
    return 1;
}

int main(int argc, char **argv)
{
    uint64_t operations = argc > 2 ? strtoull(argv[2], NULL, 0) : 100000, begin = test_now_ns();
    static const unsigned char key[WEFT_KEY_SIZE] = "of the endpoints of one process";
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_ctx *ctx;
    int bad = 0;
    params.flags = WEFT_CTX_NETWORK;
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
    seed = seed ? seed : test_seed();
    quota = operations / ENDS;
    alarm((unsigned)(60 + operations / 2000));
    if (weft_ctx_open(&params, &ctx) || weft_ctx_set_key(ctx, key, sizeof key))
        return 2;
    for (int i = 0; i < ENDS; i++)
        bad |= end_open(&ends[i], ctx);
    for (int i = 0; i < ENDS; i++)
        bad |= bad ? 1 : peers_open(&ends[i]);
    if (bad)
        return 2;
    eager_max = weft_msg_inject_max(ends[0].ep);
    copied_max = weft_copied_max(ends[0].ep);
    threads = argc > 3;
    if (threads)
        bad = run_threads();
    else
        run_alone();
    bad |= report(begin);
    for (int i = 0; i < ENDS; i++)
        bad |= end_close(&ends[i]);
    return bad | (weft_ctx_close(ctx) != WEFT_OK);
}
