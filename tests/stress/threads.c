/* SPDX-License-Identifier: BSD-3-Clause */
/* threads_test [MESSAGES]: two endpoints of one context in two threads send each
 * other MESSAGES, some of which want replies, and sleep without a limit whenever
 * they have to wait. Between two endpoints of one process the rings are one
 * mapping, so that ThreadSanitizer, which keys on addresses, sees both sides.
 *
 * Fails when: a wake is lost (it hangs until the alarm), an access is not
 * ordered (under TSan), a byte is wrong, a message is lost or comes twice. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include <weft/weft.h>

#include "contract/support.h"

enum { ASK = 1, ANSWER = 2 };
#define ANSWERED ((uint64_t)1 << 40) /* added to an id for the contents of its reply */

struct side {
    struct weft_ep *ep;
    struct weft_peer *peer;
    uint64_t base, other_base; /* of ids: the two sides' differ */
    uint32_t count, sent, received, due, answered;
    uint64_t rand;
    uint8_t *seen; /* of the other's messages */
    uint64_t wrong;
    unsigned char data[8192];
};

static size_t length_of(uint64_t id, size_t max)
{
    uint64_t r = test_mix(id);
    return (r & 15) == 0 ? (r >> 4) % (max + 1) : (r >> 4) % 65;
}

/* 0: one-way. */
static size_t reply_max_of(uint64_t id, size_t max)
{
    return test_mix(id ^ 0x5555) & 3 ? 0 : 1 + length_of(id + 1, max);
}

static void on_ask(const struct weft_am *am)
{
    struct side *s = am->arg;
    size_t max = weft_am_max(s->ep);
    uint32_t id = am->nargs == 2 ? am->args[0] : UINT32_MAX;
    uint64_t tag = s->other_base + id;
    if (id >= s->count || am->args[1] != (uint32_t)test_mix(tag) ||
        am->len != length_of(tag, max) || !test_same(am->data, am->len, tag) || s->seen[id]++) {
        s->wrong++;
        return;
    }
    s->received++;
    if (!am->can_reply)
        return;
    test_fill(s->data, am->reply_max - 1, tag + ANSWERED);
    s->wrong += weft_am_reply(am, ANSWER, am->args, 1, s->data, am->reply_max - 1) != WEFT_OK;
    s->wrong += !test_same(am->data, am->len, tag);
}

static void on_answer(const struct weft_am *am)
{
    struct side *s = am->arg;
    uint64_t tag = s->base + am->args[0];
    s->wrong += am->nargs != 1 || am->len + 1 != reply_max_of(tag, weft_am_max(s->ep)) ||
                !test_same(am->data, am->len, tag + ANSWERED);
    s->answered++;
}

/* False: there was no room. */
static int send_one(struct side *s)
{
    uint64_t tag = s->base + s->sent;
    size_t max = weft_am_max(s->ep), len = length_of(tag, max), reply_max = reply_max_of(tag, max);
    const uint32_t args[2] = {s->sent, (uint32_t)test_mix(tag)};
    enum weft_status status;
    test_fill(s->data, len, tag);
    status = weft_am_request(s->peer, ASK, args, 2, s->data, len, reply_max);
    if (status == WEFT_AGAIN)
        return 0;
    s->wrong += status != WEFT_OK;
    s->sent++;
    s->due += reply_max != 0;
    return 1;
}

static void wait_for_more(struct side *s)
{
    int n = weft_ep_wait(s->ep, -1);
    if (n <= 0) {
        fprintf(stderr, "weft_ep_wait without a limit gives %d\n", n);
        s->wrong++;
    }
}

static void linger(uint64_t r)
{
    for (uint64_t end = test_now_ns() + r % 30000; test_now_ns() < end;)
        ;
}

/* In bursts, and now and then one at a time with a sleep for each answer. Sleeps
 * only while the other side owes something: room, an answer, or messages. */
static void *run(void *arg)
{
    struct side *s = arg;
    while ((s->sent < s->count || s->received < s->count || s->answered < s->due) && !s->wrong) {
        uint64_t r = test_rand(&s->rand);
        int burst = r & 3 ? (int)(r >> 20) % 64 : 1, full = 0;
        while (burst-- && s->sent < s->count && !full)
            full = !send_one(s);
        if (!(r & 0x300)) /* let the other side run out of things to do, and sleep */
            linger(r >> 10);
        if (full || s->answered < s->due || (s->sent == s->count && s->received < s->count))
            wait_for_more(s);
        else if (weft_ep_poll(s->ep) < 0)
            s->wrong++;
    }
    return NULL;
}

static int side_open(struct side *s, struct weft_ctx *ctx, uint32_t count, uint64_t base)
{
    *s = (struct side){.base = base, .other_base = base ^ ANSWERED << 1, .count = count};
    s->rand = test_mix(base + count);
    s->seen = calloc(count, 1);
    return !s->seen || weft_ep_open(ctx, NULL, &s->ep) || weft_am_register(s->ep, ASK, on_ask, s) ||
           weft_am_register(s->ep, ANSWER, on_answer, s);
}

static int connect_to(struct side *s, const struct side *to)
{
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    return weft_ep_address(to->ep, addr, &len) || weft_peer_open(s->ep, addr, len, &s->peer);
}

static void print_stat(void *arg, const char *name, uint64_t value, const char *doc)
{
    uint64_t *armed = arg;
    (void)doc;
    printf("# %-18s %llu\n", name, (unsigned long long)value);
    if (!strcmp(name, "ARMED"))
        *armed = value;
}

int main(int argc, char **argv)
{
    uint32_t count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 100000;
    static struct side s[2];
    struct weft_ctx *ctx;
    pthread_t threads[2];
    uint64_t armed = 0;
    int bad = 0;
    setenv("WEFT_SPIN", "0", 0); /* sleep at once, to sleep often */
    test_debug("yield=0");
    alarm(60 + count / 500);
    if (weft_ctx_open(NULL, &ctx) || side_open(&s[0], ctx, count, 0) ||
        side_open(&s[1], ctx, count, ANSWERED << 1) || connect_to(&s[0], &s[1]) ||
        connect_to(&s[1], &s[0]))
        return 2;
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, run, &s[i]))
            return 2;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    weft_stat_rows(ctx, print_stat, &armed);
    for (int i = 0; i < 2; i++) {
        printf("# side %d: sent %u, received %u, answered %u of %u, wrong %llu\n", i, s[i].sent,
               s[i].received, s[i].answered, s[i].due, (unsigned long long)s[i].wrong);
        bad |= s[i].wrong || s[i].received != count || s[i].answered != s[i].due;
        bad |= weft_peer_close(s[i].peer) != WEFT_OK;
    }
    for (int i = 0; i < 2; i++) {
        bad |= weft_ep_close(s[i].ep) != WEFT_OK;
        free(s[i].seen);
    }
    bad |= weft_ctx_close(ctx) != WEFT_OK;
    if (armed < count / 10000) { /* how often is up to the scheduler */
        fprintf(stderr, "it hardly ever slept: %llu times\n", (unsigned long long)armed);
        bad = 1;
    }
    return bad;
}
