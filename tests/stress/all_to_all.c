/* SPDX-License-Identifier: BSD-3-Clause */
/* all_to_all BYTES..., started by `weft run -n N`: for each size, every rank starts a send to each
 * other rank (r + 1, r + 2, ...), and only then receives, from each of them in an order of its own,
 * one after the other. Every receive has a send that was started before, so it must end, however
 * few rings there are for so many peers.
 *
 * Fails when: a receive or send does not end in time, ends with another status, or a message has
 * other bytes than those sent. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/job.h>
#include <weft/msg.h>

#define LIMIT_NS 60000000000 /* for one message; 200 ranks may share two processors */
#define ORDERS 3

static unsigned me, ranks;

static void must(enum weft_status s, const char *what, unsigned rank)
{
    if (s == WEFT_OK)
        return;
    fprintf(stderr, "all_to_all: rank %u: %s, rank %u: %s\n", me, what, rank, weft_status_name(s));
    _Exit(1);
}

static unsigned char byte_of(unsigned rank, size_t i)
{
    return (unsigned char)(rank * 7 + i + i / 251);
}

/* From which rank the [i]th receive is, i from 1. */
static unsigned from_of(unsigned order, unsigned i)
{
    switch (order) {
    case 0: return (me + i) % ranks;         /* those that send to this rank last come first */
    case 1: return (me + ranks - i) % ranks; /* those that send to it first */
    default: { /* the even ones first: from some that come early and some that come late */
        unsigned even = (ranks - 1) / 2;
        return (me + (i <= even ? 2 * i : 2 * (i - even) - 1)) % ranks;
    }
    }
}

static enum weft_status end_of(struct weft_ep *ep, struct weft_op *op, enum weft_status s)
{
    return s == WEFT_PENDING ? weft_op_wait(ep, op, LIMIT_NS) : s;
}

static void exchange(struct weft_job *job, size_t len, unsigned order)
{
    struct weft_ep *ep = weft_job_ep(job);
    unsigned char *out = malloc(len), *in = malloc(len);
    struct weft_op *ops = calloc(ranks, sizeof *ops);
    enum weft_status *started = calloc(ranks, sizeof *started);
    if (!out || !in || !ops || !started)
        must(WEFT_ENOMEM, "memory", me);
    for (size_t i = 0; i < len; i++)
        out[i] = byte_of(me, i);
    must(weft_job_barrier(job), "barrier", me);
    for (unsigned i = 1; i < ranks; i++) {
        unsigned to = (me + i) % ranks;
        started[to] = weft_msg_send(weft_job_peer(job, to), order, out, len, &ops[to]);
        if (started[to] != WEFT_PENDING)
            must(started[to], "send", to);
    }
    for (unsigned i = 1; i < ranks; i++) {
        unsigned from = from_of(order, i);
        struct weft_op op = {0};
        memset(in, 0, len);
        must(
            end_of(ep, &op,
                   weft_msg_recv(ep, weft_job_peer(job, from), order, WEFT_TAG_FULL, in, len, &op)),
            "receive", from);
        for (size_t k = 0; k<len; k += len> 65536 ? 509 : 1)
            if (in[k] != byte_of(from, k))
                must(WEFT_EPROTO, "wrong bytes", from);
    }
    for (unsigned i = 1; i < ranks; i++)
        must(end_of(ep, &ops[(me + i) % ranks], started[(me + i) % ranks]), "send's end",
             (me + i) % ranks);
    free(out);
    free(in);
    free(ops);
    free(started);
}

int main(int argc, char **argv)
{
    struct weft_job *job;
    must(weft_job_open(NULL, &job), "job", 0);
    me = weft_job_rank(job);
    ranks = weft_job_size(job);
    for (int i = 1; i < argc; i++)
        for (unsigned order = 0; order < ORDERS; order++)
            exchange(job, strtoul(argv[i], NULL, 10), order);
    must(weft_job_barrier(job), "barrier", me);
    return weft_job_close(job) != WEFT_OK;
}
