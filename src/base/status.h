/* SPDX-License-Identifier: BSD-3-Clause */
/* Statuses in packets from other processes. A receiver refuses a packet with a status that its own
 * weft/status.def does not have, so a new row changes each such packet: its version has to count
 * up. An assert of WF_STATUSES beside the version makes sure of that. */
#ifndef WF_BASE_STATUS_H
#define WF_BASE_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#define WEFT_STATUS(name, value, text) +1
enum {
    WF_STATUSES = 0 /* rows of weft/status.def, which are never renumbered nor taken away */
#include <weft/status.def>
};
#undef WEFT_STATUS

/* Is it a failure that weft.h names? */
bool wf_status_is_failure(int32_t status);

#endif
