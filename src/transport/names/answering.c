/* SPDX-License-Identifier: BSD-3-Clause */
/* The side that has a name: listeners, and callers (states: names.h). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/names/names_int.h"

#define CALLER_MS 2000
#define BATCH 16        /* connections accepted per event */
#define PAUSE_MS 2      /* after a whole batch: at most 8,000 connections a second */
#define SHORTAGE_MS 100 /* after this process has run out of descriptors or memory */
#define LOG_NS ((uint64_t)10000000000)

struct caller {
    struct wf_names_watch watch;
    const struct wf_names_listener *listener; /* NULL: it is closed */
    size_t have;
    struct wf_names_question in;
};

/* ---- callers ---- */

void wf_names_caller_end(struct wf_names *names, struct wf_names_watch *w)
{
    wf_names_watch_close(names, w);
    wf_list_remove(&w->item);
    names->ncallers--;
    free(wf_container_of(w, struct caller, watch));
}

/* The answer fits into an empty send buffer. */
static UNDER_LOCK void answer(const struct caller *c)
{
    struct wf_names_answer out;
    wf_names_answer_make(&out);
    c->listener->address(c->listener->owner, out.address);
    if (send(c->watch.fd, &out, sizeof out, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof out)
        wf_debug("names: an answer was not sent: %m");
}

static UNDER_LOCK void caller_event(struct wf_names *names, struct wf_names_watch *w)
{
    struct caller *c = wf_container_of(w, struct caller, watch);
    bool open = wf_names_recv(w->fd, &c->in, &c->have, sizeof c->in);
    enum weft_status status = wf_names_question_parse(&c->in, c->have);
    if (c->listener && (status == WEFT_OK || status == WEFT_EVERSION))
        answer(c);
    if (!open || status != WEFT_PENDING)
        wf_names_caller_end(names, w);
}

/* The oldest caller makes room if there are too many. A question that is there already is answered
 * at once. */
static UNDER_LOCK void caller_open(struct wf_names *names, const struct wf_names_listener *l,
                                   int fd)
{
    struct caller *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return;
    }
    if (names->ncallers == WF_NAMES_CALLERS)
        wf_names_caller_end(names,
                            wf_container_of(names->callers.next, struct wf_names_watch, item));
    c->watch.fd = fd;
    c->watch.event = caller_event;
    c->watch.due_ns = wf_now_ns() + CALLER_MS * NAMES_MS;
    c->listener = l;
    wf_list_append(&names->callers, &c->watch.item);
    names->ncallers++;
    if (wf_names_watch(names, &c->watch, EPOLLIN))
        caller_event(names, &c->watch);
    else
        wf_names_caller_end(names, &c->watch);
}

/* ---- listeners ---- */

/* Accept nothing for [ms]. [list]: that of the listeners that pause so long. */
static UNDER_LOCK void pause_for(struct wf_names *names, struct wf_names_watch *w,
                                 struct wf_list *list, unsigned ms)
{
    wf_names_watch_events(names, w, 0);
    w->due_ns = wf_now_ns() + ms * NAMES_MS;
    wf_list_remove(&w->item);
    wf_list_append(list, &w->item);
}

void wf_names_listener_due(struct wf_names *names, struct wf_names_watch *w)
{
    wf_list_remove(&w->item);
    wf_list_append(&names->listeners, &w->item);
    wf_names_watch_events(names, w, EPOLLIN);
}

/* accept(2) also returns errors that concern only the new connection, which are ignored. */
static UNDER_LOCK void accept_failed(struct wf_names *names, struct wf_names_watch *w, int err)
{
    uint64_t now = wf_now_ns();
    if (err != EMFILE && err != ENFILE && err != ENOMEM && err != ENOBUFS)
        return;
    if (now >= names->logged_ns) {
        errno = err;
        wf_error("cannot answer questions for a name now, will try again: %m%s",
                 err == EMFILE ? "; raise the limit on open files (ulimit -n)" : "");
        names->logged_ns = now + LOG_NS;
    }
    pause_for(names, w, &names->shortages, SHORTAGE_MS);
}

static UNDER_LOCK void listener_event(struct wf_names *names, struct wf_names_watch *w)
{
    const struct wf_names_listener *l = wf_container_of(w, struct wf_names_listener, watch);
    uint8_t ip[WF_NET_IP];
    uint16_t port;
    for (int i = 0; i < BATCH; i++) {
        int fd = wf_stream_accept(w->fd, ip, &port);
        if (fd >= 0) {
            caller_open(names, l, fd);
        } else {
            accept_failed(names, w, errno);
            return;
        }
    }
    pause_for(names, w, &names->batches, PAUSE_MS);
}

static void listen_log(const struct wf_name *name, int err)
{
    char text[WF_NET_NAME];
    errno = err;
    wf_error("cannot open an endpoint at %s: %m%s",
             wf_ipaddr_print_port(name->ip, name->port, text),
             err == EADDRINUSE      ? "; another endpoint or program listens there: choose another "
                                      "port, or 0"
             : err == EADDRNOTAVAIL ? "; it is no address of this host (ip addr lists them)"
             : err == EMFILE        ? "; raise the limit on open files (ulimit -n)"
                                    : "");
}

enum weft_status wf_names_listen(struct wf_names *names, struct wf_names_listener *listener)
{
    struct wf_names_watch *w = &listener->watch;
    enum weft_status status;
    names_lock(names);
    status = wf_names_start(names);
    if (status == WEFT_OK) {
        w->event = listener_event;
        w->fd = wf_stream_listen(listener->name.ip, listener->name.port, WF_STREAM_REUSE);
        if (w->fd < 0 || !wf_names_watch(names, w, EPOLLIN)) {
            int err = errno;
            listen_log(&listener->name, err);
            status = err == EADDRINUSE      ? WEFT_EBUSY
                     : err == EADDRNOTAVAIL ? WEFT_EUNREACH
                                            : WEFT_ESYSTEM;
            wf_names_watch_close(names, w);
        }
    }
    if (status == WEFT_OK) {
        listener->name.port = wf_stream_port(w->fd);
        wf_list_append(&names->listeners, &w->item);
    }
    names_unlock(names);
    return status;
}

void wf_names_unlisten(struct wf_names *names, struct wf_names_listener *listener)
{
    names_lock(names);
    wf_names_watch_close(names, &listener->watch);
    wf_list_remove(&listener->watch.item);
    wf_list_each(it, &names->callers)
    {
        struct caller *c = wf_container_of(it, struct caller, watch.item);
        if (c->listener == listener)
            c->listener = NULL;
    }
    names_unlock(names);
}
