/* SPDX-License-Identifier: BSD-3-Clause */
/* Mixed traffic between processes that no launcher has started, every byte of it checked.
 *
 *     traffic --me I --size N [--count C] [--mix LETTERS] [--seed S] [--max BYTES]
 *             [--survive 1] [--stall SECONDS]
 *
 *   --me, --size  which of how many
 *   --count       of each kind to each other member; without it, until "stop" or the end of
 *                 standard input
 *   --mix         p: put, put with signal, long active message, each then got back
 *                 a: fetch-and-add    m: tagged messages    r: requests, some with replies
 *                 Without it all of them. A member without letters only serves.
 *   --max         longest transfer, 64 to 16777216, else 1 MiB
 *   --survive     others may be lost; what was meant for them ends with why, all else goes on
 *   --stall       seconds in which nothing happens until it gives up, else 60
 *
 * "now" on standard input is answered by "now N", how many operations are complete.
 *
 * Its first line of output is "address HEX HEX": its endpoint's and its region's key. The starter
 * writes those lines of all members, in order, to the standard input of each. Then it prints "peer
 * I TRANSPORT" for each, and "started"; if a member is lost "lost I STATUS NANOSECONDS"
 * (CLOCK_MONOTONIC), and then "ended I" when nothing is in flight to it; at the end "stat NAME
 * VALUE" for each counter, "did NAME COUNT" for what it sent, and "done". Exit code 0 means that
 * all held:
 *
 *   - what was put is what is there: read back, and once more at the end;
 *   - each add returned the sum of those before it; signals and adds sum up exactly;
 *   - messages came in order, each request and each reply once, all with the right bytes;
 *   - bytes for peers over TCP went over TCP, by its counters, and no others. */
#include <inttypes.h>
#include <weft/msg.h>

#include "member.h"

enum {
    MEMBERS_MAX = 32,
    SLOTS = 4,                     /* puts, adds, sends and receives in flight for each peer */
    ASKED_MAX = 64,                /* replies awaited of each peer */
    SIGNALS = MEMBERS_MAX * SLOTS, /* words: adds of each member's slots, then signals */
    SHARED = SIGNALS + MEMBERS_MAX,
    WORDS = SHARED + 1,
    DATA = 4096, /* offset of what is put; the words are before it */
};
_Static_assert(WORDS * 8 <= DATA, "room for the words");

#define FINISH (UINT64_C(1) << 63) /* tag of the last message but one: struct totals */
#define FAREWELL (UINT64_C(1) << 62)

enum handler { ON_REQUEST, ON_REPLY, ON_LONG, ON_LONG_REPLY };
enum kind { PUT, ADD, MESSAGE, REQUEST, KINDS };
enum salt { OF_PUT = 1, OF_LENGTH, OF_MESSAGE, OF_REQUEST, OF_REPLY, OF_ADD, OF_CHOICE };
enum step { IDLE, PUTTING, AWAITING_REPLY, GETTING };

/* What a member has sent to another one; sent to it at the end. */
struct totals {
    uint64_t done[KINDS];
    uint64_t signals, longs, replies, shared_sum, bytes;
    uint64_t sum[SLOTS];
    uint64_t round[SLOTS]; /* puts of each slot */
};

struct put_slot {
    struct weft_op op;
    enum step step;
    bool replied;
    uint64_t round;
    size_t len;
    unsigned char *out, *back;
};

struct add_slot {
    struct weft_op op;
    bool busy, shared;
    uint64_t amount, fetched, last;
};

struct send_slot {
    struct weft_op op;
    bool busy;
    unsigned char *buf;
};

struct recv_slot {
    struct weft_op op;
    bool busy;
    uint64_t number;
    unsigned char *buf;
};

/* A set of numbers. */
struct seen {
    unsigned char *bits;
    uint64_t room, count;
};

struct peer {
    unsigned id;
    struct weft_peer *weft;
    struct weft_remote *remote;
    bool tcp, down, lost, ended, finish_sent, finished, farewell_sent, bidden;
    struct totals sent, reported; /* to the peer; from it, as it reports */
    struct put_slot puts[SLOTS];
    struct add_slot adds[SLOTS];
    struct send_slot sends[SLOTS];
    struct recv_slot recvs[SLOTS];
    struct seen requests, replies, longs;
    uint64_t started[KINDS];
    uint64_t received; /* receives posted */
    uint64_t asked;    /* replies awaited */
    struct weft_op last_op;
    enum weft_status why; /* down: as was reported */
    int64_t when;         /* alike */
};

static struct {
    unsigned me, size;
    uint64_t count, seed, max;
    bool mix[KINDS], survive, stopping;
    int64_t stall_ns, moved;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_mr *mr;
    struct peer peers[MEMBERS_MAX];
    uint64_t own_shared;
} self = {.count = UINT64_MAX, .max = 1 << 20, .stall_ns = 60 * SECOND};

#define MEMBER self.me

/* ---- what is sent: follows from seed, both ends, kind and number ---- */

static uint64_t drawn(enum salt salt, unsigned from, unsigned to, uint64_t number)
{
    return mix(mix(self.seed + salt * 257 + from * 17 + to) + number);
}

static void check(const void *bytes, size_t len, uint64_t x, const char *what, uint64_t number)
{
    const size_t at = differs(bytes, len, x);
    if (at < len)
        FAIL("%s %" PRIu64 ": wrong bytes at %zu of %zu", what, number, at, len);
}

/* Three of four are short, as programs send. */
static size_t length_of(uint64_t r, size_t max)
{
    unsigned bits = 3;
    if (r & 3)
        return 8 + (r >> 8) % 249 % (max - 7);
    while ((size_t)2 << bits <= max)
        bits++;
    bits = 3 + (unsigned)(r >> 4) % (bits - 2); /* 3 to log2(max) */
    return ((size_t)1 << bits) / 2 + (r >> 16) % (((size_t)1 << bits) / 2) + 1;
}

static size_t data_offset(unsigned from, unsigned slot)
{
    return DATA + ((size_t)from * SLOTS + slot) * self.max;
}

/* True the first time that [number] is marked. */
static bool mark(struct seen *s, uint64_t number)
{
    const uint64_t at = number / 8;
    if (at >= s->room) {
        const uint64_t room = at * 2 + 1024;
        if (number >> 40 || !(s->bits = realloc(s->bits, room)))
            FAIL("number %" PRIu64 ": out of memory", number);
        memset(s->bits + s->room, 0, room - s->room);
        s->room = room;
    }
    if (s->bits[at] >> number % 8 & 1)
        return false;
    s->bits[at] |= (unsigned char)(1u << number % 8);
    s->count++;
    return true;
}

/* ---- active messages ---- */

static struct peer *peer_of(const struct weft_am *am, unsigned nargs, const char *what)
{
    if (am->nargs != nargs || am->args[0] >= self.size || am->args[0] == self.me)
        FAIL("%s: %u arguments, from %u", what, am->nargs, am->nargs ? am->args[0] : 0);
    return &self.peers[am->args[0]];
}

static void reply(const struct weft_am *am, struct peer *p, unsigned handler, unsigned arg,
                  const void *data, size_t len)
{
    const uint32_t args[2] = {self.me, arg};
    const enum weft_status s = weft_am_reply(am, handler, args, 2, data, len);
    if (s != WEFT_OK && !(self.survive && weft_peer_status(p->weft) != WEFT_OK))
        FAIL("replying to %u: %s", p->id, weft_status_name(s));
}

static void on_request(const struct weft_am *am)
{
    static unsigned char buf[65536];
    struct peer *p = peer_of(am, 2, "a request");
    const uint32_t number = am->args[1];
    const uint64_t x = drawn(OF_REQUEST, p->id, self.me, number);
    size_t len;
    if (!mark(&p->requests, number))
        FAIL("request %u of %u came twice", number, p->id);
    if (am->len != length_of(x, weft_am_max(self.ep)))
        FAIL("request %u of %u has %u bytes", number, p->id, am->len);
    check(am->data, am->len, x, "request", number);
    if (!am->can_reply)
        return;
    len = am->reply_max - 1;
    fill(buf, len, drawn(OF_REPLY, self.me, p->id, number));
    reply(am, p, ON_REPLY, number, buf, len);
}

static void on_reply(const struct weft_am *am)
{
    struct peer *p = peer_of(am, 2, "a reply");
    if (!mark(&p->replies, am->args[1]))
        FAIL("reply %u of %u came twice", am->args[1], p->id);
    check(am->data, am->len, drawn(OF_REPLY, p->id, self.me, am->args[1]), "reply", am->args[1]);
    p->asked--;
}

static void on_long(const struct weft_am *am)
{
    struct peer *p = peer_of(am, 3, "a long message");
    const uint64_t number = (uint64_t)am->args[1] * SLOTS + am->args[2];
    if (!mark(&p->longs, number))
        FAIL("long message %" PRIu64 " of %u came twice", number, p->id);
    check(am->data, am->long_len, drawn(OF_PUT, p->id, self.me, number), "long message", number);
    reply(am, p, ON_LONG_REPLY, am->args[2], NULL, 0);
}

static void on_long_reply(const struct weft_am *am)
{
    struct peer *p = peer_of(am, 2, "a long message's reply");
    struct put_slot *s = &p->puts[am->args[1] % SLOTS];
    if (s->replied || s->step == IDLE || s->step == GETTING)
        FAIL("a long message's reply of %u that was not asked for", p->id);
    s->replied = true;
}

/* The reply to request [number]: longest payload and 1, or 0 for no reply. */
static size_t reply_max_of(unsigned to, uint64_t number)
{
    const uint64_t r = drawn(OF_CHOICE, self.me, to, number);
    return r & 1 ? 1 + (r & 2 ? 0 : length_of(r >> 2, weft_am_max(self.ep))) : 0;
}

/* ---- the kinds of traffic; each returns whether it got on ---- */

/* Is this status of an operation to [p] the end of it? 1: it is done. 0: not yet. -1: [p] is lost.
 */
static int ended(struct peer *p, enum weft_status s, const char *what)
{
    if (s == WEFT_OK)
        return 1;
    if (s == WEFT_PENDING || s == WEFT_AGAIN)
        return 0;
    if (!self.survive || (s != WEFT_EPEER && s != WEFT_ECLOSED))
        FAIL("%s to %u: %s, the peer: %s", what, p->id, weft_status_name(s),
             weft_status_name(weft_peer_status(p->weft)));
    return -1;
}

static bool may_start(struct peer *p, enum kind kind)
{
    if (self.stopping || p->lost || !self.mix[kind] || p->started[kind] >= self.count)
        return false;
    p->started[kind]++;
    return true;
}

static enum weft_status put_start(struct peer *p, struct put_slot *s, unsigned slot)
{
    const uint64_t number = s->round * SLOTS + slot, offset = data_offset(self.me, slot);
    const uint32_t args[3] = {self.me, (uint32_t)s->round, slot};
    s->len = length_of(drawn(OF_LENGTH, self.me, p->id, number), self.max);
    s->replied = true;
    fill(s->out, s->len, drawn(OF_PUT, self.me, p->id, number));
    switch (number % 3) {
    case 0: return weft_put(p->remote, offset, s->out, s->len, &s->op);
    case 1:
        p->sent.signals++;
        return weft_put_signal(p->remote, offset, s->out, s->len, p->remote,
                               (SIGNALS + self.me) * 8, 1, WEFT_SIGNAL_ADD, &s->op);
    default:
        p->sent.longs++;
        s->replied = false;
        return weft_am_long(p->remote, offset, s->out, s->len, ON_LONG, args, 3, 1, &s->op);
    }
}

static void put_check(struct peer *p, struct put_slot *s, unsigned slot)
{
    const uint64_t number = s->round * SLOTS + slot;
    check(s->back, s->len, drawn(OF_PUT, self.me, p->id, number), "put", number);
    p->sent.bytes += s->len;
    p->sent.done[PUT]++;
    p->sent.round[slot] = ++s->round;
    s->step = IDLE;
}

static bool put_move(struct peer *p, unsigned slot)
{
    struct put_slot *s = &p->puts[slot];
    enum weft_status got;
    if (s->step == IDLE) {
        if (!may_start(p, PUT))
            return false;
        s->step = PUTTING;
        got = put_start(p, s, slot);
    } else {
        got = (enum weft_status)s->op.status;
        if (s->step == AWAITING_REPLY)
            got = s->replied ? WEFT_OK : p->lost ? WEFT_EPEER : WEFT_PENDING;
    }
    if (got == WEFT_OK && s->step == PUTTING && !s->replied)
        got = p->lost ? WEFT_EPEER : WEFT_PENDING, s->step = AWAITING_REPLY;
    if (got == WEFT_OK && s->step != GETTING) {
        s->step = GETTING;
        memset(s->back, 0, s->len);
        got = weft_get(p->remote, data_offset(self.me, slot), s->back, s->len, &s->op);
    }
    switch (ended(p, got, "a put or get")) {
    case 1: put_check(p, s, slot); return true;
    case 0: return false;
    default: s->step = IDLE; return true;
    }
}

static enum weft_status add_start(struct peer *p, struct add_slot *s, unsigned slot)
{
    const unsigned word = s->shared ? (unsigned)SHARED : self.me * SLOTS + slot;
    return weft_atomic(p->remote, word * UINT64_C(8), WEFT_ATOMIC_ADD, WEFT_U64, s->amount, 0,
                       &s->fetched, &s->op);
}

static void add_check(struct peer *p, struct add_slot *s, unsigned slot)
{
    if (s->shared ? s->fetched < s->last : s->fetched != p->sent.sum[slot])
        FAIL("an add at %u found %" PRIu64 " instead of %" PRIu64, p->id, s->fetched,
             s->shared ? s->last : p->sent.sum[slot]);
    if (s->shared) {
        s->last = s->fetched + s->amount;
        p->sent.shared_sum += s->amount;
    } else {
        p->sent.sum[slot] += s->amount;
    }
    p->sent.done[ADD]++;
    s->busy = false;
}

static bool add_move(struct peer *p, unsigned slot)
{
    struct add_slot *s = &p->adds[slot];
    enum weft_status got = (enum weft_status)s->op.status;
    if (!s->busy) {
        if (!may_start(p, ADD))
            return false;
        s->busy = true;
        s->shared = slot == SLOTS - 1;
        s->amount = 1 + (drawn(OF_ADD, self.me, p->id, p->started[ADD]) & 0xffff);
        got = add_start(p, s, slot);
    }
    switch (ended(p, got, "an add")) {
    case 1: add_check(p, s, slot); return true;
    case 0: return false;
    default: s->busy = false; return true;
    }
}

static bool send_move(struct peer *p, unsigned slot)
{
    struct send_slot *s = &p->sends[slot];
    enum weft_status got = (enum weft_status)s->op.status;
    if (!s->busy) {
        uint64_t number = p->started[MESSAGE], x = drawn(OF_MESSAGE, self.me, p->id, number);
        const size_t len = length_of(x, self.max);
        if (!may_start(p, MESSAGE))
            return false;
        s->busy = true;
        fill(s->buf, len, x);
        p->sent.bytes += len;
        got = weft_msg_send(p->weft, number, s->buf, len, &s->op);
    }
    const int end = ended(p, got, "a message");
    if (!end)
        return false;
    s->busy = false;
    p->sent.done[MESSAGE] += end > 0;
    return true;
}

static void recv_check(struct peer *p, struct recv_slot *s)
{
    const uint64_t tag = s->op.tag;
    const uint64_t x = drawn(OF_MESSAGE, p->id, self.me, s->number);
    if (weft_sender_peer(s->op.sender) != p->weft)
        FAIL("message %" PRIu64 " of %u has another source", s->number, p->id);
    if (tag == FINISH && s->op.len == sizeof p->reported && !p->finished) {
        memcpy(&p->reported, s->buf, sizeof p->reported);
        p->finished = true;
        if (p->reported.done[MESSAGE] != s->number)
            FAIL("%u sent %" PRIu64 " messages; %" PRIu64 " came", p->id, p->reported.done[MESSAGE],
                 s->number);
        return;
    }
    if (tag == FAREWELL && p->finished && !p->bidden) {
        p->bidden = true;
        return;
    }
    if (tag != s->number || p->finished || s->op.len != length_of(x, self.max))
        FAIL("message %" PRIu64 " of %u has tag %" PRIu64 " and %" PRIu64 " bytes", s->number,
             p->id, tag, s->op.len);
    check(s->buf, s->op.len, x, "message", s->number);
}

static void recv_start(struct peer *p, struct recv_slot *s)
{
    s->busy = true;
    s->number = p->received++;
    s->op.status = (int32_t)weft_msg_recv(self.ep, p->weft, 0, 0, s->buf, self.max, &s->op);
}

static void recv_end(struct peer *p, struct recv_slot *s)
{
    s->busy = false;
    if (s->op.status == WEFT_OK)
        recv_check(p, s);
    else if (s->op.status != WEFT_EPEER && s->op.status != WEFT_ECLOSED)
        FAIL("a receive of %u: %s", p->id, weft_status_name((enum weft_status)s->op.status));
}

/* In the order of the messages: the last two mean something only in that. */
static struct recv_slot *recv_first(struct peer *p)
{
    struct recv_slot *first = NULL;
    for (unsigned i = 0; i < SLOTS; i++) {
        struct recv_slot *s = &p->recvs[i];
        if (s->busy && s->op.status != WEFT_PENDING && (!first || s->number < first->number))
            first = s;
    }
    return first;
}

static bool recvs_move(struct peer *p)
{
    struct recv_slot *s;
    bool moved = false;
    while ((s = recv_first(p))) {
        recv_end(p, s);
        moved = true;
    }
    for (unsigned i = 0; i < SLOTS; i++)
        if (!p->recvs[i].busy && !p->down && !p->bidden)
            recv_start(p, &p->recvs[i]);
    return moved;
}

static bool request_move(struct peer *p)
{
    static unsigned char buf[65536];
    const uint64_t number = p->started[REQUEST], x = drawn(OF_REQUEST, self.me, p->id, number);
    const size_t len = length_of(x, weft_am_max(self.ep)), reply_max = reply_max_of(p->id, number);
    const uint32_t args[2] = {self.me, (uint32_t)number};
    if (p->asked >= ASKED_MAX || !may_start(p, REQUEST))
        return false;
    fill(buf, len, x);
    switch (
        ended(p, weft_am_request(p->weft, ON_REQUEST, args, 2, buf, len, reply_max), "a request")) {
    case 1:
        p->asked += reply_max > 0;
        p->sent.replies += reply_max > 0;
        p->sent.bytes += len;
        p->sent.done[REQUEST]++;
        return true;
    default: p->started[REQUEST]--; return false;
    }
}

/* ---- the end ---- */

/* Nothing but receives is in flight to [p]. */
static bool is_quiet(const struct peer *p)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (p->puts[i].step != IDLE || p->adds[i].busy || p->sends[i].busy)
            return false;
    return !p->asked;
}

static bool is_satisfied(const struct peer *p)
{
    for (unsigned k = 0; k < KINDS; k++)
        if (self.mix[k] && p->started[k] < self.count && !self.stopping)
            return false;
    return true;
}

static void send_last(struct peer *p, uint64_t tag, const void *buf, size_t len)
{
    const enum weft_status s = weft_msg_send(p->weft, tag, buf, len, &p->last_op);
    if (s != WEFT_PENDING)
        (void)ended(p, s, "the last message");
}

/* All that [p] has reported as sent is here. */
static bool is_complete(struct peer *p)
{
    const struct totals *t = &p->reported;
    if (p->requests.count > t->done[REQUEST] || p->longs.count > t->longs)
        FAIL("of %u came more requests or long messages than it sent", p->id);
    return p->requests.count == t->done[REQUEST] && p->longs.count == t->longs;
}

static bool end_move(struct peer *p)
{
    if (p->last_op.status == WEFT_PENDING || p->lost)
        return false;
    if (!p->finish_sent && is_satisfied(p) && is_quiet(p)) {
        p->finish_sent = true;
        send_last(p, FINISH, &p->sent, sizeof p->sent);
        return true;
    }
    if (p->finish_sent && !p->farewell_sent && p->finished && is_complete(p)) {
        p->farewell_sent = true;
        send_last(p, FAREWELL, "", 0);
        return true;
    }
    return false;
}

static bool peer_is_over(const struct peer *p)
{
    return p->lost ? p->ended : p->bidden && p->farewell_sent && p->last_op.status != WEFT_PENDING;
}

/* After the receives that were complete by then: one that has bidden farewell may go. */
static void down_move(struct peer *p)
{
    if (p->lost || p->bidden)
        return;
    printf("lost %u %s %" PRId64 "\n", p->id, weft_status_name(p->why), p->when);
    if (!self.survive)
        FAIL("%u is lost: %s", p->id, weft_status_name(p->why));
    p->lost = true;
}

static void lost_move(struct peer *p)
{
    bool busy = p->last_op.status == WEFT_PENDING;
    p->asked = 0;
    for (unsigned i = 0; i < SLOTS; i++)
        busy |= p->recvs[i].busy;
    if (p->ended || busy || !is_quiet(p))
        return;
    p->ended = true;
    printf("ended %u\n", p->id);
}

static void words_check(void)
{
    const uint64_t *words = weft_mr_base(self.mr);
    uint64_t shared = 0;
    bool whole = true;
    for (unsigned i = 0; i < self.size; i++) {
        const struct peer *p = &self.peers[i];
        if (i == self.me)
            continue;
        if (p->lost) {
            whole = false;
            continue;
        }
        for (unsigned k = 0; k < SLOTS; k++)
            if (words[i * SLOTS + k] != p->reported.sum[k])
                FAIL("the adds of %u sum up to %" PRIu64 ", not %" PRIu64, i, words[i * SLOTS + k],
                     p->reported.sum[k]);
        if (words[SIGNALS + i] != p->reported.signals)
            FAIL("%" PRIu64 " signals of %u, not %" PRIu64, words[SIGNALS + i], i,
                 p->reported.signals);
        shared += p->reported.shared_sum;
    }
    if (whole && words[SHARED] != shared)
        FAIL("all adds sum up to %" PRIu64 ", not %" PRIu64, words[SHARED], shared);
}

static void memory_check(void)
{
    const unsigned char *base = weft_mr_base(self.mr);
    for (unsigned i = 0; i < self.size; i++) {
        if (i == self.me || self.peers[i].lost)
            continue;
        for (unsigned slot = 0; slot < SLOTS; slot++) {
            const uint64_t rounds = self.peers[i].reported.round[slot],
                           number = (rounds - 1) * SLOTS + slot;
            if (rounds)
                check(base + data_offset(i, slot),
                      length_of(drawn(OF_LENGTH, i, self.me, number), self.max),
                      drawn(OF_PUT, i, self.me, number), "what is left of put", number);
        }
    }
}

/* ---- counters ---- */

struct stats {
    uint64_t sent, received, moved;
};

static void stat_row(void *arg, const char *name, uint64_t value, const char *doc)
{
    struct stats *s = arg;
    (void)doc;
    if (!strcmp(name, "TCP_BYTES_SENT"))
        s->sent = value;
    if (!strcmp(name, "TCP_BYTES_RECEIVED"))
        s->received = value;
    if (!strcmp(name, "PUT_NIC") || !strcmp(name, "GET_NIC"))
        s->moved += value;
    printf("stat %s %" PRIu64 "\n", name, value);
}

static void report(void)
{
    struct stats s = {0, 0, 0};
    uint64_t out = 0, in = 0;
    bool tcp = false;
    struct totals all = {.bytes = 0};
    weft_stat_rows(self.ctx, stat_row, &s);
    for (unsigned i = 0; i < self.size; i++) {
        const struct peer *p = &self.peers[i];
        tcp |= p->tcp;
        out += p->tcp && !p->lost ? p->sent.bytes : 0;
        in += p->tcp && !p->lost ? p->reported.bytes : 0;
        for (unsigned k = 0; k < KINDS; k++)
            all.done[k] += p->sent.done[k];
        all.replies += p->sent.replies;
        all.bytes += p->sent.bytes;
    }
    /* What NICs moved by themselves is in no connection's bytes. */
    if ((!s.moved && (s.sent < out || s.received < in)) || (!tcp && s.sent + s.received))
        FAIL("over TCP %" PRIu64 " bytes should go and %" PRIu64 " come, but %" PRIu64
             " went and %" PRIu64 " came",
             out, in, s.sent, s.received);
    printf("did puts %" PRIu64 "\ndid adds %" PRIu64 "\ndid messages %" PRIu64
           "\ndid requests %" PRIu64 "\ndid replies %" PRIu64 "\ndid bytes %" PRIu64 "\n",
           all.done[PUT], all.done[ADD], all.done[MESSAGE], all.done[REQUEST], all.replies,
           all.bytes);
}

/* ---- starting ---- */

static void on_down(struct weft_ep *ep, struct weft_peer *weft, enum weft_status why, void *arg)
{
    struct peer *p = weft_peer_arg(weft);
    (void)ep, (void)arg;
    p->down = true;
    p->why = why;
    p->when = now();
}

static void open_self(void)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    params.peer_down = on_down;
    MUST(weft_ctx_open(NULL, &self.ctx), "opening a context");
    MUST(weft_ep_open(self.ctx, &params, &self.ep), "opening an endpoint");
    MUST(weft_mem_alloc(self.ctx, data_offset(self.size, 0), WEFT_REMOTE_READ | WEFT_REMOTE_WRITE,
                        &self.mr),
         "allocating memory");
    MUST(weft_am_register(self.ep, ON_REQUEST, on_request, NULL), "a handler");
    MUST(weft_am_register(self.ep, ON_REPLY, on_reply, NULL), "a handler");
    MUST(weft_am_register(self.ep, ON_LONG, on_long, NULL), "a handler");
    MUST(weft_am_register(self.ep, ON_LONG_REPLY, on_long_reply, NULL), "a handler");
    MUST(print_address(self.ep, self.mr), "the address");
}

static unsigned char *buffer(void)
{
    unsigned char *p = calloc(1, self.max);
    if (!p)
        FAIL("out of memory");
    return p;
}

static void slots_open(struct peer *p)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        p->puts[i].out = buffer();
        p->puts[i].back = buffer();
        p->sends[i].buf = buffer();
        p->recvs[i].buf = buffer();
    }
}

static void peer_open(struct peer *p, const char *line)
{
    struct weft_path path;
    MUST(line_open(line, self.ep, &p->weft, &p->remote), "another member");
    weft_peer_set_arg(p->weft, p);
    MUST(weft_path_of(p->weft, WEFT_OP_MSG, NULL, 8, &path), "a path");
    p->tcp = !strcmp(path.transport, "tcp") || !strcmp(path.transport, "rdma");
    printf("peer %u %s\n", p->id, path.transport);
    slots_open(p);
}

static void open_others(void)
{
    static char lines[MEMBERS_MAX][LINE_LONGEST];
    for (unsigned i = 0; i < self.size; i++)
        if (!line_read(lines[i]))
            FAIL("no address of member %u", i);
    for (unsigned i = 0; i < self.size; i++) {
        self.peers[i].id = i;
        if (i != self.me)
            peer_open(&self.peers[i], lines[i]);
    }
    puts("started");
}

/* ---- going ---- */

static bool peer_move(struct peer *p)
{
    bool moved = recvs_move(p);
    if (p->down)
        down_move(p);
    moved |= request_move(p);
    for (unsigned i = 0; i < SLOTS; i++) {
        moved |= put_move(p, i);
        moved |= add_move(p, i);
        moved |= send_move(p, i);
    }
    if (p->lost)
        lost_move(p);
    return moved | end_move(p);
}

static uint64_t done_so_far(void)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < self.size; i++)
        for (unsigned k = 0; k < KINDS; k++)
            sum += self.peers[i].sent.done[k];
    return sum;
}

static void commands(void)
{
    char line[LINE_LONGEST];
    if (self.stopping || !line_is_there())
        return;
    if (!line_read(line) || !strcmp(line, "stop"))
        self.stopping = true;
    else if (!strcmp(line, "now"))
        printf("now %" PRIu64 "\n", done_so_far());
    else
        FAIL("no such command: '%s'", line);
}

static void stalled(void)
{
    for (unsigned i = 0; i < self.size; i++) {
        const struct peer *p = &self.peers[i];
        if (i == self.me || peer_is_over(p))
            continue;
        fprintf(stderr,
                "traffic %u: with %u: status %s, finish %d of %d, farewell %d of %d, asked %" PRIu64
                ", started %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
                self.me, i, weft_status_name(weft_peer_status(p->weft)), p->finish_sent,
                p->finished, p->farewell_sent, p->bidden, p->asked, p->started[PUT],
                p->started[ADD], p->started[MESSAGE], p->started[REQUEST]);
        for (unsigned k = 0; k < SLOTS; k++)
            fprintf(stderr,
                    "    slot %u: put step %d op %d, add %d op %d, send %d op %d, recv %d op %d\n",
                    k, p->puts[k].step, p->puts[k].op.status, p->adds[k].busy, p->adds[k].op.status,
                    p->sends[k].busy, p->sends[k].op.status, p->recvs[k].busy,
                    p->recvs[k].op.status);
    }
    FAIL("nothing has happened for %" PRId64 " s", self.stall_ns / SECOND);
}

static bool turn(void)
{
    bool moved = false, over = true;
    for (unsigned i = 0; i < self.size; i++)
        if (i != self.me) {
            moved |= peer_move(&self.peers[i]);
            over &= peer_is_over(&self.peers[i]);
        }
    if (over)
        return false;
    const int events = moved ? weft_ep_poll(self.ep) : weft_ep_wait(self.ep, SECOND / 1000);
    if (events < 0)
        FAIL("polling: %s", weft_status_name((enum weft_status)events));
    if (moved || events)
        self.moved = now();
    else if (now() - self.moved > self.stall_ns)
        stalled();
    return true;
}

static void close_all(void)
{
    for (unsigned i = 0; i < self.size; i++) {
        struct peer *p = &self.peers[i];
        enum weft_status s;
        if (i == self.me)
            continue;
        for (unsigned k = 0; k < SLOTS; k++)
            if (p->recvs[k].busy)
                (void)!weft_msg_cancel(self.ep, &p->recvs[k].op);
        MUST(weft_remote_close(p->remote), "closing a remote region");
        for (int64_t end = now() + 10 * SECOND; (s = weft_peer_close(p->weft)) == WEFT_EBUSY;)
            if (weft_ep_wait(self.ep, SECOND / 100) < 0 || now() > end)
                FAIL("a peer stays busy");
        MUST(s, "closing a peer");
    }
    MUST(weft_mr_close(self.mr), "closing memory");
    MUST(weft_ep_close(self.ep), "closing the endpoint");
    MUST(weft_ctx_close(self.ctx), "closing the context");
}

static void option(const char *name, const char *value)
{
    const char *letters = "pamr";
    const uint64_t v = strtoull(value, NULL, 10);
    if (!strcmp(name, "--me"))
        self.me = (unsigned)v;
    else if (!strcmp(name, "--size"))
        self.size = (unsigned)v;
    else if (!strcmp(name, "--count"))
        self.count = v;
    else if (!strcmp(name, "--seed"))
        self.seed = v;
    else if (!strcmp(name, "--max"))
        self.max = v;
    else if (!strcmp(name, "--survive"))
        self.survive = v;
    else if (!strcmp(name, "--stall"))
        self.stall_ns = (int64_t)v * SECOND;
    else if (!strcmp(name, "--mix"))
        for (unsigned k = 0; k < KINDS; k++)
            self.mix[k] = strchr(value, letters[k]);
    else
        FAIL("no such option: %s", name);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    option("--mix", "pamr");
    for (int i = 1; i + 1 < argc; i += 2)
        option(argv[i], argv[i + 1]);
    if (!(argc & 1) || self.size < 2 || self.size > MEMBERS_MAX || self.me >= self.size ||
        self.max < sizeof(struct totals) || self.max > 1 << 24)
        FAIL("usage: traffic --me I --size N, then options; the first comment of traffic.c");
    open_self();
    open_others();
    self.moved = now();
    while (turn())
        commands();
    words_check();
    memory_check();
    report();
    close_all();
    puts("done");
    return 0;
}
