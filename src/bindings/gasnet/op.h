/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations that go on: what an explicit handle, an implicit set of a thread's or an access region
 * counts. */
#ifndef GASNETW_OP_H
#define GASNETW_OP_H

#include "binding.h"

/* Counts pieces under way. Its opener holds one count until gasnetw_op_finish. */
struct gasnetw_op {
    _Atomic uint64_t pending;
    struct gasnetw_op *next; /* while unused */
};

/* A new one with no pieces; out of memory is fatal. Any thread. */
struct gasnetw_op *gasnetw_op_new(void);
/* No piece comes any more: its handle, or GASNET_INVALID_HANDLE (and it is gone) if all are done.
 */
gasnet_handle_t gasnetw_op_finish(struct gasnetw_op *op);

/* For handle.c, once it counts nothing. */
void gasnetw_op_free(struct gasnetw_op *op);
_Noreturn void gasnetw_op_no_memory(void);

static inline uint64_t gasnetw_op_pending(const struct gasnetw_op *op)
{
    return atomic_load_explicit(&op->pending, memory_order_acquire);
}

/* Start a piece; complete when [op] counts it no more. Mapped segments: it is done on return. Waits
 * (by turns) while there is no room. Addresses are checked; not in a handler.
 *   keep  the source is the caller's again on return */
void gasnetw_op_put(struct gasnetw_op *op, gasnet_node_t node, void *dest, const void *src,
                    size_t nbytes, bool keep);
void gasnetw_op_get(struct gasnetw_op *op, void *dest, gasnet_node_t node, const void *src,
                    size_t nbytes);

/* This thread's sets of implicit operations; those of its access region while that is open. */
struct gasnetw_op *gasnetw_nbi_puts(void);
struct gasnetw_op *gasnetw_nbi_gets(void);

/* Turns until [op] counts no more than [left]. */
void gasnetw_op_drain(struct gasnetw_op *op, uint64_t left);

/* One count more, and less: for what is under way by other means (vis.c's messages). */
static inline void gasnetw_op_add(struct gasnetw_op *op)
{
    atomic_fetch_add_explicit(&op->pending, 1, memory_order_relaxed);
}
static inline void gasnetw_op_done(struct gasnetw_op *op)
{
    atomic_fetch_sub_explicit(&op->pending, 1, memory_order_release);
}

#endif
