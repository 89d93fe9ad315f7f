/* SPDX-License-Identifier: BSD-3-Clause */
/* Copying out of a mate's memory through the kernel: process_vm_readv(2). Only
 * towards a process whose pidfd says before and after that it lives, so that a
 * reused pid is never read. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <string.h>

#include "base/hook.h"
#include "base/log.h"
#include "base/process.h"
#include "config/config.h"
#include "transport/shm/shm.h"

/* The Yama security module's scope 1, Ubuntu's default, lets only ancestors look
 * at a process unless it names others. Within a uid Weft trusts. */
void wf_shm_pull_allow(void)
{
    if (wf_config()->shm_pull)
        (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* EINVAL: no Yama */
}

static enum weft_status pull_failed(int error, int pid)
{
    if (error == ESRCH)
        return WEFT_EPEER;
    if (error == EPERM || error == ENOSYS || error == ENOMEM)
        return WEFT_EUNREACH;
    wf_error("process %d named memory for a copy that cannot be read: %s", pid, strerror(error));
    return WEFT_EPROTO;
}

enum weft_status wf_shm_pull(struct wf_tpeer *tpeer, void *dst, uint64_t src, size_t len)
{
    struct shm_peer *peer = SHM_OF(tpeer, shm_peer);
    const struct shm_mate *mate = peer->mate;
    int pid = (int)mate->id.pid, fd = mate->pid.fd;
    struct iovec here = {dst, len}, there = {(void *)(uintptr_t)src, len};
    ssize_t got;
    int error;
    if (wf_shm_same(&mate->id, &SHM_OF(tpeer->tep, shm_tep)->ctx->self)) {
        memmove(dst, (const void *)(uintptr_t)src, len); /* another endpoint of this context */
        return WEFT_OK;
    }
    if (!wf_config()->shm_pull)
        return WEFT_EUNREACH;
    if (fd < 0 || wf_pidfd_ended(fd)) /* no descriptor: it was gone when it was first looked for */
        return WEFT_EPEER;
    WF_HOOK("pull.begin");
    got = process_vm_readv(pid, &here, 1, &there, 1, 0);
    error = got < 0 ? errno : (size_t)got != len ? EFAULT : 0;
    if (error == EFAULT && wf_process_exiting(pid))
        return WEFT_EPEER; /* its memory goes before its pidfd tells */
    if (error)
        return pull_failed(error, pid);
    WF_HOOK("pull.end");
    return wf_pidfd_ended(fd) ? WEFT_EPEER : WEFT_OK;
}
