/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks the fields that all parameter structures have: a version, flags, reserved words. */
#ifndef WF_BASE_PARAMS_H
#define WF_BASE_PARAMS_H

#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

/* Check that the program initialised the parameters by their _INIT macro, and that the program was
 * built for this version of Weft or an earlier one. [type] is the name of the structure
 * ("WEFT_CTX_PARAMS").
 *   flags, known     [flags] may contain only bits of [known]
 *   reserved, count  [count] words, which must be 0
 * Returns OK, EVERSION (logged) or EINVAL. A version of 0 means that the program left out _INIT;
 * that is EINVAL, and logged. */
enum weft_status wf_params_check(const char *type, uint32_t version, uint32_t flags, uint32_t known,
                                 const uint64_t *reserved, size_t count);

#endif
