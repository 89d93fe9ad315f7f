/* SPDX-License-Identifier: BSD-3-Clause */
/* Labelled points of the data path where a test may act: kill or stop the
 * process there, hand the processor over, or pretend that a call failed.
 * Compiled in only with -Dhooks=true; otherwise a point is nothing at all.
 *
 * WF_HOOK(label)       runs wf_hook with the label's text
 * WF_HOOK_FAIL(label)  true when the test wants the next step to fail */
#ifndef WF_BASE_HOOK_H
#define WF_BASE_HOOK_H

#ifdef WF_HOOKS
/* Set by a test; null does nothing. Returns nonzero to make a WF_HOOK_FAIL fail. */
extern __attribute__((visibility("default"))) int (*weft_test_hook)(const char *label);
int wf_hook(const char *label);
#define WF_HOOK(label) ((void)wf_hook(label))
#define WF_HOOK_FAIL(label) (wf_hook(label) != 0)
#else
#define WF_HOOK(label) ((void)0)
#define WF_HOOK_FAIL(label) 0
#endif

#endif
