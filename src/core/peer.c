/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "base/log.h"
#include "core/core.h"

/* The first transport that reaches [to]; -1 and the last one's reason if none. */
static int transport_for(struct weft_ep *ep, const struct wf_address *to, const char **why)
{
    for (int i = 0; i < WF_TRANSPORTS; i++)
        if (wf_transports[i]->reach(ep->ctx->tctx[i], &ep->address, to, why) == WEFT_OK)
            return i;
    return -1;
}

enum weft_status weft_peer_open(struct weft_ep *ep, const void *addr, size_t len,
                                struct weft_peer **out)
{
    enum weft_status status = wf_ep_check(ep);
    struct wf_address to;
    const char *why = "";
    struct weft_peer *peer;
    int i;
    if (status == WEFT_OK)
        status = out ? wf_address_parse(addr, len, &to) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    i = transport_for(ep, &to, &why);
    if (i < 0) {
        wf_error("cannot reach endpoint %u of process %u: %s", to.ep, to.process.pid, why);
        return WEFT_EUNREACH;
    }
    peer = calloc(1, sizeof *peer + wf_transports[i]->tpeer_size);
    if (!peer)
        return WEFT_ENOMEM;
    peer->ep = ep;
    peer->transport = wf_transports[i];
    status = peer->transport->peer_open(ep->tep[i], wf_peer_tpeer(peer), &to);
    if (status != WEFT_OK) {
        free(peer);
        return status;
    }
    ep->peers++;
    *out = peer;
    return WEFT_OK;
}

enum weft_status weft_peer_close(struct weft_peer *peer)
{
    enum weft_status status = peer ? wf_ep_check(peer->ep) : WEFT_EINVAL;
    if (status != WEFT_OK)
        return status;
    if (peer->remotes)
        return WEFT_EBUSY;
    peer->transport->peer_close(wf_peer_tpeer(peer));
    peer->ep->peers--;
    free(peer);
    return WEFT_OK;
}

enum weft_status weft_peer_status(const struct weft_peer *peer)
{
    return peer ? peer->status : WEFT_EINVAL;
}

void weft_peer_set_arg(struct weft_peer *peer, void *arg)
{
    if (peer)
        peer->arg = arg;
}

void *weft_peer_arg(const struct weft_peer *peer)
{
    return peer ? peer->arg : NULL;
}
