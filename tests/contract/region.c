/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions of one end that the other has opened, and operations on them to their end. */
#include "contract.h"

/* Without a network, memory of weft_mem_alloc is mapped unless that was forbidden. */
static int is_mapped(const struct pair *p)
{
    return !p->setup->network && config_value("WEFT_SHM_MAP");
}

struct region region_open(struct pair *p, int end, size_t len, unsigned access, int own)
{
    struct region g = {.key_len = sizeof g.key};
    if (own) {
        g.own = calloc(1, len + 64);
        assert_non_null(g.own);
        g.base = g.own + (64 - ((uintptr_t)g.own & 63)) % 64;
        OK(weft_mr_register(p->ctx[end], g.base, len, WEFT_MEM_HOST, access, &g.mr));
    } else {
        OK(weft_mem_alloc(p->ctx[end], len, access, &g.mr));
        g.base = weft_mr_base(g.mr);
    }
    assert_ptr_equal(weft_mr_base(g.mr), g.base);
    assert_int_equal(weft_mr_length(g.mr), len);
    OK(weft_mr_key(g.mr, g.key, &g.key_len));
    OK(weft_remote_open(p->peer[other(p, end)], g.key, g.key_len, &g.r));
    assert_int_equal(g.r->length, len);
    assert_int_equal(g.r->access, access);
    assert_int_equal(g.r->base != NULL, !own && is_mapped(p));
    return g;
}

void region_revoke(struct region *g)
{
    OK(weft_mr_close(g->mr));
    g->mr = NULL;
}

void region_close(struct region *g)
{
    if (g->r)
        OK(weft_remote_close(g->r));
    if (g->mr)
        OK(weft_mr_close(g->mr));
    free(g->own);
    memset(g, 0, sizeof *g);
}

enum weft_status rma_end(struct pair *p, const struct weft_remote *r, struct weft_op *op,
                         enum weft_status status)
{
    assert_true(!r->base || status != WEFT_PENDING);
    return op_end(p, op, status);
}

enum weft_status put_end(struct pair *p, struct weft_remote *r, uint64_t offset, const void *src,
                         size_t len)
{
    struct weft_op op = {0};
    return rma_end(p, r, &op, weft_put(r, offset, src, len, &op));
}

enum weft_status get_end(struct pair *p, struct weft_remote *r, uint64_t offset, void *dst,
                         size_t len)
{
    struct weft_op op = {0};
    return rma_end(p, r, &op, weft_get(r, offset, dst, len, &op));
}

enum weft_status signal_end(struct pair *p, struct weft_remote *r, uint64_t offset, const void *src,
                            size_t len, struct weft_remote *sig, uint64_t sig_offset,
                            uint64_t value, unsigned how)
{
    struct weft_op op = {0};
    enum weft_status status =
        weft_put_signal(r, offset, src, len, sig, sig_offset, value, how, &op);
    assert_true(!sig->base || !r->base || status != WEFT_PENDING);
    return op_end(p, &op, status);
}

enum weft_status add_end(struct pair *p, struct weft_remote *r, uint64_t offset, uint64_t operand,
                         uint64_t *fetched)
{
    struct weft_op op = {0};
    return rma_end(p, r, &op,
                   weft_atomic(r, offset, WEFT_ATOMIC_ADD, WEFT_U64, operand, 0, fetched, &op));
}

enum weft_status flush_end(struct pair *p, struct weft_peer *peer)
{
    enum weft_status status;
    UNTIL(p, (status = weft_flush(peer, NULL)) != WEFT_PENDING);
    return status;
}
