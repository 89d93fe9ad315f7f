/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: a late reply or a refusal in a handler that found no memory for its copy left
 * its own arguments behind as if they were the request's, and what was dropped then told these.
 *
 * Fails when: after ENOMEM a reply is not due any more, or dropping it tells other arguments than
 * the request had. */
#define _GNU_SOURCE
#include <stdbool.h>

#include "late.h"

enum { REPLY = 3, DROP = 4, NARGS = 3 };

static const uint32_t asked[NARGS] = {11, 22, 33};
static uint32_t told[WEFT_AM_FAILED_ARGS];
static unsigned ntold, tries, failures;

/* Of this thread, not of Weft's own: do allocations fail? */
static _Thread_local bool starved;

extern void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *__wrap_malloc(size_t size)
{
    if (!starved)
        return __real_malloc(size);
    failures++;
    return NULL;
}

static void on_try(const struct weft_am *am)
{
    static const uint32_t args[WEFT_AM_LATER_MAX_ARGS] = {0xdead};
    const struct weft_am_later *later = &((struct side *)am->arg)->kept[0];
    enum weft_status status;
    starved = true;
    if (am->handler == REPLY)
        status = weft_am_reply_later(later, ANSWER, args, WEFT_AM_LATER_MAX_ARGS, "answer", 6);
    else
        status = weft_am_drop(later);
    starved = false;
    CHECK_STATUS(status, WEFT_ENOMEM);
    tries++;
}

static void on_failed(const struct weft_am_failure *failure)
{
    ntold = failure->nargs;
    memcpy(told, failure->args, 4 * ntold);
    ((struct side *)failure->arg)->refusals++;
}

static void starve(unsigned handler)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    static struct side s;
    struct weft_ep *requester;
    struct weft_peer *peer, *back;
    side_open(&s);
    params.am_failed = on_failed;
    params.arg = &s;
    CHECK_STATUS(weft_am_register(s.ep, handler, on_try, &s), WEFT_OK);
    CHECK_STATUS(weft_ep_address(s.ep, address, &len), WEFT_OK);
    CHECK_STATUS(weft_ep_open(s.ctx, &params, &requester), WEFT_OK);
    CHECK_STATUS(weft_peer_open(requester, address, len, &peer), WEFT_OK);
    len = sizeof address;
    CHECK_STATUS(weft_ep_address(requester, address, &len), WEFT_OK);
    CHECK_STATUS(weft_peer_open(s.ep, address, len, &back), WEFT_OK);
    CHECK_STATUS(weft_am_request(peer, ASK, asked, NARGS, NULL, 0, 100), WEFT_OK);
    UNTIL(s.ep, s.nkept == 1);
    CHECK_STATUS(weft_am_request(peer, handler, NULL, 0, NULL, 0, 0), WEFT_OK);
    UNTIL(s.ep, tries == 1);
    CHECK(failures == 1); /* the copy: all else is there */
    CHECK_STATUS(weft_am_drop(&s.kept[0]), WEFT_OK);
    UNTIL(requester, s.refusals == 1);
    CHECK(ntold == NARGS && !memcmp(told, asked, sizeof asked));
}

static void late_reply_no_memory(void)
{
    starve(REPLY);
}

static void late_drop_no_memory(void)
{
    starve(DROP);
}

int main(void)
{
    side_transport("shm");
    return proc_case("late_reply_no_memory", late_reply_no_memory) +
           proc_case("late_drop_no_memory", late_drop_no_memory);
}
