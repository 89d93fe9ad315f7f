/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of an endpoint that is not enabled, or that lacks the capability, and those of objects
 * that are no endpoints. They refuse. */
#include "none.h"

#include "binding.h"

/* An endpoint that is not enabled is in the wrong state; one that is enabled lacks the capability.
 */
static ssize_t refuse(struct fid_ep *fid)
{
    bool whole = fid->fid.fclass == FI_CLASS_EP || fid->fid.fclass == FI_CLASS_TX_CTX;
    return whole && !wfi_ep_of(fid)->enabled ? -FI_EOPBADSTATE : -FI_EOPNOTSUPP;
}

static ssize_t msg_recv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src_addr,
                        void *context)
{
    (void)buf, (void)len, (void)desc, (void)src_addr, (void)context;
    return refuse(ep);
}

static ssize_t msg_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                         fi_addr_t src_addr, void *context)
{
    (void)iov, (void)desc, (void)count, (void)src_addr, (void)context;
    return refuse(ep);
}

static ssize_t msg_recvmsg(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
{
    (void)msg, (void)flags;
    return refuse(ep);
}

static ssize_t msg_send(struct fid_ep *ep, const void *buf, size_t len, void *desc,
                        fi_addr_t dest_addr, void *context)
{
    (void)buf, (void)len, (void)desc, (void)dest_addr, (void)context;
    return refuse(ep);
}

static ssize_t msg_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                         fi_addr_t dest_addr, void *context)
{
    (void)iov, (void)desc, (void)count, (void)dest_addr, (void)context;
    return refuse(ep);
}

static ssize_t msg_sendmsg(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
{
    (void)msg, (void)flags;
    return refuse(ep);
}

static ssize_t msg_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest_addr)
{
    (void)buf, (void)len, (void)dest_addr;
    return refuse(ep);
}

static ssize_t msg_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc,
                            uint64_t data, fi_addr_t dest_addr, void *context)
{
    (void)buf, (void)len, (void)desc, (void)data, (void)dest_addr, (void)context;
    return refuse(ep);
}

static ssize_t msg_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data,
                              fi_addr_t dest_addr)
{
    (void)buf, (void)len, (void)data, (void)dest_addr;
    return refuse(ep);
}

struct fi_ops_msg wfi_msg_none = {
    .size = sizeof(struct fi_ops_msg),
    .recv = msg_recv,
    .recvv = msg_recvv,
    .recvmsg = msg_recvmsg,
    .send = msg_send,
    .sendv = msg_sendv,
    .sendmsg = msg_sendmsg,
    .inject = msg_inject,
    .senddata = msg_senddata,
    .injectdata = msg_injectdata,
};

static ssize_t tagged_recv(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src_addr,
                           uint64_t tag, uint64_t ignore, void *context)
{
    (void)buf, (void)len, (void)desc, (void)src_addr, (void)tag, (void)ignore, (void)context;
    return refuse(ep);
}

static ssize_t tagged_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                            fi_addr_t src_addr, uint64_t tag, uint64_t ignore, void *context)
{
    (void)iov, (void)desc, (void)count, (void)src_addr, (void)tag, (void)ignore, (void)context;
    return refuse(ep);
}

static ssize_t tagged_recvmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg, uint64_t flags)
{
    (void)msg, (void)flags;
    return refuse(ep);
}

static ssize_t tagged_send(struct fid_ep *ep, const void *buf, size_t len, void *desc,
                           fi_addr_t dest_addr, uint64_t tag, void *context)
{
    (void)buf, (void)len, (void)desc, (void)dest_addr, (void)tag, (void)context;
    return refuse(ep);
}

static ssize_t tagged_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                            fi_addr_t dest_addr, uint64_t tag, void *context)
{
    (void)iov, (void)desc, (void)count, (void)dest_addr, (void)tag, (void)context;
    return refuse(ep);
}

static ssize_t tagged_sendmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg, uint64_t flags)
{
    (void)msg, (void)flags;
    return refuse(ep);
}

static ssize_t tagged_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest_addr,
                             uint64_t tag)
{
    (void)buf, (void)len, (void)dest_addr, (void)tag;
    return refuse(ep);
}

static ssize_t tagged_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc,
                               uint64_t data, fi_addr_t dest_addr, uint64_t tag, void *context)
{
    (void)buf, (void)len, (void)desc, (void)data, (void)dest_addr, (void)tag, (void)context;
    return refuse(ep);
}

static ssize_t tagged_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data,
                                 fi_addr_t dest_addr, uint64_t tag)
{
    (void)buf, (void)len, (void)data, (void)dest_addr, (void)tag;
    return refuse(ep);
}

struct fi_ops_tagged wfi_tagged_none = {
    .size = sizeof(struct fi_ops_tagged),
    .recv = tagged_recv,
    .recvv = tagged_recvv,
    .recvmsg = tagged_recvmsg,
    .send = tagged_send,
    .sendv = tagged_sendv,
    .sendmsg = tagged_sendmsg,
    .inject = tagged_inject,
    .senddata = tagged_senddata,
    .injectdata = tagged_injectdata,
};

static ssize_t rma_read(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src_addr,
                        uint64_t addr, uint64_t key, void *context)
{
    (void)buf, (void)len, (void)desc, (void)src_addr, (void)addr, (void)key, (void)context;
    return refuse(ep);
}

static ssize_t rma_readv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                         fi_addr_t src_addr, uint64_t addr, uint64_t key, void *context)
{
    (void)iov, (void)desc, (void)count, (void)src_addr, (void)addr, (void)key, (void)context;
    return refuse(ep);
}

static ssize_t rma_readmsg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    (void)msg, (void)flags;
    return refuse(ep);
}

static ssize_t rma_write(struct fid_ep *ep, const void *buf, size_t len, void *desc,
                         fi_addr_t dest_addr, uint64_t addr, uint64_t key, void *context)
{
    (void)buf, (void)len, (void)desc, (void)dest_addr, (void)addr, (void)key, (void)context;
    return refuse(ep);
}

static ssize_t rma_writev(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                          fi_addr_t dest_addr, uint64_t addr, uint64_t key, void *context)
{
    (void)iov, (void)desc, (void)count, (void)dest_addr, (void)addr, (void)key, (void)context;
    return refuse(ep);
}

static ssize_t rma_writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    (void)msg, (void)flags;
    return refuse(ep);
}

static ssize_t rma_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest_addr,
                          uint64_t addr, uint64_t key)
{
    (void)buf, (void)len, (void)dest_addr, (void)addr, (void)key;
    return refuse(ep);
}

static ssize_t rma_writedata(struct fid_ep *ep, const void *buf, size_t len, void *desc,
                             uint64_t data, fi_addr_t dest_addr, uint64_t addr, uint64_t key,
                             void *context)
{
    (void)buf, (void)len, (void)desc, (void)data, (void)dest_addr, (void)addr, (void)key,
        (void)context;
    return refuse(ep);
}

static ssize_t rma_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data,
                              fi_addr_t dest_addr, uint64_t addr, uint64_t key)
{
    (void)buf, (void)len, (void)data, (void)dest_addr, (void)addr, (void)key;
    return refuse(ep);
}

struct fi_ops_rma wfi_rma_none = {
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

static ssize_t atomic_write(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                            fi_addr_t dest_addr, uint64_t addr, uint64_t key,
                            enum fi_datatype datatype, enum fi_op op, void *context)
{
    (void)buf, (void)count, (void)desc, (void)dest_addr, (void)addr, (void)key, (void)datatype,
        (void)op, (void)context;
    return refuse(ep);
}

static ssize_t atomic_writev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count,
                             fi_addr_t dest_addr, uint64_t addr, uint64_t key,
                             enum fi_datatype datatype, enum fi_op op, void *context)
{
    (void)iov, (void)desc, (void)count, (void)dest_addr, (void)addr, (void)key, (void)datatype,
        (void)op, (void)context;
    return refuse(ep);
}

static ssize_t atomic_writemsg(struct fid_ep *ep, const struct fi_msg_atomic *msg, uint64_t flags)
{
    (void)msg, (void)flags;
    return refuse(ep);
}

static ssize_t atomic_inject(struct fid_ep *ep, const void *buf, size_t count, fi_addr_t dest_addr,
                             uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op)
{
    (void)buf, (void)count, (void)dest_addr, (void)addr, (void)key, (void)datatype, (void)op;
    return refuse(ep);
}

static ssize_t atomic_readwrite(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                void *result, void *result_desc, fi_addr_t dest_addr, uint64_t addr,
                                uint64_t key, enum fi_datatype datatype, enum fi_op op,
                                void *context)
{
    (void)buf, (void)count, (void)desc, (void)result, (void)result_desc, (void)dest_addr,
        (void)addr, (void)key, (void)datatype, (void)op, (void)context;
    return refuse(ep);
}

static ssize_t atomic_readwritev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc,
                                 size_t count, struct fi_ioc *resultv, void **result_desc,
                                 size_t result_count, fi_addr_t dest_addr, uint64_t addr,
                                 uint64_t key, enum fi_datatype datatype, enum fi_op op,
                                 void *context)
{
    (void)iov, (void)desc, (void)count, (void)resultv, (void)result_desc, (void)result_count,
        (void)dest_addr, (void)addr, (void)key, (void)datatype, (void)op, (void)context;
    return refuse(ep);
}

static ssize_t atomic_readwritemsg(struct fid_ep *ep, const struct fi_msg_atomic *msg,
                                   struct fi_ioc *resultv, void **result_desc, size_t result_count,
                                   uint64_t flags)
{
    (void)msg, (void)resultv, (void)result_desc, (void)result_count, (void)flags;
    return refuse(ep);
}

static ssize_t atomic_compwrite(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                const void *compare, void *compare_desc, void *result,
                                void *result_desc, fi_addr_t dest_addr, uint64_t addr, uint64_t key,
                                enum fi_datatype datatype, enum fi_op op, void *context)
{
    (void)buf, (void)count, (void)desc, (void)compare, (void)compare_desc, (void)result,
        (void)result_desc, (void)dest_addr, (void)addr, (void)key, (void)datatype, (void)op,
        (void)context;
    return refuse(ep);
}

static ssize_t atomic_compwritev(struct fid_ep *ep, const struct fi_ioc *iov, void **desc,
                                 size_t count, const struct fi_ioc *comparev, void **compare_desc,
                                 size_t compare_count, struct fi_ioc *resultv, void **result_desc,
                                 size_t result_count, fi_addr_t dest_addr, uint64_t addr,
                                 uint64_t key, enum fi_datatype datatype, enum fi_op op,
                                 void *context)
{
    (void)iov, (void)desc, (void)count, (void)comparev, (void)compare_desc, (void)compare_count,
        (void)resultv, (void)result_desc, (void)result_count, (void)dest_addr, (void)addr,
        (void)key, (void)datatype, (void)op, (void)context;
    return refuse(ep);
}

static ssize_t atomic_compwritemsg(struct fid_ep *ep, const struct fi_msg_atomic *msg,
                                   const struct fi_ioc *comparev, void **compare_desc,
                                   size_t compare_count, struct fi_ioc *resultv, void **result_desc,
                                   size_t result_count, uint64_t flags)
{
    (void)msg, (void)comparev, (void)compare_desc, (void)compare_count, (void)resultv,
        (void)result_desc, (void)result_count, (void)flags;
    return refuse(ep);
}

static int atomic_writevalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op,
                             size_t *count)
{
    (void)datatype, (void)op, (void)count;
    return (int)refuse(ep);
}

static int atomic_readwritevalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op,
                                 size_t *count)
{
    (void)datatype, (void)op, (void)count;
    return (int)refuse(ep);
}

static int atomic_compwritevalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op,
                                 size_t *count)
{
    (void)datatype, (void)op, (void)count;
    return (int)refuse(ep);
}

struct fi_ops_atomic wfi_atomic_none = {
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

ssize_t wfi_no_cancel(fid_t fid, void *context)
{
    (void)fid, (void)context;
    return -FI_ENOENT;
}

int wfi_no_getopt(fid_t fid, int level, int optname, void *optval, size_t *optlen)
{
    (void)fid, (void)level, (void)optname, (void)optval, (void)optlen;
    return -FI_ENOPROTOOPT;
}

int wfi_no_setopt(fid_t fid, int level, int optname, const void *optval, size_t optlen)
{
    (void)fid, (void)level, (void)optname, (void)optval, (void)optlen;
    return -FI_ENOPROTOOPT;
}

ssize_t wfi_no_size_left(struct fid_ep *ep)
{
    (void)ep;
    return -FI_EOPNOTSUPP;
}
