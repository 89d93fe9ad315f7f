/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of launch.h in a library that is built without libpmix. A process without a
 * launcher is a job of one rank. Under a PMIx launcher no job can be opened. */
#include "job/launch.h"

#include "base/log.h"
#include "config/config.h"

bool wf_launch_present(void)
{
    return wf_config_launcher("PMIX_NAMESPACE") && wf_config_launcher("PMIX_RANK");
}

enum weft_status wf_launch_open(struct wf_launch *launch, uint64_t deadline_ns)
{
    (void)deadline_ns;
    *launch = (struct wf_launch){0};
    wf_error("started by a PMIx launcher, but this Weft was built without libpmix: install it and "
             "configure with -Dpmix=enabled");
    return WEFT_ENOJOB;
}

enum weft_status wf_launch_exchange(struct wf_launch *launch, const struct wf_card *mine,
                                    struct wf_card *cards, uint64_t deadline_ns)
{
    (void)launch, (void)mine, (void)cards, (void)deadline_ns;
    return WEFT_ENOJOB;
}

enum weft_status wf_launch_share_secret(struct wf_launch *launch, uint64_t deadline_ns)
{
    (void)launch, (void)deadline_ns;
    return WEFT_ENOJOB;
}

bool wf_launch_failed(const struct wf_launch *launch, unsigned rank)
{
    (void)launch, (void)rank;
    return false;
}

unsigned wf_launch_failures(const struct wf_launch *launch)
{
    (void)launch;
    return 0;
}

void wf_launch_close(struct wf_launch *launch, uint64_t at_most_ns)
{
    (void)launch, (void)at_most_ns;
}

void wf_launch_abort(struct wf_launch *launch, int code, const char *why)
{
    (void)launch, (void)code, (void)why;
}
