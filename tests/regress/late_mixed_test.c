/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: a requester that has left out shared memory was answered by it, since it is on
 * the same host, and nobody listens there.
 *
 * Fails when: a late reply or a refusal does not arrive by the transport that the request came by.
 */
#define _GNU_SOURCE
#include "late.h"

static void requester(int sock, void *arg)
{
    static struct side s;
    (void)arg;
    CHECK(!setenv("WEFT_TRANSPORTS", "loop,tcp", 1));
    side_open(&s);
    side_hear(&s, sock);
    for (uint32_t i = 0; i < 2; i++)
        side_ask(&s, i, 1);
    UNTIL(s.ep, s.answers + s.refusals == 2);
    CHECK(s.answers == 1);
    CHECK_STATUS(s.down, WEFT_OK);
    proc_say(sock, "", 1);
}

static void late_mixed(void)
{
    struct proc p = proc_start(requester, NULL);
    static struct side s;
    char byte;
    CHECK(!setenv("WEFT_TRANSPORTS", "loop,shm,tcp", 1));
    side_open(&s);
    side_say(&s, p.sock);
    UNTIL(s.ep, s.nkept == 2);
    CHECK_STATUS(weft_am_reply_later(&s.kept[0], ANSWER, NULL, 0, NULL, 0), WEFT_OK);
    CHECK_STATUS(weft_am_drop(&s.kept[1]), WEFT_OK);
    UNTIL(s.ep, recv(p.sock, &byte, 1, MSG_DONTWAIT) == 1);
    proc_join(&p);
    CHECK_STATUS(weft_ep_close(s.ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(s.ctx), WEFT_OK);
}

int main(void)
{
    CHECK(!setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1));
    return proc_case("late_mixed", late_mixed);
}
