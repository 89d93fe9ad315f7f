/* SPDX-License-Identifier: BSD-3-Clause */
/* Weft's statuses as fabric errnos, and calls that objects do not have: status.c. */
#ifndef WFI_STATUS_H
#define WFI_STATUS_H

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <sys/types.h>
#include <weft/weft.h>

/* Returns the positive fabric errno of a negative [status]. */
int wfi_errno(enum weft_status status);
/* Returns what a call returns for [status]: 0, -FI_EAGAIN or a negative errno. */
static inline ssize_t wfi_result(enum weft_status status)
{
    return WEFT_UNLIKELY(status != WEFT_OK)
               ? (status == WEFT_AGAIN ? -FI_EAGAIN : -wfi_errno(status))
               : 0;
}
/* Returns AGAIN in place of ELIMIT, which passes when operations complete, unless [peer] is lost by
 * it. */
enum weft_status wfi_limit_passes(const struct weft_peer *peer, enum weft_status status);
/* Returns what a send or an access to [peer] returns for [status]. -FI_EAGAIN also if too many are
 * under way. */
ssize_t wfi_send_result(const struct weft_peer *peer, enum weft_status status);
/* Returns what a receive that names [source] (NULL: nobody) returns for [status]: as a send, and
 * -FI_EAGAIN also if the sender of a message cannot be answered now. */
ssize_t wfi_recv_result(const struct weft_peer *source, enum weft_status status);
/* Returns the status for the negative errno [rc] of a call of this provider. */
enum weft_status wfi_status(int rc);
const char *wfi_strerror(int prov_errno, char *buf, size_t len);

/* ---- calls that objects lack ---- */

int wfi_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags);
int wfi_no_control(struct fid *fid, int command, void *arg);
int wfi_no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);

#endif
