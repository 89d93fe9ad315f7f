/* SPDX-License-Identifier: BSD-3-Clause */
/* To be preloaded (LD_PRELOAD): a process's first completion queue with events has room for a few
 * completions only, so that it overflows.
 *
 * SHORT_CQ  how many completions; without it no queue is shorter */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct ibv_cq *create(struct ibv_context *context, int cqe, void *cq_context,
                              struct ibv_comp_channel *channel, int comp_vector);

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int comp_vector)
{
    static atomic_bool is_short;
    const char *entries = getenv("SHORT_CQ");
    union {
        void *symbol;
        create *call;
    } next = {dlsym(RTLD_NEXT, "ibv_create_cq")};
    if (entries && channel && !atomic_exchange(&is_short, true))
        cqe = atoi(entries);
    return next.call(context, cqe, cq_context, channel, comp_vector);
}
