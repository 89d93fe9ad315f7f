/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/msg_wire.h"

#include "core/ctl.h"
#include "core/msg_parts.h"
#include "core/msg_recv.h"

/* Arguments of a MSG besides those of a question for credit (2): a whole message and a first part
 * without space and data, the same with them, another part, and a question alone. The numbers of
 * the first four differ, so they tell what a MSG is. */
enum {
    WHOLE_ARGS = 2,                        /* tag */
    FIRST_ARGS = 4,                        /* tag, length of the message, id */
    WHOLE_MORE_ARGS = WF_TAGGED_MORE_ARGS, /* tag, data, what */
    FIRST_MORE_ARGS = 7,                   /* tag, data, what, length of the message, id */
    NEXT_ARGS = 3,     /* id, offset, 0, or 1 without bytes: the message was cancelled */
    QUESTION_ARGS = 1, /* 0; or 1, and the id instead of the question for credit */
};

unsigned wf_msg_head_args(uint32_t args[5], const struct wf_msg_head *head, bool part)
{
    args[0] = WF_LO(head->tag);
    args[1] = WF_HI(head->tag);
    if (!head->what)
        return 2;
    args[2] = WF_LO(head->data);
    args[3] = WF_HI(head->data);
    args[4] = head->what | (part ? WF_WHAT_PART : 0);
    return 5;
}

/* Parse the arguments that say what a message carries. [flags]: those that [what] must have besides
 * space and data. */
static bool head_parse(const uint32_t *args, uint32_t flags, struct wf_msg_head *head)
{
    *head = (struct wf_msg_head){wf_word64(args), wf_word64(args + 2), args[4] & ~flags, 0};
    return (args[4] & flags) == flags && wf_msg_head_is_ok(head);
}

static enum wf_msg_kind first_parse(const struct weft_am *am, const uint32_t *args,
                                    struct wf_msg_in *out)
{
    out->len = args[0];
    out->id = args[1];
    return out->len <= WF_MSG_EAGER_MAX && am->len && am->len < out->len ? WF_MSG_FIRST
                                                                         : WF_MSG_BAD;
}

static enum wf_msg_kind question_parse(const struct weft_am *am, struct wf_msg_in *out)
{
    if (!out->asks || am->len || am->args[0] > 1)
        return WF_MSG_BAD;
    if (!am->args[0])
        return WF_MSG_QUESTION;
    out->asks = false;
    out->whole_id = wf_word64(am->args + 1);
    return WF_MSG_ARRIVED;
}

static enum wf_msg_kind parse(const struct weft_am *am, struct wf_msg_in *out)
{
    const uint32_t *a = am->args;
    switch (am->nargs - (out->asks ? 2 : 0)) {
    case QUESTION_ARGS: return question_parse(am, out);
    case WHOLE_ARGS: out->head = wf_msg_head_of_tag(wf_word64(a)); return WF_MSG_WHOLE;
    case NEXT_ARGS:
        out->id = a[0];
        out->at = a[1];
        if (out->asks || a[2] > 1 || (am->len == 0) != (a[2] == 1))
            return WF_MSG_BAD;
        return a[2] ? WF_MSG_STOP : WF_MSG_NEXT;
    case FIRST_ARGS:
        out->head = wf_msg_head_of_tag(wf_word64(a));
        return first_parse(am, a + 2, out);
    case WHOLE_MORE_ARGS: return head_parse(a, 0, &out->head) ? WF_MSG_WHOLE : WF_MSG_BAD;
    case FIRST_MORE_ARGS:
        return head_parse(a, WF_WHAT_PART, &out->head) ? first_parse(am, a + 5, out) : WF_MSG_BAD;
    default: return WF_MSG_BAD;
    }
}

void wf_msg_parse(const struct weft_am *am, struct wf_msg_in *out)
{
    *out = (struct wf_msg_in){.asks = am->reply_max && am->nargs > WHOLE_ARGS};
    out->kind = parse(am, out);
}

/* Parse the payload of an OFFER: where the bytes are for this process, or for its NIC. */
static bool place_parse(const struct weft_am *am, struct wf_msg_offer *out,
                        struct wf_offer_range *from)
{
    uint64_t total = 0;
    if (out->by_nic) {
        if (am->len != sizeof out->nic)
            return false;
        memcpy(&out->nic, am->data, sizeof out->nic);
        return out->nic.at <= UINT64_MAX - out->len;
    }
    if (am->len % sizeof *from || am->len / sizeof *from > WEFT_IOV_MAX)
        return false;
    memcpy(from, am->data, am->len);
    out->nfrom = am->len / (unsigned)sizeof *from;
    for (unsigned i = 0; i < out->nfrom; i++) {
        if (from[i].len > SIZE_MAX / 2 - total)
            return false;
        total += from[i].len;
    }
    return total == out->len || !out->nfrom;
}

bool wf_offer_parse(const struct weft_am *am, struct wf_msg_offer *out, struct wf_offer_range *from)
{
    const uint32_t *a = am->args;
    uint32_t flags;
    if (am->nargs != WF_OFFER_ARGS)
        return false;
    flags = a[4] & (WF_WHAT_FOLLOWS | WF_WHAT_NIC);
    out->pushed = flags & WF_WHAT_FOLLOWS;
    out->by_nic = flags & WF_WHAT_NIC;
    if ((out->pushed && out->by_nic) || !head_parse(a, flags, &out->head))
        return false;
    out->len = wf_word64(a + 5);
    out->id = wf_word64(a + 7);
    out->word = (struct wf_pull_word){wf_word64(a + 9), wf_word64(a + 11)};
    out->nfrom = 0;
    out->from = from;
    return !(out->word.addr & 7) && place_parse(am, out, from);
}
