/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of the `weft` command share. */
#ifndef WEFT_TOOL_H
#define WEFT_TOOL_H

#include <stdio.h>

/* Exit code of a command line that was not understood. */
#define WF_TOOL_USAGE 2

/* One command each; argv[0] is its name. Return the exit code. */
int wf_tool_run(int argc, char **argv);
int wf_tool_info(int argc, char **argv);
int wf_tool_perf(int argc, char **argv);
int wf_tool_explain(int argc, char **argv);
int wf_tool_plan(int argc, char **argv);
int wf_tool_node(int argc, char **argv);

/* The name in the null-terminated [names] that [word] is probably a misspelling of, or null. */
const char *wf_tool_nearest(const char *word, const char *const *names);
/* Print [text] as a string of JSON. */
void wf_json_string(FILE *to, const char *text);

#endif
