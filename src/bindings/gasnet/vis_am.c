/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of small pieces:
 *
 *   put       Medium: for each piece a struct gasnetw_piece, then its bytes   answered by done
 *   get       Medium: a struct gasnetw_piece for each piece                   answered by data
 *   done      Short
 *   data      Medium: the pieces' bytes, one after the other
 *
 * The arguments of each message are the index and generation of the struct sent that the requester
 * keeps. */
#include "vis.h"

#include <stdlib.h>

enum { VIS_PUT = 64, VIS_GET, VIS_DONE, VIS_DATA };

/* The longest message in bytes. Longer messages would reserve more room for each answer than
 * packing saves. */
enum { LONGEST = 8192 };

static size_t longest(void)
{
    return gasnet_AMMaxMedium() < LONGEST ? gasnet_AMMaxMedium() : LONGEST;
}

/* ---- messages under way ---- */

/* A message that waits for its answer. */
struct sent {
    struct gasnetw_op *op; /* null: not in use */
    gasnet_node_t node;
    uint32_t generation;
    size_t len, count;            /* of the answer's data */
    struct gasnetw_piece *pieces; /* [count] where they go; malloc'd */
    uint32_t next_unused;
};

/* Guards the table of messages under way. Handlers take this lock, too. It is never held over a
 * call. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sent *table;
static uint32_t table_len, unused = UINT32_MAX;

/* Lock held. */
static void table_grow(void)
{
    uint32_t len = table_len ? table_len * 2 : 64;
    struct sent *more = realloc(table, len * sizeof *more);
    if (!more)
        gasnetw_fatal("no memory to note %u messages of small pieces", len);
    table = more;
    for (uint32_t i = len; i-- > table_len;) {
        table[i] = (struct sent){.next_unused = unused};
        unused = i;
    }
    table_len = len;
}

/* Record a message that waits for its answer, and count it in its op. Sets [args] to the record's
 * index and generation. */
static void sent_add(const struct sent *what, gasnet_handlerarg_t args[2])
{
    gasnetw_op_add(what->op);
    pthread_mutex_lock(&lock);
    if (unused == UINT32_MAX)
        table_grow();
    uint32_t i = unused, generation = table[i].generation + 1;
    unused = table[i].next_unused;
    table[i] = *what;
    table[i].generation = generation;
    pthread_mutex_unlock(&lock);
    args[0] = (gasnet_handlerarg_t)i;
    args[1] = (gasnet_handlerarg_t)generation;
}

/* Remove and return the record of the message that an answer names. Ends the job if the message was
 * not sent to the node that answers. */
static struct sent sent_take(gasnet_token_t token, gasnet_handlerarg_t number,
                             gasnet_handlerarg_t generation)
{
    gasnet_node_t from = gasnetw_job.nodes;
    uint32_t i = (uint32_t)number;
    struct sent s = {0};
    gasnet_AMGetMsgSource(token, &from);
    pthread_mutex_lock(&lock);
    if (i < table_len && table[i].generation == (uint32_t)generation && table[i].node == from) {
        s = table[i];
        table[i].op = NULL;
        table[i].next_unused = s.op ? unused : table[i].next_unused;
        unused = s.op ? i : unused;
    }
    pthread_mutex_unlock(&lock);
    if (!s.op)
        gasnetw_fatal("node %u answered a put or get of small pieces that was not sent to it",
                      from);
    return s;
}

/* ---- handlers ---- */

/* Read the description of a piece from a message. Ends the job if the description is incomplete, or
 * the piece is not in this segment. */
static struct gasnetw_piece piece_at(gasnet_token_t token, const char *buf, size_t nbytes,
                                     size_t at)
{
    struct gasnetw_piece p = {0, 0};
    gasnet_node_t from = gasnetw_job.nodes;
    gasnet_AMGetMsgSource(token, &from);
    if (nbytes - at < sizeof p)
        gasnetw_fatal("node %u sent a damaged message of small pieces", from);
    memcpy(&p, buf + at, sizeof p);
    if (!gasnetw_segment_has(gasnetw_job.mynode, p.addr, p.len))
        gasnetw_fatal("node %u: a piece of %llu bytes at 0x%llx is not in the segment of node %u",
                      from, (unsigned long long)p.len, (unsigned long long)p.addr,
                      gasnetw_job.mynode);
    return p;
}

static void on_put(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t number,
                   gasnet_handlerarg_t generation)
{
    const char *in = buf;
    for (size_t at = 0; at < nbytes;) {
        struct gasnetw_piece p = piece_at(token, in, nbytes, at);
        at += sizeof p;
        if (p.len > nbytes - at)
            gasnetw_fatal("a message of small pieces ends within one");
        memcpy((void *)(uintptr_t)p.addr, in + at, p.len);
        at += p.len;
    }
    gasnetw_AMReplyShort(token, VIS_DONE, 2, (gasnet_handlerarg_t[]){number, generation});
}

static void on_done(gasnet_token_t token, gasnet_handlerarg_t number,
                    gasnet_handlerarg_t generation)
{
    gasnetw_op_done(sent_take(token, number, generation).op);
}

static void on_get(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t number,
                   gasnet_handlerarg_t generation)
{
    char out[LONGEST];
    size_t len = 0, most = longest();
    for (size_t at = 0; at < nbytes; at += sizeof(struct gasnetw_piece)) {
        struct gasnetw_piece p = piece_at(token, buf, nbytes, at);
        if (p.len > most - len)
            gasnetw_fatal("a request for small pieces wants more than a message holds");
        memcpy(out + len, (const void *)(uintptr_t)p.addr, p.len);
        len += p.len;
    }
    gasnetw_AMReplyMedium(token, VIS_DATA, out, len, 2,
                          (gasnet_handlerarg_t[]){number, generation});
}

static void on_data(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t number,
                    gasnet_handlerarg_t generation)
{
    struct sent s = sent_take(token, number, generation);
    const char *in = buf;
    if (nbytes != s.len)
        gasnetw_fatal("node %u answered a get of small pieces with %zu bytes instead of %zu",
                      s.node, nbytes, s.len);
    for (size_t i = 0; i < s.count; in += s.pieces[i++].len)
        memcpy((void *)(uintptr_t)s.pieces[i].addr, in, s.pieces[i].len);
    free(s.pieces);
    gasnetw_op_done(s.op);
}

void gasnetw_vis_open(void)
{
    gasnetw_binding.handlers[VIS_PUT] = (gasnetw_fn_t)on_put;
    gasnetw_binding.handlers[VIS_GET] = (gasnetw_fn_t)on_get;
    gasnetw_binding.handlers[VIS_DONE] = (gasnetw_fn_t)on_done;
    gasnetw_binding.handlers[VIS_DATA] = (gasnetw_fn_t)on_data;
}

/* ---- filling a message ---- */

/* Send what has been packed. */
static void flush(struct gasnetw_vis *t)
{
    gasnet_handlerarg_t args[2];
    if (!t->used)
        return;
    struct sent s = {.op = t->op, .node = t->node};
    if (!t->put) {
        s.len = t->wanted;
        s.count = t->count;
        s.pieces = t->pieces;
    }
    sent_add(&s, args);
    gasnetw_AMRequestMedium(t->node, t->put ? VIS_PUT : VIS_GET, t->out, t->used, 2, args);
    t->used = t->wanted = t->count = 0;
    t->pieces = NULL;
}

static void *buffer(size_t len)
{
    void *p = malloc(len);
    if (!p)
        gasnetw_fatal("no memory for a message of small pieces");
    return p;
}

static void describe(struct gasnetw_vis *t, const void *addr, size_t len)
{
    struct gasnetw_piece p = {(uintptr_t)addr, len};
    memcpy(t->out + t->used, &p, sizeof p);
    t->used += sizeof p;
}

/* Returns how many bytes of a piece still have room in the message, after the piece's description.
 */
static size_t room(const struct gasnetw_vis *t)
{
    size_t left = t->longest - t->used, data = t->put ? left : t->longest - t->wanted;
    if (left <= sizeof(struct gasnetw_piece))
        return 0;
    return t->put ? data - sizeof(struct gasnetw_piece) : data;
}

void gasnetw_vis_pack(struct gasnetw_vis *t, char *dst, char *src, size_t len)
{
    if (!t->out)
        t->out = buffer(t->longest);
    while (len) {
        size_t n = room(t);
        if (!n) {
            flush(t);
            continue;
        }
        n = n < len ? n : len;
        describe(t, t->put ? dst : src, n);
        if (t->put) {
            memcpy(t->out + t->used, src, n);
            t->used += n;
        } else {
            if (!t->pieces)
                t->pieces = buffer(t->longest);
            t->pieces[t->count++] = (struct gasnetw_piece){(uintptr_t)dst, n};
            t->wanted += n;
        }
        dst += n;
        src += n;
        len -= n;
    }
}

void gasnetw_vis_begin(struct gasnetw_vis *t)
{
    t->longest = longest();
    t->out = NULL;
    t->pieces = NULL;
    t->used = t->wanted = t->count = 0;
}

void gasnetw_vis_end(struct gasnetw_vis *t)
{
    flush(t);
    free(t->out);
}
