/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: a late reply could be as long as the requester's WEFT_AM_MAX allows, though it
 * leaves as a message of the responder's. Where that has a smaller one the reply was accepted and
 * the connection broke.
 *
 *     late_am_max_test [TRANSPORT]
 *
 * Fails when: such a reply is accepted, the longest that is allowed does not arrive, or one of the
 * two loses its peer. */
#define _GNU_SOURCE
#include "late.h"

enum { LONG = 32000 }; /* between the two */

static void requester(int sock, void *arg)
{
    static struct side s;
    (void)arg;
    CHECK(!setenv("WEFT_AM_MAX", "32704", 1));
    side_open(&s);
    side_hear(&s, sock);
    side_say(&s, sock);
    side_ask(&s, 0, LONG + 1);
    UNTIL(s.ep, s.answers == 1);
    CHECK(s.len == 512);
    proc_say(sock, "", 1);
    CHECK(proc_hear(sock, &s.len, 1) == 1); /* the responder has looked, too */
    CHECK_STATUS(s.down, WEFT_OK);
    CHECK_STATUS(weft_peer_status(s.peer), WEFT_OK);
}

static void late_am_max(void)
{
    static const char data[LONG];
    struct proc p = proc_start(requester, NULL);
    static struct side s;
    char byte;
    CHECK(!setenv("WEFT_AM_MAX", "512", 1));
    side_open(&s);
    side_say(&s, p.sock);
    side_hear(&s, p.sock);
    UNTIL(s.ep, s.nkept == 1);
    CHECK_STATUS(weft_am_reply_later(&s.kept[0], ANSWER, NULL, 0, data, LONG), WEFT_EMSGSIZE);
    CHECK_STATUS(weft_am_reply_later(&s.kept[0], ANSWER, NULL, 0, data, 513), WEFT_EMSGSIZE);
    CHECK(s.kept[0].reply_max == 513);
    CHECK_STATUS(weft_am_reply_later(&s.kept[0], ANSWER, NULL, 0, data, 512), WEFT_OK);
    UNTIL(s.ep, recv(p.sock, &byte, 1, MSG_DONTWAIT) == 1);
    CHECK_STATUS(s.down, WEFT_OK);
    CHECK_STATUS(weft_peer_status(s.peer), WEFT_OK);
    proc_say(p.sock, "", 1);
    proc_join(&p);
}

int main(int argc, char **argv)
{
    side_transport(argc > 1 ? argv[1] : "shm");
    return proc_case("late_am_max", late_am_max);
}
