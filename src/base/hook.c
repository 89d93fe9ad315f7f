/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/hook.h"

#ifdef WF_HOOKS
int (*weft_test_hook)(const char *label);

int wf_hook(const char *label)
{
    return weft_test_hook ? weft_test_hook(label) : 0;
}
#else
typedef int wf_hook_empty; /* ISO C forbids an empty translation unit */
#endif
