/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <weft/job.h>

enum { HELLO, THANKS };

static void on_hello(const struct weft_am *am)
{
    if (am->nargs == 1 && weft_am_reply(am, THANKS, NULL, 0, NULL, 0) == WEFT_OK)
        printf("rank %u: hello from rank %u\n", *(unsigned *)am->arg, am->args[0]);
}

static void on_thanks(const struct weft_am *am)
{
    *(unsigned *)am->arg = 1;
}

int main(void)
{
    struct weft_job *job;
    enum weft_status s = weft_job_open(NULL, &job);
    if (s != WEFT_OK)
        return fprintf(stderr, "hello: cannot join the job: %s\n", weft_status_text(s)), 1;
    struct weft_ep *ep = weft_job_ep(job);
    unsigned me = weft_job_rank(job), thanked = 0;
    struct weft_peer *next = weft_job_peer(job, (me + 1) % weft_job_size(job));

    s = weft_am_register(ep, HELLO, on_hello, &me);
    if (s == WEFT_OK && (s = weft_am_register(ep, THANKS, on_thanks, &thanked)) == WEFT_OK)
        s = weft_job_barrier(job); /* every rank has its handlers now */
    if (s == WEFT_OK)
        while ((s = weft_am_request(next, HELLO, &me, 1, NULL, 0, 1)) == WEFT_AGAIN)
            weft_ep_wait(ep, 1000000000); /* no room yet: wait for some, try again */
    while (s == WEFT_OK && !thanked && (s = weft_peer_status(next)) == WEFT_OK)
        weft_ep_wait(ep, 1000000000); /* runs the handlers */
    if (s != WEFT_OK || (s = weft_job_barrier(job)) != WEFT_OK)
        return fprintf(stderr, "hello: rank %u: %s\n", me, weft_status_text(s)), 1;
    return weft_job_close(job) != WEFT_OK;
}
