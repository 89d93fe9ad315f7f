/* SPDX-License-Identifier: BSD-3-Clause */
/* The server's side: processes that connected to this one. Under ctx->lock: the service thread runs
 * this, but for wf_shm_links_read and wf_shm_link_left, which an endpoint's owner also calls. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/fd.h"
#include "base/process.h"
#include "transport/shm/shm.h"

/* Connections that one process may hold to this one: 64 endpoints with
 * WEFT_SHM_RINGS' default each. Each costs a descriptor and two mappings here. */
#define RINGS_MAX 4096u

/* Links that one process may hold: one for each pair of its contexts and ours. */
#define LINKS_MAX 1024u
#define REFUSALS_LOGGED 10u

static void link_open(struct shm_ctx *ctx, int sock, int pid)
{
    struct shm_link *link = calloc(1, sizeof *link);
    if (!link) {
        close(sock);
        return;
    }
    link->sock = (struct shm_watch){SHM_WATCH_LINK_SOCK, sock};
    link->pid = (struct shm_watch){SHM_WATCH_LINK_PID, -1};
    link->from_pid = pid;
    wf_list_init(&link->rxs);
    wf_list_append(&ctx->links, &link->item);
    if (wf_shm_watch_add(ctx, &link->sock, EPOLLIN))
        wf_shm_link_down(ctx, link, WEFT_ESYSTEM);
}

static unsigned links_of(const struct shm_ctx *ctx, int pid)
{
    unsigned n = 0;
    wf_list_each(it, &ctx->links) n += wf_container_of(it, struct shm_link, item)->from_pid == pid;
    return n;
}

/* Whose connection is it? unix(7) SO_PEERCRED: the credentials at connect(2), the
 * kernel's word. The pid, or -1 if it is not to be served. */
static int caller_of(struct shm_ctx *ctx, int sock)
{
    struct ucred cred;
    socklen_t len = sizeof cred;
    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len))
        return -1;
    if (cred.uid == ctx->self.uid && links_of(ctx, cred.pid) < LINKS_MAX)
        return cred.pid;
    if (ctx->refused++ >= REFUSALS_LOGGED) /* a flood of them shall not flood the log */
        return -1;
    if (cred.uid == ctx->self.uid)
        wf_warn("process %d has %u connections: no more", (int)cred.pid, LINKS_MAX);
    else
        wf_warn("process %d of user %u tried to connect; refused: Weft talks to its own user only",
                (int)cred.pid, (unsigned)cred.uid);
    return -1;
}

/* Say it once, not at each tick. */
static void starve(struct shm_ctx *ctx, const char *what)
{
    if (!ctx->starved)
        wf_error("%s: %m (raise the limit on open files, ulimit -n); will try again", what);
    ctx->starved = true;
}

/* False: none was waiting. */
bool wf_shm_link_accept(struct shm_ctx *ctx)
{
    int sock = wf_fd_high(accept4(ctx->listen.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)), pid;
    if (sock < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            starve(ctx, "cannot accept a peer");
            (void)epoll_ctl(ctx->epoll_fd, EPOLL_CTL_DEL, ctx->listen.fd, NULL);
            ctx->listen_paused = true;
            wf_shm_tick(ctx);
        }
        return false;
    }
    ctx->starved = false;
    pid = caller_of(ctx, sock);
    if (pid < 0)
        close(sock); /* before a byte of it is read */
    else
        link_open(ctx, sock, pid);
    return true;
}

/* Nothing more comes from this process: its connections end once drained. */
void wf_shm_link_down(struct shm_ctx *ctx, struct shm_link *link, enum weft_status why)
{
    link->dead = true;
    wf_shm_goodbye(&link->sock); /* if it lives: this is not a death */
    wf_shm_watch_close(ctx, &link->sock);
    wf_shm_watch_close(ctx, &link->pid);
    wf_list_each_safe(it, nx, &link->rxs)
    {
        struct shm_rx *rx = wf_container_of(it, struct shm_rx, link_item);
        wf_list_remove(it);
        wf_store_release(&rx->down, (int)why);
        wf_shm_notify(rx->tep);
    }
}

static void answer_drop(struct shm_link *link)
{
    link->blocked = link->later = link->greet = false;
    while (link->answer_nfds)
        close(link->answer_fds[--link->answer_nfds]);
}

void wf_shm_link_free(struct shm_ctx *ctx, struct shm_link *link)
{
    (void)ctx;
    wf_list_remove(&link->item);
    answer_drop(link);
    free(link);
}

/* Room in the socket is announced; room for descriptors is not, the next tick
 * tries. The other side's end is always announced. */
static void link_interest(struct shm_ctx *ctx, struct shm_link *link)
{
    struct epoll_event ev = {.data.ptr = &link->sock};
    ev.events = link->later ? 0 : link->blocked ? EPOLLOUT : EPOLLIN;
    if (link->sock.fd >= 0 && epoll_ctl(ctx->epoll_fd, EPOLL_CTL_MOD, link->sock.fd, &ev))
        wf_error("epoll_ctl: %m");
}

/* Send the link's answer; one that does not fit waits, and with it the link. */
static void answer_send(struct shm_ctx *ctx, struct shm_link *link)
{
    int failed = wf_packet_send(link->sock.fd, &link->answer, link->answer_type, link->answer_fds,
                                link->answer_nfds)
                     ? errno
                     : 0;
    link->later = failed == ETOOMANYREFS || failed == ENOBUFS || failed == ENOMEM;
    link->blocked = link->later || failed == EAGAIN;
    if (link->later)
        wf_shm_tick(ctx);
    if (!link->blocked)
        answer_drop(link);
    link_interest(ctx, link);
}

/* Takes [fds]. */
static void answer(struct shm_ctx *ctx, struct shm_link *link, enum wf_packet_type type,
                   const int *fds, int nfds, const struct wf_packet *p)
{
    link->answer = *p;
    link->answer_type = type;
    link->answer_nfds = nfds;
    for (int i = 0; i < nfds; i++)
        link->answer_fds[i] = fds[i];
    answer_send(ctx, link);
}

/* Who it says it is must be who the kernel says. Its pidfd tells of its death
 * even while a child of it holds the socket open. */
static bool hello_take(struct shm_ctx *ctx, struct shm_link *link, const struct wf_packet *p)
{
    struct ucred cred;
    socklen_t len = sizeof cred;
    if (link->hello || getsockopt(link->sock.fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) ||
        (uint32_t)cred.pid != p->u.hello.pid)
        return false;
    link->id = p->u.hello;
    link->flags = p->flags;
    link->mark = p->u.greeting.mark;
    link->mark_tid = p->u.greeting.tid;
    link->hello = true;
    wf_shm_proc_set_mark(ctx, &link->id, link->mark, link->mark_tid);
    link->pid.fd = wf_pidfd_open((int)cred.pid);
    if (link->pid.fd < 0 && errno != ESRCH)
        wf_warn("cannot watch process %u: %m; its death shows by its socket alone", link->id.pid);
    /* Gone already, or its pid is another's by now: what it sent still counts,
     * and the socket's end tells the rest. */
    if (link->pid.fd >= 0 &&
        !wf_process_is_start(wf_process_start((int)cred.pid), link->id.start)) {
        close(link->pid.fd);
        link->pid.fd = -1;
    }
    return link->pid.fd < 0 || !wf_shm_watch_add(ctx, &link->pid, EPOLLIN);
}

static void hello_answer(struct shm_ctx *ctx, struct shm_link *link)
{
    struct wf_packet p = {.flags = ctx->membarrier ? WF_PACKET_MEMBARRIER : 0,
                          .u.greeting = wf_shm_greeting(ctx)};
    int fds[2] = {wf_fd_dup(ctx->mem->state_fd), -1};
    if (fds[0] >= 0)
        fds[1] = wf_fd_dup(ctx->bells_fd);
    if (fds[1] >= 0) {
        ctx->starved = false;
        answer(ctx, link, WF_PACKET_WELCOME, fds, 2, &p);
        return;
    }
    if (fds[0] >= 0)
        close(fds[0]);
    starve(ctx, "cannot answer a peer");
    link->blocked = link->later = link->greet = true;
    link_interest(ctx, link);
    wf_shm_tick(ctx);
}

/* At a tick: what failed for want of descriptors or room once more. */
void wf_shm_link_later(struct shm_ctx *ctx, struct shm_link *link)
{
    if (link->left)
        wf_shm_link_left(ctx, link);
    if (!link->later)
        return;
    link->later = link->blocked = false;
    if (link->greet) {
        link->greet = false;
        hello_answer(ctx, link);
    } else {
        answer_send(ctx, link);
    }
    if (!link->blocked)
        wf_shm_link_event(ctx, link, SHM_WATCH_LINK_SOCK, 0);
}

/* Have the process look at the endpoints' words: one of them was closed. A client to which WELCOME
 * was not sent yet looks when that comes. */
void wf_shm_link_left(struct shm_ctx *ctx, struct shm_link *link)
{
    struct wf_packet p = {0};
    bool sent =
        !link->hello || link->dead || !wf_packet_send(link->sock.fd, &p, WF_PACKET_LEFT, NULL, 0);
    /* Another event reports the end of a lost client. */
    link->left = !sent && errno != EPIPE && errno != ECONNRESET;
    if (link->left)
        wf_shm_tick(ctx);
}

/* So many connections may wait for an endpoint's owner to poll: each has a descriptor, and those
 * are the program's, too. Of a process that ended meanwhile, too, since what it sent counts. */
static unsigned fresh_max(void)
{
    struct rlimit files = {.rlim_cur = RLIM_INFINITY};
    (void)getrlimit(RLIMIT_NOFILE, &files);
    return (unsigned)WF_MIN(files.rlim_cur / 4 + 1, RINGS_MAX);
}

static unsigned rings_of(const struct shm_link *link)
{
    unsigned n = 0;
    wf_list_each(it, &link->rxs) n++;
    return n;
}

static enum weft_status ring_open(struct shm_ctx *ctx, struct shm_link *link,
                                  const struct wf_packet *p, const int fds[3], int *event_fd,
                                  struct wf_packet *out)
{
    struct shm_tep *tep = wf_shm_tep_find(ctx, p->u.ring.to_ep, p->u.ring.to_gen);
    bool fence = !(ctx->membarrier && (p->flags & WF_PACKET_MEMBARRIER));
    enum weft_status why = WEFT_ENOMEM;
    struct shm_segs *segs;
    struct shm_rx *rx;
    if (!tep)
        return WEFT_ECLOSED;
    if (memcmp(&p->u.ring.from.process, &link->id, sizeof link->id) || !wf_shm_is_eventfd(fds[2]))
        return WEFT_EPROTO;
    if (rings_of(link) >= RINGS_MAX || tep->nfresh >= fresh_max())
        return WEFT_ELIMIT;
    *event_fd = wf_fd_dup(tep->base.event_fd);
    if (*event_fd < 0)
        return WEFT_ELIMIT;
    segs = wf_shm_segs_map(&p->u.ring.geometry, fds, &why);
    rx = segs ? wf_shm_rx_open(tep, segs, &p->u.ring.from, fds[2], fence) : NULL;
    if (!rx) {
        if (segs)
            wf_shm_segs_unref(segs);
        close(*event_fd);
        *event_fd = -1;
        return why == WEFT_OK ? WEFT_ENOMEM : why;
    }
    out->u.ring_ok.bell = tep->bell_index;
    out->u.ring_ok.bit = rx->bit;
    wf_list_append(&link->rxs, &rx->link_item);
    wf_list_append(&tep->fresh, &rx->item);
    tep->nfresh++;
    wf_shm_notify(tep);
    return WEFT_OK;
}

static void limit_log(struct shm_ctx *ctx, const struct shm_link *link, const struct wf_packet *p)
{
    const struct shm_tep *tep = wf_shm_tep_find(ctx, p->u.ring.to_ep, p->u.ring.to_gen);
    if (rings_of(link) >= RINGS_MAX)
        wf_error("cannot take a connection of process %u: it has %u, which is the most",
                 link->id.pid, rings_of(link));
    else if (tep && tep->nfresh >= fresh_max())
        wf_error(
            "cannot take a connection of process %u: %u others wait for endpoint %u, whose "
            "owner does not poll (more may wait if the limit on open files is raised, ulimit -n)",
            link->id.pid, tep->nfresh, tep->address.ep);
    else
        wf_error("cannot take a connection of process %u: out of descriptors (raise the limit on "
                 "open files, ulimit -n)",
                 link->id.pid);
}

static void ring_take(struct shm_ctx *ctx, struct shm_link *link, const struct wf_packet *p,
                      const int fds[3], int nfds)
{
    struct wf_packet out = {.cookie = p->cookie,
                            .flags = ctx->membarrier ? WF_PACKET_MEMBARRIER : 0};
    int event_fd = -1;
    enum weft_status status =
        nfds == WF_PACKET_LOST ? WEFT_ELIMIT : ring_open(ctx, link, p, fds, &event_fd, &out);
    if (status == WEFT_ELIMIT)
        limit_log(ctx, link, p);
    for (int i = 0; i < nfds; i++)
        if (i < 2 || status != WEFT_OK)
            close(fds[i]);
    if (status != WEFT_OK) {
        if (status == WEFT_EPROTO)
            wf_error("process %u offered a ring that cannot be trusted (not sealed, or too short); "
                     "refused",
                     link->id.pid);
        out.u.ring_no.status = status;
    }
    answer(ctx, link, status == WEFT_OK ? WF_PACKET_RING_OK : WF_PACKET_RING_NO, &event_fd,
           event_fd >= 0, &out);
}

static void slab_take(struct shm_ctx *ctx, struct shm_link *link, const struct wf_packet *p)
{
    struct wf_packet out = {.u.slab.id = p->u.slab.id};
    size_t size = 0;
    int fd = wf_mem_slab_dup(ctx->mem, p->u.slab.id, &size);
    out.u.slab.size = size;
    out.u.slab.status = fd < 0 && errno == EMFILE ? WEFT_ELIMIT : WEFT_EKEY;
    answer(ctx, link, fd < 0 ? WF_PACKET_SLAB_NO : WF_PACKET_SLAB_OK, &fd, fd >= 0, &out);
}

static void packet_take(struct shm_ctx *ctx, struct shm_link *link, const struct wf_packet *p,
                        const int fds[WF_PACKET_FDS], int nfds)
{
    if (!link->hello && p->type != WF_PACKET_HELLO)
        goto refuse;
    switch (p->type) {
    case WF_PACKET_HELLO:
        if (!hello_take(ctx, link, p))
            goto refuse;
        hello_answer(ctx, link);
        return;
    case WF_PACKET_RING: ring_take(ctx, link, p, fds, nfds); return;
    case WF_PACKET_SLAB: slab_take(ctx, link, p); return;
    case WF_PACKET_BYE: link->farewell = true; return;
    default: break; /* an answer: only clients get those */
    }
refuse:
    for (int i = 0; i < nfds; i++)
        close(fds[i]);
    wf_warn("a process sent a packet of type %d out of turn; its connection is closed", p->type);
    wf_shm_link_down(ctx, link, WEFT_EPROTO);
}

/* At most [most] packets, until none is there or the answer does not fit: OK. Else
 * why the link ended; the caller takes it down. */
static enum weft_status link_read(struct shm_ctx *ctx, struct shm_link *link, int most)
{
    while (most-- && !link->dead && !link->blocked) {
        struct wf_packet p;
        int fds[WF_PACKET_FDS], nfds = 0;
        int got = wf_packet_recv(link->sock.fd, &p, fds, &nfds);
        if (got > 0) {
            packet_take(ctx, link, &p, fds, nfds);
            continue;
        }
        if (got < 0 && errno == EAGAIN)
            return WEFT_OK;
        /* Once, and ahead of the packets, if the other side closed with some unread. */
        if (got < 0 && (errno == ECONNRESET || errno == EINTR))
            continue;
        if (got < 0 && errno == EPROTO) {
            wf_warn("a process sent something that is no packet; its connection is closed");
            return WEFT_EPROTO;
        }
        return link->farewell ? WEFT_ECLOSED : WEFT_EPEER;
    }
    return WEFT_OK;
}

/* Take what processes still have to say to this one: [id]'s packets, those of
 * links that have not said whose they are, and connections nobody accepted yet.
 * False: there may be more, which cannot be read now; a tick tries. */
bool wf_shm_links_read(struct shm_ctx *ctx, const struct wf_process_id *id)
{
    bool all = true;
    for (int i = 0; i < SOMAXCONN && !ctx->listen_paused && wf_shm_link_accept(ctx); i++)
        ;
    wf_list_each_safe(it, nx, &ctx->links)
    {
        struct shm_link *link = wf_container_of(it, struct shm_link, item);
        if (!link->dead && (!link->hello || wf_shm_same(&link->id, id)))
            link->end = link_read(ctx, link, WF_SHM_READ_REST);
        if (!link->dead && link->end == WEFT_EPROTO) /* an end can be read again, this cannot */
            wf_shm_link_down(ctx, link, WEFT_EPROTO);
        if (!link->dead && link->blocked && (!link->hello || wf_shm_same(&link->id, id)))
            all = false;
    }
    return all && !ctx->listen_paused;
}

/* Everything that [id]'s process still said counts; then its links end. */
void wf_shm_links_down(struct shm_ctx *ctx, const struct wf_process_id *id, enum weft_status why)
{
    wf_list_each(it, &ctx->links)
    {
        struct shm_link *link = wf_container_of(it, struct shm_link, item);
        if (!link->dead && link->hello && wf_shm_same(&link->id, id))
            answer_drop(link); /* nobody waits for it any more, and it holds up the rest */
    }
    (void)wf_shm_links_read(ctx, id);
    wf_list_each_safe(it, nx, &ctx->links)
    {
        struct shm_link *link = wf_container_of(it, struct shm_link, item);
        if (link->dead)
            continue;
        if (link->hello && wf_shm_same(&link->id, id))
            wf_shm_link_down(ctx, link, why);
        else if (link->end != WEFT_OK)
            wf_shm_link_down(ctx, link, link->end);
    }
    wf_shm_kick(ctx); /* the service thread frees them */
}

void wf_shm_link_event(struct shm_ctx *ctx, struct shm_link *link, enum shm_watch_kind kind,
                       uint32_t events)
{
    bool gone = kind == SHM_WATCH_LINK_PID || (events & (EPOLLHUP | EPOLLERR));
    if (link->dead)
        return;
    if (link->blocked && (events & EPOLLOUT))
        answer_send(ctx, link);
    if (gone)
        answer_drop(link); /* nobody waits for it, and it holds up the rest */
    /* What it said before it died still counts. */
    link->end = link_read(ctx, link, gone ? WF_SHM_READ_REST : WF_SHM_READ_SOME);
    if (link->dead)
        return;
    if (link->end == WEFT_OK && kind == SHM_WATCH_LINK_PID)
        link->end = link->farewell ? WEFT_ECLOSED : WEFT_EPEER;
    if (link->end == WEFT_EPEER && link->hello)
        wf_shm_process_down(ctx, &link->id, link->end);
    else if (link->end != WEFT_OK)
        wf_shm_link_down(ctx, link, link->end); /* it closed its side: ours is another socket */
}
