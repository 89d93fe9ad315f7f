/* SPDX-License-Identifier: BSD-3-Clause */
/* The variable WEFT_DEBUG. Its value is a list of items, and each item sets a field of struct
 * wf_config (debug.def). Only config.c calls these functions. */
#ifndef WF_CONFIG_DEBUG_H
#define WF_CONFIG_DEBUG_H

#include "config/config.h"

/* The description of WEFT_DEBUG, with the names of all items. */
extern const char wf_debug_doc[];

/* Set the field of each item to its default. */
void wf_debug_defaults(struct wf_config *c);

/* Set the fields of the items in [text]. The items are separated by commas; empty items are
 * skipped.
 *
 * Returns  OK | EINVAL (an item is unknown or its value is invalid: logged, and the other items
 *          are set) */
enum weft_status wf_debug_set(struct wf_config *c, const char *text);

#endif
