/* SPDX-License-Identifier: BSD-3-Clause */
/* Copying from a local process's memory through the kernel: process_vm_readv(2).
 *
 * Is it the right memory? A process that calls exec(2) keeps its pid, its start time and its pidfd.
 * Its new memory can be read before its sockets end: the kernel swaps the memory (exec_mmap) and
 * closes descriptors afterwards (do_close_on_exec, both in fs/exec.c begin_new_exec), and a closed
 * socket takes effect only when the exec returns to user mode (fput), when the new program is
 * mapped. A forked child can keep a socket open, too. So no check of a descriptor before or after
 * the copy proves that the copied bytes are the old program's.
 *
 * The copy itself proves it. Each context keeps a mark: its token, 16 random bytes, in a page
 * of its own. One system call reads the mark and the data. It takes one reference to one memory
 * map when it begins and reads everything through that (mm/process_vm_access.c,
 * process_vm_rw_core), so a correct mark means that the data come from the memory map in which the
 * context was opened, and that it is open: closing it unmaps the page. A new program, or another
 * process under a reused id, would need the 16 bytes at that address by accident; a forked child
 * finds the page wiped. The mark is the first range: if it is not mapped, nothing is copied.
 *
 * The id passed to the kernel is the service thread's, which lives as long as the context and does
 * not survive an exec. The first thread, whose id is the pid, may have ended by pthread_exit(3) and
 * then has no memory (ESRCH). */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <string.h>

#include "base/hook.h"
#include "base/log.h"
#include "base/process.h"
#include "config/config.h"
#include "transport/shm/shm.h"

#define MARK_PAGE 4096u

/* The Yama security module's scope 1, Ubuntu's default, lets only ancestors read a process's memory
 * unless that process permits others. Weft trusts all processes of its uid. */
enum weft_status wf_shm_pull_allow(struct shm_ctx *ctx)
{
    void *p = mmap(NULL, MARK_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        wf_error("cannot map a page: %m");
        return WEFT_ENOMEM;
    }
    memcpy(p, ctx->self.token, sizeof ctx->self.token);
    (void)madvise(p, MARK_PAGE, MADV_WIPEONFORK);
    ctx->mark = p;
    if (wf_config()->shm_pull)
        (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* EINVAL: no Yama */
    return WEFT_OK;
}

void wf_shm_pull_end(struct shm_ctx *ctx)
{
    if (ctx->mark)
        munmap(ctx->mark, MARK_PAGE);
    ctx->mark = NULL;
}

/* The process has ended, runs another program, or closed its context. EPEER if it is not known
 * which. */
static enum weft_status down_status(const struct shm_proc *proc)
{
    return (enum weft_status)wf_load_acquire(&proc->down) ?: WEFT_EPEER;
}

static enum weft_status pull_failed(const struct shm_proc *proc, int error)
{
    if (error == ESRCH)
        return down_status(proc);
    if (error == EPERM || error == ENOSYS || error == ENOMEM)
        return WEFT_EUNREACH;
    if (error == EFAULT && wf_process_exiting((int)proc->id.pid))
        return WEFT_EPEER; /* killed for want of memory: its pages go first */
    wf_error("process %u named memory for a copy that cannot be read: %s", proc->id.pid,
             strerror(error));
    return WEFT_EPROTO;
}

enum weft_status wf_shm_pull(struct wf_tpeer *tpeer, void *dst, uint64_t src, size_t len)
{
    struct shm_peer *peer = SHM_OF(tpeer, shm_peer);
    const struct shm_proc *proc = peer->proc;
    uint64_t mark = wf_load_acquire(&proc->mark); /* "mark" */
    uint64_t seen[2];
    struct iovec here[2] = {{seen, sizeof seen}, {dst, len}};
    struct iovec there[2] = {{(void *)(uintptr_t)mark, sizeof seen}, {(void *)(uintptr_t)src, len}};
    ssize_t got;
    if (wf_shm_same(&proc->id, &SHM_OF(tpeer->tep, shm_tep)->ctx->self)) {
        memmove(dst, (const void *)(uintptr_t)src, len); /* an endpoint of this context */
        return WEFT_OK;
    }
    if (!wf_config()->shm_pull)
        return WEFT_EUNREACH;
    if (!mark) /* it has not sent a greeting, or its connection is over */
        return down_status(proc);
    WF_HOOK("pull.begin");
    got = process_vm_readv((int)proc->mark_tid, here, 2, there, 2, 0);
    if (got < 0 && errno != EFAULT)
        return pull_failed(proc, errno);
    if (got < (ssize_t)sizeof seen || memcmp(seen, proc->id.token, sizeof seen) != 0)
        return down_status(proc);
    if ((size_t)got != sizeof seen + len)
        return pull_failed(proc, EFAULT);
    WF_HOOK("pull.end");
    return WEFT_OK;
}
