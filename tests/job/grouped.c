/* SPDX-License-Identifier: BSD-3-Clause */
/* Replaces wf_members_are_local of src/job/nodes.c: JOB_TEST_NODES groups ranks into nodes. "N":
 * each N ranks in a row; "%N": each N-th rank. So jobs on several nodes are tested on one, over
 * shared memory. The rank of JOB_TEST_STOPS stops when it has the addresses of the others, which go
 * on when it has stopped. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "job/nodes.h"

#define LIMIT_NS UINT64_C(10000000000)

static unsigned node_of(const char *how, unsigned rank)
{
    return how[0] == '%' ? rank % (unsigned)atoi(how + 1) : rank / (unsigned)atoi(how);
}

/* Has the process been stopped? Asked until it has, or LIMIT_NS have passed. */
static void await_stop(uint32_t pid)
{
    uint64_t until = wf_now_ns() + LIMIT_NS;
    char path[32], line[512], *end = NULL;
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    do {
        FILE *f = fopen(path, "re");
        end = f && fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
        if (f)
            fclose(f);
    } while (end && end[2] != 'T' && wf_now_ns() < until);
}

/* [b] is the rank that stops: stop if it is this process, otherwise wait until it has stopped. */
static void stop(const struct wf_member *b)
{
    if (b->process.pid == (uint32_t)getpid())
        (void)raise(SIGSTOP);
    else
        await_stop(b->process.pid);
}

bool wf_members_are_local(const struct wf_member *a, const struct wf_member *b)
{
    const char *how = getenv("JOB_TEST_NODES"), *stops = getenv("JOB_TEST_STOPS");
    if (stops && b->rank == (unsigned)atoi(stops))
        stop(b);
    return !how || node_of(how, a->rank) == node_of(how, b->rank);
}
