/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts the programs that `weft perf compare` and `weft perf curve` measure with: one program that
 * starts its ranks itself, or a server and its client. Both run on this machine or on two hosts. */
#ifndef WEFT_PERF_LAUNCH_H
#define WEFT_PERF_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "child.h"

/* A command line under construction; all zero at its start. */
struct wf_words {
    char text[4096];
    size_t used;
    char *argv[48];
    unsigned count;
    bool full; /* a word did not fit: the command is not run */
};

void wf_words_add(struct wf_words *w, const char *text);
void wf_words_number(struct wf_words *w, uint64_t v);
/* The words of a text, separated by spaces. */
void wf_words_split(struct wf_words *w, const char *text);
/* A null-terminated list. */
void wf_words_list(struct wf_words *w, const char *const *list);

/* Two hosts, and the program that runs a command on one of them: AGENT HOST COMMAND..., as ssh(1).
 * The commands are the same there as here, and have the same paths. */
struct wf_hosts {
    const char *name[2], *agent;
};

/* Open MPI's launcher [name] with [options], a null-terminated list. With hosts: and a rank on
 * each, bound to the core of its number; what follows is the program. */
void wf_words_mpirun(struct wf_words *w, const char *name, const char *const *options,
                     const struct wf_hosts *hosts);

/* Path of the running weft; "weft" if the system does not report it. */
const char *wf_launch_self(void);

/* Run a command until it ends; its output is in *c. 0, or -1 with the reason in why[]. */
int wf_launch(struct wf_words *w, struct wf_child *c, char *why, size_t room);

/* A server and its client. */
struct wf_duel {
    struct wf_words server, client;
    const char *const *env;       /* of both; null: nothing added */
    const struct wf_hosts *hosts; /* the server's and the client's; null: this machine */
    unsigned port;                /* where the server listens */
    struct wf_child s, c;
};

/* How the client names the server's host. */
const char *wf_launch_address(const struct wf_hosts *hosts);
/* A port that was free here a moment ago; 0: none. */
unsigned wf_launch_port(void);

/* Run server and client, each on a core of its own number; the client's output is in d->c. As
 * wf_launch. */
int wf_launch_duel(struct wf_duel *d, char *why, size_t room);

#endif
