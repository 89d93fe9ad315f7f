/* SPDX-License-Identifier: BSD-3-Clause */
/* The costs of tagged messages within a node, and the choice that follows from them.
 *
 * A message of 8 to 256 KiB can go in parts (msg_parts.c): the sender copies it into the ring while
 * the receiver copies it out. Or the receiver copies it once, through the kernel. Which is faster
 * depends on the machine, on how far apart the two cores are, and on whether the sender has just
 * written the bytes, which the kernel then reads from the other core's cache line by line. So the
 * receiver measures both, and the sender chooses:
 *
 *   receiver   measures some messages of each class, a class for each doubling of the length, and
 *              reports both costs of a class in each answer to an offer of this class
 *   sender     takes the cheaper way. A way that is not measured yet is compared with nothing: up
 *              to WEFT_MSG_EAGER parts, beyond it one copy. Now and then a message goes the other
 *              way, so that both costs stay known
 *
 * The report is a hint. A wrong one costs time and nothing else. */
#ifndef WF_CORE_MSG_COST_H
#define WF_CORE_MSG_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weft_peer;
struct wf_sender;

enum {
    WF_COST_MIN = 8192,   /* bytes of the longest message that is not measured */
    WF_COST_MAX = 262144, /* bytes of the longest message that is measured */
    WF_COST_CLASSES = 5
};
#define WF_COST_DENIED UINT16_MAX /* of [pull]: the kernel refuses the copy */

/* Costs in picoseconds a byte; 0: unknown. */
struct wf_cost {
    uint16_t parts, pull;
};

/* A receiver's record of one sender. */
struct wf_costs {
    struct wf_cost of[WF_COST_CLASSES];
    uint8_t parts[WF_COST_CLASSES], pulls[WF_COST_CLASSES]; /* messages; is_due */
};

/* A sender's record of one peer. */
struct wf_choice {
    struct wf_cost of[WF_COST_CLASSES];
    uint16_t sent[WF_COST_CLASSES]; /* messages; wf_choice_is_turned */
    uint8_t parts;                  /* a bit for each class: parts are cheaper */
    uint8_t known;                  /* a bit for each class: both costs are known */
};

/* Returns the class of messages of [len] bytes, or WF_COST_CLASSES if they are not measured. */
static inline unsigned wf_cost_class(uint64_t len)
{
    return len > WF_COST_MIN && len <= WF_COST_MAX ? 50u - (unsigned)__builtin_clzll(len - 1)
                                                   : WF_COST_CLASSES;
}

/* ---- receiving ---- */

/* A message of [len] bytes from [s] begins to arrive in parts. Returns the time if it is to be
 * measured, else 0. */
uint64_t wf_cost_parts_begin(struct wf_sender *s, uint64_t len);
/* A message of [len] bytes is here, whose first part had [first] bytes. [began]: the time that
 * wf_cost_parts_begin returned, not 0. */
void wf_cost_parts_end(struct wf_sender *s, uint64_t len, uint64_t first, uint64_t began);
/* As wf_cost_parts_begin, for a message that is about to be copied once. */
uint64_t wf_cost_pull_begin(struct wf_sender *s, uint64_t len);
void wf_cost_pull_end(struct wf_sender *s, uint64_t len, uint64_t began);
/* The kernel refuses to copy messages of [s]. */
void wf_cost_pull_denied(struct wf_sender *s);
/* Returns the report on messages of [len] bytes from [s]; 0: nothing is known. */
uint32_t wf_cost_report(const struct wf_sender *s, uint64_t len);

/* ---- sending ---- */

/* Returns true if a message of [len] bytes goes to [peer] in parts. The peer's process can be read
 * from here, so the choice is free. */
bool wf_choice_is_parts(const struct weft_peer *peer, uint64_t len);
/* Count a message that is sent now. [parts]: what wf_choice_is_parts returned. Returns true if the
 * message is to go the other way, so that both costs stay known. */
bool wf_choice_is_turned(struct weft_peer *peer, uint64_t len, bool parts);
/* [peer] has sent [report] in its answer to an offer of [len] bytes. */
void wf_choice_learn(struct weft_peer *peer, uint64_t len, uint32_t report);
/* Returns the known costs of messages of [len] bytes to [peer]. */
struct wf_cost wf_choice_cost(const struct weft_peer *peer, uint64_t len);

#endif
