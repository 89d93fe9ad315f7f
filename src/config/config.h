/* SPDX-License-Identifier: BSD-3-Clause */
/* The values of all variables (params.def) and of the items of WEFT_DEBUG (debug.def). The
 * environment is read once per process. */
#ifndef WF_CONFIG_CONFIG_H
#define WF_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/weft.h>

#include "config/value.h"

/* The value of a number variable that is set to the word "asked" or "auto". */
#define WF_ASKED UINT64_MAX
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

/* The defaults of the Meson option "defaults". A test may replace them before the first use of the
 * configuration. */
extern const char *wf_config_built;

/* Read and check the environment. Only the first call reads it; later calls return the status of
 * the first call. Any thread may call this function. If a variable's name begins with WEFT_ and is
 * unknown, a warning names the most similar known name.
 *
 * Returns  OK | EINVAL (a value is out of range or has the wrong form, or a variable of an earlier
 *          version is set (renamed.def); an error is logged that says what is allowed) */
enum weft_status wf_config_init(void);

/* Returns the values of all variables. If a value in the environment is invalid, the variable's
 * default is returned. */
const struct wf_config *wf_config(void);

/* Does WEFT_TRANSPORTS name the transport [name]? */
bool wf_config_wants(const char *name);

/* Returns the environment in which a node's service starts: Weft's variables, but for
 * WEFT_KEY_FILE, and LD_LIBRARY_PATH as they are here, and WEFT_NODE_NAME=[node_name]. One block of
 * memory, which the caller frees; NULL if there is no memory. As with getenv(3), no other thread
 * may change the environment meanwhile.
 */
char **wf_config_service_environment(const char *node_name);

/* Returns the value of a variable that the launcher of the job sets, or NULL if it is not set. */
const char *wf_config_launcher(const char *name);

#endif
