/* SPDX-License-Identifier: BSD-3-Clause */
/* The bytes on a TCP connection; docs/protocol.md "TCP" describes them.
 *
 * A connection begins with a handshake of three messages of fixed size:
 *
 *     connecting side                      accepting side
 *       struct wf_net_hello    -->
 *                              <--           struct wf_net_challenge, or wf_net_refusal
 *       struct wf_net_proof    -->           (or it closes)
 *
 * Challenge and proof each hold a MAC under the job's key. It covers a label of the message's own,
 * the whole hello, and the challenge up to its MAC: so role, version, flags, both nonces and both
 * endpoints. A side that receives a wrong MAC closes the connection.
 *
 * Frames follow both ways, in AEAD records if both sides encrypt. Each frame begins at a multiple
 * of 16 bytes of the stream: header, arguments (4 bytes each), padding to 16, payload, padding
 * to 16.
 */
#ifndef WF_TRANSPORT_NET_PROTO_H
#define WF_TRANSPORT_NET_PROTO_H

#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "base/util.h"
#include "transport/address.h"
#include "transport/transport.h"

#define WF_NET_VERSION 2
#define WF_NET_LANES_MAX 16

/* ---- handshake ---- */

#define WF_NET_MAGIC 0x48434654u /* "TFCH" */
#define WF_NET_NONCE 32
#define WF_NET_MAC 32
#define WF_NET_KEY 32

enum wf_net_role { WF_NET_HELLO = 1, WF_NET_CHALLENGE, WF_NET_PROOF, WF_NET_REFUSAL };
enum wf_net_flags { WF_NET_ENCRYPT = 1 };

/* All four messages begin with this. */
struct wf_net_greeting {
    uint32_t magic;
    uint16_t version;
    uint8_t role;
    uint8_t zero;
    uint32_t size; /* of the whole message */
    uint32_t flags;
};
_Static_assert(sizeof(struct wf_net_greeting) == 16, "wire structure");

struct wf_net_hello {
    struct wf_net_greeting greeting;
    uint16_t lane;
    uint16_t to_ep;
    uint32_t to_gen;
    uint64_t to_token[2]; /* of the process of the endpoint that is dialled */
    uint32_t gen;         /* the connection's generation on its channel, from 1 on */
    uint32_t zero;
    uint8_t nonce[WF_NET_NONCE];
    struct wf_address from;
    struct wf_contact contact; /* of from */
};
_Static_assert(sizeof(struct wf_net_hello) == 184, "wire structure");

struct wf_net_challenge {
    struct wf_net_greeting greeting;
    uint8_t nonce[WF_NET_NONCE];
    uint8_t mac[WF_NET_MAC];
};
_Static_assert(sizeof(struct wf_net_challenge) == 80, "wire structure");

struct wf_net_proof {
    struct wf_net_greeting greeting;
    uint8_t mac[WF_NET_MAC];
};
_Static_assert(sizeof(struct wf_net_proof) == 48, "wire structure");

enum wf_net_refusal_reason {
    WF_NET_REFUSED_GONE = 1, /* there is no such endpoint in this process */
    WF_NET_REFUSED_VERSION,
    WF_NET_REFUSED_FLAGS, /* one side encrypts, the other does not */
    WF_NET_REFUSED_BUSY,  /* too many pending connections at the connection manager: try again */
};

/* Not authenticated: only a hint for the log and for the time of the next attempt. */
struct wf_net_refusal {
    struct wf_net_greeting greeting; /* version and flags: the refusing side's */
    uint32_t reason;
    uint32_t zero[3];
};
_Static_assert(sizeof(struct wf_net_refusal) == 32, "wire structure");

/* ---- frames ---- */

enum wf_net_kind {
    WF_NET_REQUEST = 1,
    WF_NET_REPLY,
    WF_NET_BULK_REQUEST, /* the receiver's core names the memory for the payload */
    WF_NET_BULK_REPLY,
    WF_NET_VOID, /* takes the place of a request that is not needed any more */
    WF_NET_BYE,  /* the sender's endpoint closes: nothing follows on this channel. One argument: the
                  * lanes by which it sends BYE, a bit each. As the first frame of a connection,
                  * instead of SYNC, not counted and without argument: the sender has given this
                  * session up. */
    WF_NET_ACK,  /* not counted; carries ack and room when no other frame is to be sent */
    WF_NET_SYNC, /* not counted; the first frame of each connection, and nowhere else */
    WF_NET_KINDS
};

struct wf_net_frame {
    uint32_t len;  /* payload bytes */
    uint32_t ack;  /* counted frames that the sender has received so far on this channel */
    uint32_t room; /* REQUEST, BULK_REQUEST: reply_max of weft_am_request. REPLY, BULK_REPLY: that
                    * of the request. ACK, SYNC: running total of the bytes reserved by requests
                    * that ended without a reply. */
    uint8_t kind;
    uint8_t nargs;
    uint8_t handler;
    uint8_t zero;
};
_Static_assert(sizeof(struct wf_net_frame) == 16, "wire structure");

/* Payload of SYNC. */
struct wf_net_sync {
    uint64_t session; /* the sender's number of this session; a new session has a new one */
    uint64_t yours;   /* the receiver's number, as the sender knows it; 0: it does not yet */
    uint32_t first;   /* counted frames that the sender has dropped, since they were acknowledged */
    uint32_t next;    /* counted frames of the sender in all, sent or to be sent */
    uint64_t zero;
};
_Static_assert(sizeof(struct wf_net_sync) == 32, "wire structure");

#define WF_NET_ALIGN 16
#define WF_NET_AM_MAX 32704u /* bytes; the greatest value of WEFT_AM_MAX */

static inline uint32_t wf_net_head_size(unsigned nargs)
{
    return (uint32_t)wf_align_up(sizeof(struct wf_net_frame) + 4u * nargs, WF_NET_ALIGN);
}

static inline uint32_t wf_net_padded(uint32_t len)
{
    return (uint32_t)wf_align_up(len, WF_NET_ALIGN);
}

static inline int wf_net_is_bulk(unsigned kind)
{
    return kind == WF_NET_BULK_REQUEST || kind == WF_NET_BULK_REPLY;
}

static inline int wf_net_is_counted(unsigned kind)
{
    return kind < WF_NET_ACK;
}

/* The room that a request's reply takes in the responder's ring: header and payload. */
static inline uint32_t wf_net_reply_size(uint32_t reply_max)
{
    return wf_net_head_size(WEFT_AM_MAX_ARGS) + wf_net_padded(reply_max ? reply_max - 1 : 0);
}

/* The one parser of frame headers: copies [bytes] out. OK | EPROTO */
enum weft_status wf_net_frame_parse(const void *bytes, struct wf_net_frame *out);

#endif
