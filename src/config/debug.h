/* SPDX-License-Identifier: BSD-3-Clause */
/* WEFT_DEBUG: the items of debug.def, and their fields in struct wf_config. Only config.c calls
 * these. */
#ifndef WF_CONFIG_DEBUG_H
#define WF_CONFIG_DEBUG_H

#include "config/config.h"

/* The description of WEFT_DEBUG, with the names of all items. */
extern const char wf_debug_doc[];

/* Set the fields to the defaults. */
void wf_debug_defaults(struct wf_config *c);

/* Set the fields of the items in [text], which are comma-separated; empty ones are skipped.
 * Returns  OK | EINVAL (an item is unknown or has no such value; logged, and the others are set) */
enum weft_status wf_debug_set(struct wf_config *c, const char *text);

#endif
