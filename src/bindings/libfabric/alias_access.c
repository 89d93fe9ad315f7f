/* SPDX-License-Identifier: BSD-3-Clause */
/* The accesses of aliases (alias.c). */
#include "alias.h"

static struct fid_ep *target(struct fid_ep *fid)
{
    return &container_of(fid, struct wfi_alias, fid)->ep->fid;
}

static uint64_t flags_of(struct fid_ep *fid)
{
    return container_of(fid, struct wfi_alias, fid)->tx_flags;
}

/* ---- reads and writes ---- */

static ssize_t rma_readmsg(struct fid_ep *fid, const struct fi_msg_rma *msg, uint64_t flags)
{
    return target(fid)->rma->readmsg(target(fid), msg, flags);
}

static ssize_t rma_writemsg(struct fid_ep *fid, const struct fi_msg_rma *msg, uint64_t flags)
{
    return target(fid)->rma->writemsg(target(fid), msg, flags);
}

static ssize_t rma_readv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                         fi_addr_t addr, uint64_t offset, uint64_t key, void *context)
{
    const struct fi_rma_iov rma = {offset, wfi_iov_length(iov, count), key};
    const struct fi_msg_rma m = {iov, desc, count, addr, &rma, 1, context, 0};
    return rma_readmsg(fid, &m, flags_of(fid) & ~(uint64_t)FI_INJECT);
}

static ssize_t rma_read(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t addr,
                        uint64_t offset, uint64_t key, void *context)
{
    const struct iovec iov = {buf, len};
    return rma_readv(fid, &iov, &desc, 1, addr, offset, key, context);
}

static ssize_t rma_writev(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                          fi_addr_t addr, uint64_t offset, uint64_t key, void *context)
{
    const struct fi_rma_iov rma = {offset, wfi_iov_length(iov, count), key};
    const struct fi_msg_rma m = {iov, desc, count, addr, &rma, 1, context, 0};
    return rma_writemsg(fid, &m, flags_of(fid));
}

static ssize_t rma_write(struct fid_ep *fid, const void *buf, size_t len, void *desc,
                         fi_addr_t addr, uint64_t offset, uint64_t key, void *context)
{
    const struct iovec iov = {(void *)(uintptr_t)buf, len};
    return rma_writev(fid, &iov, &desc, 1, addr, offset, key, context);
}

static ssize_t rma_writedata(struct fid_ep *fid, const void *buf, size_t len, void *desc,
                             uint64_t data, fi_addr_t addr, uint64_t offset, uint64_t key,
                             void *context)
{
    const struct iovec iov = {(void *)(uintptr_t)buf, len};
    const struct fi_rma_iov rma = {offset, len, key};
    const struct fi_msg_rma m = {&iov, &desc, 1, addr, &rma, 1, context, data};
    return rma_writemsg(fid, &m, flags_of(fid) | FI_REMOTE_CQ_DATA);
}

static ssize_t rma_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t addr,
                          uint64_t offset, uint64_t key)
{
    return target(fid)->rma->inject(target(fid), buf, len, addr, offset, key);
}

static ssize_t rma_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data,
                              fi_addr_t addr, uint64_t offset, uint64_t key)
{
    return target(fid)->rma->injectdata(target(fid), buf, len, data, addr, offset, key);
}

struct fi_ops_rma wfi_alias_rma_ops = {
    .size = sizeof(struct fi_ops_rma),
    .read = rma_read,
    .readv = rma_readv,
    .readmsg = rma_readmsg,
    .write = rma_write,
    .writev = rma_writev,
    .writemsg = rma_writemsg,
    .inject = rma_inject,
    .writedata = rma_writedata,
    .injectdata = rma_injectdata,
};

/* ---- atomics ---- */

static size_t elements(const struct fi_ioc *v, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i].count;
    return sum;
}

static ssize_t atomic_writemsg(struct fid_ep *fid, const struct fi_msg_atomic *msg, uint64_t flags)
{
    return target(fid)->atomic->writemsg(target(fid), msg, flags);
}

static ssize_t atomic_writev(struct fid_ep *fid, const struct fi_ioc *iov, void **desc,
                             size_t count, fi_addr_t addr, uint64_t offset, uint64_t key,
                             enum fi_datatype datatype, enum fi_op op, void *context)
{
    const struct fi_rma_ioc rma = {offset, elements(iov, count), key};
    const struct fi_msg_atomic m = {iov, desc, count, addr, &rma, 1, datatype, op, context, 0};
    return atomic_writemsg(fid, &m, flags_of(fid));
}

static ssize_t atomic_write(struct fid_ep *fid, const void *buf, size_t count, void *desc,
                            fi_addr_t addr, uint64_t offset, uint64_t key,
                            enum fi_datatype datatype, enum fi_op op, void *context)
{
    const struct fi_ioc one = {(void *)(uintptr_t)buf, count};
    return atomic_writev(fid, &one, &desc, 1, addr, offset, key, datatype, op, context);
}

static ssize_t atomic_inject(struct fid_ep *fid, const void *buf, size_t count, fi_addr_t addr,
                             uint64_t offset, uint64_t key, enum fi_datatype datatype,
                             enum fi_op op)
{
    return target(fid)->atomic->inject(target(fid), buf, count, addr, offset, key, datatype, op);
}

static ssize_t atomic_readwritemsg(struct fid_ep *fid, const struct fi_msg_atomic *msg,
                                   struct fi_ioc *resultv, void **result_desc, size_t result_count,
                                   uint64_t flags)
{
    return target(fid)->atomic->readwritemsg(target(fid), msg, resultv, result_desc, result_count,
                                             flags);
}

static ssize_t atomic_readwritev(struct fid_ep *fid, const struct fi_ioc *iov, void **desc,
                                 size_t count, struct fi_ioc *resultv, void **result_desc,
                                 size_t result_count, fi_addr_t addr, uint64_t offset, uint64_t key,
                                 enum fi_datatype datatype, enum fi_op op, void *context)
{
    const struct fi_rma_ioc rma = {offset, elements(resultv, result_count), key};
    const struct fi_msg_atomic m = {iov, desc, count, addr, &rma, 1, datatype, op, context, 0};
    return atomic_readwritemsg(fid, &m, resultv, result_desc, result_count, flags_of(fid));
}

static ssize_t atomic_readwrite(struct fid_ep *fid, const void *buf, size_t count, void *desc,
                                void *result, void *result_desc, fi_addr_t addr, uint64_t offset,
                                uint64_t key, enum fi_datatype datatype, enum fi_op op,
                                void *context)
{
    const struct fi_ioc one = {(void *)(uintptr_t)buf, count};
    struct fi_ioc into = {result, count};
    return atomic_readwritev(fid, &one, &desc, 1, &into, &result_desc, 1, addr, offset, key,
                             datatype, op, context);
}

static ssize_t atomic_compwritemsg(struct fid_ep *fid, const struct fi_msg_atomic *msg,
                                   const struct fi_ioc *comparev, void **compare_desc,
                                   size_t compare_count, struct fi_ioc *resultv, void **result_desc,
                                   size_t result_count, uint64_t flags)
{
    return target(fid)->atomic->compwritemsg(target(fid), msg, comparev, compare_desc,
                                             compare_count, resultv, result_desc, result_count,
                                             flags);
}

static ssize_t atomic_compwritev(struct fid_ep *fid, const struct fi_ioc *iov, void **desc,
                                 size_t count, const struct fi_ioc *comparev, void **compare_desc,
                                 size_t compare_count, struct fi_ioc *resultv, void **result_desc,
                                 size_t result_count, fi_addr_t addr, uint64_t offset, uint64_t key,
                                 enum fi_datatype datatype, enum fi_op op, void *context)
{
    const struct fi_rma_ioc rma = {offset, elements(iov, count), key};
    const struct fi_msg_atomic m = {iov, desc, count, addr, &rma, 1, datatype, op, context, 0};
    return atomic_compwritemsg(fid, &m, comparev, compare_desc, compare_count, resultv, result_desc,
                               result_count, flags_of(fid));
}

static ssize_t atomic_compwrite(struct fid_ep *fid, const void *buf, size_t count, void *desc,
                                const void *compare, void *compare_desc, void *result,
                                void *result_desc, fi_addr_t addr, uint64_t offset, uint64_t key,
                                enum fi_datatype datatype, enum fi_op op, void *context)
{
    const struct fi_ioc one = {(void *)(uintptr_t)buf, count};
    const struct fi_ioc with = {(void *)(uintptr_t)compare, count};
    struct fi_ioc into = {result, count};
    return atomic_compwritev(fid, &one, &desc, 1, &with, &compare_desc, 1, &into, &result_desc, 1,
                             addr, offset, key, datatype, op, context);
}

static int atomic_writevalid(struct fid_ep *fid, enum fi_datatype datatype, enum fi_op op,
                             size_t *count)
{
    return target(fid)->atomic->writevalid(target(fid), datatype, op, count);
}

static int atomic_readwritevalid(struct fid_ep *fid, enum fi_datatype datatype, enum fi_op op,
                                 size_t *count)
{
    return target(fid)->atomic->readwritevalid(target(fid), datatype, op, count);
}

static int atomic_compwritevalid(struct fid_ep *fid, enum fi_datatype datatype, enum fi_op op,
                                 size_t *count)
{
    return target(fid)->atomic->compwritevalid(target(fid), datatype, op, count);
}

struct fi_ops_atomic wfi_alias_atomic_ops = {
    .size = sizeof(struct fi_ops_atomic),
    .write = atomic_write,
    .writev = atomic_writev,
    .writemsg = atomic_writemsg,
    .inject = atomic_inject,
    .readwrite = atomic_readwrite,
    .readwritev = atomic_readwritev,
    .readwritemsg = atomic_readwritemsg,
    .compwrite = atomic_compwrite,
    .compwritev = atomic_compwritev,
    .compwritemsg = atomic_compwritemsg,
    .writevalid = atomic_writevalid,
    .readwritevalid = atomic_readwritevalid,
    .compwritevalid = atomic_compwritevalid,
};
