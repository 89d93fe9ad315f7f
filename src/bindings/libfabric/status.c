/* SPDX-License-Identifier: BSD-3-Clause */
/* Weft's statuses as fabric errnos, and the calls that objects do not have. */
#include <stdio.h>

#include "binding.h"

int wfi_errno(enum weft_status status)
{
    switch (status) {
    case WEFT_OK: return 0;
    case WEFT_PENDING:
    case WEFT_AGAIN: return FI_EAGAIN;
    case WEFT_ERANGE: return FI_EOVERFLOW;
    case WEFT_EACCESS: return FI_EACCES;
    case WEFT_EKEY:
    case WEFT_EKEYREJECTED: return FI_EKEYREJECTED;
    case WEFT_ENOKEY: return FI_ENOKEY;
    case WEFT_EMSGSIZE: return FI_EMSGSIZE;
    case WEFT_EPEER: return FI_ECONNRESET;
    case WEFT_ECLOSED: return FI_ESHUTDOWN;
    case WEFT_EPROTO: return FI_EIO;
    case WEFT_ENOMEM: return FI_ENOMEM;
    case WEFT_ELIMIT: return FI_ENOBUFS;
    case WEFT_EUNREACH: return FI_EHOSTUNREACH;
    case WEFT_ETIMEDOUT: return FI_ETIMEDOUT;
    case WEFT_EBUSY: return FI_EBUSY;
    case WEFT_ETRUNC: return FI_ETRUNC;
    case WEFT_ECANCELED: return FI_ECANCELED;
    case WEFT_EBADFLAGS: return FI_EBADFLAGS;
    case WEFT_ENOSYS:
    case WEFT_EMEMTYPE: return FI_EOPNOTSUPP;
    case WEFT_ENOTAVAIL: return FI_EBUSY;
    case WEFT_EFAULT: return FI_EFAULT;
    case WEFT_EAVAIL: return FI_EAVAIL;
    case WEFT_ELOST: return FI_ECONNABORTED;
    case WEFT_EVERSION: return FI_ENOPROTOOPT;
    case WEFT_EFORKED: return FI_EOPBADSTATE;
    case WEFT_ESYSTEM: return FI_EIO;
    default: return FI_EINVAL;
    }
}

enum weft_status wfi_limit_passes(const struct weft_peer *peer, enum weft_status status)
{
    /* A peer is lost by ELIMIT if there is no descriptor for its connection. */
    return status == WEFT_ELIMIT && weft_peer_status(peer) != WEFT_ELIMIT ? WEFT_AGAIN : status;
}

ssize_t wfi_send_result(const struct weft_peer *peer, enum weft_status status)
{
    return wfi_result(wfi_limit_passes(peer, status));
}

ssize_t wfi_recv_result(const struct weft_peer *source, enum weft_status status)
{
    if ((status == WEFT_ELIMIT || status == WEFT_ESYSTEM) &&
        (!source || weft_peer_status(source) != status))
        return -FI_EAGAIN;
    return wfi_result(status);
}

enum weft_status wfi_status(int rc)
{
    switch (-rc) {
    case 0: return WEFT_OK;
    case FI_EAGAIN: return WEFT_AGAIN;
    case FI_EINVAL: return WEFT_ECANCELED; /* the entry was removed from the address vector */
    case FI_ENOMEM: return WEFT_ENOMEM;
    case FI_ENOBUFS: return WEFT_ELIMIT;
    case FI_EHOSTUNREACH: return WEFT_EUNREACH;
    case FI_ETIMEDOUT: return WEFT_ETIMEDOUT;
    case FI_ECONNRESET: return WEFT_EPEER;
    case FI_ECONNABORTED: return WEFT_ELOST;
    case FI_ESHUTDOWN: return WEFT_ECLOSED;
    case FI_EKEYREJECTED: return WEFT_EKEY;
    case FI_ENOKEY: return WEFT_ENOKEY;
    case FI_ENOPROTOOPT: return WEFT_EVERSION;
    default: return WEFT_ECANCELED;
    }
}

const char *wfi_strerror(int prov_errno, char *buf, size_t len)
{
    const char *text = weft_status_text((enum weft_status)prov_errno);
    if (buf && len)
        (void)snprintf(buf, len, "%s", text);
    return buf && len ? buf : text;
}

int wfi_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
    (void)fid, (void)bfid, (void)flags;
    return -FI_ENOSYS;
}

int wfi_no_control(struct fid *fid, int command, void *arg)
{
    (void)fid, (void)command, (void)arg;
    return -FI_ENOSYS;
}

int wfi_no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
    (void)fid, (void)name, (void)flags, (void)ops, (void)context;
    return -FI_ENOSYS;
}
