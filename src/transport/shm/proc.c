/* SPDX-License-Identifier: BSD-3-Clause */
/* The client side: the local processes to which this process has peers. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/process.h"
#include "transport/shm/service.h"

static bool is_self(const struct shm_ctx *ctx, const struct wf_process_id *id)
{
    return wf_shm_same(id, &ctx->self);
}

/* Watch for the end of [proc]'s process by a pidfd. If the process that has the pid now did not
 * start at the time proc->id.start, it is another process: [proc]'s process has ended. */
static UNDER_LOCK enum weft_status proc_watch(struct shm_ctx *ctx, struct shm_proc *proc)
{
    uint64_t start;
    proc->pid.fd = wf_pidfd_open((int)proc->id.pid);
    start = proc->pid.fd < 0 ? 0 : wf_process_start((int)proc->id.pid);
    if (!start && errno != ESRCH && errno != ENOENT) {
        wf_error("cannot watch process %u: %m%s", proc->id.pid,
                 errno == EMFILE ? " (raise the limit on open files, ulimit -n)" : "");
        return WEFT_ESYSTEM;
    }
    if (!wf_process_is_start(start, proc->id.start)) {
        if (proc->pid.fd >= 0) /* the pidfd of another process, which has reused the pid */
            close(proc->pid.fd);
        proc->pid.fd = -1;
        proc->down = WEFT_EPEER;
        /* The messages that the process sent are delivered before its loss is reported. */
        wf_shm_clients_down(ctx, &proc->id, WEFT_EPEER);
        return WEFT_OK;
    }
    return wf_shm_watch_add(ctx, &proc->pid, EPOLLIN) ? WEFT_ESYSTEM : WEFT_OK;
}

static void mark_set(struct shm_proc *proc, uint64_t mark, uint32_t tid)
{
    if (!mark || wf_load_relaxed(&proc->mark))
        return;
    proc->mark_tid = tid;
    wf_store_release(&proc->mark, mark); /* "mark" */
}

struct shm_proc *wf_shm_proc_ref(struct shm_ctx *ctx, const struct wf_process_id *id,
                                 enum weft_status *why)
{
    struct shm_proc *proc;
    wf_list_each(it, &ctx->procs)
    {
        proc = wf_container_of(it, struct shm_proc, item);
        if (wf_shm_same(&proc->id, id)) {
            proc->refs++;
            return proc;
        }
    }
    proc = calloc(1, sizeof *proc);
    if (!proc) {
        *why = WEFT_ENOMEM;
        return NULL;
    }
    proc->id = *id;
    proc->sock = (struct shm_watch){SHM_WATCH_PROC_SOCK, -1};
    proc->pid = (struct shm_watch){SHM_WATCH_PROC_PID, -1};
    wf_list_init(&proc->slabs);
    wf_list_init(&proc->txs);
    if (is_self(ctx, id))
        wf_store_relaxed(&proc->endpoints,
                         (const uint64_t *)(const void *)ctx->mem->state + WF_MEM_STATE_WORDS);
    *why = is_self(ctx, id) ? WEFT_OK : proc_watch(ctx, proc);
    if (*why != WEFT_OK) {
        wf_shm_watch_close(ctx, &proc->pid);
        free(proc);
        return NULL;
    }
    proc->refs = 1;
    wf_list_append(&ctx->procs, &proc->item);
    /* If that process has already connected to this one, its HELLO stated the mark. */
    wf_list_each(it, &ctx->clients)
    {
        const struct shm_client *client = wf_container_of(it, struct shm_client, item);
        if (client->hello_received && wf_shm_same(&client->id, id))
            mark_set(proc, client->mark, client->mark_tid);
    }
    return proc;
}

void wf_shm_proc_set_mark(struct shm_ctx *ctx, const struct wf_process_id *id, uint64_t mark,
                          uint32_t tid)
{
    wf_list_each(it, &ctx->procs)
    {
        struct shm_proc *proc = wf_container_of(it, struct shm_proc, item);
        if (wf_shm_same(&proc->id, id))
            mark_set(proc, mark, tid);
    }
}

/* Release one reference. When the last reference is released, stop watching the process. The
 * service thread frees the object later, because it may hold events that point to the object. */
void wf_shm_proc_unref(struct shm_ctx *ctx, struct shm_proc *proc)
{
    if (--proc->refs)
        return;
    wf_shm_bye_send(&proc->sock);
    wf_shm_watch_close(ctx, &proc->sock);
    wf_shm_watch_close(ctx, &proc->pid);
    wf_list_remove(&proc->item);
    wf_list_append(&ctx->unused_procs, &proc->item);
    wf_shm_kick(ctx);
}

void wf_shm_proc_free(struct shm_ctx *ctx, struct shm_proc *proc)
{
    wf_shm_watch_close(ctx, &proc->sock);
    wf_shm_watch_close(ctx, &proc->pid);
    wf_shm_slabs_free(proc);
    if (proc->state)
        munmap(proc->state, WF_MEM_STATE_SIZE);
    if (proc->bells)
        munmap(proc->bells, WF_SHM_BELLS_SIZE);
    wf_list_remove(&proc->item);
    free(proc);
}

/* Replace the generation words of the process by zeroes, so that all remotes of the process are
 * invalid from now on. Also called in a forked child. */
void wf_shm_proc_wipe(struct shm_proc *proc)
{
    /* mmap is called as a raw system call, because ThreadSanitizer treats mmap(3) as a write that
     * races with the readers. The kernel replaces the pages atomically, under its lock for page
     * faults. */
    if (proc->state && syscall(SYS_mmap, proc->state, WF_MEM_STATE_SIZE, PROT_READ,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == -1)
        wf_error("cannot wipe the state of process %u: %m; puts to it may seem to succeed",
                 proc->id.pid);
}

/* Called when [proc]'s process is lost. First makes all remotes of that process invalid, then
 * notifies the owners of its peers. */
void wf_shm_proc_down(struct shm_ctx *ctx, struct shm_proc *proc, enum weft_status why)
{
    if (proc->down)
        return;
    proc->down = why;
    wf_shm_proc_wipe(proc);
    /* Perhaps [proc]'s process still lives. Then BYE keeps that process from taking the end of this
     * connection for the death of this process. */
    wf_shm_bye_send(&proc->sock);
    wf_shm_watch_close(ctx, &proc->sock);
    wf_shm_watch_stop(ctx, &proc->pid);
    wf_list_each(it, &proc->slabs)
    {
        struct shm_slab *slab = wf_container_of(it, struct shm_slab, item);
        if (slab->status == WEFT_PENDING)
            slab->status = why;
    }
    wf_list_each(x, &proc->txs) wf_shm_tx_fail(wf_container_of(x, struct shm_tx, proc_item), why);
    wf_list_each(t, &ctx->teps) wf_shm_notify_lost(wf_container_of(t, struct shm_tep, item));
    pthread_cond_broadcast(&ctx->changed);
}

static UNDER_LOCK enum weft_status connect_failed(struct shm_ctx *ctx, struct shm_proc *proc)
{
    enum weft_status why = WEFT_ESYSTEM;
    if (errno == EAGAIN) /* the backlog of that process's socket is full */
        return WEFT_AGAIN;
    /* Nobody listens at the address: the process has closed its context or has died. */
    if (errno == ECONNREFUSED)
        why = wf_pidfd_ended(proc->pid.fd) || wf_process_exiting((int)proc->id.pid) ? WEFT_EPEER
                                                                                    : WEFT_ECLOSED;
    else
        wf_error("cannot connect to process %u: %m", proc->id.pid);
    if (why != WEFT_ESYSTEM)
        wf_shm_process_down(ctx, &proc->id, why);
    return why;
}

static enum weft_status peer_check(const struct shm_ctx *ctx, struct shm_proc *proc, int sock)
{
    struct ucred cred;
    socklen_t len = sizeof cred;
    if (!getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) && cred.uid == ctx->uid &&
        (uint32_t)cred.pid == proc->id.pid)
        return WEFT_OK;
    wf_error("the socket of process %u is held by another user or process: not connecting",
             proc->id.pid);
    return WEFT_EUNREACH;
}

/* Connect to [proc]'s service thread, if not connected yet. Never blocks: the kernel queues the
 * connection, and the packets sent on it, until the service thread accepts it. */
enum weft_status wf_shm_proc_connect(struct shm_ctx *ctx, struct shm_proc *proc)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    struct wf_packet hello = {.flags = ctx->membarrier ? WF_PACKET_MEMBARRIER : 0};
    enum weft_status status;
    char name[64];
    int sock;
    if (proc->down)
        return (enum weft_status)proc->down;
    if (proc->sock.fd >= 0)
        return WEFT_OK;
    sock = wf_fd_high(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (sock < 0) {
        if (!ctx->fd_limit_logged) /* logged once, not at each try */
            wf_error("cannot open a socket: %m (raise the limit on open files, ulimit -n)");
        ctx->fd_limit_logged = true;
        return WEFT_ESYSTEM;
    }
    wf_shm_socket_name(proc->id.token, name);
    memcpy(sa.sun_path, name, strlen(name + 1) + 1);
    if (connect(sock, (struct sockaddr *)&sa,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name + 1)))) {
        status = connect_failed(ctx, proc);
        close(sock);
        return status;
    }
    status = peer_check(ctx, proc, sock);
    hello.u.greeting = wf_shm_greeting(ctx);
    if (status == WEFT_OK && wf_packet_send(sock, &hello, WF_PACKET_HELLO, NULL, 0))
        status = WEFT_AGAIN;
    proc->sock.fd = sock;
    if (status == WEFT_OK && wf_shm_watch_add(ctx, &proc->sock, EPOLLIN))
        status = WEFT_ESYSTEM;
    if (status != WEFT_OK)
        wf_shm_watch_close(ctx, &proc->sock);
    return status;
}

/* Connect, so that [proc]'s process can report when it closes an endpoint. If connecting fails for
 * now, the service thread retries every 100 ms. Returns OK, or EUNREACH if connecting can never
 * succeed. Also returns OK if the process is lost: an event reports the loss. */
static UNDER_LOCK enum weft_status proc_heed(struct shm_ctx *ctx, struct shm_proc *proc)
{
    enum weft_status status = wf_shm_proc_connect(ctx, proc);
    proc->connect_due = status != WEFT_OK && status != WEFT_EUNREACH && !proc->down;
    if (proc->connect_due)
        wf_shm_tick(ctx);
    return status == WEFT_EUNREACH ? status : WEFT_OK;
}

void wf_shm_procs_connect_due(struct shm_ctx *ctx)
{
    wf_list_each(it, &ctx->procs)
    {
        struct shm_proc *proc = wf_container_of(it, struct shm_proc, item);
        if (proc->connect_due)
            (void)proc_heed(ctx, proc);
    }
}

__attribute__((noinline)) static enum weft_status heed_slow(struct shm_peer *peer)
{
    struct shm_ctx *ctx = wf_shm_tep_of(peer)->ctx;
    enum weft_status status;
    shm_lock(ctx);
    status = proc_heed(ctx, peer->proc);
    shm_unlock(ctx);
    /* The endpoint may have been closed before this process connected. */
    if (!peer->reported && wf_shm_peer_gone(peer))
        wf_shm_peer_fail(peer, (enum weft_status)wf_shm_peer_gone(peer));
    return status;
}

/* Implements heed of transport.h. The return value never reports that the peer is lost. Poll
 * reports the loss, after the peer's messages. */
enum weft_status wf_shm_heed(struct wf_tpeer *tpeer)
{
    struct shm_peer *peer = SHM_OF(tpeer, shm_peer);
    const uint64_t *words = wf_load_acquire(&peer->proc->endpoints);
    if (__builtin_expect(
            words && __atomic_load_n(&words[peer->ep], __ATOMIC_RELAXED) == peer->ep_gen, 1))
        return WEFT_OK;
    return heed_slow(peer);
}

static struct shm_tx *tx_of_cookie(struct shm_proc *proc, uint32_t cookie)
{
    wf_list_each(it, &proc->txs)
    {
        struct shm_tx *tx = wf_container_of(it, struct shm_tx, proc_item);
        if (tx->cookie == cookie)
            return tx;
    }
    return NULL;
}

/* Handle RING_OK, which brings the receiver's event descriptor. The order matters. First store the
 * descriptor, then stop the fences. Then wake the receiver once, because messages may have been
 * sent while this side had no descriptor to wake the receiver. */
static enum weft_status ring_ready(struct shm_ctx *ctx, struct shm_proc *proc,
                                   const struct wf_packet *p, int fd)
{
    struct shm_tx *tx = tx_of_cookie(proc, p->cookie);
    bool is_first = tx && wf_load_relaxed(&tx->wake_fd) < 0;
    struct wf_shm_bell *bell = proc->bells ? &proc->bells[p->u.ring_ok.bell] : NULL;
    uint64_t one = 1;
    if (!bell || !wf_shm_is_eventfd(fd)) {
        close(fd);
        return WEFT_EPROTO;
    }
    if (is_first) {
        tx->bell = bell;
        tx->bell_bit = p->u.ring_ok.bit;
        wf_store_release(&tx->wake_fd, fd); /* "wake" */
        if (ctx->membarrier && (p->flags & WF_PACKET_MEMBARRIER))
            wf_store_release(&tx->fence, 0);
    }
    /* Wake the receiver even if this side has closed the connection in the meantime, because
     * messages may have been sent on it before. */
    wf_shm_bell_ring(bell, p->u.ring_ok.bit);
    if (write(fd, &one, sizeof one) < 0 && errno != EAGAIN)
        wf_warn("cannot wake process %u: %m", proc->id.pid);
    if (is_first)
        wf_shm_tx_accepted(tx); /* after the bell: the receiver now finds all that was sent */
    else
        close(fd);
    return WEFT_OK;
}

static void ring_refused(struct shm_proc *proc, const struct wf_packet *p)
{
    struct shm_tx *tx = tx_of_cookie(proc, p->cookie);
    int32_t why = p->u.ring_no.status;
    if (tx)
        wf_shm_tx_fail(tx, why == WEFT_EPROTO || why == WEFT_ELIMIT || why == WEFT_ENOMEM
                               ? (enum weft_status)why
                               : WEFT_ECLOSED);
}

static enum weft_status welcome_handle(struct shm_proc *proc, const struct wf_packet *p,
                                       const int fds[2])
{
    enum weft_status status = proc->state ? WEFT_EPROTO : WEFT_OK;
    void *state = NULL, *bells = NULL;
    if (status == WEFT_OK)
        status = wf_shared_map(fds[0], WF_MEM_STATE_SIZE, 0, &state);
    if (status == WEFT_OK)
        status = wf_shared_map(fds[1], WF_SHM_BELLS_SIZE, 1, &bells);
    close(fds[0]);
    close(fds[1]);
    if (status != WEFT_OK) {
        if (state)
            munmap(state, WF_MEM_STATE_SIZE);
        wf_error("process %u: its state segment cannot be mapped: %s", proc->id.pid,
                 weft_status_text(status));
        return status;
    }
    proc->state = state;
    proc->bells = bells;
    proc->flags = p->flags;
    wf_store_release(&proc->endpoints, proc->state + WF_MEM_STATE_WORDS);
    mark_set(proc, p->u.greeting.mark, p->u.greeting.tid);
    return WEFT_OK;
}

/* Called when another process may have closed an endpoint. Makes all owners check their peers. */
void wf_shm_endpoints_recheck(struct shm_ctx *ctx)
{
    ctx->endpoints_recheck_due = false;
    wf_list_each(it, &ctx->teps) wf_shm_notify_lost(wf_container_of(it, struct shm_tep, item));
}

/* Handle an answer whose descriptors were lost, because this process had too few free ones. */
static enum weft_status answer_lost(struct shm_ctx *ctx, struct shm_proc *proc,
                                    const struct wf_packet *p)
{
    struct shm_tx *tx = p->type == WF_PACKET_RING_OK ? tx_of_cookie(proc, p->cookie) : NULL;
    wf_error("an answer of process %u was lost: out of descriptors (raise the limit on open files, "
             "ulimit -n)",
             proc->id.pid);
    if (tx) /* the receiver of [tx] could never be woken */
        wf_shm_tx_fail(tx, WEFT_ELIMIT);
    if (p->type == WF_PACKET_SLAB_OK)
        wf_shm_slab_answer(ctx, proc, p, -1);
    return p->type == WF_PACKET_WELCOME ? WEFT_ELIMIT : WEFT_OK;
}

static UNDER_LOCK enum weft_status answer_handle(struct shm_ctx *ctx, struct shm_proc *proc,
                                                 const struct wf_packet *p,
                                                 const int fds[WF_PACKET_FDS], int nfds)
{
    if (nfds == WF_PACKET_LOST)
        return answer_lost(ctx, proc, p);
    switch (p->type) {
    case WF_PACKET_WELCOME:
        if (welcome_handle(proc, p, fds) != WEFT_OK)
            return WEFT_EPROTO;
        wf_shm_maps_changed(ctx);
        /* The server reports only the endpoints that it closes after it has sent WELCOME. Find the
         * endpoints that it closed before. */
        wf_shm_endpoints_recheck(ctx);
        return WEFT_OK;
    case WF_PACKET_LEFT: wf_shm_endpoints_recheck(ctx); return WEFT_OK;
    case WF_PACKET_RING_OK: return ring_ready(ctx, proc, p, fds[0]);
    case WF_PACKET_RING_NO: ring_refused(proc, p); return WEFT_OK;
    case WF_PACKET_SLAB_OK: wf_shm_slab_answer(ctx, proc, p, fds[0]); return WEFT_OK;
    case WF_PACKET_SLAB_NO: wf_shm_slab_answer(ctx, proc, p, -1); return WEFT_OK;
    case WF_PACKET_BYE: proc->bye_received = true; return WEFT_OK;
    default: break; /* a request: only clients send those */
    }
    for (int i = 0; i < nfds; i++)
        close(fds[i]);
    return WEFT_EPROTO;
}

/* Has [proc]'s process itself closed the connection, rather than died? A process that closes the
 * connection sends BYE first. If it closes its context and the socket has no room for BYE, a word
 * in its state segment says so. */
static bool closed_in_order(const struct shm_proc *proc)
{
    return proc->bye_received ||
           (proc->state && __atomic_load_n(&proc->state[WF_MEM_STATE_LEFT], __ATOMIC_ACQUIRE));
}

static UNDER_LOCK void proc_read(struct shm_ctx *ctx, struct shm_proc *proc, int most)
{
    while (most-- && proc->sock.fd >= 0) {
        struct wf_packet p;
        int fds[WF_PACKET_FDS], nfds = 0;
        int got = wf_packet_recv(proc->sock.fd, &p, fds, &nfds);
        enum weft_status why = WEFT_OK;
        if (got > 0) {
            why = answer_handle(ctx, proc, &p, fds, nfds);
        } else {
            if (got < 0 && errno == EAGAIN)
                return;
            /* If the other side closed its socket and left packets unread, recvmsg fails once with
             * ECONNRESET. Then it returns the packets that the other side sent. */
            if (got < 0 && (errno == ECONNRESET || errno == EINTR))
                continue;
            why = got < 0 && errno == EPROTO ? WEFT_EPROTO
                  : closed_in_order(proc)    ? WEFT_ECLOSED
                                             : WEFT_EPEER;
        }
        if (why == WEFT_EPROTO)
            wf_error("process %u broke the protocol; its connection is closed", proc->id.pid);
        if (why != WEFT_OK)
            wf_shm_process_down(ctx, &proc->id, why);
    }
}

void wf_shm_proc_event(struct shm_ctx *ctx, struct shm_proc *proc, enum shm_watch_kind kind)
{
    /* Packets that the process sent before it ended are still handled. */
    proc_read(ctx, proc, kind == SHM_WATCH_PROC_PID ? WF_SHM_READ_REST : WF_SHM_READ_SOME);
    if (kind == SHM_WATCH_PROC_PID && !proc->down)
        wf_shm_process_down(ctx, &proc->id, closed_in_order(proc) ? WEFT_ECLOSED : WEFT_EPEER);
}
