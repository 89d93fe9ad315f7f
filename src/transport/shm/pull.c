/* SPDX-License-Identifier: BSD-3-Clause */
/* Copying from the memory of a local process by process_vm_readv(2).
 *
 * How is it proved that the bytes come from the right program? A process that calls exec(2) keeps
 * its pid, its start time and its pidfd. The kernel first replaces the memory (exec_mmap), then
 * closes descriptors (do_close_on_exec; both in fs/exec.c, begin_new_exec). Other processes see the
 * end of a socket only when exec returns to user mode (fput). Before that, they can already read
 * the memory of the new program. A forked child can keep a socket open, too. So no check of a
 * descriptor before or after the copy proves that the bytes are those of the old program.
 *
 * The copy itself is the proof. Each context has a mark: a page of its own that begins with the
 * context's token, 16 random bytes. One system call reads both the mark and the data. The kernel
 * takes one reference to one memory map at the beginning of the call, and reads everything through
 * it (mm/process_vm_access.c, process_vm_rw_core). So if the mark is correct, the data come from
 * the memory map in which the context was opened. The context is then still open, because closing
 * it unmaps the page. A new program, or another process with a reused id, would need the same 16
 * bytes at that address by chance. In a forked child the page is wiped. The mark is the first range
 * of the call: if the mark is not mapped, the kernel copies nothing.
 *
 * The id that is passed to the kernel is that of the service thread, which lives as long as the
 * context and does not survive an exec. The pid, which is the id of the first thread, cannot be
 * used: if the first thread has ended by pthread_exit(3), process_vm_readv fails with ESRCH. */
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

/* Create the mark, and permit other processes to read the memory of this process. With the Yama
 * security module at scope 1, Ubuntu's default, only ancestors may read a process's memory. With
 * prctl a process permits others to read it, too: here all processes of the same user, because Weft
 * trusts them. */
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

/* Returns why the process cannot be read: it has ended, runs another program, or has closed its
 * context. Returns EPEER if the reason is not known yet. */
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
        return WEFT_EPEER; /* killed for lack of memory: the kernel frees its pages first */
    wf_error("process %u named memory for a copy that cannot be read: %s", proc->id.pid,
             strerror(error));
    return WEFT_EPROTO;
}

/* The bytes could not be read, or the word after them could not. Returns ECANCELED if the reason is
 * that the owner has taken them back. */
static enum weft_status pull_refused(const struct shm_proc *proc, const struct wf_pull_from *from)
{
    uint64_t word;
    struct iovec here = {&word, sizeof word};
    struct iovec there = {(void *)(uintptr_t)from->word.addr, sizeof word};
    if (from->word.addr &&
        process_vm_readv((int)proc->mark_tid, &here, 1, &there, 1, 0) == (ssize_t)sizeof word &&
        word != from->word.value)
        return WEFT_ECANCELED;
    return pull_failed(proc, EFAULT);
}

/* The kernel copies the ranges in the order of the call, so the word is read after the bytes: if it
 * has its value, its owner had not changed it when the bytes were read. */
enum weft_status wf_shm_pull(struct wf_tpeer *tpeer, void *dst, const struct wf_pull_from *from,
                             size_t len)
{
    struct shm_peer *peer = SHM_OF(tpeer, shm_peer);
    const struct shm_proc *proc = peer->proc;
    uint64_t mark = wf_load_acquire(&proc->mark); /* "mark" */
    uint64_t seen[2], word = from->word.value;
    struct iovec here[3] = {{seen, sizeof seen}, {dst, len}, {&word, sizeof word}};
    struct iovec there[3] = {{(void *)(uintptr_t)mark, sizeof seen},
                             {(void *)(uintptr_t)from->addr, len},
                             {(void *)(uintptr_t)from->word.addr, sizeof word}};
    unsigned long ranges = from->word.addr ? 3 : 2;
    size_t all = sizeof seen + len + (from->word.addr ? sizeof word : 0);
    ssize_t got;
    if (wf_shm_same(&proc->id, &wf_shm_tep_of(peer)->ctx->self))
        return wf_pull_here(dst, from, len);
    if (!wf_config()->shm_pull)
        return WEFT_EUNREACH;
    if (!mark) /* neither HELLO nor WELCOME has come from the process */
        return down_status(proc);
    WF_HOOK("pull.begin");
    got = process_vm_readv((int)proc->mark_tid, here, ranges, there, ranges, 0);
    if (got < 0 && errno != EFAULT)
        return pull_failed(proc, errno);
    if (got < (ssize_t)sizeof seen || memcmp(seen, proc->id.token, sizeof seen) != 0)
        return down_status(proc);
    if ((size_t)got != all)
        return pull_refused(proc, from);
    WF_HOOK("pull.end");
    return word == from->word.value ? WEFT_OK : WEFT_ECANCELED;
}
