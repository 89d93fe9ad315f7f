/* SPDX-License-Identifier: BSD-3-Clause */
/* The two messages of a look-up (docs/protocol.md "Names"): a process that knows only a name asks
 * by QUESTION, on a TCP connection to the name; the process that listens there answers by ANSWER.
 * All functions work on bytes in memory. */
#ifndef WF_TRANSPORT_NAMES_QUESTION_H
#define WF_TRANSPORT_NAMES_QUESTION_H

#include "transport/address.h"

#define WF_NAMES_MAGIC UINT32_C(0x4d414e57) /* "WNAM" */
#define WF_NAMES_VERSION 1

enum wf_names_kind { WF_NAMES_QUESTION = 1, WF_NAMES_ANSWER = 2 };

struct wf_names_head {
    uint32_t magic;
    uint8_t version;
    uint8_t kind;  /* enum wf_names_kind */
    uint16_t size; /* of the message */
    uint64_t zero;
};
_Static_assert(sizeof(struct wf_names_head) == 16, "wire structure");

struct wf_names_question {
    struct wf_names_head head;
};

struct wf_names_answer {
    struct wf_names_head head;
    uint8_t address[WF_ADDRESS_BYTES]; /* of the endpoint that has the name */
};
_Static_assert(sizeof(struct wf_names_answer) == 80, "wire structure");

void wf_names_question_make(struct wf_names_question *out);
/* The caller then fills in the address. */
void wf_names_answer_make(struct wf_names_answer *out);

/* Parse the first [len] bytes of a message, those that have arrived. Return OK, PENDING (right so
 * far; the rest is missing), EPROTO (no such message), or EVERSION (one of another version). The
 * answer's outputs are set on OK only. */
enum weft_status wf_names_question_parse(const void *bytes, size_t len);
enum weft_status wf_names_answer_parse(const void *bytes, size_t len, struct wf_address *out,
                                       struct wf_contact *contact);

#endif
