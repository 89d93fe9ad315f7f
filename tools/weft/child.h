/* SPDX-License-Identifier: BSD-3-Clause */
/* Child processes whose output is captured. */
#ifndef WEFT_CHILD_H
#define WEFT_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define WF_CHILD_TEXT 16384u

struct wf_child {
    pid_t pid;
    int fd; /* its stdout and stderr */
    size_t len;
    char text[WF_CHILD_TEXT]; /* the end of its output, zero-terminated */
};

/* Start argv[0], searched for in PATH, on core [cpu] (-1: any), with [env] ("NAME=VALUE",
 * null-terminated; may be null) added to the environment. It gets SIGTERM when this process dies.
 * 0, or -1 with errno. */
int wf_child_start(struct wf_child *c, char *const argv[], int cpu, const char *const env[]);
/* Read its output until it ends; kill it after [seconds]. Returns its exit code, 128 + n for signal
 * n, or -1 if it was killed for that. */
int wf_child_finish(struct wf_child *c, unsigned seconds);
/* For a signal handler: end the child that wf_child_finish waits for, and all later ones at once,
 * as if their time were over. */
void wf_child_stop(void);
bool wf_child_stopped(void);
/* Has it ended? wf_child_finish is still to be called. */
bool wf_child_ended(const struct wf_child *c);
/* The last line of its output that is not empty, without the newline; in c->text. */
const char *wf_child_last_line(struct wf_child *c);

/* Is there a program [name] in PATH? */
bool wf_child_exists(const char *name);

#endif
