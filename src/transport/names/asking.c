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

/* The pauses after the first failed attempts; all later ones are as long as the last. */
static const unsigned pauses_ms[WF_NAMES_PAUSES] = {5, 10, 20, 40, 80, 160, 200};

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

static void move(struct wf_lookup *l, struct wf_list *list)
{
    wf_list_remove(&l->watch.item);
    wf_list_append(list, &l->watch.item);
}

/* The attempt has failed. */
static UNDER_LOCK void attempt_end(struct wf_names *names, struct wf_names_watch *w)
{
    struct wf_lookup *l = lookup_of(w);
    unsigned pause = WF_MIN(l->failures++, WF_NAMES_PAUSES - 1);
    leave(names, l, WF_LOOKUP_WAIT);
    w->due_ns = wf_now_ns() + pauses_ms[pause] * NAMES_MS;
    move(l, &names->waits[pause]);
}

static UNDER_LOCK void pause_end(struct wf_names *names, struct wf_names_watch *w)
{
    move(lookup_of(w), &names->ready);
}

static UNDER_LOCK void finish(struct wf_names *names, struct wf_lookup *l, enum weft_status status)
{
    uint64_t one = 1;
    leave(names, l, WF_LOOKUP_DONE);
    l->status = status;
    wf_list_remove(&l->all);
    move(l, &l->to->done);
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

static UNDER_LOCK void lookup_event(struct wf_names *names, struct wf_names_watch *w);

static UNDER_LOCK void attempt_begin(struct wf_names *names, struct wf_lookup *l, uint64_t now)
{
    l->state = WF_LOOKUP_CONNECT;
    l->tried = true;
    l->have = 0;
    names->nasking++;
    l->watch.due_ns = now + CONNECT_MS * NAMES_MS;
    move(l, &names->connecting);
    l->watch.event = lookup_event;
    l->watch.fd = wf_stream_connect(l->name.ip, l->name.port, WF_STREAM_REUSE);
    if (l->watch.fd < 0 || !wf_names_watch(names, &l->watch, EPOLLOUT)) {
        wf_debug("asking for a name: %m");
        attempt_end(names, &l->watch);
    }
}

static UNDER_LOCK void connected(struct wf_names *names, struct wf_lookup *l)
{
    struct wf_names_question q;
    int err = wf_stream_connect_error(l->watch.fd);
    wf_names_question_make(&q);
    if (err || send(l->watch.fd, &q, sizeof q, MSG_NOSIGNAL) != (ssize_t)sizeof q) {
        attempt_end(names, &l->watch);
        return;
    }
    l->state = WF_LOOKUP_ANSWER;
    l->watch.due_ns = wf_now_ns() + ANSWER_MS * NAMES_MS;
    move(l, &names->answering);
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
        attempt_end(names, &l->watch);
    }
}

static UNDER_LOCK void lookup_event(struct wf_names *names, struct wf_names_watch *w)
{
    struct wf_lookup *l = lookup_of(w);
    if (l->state == WF_LOOKUP_CONNECT)
        connected(names, l);
    else if (l->state == WF_LOOKUP_ANSWER)
        answered(names, l);
}

static uint64_t first_due(const struct wf_list *list)
{
    return wf_list_empty(list) ? UINT64_MAX
                               : wf_container_of(list->next, struct wf_names_watch, item)->due_ns;
}

/* End the look-ups whose time has passed at [now]. Returns the time of the next one. */
static UNDER_LOCK uint64_t expire(struct wf_names *names, uint64_t now)
{
    while (!wf_list_empty(&names->lookups)) {
        struct wf_lookup *l = wf_container_of(names->lookups.next, struct wf_lookup, all);
        names->steps++;
        if (l->until_ns > now)
            return l->until_ns;
        expired(names, l);
    }
    return UINT64_MAX;
}

/* Connections that have timed out make room for look-ups that wait, so they come first. A look-up
 * that waits for a place has no time of its own: the end of another attempt is the event. */
uint64_t wf_names_lookups_due(struct wf_names *names, uint64_t now)
{
    uint64_t next = expire(names, now), at;
    (void)wf_names_list_due(names, &names->connecting, now, attempt_end);
    (void)wf_names_list_due(names, &names->answering, now, attempt_end);
    for (unsigned i = 0; i < WF_NAMES_PAUSES; i++)
        (void)wf_names_list_due(names, &names->waits[i], now, pause_end);
    while (names->nasking < WF_NAMES_ASKING && !wf_list_empty(&names->ready))
        attempt_begin(names, wf_container_of(names->ready.next, struct wf_lookup, watch.item), now);
    at = first_due(&names->connecting);
    next = WF_MIN(next, at);
    at = first_due(&names->answering);
    next = WF_MIN(next, at);
    for (unsigned i = 0; i < WF_NAMES_PAUSES; i++) {
        at = first_due(&names->waits[i]);
        next = WF_MIN(next, at);
    }
    return next;
}

/* ---- for the endpoint's owner ---- */

enum weft_status wf_lookup_begin(struct wf_names *names, struct wf_lookup *l)
{
    enum weft_status status;
    names_lock(names);
    status = wf_names_start(names);
    if (status == WEFT_OK) {
        l->watch.fd = -1;
        l->until_ns = wf_now_ns() + wf_config()->connect_timeout_ms * NAMES_MS;
        l->failures = 0;
        l->strange = l->tried = false;
        l->state = WF_LOOKUP_WAIT;
        wf_list_append(&names->lookups, &l->all);
        wf_list_append(&names->ready, &l->watch.item);
        wf_names_kick(names);
    }
    names_unlock(names);
    return status;
}

void wf_lookup_cancel(struct wf_names *names, struct wf_lookup *l)
{
    names_lock(names);
    if (l->state != WF_LOOKUP_IDLE) {
        if (l->state != WF_LOOKUP_DONE)
            wf_list_remove(&l->all);
        if (is_asking(l) && !wf_list_empty(&names->ready))
            wf_names_kick(names); /* there is a place for another look-up */
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
