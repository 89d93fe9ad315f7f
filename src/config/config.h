/* SPDX-License-Identifier: BSD-3-Clause */
/* The values of params.def and debug.def, read from the environment once per process. */
#ifndef WF_CONFIG_CONFIG_H
#define WF_CONFIG_CONFIG_H

#include <stdint.h>
#include <weft/weft.h>

#include "config/value.h"

#define WF_ASKED UINT64_MAX /* a number's word: "asked", "auto" */
#define WF_AUTO WF_ASKED

struct wf_config {
#define WF_PARAM_NUMBER(field, name, unit, dflt, min, max, doc) uint64_t field;
#define WF_PARAM_SHARE(field, name, dflt, doc) struct wf_share field;
#define WF_PARAM_BOOL(field, name, dflt, doc) int field;
#define WF_PARAM_ENUM(field, name, dflt, values, doc) int field;
#define WF_PARAM_STRING(field, name, dflt, max, doc) const char *field; /* never null */
#include "config/params.def"
#undef WF_PARAM_NUMBER
#undef WF_PARAM_SHARE
#undef WF_PARAM_BOOL
#undef WF_PARAM_ENUM
#undef WF_PARAM_STRING
#define WF_DEBUG_FLAG(field, item, dflt, with, doc) uint64_t field;
#define WF_DEBUG_NUMBER(field, item, unit, dflt, min, max, doc) uint64_t field;
#include "config/debug.def"
#undef WF_DEBUG_FLAG
#undef WF_DEBUG_NUMBER
};

/* Read and check the environment, once; later calls return the same. Any thread. An unknown WEFT_
 * name is logged as a warning, with the nearest name.
 * Returns  OK | EINVAL (a value out of range or of the wrong form, or a variable of renamed.def;
 *          logged with the values that are allowed) */
enum weft_status wf_config_init(void);

/* The values in force. A variable with an invalid value has its default. */
const struct wf_config *wf_config(void);

/* A variable of the launcher's: the only others that Weft reads. Null if unset. */
const char *wf_config_launcher(const char *name);

#endif
