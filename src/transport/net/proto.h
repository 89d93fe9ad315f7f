/* SPDX-License-Identifier: BSD-3-Clause */
/* The bytes on a TCP connection. docs/protocol.md describes them in the sections "Network
 * connections: the handshake" and "Network connections: frames".
 *
 * A connection begins with a handshake of three messages of fixed size:
 *
 *     connecting side                      accepting side
 *       struct wf_net_hello    -->
 *                              <--           struct wf_net_challenge, or wf_net_refusal
 *       struct wf_net_proof    -->           (or it closes the connection)
 *
 * Challenge and proof each hold a MAC under the job's key. Each MAC covers a label that only this
 * kind of message has, then the whole hello, and then the challenge up to its MAC field. So a MAC
 * covers version, flags, both nonces and both endpoints. A side that receives a wrong MAC closes
 * the connection.
 *
 * Frames follow in both directions. If both sides encrypt, AEAD records carry the frames. Each
 * frame begins at a multiple of 16 bytes of the stream. A frame consists of header, arguments (4
 * bytes each), padding to 16 bytes, payload, and padding to 16 bytes. */
#ifndef WF_TRANSPORT_NET_PROTO_H
#define WF_TRANSPORT_NET_PROTO_H

#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "base/util.h"
#include "transport/address.h"
#include "transport/transport.h"

#define WF_NET_VERSION 11
#define WF_NET_LANES_MAX WF_LANES_MAX

/* ---- handshake ---- */

#define WF_NET_MAGIC 0x48434654u /* "TFCH" */
#define WF_NET_NONCE 32
#define WF_NET_MAC 32
#define WF_NET_KEY 32

enum wf_net_role { WF_NET_HELLO = 1, WF_NET_CHALLENGE, WF_NET_PROOF, WF_NET_REFUSAL };
enum wf_net_flags { WF_NET_ENCRYPT = 1 };

/* All four messages of the handshake begin with this struct. */
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
    uint64_t to_token[2]; /* token of the process that is dialled */
    /* The generation of this connection: 1 for a channel's first connection, and greater for each
     * later connection. */
    uint32_t gen;
    uint32_t zero;
    uint8_t nonce[WF_NET_NONCE];
    struct wf_address from;
    struct wf_contact contact; /* of [from] */
};
_Static_assert(sizeof(struct wf_net_hello) == 168, "wire structure");

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
    WF_NET_REFUSED_GONE = 1, /* this process has no such endpoint */
    WF_NET_REFUSED_VERSION,
    WF_NET_REFUSED_FLAGS, /* one side encrypts, the other does not */
    /* This process cannot take the connection now. The peer is to try again. */
    WF_NET_REFUSED_BUSY,
};

/* The accepting side sends this instead of a challenge. A refusal is not authenticated. The comment
 * on wf_conn_mgr_dial describes how the dialling side reacts to each reason. */
struct wf_net_refusal {
    struct wf_net_greeting greeting; /* with the refusing side's version and flags */
    uint32_t reason;
    /* GONE: the generation of the endpoint that has the number now, if the process is the right
     * one, and the endpoint's owner follows others (wf_tep_events.moved); else 0. */
    uint32_t now_gen;
    uint32_t zero[2];
};
_Static_assert(sizeof(struct wf_net_refusal) == 32, "wire structure");

/* ---- frames ---- */

enum wf_net_kind {
    WF_NET_REQUEST = 1,
    WF_NET_REPLY,
    /* The receiver's core chooses the memory for the payload of a bulk frame. */
    WF_NET_BULK_REQUEST,
    WF_NET_BULK_REPLY,
    /* Takes the place of a bulk request whose payload is gone. */
    WF_NET_VOID,
    /* The sender's endpoint closes, and nothing follows on this channel. The one argument has a bit
     * for each lane by which the sender sends BYE. If BYE takes the place of SYNC as the first
     * frame of a connection, BYE means that the sender has given the session up. Such a BYE has no
     * argument, and the field ack does not count it. */
    WF_NET_BYE,
    /* Carries the fields ack and room. Sent when no other frame is to be sent, or when much unused
     * reply room is to be reported. The field ack does not count ACK frames. */
    WF_NET_ACK,
    /* The first frame of each connection; never sent later. The field ack does not count SYNC
     * frames. */
    WF_NET_SYNC,
    WF_NET_KINDS
};

struct wf_net_frame {
    uint32_t len; /* payload bytes */
    /* How many frames the sender has received so far on this channel, not counting ACK and SYNC. */
    uint32_t ack;
    /*   REQUEST, BULK_REQUEST  reply_max of weft_am_request
     *   REPLY, BULK_REPLY      reply_max of the request that is replied to
     *   ACK, SYNC              how many bytes of the sender's ring were reserved for replies that
     *                          then were not made: a running total
     *   VOID, BYE              0 */
    uint32_t room;
    uint8_t kind;
    uint8_t nargs;
    uint8_t handler;
    uint8_t zero;
};
_Static_assert(sizeof(struct wf_net_frame) == 16, "wire structure");

/* The payload of SYNC. */
struct wf_net_sync {
    /* The number that the sender gave to this session. No two sessions of an endpoint have the same
     * number. */
    uint64_t session;
    /* The number that the receiver gave to this session; 0 if the sender does not know it yet. */
    uint64_t yours;
    /* How many frames the sender has dropped from its ring, because the receiver had acknowledged
     * them. ACK and SYNC are not counted. */
    uint32_t first;
    /* How many frames the sender has made so far, sent or still to be sent. ACK and SYNC are not
     * counted. */
    uint32_t next;
    uint64_t zero;
};
_Static_assert(sizeof(struct wf_net_sync) == 32, "wire structure");

#define WF_NET_ALIGN 16
/* The greatest value, in bytes, of WEFT_AM_MAX. */
#define WF_NET_AM_MAX 32704u
/* The longest payload of a request, in bytes: a node's service puts the sender's address before a
 * message, and the message's arguments behind it. */
#define WF_NET_REQUEST_MAX (WF_NET_AM_MAX + 128u)

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

/* Returns the most bytes that a reply takes in the responder's ring: header, arguments and payload.
 * A payload has at most [reply_max] - 1 bytes. */
static inline uint32_t wf_net_reply_size(uint32_t reply_max)
{
    return wf_net_head_size(WEFT_AM_MAX_ARGS) + wf_net_padded(reply_max ? reply_max - 1 : 0);
}

/* Copy a frame header from [bytes], and check it. No other function parses frame headers. Returns
 * OK | EPROTO */
enum weft_status wf_net_frame_parse(const void *bytes, struct wf_net_frame *out);

#endif
