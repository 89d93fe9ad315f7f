/* SPDX-License-Identifier: BSD-3-Clause */
/* The moving thread: its jobs, its turns, and how it sleeps. */
#define _GNU_SOURCE
#include "node/work.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/process.h"
#include "base/thread.h"
#include "config/config.h"
#include "mem/shared.h"
#include "transport/ring/sleep.h"

#define EXPECT_ROWS 65536
#define WAITERS 4096
#define STACK (256u << 10)
/* How long the thread looks for messages before it sleeps. Going to sleep and being woken takes
 * 5 to 10 us, and a client that answers at once has answered by then. */
#define LOOK_NS 20000u
#define LOOKS_PER_CLOCK 16
/* Where endpoints and this thread outnumber the processors, a look that spins keeps a processor
 * from the client for whose message the thread looks, so the thread yields between looks. It sleeps
 * after LOOKS_CROWDED of them. (Eight ranks of a host on two processors: an all-to-all of 8 bytes
 * takes 0.7 ms so, 1.6 ms with spins, and 1.0 ms if the thread sleeps after 5 us. After 16 yields
 * it is no faster than after 4.) */
#define LOOKS_CROWDED 4
#define SHORT_MS 10     /* until the next try, after one for which memory was short */
#define BELLS 64        /* read after a sleep; others end the next one */
#define BELL_BYTES 4096 /* read of a bell: a client rings once, one that floods loses its wakes */

static WF_ACQUIRES(node_work_lock_class) void lock(struct node_work *work)
{
    pthread_mutex_lock(&work->lock);
}

static WF_RELEASES(node_work_lock_class) void unlock(struct node_work *work)
{
    pthread_mutex_unlock(&work->lock);
}

static void ring(int fd)
{
    const uint64_t one = 1;
    if (write(fd, &one, sizeof one) < 0 && errno != EAGAIN) /* EAGAIN: it is readable as it is */
        wf_error("cannot wake a thread or a client: %s", strerror(errno));
}

/* ---- jobs ---- */

void wf_node_work_ask(struct node_work *work, struct node_job *job)
{
    lock(work);
    wf_list_append(&work->asked, &job->item);
    atomic_store_explicit(&work->has_asked, true, memory_order_release);
    unlock(work);
    ring(work->bell_fd);
}

struct node_job *wf_node_work_done(struct node_work *work)
{
    struct wf_list *item;
    lock(work);
    item = wf_list_pop(&work->done);
    unlock(work);
    return item ? wf_container_of(item, struct node_job, item) : NULL;
}

static void finish(struct node_work *work, struct node_job *job)
{
    lock(work);
    wf_list_append(&work->done, &job->item);
    unlock(work);
    ring(work->done_fd);
}

void wf_node_work_failed(struct node_work *work, struct desk_ring *r)
{
    atomic_store_explicit(&r->bad, true, memory_order_release);
    ring(work->done_fd);
}

void wf_node_work_heir(struct node_work *work, uint32_t index, enum node_heir heir)
{
    uint8_t was =
        atomic_exchange_explicit(&work->heirs[index], (uint8_t)heir, memory_order_acq_rel);
    if (was == heir || heir != NODE_HEIR_GONE)
        return;
    atomic_fetch_add_explicit(&work->heirs_gone, 1, memory_order_release);
    ring(work->bell_fd);
}

void wf_node_work_settle(struct node_work *work)
{
    atomic_store_explicit(&work->young, false, memory_order_release);
    ring(work->bell_fd);
}

static void attach(struct node_work *work, struct desk_ring *r)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.fd = r->bell};
    if (epoll_ctl(work->bells_fd, EPOLL_CTL_ADD, r->bell, &ev)) {
        r->status = WEFT_ELIMIT;
        return;
    }
    r->status = wf_node_port_attach(work->mover, &r->params, &r->port);
    if (r->status != WEFT_OK) {
        (void)epoll_ctl(work->bells_fd, EPOLL_CTL_DEL, r->bell, NULL);
        return;
    }
    r->port->user = r;
    wf_store_relaxed(&work->page->left[r->port->index], 0); /* it is the last one, and not closed */
}

static void detach(struct node_work *work, struct desk_ring *r)
{
    bool is_last;
    if (!r->port)
        return;
    (void)epoll_ctl(work->bells_fd, EPOLL_CTL_DEL, r->bell, NULL);
    r->end->tag = r->port->tag;
    is_last = work->mover->by_index[r->port->index] == r->port && !r->port->next_of_index;
    wf_store_relaxed(&work->page->left[r->port->index], is_last && r->end->state == WF_NODE_CLOSED);
    /* It may have taken messages since the last turn: acknowledge these before END. */
    (void)wf_node_acks_send(work->mover);
    if (wf_node_port_detach(r->port))
        r->params.submit = NULL; /* the mover unmaps it */
    wf_node_end_add(work->mover, r->end);
    r->end = NULL;
    r->port = NULL;
}

static void job_do(struct node_work *work, struct node_job *job)
{
    struct desk_other *other;
    switch (job->kind) {
    case NODE_JOB_ATTACH: attach(work, wf_container_of(job, struct desk_ring, job)); break;
    case NODE_JOB_DETACH: detach(work, wf_container_of(job, struct desk_ring, job)); break;
    case NODE_JOB_OTHER:
        other = wf_container_of(job, struct desk_other, job);
        other->status = wf_node_other_find(work, &other->address, &other->contact, &other->word);
        break;
    case NODE_JOB_SLAB:
    case NODE_JOB_UNSLAB: wf_node_slab_do(work, job); break;
    }
    finish(work, job);
}

static int jobs_do(struct node_work *work)
{
    struct wf_list asked, *item;
    int n = 0;
    lock(work);
    atomic_store_explicit(&work->has_asked, false, memory_order_relaxed);
    wf_list_take(&asked, &work->asked);
    unlock(work);
    for (; (item = wf_list_pop(&asked)); n++)
        job_do(work, wf_container_of(item, struct node_job, item));
    return n;
}

/* ---- turns ---- */

static int turn(struct node_work *work)
{
    int n = 0;
    if (atomic_load_explicit(&work->has_asked, memory_order_acquire))
        n += jobs_do(work);
    if (work->mover->young && !atomic_load_explicit(&work->young, memory_order_acquire))
        wf_node_mover_settle(work->mover);
    n += wf_node_mover_turn(work->mover);
    return n + wf_node_others_poll(work);
}

/* A client rings its bell once for each time that this thread marks itself as sleeping in the page.
 * Bells are watched edge-triggered: the end of one is no event for ever, and a client that rings
 * without need costs one call each time. */
static void bells_read(struct node_work *work)
{
    struct epoll_event ev[BELLS];
    char bytes[BELL_BYTES];
    int n = epoll_wait(work->bells_fd, ev, BELLS, 0);
    for (int i = 0; i < n; i++)
        (void)recv(ev[i].data.fd, bytes, sizeof bytes, MSG_DONTWAIT); /* 0: its client has ended */
}

/* For what no event comes; -1: there is no such thing. */
static int timeout_ms(const struct node_work *work)
{
    return work->is_short ? SHORT_MS : wf_node_gets_wait_ms(work->mover);
}

static void sleep_until_event(struct node_work *work)
{
    struct epoll_event ev[8];
    uint64_t count;
    int n;
    wf_sleep_set(&work->page->sleep_epoch, &work->epoch, true);
    if (wf_sleep_barrier(work->membarrier) && !wf_node_mover_pending(work->mover) &&
        !atomic_load_explicit(&work->has_asked, memory_order_acquire) &&
        !atomic_load_explicit(&work->stop, memory_order_acquire) &&
        work->tep->transport->arm(work->tep) == WEFT_OK) {
        n = epoll_wait(work->epoll_fd, ev, WF_ARRAY_LEN(ev), timeout_ms(work));
        if (n > 0 && read(work->event_fd, &count, sizeof count) < 0)
            n = 0; /* not that descriptor */
        bells_read(work);
        if (work->is_short)
            wf_node_others_retry(work);
        work->tep->transport->disarm(work->tep);
    }
    wf_sleep_set(&work->page->sleep_epoch, &work->epoch, false);
}

/* How the thread waits, chosen when it has nothing to do:
 *
 * | pace   | when                                             | looks     | sleeps after          |
 * | ------ | ------------------------------------------------ | --------- | --------------------- |
 * | SPINS  | there are processors for it and each endpoint    | spinning  | LOOK_NS               |
 * | YIELDS | otherwise                                        | yielding  | LOOK_NS, and 4 yields |
 * | RESTS  | otherwise, in a hold (late.h): processes that    | once      | that look             |
 * |        | compute have the processors                      |           |                       |
 */
enum pace { SPINS, YIELDS, RESTS };

static enum pace pace_of(struct node_work *work, uint64_t now_ns)
{
    if (work->mover->nports < work->processors) /* the most endpoints at a time until now */
        return SPINS;
    return wf_late_state(&work->late, now_ns) == WF_LATE_HELD ? RESTS : YIELDS;
}

/* The last [looks] looks, the first of them at [idle_ns], found nothing. Returns whether the thread
 * is to sleep now. */
static bool has_waited(struct node_work *work, enum pace pace, unsigned looks, uint64_t idle_ns)
{
    if (pace == RESTS || (pace == YIELDS && wf_late_yield(&work->late)))
        return true;
    if (pace == SPINS)
        wf_relax();
    return looks % (pace == YIELDS ? LOOKS_CROWDED : LOOKS_PER_CLOCK) == 0 &&
           wf_now_ns() - idle_ns >= LOOK_NS;
}

static void *work_main(void *arg)
{
    struct node_work *work = arg;
    enum pace pace = SPINS;
    uint64_t idle_ns = 0;
    unsigned looks = 0;
    while (!atomic_load_explicit(&work->stop, memory_order_acquire)) {
        if (turn(work)) {
            looks = 0;
            continue;
        }
        if (!looks++) {
            idle_ns = wf_now_ns();
            pace = pace_of(work, idle_ns);
        }
        if (has_waited(work, pace, looks, idle_ns)) {
            sleep_until_event(work);
            looks = 0;
        }
    }
    return NULL;
}

/* ---- what the mover calls ---- */

static uint64_t tag_of(void *owner, const struct wf_address *address)
{
    return wf_node_tag(((struct node_work *)owner)->key, address);
}

static void wake(void *owner, struct node_port *port)
{
    int bell = ((struct desk_ring *)port->user)->bell;
    (void)owner;
    /* EAGAIN: the client has bytes to read. EPIPE: it has closed its end. Both are its own concern:
     * nothing that it does to its end makes this call wait. */
    if (send(bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        wf_debug("a client was woken already, or has ended: %m");
}

static void failed(void *owner, struct node_port *port)
{
    wf_node_work_failed(owner, port->user);
}

/* ---- opening ---- */

static bool fds_open(struct node_work *work)
{
    struct epoll_event bell = {.events = EPOLLIN | EPOLLET}, event = {.events = EPOLLIN};
    work->bell_fd = wf_fd_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    work->done_fd = wf_fd_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    work->event_fd = wf_fd_high(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    work->epoll_fd = wf_fd_high(epoll_create1(EPOLL_CLOEXEC));
    work->bells_fd = wf_fd_high(epoll_create1(EPOLL_CLOEXEC));
    return work->bell_fd >= 0 && work->done_fd >= 0 && work->event_fd >= 0 && work->epoll_fd >= 0 &&
           work->bells_fd >= 0 &&
           !epoll_ctl(work->epoll_fd, EPOLL_CTL_ADD, work->bells_fd, &event) &&
           !epoll_ctl(work->epoll_fd, EPOLL_CTL_ADD, work->bell_fd, &bell) &&
           !epoll_ctl(work->epoll_fd, EPOLL_CTL_ADD, work->event_fd, &event);
}

static void fds_close(struct node_work *work)
{
    const int fds[] = {work->bell_fd,  work->done_fd,  work->event_fd,
                       work->epoll_fd, work->bells_fd, work->page_fd};
    for (size_t i = 0; i < WF_ARRAY_LEN(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    if (work->page)
        munmap(work->page, sizeof *work->page);
}

/* Returns the page of the service before, or NULL if there was none, or it cannot be mapped: then
 * peers of the endpoints that were closed there may take them for killed. */
static struct wf_node_page *page_before(const struct node_work *work)
{
    void *map = NULL;
    if (!work->young || wf_shared_map(work->estate[0], sizeof *work->page, 0, &map) != WEFT_OK)
        return NULL;
    return map;
}

static enum weft_status mover_open(struct node_work *work)
{
    struct wf_node_page *before = page_before(work);
    enum weft_status status;
    struct node_mover_params params = {.ops = &work->ops,
                                       .page = work->page,
                                       .before = before,
                                       .lanes = work->parameters.connections,
                                       .index_bits = work->parameters.index_bits,
                                       .rows = EXPECT_ROWS,
                                       .waiters = WAITERS,
                                       .young = work->young,
                                       .heirs = work->heirs,
                                       .heirs_gone = &work->heirs_gone};
    work->ops = (struct node_mover_ops){.send = wf_node_other_send,
                                        .has_room = wf_node_other_has_room,
                                        .tag = tag_of,
                                        .wake = wake,
                                        .failed = failed,
                                        .behind = wf_node_other_behind,
                                        .owner = work};
    if (work->parameters.lanes == WF_NODE_RDMA) {
        work->ops.move = wf_node_other_move;
        work->ops.instance = wf_node_other_instance;
    }
    work->page->incarnation = work->incarnation;
    status = wf_node_mover_open(&params, &work->mover);
    if (before)
        munmap(before, sizeof *before);
    return status;
}

WF_UNCHECKED enum weft_status wf_node_work_open(struct node_work *work)
{
    enum weft_status status = WEFT_ESYSTEM;
    void *page = NULL;
    wf_list_init(&work->asked);
    wf_list_init(&work->done);
    work->young = work->line != work->incarnation;
    work->processors = wf_processors_allowed();
    work->membarrier = wf_config()->membarrier && wf_sleep_register();
    work->page_fd = wf_shared_create("weft-node-page", sizeof *work->page, 1, &page);
    work->page = page;
    if (!fds_open(work) || work->page_fd < 0)
        goto close_fds;
    status = mover_open(work);
    if (status != WEFT_OK)
        goto close_fds;
    work->estate[0] = work->page_fd;
    status = wf_node_others_open(work);
    if (status != WEFT_OK)
        goto close_mover;
    pthread_mutex_init(&work->lock, NULL);
    errno = wf_thread_start(&work->thread, "weft-mover", STACK, work_main, work);
    if (!errno)
        return WEFT_OK;
    status = WEFT_ESYSTEM;
    pthread_mutex_destroy(&work->lock);
    wf_node_others_close(work, 1);
close_mover:
    wf_node_mover_close(work->mover);
close_fds:
    fds_close(work);
    return status;
}

void wf_node_work_close(struct node_work *work, uint32_t close_ms)
{
    atomic_store_explicit(&work->stop, true, memory_order_release);
    ring(work->bell_fd);
    pthread_join(work->thread, NULL);
    (void)wf_node_ends_send(work->mover);
    wf_node_others_close(work, close_ms);
    wf_node_mover_close(work->mover);
    pthread_mutex_destroy(&work->lock);
    fds_close(work);
}
