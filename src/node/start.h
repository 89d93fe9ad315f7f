/* SPDX-License-Identifier: BSD-3-Clause */
/* What a process that starts a service exchanges with it: struct wf_node_start by a pipe, which is
 * descriptor 0, with the estate (packet.h) from descriptor WF_NODE_ESTATE_AT on; and the line by
 * which the service answers. Any other line is the reason why it did not start. */
#ifndef WF_NODE_START_H
#define WF_NODE_START_H

#include "node/packet.h"

#define WF_NODE_STARTED "started" /* clients can connect */
#define WF_NODE_TAKEN "taken"     /* another process has the name */
#define WF_NODE_HELD "held"       /* clients of an earlier service live: one starts its successor */

#define WF_NODE_ESTATE_AT 3

struct wf_node_start {
    uint8_t key[WF_NODE_KEY];
    uint32_t line;  /* of which the service is to be a successor; 0: a new one */
    uint32_t count; /* descriptors of the estate; 0 if [line] is 0 */
    uint32_t anew;  /* 1: begin a line although clients of an earlier one may live */
    uint32_t zero;
};

#endif
