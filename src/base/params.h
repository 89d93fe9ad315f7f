/* SPDX-License-Identifier: BSD-3-Clause */
/* The fields that all parameter structures share: a version, flags, reserved words. */
#ifndef WF_BASE_PARAMS_H
#define WF_BASE_PARAMS_H

#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

/* Was [type] ("WEFT_CTX_PARAMS") initialised by its _INIT, for this library or an earlier one?
 *   flags, known     no other flags than the known ones
 *   reserved, count  all zero
 * Returns OK | EVERSION (logged) | EINVAL (a version of 0 is logged: the program left out _INIT) */
enum weft_status wf_params_check(const char *type, uint32_t version, uint32_t flags, uint32_t known,
                                 const uint64_t *reserved, size_t count);

#endif
