/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: weft_word_wait, and with it weft_counter_wait and a job's barrier, napped for
 * 50 us between two polls although each poll handled messages: 0.2 million messages a second,
 * not 65.
 *
 * The messages are there before the wait begins, and the handler of the last one stores the word,
 * so the wait has nothing to nap for. WEFT_SPIN=0 and WEFT_DEBUG=yield=0 have it nap as soon as it
 * may.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <weft/event.h>
#include <weft/weft.h>

#include "contract/support.h"

enum { NOTE = 1, MESSAGES = 1000, NAPS_MAX = 3 };
#define LIMIT_NS 20000000000ll

static struct weft_ep *ep[2];
static struct weft_peer *peer;
static struct weft_counter *counter;
static _Alignas(8) uint64_t word;
static unsigned seen;

static void on_note(const struct weft_am *am)
{
    (void)am;
    if (++seen % MESSAGES)
        return;
    word++;
    if (weft_counter_add(counter, 1) != WEFT_OK)
        abort();
}

static void must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* Each nap is one. */
static long switches(void)
{
    struct rusage u;
    must(!getrusage(RUSAGE_THREAD, &u), "getrusage");
    return u.ru_nvcsw;
}

static void open_all(void)
{
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    struct weft_ctx *ctx;
    must(!weft_ctx_open(NULL, &ctx), "no context");
    for (int i = 0; i < 2; i++)
        must(!weft_ep_open(ctx, NULL, &ep[i]), "no endpoint");
    must(!weft_am_register(ep[1], NOTE, on_note, NULL) && !weft_counter_open(&counter),
         "no handler or counter");
    must(!weft_ep_address(ep[1], addr, &len) && !weft_peer_open(ep[0], addr, len, &peer),
         "no peer");
}

static void send_all(void)
{
    for (unsigned i = 0; i < MESSAGES; i++) {
        enum weft_status status = weft_am_request(peer, NOTE, NULL, 0, NULL, 0, 0);
        must(status == WEFT_OK, weft_status_name(status));
    }
}

static void report(const char *wait, long naps)
{
    printf("%s: %ld naps in %d messages\n", wait, naps, MESSAGES);
    must(naps <= NAPS_MAX, "it naps while messages flow");
}

int main(void)
{
    long before;
    setenv("WEFT_SPIN", "0", 1);
    test_debug("yield=0");
    open_all();
    send_all();
    before = switches();
    must(weft_word_wait(ep[1], &word, 1, NULL, LIMIT_NS) == WEFT_OK, "the word never came");
    report("weft_word_wait", switches() - before);
    send_all();
    before = switches();
    must(weft_counter_wait(counter, ep[1], 2, LIMIT_NS) == WEFT_OK, "the count never came");
    report("weft_counter_wait", switches() - before);
    return 0;
}
