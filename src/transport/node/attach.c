/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/node/attach.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/hook.h"
#include "base/log.h"
#include "base/process.h"
#include "base/process_watch.h"

#define STARTS 8            /* services that one attempt starts, one after the other */
#define SILENT 4            /* and how many of them may end without a word */
#define LIMIT_NS 500000000u /* for a service without descriptors or memory */
#define PAUSE_MIN_MS 1u     /* between two attempts to connect */
#define PAUSE_MAX_MS 64u

/* An attempt to attach. */
struct node_attempt {
    const struct wf_node_attach_params *params;
    struct wf_node_link *link;
    char name[WF_NODE_SOCKET_ROOM];
    uint32_t held, last, line;
    unsigned starts, pause_ms;
    uint64_t limit_ns;       /* when the service first had no descriptor or memory; 0: never */
    uint64_t anew_ns;        /* from when on no clients of an earlier service are waited for */
    enum weft_status status; /* FAILED: the result */
    char why[512];           /* and why there is no service, and what to change */
};

/* What became of one connection. */
enum outcome {
    ATTACHED,
    NOBODY, /* nothing listens */
    AGAIN,  /* connect again */
    FAILED, /* a->why says why */
};

static __attribute__((format(printf, 3, 4))) enum outcome
fail(struct node_attempt *a, enum weft_status status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(a->why, sizeof a->why, fmt, ap);
    va_end(ap);
    a->status = status;
    return FAILED;
}

/* ---- descriptors, and forks ---- */

static pthread_mutex_t taking = PTHREAD_MUTEX_INITIALIZER;

WF_ACQUIRES(wf_node_taking_class) void wf_node_taking_begin(void)
{
    pthread_mutex_lock(&taking);
}

WF_RELEASES(wf_node_taking_class) void wf_node_taking_end(void)
{
    pthread_mutex_unlock(&taking);
}

static WF_UNCHECKED void before_fork(struct wf_fork_item *item)
{
    (void)item;
    wf_node_taking_begin();
}

static WF_UNCHECKED void after_fork(struct wf_fork_item *item)
{
    (void)item;
    wf_node_taking_end();
}

static const struct wf_fork_ops taking_ops = {.level = WF_FORK_TRANSPORT,
                                              .stays = true,
                                              .prepare = before_fork,
                                              .parent = after_fork,
                                              .child = after_fork};
static struct wf_fork_item taking_item;

/* ---- waiting ---- */

static int ms_left(const struct node_attempt *a)
{
    uint64_t now = wf_now_ns(), until = a->params->until_ns;
    return now >= until ? 0 : (int)WF_MIN((until - now + 999999) / 1000000, 3600000);
}

/* Is the attempt to stop? Waits for [ms], or until then. */
static bool is_stopped(const struct node_attempt *a, int ms)
{
    struct pollfd p = {.fd = a->params->stop_fd ? a->params->stop_fd : -1, .events = POLLIN};
    return poll(&p, 1, ms) == 1;
}

/* Wait until the socket has something to read, or ends. Returns false if the time is over. */
static bool sock_wait(const struct node_attempt *a, int sock)
{
    struct pollfd p[] = {{.fd = sock, .events = POLLIN},
                         {.fd = a->params->stop_fd ? a->params->stop_fd : -1, .events = POLLIN}};
    int ready;
    do
        ready = poll(p, 2, ms_left(a));
    while (ready < 0 && errno == EINTR);
    return ready > 0 && p[0].revents;
}

/* Nothing reports that a bound name begins to listen, or that a queue has room again. */
static void pause_for_service(struct node_attempt *a)
{
    (void)is_stopped(a, WF_MIN((int)a->pause_ms, ms_left(a)));
    a->pause_ms = WF_MIN(2 * a->pause_ms, PAUSE_MAX_MS);
}

/* Receive a packet, if there is one. Returns as wf_node_packet_recv. The descriptors of WELCOME are
 * the link's at once: another thread may fork, and the child closes them. */
static enum weft_status packet_take(struct node_attempt *a, int sock, struct wf_node_packet *p)
{
    int fds[WF_NODE_FDS], nfds = 0;
    enum weft_status status;
    bool lost;
    wf_node_taking_begin();
    status = wf_node_packet_recv(sock, p, fds, &nfds);
    lost = nfds == WF_SEQPACKET_LOST || a->link->nestate;
    WF_HOOK("node.received");
    if (status == WEFT_OK && p->type == WF_NODE_WELCOME && !lost) {
        memcpy(a->link->estate, fds, (size_t)nfds * sizeof *fds);
        a->link->nestate = nfds;
    } else if (status == WEFT_OK) {
        wf_seqpacket_drop(fds, WF_NODE_FDS, nfds);
    }
    wf_node_taking_end();
    return status;
}

/* Receive the next packet. Returns as wf_node_packet_recv, but AGAIN if the time is over. */
static enum weft_status receive(struct node_attempt *a, int sock, struct wf_node_packet *p)
{
    enum weft_status status = WEFT_AGAIN;
    while (status == WEFT_AGAIN && sock_wait(a, sock))
        status = packet_take(a, sock, p);
    return status;
}

/* ---- one connection ---- */

static enum outcome index_outcome(struct node_attempt *a)
{
    a->held = a->last = a->line = 0; /* peers with the old address lose this process */
    return AGAIN;
}

static enum outcome limit_outcome(struct node_attempt *a)
{
    uint64_t now = wf_now_ns();
    if (!a->limit_ns)
        a->limit_ns = now;
    if (now - a->limit_ns < LIMIT_NS) {
        pause_for_service(a);
        return AGAIN;
    }
    return fail(a, WEFT_ELIMIT,
                "the service, process %d, has no descriptor or memory left: raise the "
                "hard limits under which the first process of the job starts "
                "(ulimit -Hn)",
                (int)a->link->pid);
}

static enum outcome refused(struct node_attempt *a, int sock, const struct wf_node_refused *r)
{
    uint32_t mine = 0, theirs = 0;
    const char *what;
    char byte;
    switch (r->reason) {
    case WF_NODE_REFUSED_INDEX: return index_outcome(a);
    case WF_NODE_REFUSED_LIMIT: return limit_outcome(a);
    case WF_NODE_REFUSED_ENDING:
        while (sock_wait(a, sock) && recv(sock, &byte, 1, MSG_DONTWAIT) > 0)
            ;
        return AGAIN;
    case WF_NODE_REFUSED_FULL:
        return fail(a, WEFT_ELIMIT,
                    "all %u indexes of the service, process %d, are taken: raise "
                    "WEFT_NODE_INDEX_BITS (%u, at most %d) for all processes of the job",
                    1u << a->params->parameters.index_bits, (int)a->link->pid,
                    a->params->parameters.index_bits, WF_NODE_INDEX_BITS_MAX);
    case WF_NODE_REFUSED_BUSY:
        what = wf_node_parameters_differ(&a->params->parameters, &r->parameters, &mine, &theirs);
        return fail(a, WEFT_EBUSY,
                    "%s is %u here, but %u in the service, process %d, that another process of the "
                    "job started: give all the same value",
                    what ? what : "a parameter", mine, theirs, (int)a->link->pid);
    default: return fail(a, WEFT_EPROTO, "the service refuses without a reason that is known here");
    }
}

/* Receive an answer of type [want]. Returns ATTACHED if *p is one. */
static enum outcome answered(struct node_attempt *a, int sock, unsigned want,
                             struct wf_node_packet *p)
{
    int pid = (int)a->link->pid;
    switch (receive(a, sock, p)) {
    case WEFT_OK: break;
    case WEFT_AGAIN:
        return fail(a, WEFT_ETIMEDOUT,
                    "process %d has the service's name, but does not answer: is it stopped? (kill "
                    "-CONT, or WEFT_CONNECT_TIMEOUT)",
                    pid);
    case WEFT_ECLOSED: pause_for_service(a); return AGAIN; /* it has just ended */
    case WEFT_EVERSION:
        return fail(
            a, WEFT_EVERSION,
            "the service, process %d, has version %u, this library %d: let all processes of "
            "the job use one version of Weft",
            pid, p->version, WF_NODE_VERSION);
    default: return fail(a, WEFT_EPROTO, "process %d has the service's name, but is none", pid);
    }
    if (p->type == WF_NODE_REFUSAL)
        return refused(a, sock, &p->u.refused);
    if (p->type == WF_NODE_LOG) /* the service sends the fault, and closes */
        return fail(a, WEFT_EPROTO, "the service, process %d, reports: %s", pid, p->u.log.text);
    if (p->type != want)
        return fail(a, WEFT_EPROTO,
                    "process %d, the service, sent a packet of type %u for one of "
                    "type %u",
                    pid, p->type, want);
    return ATTACHED;
}

/* With a window, the last descriptor is the command descriptor. */
static enum outcome welcome_take(struct node_attempt *a, const struct wf_node_packet *p)
{
    const struct wf_node_welcome *w = &p->u.welcome;
    struct wf_node_link *link = a->link;
    if (!link->nestate)
        return fail(a, WEFT_ELIMIT, "this process has no descriptor left (ulimit -n)");
    link->window = w->window;
    if (link->window && link->nestate <= WF_NODE_ESTATE_SOCKETS + 1)
        return fail(a, WEFT_EPROTO, "process %d, the service, sent too few descriptors",
                    (int)link->pid);
    if (!link->window && link->nestate > WF_NODE_ESTATE)
        return fail(a, WEFT_EPROTO, "process %d, the service, sent too many descriptors",
                    (int)link->pid);
    link->share = w->share;
    if (link->window) {
        link->command_fd = link->estate[link->nestate - 1];
        link->nestate--; /* afterwards: a child forked meanwhile closes the descriptor, or twice */
    }
    link->index = w->index;
    link->incarnation = w->incarnation;
    link->contact = w->contact;
    link->membarrier = a->params->membarrier && p->flags & WF_NODE_MEMBARRIER;
    link->line = w->line;
    link->page_fd = link->estate[0];
    return ATTACHED;
}

static enum outcome greet(struct node_attempt *a, int sock)
{
    struct wf_node_packet hello, challenge, proof, welcome;
    enum outcome o;
    wf_node_packet_init(&hello, WF_NODE_HELLO);
    hello.u.hello = (struct wf_node_hello){.role = WF_NODE_ATTACH,
                                           .held = a->held,
                                           .last = a->last,
                                           .line = a->line,
                                           .self = a->params->self};
    hello.flags = a->params->membarrier ? WF_NODE_MEMBARRIER : 0;
    wf_node_nonce(hello.u.hello.nonce);
    if (wf_node_packet_send(sock, &hello, NULL, 0) && errno != EPIPE && errno != ECONNRESET)
        return fail(a, WEFT_ESYSTEM, "cannot send to the service: %s", strerror(errno));
    WF_HOOK("node.hello");
    o = answered(a, sock, WF_NODE_CHALLENGE, &challenge);
    if (o != ATTACHED)
        return o;
    if (!wf_node_challenge_verify(a->params->key, &hello, &challenge))
        return fail(a, WEFT_EACCESS,
                    "process %d has the service's name, but another key than this process: end it",
                    (int)a->link->pid);
    wf_node_packet_init(&proof, WF_NODE_PROOF);
    proof.u.proof.parameters = a->params->parameters;
    wf_node_proof_sign(a->params->key, &hello, &challenge, &proof);
    if (wf_node_packet_send(sock, &proof, NULL, 0) && errno != EPIPE && errno != ECONNRESET)
        return fail(a, WEFT_ESYSTEM, "cannot send to the service: %s", strerror(errno));
    WF_HOOK("node.proof");
    o = answered(a, sock, WF_NODE_WELCOME, &welcome);
    if (o != ATTACHED)
        return o;
    WF_HOOK("node.welcome");
    return welcome_take(a, &welcome);
}

/* Look at the process that listens before anything is sent. Its pidfd is opened before HELLO goes
 * out: a process that answers it has lived since, so its number was not another one's. */
static enum outcome listener_check(struct node_attempt *a, int sock)
{
    struct ucred who;
    socklen_t len = sizeof who;
    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &len))
        return fail(a, WEFT_ESYSTEM, "SO_PEERCRED: %s", strerror(errno));
    a->link->pid = who.pid;
    if (who.uid != geteuid())
        return fail(a, WEFT_EACCESS,
                    "another user, %u, has taken the name of this job's service (process %d): end "
                    "that process, or give the job another WEFT_NODE_NAME",
                    (unsigned)who.uid, (int)who.pid);
    wf_node_taking_begin();
    a->link->pidfd = wf_pidfd_open(who.pid);
    wf_node_taking_end();
    if (a->link->pidfd < 0 && errno == ESRCH)
        return AGAIN;
    if (a->link->pidfd < 0)
        return fail(a, WEFT_ESYSTEM, "pidfd_open: %s (ulimit -n)", strerror(errno));
    return ATTACHED;
}

/* ---- the link ---- */

void wf_node_estate_close(struct wf_node_link *link)
{
    wf_node_taking_begin();
    for (int i = 0; i < link->nestate; i++)
        close(link->estate[i]);
    link->nestate = 0;
    wf_node_taking_end();
}

void wf_node_fd_close(int *fd)
{
    wf_node_taking_begin();
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    wf_node_taking_end();
}

/* Close what came with the last packet, but for the descriptors that were taken over. */
static void received_close(struct wf_node_link *link)
{
    for (int i = 0; i < link->nreceived; i++)
        wf_node_fd_close(&link->received[i]);
    link->nreceived = 0;
}

void wf_node_command_close(struct wf_node_link *link)
{
    wf_node_fd_close(&link->command_fd);
}

static void link_close(struct wf_node_link *link)
{
    wf_node_estate_close(link);
    received_close(link);
    wf_node_command_close(link);
    wf_node_fd_close(&link->sock);
    wf_node_fd_close(&link->pidfd);
    link->page_fd = -1;
}

/* ---- attaching ---- */

static enum outcome connect_once(struct node_attempt *a)
{
    struct sockaddr_un sa;
    socklen_t len = wf_node_sockaddr(a->name, &sa);
    enum outcome o = NOBODY;
    int sock;
    wf_node_taking_begin();
    a->link->sock = sock =
        wf_fd_high(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    wf_node_taking_end();
    if (sock < 0)
        return fail(a, WEFT_ESYSTEM, "no socket: %s (ulimit -n)", strerror(errno));
    if (!connect(sock, (struct sockaddr *)&sa, len)) {
        o = listener_check(a, sock);
        if (o == ATTACHED)
            o = greet(a, sock);
    } else if (errno == EAGAIN) { /* its queue is full */
        pause_for_service(a);
        o = AGAIN;
    } else if (errno != ECONNREFUSED) {
        o = fail(a, WEFT_ESYSTEM, "cannot connect to the service: %s", strerror(errno));
    }
    if (o != ATTACHED)
        link_close(a->link);
    return o;
}

/* Nobody listens. A name that is bound, and listened at only afterwards, looks the same for a
 * moment. */
static enum outcome start(struct node_attempt *a)
{
    if (a->starts)
        pause_for_service(a);
    if (a->starts++ == STARTS)
        return fail(a, WEFT_ETIMEDOUT,
                    "a process has taken the name %s of this job's service, and does not listen: "
                    "end it, or give the job another WEFT_NODE_NAME",
                    a->name);
    a->status = wf_node_spawn(a->params, wf_now_ns() >= a->anew_ns, a->why);
    if (a->status == WEFT_EBUSY) { /* it is not this process that is to start one */
        a->starts--;
        pause_for_service(a);
        return AGAIN;
    }
    if (a->status == WEFT_ECLOSED && a->starts < SILENT)
        return AGAIN;
    if (a->status == WEFT_ECLOSED)
        a->status = WEFT_ESYSTEM;
    return a->status == WEFT_OK ? AGAIN : FAILED;
}

/* ---- the link's life ---- */

static void link_in_child(struct wf_fork_item *item)
{
    link_close(wf_container_of(item, struct wf_node_link, fork));
}

static const struct wf_fork_ops fork_ops = {.level = WF_FORK_TRANSPORT, .child = link_in_child};

enum weft_status wf_node_attach(const struct wf_node_attach_params *params,
                                struct wf_node_link *link)
{
    struct node_attempt a = {.params = params,
                             .link = link,
                             .held = params->held,
                             .last = params->last,
                             .line = params->line,
                             .pause_ms = PAUSE_MIN_MS};
    uint64_t now = wf_now_ns();
    struct wf_node_scope place;
    enum outcome o = AGAIN;
    a.status = wf_node_mac_init();
    if (a.status != WEFT_OK)
        return a.status;
    *link = (struct wf_node_link){.sock = -1, .pidfd = -1, .page_fd = -1, .command_fd = -1};
    wf_process_watch_begin();
    wf_fork_join(&taking_item, &taking_ops);
    wf_fork_join(&link->fork, &fork_ops);
    wf_node_scope_here(&place);
    wf_node_socket_name(params->key, &place, params->name, a.name);
    a.anew_ns = now + (params->until_ns > now ? (params->until_ns - now) / 2 : 0);
    while (o == AGAIN || o == NOBODY) {
        o = o == NOBODY ? start(&a) : connect_once(&a);
        if (o != ATTACHED && is_stopped(&a, 0))
            o = fail(&a, WEFT_ECLOSED, "this process waits for it no more");
        if ((o == AGAIN || o == NOBODY) && !ms_left(&a)) {
            o = fail(&a, WEFT_ETIMEDOUT, "none could be reached in time (WEFT_CONNECT_TIMEOUT)");
        }
    }
    if (o == ATTACHED)
        return WEFT_OK;
    wf_fork_leave(&link->fork);
    if (params->why)
        snprintf(params->why, sizeof a.why, "%s", a.why);
    else
        wf_warn("this process has no node service: %s", a.why);
    return a.status;
}

void wf_node_detach(struct wf_node_link *link)
{
    struct wf_node_packet bye;
    wf_node_packet_init(&bye, WF_NODE_BYE);
    (void)wf_node_packet_send(link->sock, &bye, NULL, 0); /* the end of the socket says it, too */
    WF_HOOK("node.leaves");
    link_close(link);
    wf_fork_leave(&link->fork); /* afterwards: a child forked until then closes them, too */
}

/* As packet_take: a child that is forked from here on closes the descriptors. */
static enum weft_status link_receive(struct wf_node_link *link, struct wf_node_packet *p, int *nfds)
{
    enum weft_status status;
    wf_node_taking_begin();
    status = wf_node_packet_recv(link->sock, p, link->received, nfds);
    WF_HOOK("node.heard");
    if (status == WEFT_OK)
        link->nreceived = WF_MAX(WF_MIN(*nfds, WF_NODE_FDS), 0); /* LOST is below 0 */
    wf_node_taking_end();
    return status;
}

/* Returns false if the service may not send [p]. */
static bool packet_handle(struct wf_node_link *link, const struct wf_node_packet *p, int nfds)
{
    if (link->answer && link->answer(link, p, link->received, nfds))
        return true;
    if (p->type == WF_NODE_LOG)
        wf_log((enum wf_log_level)p->u.log.level, "the node's service: %s", p->u.log.text);
    return p->type == WF_NODE_LOG || p->type == WF_NODE_BYE;
}

enum weft_status wf_node_hear(struct wf_node_link *link)
{
    struct wf_node_packet p;
    int nfds = 0;
    bool fits;
    for (;;) {
        enum weft_status status = link_receive(link, &p, &nfds);
        if (status == WEFT_AGAIN)
            return wf_pidfd_ended(link->pidfd) ? WEFT_EPEER : WEFT_OK;
        if (status == WEFT_ECLOSED) /* killed, or it closed this connection only */
            return wf_process_exiting(link->pid) || wf_pidfd_ended(link->pidfd) ? WEFT_EPEER
                                                                                : WEFT_EPROTO;
        if (status != WEFT_OK)
            return WEFT_EPROTO;
        fits = packet_handle(link, &p, nfds);
        received_close(link);
        if (p.type == WF_NODE_BYE)
            return WEFT_ECLOSED;
        if (!fits)
            return WEFT_EPROTO;
    }
}
