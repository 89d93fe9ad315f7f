/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of fi_atomic(3). */
#include <string.h>
#include <weft/atomic.h>

#include "access.h"
#include "atomic_kind.h"

#define ATOMIC_FLAGS (FI_COMPLETION | FI_MORE | FI_INJECT | WFI_LEVELS | FI_PRIORITY)

/* An atomic, as its call describes it. */
struct call {
    enum wfi_atomic_way way;
    const struct fi_ioc *iov, *comparev, *resultv;
    size_t count, compare_count, result_count;
    fi_addr_t addr;
    const struct fi_rma_ioc *rma;
    size_t rma_count;
    enum fi_datatype datatype;
    enum fi_op op;
    void *context;
    uint64_t flags;
    bool report;
};

static size_t elements(const struct fi_ioc *v, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i].count;
    return sum;
}

static size_t target_elements(const struct call *c)
{
    size_t sum = 0;
    for (size_t i = 0; i < c->rma_count; i++)
        sum += c->rma[i].count;
    return sum;
}

/* Check [c]. Sets *total to its number of elements. */
static int check(const struct wfi_ep *ep, const struct call *c, size_t *total)
{
    size_t n, unit = wfi_atomic_unit(c->way, c->datatype, c->op), am_max;
    if (c->flags & ~(ATOMIC_FLAGS | (ep->caps & FI_FENCE)))
        return -FI_EBADFLAGS;
    if (!unit)
        return -FI_EOPNOTSUPP;
    if (!c->rma_count || c->rma_count > WFI_IOV || c->count > WFI_IOV ||
        c->compare_count > WFI_IOV || c->result_count > WFI_IOV)
        return -FI_EINVAL;
    n = target_elements(c);
    if (!n || (c->op != FI_ATOMIC_READ && elements(c->iov, c->count) != n) ||
        (c->way == WFI_ATOMIC_COMPARE && elements(c->comparev, c->compare_count) != n) ||
        (c->way != WFI_ATOMIC_WRITE && elements(c->resultv, c->result_count) != n))
        return -FI_EINVAL;
    am_max = weft_am_max(ep->wep);
    if (n > am_max || n * unit > am_max ||
        (c->flags & FI_INJECT && n * wfi_atomic_size(c->datatype) > ep->inject))
        return -FI_EMSGSIZE;
    *total = n;
    return 0;
}

static uint64_t flags_of(const struct call *c)
{
    return FI_ATOMIC | (c->way == WFI_ATOMIC_WRITE ? FI_WRITE : FI_READ);
}

static struct wfi_op *take(struct wfi_ep *ep, const struct call *c)
{
    return wfi_access_take(ep, c->context, flags_of(c),
                           c->way == WFI_ATOMIC_WRITE ? ep->write_cntr : ep->read_cntr, c->report);
}

/* One buffer of each kind, one remote piece. */
static ssize_t start_one(struct wfi_ep *ep, const struct call *c, size_t total)
{
    const void *operands = c->op == FI_ATOMIC_READ ? NULL : c->iov->addr;
    struct wfi_remote *remote;
    struct wfi_op *o;
    int rc = wfi_remote_use(ep, c->addr, c->rma->key, &remote);
    if (rc)
        return rc;
    o = take(ep, c);
    if (!o) {
        wfi_remote_unuse(ep, remote);
        return -FI_ENOMEM;
    }
    o->remote = remote;
    if (c->flags & FI_INJECT && operands &&
        !(operands = wfi_access_copy(o, operands, total * wfi_atomic_size(c->datatype))))
        return wfi_access_started(o, WEFT_ENOMEM);
    if (wfi_is_fenced(ep, c->flags))
        wfi_access_fence(o);
    return wfi_access_started(
        o, weft_atomic_array(remote->r, c->rma->addr, (unsigned)c->op, (unsigned)c->datatype, total,
                             operands, c->way == WFI_ATOMIC_COMPARE ? c->comparev->addr : NULL,
                             c->way == WFI_ATOMIC_WRITE ? NULL : c->resultv->addr, &o->op));
}

/* The operation of weft_atomic that does the same to one word, + 1; 0: there is none. */
static const uint8_t word_operations[] = {
    [FI_MIN] = WEFT_ATOMIC_MIN + 1,           [FI_MAX] = WEFT_ATOMIC_MAX + 1,
    [FI_SUM] = WEFT_ATOMIC_ADD + 1,           [FI_BOR] = WEFT_ATOMIC_OR + 1,
    [FI_BAND] = WEFT_ATOMIC_AND + 1,          [FI_BXOR] = WEFT_ATOMIC_XOR + 1,
    [FI_ATOMIC_WRITE] = WEFT_ATOMIC_SWAP + 1, [FI_CSWAP] = WEFT_ATOMIC_CAS + 1,
};

/* One element: its operand, what it is compared with, and where its old value goes; NULL: not. */
struct single {
    const void *operand, *compare;
    void *result;
    fi_addr_t addr;
    uint64_t offset, key;
    enum fi_datatype datatype;
    enum fi_op op;
};

/* Does Weft's shortest call do it: [count] is 1, a word of 64 bits, and the default flags and the
 * endpoint's orders need no more? */
static inline bool is_word(struct wfi_ep *ep, const struct single *w, size_t count)
{
    return count == 1 && w->operand && (w->datatype == FI_UINT64 || w->datatype == FI_INT64) &&
           (unsigned)w->op < sizeof word_operations && word_operations[w->op] &&
           (w->op == FI_CSWAP) == (w->compare != NULL) &&
           !((w->offset | (uintptr_t)w->result) % sizeof(uint64_t)) &&
           !(ep->tx_flags & ~ATOMIC_FLAGS) && !ep->order && !wfi_is_fenced(ep, 0);
}

static ssize_t start_word(struct wfi_ep *ep, const struct single *w, void *context)
{
    const uint64_t flags = FI_ATOMIC | (w->result ? FI_READ : FI_WRITE);
    struct wfi_cntr *cntr = w->result ? ep->read_cntr : ep->write_cntr;
    uint64_t operand, compare = 0;
    struct wfi_remote *remote;
    struct wfi_op *o;
    int rc = wfi_remote_use(ep, w->addr, w->key, &remote);
    if (WEFT_UNLIKELY(rc))
        return rc;
    o = wfi_access_take(ep, context, flags, cntr, wfi_reports(ep->tx_selective, ep->tx_flags));
    if (WEFT_UNLIKELY(!o)) {
        wfi_remote_unuse(ep, remote);
        return -FI_ENOMEM;
    }
    o->remote = remote;
    memcpy(&operand, w->operand, sizeof operand);
    if (w->compare)
        memcpy(&compare, w->compare, sizeof compare);
    return wfi_access_started(o, weft_atomic(remote->r, w->offset, word_operations[w->op] - 1u,
                                             w->datatype == FI_INT64 ? WEFT_I64 : WEFT_U64, operand,
                                             compare, w->result, &o->op));
}

/* Returns the elements of [v] one behind the other, in memory of malloc's. */
static char *gather(const struct fi_ioc *v, size_t n, size_t total, size_t size)
{
    char *all = malloc(total * size), *to = all;
    for (size_t i = 0; all && i < n; i++) {
        memcpy(to, v[i].addr, v[i].count * size);
        to += v[i].count * size;
    }
    return all;
}

static bool set_arrays(struct wfi_access *a, const struct call *c, size_t total)
{
    if (c->op != FI_ATOMIC_READ && !(a->operands = gather(c->iov, c->count, total, a->element)))
        return false;
    if (c->way == WFI_ATOMIC_COMPARE &&
        !(a->compares = gather(c->comparev, c->compare_count, total, a->element)))
        return false;
    if (c->way == WFI_ATOMIC_WRITE)
        return true;
    a->results = malloc(total * a->element);
    a->result_count = c->result_count;
    memcpy(a->result, c->resultv, c->result_count * sizeof *a->result);
    return a->results != NULL;
}

static ssize_t start_many(struct wfi_ep *ep, const struct call *c, size_t total)
{
    struct wfi_op *o = take(ep, c);
    struct wfi_access *a;
    if (!o)
        return -FI_ENOMEM;
    a = wfi_access_new(o, WFI_ATOMIC, c->addr);
    if (!a)
        return wfi_access_started(o, WEFT_ENOMEM);
    a->fenced = c->flags & FI_FENCE;
    a->operation = (unsigned)c->op;
    a->datatype = (unsigned)c->datatype;
    a->element = wfi_atomic_size(c->datatype);
    if (!set_arrays(a, c, total)) {
        free(a->operands);
        free(a->compares);
        free(a);
        return wfi_access_started(o, WEFT_ENOMEM);
    }
    a->rma_count = c->rma_count;
    for (size_t i = 0; i < c->rma_count; i++)
        a->rma[i] =
            (struct fi_rma_iov){c->rma[i].addr, c->rma[i].count * a->element, c->rma[i].key};
    return wfi_access_begin(a);
}

static ssize_t start(struct wfi_ep *ep, const struct call *c)
{
    struct weft_peer *peer;
    size_t total = 0;
    int rc = check(ep, c, &total);
    if (!rc &&
        (wfi_fence_waits(ep, c->flags) || wfi_order_waits_access(ep, c->way == WFI_ATOMIC_WRITE)))
        rc = -FI_EAGAIN;
    if (!rc)
        rc = wfi_peer(ep, c->addr, &peer);
    if (rc)
        return rc;
    return c->rma_count == 1 && c->count <= 1 && c->compare_count <= 1 && c->result_count <= 1
               ? start_one(ep, c, total)
               : start_many(ep, c, total);
}

/* ---- calls ---- */

static struct call call_of(struct wfi_ep *ep, enum wfi_atomic_way way,
                           const struct fi_msg_atomic *m, uint64_t flags)
{
    return (struct call){.way = way,
                         .iov = m->msg_iov,
                         .count = m->iov_count,
                         .addr = m->addr,
                         .rma = m->rma_iov,
                         .rma_count = m->rma_iov_count,
                         .datatype = m->datatype,
                         .op = m->op,
                         .context = m->context,
                         .flags = flags,
                         .report = wfi_reports(ep->tx_selective, flags)};
}

static ssize_t call_writemsg(struct fid_ep *fid, const struct fi_msg_atomic *msg, uint64_t flags)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    const struct call c = call_of(ep, WFI_ATOMIC_WRITE, msg, flags);
    return start(ep, &c);
}

static ssize_t call_writev(struct fid_ep *fid, const struct fi_ioc *iov, void **desc, size_t count,
                           fi_addr_t addr, uint64_t offset, uint64_t key, enum fi_datatype datatype,
                           enum fi_op op, void *context)
{
    const struct fi_rma_ioc rma = {offset, elements(iov, count), key};
    const struct fi_msg_atomic m = {iov, desc, count, addr, &rma, 1, datatype, op, context, 0};
    return call_writemsg(fid, &m, wfi_ep_of(fid)->tx_flags);
}

static ssize_t call_write(struct fid_ep *fid, const void *buf, size_t count, void *desc,
                          fi_addr_t addr, uint64_t offset, uint64_t key, enum fi_datatype datatype,
                          enum fi_op op, void *context)
{
    const struct single w = {buf, NULL, NULL, addr, offset, key, datatype, op};
    const struct fi_ioc one = {(void *)(uintptr_t)buf, count};
    if (is_word(wfi_ep_of(fid), &w, count))
        return start_word(wfi_ep_of(fid), &w, context);
    return call_writev(fid, &one, &desc, 1, addr, offset, key, datatype, op, context);
}

static ssize_t call_inject(struct fid_ep *fid, const void *buf, size_t count, fi_addr_t addr,
                           uint64_t offset, uint64_t key, enum fi_datatype datatype, enum fi_op op)
{
    const struct fi_ioc one = {(void *)(uintptr_t)buf, count};
    const struct fi_rma_ioc rma = {offset, count, key};
    const struct fi_msg_atomic m = {&one, NULL, 1, addr, &rma, 1, datatype, op, NULL, 0};
    struct wfi_ep *ep = wfi_ep_of(fid);
    struct call c = call_of(ep, WFI_ATOMIC_WRITE, &m, FI_INJECT);
    c.report = false;
    return start(ep, &c);
}

static ssize_t call_readwritemsg(struct fid_ep *fid, const struct fi_msg_atomic *msg,
                                 struct fi_ioc *resultv, void **result_desc, size_t result_count,
                                 uint64_t flags)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    struct call c = call_of(ep, WFI_ATOMIC_FETCH, msg, flags);
    (void)result_desc;
    c.resultv = resultv;
    c.result_count = result_count;
    return start(ep, &c);
}

static ssize_t call_readwritev(struct fid_ep *fid, const struct fi_ioc *iov, void **desc,
                               size_t count, struct fi_ioc *resultv, void **result_desc,
                               size_t result_count, fi_addr_t addr, uint64_t offset, uint64_t key,
                               enum fi_datatype datatype, enum fi_op op, void *context)
{
    const struct fi_rma_ioc rma = {offset, elements(resultv, result_count), key};
    const struct fi_msg_atomic m = {iov, desc, count, addr, &rma, 1, datatype, op, context, 0};
    return call_readwritemsg(fid, &m, resultv, result_desc, result_count, wfi_ep_of(fid)->tx_flags);
}

static ssize_t call_readwrite(struct fid_ep *fid, const void *buf, size_t count, void *desc,
                              void *result, void *result_desc, fi_addr_t addr, uint64_t offset,
                              uint64_t key, enum fi_datatype datatype, enum fi_op op, void *context)
{
    const struct single w = {buf, NULL, result, addr, offset, key, datatype, op};
    const struct fi_ioc one = {(void *)(uintptr_t)buf, count};
    struct fi_ioc into = {result, count};
    if (result && is_word(wfi_ep_of(fid), &w, count))
        return start_word(wfi_ep_of(fid), &w, context);
    return call_readwritev(fid, &one, &desc, 1, &into, &result_desc, 1, addr, offset, key, datatype,
                           op, context);
}

static ssize_t call_compwritemsg(struct fid_ep *fid, const struct fi_msg_atomic *msg,
                                 const struct fi_ioc *comparev, void **compare_desc,
                                 size_t compare_count, struct fi_ioc *resultv, void **result_desc,
                                 size_t result_count, uint64_t flags)
{
    struct wfi_ep *ep = wfi_ep_of(fid);
    struct call c = call_of(ep, WFI_ATOMIC_COMPARE, msg, flags);
    (void)compare_desc, (void)result_desc;
    c.comparev = comparev;
    c.compare_count = compare_count;
    c.resultv = resultv;
    c.result_count = result_count;
    return start(ep, &c);
}

static ssize_t call_compwritev(struct fid_ep *fid, const struct fi_ioc *iov, void **desc,
                               size_t count, const struct fi_ioc *comparev, void **compare_desc,
                               size_t compare_count, struct fi_ioc *resultv, void **result_desc,
                               size_t result_count, fi_addr_t addr, uint64_t offset, uint64_t key,
                               enum fi_datatype datatype, enum fi_op op, void *context)
{
    const struct fi_rma_ioc rma = {offset, elements(iov, count), key};
    const struct fi_msg_atomic m = {iov, desc, count, addr, &rma, 1, datatype, op, context, 0};
    return call_compwritemsg(fid, &m, comparev, compare_desc, compare_count, resultv, result_desc,
                             result_count, wfi_ep_of(fid)->tx_flags);
}

static ssize_t call_compwrite(struct fid_ep *fid, const void *buf, size_t count, void *desc,
                              const void *compare, void *compare_desc, void *result,
                              void *result_desc, fi_addr_t addr, uint64_t offset, uint64_t key,
                              enum fi_datatype datatype, enum fi_op op, void *context)
{
    const struct single w = {buf, compare, result, addr, offset, key, datatype, op};
    const struct fi_ioc one = {(void *)(uintptr_t)buf, count};
    const struct fi_ioc with = {(void *)(uintptr_t)compare, count};
    struct fi_ioc into = {result, count};
    if (result && compare && is_word(wfi_ep_of(fid), &w, count))
        return start_word(wfi_ep_of(fid), &w, context);
    return call_compwritev(fid, &one, &desc, 1, &with, &compare_desc, 1, &into, &result_desc, 1,
                           addr, offset, key, datatype, op, context);
}

/* ---- valid atomics ---- */

static int valid(struct fid_ep *fid, enum wfi_atomic_way way, enum fi_datatype datatype,
                 enum fi_op op, size_t *count)
{
    size_t most = wfi_atomic_most(way, datatype, op, weft_am_max(wfi_ep_of(fid)->wep));
    if (!most)
        return -FI_EOPNOTSUPP;
    if (count)
        *count = most;
    return 0;
}

static int call_writevalid(struct fid_ep *fid, enum fi_datatype datatype, enum fi_op op,
                           size_t *count)
{
    return valid(fid, WFI_ATOMIC_WRITE, datatype, op, count);
}

static int call_readwritevalid(struct fid_ep *fid, enum fi_datatype datatype, enum fi_op op,
                               size_t *count)
{
    return valid(fid, WFI_ATOMIC_FETCH, datatype, op, count);
}

static int call_compwritevalid(struct fid_ep *fid, enum fi_datatype datatype, enum fi_op op,
                               size_t *count)
{
    return valid(fid, WFI_ATOMIC_COMPARE, datatype, op, count);
}

struct fi_ops_atomic wfi_atomic_ops = {
    .size = sizeof(struct fi_ops_atomic),
    .write = call_write,
    .writev = call_writev,
    .writemsg = call_writemsg,
    .inject = call_inject,
    .readwrite = call_readwrite,
    .readwritev = call_readwritev,
    .readwritemsg = call_readwritemsg,
    .compwrite = call_compwrite,
    .compwritev = call_compwritev,
    .compwritemsg = call_compwritemsg,
    .writevalid = call_writevalid,
    .readwritevalid = call_readwritevalid,
    .compwritevalid = call_compwritevalid,
};
