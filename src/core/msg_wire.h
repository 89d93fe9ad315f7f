/* SPDX-License-Identifier: BSD-3-Clause */
/* The arguments of MSG and OFFER, the control messages by which tagged messages begin
 * (docs/protocol.md "Operations by message"). msg_wire.c is their only parser. */
#ifndef WF_CORE_MSG_WIRE_H
#define WF_CORE_MSG_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/msg.h>

struct wf_msg_offer;
struct wf_offer_range;

/* Wire format: the bits of [what]. */
enum wf_msg_what {
    WF_WHAT_SPACE = WEFT_MSG_SPACES - 1, /* mask: the space */
    WF_WHAT_DATA = 0x100,                /* the message has data */
    WF_WHAT_PART = 0x200,                /* MSG: the first part of a message */
    WF_WHAT_FOLLOWS = 0x400,             /* OFFER: the message's bytes follow */
    WF_WHAT_NIC = 0x800,                 /* OFFER: NICs may read the message's bytes */
};
_Static_assert((WEFT_MSG_SPACES & WF_WHAT_SPACE) == 0, "the spaces are a power of two");

/* What a message carries besides its bytes. */
struct wf_msg_head {
    uint64_t tag, data;
    uint32_t what;  /* the space, and WF_WHAT_DATA */
    uint32_t flags; /* enum weft_op_flags of the send; not sent */
};

static inline struct wf_msg_head wf_msg_head_of_tag(uint64_t tag)
{
    return (struct wf_msg_head){.tag = tag};
}

static inline unsigned wf_msg_space(const struct wf_msg_head *head)
{
    return head->what & WF_WHAT_SPACE;
}

/* Most arguments of a MSG: those of a first part that is a question. */
enum { WF_MSG_ARGS_MAX = 9 };

/* Store in [args] the first arguments of a MSG, which say what the message carries besides its
 * bytes. [part]: the MSG is a first part. Returns their number. */
unsigned wf_msg_head_args(uint32_t args[5], const struct wf_msg_head *head, bool part);

enum wf_msg_kind {
    WF_MSG_BAD, /* breaks the protocol */
    WF_MSG_WHOLE,
    WF_MSG_FIRST,    /* the first part of a message */
    WF_MSG_NEXT,     /* another part */
    WF_MSG_STOP,     /* no more parts come: the sender has cancelled the message */
    WF_MSG_QUESTION, /* a question for credit without a message */
    WF_MSG_ARRIVED,  /* a question whether all earlier messages of the handle have arrived */
};

/* A MSG that was parsed. */
struct wf_msg_in {
    enum wf_msg_kind kind;
    bool asks;               /* its last two arguments are a question for credit */
    struct wf_msg_head head; /* WHOLE, FIRST */
    uint32_t len;            /* FIRST: length of the message */
    uint32_t at;             /* NEXT, STOP: offset of this part */
    uint32_t id;             /* FIRST, NEXT, STOP: low half of the id of the sender's request */
    uint64_t whole_id;       /* ARRIVED: the id of the sender's request */
};

/* Returns false if [head] breaks the protocol. */
static inline bool wf_msg_head_is_ok(const struct wf_msg_head *head)
{
    return !(head->what & ~(uint32_t)(WF_WHAT_SPACE | WF_WHAT_DATA)) &&
           (head->what & WF_WHAT_DATA || !head->data);
}

/* Parse the arguments of a MSG. */
void wf_msg_parse(const struct weft_am *am, struct wf_msg_in *out);

/* Parse an OFFER. Its ranges, at most WEFT_IOV_MAX, are first copied to [from] and then checked, so
 * that a malicious sender cannot change them after the check. Returns false if the OFFER breaks the
 * protocol. Does not set the sender and connection of [out]. */
bool wf_offer_parse(const struct weft_am *am, struct wf_msg_offer *out,
                    struct wf_offer_range *from);

#endif
