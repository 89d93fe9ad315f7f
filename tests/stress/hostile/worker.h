/* SPDX-License-Identifier: BSD-3-Clause */
/* A well-behaved process for the tests of hostile ones: it exchanges verified
 * messages, puts and gets with a friend all the time, and with a second peer
 * whatever that one is. It ends with a failure as soon as anything of the
 * friend's is wrong. */
#ifndef TEST_WORKER_H
#define TEST_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "../kill/proc.h"

#define WORKER_AM_WORK 1
#define WORKER_AM_ANSWER 2
#define WORKER_REGION 65536

struct worker_offer {
    unsigned char address[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    size_t address_len, key_len;
};

/* Commands that come over its socket, and its answers. */
enum worker_task {
    WORKER_STATUS, /* answers with a struct worker_status, as all but QUIT */
    WORKER_FRIEND, /* with the friend's offer */
    WORKER_WORK,   /* with the friend, which knows it as its own by now */
    WORKER_SECOND, /* with the second peer's offer. Drops the second one it had. */
    WORKER_REST,   /* starts nothing more */
    WORKER_QUIT,   /* leaves in order */
};

struct worker_order {
    enum worker_task task;
    struct worker_offer offer;
};

struct worker_status {
    uint64_t work;       /* rounds with the friend whose contents were right */
    uint64_t strays;     /* messages that came from others */
    int32_t friend_down; /* the reason that peer_down got; 0: none */
    int32_t second;      /* the last status of a call on the second peer */
    int32_t second_down;
    int32_t second_remote; /* of weft_remote_open */
    int32_t second_got;    /* of the last weft_get */
};

/* Started with proc_start; first sends its worker_offer. */
void worker_main(int sock, void *arg);

/* What a test does with it. */
struct worker {
    struct proc proc;
    struct worker_offer offer;
};
void worker_start(struct worker *w);
struct worker_status worker_order(struct worker *w, enum worker_task task,
                                  const struct worker_offer *offer);
void worker_quit(struct worker *w);
void worker_quit_pair(struct worker *a, struct worker *b);
/* Both have done [rounds] more since this was called, within 10 s. */
void worker_check_pair(struct worker *a, struct worker *b, uint64_t rounds);
void worker_pair(struct worker *a, struct worker *b);

unsigned worker_fds(const struct worker *w);
size_t worker_kib(const struct worker *w); /* resident, its own and shared */

#endif
