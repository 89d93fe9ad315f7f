/* SPDX-License-Identifier: BSD-3-Clause */
/* The side that asks: look-ups (states: names.h). */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "transport/names/names_int.h"

#define CONNECT_MS 1000
#define ANSWER_MS 5000
#define PAUSE_MIN_MS 5
#define PAUSE_MAX_MS 200 /* the longest pause between two attempts */

static struct wf_lookup *lookup_of(struct wf_names_watch *w)
{
    return wf_container_of(w, struct wf_lookup, watch);
}

static UNDER_LOCK bool is_asking(const struct wf_lookup *l)
{
    return l->state == WF_LOOKUP_CONNECT || l->state == WF_LOOKUP_ANSWER;
}

/* Leave the state that the look-up has, whatever it is. */
static UNDER_LOCK void leave(struct wf_names *names, struct wf_lookup *l, enum wf_lookup_state next)
{
    if (is_asking(l))
        names->nasking--;
    wf_names_watch_close(names, &l->watch);
    l->state = next;
}

/* The attempt has failed. The last pause ends when the look-up's time does. Look-ups that wait for
 * a place take it first. */
static UNDER_LOCK void attempt_end(struct wf_names *names, struct wf_lookup *l)
{
    leave(names, l, WF_LOOKUP_WAIT);
    l->watch.due_ns = wf_now_ns() + l->pause_ms * NAMES_MS;
    l->pause_ms = WF_MIN(2 * l->pause_ms, PAUSE_MAX_MS);
    wf_list_remove(&l->watch.item);
    wf_list_append(&names->lookups, &l->watch.item);
}

static UNDER_LOCK void finish(struct wf_names *names, struct wf_lookup *l, enum weft_status status)
{
    uint64_t one = 1;
    leave(names, l, WF_LOOKUP_DONE);
    l->status = status;
    wf_list_remove(&l->watch.item);
    wf_list_append(&l->to->done, &l->watch.item);
    /* The owner that sleeps has emptied the descriptor before it looked at [due]. */
    atomic_fetch_or_explicit(l->to->due, l->to->bit, memory_order_release);
    if (write(l->to->event_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        wf_error("cannot wake an endpoint: %m");
}

static void end_log(const struct wf_lookup *l, const char *what)
{
    char text[WF_NET_NAME];
    wf_info("no endpoint at %s: %s", wf_ipaddr_print_port(l->name.ip, l->name.port, text), what);
}

static UNDER_LOCK void expired(struct wf_names *names, struct wf_lookup *l)
{
    end_log(l, l->strange ? "another program answers there"
               : l->tried ? "no process answered within WEFT_CONNECT_TIMEOUT"
                          : "too many other names were asked for meanwhile that did not answer");
    finish(names, l, WEFT_EUNREACH);
}

static UNDER_LOCK void attempt_begin(struct wf_names *names, struct wf_lookup *l, uint64_t now)
{
    l->state = WF_LOOKUP_CONNECT;
    l->tried = true;
    l->have = 0;
    names->nasking++;
    l->watch.due_ns = now + CONNECT_MS * NAMES_MS;
    l->watch.fd = wf_stream_connect(l->name.ip, l->name.port, WF_STREAM_REUSE);
    if (l->watch.fd < 0 || !wf_names_watch(names, &l->watch, EPOLLOUT)) {
        wf_debug("asking for a name: %m");
        attempt_end(names, l);
    }
}

static UNDER_LOCK void connected(struct wf_names *names, struct wf_lookup *l)
{
    struct wf_names_question q;
    int err = wf_stream_connect_error(l->watch.fd);
    wf_names_question_make(&q);
    if (err || send(l->watch.fd, &q, sizeof q, MSG_NOSIGNAL) != (ssize_t)sizeof q) {
        attempt_end(names, l);
        return;
    }
    l->state = WF_LOOKUP_ANSWER;
    l->watch.due_ns = wf_now_ns() + ANSWER_MS * NAMES_MS;
    wf_names_watch_events(names, &l->watch, EPOLLIN);
}

static UNDER_LOCK void answered(struct wf_names *names, struct wf_lookup *l)
{
    bool open = wf_names_recv(l->watch.fd, &l->in, &l->have, sizeof l->in);
    enum weft_status status = wf_names_answer_parse(&l->in, l->have, &l->address, &l->contact);
    if (status == WEFT_OK) {
        finish(names, l, WEFT_OK);
    } else if (status == WEFT_EVERSION) {
        end_log(l, "its process has another version of Weft: use the same on all hosts");
        finish(names, l, WEFT_EVERSION);
    } else if (status == WEFT_EPROTO || !open) {
        l->strange |= status == WEFT_EPROTO;
        attempt_end(names, l);
    }
}

void wf_names_lookup_event(struct wf_names *names, struct wf_names_watch *w)
{
    struct wf_lookup *l = lookup_of(w);
    if (l->state == WF_LOOKUP_CONNECT)
        connected(names, l);
    else if (l->state == WF_LOOKUP_ANSWER)
        answered(names, l);
}

/* Connections that have timed out make room for look-ups that wait, so they come first. */
uint64_t wf_names_lookups_due(struct wf_names *names, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    wf_list_each_safe(it, nx, &names->lookups)
    {
        struct wf_lookup *l = wf_container_of(it, struct wf_lookup, watch.item);
        if (l->until_ns <= now)
            expired(names, l);
        else if (is_asking(l) && l->watch.due_ns <= now)
            attempt_end(names, l);
    }
    wf_list_each_safe(it, nx, &names->lookups)
    {
        struct wf_lookup *l = wf_container_of(it, struct wf_lookup, watch.item);
        if (l->state == WF_LOOKUP_WAIT && l->watch.due_ns <= now &&
            names->nasking < WF_NAMES_ASKING)
            attempt_begin(names, l, now);
        next = WF_MIN(next, l->until_ns);
        /* without a place, the end of another attempt is the event */
        if (is_asking(l) || names->nasking < WF_NAMES_ASKING)
            next = WF_MIN(next, l->watch.due_ns);
    }
    return next;
}

/* ---- for the endpoint's owner ---- */

enum weft_status wf_lookup_begin(struct wf_names *names, struct wf_lookup *l)
{
    uint64_t now = wf_now_ns();
    enum weft_status status;
    names_lock(names);
    status = wf_names_start(names);
    if (status == WEFT_OK) {
        l->watch.fd = -1;
        l->watch.due_ns = now;
        l->until_ns = now + wf_config()->connect_timeout_ms * NAMES_MS;
        l->pause_ms = PAUSE_MIN_MS;
        l->strange = l->tried = false;
        l->state = WF_LOOKUP_WAIT;
        wf_list_append(&names->lookups, &l->watch.item);
        wf_names_kick(names);
    }
    names_unlock(names);
    return status;
}

void wf_lookup_cancel(struct wf_names *names, struct wf_lookup *l)
{
    names_lock(names);
    if (l->state != WF_LOOKUP_IDLE) {
        leave(names, l, WF_LOOKUP_IDLE);
        wf_list_remove(&l->watch.item);
    }
    names_unlock(names);
}

struct wf_lookup *wf_lookup_next(struct wf_names *names, struct wf_lookups *lookups)
{
    struct wf_list *it;
    struct wf_lookup *l = NULL;
    names_lock(names);
    it = wf_list_pop(&lookups->done);
    if (it) {
        l = wf_container_of(it, struct wf_lookup, watch.item);
        l->state = WF_LOOKUP_IDLE;
    }
    names_unlock(names);
    return l;
}
