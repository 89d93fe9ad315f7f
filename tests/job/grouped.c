/* SPDX-License-Identifier: BSD-3-Clause */
/* Replaces wf_members_are_local of src/job/nodes.c: JOB_TEST_NODES groups ranks into nodes. "N":
 * each N ranks in a row; "%N": each N-th rank. So jobs on several nodes are tested on one, over
 * shared memory. */
#include <stdlib.h>

#include "job/nodes.h"

static unsigned node_of(const char *how, unsigned rank)
{
    return how[0] == '%' ? rank % (unsigned)atoi(how + 1) : rank / (unsigned)atoi(how);
}

bool wf_members_are_local(const struct wf_member *a, const struct wf_member *b)
{
    const char *how = getenv("JOB_TEST_NODES");
    return !how || node_of(how, a->rank) == node_of(how, b->rank);
}
