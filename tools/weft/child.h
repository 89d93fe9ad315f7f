/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs run as children, their output caught. */
#ifndef WEFT_CHILD_H
#define WEFT_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define WF_CHILD_TEXT 16384u

struct wf_child {
    pid_t pid;
    int fd; /* what it writes, both ways */
    size_t len;
    char text[WF_CHILD_TEXT]; /* its output's end, zero-terminated */
};

/* Start argv[0], found as the shell does, on core [cpu] (-1: any) with [env]
 * ("NAME=VALUE", null-terminated; may be null) added. It gets SIGTERM when this
 * process dies. 0, or -1 with errno. */
int wf_child_start(struct wf_child *c, char *const argv[], int cpu, const char *const env[]);
/* Read what it writes until it ends; kills it after [seconds]. Returns its exit
 * code, 128 + n for signal n, or -1 if its time was over. */
int wf_child_finish(struct wf_child *c, unsigned seconds);
/* Has it ended? It stays to be finished. */
bool wf_child_ended(const struct wf_child *c);
/* Its last line that is not empty, without its end; within c->text. */
const char *wf_child_last_line(struct wf_child *c);

/* Is there a program [name] in PATH? */
bool wf_child_exists(const char *name);

#endif
