/* SPDX-License-Identifier: BSD-3-Clause */
/* Put, get and memset for segments that are not mapped here. gasnet.h inlines accesses to mapped
 * segments. */
#include "op.h"

#include <stdlib.h>
#include <string.h>

#include "domain.h"
#include "trace.h"

/* If the caller may change the source on return, a source up to this length (in bytes) is copied.
 * For a longer source the call waits. */
#define KEEP_MAX 65536u

/* ---- counters ---- */

static struct {
    pthread_mutex_t lock;
    struct gasnetw_op *first;
} unused = {PTHREAD_MUTEX_INITIALIZER, NULL};

void gasnetw_op_no_memory(void)
{
    gasnetw_fatal("out of memory for an operation under way");
}

struct gasnetw_op *gasnetw_op_new(void)
{
    struct gasnetw_op *op;
    pthread_mutex_lock(&unused.lock);
    op = unused.first;
    if (op)
        unused.first = op->next;
    pthread_mutex_unlock(&unused.lock);
    if (!op && !(op = malloc(sizeof *op)))
        gasnetw_op_no_memory();
    atomic_init(&op->pending, 1);
    op->next = NULL;
    return op;
}

void gasnetw_op_free(struct gasnetw_op *op)
{
    pthread_mutex_lock(&unused.lock);
    op->next = unused.first;
    unused.first = op;
    pthread_mutex_unlock(&unused.lock);
}

gasnet_handle_t gasnetw_op_finish(struct gasnetw_op *op)
{
    gasnetw_op_done(op);
    if (gasnetw_op_pending(op))
        return op;
    gasnetw_op_free(op);
    return GASNET_INVALID_HANDLE;
}

void gasnetw_op_drain(struct gasnetw_op *op, uint64_t left)
{
    struct gasnetw_wait w = {0};
    while (gasnetw_op_pending(op) > left)
        gasnetw_wait_turn(&w);
}

/* ---- pieces ---- */

struct piece {
    struct weft_op op;
    struct gasnetw_op *owner;
    gasnet_node_t node;
    bool is_put;
    unsigned char bytes[]; /* the copy of a source */
};

static const char *piece_name(bool is_put)
{
    return is_put ? "gasnet_put_nb or gasnet_put_nbi" : "gasnet_get_nb or gasnet_get_nbi";
}

/* A transfer of [nbytes] between [here] and the address [there] on [node]. */
struct move {
    bool is_put;
    gasnet_node_t node;
    const char *what; /* the call, for messages */
    const void *there;
    void *here; /* of a put: only read */
    size_t nbytes;
};

/* Start [m] in this thread's domain. Waits while there is no room. Returns as weft_put does. */
static enum weft_status start(const struct move *m, struct weft_op *op)
{
    struct weft_remote *r;
    enum weft_status status;
    uint64_t offset;
    gasnetw_check(m->node, m->what);
    r = gasnetw_segment_at(m->node, m->there, m->nbytes, m->what, &offset);
    r = gasnetw_domain_remote(r, m->node);
    if (m->is_put)
        gasnetw_trace_put(m->node, m->nbytes);
    else
        gasnetw_trace_get(m->node, m->nbytes);
    for (;;) {
        status = m->is_put ? weft_put(r, offset, m->here, m->nbytes, op)
                           : weft_get(r, offset, m->here, m->nbytes, op);
        if (status != WEFT_AGAIN && status != WEFT_ELIMIT)
            return status;
        (void)gasnetw_turn();
    }
}

static void piece_done(struct weft_op *wop)
{
    struct piece *p = (struct piece *)wop;
    struct gasnetw_op *owner = p->owner;
    if (wop->status != WEFT_OK && !atomic_load(&gasnetw_leaving))
        gasnetw_lost(p->node, (enum weft_status)wop->status, piece_name(p->is_put));
    free(p);
    gasnetw_op_done(owner);
}

static struct piece *piece_new(struct gasnetw_op *owner, gasnet_node_t node, bool is_put,
                               size_t len)
{
    struct piece *p = malloc(sizeof *p + len);
    if (!p)
        gasnetw_op_no_memory();
    memset(p, 0, sizeof *p);
    p->op.done = piece_done;
    p->owner = owner;
    p->node = node;
    p->is_put = is_put;
    gasnetw_op_add(owner);
    return p;
}

/* Start [m] as piece [p]. If weft_put or weft_get completes or fails at once, also end [p]. */
static void piece_start(struct piece *p, const struct move *m)
{
    enum weft_status status = start(m, &p->op);
    if (status == WEFT_PENDING)
        return;
    p->op.status = status;
    piece_done(&p->op);
}

void gasnetw_op_put(struct gasnetw_op *op, gasnet_node_t node, void *dest, const void *src,
                    size_t nbytes, bool keep)
{
    struct move m = {true, node, piece_name(true), dest, (void *)(uintptr_t)src, nbytes};
    struct piece *p;
    if (!nbytes)
        return;
    if (keep && nbytes > KEEP_MAX) {
        gasnetw_put_slow(node, dest, src, nbytes);
        return;
    }
    p = piece_new(op, node, true, keep ? nbytes : 0);
    if (keep)
        m.here = memcpy(p->bytes, src, nbytes);
    piece_start(p, &m);
}

void gasnetw_op_get(struct gasnetw_op *op, void *dest, gasnet_node_t node, const void *src,
                    size_t nbytes)
{
    const struct move m = {false, node, piece_name(false), src, dest, nbytes};
    if (nbytes)
        piece_start(piece_new(op, node, false, 0), &m);
}

/* ---- blocking ---- */

void gasnetw_await(struct weft_op *op, gasnet_node_t node, const char *what)
{
    struct gasnetw_wait w = {0};
    int32_t status;
    while ((status = __atomic_load_n(&op->status, __ATOMIC_ACQUIRE)) == WEFT_PENDING)
        gasnetw_wait_turn(&w);
    if (gasnetw_binding.mode != MODE_SEQ) /* another thread completed [op] and may still use it */
        (void)gasnetw_turn();
    if (status != WEFT_OK)
        gasnetw_lost(node, (enum weft_status)status, what);
}

static void move_and_wait(const struct move *m)
{
    struct weft_op op = {0};
    enum weft_status status;
    if (!m->nbytes) {
        gasnetw_check(m->node, m->what);
        return;
    }
    status = start(m, &op);
    if (status == WEFT_PENDING)
        gasnetw_await(&op, m->node, m->what);
    else if (status != WEFT_OK)
        gasnetw_lost(m->node, status, m->what);
}

void gasnetw_put_slow(gasnet_node_t node, void *dest, const void *src, size_t nbytes)
{
    const struct move m = {true, node, "gasnet_put", dest, (void *)(uintptr_t)src, nbytes};
    move_and_wait(&m);
}

void gasnetw_get_slow(void *dest, gasnet_node_t node, const void *src, size_t nbytes)
{
    const struct move m = {false, node, "gasnet_get", src, dest, nbytes};
    move_and_wait(&m);
}

/* ---- memset: in place where it is mapped, else by a message ---- */

/* The binding's own handlers. */
enum { MEMSET_REQUEST = MEMSET_HANDLERS, MEMSET_DONE = MEMSET_HANDLERS + 1 };

static void on_memset(gasnet_token_t token, gasnet_handlerarg_t addr_hi,
                      gasnet_handlerarg_t addr_lo, gasnet_handlerarg_t n_hi,
                      gasnet_handlerarg_t n_lo, gasnet_handlerarg_t val, gasnet_handlerarg_t op_hi,
                      gasnet_handlerarg_t op_lo)
{
    uint64_t addr = (uint64_t)(uint32_t)addr_hi << 32 | (uint32_t)addr_lo;
    uint64_t n = (uint64_t)(uint32_t)n_hi << 32 | (uint32_t)n_lo;
    if (!gasnetw_segment_has(gasnetw_job.mynode, addr, n))
        gasnetw_fatal("a memset of %" PRIu64 " bytes at 0x%" PRIx64 " came, outside the segment", n,
                      addr);
    memset((void *)(uintptr_t)addr, val, n);
    (void)gasnet_AMReplyShort2(token, MEMSET_DONE, op_hi, op_lo);
}

static void on_memset_done(gasnet_token_t token, gasnet_handlerarg_t op_hi,
                           gasnet_handlerarg_t op_lo)
{
    (void)token;
    gasnetw_op_done((struct gasnetw_op *)((uintptr_t)(uint32_t)op_hi << 32 | (uint32_t)op_lo));
}

void gasnetw_op_open(void)
{
    gasnetw_binding.handlers[MEMSET_REQUEST] = (gasnetw_fn_t)on_memset;
    gasnetw_binding.handlers[MEMSET_DONE] = (gasnetw_fn_t)on_memset_done;
}

static void op_memset(struct gasnetw_op *op, gasnet_node_t node, void *dest, int val, size_t nbytes)
{
    static const char what[] = "gasnet_memset";
    struct weft_remote *r;
    uint64_t offset;
    uintptr_t p = (uintptr_t)dest, o = (uintptr_t)op;
    if (!nbytes)
        return;
    gasnetw_check(node, what);
    r = gasnetw_segment_at(node, dest, nbytes, what, &offset);
    gasnetw_trace_put(node, nbytes);
    if (r->base) {
        memset(r->base + offset, val, nbytes);
        return;
    }
    gasnetw_op_add(op);
    (void)gasnet_AMRequestShort7(node, MEMSET_REQUEST, (gasnet_handlerarg_t)(p >> 32),
                                 (gasnet_handlerarg_t)p, (gasnet_handlerarg_t)(nbytes >> 32),
                                 (gasnet_handlerarg_t)nbytes, val, (gasnet_handlerarg_t)(o >> 32),
                                 (gasnet_handlerarg_t)o);
}

void gasnet_memset(gasnet_node_t node, void *dest, int val, size_t nbytes)
{
    gasnet_handle_t h = gasnet_memset_nb(node, dest, val, nbytes);
    if (h != GASNET_INVALID_HANDLE)
        gasnetw_wait_op(h);
}

gasnet_handle_t gasnet_memset_nb(gasnet_node_t node, void *dest, int val, size_t nbytes)
{
    struct gasnetw_op *op = gasnetw_op_new();
    op_memset(op, node, dest, val, nbytes);
    return gasnetw_op_finish(op);
}

void gasnet_memset_nbi(gasnet_node_t node, void *dest, int val, size_t nbytes)
{
    op_memset(gasnetw_nbi_puts(), node, dest, val, nbytes);
}
