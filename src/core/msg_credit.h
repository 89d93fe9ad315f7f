/* SPDX-License-Identifier: BSD-3-Clause */
/* Credit limits the memory that messages take at a receiver before a receive matches them (kept
 * messages). It counts messages whose bytes are sent at once (MSG, in one or several parts): each
 * is charged with its length and WF_MSG_CHARGE more, which is about what it takes if it is kept.
 *
 * A peer handle may charge WF_MSG_WINDOW bytes before it asks for more. The receiver answers a
 * question with the credit: WF_MSG_WINDOW less what is kept of this sender's messages. If the kept
 * messages of the endpoint take WEFT_MSG_KEEP bytes, the credit is 0 for a sender of which some are
 * kept. Messages of a handle arrive in order. So when the receiver answers, all that the handle had
 * charged before its question has arrived, and is either kept or received. Beyond that the handle
 * may charge as much as the credit. Nothing is counted when a message is received, and the receiver
 * keeps no record of a handle.
 *
 * The counters of a handle, modulo 2^32:
 *
 *   sent   a start value, and all charges so far
 *   end    [sent] must not pass this
 *   quiet  until [sent] passes this, no question is needed; equal to [end] exactly while a question
 *          is unanswered
 *   asked  the value of [sent] at that question
 *   left   quiet - sent, signed. It is stored instead of [sent]: a message takes one subtraction
 *
 *   question                       when it is sent
 *   a MSG that may be replied to   [sent] passes [quiet], and no question is unanswered
 *   the same without a message     there is no credit for a message without weft_op, no question is
 *                                  unanswered, and the last one was sent some time ago
 *   an OFFER                       there is no credit for a message with weft_op
 *
 * The question and its answer carry [asked] and a name of the handle, because the transport may
 * report the answer by another handle of the same address. A closed handle's name may be used
 * again. So [sent] of each handle's flow starts at another value.
 *
 * While a question by a MSG is unanswered, messages without credit wait as for room in the
 * transport: the receiver's next poll answers the question. If the credit does not suffice then, a
 * message with weft_op is offered: it stays in the sender's memory until a receive matches it. So
 * no message with weft_op waits for the receipt of another one. A message without weft_op is
 * refused (AGAIN). There is an event when the program may try again: the answer, or the end of a
 * pause, which doubles with each question that brings no credit (msg_send.c). */
#ifndef WF_CORE_MSG_CREDIT_H
#define WF_CORE_MSG_CREDIT_H

#include "core/core.h"

#define WF_MSG_CHARGE 128u
#define WF_MSG_WINDOW ((uint32_t)1 << 20) /* wire constant */

enum wf_credit {
    WF_CREDIT_QUIET, /* the message may be sent */
    WF_CREDIT_ASK,   /* it may be sent, as a question */
    WF_CREDIT_WAIT,  /* an answer is due */
    WF_CREDIT_NONE,
};

/* ---- sending ---- */

/* [start] is the first value of [sent]. */
static inline void wf_msg_credit_init(struct wf_msg_credit *c, uint32_t start)
{
    int32_t left = WF_MSG_WINDOW / 2 - 1;
    *c = (struct wf_msg_credit){left, start + WF_MSG_WINDOW, start + (uint32_t)left, 0};
}

/* Returns all charges so far. */
static inline uint32_t wf_msg_credit_sent(const struct wf_msg_credit *c)
{
    return c->quiet - (uint32_t)c->left;
}

static inline void wf_msg_credit_set_quiet(struct wf_msg_credit *c, uint32_t quiet)
{
    c->left += (int32_t)(quiet - c->quiet);
    c->quiet = quiet;
}

/* Returns true if a question by a MSG is unanswered. */
static inline bool wf_msg_credit_is_asking(const struct wf_msg_credit *c)
{
    return c->quiet == c->end;
}

/* Returns the value of [sent] after a message of [len] bytes. */
static inline uint32_t wf_msg_credit_after(const struct wf_msg_credit *c, size_t len)
{
    return wf_msg_credit_sent(c) + (uint32_t)len + WF_MSG_CHARGE;
}

/* Returns how many bytes the handle may charge after a message of [len] bytes before its next
 * question. Negative: that message must be the question, or there is no credit. */
static inline int32_t wf_msg_credit_left(const struct wf_msg_credit *c, size_t len)
{
    return c->left - (int32_t)(len + WF_MSG_CHARGE);
}

static inline enum wf_credit wf_msg_credit_for(const struct wf_msg_credit *c, size_t len)
{
    if (wf_msg_credit_left(c, len) >= 0)
        return WF_CREDIT_QUIET;
    if ((int32_t)(c->end - wf_msg_credit_after(c, len)) >= 0)
        return wf_msg_credit_is_asking(c) ? WF_CREDIT_QUIET : WF_CREDIT_ASK;
    return wf_msg_credit_is_asking(c) ? WF_CREDIT_WAIT : WF_CREDIT_NONE;
}

/* A question by a MSG was sent. If it was a message, the message is charged already. */
static inline void wf_msg_credit_asked(struct wf_msg_credit *c)
{
    c->asked = wf_msg_credit_sent(c);
    wf_msg_credit_set_quiet(c, c->end);
}

/* A message of [len] bytes was sent; [asks]: as a question. */
static inline void wf_msg_credit_charge(struct wf_msg_credit *c, size_t len, bool asks)
{
    c->left = wf_msg_credit_left(c, len);
    if (__builtin_expect(asks, 0))
        wf_msg_credit_asked(c);
}

/* The message of [len] bytes that was just charged, and was no question, could not be sent. */
static inline void wf_msg_credit_uncharge(struct wf_msg_credit *c, size_t len)
{
    c->left += (int32_t)(len + WF_MSG_CHARGE);
}

/* The answer to a question has come, which was sent when [sent] was [asked]. [by_msg] is true if
 * the question was a MSG. */
static inline void wf_msg_credit_answered(struct wf_msg_credit *c, uint32_t asked, uint32_t credit,
                                          bool by_msg)
{
    uint32_t end = asked + WF_MIN(credit, WF_MSG_WINDOW), sent = wf_msg_credit_sent(c);
    bool asking = wf_msg_credit_is_asking(c);
    if (by_msg && (!asking || asked != c->asked)) /* no such question is unanswered */
        return;
    if ((int32_t)(end - c->end) > 0)
        c->end = end;
    wf_msg_credit_set_quiet(c, asking && !by_msg ? c->end : sent + (c->end - sent) / 2 - 1);
}

/* ---- receiving ---- */

/* Returns the credit of [sender], whose question is being answered. */
uint32_t wf_msg_credit_of(const struct wf_sender *sender);

#endif
