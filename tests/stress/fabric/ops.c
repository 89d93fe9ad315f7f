/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of fabric_model, and their completions. */
#include <sched.h>
#include <string.h>

#include "model.h"

#define OVER 0xee   /* bytes of a send that is over */
#define GUARDS 0xdb /* bytes behind a buffer */
#define STEP UINT64_C(0x9e3779b97f4a7c15)

static uint64_t idle_polls;

static struct op *op_free(struct op *ops, int count)
{
    int first = (int)below((uint64_t)count);
    for (int i = 0; i < count; i++) {
        struct op *o = &ops[(first + i) % count];
        if (o->kind == FREE)
            return o;
    }
    return NULL;
}

/* Returns whether a call has begun its operation; -FI_EAGAIN: it has not. */
static bool begun(struct op *o, enum kind kind, long rc)
{
    CHECK(rc == 0 || rc == -FI_EAGAIN, "what a call returns", rc, (int64_t)kind);
    o->kind = rc ? FREE : kind;
    return !rc;
}

/* ---- bytes ---- */

struct head {
    uint32_t from, number;
    uint64_t check;
};
_Static_assert(sizeof(struct head) == HEADER, "what names a message");

static void fill(unsigned char *buf, size_t len, int from, int to, uint32_t number)
{
    struct head h = {(uint32_t)from, number, hash_of(from, to, number)};
    memcpy(buf, &h, HEADER);
    for (size_t i = HEADER; i < len; i += 8) {
        uint64_t word = h.check += STEP;
        memcpy(buf + i, &word, len - i < 8 ? len - i : 8);
    }
}

/* Read which message is in [buf], of which [n] bytes came. */
static void read_message(const unsigned char *buf, size_t n, int *from, uint32_t *number)
{
    struct head h;
    memcpy(&h, buf, HEADER);
    CHECK(n >= HEADER, "bytes of a message", (int64_t)n, 0);
    CHECK(h.from < ENDS && h.check == hash_of((int)h.from, me.rank, h.number),
          "the bytes name no message for this process", h.from, h.number);
    for (size_t i = HEADER; i < n; i += 8) {
        uint64_t word = h.check += STEP;
        CHECK(!memcmp(buf + i, &word, n - i < 8 ? n - i : 8), "bytes of a message", h.from,
              h.number);
    }
    *from = (int)h.from;
    *number = h.number;
}

/* Cut [len] bytes into up to 3 pieces. Returns their number. */
static size_t cut(struct iovec iov[3], unsigned char *buf, size_t len)
{
    size_t n = 0, at = 0;
    for (; n < 2 && below(3) == 0; n++) {
        size_t piece = below(len - at + 1);
        iov[n] = (struct iovec){buf + at, piece};
        at += piece;
    }
    iov[n] = (struct iovec){buf + at, len - at};
    return n + 1;
}

/* ---- sends ---- */

static long inject(struct op *o, int to, uint32_t number)
{
    uint64_t tag = tag_of(me.rank, to, number), data = data_of(me.rank, to, number);
    bool some = has_data(me.rank, to, number);
    if (o->space == TAGGED)
        return some ? fi_tinjectdata(me.e.ep, o->buf, o->len, data, me.addr[to], tag)
                    : fi_tinject(me.e.ep, o->buf, o->len, me.addr[to], tag);
    return some ? fi_injectdata(me.e.ep, o->buf, o->len, data, me.addr[to])
                : fi_inject(me.e.ep, o->buf, o->len, me.addr[to]);
}

static long send_plain(struct op *o, int to, uint32_t number)
{
    uint64_t tag = tag_of(me.rank, to, number), data = data_of(me.rank, to, number);
    bool some = has_data(me.rank, to, number);
    if (o->space == TAGGED)
        return some ? fi_tsenddata(me.e.ep, o->buf, o->len, NULL, data, me.addr[to], tag, o)
                    : fi_tsend(me.e.ep, o->buf, o->len, NULL, me.addr[to], tag, o);
    return some ? fi_senddata(me.e.ep, o->buf, o->len, NULL, data, me.addr[to], o)
                : fi_send(me.e.ep, o->buf, o->len, NULL, me.addr[to], o);
}

/* In pieces, with one of the levels of completion. */
static long send_pieces(struct op *o, int to, uint32_t number)
{
    static const uint64_t levels[] = {0, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE,
                                      FI_TRANSMIT_COMPLETE, FI_INJECT_COMPLETE};
    uint64_t flags = levels[below(sizeof levels / sizeof *levels)] | FI_COMPLETION |
                     (has_data(me.rank, to, number) ? FI_REMOTE_CQ_DATA : 0);
    struct iovec iov[3];
    size_t n = cut(iov, o->buf, o->len);
    struct fi_msg_tagged t = {.msg_iov = iov,
                              .iov_count = n,
                              .addr = me.addr[to],
                              .tag = tag_of(me.rank, to, number),
                              .context = o,
                              .data = data_of(me.rank, to, number)};
    struct fi_msg m = {
        .msg_iov = iov, .iov_count = n, .addr = me.addr[to], .context = o, .data = t.data};
    return o->space == TAGGED ? fi_tsendmsg(me.e.ep, &t, flags) : fi_sendmsg(me.e.ep, &m, flags);
}

bool send_one(void)
{
    struct op *o = op_free(me.sends, SENDS);
    int to = (int)below(ENDS);
    uint32_t number = me.sent[to];
    bool injects;
    long rc;
    if (!o || number - atomic_load(&board->taken[to][me.rank]) >= WINDOW)
        return false;
    o->space = space_of(me.rank, to, number);
    o->len = len_of(me.rank, to, number);
    fill(o->buf, o->len, me.rank, to, number);
    injects = o->len <= me.e.info->tx_attr->inject_size && below(2);
    rc = injects    ? inject(o, to, number)
         : below(2) ? send_plain(o, to, number)
                    : send_pieces(o, to, number);
    if (!begun(o, SEND, rc))
        return false;
    me.sent[to]++;
    me.did[DID_SEND]++;
    if (injects) {
        memset(o->buf, OVER, o->len);
        o->kind = FREE;
        me.done[END_SENDS]++;
    }
    return true;
}

/* ---- receives ---- */

static uint64_t ignored(const struct op *o)
{
    return ~o->mask;
}

static fi_addr_t source_of(const struct op *o)
{
    return o->source < 0 ? FI_ADDR_UNSPEC : me.addr[o->source];
}

static void filter_draw(struct op *o, unsigned space)
{
    static const uint64_t masks[] = {0, 0, 7, KEYS - 1};
    o->space = space;
    o->source = below(3) ? -1 : (int)below(ENDS);
    o->mask = masks[below(sizeof masks / sizeof *masks)];
    o->key = below(KEYS) & o->mask;
    o->call = ++me.calls;
    o->cancels = o->met = false;
}

static void post(struct op *o)
{
    struct iovec iov[3];
    size_t n;
    fi_addr_t from = source_of(o);
    long rc;
    memset(o->buf, 0, HEADER);
    memset(o->buf + o->room, GUARDS, GUARD);
    n = cut(iov, o->buf, o->room);
    if (o->space == TAGGED)
        rc = n > 1 ? fi_trecvv(me.e.ep, iov, NULL, n, from, o->key, ignored(o), o)
                   : fi_trecv(me.e.ep, o->buf, o->room, NULL, from, o->key, ignored(o), o);
    else
        rc = n > 1 ? fi_recvv(me.e.ep, iov, NULL, n, from, o)
                   : fi_recv(me.e.ep, o->buf, o->room, NULL, from, o);
    CHECK(begun(o, RECEIVE, rc), "a receive waits", rc, 0);
}

bool recv_one(void)
{
    struct op *o = op_free(me.recvs, RECVS);
    if (!o)
        return false;
    filter_draw(o, below(2) ? TAGGED : UNTAGGED);
    o->room = below(8) ? BIG : HEADER + below(200);
    post(o);
    return true;
}

void recv_any(void)
{
    struct op *o = op_free(me.recvs, RECVS);
    if (!o)
        return;
    filter_draw(o, below(2) ? TAGGED : UNTAGGED);
    o->source = -1;
    o->key = o->mask = 0;
    o->room = BIG;
    post(o);
}

/* Entries of FI_CQ_FORMAT_CONTEXT do not describe the buffer. */
bool many_start(void)
{
    struct op *o = op_free(me.manys, MANYS);
    struct iovec iov;
    struct fi_msg m = {.msg_iov = &iov, .iov_count = 1, .context = o};
    if (!o || me.format == FI_CQ_FORMAT_CONTEXT)
        return false;
    filter_draw(o, UNTAGGED);
    o->room = 100 + below(below(4) ? 2000 : ROOM_OF_MANY - 100);
    memset(o->buf + o->room, GUARDS, GUARD);
    iov = (struct iovec){o->buf, o->room};
    m.addr = source_of(o);
    return begun(o, MANY, fi_recvmsg(me.e.ep, &m, FI_MULTI_RECV));
}

static bool trecvmsg(struct op *o, enum kind kind, uint64_t flags)
{
    struct iovec iov = {o->buf, o->room};
    struct fi_msg_tagged m = {.msg_iov = &iov,
                              .iov_count = flags & (FI_PEEK | FI_DISCARD) ? 0 : 1,
                              .addr = source_of(o),
                              .tag = o->key,
                              .ignore = ignored(o),
                              .context = o};
    return begun(o, kind, fi_trecvmsg(me.e.ep, &m, flags));
}

/* The entry has to name the message by its tag. */
bool peek_one(void)
{
    static const uint64_t more[] = {0, FI_CLAIM, FI_DISCARD};
    struct op *o = op_free(me.recvs, RECVS);
    if (!o || me.format != FI_CQ_FORMAT_TAGGED)
        return false;
    filter_draw(o, TAGGED);
    o->room = 0;
    o->flags = FI_PEEK | more[below(3)];
    return trecvmsg(o, PEEK, o->flags);
}

bool cancel_or_claim(struct op *o)
{
    long rc;
    if (o->kind == CLAIMED) {
        o->room = BIG;
        memset(o->buf + o->room, GUARDS, GUARD);
        if (below(4))
            (void)trecvmsg(o, CLAIM, FI_CLAIM);
        else
            (void)trecvmsg(o, DROP, FI_CLAIM | FI_DISCARD);
        if (o->kind == FREE)
            o->kind = CLAIMED; /* -FI_EAGAIN */
        return true;
    }
    if ((o->kind != RECEIVE && o->kind != MANY) || o->cancels)
        return false;
    rc = fi_cancel(&me.e.ep->fid, o);
    CHECK(rc == 0 || rc == -FI_ENOENT, "what fi_cancel returns", rc, 0);
    o->cancels = !rc;
    return true;
}

/* ---- accesses ---- */

bool access_one(void)
{
    struct op *o = op_free(me.accesses, ACCESSES);
    int to = (int)below(ENDS);
    enum kind kind = (enum kind)(WRITE + below(4));
    uint64_t *word, at = (uint64_t)me.rank * 8, sum = ENDS * 8;
    long rc;
    if (!o || (kind <= READ && me.word_busy[to]) || (kind == FETCH && me.sum_busy[to]))
        return false;
    word = (uint64_t *)(void *)o->buf;
    o->peer = to;
    o->value = word[0] = kind == WRITE ? me.value + 1 : below(100);
    word[1] = NEVER;
    switch (kind) {
    case WRITE: rc = fi_write(me.e.ep, word, 8, NULL, me.addr[to], at, END_MR_KEY, o); break;
    case READ: rc = fi_read(me.e.ep, word, 8, NULL, me.addr[to], at, END_MR_KEY, o); break;
    case ADD:
        rc = fi_atomic(me.e.ep, word, 1, NULL, me.addr[to], sum, END_MR_KEY, FI_UINT64, FI_SUM, o);
        break;
    default:
        rc = fi_fetch_atomic(me.e.ep, word, 1, NULL, word + 1, NULL, me.addr[to], sum, END_MR_KEY,
                             FI_UINT64, FI_SUM, o);
    }
    if (!begun(o, kind, rc))
        return false;
    me.value += kind == WRITE;
    me.added[to] += kind >= ADD ? o->value : 0;
    me.word_busy[to] |= kind <= READ;
    me.sum_busy[to] |= kind == FETCH;
    me.did[DID_ACCESS]++;
    return true;
}

static void access_done(struct op *o)
{
    const uint64_t *word = (const uint64_t *)(const void *)o->buf;
    int to = o->peer;
    if (o->kind == WRITE)
        me.written[to] = o->value;
    else if (o->kind == READ)
        CHECK(word[0] == me.written[to], "a word that was written", (int64_t)word[0], to);
    else if (o->kind == FETCH)
        CHECK(word[1] >= me.fetched[to] && word[1] != NEVER, "a sum", (int64_t)word[1], to);
    if (o->kind == FETCH)
        me.fetched[to] = word[1] + o->value;
    me.word_busy[to] &= o->kind > READ;
    me.sum_busy[to] &= o->kind != FETCH;
    me.done[o->kind == READ || o->kind == FETCH ? END_READS : END_WRITES]++;
    o->kind = FREE;
}

/* ---- completions ---- */

/* Of an entry: 0 bits that its format lacks are not looked at. */
struct entry {
    struct fi_cq_tagged_entry e;
    fi_addr_t source; /* FI_ADDR_UNSPEC: not asked for */
};

/* Check the entry [x] of a message of [n] bytes at [at], a part of [o->buf]. */
static void message_check(const struct op *o, const struct entry *x, const unsigned char *at,
                          size_t n, size_t left, int from, uint32_t number)
{
    size_t len = len_of(from, me.rank, number);
    uint64_t flags = FI_RECV | (o->space == TAGGED ? FI_TAGGED : FI_MSG) |
                     (has_data(from, me.rank, number) ? FI_REMOTE_CQ_DATA : 0);
    CHECK(n == (len < left ? len : left), "a length", (int64_t)n, (int64_t)len);
    if (x->source != FI_ADDR_UNSPEC)
        CHECK(x->source == (me.sources ? me.addr[from] : FI_ADDR_NOTAVAIL), "a source",
              (int64_t)x->source, from);
    if (me.format == FI_CQ_FORMAT_CONTEXT)
        return;
    CHECK(x->e.flags == flags, "flags", (int64_t)x->e.flags, (int64_t)flags);
    CHECK(x->e.data == data_of(from, me.rank, number), "data", from, number);
    CHECK(!at || x->e.buf == at, "a buffer", from, number);
    if (o->space == TAGGED && me.format == FI_CQ_FORMAT_TAGGED)
        CHECK(x->e.tag == tag_of(from, me.rank, number), "a tag", from, number);
}

/* A message of [n] bytes is at [at], for which [left] bytes were left. */
static void received(struct op *o, const struct entry *x, unsigned char *at, size_t n, size_t left)
{
    uint32_t number;
    int from;
    read_message(at, n, &from, &number);
    message_check(o, x, at, n, left, from, number);
    for (size_t i = 0; i < GUARD; i++)
        CHECK(o->buf[o->room + i] == GUARDS, "bytes behind a buffer", from, number);
    if (o->kind == CLAIM)
        CHECK(from == o->peer && number == o->number, "a claimed message", from, number);
    else
        named(o, o->call, from, number, true);
    me.did[DID_RECEIVE]++;
    me.did[DID_MANY] += o->kind == MANY;
}

/* Returns the length of a message that was received whole, if the format has it. */
static size_t length_of(const struct op *o, const struct entry *x)
{
    struct head h;
    if (me.format != FI_CQ_FORMAT_CONTEXT)
        return x->e.len;
    memcpy(&h, o->buf, HEADER);
    CHECK(h.from < ENDS, "the bytes name no sender", h.from, h.number);
    return len_of((int)h.from, me.rank, h.number);
}

static void many_event(struct op *o, const struct entry *x)
{
    unsigned char *at = x->e.buf;
    if (x->e.flags == FI_MULTI_RECV) {
        o->kind = FREE;
        return;
    }
    CHECK(at >= o->buf && at <= o->buf + o->room - x->e.len, "a place", at - o->buf, 0);
    received(o, x, at, x->e.len, (size_t)(o->buf + o->room - at));
    me.done[END_RECVS]++;
}

/* A peek has found a message, or a claimed message was dropped. */
static void found(struct op *o, const struct entry *x)
{
    int from = (int)(x->e.tag >> 8 & 0xff);
    uint32_t number = (uint32_t)(x->e.tag >> 16);
    bool takes = o->flags & (FI_CLAIM | FI_DISCARD);
    CHECK(from < ENDS, "a tag", (int64_t)x->e.tag, 0);
    message_check(o, x, NULL, x->e.len, SIZE_MAX, from, number);
    if (o->kind == PEEK)
        named(o, o->call, from, number, takes);
    else
        CHECK(from == o->peer && number == o->number, "a claimed message", from, number);
    me.did[DID_FIND] += o->kind == PEEK && !takes;
    me.did[DID_CLAIM] += o->kind == PEEK && o->flags & FI_CLAIM;
    me.did[DID_DROP] += o->kind == DROP || o->flags & FI_DISCARD;
    o->peer = from;
    o->number = number;
    o->kind = o->kind == PEEK && o->flags & FI_CLAIM ? CLAIMED : FREE;
}

static void event(const struct entry *x)
{
    struct op *o = x->e.op_context;
    CHECK(o >= me.ops && o < me.ops + OPS, "a context", 0, 0);
    switch (o->kind) {
    case SEND:
        if (me.format != FI_CQ_FORMAT_CONTEXT)
            CHECK(x->e.flags == (FI_SEND | (o->space == TAGGED ? FI_TAGGED : FI_MSG)), "flags",
                  (int64_t)x->e.flags, 0);
        memset(o->buf, OVER, o->len);
        me.done[END_SENDS]++;
        o->kind = FREE;
        break;
    case RECEIVE:
    case CLAIM:
        received(o, x, o->buf, length_of(o, x), o->room);
        me.done[END_RECVS]++;
        o->kind = FREE;
        break;
    case MANY: many_event(o, x); break;
    case PEEK:
    case DROP: found(o, x); break;
    case WRITE:
    case READ:
    case ADD:
    case FETCH: access_done(o); break;
    default: CHECK(false, "a completion of no operation", o - me.ops, (int64_t)o->kind);
    }
}

/* A message was longer than its buffer. */
static void cut_off(struct op *o, const struct fi_cq_err_entry *err)
{
    const struct entry x = {{err->op_context, err->flags, err->len, err->buf, err->data, err->tag},
                            FI_ADDR_UNSPEC};
    unsigned char *at = o->kind == MANY ? err->buf : o->buf;
    size_t left = (size_t)(o->buf + o->room - at);
    struct head h;
    CHECK(o->kind == RECEIVE || o->kind == MANY, "cut off", (int64_t)o->kind, 0);
    CHECK(at >= o->buf && at + HEADER <= o->buf + o->room && err->len == left, "a place",
          (int64_t)err->len, (int64_t)left);
    received(o, &x, at, left, left);
    memcpy(&h, at, HEADER);
    CHECK(err->olen == len_of((int)h.from, me.rank, h.number) - left, "the bytes that were cut off",
          (int64_t)err->olen, (int64_t)left);
    me.did[DID_CUT]++;
    me.errors++;
    if (o->kind == RECEIVE)
        o->kind = FREE;
}

static void error_event(void)
{
    struct fi_cq_err_entry err = {0};
    ssize_t n = fi_cq_readerr(me.e.cq, &err, 0);
    struct op *o = err.op_context;
    CHECK(n == 1 && o >= me.ops && o < me.ops + OPS, "an error", n, err.err);
    if (err.err == FI_ETRUNC) {
        cut_off(o, &err);
    } else if (err.err == FI_ENOMSG && o->kind == PEEK) {
        named_none(o, o->call);
        me.did[DID_NONE]++;
        o->kind = FREE;
    } else {
        CHECK(err.err == FI_ECANCELED && (o->kind == RECEIVE || o->kind == MANY), "an error",
              err.err, (int64_t)o->kind);
        CHECK(o->cancels && !o->met, "a receive ends without its message", o->cancels, o->met);
        me.did[DID_CANCEL]++;
        me.errors++;
        o->kind = FREE;
    }
}

/* Returns entry [i] of [entries], of the queue's format. */
static struct entry entry_at(const struct fi_cq_tagged_entry *entries, const fi_addr_t *sources,
                             size_t i)
{
    static const size_t sizes[] = {[FI_CQ_FORMAT_CONTEXT] = sizeof(struct fi_cq_entry),
                                   [FI_CQ_FORMAT_DATA] = sizeof(struct fi_cq_data_entry),
                                   [FI_CQ_FORMAT_TAGGED] = sizeof(struct fi_cq_tagged_entry)};
    struct entry x = {.source = sources ? sources[i] : FI_ADDR_UNSPEC};
    memcpy(&x.e, (const char *)entries + i * sizes[me.format], sizes[me.format]);
    return x;
}

void poll_one(bool wait)
{
    enum { MOST = 16 };
    struct fi_cq_tagged_entry entries[MOST];
    fi_addr_t sources[MOST];
    size_t count = 1 + below(MOST);
    bool from = below(2);
    ssize_t n;
    me.calls++;
    if (wait && me.waits)
        n = from ? fi_cq_sreadfrom(me.e.cq, entries, count, sources, NULL, 1)
                 : fi_cq_sread(me.e.cq, entries, count, NULL, 1);
    else
        n = from ? fi_cq_readfrom(me.e.cq, entries, count, sources)
                 : fi_cq_read(me.e.cq, entries, count);
    if (n == -FI_EAVAIL) {
        error_event();
        return;
    }
    CHECK(n == -FI_EAGAIN || (n > 0 && (size_t)n <= count), "a read of the queue", n, 0);
    for (ssize_t i = 0; i < n; i++) {
        struct entry x = entry_at(entries, from ? sources : NULL, (size_t)i);
        event(&x);
    }
    if (n < 0 && ++idle_polls % 8 == 0)
        sched_yield(); /* others may have no core */
}

/* ---- start and end ---- */

void ops_open(void)
{
    me.sends = me.ops;
    me.recvs = me.sends + SENDS;
    me.manys = me.recvs + RECVS;
    me.accesses = me.manys + MANYS;
    for (int i = 0; i < OPS; i++) {
        me.ops[i].buf = malloc(BIG + GUARD);
        CHECK(me.ops[i].buf, "no memory", 0, 0);
    }
}

void ops_close(void)
{
    for (int i = 0; i < OPS; i++)
        free(me.ops[i].buf);
}
