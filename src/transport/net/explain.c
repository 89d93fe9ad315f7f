/* SPDX-License-Identifier: BSD-3-Clause */
/* For the log: for which step on their way the messages to a peer wait. */
#include <stdio.h>

#include "transport/ipaddr.h"
#include "transport/net/channel.h"

/* Returns the first channel whose messages have not all arrived, as far as the peer has reported;
 * before all others one that cannot send. NULL: there is none. */
static const struct net_chan *chan_that_waits(const struct net_session *session)
{
    const struct net_chan *waits = NULL;
    for (unsigned i = 0; i < session->nchans; i++) {
        const struct net_chan *chan = session->chans[i];
        if (chan && chan->first != chan->next && (!waits || (waits->open && !chan->open)))
            waits = chan;
    }
    return waits;
}

static void step_write(const struct net_chan *chan, char *out, size_t room)
{
    const struct net_session *session = chan->session;
    char place[WF_NET_NAME];
    wf_ipaddr_print_port(session->contact.ip[0], session->contact.port, place);
    if (chan->link)
        snprintf(out, room, "connected to %s%s, %u not written", place,
                 chan->synced ? "" : ", but it has sent nothing yet",
                 wf_net_past(chan->written, chan->next));
    else if (!chan->dial)
        snprintf(out, room, "not connected to %s", place);
    else
        snprintf(out, room, "%s %s%s", session->is_greater ? "calling" : "asking", place,
                 session->is_greater ? "" : " for a connection");
}

void wf_net_explain(struct wf_tpeer *tpeer, char *out, size_t room)
{
    const struct net_peer *peer = NET_OF(tpeer, net_peer);
    const struct net_session *session = peer->session;
    const struct net_chan *chan = session ? chan_that_waits(session) : NULL;
    int n;
    if (!chan) {
        snprintf(out, room, "%s",
                 peer->status != WEFT_OK ? weft_status_text((enum weft_status)peer->status)
                 : session               ? "it has acknowledged all messages to it"
                                         : "nothing was sent to it");
        return;
    }
    n = snprintf(out, room, "%u messages to it are not acknowledged on lane %u: ",
                 wf_net_past(chan->first, chan->next), chan->index);
    if (n > 0 && (size_t)n < room)
        step_write(chan, out + n, room - (size_t)n);
}
