/* SPDX-License-Identifier: BSD-3-Clause */
/* Tagged messages that no receive has matched: how they are kept, found, claimed, received and
 * dropped. */
#include <stdlib.h>

#include "base/asan.h"
#include "base/log.h"
#include "core/ctl.h"
#include "core/mr_local.h"
#include "core/msg_parts.h"
#include "core/msg_push.h"
#include "core/msg_recv.h"
#include "core/resolve.h"

#ifdef WF_ASAN
#include <sanitizer/asan_interface.h>
#endif

/* ---- keeping ---- */

/* The endpoint uses the records of brief messages again. Without that, a flood of messages that
 * come before their receives makes glibc give the end of its heap back to the kernel, and fetch it
 * anew, thousands of times a second: it trims beyond 128 KiB. */
#define MOST_SPARES 4096u /* under 1 MiB */

/* AddressSanitizer reports the use of a record among the spares, but of next_spare. */
static void spare_poison(struct weft_msg *m)
{
#ifdef WF_ASAN
    const uint8_t *rest = (const uint8_t *)(&m->next_spare + 1), *end = m->bytes + WF_KEPT_BRIEF;
    __asan_poison_memory_region(m, offsetof(struct weft_msg, next_spare));
    __asan_poison_memory_region(rest, (size_t)(end - rest));
#else
    (void)m;
#endif
}

static void spare_unpoison(struct weft_msg *m)
{
#ifdef WF_ASAN
    __asan_unpoison_memory_region(m, sizeof *m + WF_KEPT_BRIEF);
#else
    (void)m;
#endif
}

static struct weft_msg *record_new(struct weft_ep *ep, size_t bytes)
{
    struct weft_msg *m = bytes <= WF_KEPT_BRIEF ? ep->kept_spares : NULL;
    if (m) {
        spare_unpoison(m);
        ep->kept_spares = m->next_spare;
        ep->nkept_spares--;
    } else {
        m = malloc(sizeof *m + (bytes <= WF_KEPT_BRIEF ? WF_KEPT_BRIEF : bytes));
    }
    if (!m)
        return NULL;
    memset(m, 0, sizeof *m);
    m->brief = bytes <= WF_KEPT_BRIEF;
    return m;
}

static void record_free(struct weft_ep *ep, struct weft_msg *m)
{
    if (!m->brief || ep->nkept_spares >= MOST_SPARES) {
        free(m);
        return;
    }
    m->next_spare = ep->kept_spares;
    ep->kept_spares = m;
    ep->nkept_spares++;
    spare_poison(m);
}

void wf_msg_kept_end(struct weft_ep *ep)
{
    for (struct weft_msg *m; (m = ep->kept_spares);) {
        ep->kept_spares = m->next_spare;
        free(m);
    }
}

struct weft_msg *wf_msg_kept_new(struct wf_sender *sender, const struct wf_msg_head *head,
                                 size_t bytes)
{
    struct weft_msg *m = record_new(sender->ep, bytes);
    if (!m)
        return NULL;
    m->match.source = sender;
    m->match.tag = head->tag;
    m->data = head->data;
    m->what = (uint16_t)head->what;
    m->sender = sender;
    wf_list_init(&m->offers);
    wf_sender_ref(sender);
    return m;
}

struct weft_msg *wf_msg_kept_offer(const struct wf_msg_offer *o)
{
    const size_t bytes = o->by_nic ? sizeof o->nic : o->nfrom * sizeof *o->from;
    struct weft_msg *m = wf_msg_kept_new(o->sender, &o->head, bytes);
    if (!m)
        return NULL;
    m->offer = true;
    m->len = o->len;
    m->id = o->id;
    m->word = o->word;
    m->nfrom = (uint8_t)o->nfrom;
    m->conn = o->conn;
    m->member = (uint8_t)o->member;
    m->by_nic = o->by_nic;
    memcpy(m->bytes, o->by_nic ? (const void *)&o->nic : o->from, bytes);
    wf_msg_push_keep(m, o->pushed);
    return m;
}

bool wf_msg_keep(struct weft_ep *ep, struct wf_sender *sender, struct weft_msg *m)
{
    struct wf_match *match = m ? wf_msg_match(ep, m->what & WF_WHAT_SPACE) : NULL;
    if (m && !m->offer)
        wf_msg_kept_charge(m, (int64_t)(m->len + WF_MSG_CHARGE));
    if (m && match) {
        wf_match_msg_add(match, &m->match);
        wf_ep_count(ep, WF_STAT_MSG_KEPT, 1);
        return true;
    }
    wf_error("no memory to keep a tagged message: its sender's messages are refused from here on");
    sender->down = WEFT_ENOMEM;
    if (m)
        wf_msg_kept_drop(m);
    wf_msg_parts_down(sender, NULL, WEFT_ENOMEM);
    wf_msg_sender_down(sender, WEFT_ENOMEM);
    return false;
}

void wf_msg_kept_free(struct weft_msg *m)
{
    struct weft_ep *ep = m->sender->ep;
    if (m->offer)
        wf_msg_push_forgotten(m);
    else
        wf_msg_kept_charge(m, -(int64_t)(m->len + WF_MSG_CHARGE));
    wf_sender_unref(m->sender);
    record_free(ep, m);
}

void wf_msg_kept_drop(struct weft_msg *m)
{
    if (m->parts)
        wf_msg_parts_drop(m);
    wf_msg_kept_free(m);
}

/* ---- receiving ---- */

static struct wf_match *match_of(struct weft_ep *ep, const struct weft_msg *m)
{
    return *wf_msg_match_at(ep, m->what & WF_WHAT_SPACE);
}

/* Returns the OFFER that [m] keeps, if it keeps one. */
static struct wf_msg_offer offer_of(const struct weft_msg *m)
{
    struct wf_msg_offer o = {.sender = m->sender,
                             .head = wf_msg_head_of(m),
                             .len = m->len,
                             .id = m->id,
                             .word = m->word,
                             .nfrom = m->nfrom,
                             .from = (const struct wf_offer_range *)(const void *)m->bytes,
                             .pushed = wf_msg_push_is_due(m),
                             .conn = m->conn,
                             .member = m->member,
                             .named = m->named,
                             .by_nic = m->by_nic};
    if (o.by_nic)
        memcpy(&o.nic, m->bytes, sizeof o.nic);
    return o;
}

/* Free the kept message *m. [matching]: it is still in the matcher. */
static void kept_end(struct weft_ep *ep, struct weft_msg **m, bool matching)
{
    if (matching)
        wf_match_msg_remove(match_of(ep, *m), &(*m)->match);
    wf_msg_kept_free(*m);
    *m = NULL;
}

void wf_msg_kept_withdraw(struct weft_msg *m)
{
    kept_end(m->sender->ep, &m, true);
}

/* As wf_msg_take, for a message that is here, or whose last parts will never come. After ENOMEM the
 * program may use a claimed message again, so a message that was lost for lack of memory stays. */
static enum weft_status whole_take(struct weft_ep *ep, struct weft_msg **at, bool matching,
                                   const struct iovec *iov, unsigned count, size_t room,
                                   struct weft_op *op)
{
    const struct wf_iov mem = {.v = iov, .n = count};
    const struct weft_msg *m = *at;
    const struct wf_msg_head head = wf_msg_head_of(m);
    enum weft_status status = (enum weft_status)m->lost;
    if (status == WEFT_ENOMEM)
        return status;
    if (status == WEFT_OK)
        status = wf_msg_whole_take(ep, &mem, room, m->bytes, m->len);
    wf_msg_op_fill(op, m->sender, &head, m->len);
    op->status = status;
    kept_end(ep, at, matching);
    return status;
}

static enum weft_status offer_take(struct weft_ep *ep, struct weft_msg **at, bool matching,
                                   const struct iovec *iov, unsigned count, size_t room,
                                   struct weft_op *op)
{
    struct weft_msg *m = *at;
    const struct wf_msg_offer o = offer_of(m);
    struct wf_iov mem = {.v = &mem.one};
    enum weft_status status = wf_iov_set(&mem, iov, count);
    struct weft_peer *peer;
    struct wf_req *req;
    if (status != WEFT_OK)
        return status;
    status = wf_msg_copy_begin(ep, &o, &mem, room, op, &req);
    peer = req ? req->peer : NULL;
    wf_iov_clear(&mem);
    if (!req && !wf_is_loss(status)) /* the sender waits: the program can try again */
        return status;
    if (matching)
        wf_match_msg_remove(match_of(ep, m), &m->match);
    if (status == WEFT_PENDING) {
        op->entry_ = req;
        op->status = WEFT_PENDING;
    } else {
        wf_msg_op_fill(op, o.sender, &o.head, o.len);
        if (req) {
            enum weft_status outcome = wf_msg_copy_status(req, status);
            wf_msg_copy_close(req, true, status);
            status = outcome;
        }
        op->status = status;
    }
    /* Send the messages of the request now, because the sender waits for them, and this endpoint
     * may not poll soon. */
    if (req)
        wf_flow_push(peer);
    wf_msg_kept_free(m);
    *at = NULL;
    return status;
}

enum weft_status wf_msg_take(struct weft_ep *ep, struct weft_msg **m, bool matching,
                             const struct iovec *iov, unsigned count, size_t room,
                             struct weft_op *op)
{
    enum weft_status status;
    if ((*m)->offer)
        return offer_take(ep, m, matching, iov, count, room, op);
    if (!(*m)->parts)
        return whole_take(ep, m, matching, iov, count, room, op);
    status = wf_msg_parts_take(ep, *m, iov, count, room, op);
    if (status != WEFT_ENOMEM)
        kept_end(ep, m, matching);
    return status;
}

/* ---- finding ---- */

enum weft_status wf_msg_find_begin(struct weft_ep *ep, struct weft_peer *peer, unsigned space,
                                   struct wf_sender **sender)
{
    enum weft_status status = wf_ep_enter(ep);
    if (status != WEFT_OK)
        return status;
    *sender = NULL;
    if (peer && peer->ep != ep)
        status = WEFT_EINVAL;
    else if (peer && wf_resolve_is_unknown(peer))
        status = wf_resolve_ask(peer);
    else if ((peer && !(*sender = wf_sender_of_peer(peer))) || !wf_msg_match(ep, space))
        status = WEFT_ENOMEM;
    if (status != WEFT_OK)
        wf_ep_leave(ep);
    return status;
}

enum weft_status weft_msg_find(struct weft_ep *ep, const struct weft_msg_filter *filter,
                               struct weft_msg_info *info, struct weft_msg **msg)
{
    struct wf_sender *sender;
    struct wf_match_msg *found;
    struct wf_match *match;
    enum weft_status status = info && wf_msg_filter_ok(filter)
                                  ? wf_msg_find_begin(ep, filter->source, filter->space, &sender)
                                  : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    match = *wf_msg_match_at(ep, filter->space);
    found = wf_match_msg_find(match, sender, filter->tag, filter->mask);
    if (found) {
        struct weft_msg *m = wf_container_of(found, struct weft_msg, match);
        *info = (struct weft_msg_info){.tag = m->match.tag,
                                       .len = m->len,
                                       .sender = wf_sender_name(m->sender),
                                       .data = m->data,
                                       .has_data = !!(m->what & WF_WHAT_DATA)};
        if (msg) {
            wf_match_msg_remove(match, found);
            m->claimed = true;
            m->named = filter->source;
            ep->claimed++;
            *msg = m;
        }
    }
    return wf_ep_left(ep, found ? WEFT_OK : WEFT_AGAIN);
}

enum weft_status weft_msg_probe(struct weft_ep *ep, struct weft_peer *peer, uint64_t tag,
                                uint64_t mask, struct weft_msg_info *info)
{
    const struct weft_msg_filter filter = {peer, tag, mask, 0, 0};
    return weft_msg_find(ep, &filter, info, NULL);
}

enum weft_status weft_msg_claim(struct weft_ep *ep, struct weft_peer *peer, uint64_t tag,
                                uint64_t mask, struct weft_msg_info *info, struct weft_msg **msg)
{
    const struct weft_msg_filter filter = {peer, tag, mask, 0, 0};
    return msg ? weft_msg_find(ep, &filter, info, msg) : WEFT_EINVAL;
}

/* ---- claimed messages ---- */

enum weft_status weft_msg_take(struct weft_ep *ep, struct weft_msg *msg, void *buf, size_t len,
                               struct weft_op *op)
{
    struct iovec one = {buf, len};
    enum weft_status status =
        msg && op && (!len || buf) && len <= SIZE_MAX / 2 ? wf_ep_enter(ep) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    if (msg->sender->ep != ep)
        return wf_ep_left(ep, WEFT_EINVAL);
    status = wf_local_one(ep, op, buf, len, WEFT_RECV);
    if (status != WEFT_OK) /* [msg] stays claimed */
        return wf_ep_left(ep, status);
    status = wf_msg_take(ep, &msg, false, &one, 1, len, op);
    if (!msg)
        ep->claimed--;
    return wf_ep_left(ep, status);
}

/* Drop an offered message: as a receive without room does, which reports the end to the sender. */
static enum weft_status offer_drop(struct weft_ep *ep, const struct weft_msg *m)
{
    const struct wf_msg_offer o = offer_of(m);
    struct wf_iov mem;
    struct weft_peer *peer;
    struct wf_req *req;
    enum weft_status status;
    wf_iov_one(&mem, NULL, 0);
    status = wf_msg_copy_begin(ep, &o, &mem, 0, NULL, &req);
    if (!req) /* without memory; or the sender is lost, and expects no report */
        return wf_is_loss(status) ? WEFT_OK : status;
    peer = req->peer;
    if (status != WEFT_PENDING)
        wf_msg_copy_close(req, true, status);
    wf_flow_push(peer);
    return WEFT_OK;
}

enum weft_status weft_msg_drop(struct weft_ep *ep, struct weft_msg *msg)
{
    enum weft_status status = msg ? wf_ep_enter(ep) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    if (msg->sender->ep != ep)
        return wf_ep_left(ep, WEFT_EINVAL);
    if (msg->parts)
        wf_msg_parts_ignore(msg);
    else if (msg->offer && (status = offer_drop(ep, msg)) != WEFT_OK)
        return wf_ep_left(ep, status);
    wf_msg_kept_free(msg);
    ep->claimed--;
    return wf_ep_left(ep, WEFT_OK);
}
