/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations under way. An explicit handle, a thread's implicit set or an access region counts
 * them. */
#ifndef GASNETW_OP_H
#define GASNETW_OP_H

#include "binding.h"

/* A count of pieces under way. The thread that opened it holds one count until gasnetw_op_finish.
 */
struct gasnetw_op {
    _Atomic uint64_t pending;
    struct gasnetw_op *next; /* while unused */
};

/* Returns a new count without pieces. Ends the job if memory is out. Any thread. */
struct gasnetw_op *gasnetw_op_new(void);
/* End the adding of pieces. Returns the handle. If all pieces are done, frees [op] and returns
 * GASNET_INVALID_HANDLE. */
gasnet_handle_t gasnetw_op_finish(struct gasnetw_op *op);

/* For handle.c: [op] counts nothing. */
void gasnetw_op_free(struct gasnetw_op *op);
_Noreturn void gasnetw_op_no_memory(void);

static inline uint64_t gasnetw_op_pending(const struct gasnetw_op *op)
{
    return atomic_load_explicit(&op->pending, memory_order_acquire);
}

/* Start a piece that [op] counts until the piece is complete. In a mapped segment the piece is
 * complete on return. Checks addresses. Waits (by turns) while there is no room. Not in a handler.
 *   keep  the caller may change the source on return */
void gasnetw_op_put(struct gasnetw_op *op, gasnet_node_t node, void *dest, const void *src,
                    size_t nbytes, bool keep);
void gasnetw_op_get(struct gasnetw_op *op, void *dest, gasnet_node_t node, const void *src,
                    size_t nbytes);

/* Return this thread's sets of implicit operations, or its access region while one is open. */
struct gasnetw_op *gasnetw_nbi_puts(void);
struct gasnetw_op *gasnetw_nbi_gets(void);

/* Wait until [op] counts at most [left]. */
void gasnetw_op_drain(struct gasnetw_op *op, uint64_t left);

/* Count one piece more (or one less) of another kind: the messages of vis_am.c. */
static inline void gasnetw_op_add(struct gasnetw_op *op)
{
    atomic_fetch_add_explicit(&op->pending, 1, memory_order_relaxed);
}
static inline void gasnetw_op_done(struct gasnetw_op *op)
{
    atomic_fetch_sub_explicit(&op->pending, 1, memory_order_release);
}

#endif
