/* SPDX-License-Identifier: BSD-3-Clause */
/* Test points of the data path. At such a point a test may kill or stop the process, or yield
 * the processor. Points exist only in a build with -Dhooks=true; otherwise they compile to
 * nothing.
 *
 * WF_HOOK(label)  calls wf_hook with the text of the label */
#ifndef WF_BASE_HOOK_H
#define WF_BASE_HOOK_H

#ifdef WF_HOOKS
/* The function that a test sets, called at each point. Points do nothing while it is NULL. The
 * function's return value is ignored. */
extern __attribute__((visibility("default"))) int (*weft_test_hook)(const char *label);
int wf_hook(const char *label);
#define WF_HOOK(label) ((void)wf_hook(label))
#else
#define WF_HOOK(label) ((void)0)
#endif

#endif
