/* SPDX-License-Identifier: BSD-3-Clause */
/* The endpoints that a queue or counter polls: eps.c. */
#ifndef WFI_EPS_H
#define WFI_EPS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <weft/event.h>
#include <weft/weft.h>

struct wfi_ep;

/* A poll holds the lock shared, opening and closing an endpoint hold it alone. */
struct wfi_eps {
    atomic_int state;         /* threads that poll; negative: a thread waits for their end */
    pthread_mutex_t changing; /* of the thread that changes the list */
    bool on;
    unsigned forks;      /* wfi_forks when it was made */
    struct wfi_ep **all; /* [n] */
    size_t n;
};

void wfi_eps_init(struct wfi_eps *eps, bool on);
void wfi_eps_fini(struct wfi_eps *eps);
/* Lock [eps] from now on, if it is not. Then no other thread uses it yet. */
static inline void wfi_eps_share(struct wfi_eps *eps)
{
    if (!eps->on)
        eps->on = true;
}

/* Add [ep], if it is not there. Returns 0 or -FI_ENOMEM. */
int wfi_eps_add(struct wfi_eps *eps, struct wfi_ep *ep);
void wfi_eps_remove(struct wfi_eps *eps, struct wfi_ep *ep);
/* Poll all of them. Returns OK, or the failure of one: EFORKED, in a child, where none works; so
 * also if there are none. */
enum weft_status wfi_eps_poll(struct wfi_eps *eps);
/* Wait until the value of [counter] is >= [at_least], for at most [ns] nanoseconds: in Weft, which
 * polls the one endpoint. Several endpoints are polled once.
 * Returns  as weft_counter_wait does; after the poll of several ETIMEDOUT, or as wfi_eps_poll */
enum weft_status wfi_eps_wait(struct wfi_eps *eps, struct weft_counter *counter, uint64_t at_least,
                              int64_t ns);
/* Arm all of them. Returns OK | AGAIN (one has events) | another status of weft_ep_arm, after which
 * nothing would wake a thread. */
enum weft_status wfi_eps_arm(struct wfi_eps *eps);

#endif
