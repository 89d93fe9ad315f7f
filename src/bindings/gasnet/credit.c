/* SPDX-License-Identifier: BSD-3-Clause */
/* Limits for the requests that this node has under way: GASNET_NETWORKDEPTH_TOTAL to all other
 * nodes together, GASNET_NETWORKDEPTH to each of them.
 *
 * A request is under way until its reply has arrived. If the handler returns without a reply, the
 * target sends a credit: a reply of Weft's without data. So each request reserves room for at least
 * that reply, and a credit never waits for room. A request to this node itself runs in the call
 * that sends it, and is not counted.
 *
 * Without these variables nothing is counted, and the transports' own limits apply. Then a target
 * sends credits only to nodes that count (gasnetw_credit_agree). */
#include "am.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST 65535 /* the largest limit */

bool gasnetw_credit_counts, gasnetw_credit_wanted;
static unsigned total_limit, node_limit; /* 0: none */
static _Atomic unsigned under_way, most_under_way;
static _Atomic unsigned *of_node; /* [nodes]: requests under way to each node */
static bool *counting;            /* [nodes]: nodes that count, and get credits */

static unsigned limit(const char *name)
{
    double value = gasnetw_env_number(name, -1);
    const char *text = gasnet_getenv(name);
    if (value < 0) /* not set, or no number */
        return 0;
    if (value >= 1 && value <= MOST)
        return (unsigned)value;
    value = value < 1 ? 1 : MOST;
    if (!gasnetw_job.mynode)
        fprintf(stderr, "WARNING: %s=%s is adjusted to %u: 1 to %u are possible\n", name, text,
                (unsigned)value, MOST);
    return (unsigned)value;
}

bool gasnetw_credit_open(void)
{
    total_limit = limit("GASNET_NETWORKDEPTH_TOTAL");
    node_limit = limit("GASNET_NETWORKDEPTH");
    if (!total_limit && !node_limit)
        return false;
    of_node = calloc(gasnetw_job.nodes, sizeof *of_node);
    if (!of_node)
        gasnetw_fatal("gasnet_init: out of memory for %u nodes", gasnetw_job.nodes);
    gasnetw_credit_counts = true;
    return true;
}

void gasnetw_credit_agree(gasnet_node_t node)
{
    if (!counting)
        counting = calloc(gasnetw_job.nodes, sizeof *counting);
    if (!counting)
        gasnetw_fatal("gasnet_init: out of memory for %u nodes", gasnetw_job.nodes);
    counting[node] = gasnetw_credit_wanted = true;
}

/* Count one more, unless that would exceed [most]. Returns whether it did count. */
static bool take(_Atomic unsigned *count, unsigned most)
{
    unsigned now = atomic_load_explicit(count, memory_order_relaxed);
    do {
        if (most && now >= most)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(count, &now, now + 1, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

static bool take_both(gasnet_node_t dest)
{
    if (!take(&of_node[dest], node_limit))
        return false;
    if (take(&under_way, total_limit))
        return true;
    atomic_fetch_sub_explicit(&of_node[dest], 1, memory_order_relaxed);
    return false;
}

static void note_most(void)
{
    unsigned now = atomic_load_explicit(&under_way, memory_order_relaxed),
             most = atomic_load_explicit(&most_under_way, memory_order_relaxed);
    while (now > most &&
           !atomic_compare_exchange_weak_explicit(&most_under_way, &most, now, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

void gasnetw_credit_take(gasnet_node_t dest)
{
    struct gasnetw_wait w = {0};
    if (dest == gasnetw_job.mynode)
        return;
    while (!take_both(dest)) /* holds none while it polls: handlers' calls may count, too */
        gasnetw_wait_turn(&w);
    note_most();
}

void gasnetw_credit_return(gasnet_node_t node)
{
    if (node == gasnetw_job.mynode || !gasnetw_credit_counts)
        return;
    if (node >= gasnetw_job.nodes || !atomic_load_explicit(&of_node[node], memory_order_relaxed))
        gasnetw_fatal("node %u sent a reply for which no request is under way. Do all ranks run "
                      "the same library?",
                      node);
    atomic_fetch_sub_explicit(&of_node[node], 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&under_way, 1, memory_order_relaxed);
}

/* A message that was kept in gasnet_attach has lost the room for its reply (early.c). If the
 * requester is lost, peer_down ends the job. */
void gasnetw_credit_send(const struct token *t)
{
    gasnet_node_t node = t->origin >> 8;
    uint32_t mine = gasnetw_job.mynode << 8;
    if (node == gasnetw_job.mynode || node >= gasnetw_job.nodes || !counting[node])
        return;
    if (!t->am->reply_max) {
        gasnetw_reply_later(t->origin, AM_CREDIT, mine, 0, NULL, NULL, NULL, 0);
        return;
    }
    if (weft_am_reply(t->am, AM_CREDIT, &mine, 1, NULL, 0) != WEFT_OK)
        return;
}

void gasnetw_on_credit(const struct weft_am *am)
{
    if (am->nargs != 1)
        gasnetw_fatal("received a credit with %u arguments. Do all ranks run the same library?",
                      am->nargs);
    gasnetw_credit_return(am->args[0] >> 8);
}

unsigned gasnetw_credit_most(void)
{
    return atomic_load_explicit(&most_under_way, memory_order_relaxed);
}
