/* SPDX-License-Identifier: BSD-3-Clause */
/* Labelled points of the data path where a test may act: kill or stop the process, or yield the
 * processor. Compiled in only with -Dhooks=true; otherwise a point compiles to nothing.
 *
 * WF_HOOK(label)  runs wf_hook with the label's text */
#ifndef WF_BASE_HOOK_H
#define WF_BASE_HOOK_H

#ifdef WF_HOOKS
/* Set by a test; null: points do nothing. The return value is ignored. */
extern __attribute__((visibility("default"))) int (*weft_test_hook)(const char *label);
int wf_hook(const char *label);
#define WF_HOOK(label) ((void)wf_hook(label))
#else
#define WF_HOOK(label) ((void)0)
#endif

#endif
