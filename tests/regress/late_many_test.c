/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: a responder kept eight connections to requesters that it has no peer for. With
 * more of them, each late reply closed a connection whose replies had not been read and made
 * another, until requesters that did not poll had too many and replies were refused.
 *
 * Fails when: requesters that do not poll while they are answered do not get all replies later, or
 * a reply is refused. */
#define _GNU_SOURCE
#include <sys/resource.h>

#include "late.h"

enum { REQUESTERS = 12, REQUESTS = 600, FILES = 1024 };

static struct weft_am_later due[REQUESTERS][REQUESTS];
static unsigned ndue[REQUESTERS], asked;

static void on_ask(const struct weft_am *am)
{
    uint32_t who = am->args[0];
    CHECK(who < REQUESTERS && ndue[who] < REQUESTS);
    CHECK_STATUS(weft_am_detach(am, &due[who][ndue[who]++]), WEFT_OK);
    asked++;
}

static void requester(int sock, void *arg)
{
    static struct side s;
    uint32_t who = *(uint32_t *)arg;
    char byte;
    side_open(&s);
    side_hear(&s, sock);
    for (unsigned i = 0; i < REQUESTS; i++)
        side_ask(&s, who, 1);
    UNTIL(s.ep, recv(sock, &byte, 1, MSG_DONTWAIT) == 1); /* all have left */
    proc_say(sock, "", 1);
    CHECK(proc_hear(sock, &byte, 1) == 1); /* polls no more until all are answered */
    UNTIL(s.ep, s.answers == REQUESTS);
    CHECK_STATUS(s.down, WEFT_OK);
    proc_say(sock, "", 1);
}

static void say_to_all(const struct proc *p)
{
    for (unsigned i = 0; i < REQUESTERS; i++)
        proc_say(p[i].sock, "", 1);
}

static void hear_from_all(struct side *s, const struct proc *p)
{
    char byte;
    for (unsigned i = 0; i < REQUESTERS; i++)
        UNTIL(s->ep, recv(p[i].sock, &byte, 1, MSG_DONTWAIT) == 1);
}

static void reply_to_all(struct side *s)
{
    for (unsigned i = 0; i < REQUESTS; i++)
        for (unsigned who = 0; who < REQUESTERS; who++) {
            CHECK_STATUS(weft_am_reply_later(&due[who][i], ANSWER, NULL, 0, NULL, 0), WEFT_OK);
            CHECK(weft_ep_poll(s->ep) >= 0);
        }
}

static void late_many(void)
{
    struct proc p[REQUESTERS];
    static struct side s;
    for (uint32_t i = 0; i < REQUESTERS; i++)
        p[i] = proc_start(requester, &i);
    side_open(&s);
    CHECK_STATUS(weft_am_register(s.ep, ASK, on_ask, NULL), WEFT_OK);
    for (unsigned i = 0; i < REQUESTERS; i++)
        side_say(&s, p[i].sock);
    UNTIL(s.ep, asked == REQUESTERS * REQUESTS);
    say_to_all(p);
    hear_from_all(&s, p);
    reply_to_all(&s);
    say_to_all(p);
    hear_from_all(&s, p);
    for (unsigned i = 0; i < REQUESTERS; i++)
        proc_join(&p[i]);
    CHECK_STATUS(weft_ep_close(s.ep), WEFT_OK);
    CHECK_STATUS(weft_ctx_close(s.ctx), WEFT_OK);
}

int main(void)
{
    struct rlimit files;
    CHECK(!getrlimit(RLIMIT_NOFILE, &files));
    if (files.rlim_cur > FILES)
        files.rlim_cur = FILES;
    CHECK(!setrlimit(RLIMIT_NOFILE, &files));
    side_transport("shm");
    return proc_case("late_many", late_many);
}
