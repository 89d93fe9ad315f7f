/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: an endpoint with late replies for a process that is stopped could not be closed
 * before that goes on or ends.
 *
 * Fails when: such an endpoint is closed before the replies have waited for WEFT_PEER_TIMEOUT, or
 * not then; or the requester, once it goes on, is not told that its peer has closed, or is given
 * more replies than were sent. */
#define _GNU_SOURCE
#include <signal.h>

#include "late.h"

enum { REQUESTS = 64 }; /* more replies than the ring has slots */

#define TIMEOUT_MS "1000"
#define TIMEOUT_NS UINT64_C(1000000000)

static void requester(int sock, void *arg)
{
    static struct side s;
    (void)arg;
    side_open(&s);
    side_say(&s, sock);
    side_hear(&s, sock);
    for (uint32_t i = 0; i < REQUESTS; i++)
        side_ask(&s, i, 1);
    raise(SIGSTOP);
    UNTIL(s.ep, s.down != WEFT_OK);
    CHECK_STATUS(s.down, WEFT_ECLOSED);
    CHECK(s.answers > 0 && s.answers < REQUESTS);
}

/* Its peer first, if it has one, which is busy for as long. */
static enum weft_status close_side(struct side *s)
{
    enum weft_status status = weft_ep_close(s->ep);
    if (!s->peer || status != WEFT_EBUSY)
        return status;
    status = weft_peer_close(s->peer);
    if (status == WEFT_OK)
        s->peer = NULL;
    return status == WEFT_OK ? weft_ep_close(s->ep) : status;
}

static void responder(int has_peer)
{
    struct proc p = proc_start(requester, NULL);
    enum weft_status status = WEFT_EBUSY;
    static struct side s;
    unsigned char other[WEFT_ADDR_MAX];
    uint64_t start;
    side_open(&s);
    if (has_peer)
        side_hear(&s, p.sock);
    else
        CHECK(proc_hear(p.sock, other, sizeof other) > 0);
    side_say(&s, p.sock);
    UNTIL(s.ep, s.nkept == REQUESTS);
    proc_await_stop(&p);
    start = proc_now_ns();
    for (unsigned i = 0; i < REQUESTS; i++)
        CHECK_STATUS(weft_am_reply_later(&s.kept[i], ANSWER, NULL, 0, NULL, 0), WEFT_OK);
    UNTIL(s.ep, (status = close_side(&s)) != WEFT_EBUSY);
    CHECK_STATUS(status, WEFT_OK);
    CHECK(proc_now_ns() - start >= TIMEOUT_NS);
    CHECK_STATUS(weft_ctx_close(s.ctx), WEFT_OK);
    proc_continue(&p);
    proc_join(&p);
}

static void late_stopped(void)
{
    responder(0);
}

static void late_stopped_peer(void)
{
    responder(1);
}

int main(void)
{
    side_transport("shm");
    CHECK(!setenv("WEFT_SHM_SLOTS", "16", 1));
    CHECK(!setenv("WEFT_PEER_TIMEOUT", TIMEOUT_MS, 1));
    return proc_case("late_stopped", late_stopped) +
           proc_case("late_stopped_peer", late_stopped_peer);
}
