/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/msg_nic.h"

#include "base/hook.h"
#include "core/ctl.h"
#include "core/path.h"

/* ---- the sender ---- */

const struct wf_nic_lent *wf_msg_lend(struct wf_req *req)
{
    struct weft_peer *peer = req->peer;
    if (req->u.send.lent || req->mem.n != 1 || req->copy || !wf_path_msg_nic(peer, req->len, 1))
        return req->u.send.lent;
    if (peer->transport->nic_lend(wf_peer_tpeer(peer), req->mem.v->iov_base, req->len,
                                  &req->u.send.lent) != WEFT_OK)
        req->u.send.lent = NULL;
    return req->u.send.lent;
}

void wf_msg_take_back(struct wf_req *req, bool is_read)
{
    struct weft_peer *peer = req->peer;
    const struct wf_nic_lent *lent = req->u.send.lent;
    req->u.send.lent = NULL;
    peer->transport->nic_take_back(wf_peer_tpeer(peer), lent, is_read || !req->u.send.offered);
}

/* ---- the receiver ---- */

void wf_msg_read_choose(struct wf_req *copy, const struct wf_msg_offer *o)
{
    struct weft_peer *peer = copy->peer;
    /* The keys are of the NICs of the transport by which the OFFER came. */
    if (!o->by_nic || peer->transport != o->sender->transport ||
        !wf_path_msg_nic(peer, copy->len, copy->mem.n))
        return;
    copy->path = WF_PATH_NIC;
    copy->u.copy.nic = o->nic;
}

/* Messages go on. [copied] bytes are here. */
static void read_not(struct wf_req *copy)
{
    copy->path = (uint8_t)wf_path_offered(copy->peer);
    copy->status = WEFT_OK;
    copy->sent = copy->copied;
}

enum weft_status wf_msg_read_push(struct wf_req *copy)
{
    const struct wf_transport *t = copy->peer->transport;
    struct wf_nic_op m = {.keys = copy->u.copy.nic.keys,
                          .id = WF_LO(copy->id),
                          .kind = WF_NIC_OP_GET,
                          .is_of_message = true};
    while (copy->sent < copy->len && !copy->status) {
        enum weft_status status;
        size_t taken;
        m.len = (size_t)(copy->len - copy->sent);
        m.local = wf_iov_span(&copy->mem, copy->sent, &m.len);
        m.remote = copy->u.copy.nic.at + copy->sent;
        status = t->nic_op(wf_peer_tpeer(copy->peer), &m, &taken);
        if (status == WEFT_AGAIN || (status != WEFT_EUNREACH && wf_is_loss(status)))
            return status;
        if (status != WEFT_OK) {
            if (copy->unanswered)
                copy->status = WEFT_EUNREACH;
            else
                read_not(copy);
            return WEFT_PENDING;
        }
        WF_HOOK("msg.reading");
        copy->sent += taken;
        copy->unanswered++;
    }
    return WEFT_PENDING;
}

void wf_msg_read_done(struct wf_req *copy, enum weft_status status)
{
    if (copy->path != WF_PATH_NIC || !copy->unanswered)
        return;
    copy->unanswered--;
    if (!copy->status)
        copy->status = (int16_t)status;
    if (copy->unanswered) {
        if (copy->sent < copy->len && !copy->status)
            wf_req_queue(copy);
        return;
    }
    if (copy->status == WEFT_OK)
        copy->copied = copy->sent;
    if (copy->status == WEFT_ECANCELED) { /* by the program: no byte has a place */
        wf_msg_copy_fail(copy, WEFT_ECANCELED);
    } else if (copy->status == WEFT_OK && copy->copied == copy->len) {
        wf_msg_push_end(copy, true);
    } else {
        if (copy->status)
            read_not(copy);
        wf_req_queue(copy);
    }
}

void wf_msg_read_stop(struct wf_req *copy)
{
    const struct wf_transport *t = copy->peer->transport;
    if (copy->unanswered && t->nic_stop)
        t->nic_stop(wf_peer_tpeer(copy->peer));
}
