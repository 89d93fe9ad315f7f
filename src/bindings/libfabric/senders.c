/* SPDX-License-Identifier: BSD-3-Clause */
/* The senders of messages. Weft has an object for each remote endpoint that has sent a message, and
 * frees it when the program says so (weft_sender_forget). The provider keeps a record of each: what
 * its address is in the address vector, and that it has to be forgotten.
 *
 * Weft refuses to forget a sender that has a connection, a message or a peer. So an endpoint tries
 * all its senders when there are twice as many as were left the last time, and when addresses were
 * removed, half as many as there are senders: what is kept grows with the senders that are there,
 * not with all that ever were, and a new sender or a removed address costs two tries.
 *
 * A thread that reports a message from within a receive call does not hold the mutex of Weft's
 * endpoint. In this time, a window, its sender may have no message left, and must not be forgotten.
 * Windows are counted under wfi_ep.free_lock, where also is decided whether senders are forgotten:
 *
 *   windows  forgetting  what may begin
 *   none     no          a window, or forgetting
 *   some     no          another window
 *   none     yes         nothing; receive calls wait
 *
 * Without locks there is one thread, and no window is open while it polls. */
#include <sched.h>
#include <stdlib.h>

#include "op.h"

#define SENDERS_LEAST 64

struct wfi_sender {
    struct wfi_sender *next;
    struct weft_sender *sender;
    uint64_t version; /* of the address vector when [source] was looked up; 0: never */
    fi_addr_t source;
};

/* Returns nothing: if it is deferred already, it will be done; if the endpoint closes, it is not
 * needed. */
static void forget_later(struct wfi_ep *ep)
{
    enum weft_status s = weft_ep_defer(ep->wep, &ep->forget);
    (void)s;
}

/* Make the record of [sender], if no other thread has. Returns NULL without memory: a later message
 * of this sender tries again. */
static struct wfi_sender *record(struct wfi_ep *ep, struct weft_sender *sender)
{
    struct wfi_sender *own = calloc(1, sizeof *own), *s;
    bool many;
    if (!own)
        return NULL;
    wfi_lock(&ep->free_lock);
    s = weft_sender_arg(sender);
    if (!s) {
        *own = (struct wfi_sender){ep->senders, sender, 0, FI_ADDR_NOTAVAIL};
        ep->senders = s = own;
        own = NULL;
        ep->nsenders++;
        weft_sender_set_arg(sender, s);
    }
    many = ep->nsenders >= ep->senders_most;
    wfi_unlock(&ep->free_lock);
    free(own);
    if (WEFT_UNLIKELY(many))
        forget_later(ep);
    return s;
}

/* Look the entry of [s] up in the address vector. If it can only be a name, the result is not kept:
 * it changes with the first use of the name, and when another endpoint takes it over. */
static fi_addr_t look_up(struct wfi_ep *ep, struct wfi_sender *s, struct weft_sender *sender,
                         uint64_t *version)
{
    uint8_t bytes[WFI_ADDR_SIZE];
    size_t len = sizeof bytes;
    uint64_t found;
    fi_addr_t source;
    *version = 0;
    if (weft_sender_address(sender, bytes, &len) != WEFT_OK)
        return FI_ADDR_NOTAVAIL;
    source = wfi_av_find(ep->av, bytes, &found);
    if (source == FI_ADDR_NOTAVAIL && wfi_av_has_names(ep->av))
        return wfi_av_of_sender(ep->av, sender);
    *version = found;
    if (!s)
        return source;
    wfi_lock(&ep->free_lock);
    s->version = found;
    s->source = source;
    wfi_unlock(&ep->free_lock);
    return source;
}

fi_addr_t wfi_sender_source(struct wfi_ep *ep, struct weft_sender *sender, uint64_t *version)
{
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    struct wfi_sender *s;
    bool known;
    *version = wfi_av_version(ep->av);
    wfi_lock(&ep->free_lock);
    s = weft_sender_arg(sender);
    known = s && (!ep->source || s->version == *version);
    if (known)
        source = s->source;
    wfi_unlock(&ep->free_lock);
    if (WEFT_UNLIKELY(!s))
        s = record(ep, sender);
    return known || !ep->source ? source : look_up(ep, s, sender, version);
}

void wfi_sender_note(struct wfi_ep *ep, struct weft_sender *sender)
{
    bool known;
    wfi_lock(&ep->free_lock);
    known = weft_sender_arg(sender) != NULL;
    wfi_unlock(&ep->free_lock);
    if (!known)
        (void)record(ep, sender);
}

/* ---- windows ---- */

void wfi_window_await(struct wfi_ep *ep)
{
    while (ep->forgetting && !wfi_is_parents(ep->free_lock.forks)) {
        wfi_unlock(&ep->free_lock);
        sched_yield();
        wfi_lock(&ep->free_lock);
    }
}

void wfi_window_open(struct wfi_ep *ep)
{
    wfi_lock(&ep->free_lock);
    wfi_window_open_held(ep);
    wfi_unlock(&ep->free_lock);
}

/* ---- forgetting ---- */

/* Take the list of senders, to forget them. Returns false if a window is open or another thread
 * forgets senders. */
static bool begin(struct wfi_ep *ep, struct wfi_sender **list)
{
    bool may;
    wfi_lock(&ep->free_lock);
    may = !ep->windows && !ep->forgetting;
    if (may) {
        ep->forgetting = true;
        ep->nremovals = 0;
        *list = ep->senders;
        ep->senders = NULL;
    }
    wfi_unlock(&ep->free_lock);
    return may;
}

/* Give the senders [*kept] back, of which [gone] are no more. New ones may have come: they follow
 * at [last], which is [kept] if there are no others. */
static void end(struct wfi_ep *ep, struct wfi_sender *const *kept, struct wfi_sender **last,
                size_t gone)
{
    wfi_lock(&ep->free_lock);
    *last = ep->senders;
    ep->senders = *kept;
    ep->nsenders -= gone;
    ep->senders_most = ep->nsenders < SENDERS_LEAST / 2 ? SENDERS_LEAST : 2 * ep->nsenders;
    ep->last_sender = NULL;
    ep->forgetting = false;
    wfi_unlock(&ep->free_lock);
}

/* Forget the senders that nothing refers to. Returns false, and has done nothing, if a window is
 * open or another thread does it. */
static bool senders_forget(struct wfi_ep *ep)
{
    struct wfi_sender *list, *s, *kept = NULL, **last = &kept;
    size_t gone = 0;
    if (!begin(ep, &list))
        return false;
    while ((s = list)) {
        list = s->next;
        if (weft_sender_forget(s->sender) == WEFT_OK) {
            free(s);
            gone++;
        } else {
            *last = s;
            last = &s->next;
        }
    }
    end(ep, &kept, last, gone);
    return true;
}

static void forget(struct weft_deferred *item)
{
    struct wfi_ep *ep = item->arg;
    if (item->status == WEFT_OK && !senders_forget(ep))
        forget_later(ep); /* a window is short */
}

void wfi_senders_removed(struct wfi_ep *ep, size_t count)
{
    bool due;
    wfi_lock(&ep->free_lock);
    ep->nremovals += count;
    due = ep->nsenders && 2 * ep->nremovals >= ep->nsenders;
    wfi_unlock(&ep->free_lock);
    if (due)
        (void)senders_forget(ep); /* if it has done nothing, the next removal tries again */
}

void wfi_senders_init(struct wfi_ep *ep)
{
    ep->senders_most = SENDERS_LEAST;
    ep->forget.fn = forget;
    ep->forget.arg = ep;
}

void wfi_senders_free(struct wfi_ep *ep)
{
    while (ep->senders) {
        struct wfi_sender *s = ep->senders;
        ep->senders = s->next;
        free(s);
    }
}
