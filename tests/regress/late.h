/* SPDX-License-Identifier: BSD-3-Clause */
/* Requesters and a responder in processes of their own: what late_*_test.c share. */
#ifndef TEST_LATE_H
#define TEST_LATE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <weft/weft.h>

#include "../stress/kill/proc.h"

enum { ASK = 1, ANSWER = 2 };

/* Poll [ep] until [cond]; it must come true. */
#define UNTIL(ep, cond)                                                                            \
    do {                                                                                           \
        uint64_t end_ = proc_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);                          \
        while (!(cond)) {                                                                          \
            CHECK(weft_ep_wait((ep), 1000000) >= 0);                                               \
            if (proc_now_ns() > end_)                                                              \
                proc_fail(__FILE__, __LINE__, "never came true: %s", #cond);                       \
        }                                                                                          \
    } while (0)

struct side {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer; /* the other side; null: not opened */
    enum weft_status down;  /* what peer_down told */
    unsigned answers, refusals;
    size_t len;                     /* of the last answer */
    struct weft_am_later kept[100]; /* requests */
    unsigned nkept;
};

static inline void side_on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why,
                                void *arg)
{
    (void)ep;
    (void)peer;
    ((struct side *)arg)->down = why;
}

static inline void side_on_failed(const struct weft_am_failure *failure)
{
    CHECK_STATUS(failure->why, WEFT_ECANCELED);
    ((struct side *)failure->arg)->refusals++;
}

static inline void side_on_ask(const struct weft_am *am)
{
    struct side *s = am->arg;
    CHECK(s->nkept < sizeof s->kept / sizeof s->kept[0]);
    CHECK_STATUS(weft_am_detach(am, &s->kept[s->nkept++]), WEFT_OK);
}

static inline void side_on_answer(const struct weft_am *am)
{
    struct side *s = am->arg;
    s->answers++;
    s->len = am->len;
}

static inline void side_open(struct side *s)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "known to all sides of a test";
    struct weft_ctx_params ctx_params = WEFT_CTX_PARAMS_INIT;
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    int network = strstr(getenv("WEFT_TRANSPORTS"), "tcp") != NULL;
    memset(s, 0, sizeof *s);
    ctx_params.flags = network ? WEFT_CTX_NETWORK : 0;
    CHECK_STATUS(weft_ctx_open(&ctx_params, &s->ctx), WEFT_OK);
    if (network)
        CHECK_STATUS(weft_ctx_set_key(s->ctx, key, sizeof key), WEFT_OK);
    params.peer_down = side_on_down;
    params.am_failed = side_on_failed;
    params.arg = s;
    CHECK_STATUS(weft_ep_open(s->ctx, &params, &s->ep), WEFT_OK);
    CHECK_STATUS(weft_am_register(s->ep, ASK, side_on_ask, s), WEFT_OK);
    CHECK_STATUS(weft_am_register(s->ep, ANSWER, side_on_answer, s), WEFT_OK);
}

/* Where the other process can reach it. */
static inline void side_say(const struct side *s, int sock)
{
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    CHECK_STATUS(weft_ep_address(s->ep, address, &len), WEFT_OK);
    proc_say(sock, address, len);
}

static inline void side_hear(struct side *s, int sock)
{
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = proc_hear(sock, address, sizeof address);
    CHECK_STATUS(weft_peer_open(s->ep, address, len, &s->peer), WEFT_OK);
}

static inline void side_ask(struct side *s, uint32_t arg, size_t reply_max)
{
    enum weft_status status = WEFT_AGAIN;
    UNTIL(s->ep,
          (status = weft_am_request(s->peer, ASK, &arg, 1, NULL, 0, reply_max)) != WEFT_AGAIN);
    CHECK_STATUS(status, WEFT_OK);
}

/* Of this process and those that it starts. */
static inline void side_transport(const char *name)
{
    char transports[64];
    snprintf(transports, sizeof transports, "loop,%s", name);
    CHECK(!setenv("WEFT_TRANSPORTS", transports, 1));
    CHECK(!setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1));
}

#endif
