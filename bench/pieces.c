/* SPDX-License-Identifier: BSD-3-Clause */
/* What a header and a payload in two pieces (weft_am_requestv) cost beside one piece of the same
 * bytes (weft_am_request), in instructions and in copies:
 *
 *     valgrind --tool=callgrind --fair-sched=yes --collect-atstart=no --toggle-collect='one_*' \
 *         pieces [COUNT]
 *     callgrind_annotate --inclusive=yes callgrind.out.PID
 *
 * and again with two_* in the place of one_*. Divided by COUNT (default 8000), one_14_8 and
 * two_14_8 are a send of 14 and 8 bytes, in bursts of 8, by all that it calls; what is received is
 * polled for outside of them. As long as wf_iov_gather is not in the profile of two_*, the pieces
 * are not copied together first. Two endpoints of one process, over shared memory or the transports
 * of WEFT_TRANSPORTS. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

#include "common.h"

enum { BURST = 8, HANDLER = 1 };

static unsigned long came;

static void on_message(const struct weft_am *am)
{
    (void)am;
    came++;
}

#define MUST(call) CHECK((call) == WEFT_OK)

/* [n] messages of [head] and [body] bytes, in one piece and in two; functions that are not static,
 * so that a profile distinguishes them. */
#define SENDS(head, body)                                                                          \
    void one_##head##_##body(struct weft_peer *peer, const char *bytes);                           \
    __attribute__((noinline)) void one_##head##_##body(struct weft_peer *peer, const char *bytes)  \
    {                                                                                              \
        for (int i = 0; i < BURST; i++)                                                            \
            MUST(weft_am_request(peer, HANDLER, NULL, 0, bytes, (head) + (body), 0));              \
    }                                                                                              \
    void two_##head##_##body(struct weft_peer *peer, const char *bytes);                           \
    __attribute__((noinline)) void two_##head##_##body(struct weft_peer *peer, const char *bytes)  \
    {                                                                                              \
        const struct iovec iov[2] = {{(void *)(uintptr_t)bytes, head},                             \
                                     {(void *)(uintptr_t)(bytes + 1024), body}};                   \
        for (int i = 0; i < BURST; i++)                                                            \
            MUST(weft_am_requestv(peer, HANDLER, NULL, 0, iov, 2, 0));                             \
    }

SENDS(4, 4)
SENDS(14, 8)
SENDS(8, 32)
SENDS(14, 256)

static void (*const sends[])(struct weft_peer *, const char *) = {
    one_4_4, two_4_4, one_14_8, two_14_8, one_8_32, two_8_32, one_14_256, two_14_256};

static void receive(struct weft_ep *eps[2], unsigned long all)
{
    while (came < all)
        for (int i = 0; i < 2; i++)
            CHECK(weft_ep_poll(eps[i]) >= 0);
}

static void address_of(struct weft_ep *ep, unsigned char *to, size_t *len)
{
    *len = WEFT_ADDR_MAX;
    MUST(weft_ep_address(ep, to, len));
}

int main(int argc, char **argv)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "of one process, for itself alone";
    static char bytes[2048];
    long count = argc > 1 ? strtol(argv[1], NULL, 0) : 8000;
    const char *transports = getenv("WEFT_TRANSPORTS");
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_ctx *ctx[2];
    struct weft_ep *eps[2];
    struct weft_peer *peer;
    unsigned char address[WEFT_ADDR_MAX];
    size_t len;
    unsigned long all = 0;
    params.flags = transports && strstr(transports, "tcp") ? WEFT_CTX_NETWORK : 0;
    for (int i = 0; i < 2; i++) {
        MUST(weft_ctx_open(&params, &ctx[i]));
        if (params.flags)
            MUST(weft_ctx_set_key(ctx[i], key, sizeof key));
        MUST(weft_ep_open(ctx[i], NULL, &eps[i]));
    }
    MUST(weft_am_register(eps[1], HANDLER, on_message, NULL));
    address_of(eps[1], address, &len);
    MUST(weft_peer_open(eps[0], address, len, &peer));
    while (weft_am_request(peer, HANDLER, NULL, 0, NULL, 0, 0) != WEFT_OK) /* connects */
        for (int i = 0; i < 2; i++)
            CHECK(weft_ep_poll(eps[i]) >= 0);
    receive(eps, ++all);
    for (unsigned k = 0; k < sizeof sends / sizeof *sends; k++)
        for (long i = 0; i < count; i += BURST) {
            sends[k](peer, bytes);
            receive(eps, all += BURST);
        }
    printf("%lu messages\n", all);
    return 0;
}
