/* SPDX-License-Identifier: BSD-3-Clause */
/* flood_test [SENDERS] [MESSAGES]: processes that send as fast as they can to one
 * that takes its time.
 *
 * Fails when: receiver or senders grow with what is waiting, anything is lost,
 * doubled or wrong, or someone waits for ever (the alarm). */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

#include "contract/support.h"

enum { ASK = 1, ANSWER = 2, MAX_SENDERS = 64 };

struct flood {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    uint32_t senders, messages;
    uint8_t *seen; /* [senders * messages] */
    uint64_t received, due, answered, wrong;
    unsigned char data[8192];
};

static uint64_t tag_of(uint32_t sender, uint32_t id)
{
    return ((uint64_t)sender << 32) + id;
}

static size_t length_of(uint64_t tag, size_t max)
{
    uint64_t r = test_mix(tag);
    return r & 3 ? (r >> 4) % 65 : (r >> 4) % (max + 1);
}

static size_t reply_max_of(uint64_t tag, size_t max)
{
    return test_mix(tag + 77) & 7 ? 0 : 1 + length_of(tag + 1, max);
}

static void on_ask(const struct weft_am *am)
{
    struct flood *f = am->arg;
    uint32_t sender = am->nargs == 2 ? am->args[0] : UINT32_MAX, id = am->args[1];
    uint64_t tag = tag_of(sender, id);
    if (sender >= f->senders || id >= f->messages || !test_same(am->data, am->len, tag) ||
        am->len != length_of(tag, weft_am_max(f->ep)) ||
        f->seen[(size_t)sender * f->messages + id]++) {
        f->wrong++;
        return;
    }
    f->received++;
    for (uint64_t end = test_now_ns() + 500; test_now_ns() < end;) /* it takes its time */
        ;
    if (!am->can_reply)
        return;
    test_fill(f->data, am->reply_max - 1, tag + 5);
    f->wrong += weft_am_reply(am, ANSWER, am->args, 2, f->data, am->reply_max - 1) != WEFT_OK;
}

static void on_answer(const struct weft_am *am)
{
    struct flood *f = am->arg;
    f->wrong += !test_same(am->data, am->len, tag_of(am->args[0], am->args[1]) + 5);
    f->answered++;
}

static int flood_open(struct flood *f)
{
    if (weft_ctx_open(NULL, &f->ctx) || weft_ep_open(f->ctx, NULL, &f->ep))
        return -1;
    weft_ctx_set_local_ranks(f->ctx, f->senders + 1);
    return weft_am_register(f->ep, ASK, on_ask, f) || weft_am_register(f->ep, ANSWER, on_answer, f);
}

static int flood_close(struct flood *f)
{
    return weft_ep_close(f->ep) || weft_ctx_close(f->ctx);
}

static int send_all(struct flood *f, struct weft_peer *peer, uint32_t self)
{
    size_t max = weft_am_max(f->ep);
    for (uint32_t id = 0; id < f->messages; id++) {
        uint64_t tag = tag_of(self, id);
        const uint32_t args[2] = {self, id};
        size_t len = length_of(tag, max), reply_max = reply_max_of(tag, max);
        enum weft_status status;
        test_fill(f->data, len, tag);
        while ((status = weft_am_request(peer, ASK, args, 2, f->data, len, reply_max)) ==
               WEFT_AGAIN)
            if (weft_ep_wait(f->ep, -1) < 0)
                return -1;
        if (status != WEFT_OK) {
            fprintf(stderr, "sender %u: %s\n", self, weft_status_name(status));
            return -1;
        }
        f->due += reply_max != 0;
    }
    while (f->answered < f->due)
        if (weft_ep_wait(f->ep, -1) < 0)
            return -1;
    return f->wrong ? -1 : 0;
}

/* One sender's whole life. */
static int sender(struct flood *f, uint32_t self, int address_pipe)
{
    unsigned char addr[WEFT_ADDR_MAX];
    ssize_t len = read(address_pipe, addr, 64);
    struct weft_peer *peer;
    long kib;
    if (len <= 0 || flood_open(f) || weft_peer_open(f->ep, addr, (size_t)len, &peer))
        return 2;
    kib = test_status_kib("VmRSS");
    if (send_all(f, peer, self))
        return 3;
    if (test_status_kib("VmRSS") > kib + 1024) {
        fprintf(stderr, "sender %u: resident memory grew from %ld to %ld KiB\n", self, kib,
                test_status_kib("VmRSS"));
        return 4;
    }
    return weft_peer_close(peer) || flood_close(f);
}

/* Receives all; how much resident memory grew since a tenth of it, percent. */
static double receive_all(struct flood *f)
{
    uint64_t total = (uint64_t)f->senders * f->messages;
    long warm = 0;
    while (f->received < total && !f->wrong) {
        if (weft_ep_wait(f->ep, -1) < 0)
            f->wrong++;
        if (!warm && f->received > total / 10)
            warm = test_status_kib("VmRSS");
    }
    printf("# received %llu of %llu; resident %ld KiB after a tenth, %ld KiB at the end\n",
           (unsigned long long)f->received, (unsigned long long)total, warm,
           test_status_kib("VmRSS"));
    return 100.0 * (double)(test_status_kib("VmRSS") - warm) / (double)warm;
}

int main(int argc, char **argv)
{
    static struct flood f;
    int address_pipe[2], bad = 0;
    unsigned char addr[WEFT_ADDR_MAX];
    size_t len = sizeof addr;
    double growth;
    f.senders = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 15;
    f.messages = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) : 20000;
    if (f.senders > MAX_SENDERS || pipe(address_pipe))
        return 2;
    f.seen = malloc((size_t)f.senders * f.messages);
    memset(f.seen, 0, (size_t)f.senders * f.messages); /* resident before it counts */
    for (uint32_t i = 0; i < f.senders; i++)
        if (!fork()) {
            alarm(60 + f.messages / 100);
            _exit(sender(&f, i, address_pipe[0]));
        }
    alarm(60 + f.messages / 100);
    if (flood_open(&f) || weft_ep_address(f.ep, addr, &len) || len != 64)
        return 2;
    for (uint32_t i = 0; i < f.senders; i++)
        if (write(address_pipe[1], addr, len) != (ssize_t)len)
            return 2;
    growth = receive_all(&f);
    for (uint32_t i = 0; i < f.senders; i++) {
        int status = 0;
        bad |= wait(&status) < 0 || status != 0;
    }
    if (growth > 5.0) {
        fprintf(stderr, "resident memory grew by %.1f%%\n", growth);
        bad = 1;
    }
    if (f.wrong)
        fprintf(stderr, "%llu messages were wrong\n", (unsigned long long)f.wrong);
    return bad || f.wrong || flood_close(&f);
}
