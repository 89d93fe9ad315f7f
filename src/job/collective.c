/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "job/job.h"

/* Each rank writes its bytes to its outbox in shared memory, then all ranks wait for each other,
 * then each rank reads all outboxes. One such barrier is enough, because consecutive collectives
 * use different halves of the outboxes. A rank writes to this half again two collectives later.
 * Before that it passes the collective in between, which every rank enters only after it has read
 * this half. */
static enum weft_status gather(struct weft_job *job, enum wf_call_kind kind, const void *mine,
                               size_t len, void *all)
{
    const struct wf_board *b = &job->board;
    unsigned half = (unsigned)((job->barriers + 1) & 1);
    enum weft_status s;
    memcpy(wf_board_outbox(b, job->rank, half, len), mine, len);
    if (job->across)
        job->across->len = (uint32_t)len;
    s = wf_job_meet(job, wf_call_of(kind, len), 0);
    if (job->across)
        job->across->len = 0;
    for (unsigned r = 0; !s && r < job->size; r++)
        memcpy((char *)all + r * len, wf_board_outbox(b, r, half, len), len);
    return s;
}

static enum weft_status allgather(struct weft_job *job, enum wf_call_kind kind, const void *mine,
                                  size_t len, void *all)
{
    enum weft_status s = job ? wf_ep_check(job->ep) : WEFT_EINVAL;
    if (!s && job->notified)
        s = WEFT_EINVAL;
    if (!s && len && (!mine || !all))
        s = WEFT_EINVAL;
    if (!s && len > WEFT_JOB_ALLGATHER_MAX)
        s = WEFT_EMSGSIZE;
    if (s)
        return s;
    wf_job_hold(job);
    return wf_job_held(job, len ? gather(job, kind, mine, len, all) : weft_job_barrier(job));
}

enum weft_status weft_job_allgather(struct weft_job *job, const void *mine, size_t len, void *all)
{
    return allgather(job, WF_CALL_GATHER, mine, len, all);
}

/* ---- memory on every rank ---- */

struct memory_offer {
    int32_t status; /* status of the allocation */
    uint32_t key_len;
    unsigned char key[WEFT_KEY_MAX];
};

static void make_offer(struct weft_job *job, size_t len, unsigned access, struct weft_mr **mr,
                       struct memory_offer *offer)
{
    size_t room = sizeof offer->key;
    *offer = (struct memory_offer){.status = weft_mem_alloc(job->ctx, len, access, mr)};
    if (offer->status)
        return;
    offer->status = weft_mr_key(*mr, offer->key, &room);
    offer->key_len = (uint32_t)room;
}

/* Returns the status of the lowest rank that failed, or OK. All ranks have gathered the same
 * statuses, so all of them return the same result. */
static enum weft_status first_failure(const int32_t *statuses, size_t stride, unsigned n)
{
    for (unsigned r = 0; r < n; r++) {
        int32_t s = *(const int32_t *)(const void *)((const char *)statuses + r * stride);
        if (s)
            return s < 0 ? (enum weft_status)s : WEFT_EPROTO;
    }
    return WEFT_OK;
}

static void close_remotes(struct weft_remote **remotes, unsigned n)
{
    for (unsigned r = 0; r < n; r++) {
        if (remotes[r])
            (void)weft_remote_close(remotes[r]);
        remotes[r] = NULL;
    }
}

static enum weft_status open_remotes(struct weft_job *job, const struct memory_offer *offers,
                                     struct weft_remote **remotes)
{
    enum weft_status s = WEFT_OK;
    for (unsigned i = 0; !s && i < job->size; i++) {
        unsigned r = (job->rank + i) % job->size; /* begin at this rank: otherwise all ranks
                                                   * send requests to one rank at once */
        if (offers[r].key_len > WEFT_KEY_MAX)
            return WEFT_EPROTO;
        /* The other rank may be stopped, so try again until it answers. If it has died,
         * weft_ep_poll finds that and sets job->broken. */

        do {
            s = weft_remote_open(job->peers[r], offers[r].key, offers[r].key_len, &remotes[r]);
            (void)weft_ep_poll(job->ep);
        } while (s == WEFT_ETIMEDOUT && !job->broken);
    }
    return s;
}

enum weft_status weft_job_mem_alloc(struct weft_job *job, size_t len, unsigned access,
                                    struct weft_mr **mr, struct weft_remote **remotes)
{
    struct memory_offer mine, *offers;
    struct weft_mr *own = NULL;
    enum weft_status s = WEFT_ENOMEM;
    int32_t opened = 0, *all_opened;
    if (!job || !mr || !remotes)
        return WEFT_EINVAL;
    offers = calloc(job->size, sizeof *offers);
    all_opened = calloc(job->size, sizeof *all_opened);
    if (!offers || !all_opened)
        goto free_offers;
    memset(remotes, 0, job->size * sizeof(struct weft_remote *));
    make_offer(job, len, access, &own, &mine);
    s = allgather(job, WF_CALL_MEMORY, &mine, sizeof mine, offers);
    if (!s)
        s = first_failure(&offers[0].status, sizeof *offers, job->size);
    if (s)
        goto close_own;
    opened = open_remotes(job, offers, remotes);
    /* Gather whether each rank could open all regions. If a rank could not, the call fails on all
     * ranks, so that no rank uses memory that another rank could not open. */
    s = allgather(job, WF_CALL_MEMORY, &opened, sizeof opened, all_opened);
    if (!s)
        s = first_failure(all_opened, sizeof *all_opened, job->size);
    if (!s) {
        *mr = own;
        goto free_offers;
    }
    close_remotes(remotes, job->size);
close_own:
    if (own)
        (void)weft_mr_close(own);
free_offers:
    free(all_opened);
    free(offers);
    return s;
}
