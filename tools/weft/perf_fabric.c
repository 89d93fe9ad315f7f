/* SPDX-License-Identifier: BSD-3-Clause */
/* libfabric's side of `weft perf compare` and `weft perf curve`, since fi_pingpong measures no
 * rate, and prints few digits. Uses nothing of Weft.
 *
 * usage: weft-perf-libfabric PROVIDER TEST SIZE:ITERATIONS[,...] PORT listen|call ADDRESS
 * The side that calls begins, and prints one JSON object for each size, for which both open an
 * endpoint. Over the connection to PORT the two exchange their addresses; each side's is the one
 * that it has on that connection. TEST is:
 *
 *     lat          half a ping-pong of messages
 *     rate         messages in one direction without waiting, with receives posted ahead and one
 *                  answer at the end
 *     tagged_lat   lat, with tagged messages
 *     tagged_rate  rate, with tagged messages
 *     data_lat     tagged_lat, with remote CQ data
 *     many_rate    rate, received into a few buffers of many messages each (FI_MULTI_RECV)
 *     put_lat      half a ping-pong of writes, each seen in memory
 *     put, get     writes, reads in one direction
 *     write_lat    writes, one after the other
 *     get_lat      reads, one after the other
 *     add_lat      fetching adds of 8 bytes, one after the other
 *
 * All use one place at each side again and again, as fi_pingpong does. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "perf_fabric.h"

#define WINDOW_BYTES ((size_t)4 << 20) /* fewer of large ones, but ... */
#define WINDOW_LEAST 4                 /* ... at least so many */
#define RUNS 5
#define PATIENCE_NS 60000000000
#define CLOCK_EACH 1024 /* empty reads of the queue */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- messages ---- */

static struct fi_context in_context[WINDOW], out_context[WINDOW];

/* Returns whether [n], which fi_cq_read has returned, is a number of entries. Ends the program if
 * there were none for long, or after an error. Reads the clock after many calls only: a read of the
 * clock takes as long as the read of a queue, and the native tests have none. */
static bool has_entries(struct pair *p, ssize_t n, uint64_t *since_ns)
{
    if (n == -FI_EAGAIN) {
        uint64_t now;
        if (++p->empty_reads % CLOCK_EACH)
            return false;
        now = now_ns();
        *since_ns = *since_ns ? *since_ns : now;
        need("waiting", now - *since_ns < PATIENCE_NS ? 0 : -FI_ETIMEDOUT);
        return false;
    }
    need("fi_cq_read", n);
    *since_ns = 0;
    return true;
}

/* Count completions of messages that were received into buffers of many, and note which buffers
 * are the program's again. */
static void progress_many(struct pair *p, uint64_t *since_ns)
{
    struct fi_cq_msg_entry done[64];
    ssize_t n = fi_cq_read(p->cq, done, 64);
    if (!has_entries(p, n, since_ns))
        return;
    for (ssize_t i = 0; i < n; i++) {
        const struct fi_context *c = done[i].op_context;
        p->came += !!(done[i].flags & FI_RECV);
        p->left += !!(done[i].flags & FI_SEND);
        if (done[i].flags & FI_MULTI_RECV)
            p->many_posted[c - in_context] = false;
    }
}

/* Count completions. */
static void progress(struct pair *p, uint64_t *since_ns)
{
    struct fi_cq_entry done[64];
    ssize_t n;
    if (p->kind->many) {
        progress_many(p, since_ns);
        return;
    }
    n = fi_cq_read(p->cq, done, 64);
    if (!has_entries(p, n, since_ns))
        return;
    for (ssize_t i = 0; i < n; i++) {
        const struct fi_context *c = done[i].op_context;
        *(c >= out_context && c < out_context + WINDOW ? &p->left : &p->came) += 1;
    }
}

static void post_many(struct pair *p, unsigned i)
{
    struct iovec iov = {p->in + i * MANY_BYTES, MANY_BYTES};
    struct fi_msg m = {
        .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &in_context[i]};
    uint64_t since_ns = 0;
    ssize_t r;
    while ((r = fi_recvmsg(p->ep, &m, FI_MULTI_RECV)) == -FI_EAGAIN)
        progress(p, &since_ns);
    need("posting a buffer of many", r);
    p->many_posted[i] = true;
}

static void refill_many(struct pair *p)
{
    for (unsigned i = 0; i < MANYS; i++)
        if (!p->many_posted[i])
            post_many(p, i);
}

/* Post receives until the window is full. */
static void refill(struct pair *p)
{
    if (p->kind->many) {
        refill_many(p);
        return;
    }
    for (; p->posted < p->came + p->window; p->posted++) {
        struct fi_context *c = &in_context[p->next_in];
        uint64_t since_ns = 0;
        ssize_t r;
        while ((r = p->tagged
                        ? fi_trecv(p->ep, p->in, p->size, NULL, FI_ADDR_UNSPEC, 0, 0, c)
                        : fi_recv(p->ep, p->in, p->size, NULL, FI_ADDR_UNSPEC, c)) == -FI_EAGAIN)
            progress(p, &since_ns);
        need("posting a receive", r);
        p->next_in = p->next_in + 1 == p->window ? 0 : p->next_in + 1;
    }
}

static ssize_t try_inject(struct pair *p)
{
    if (p->kind->data)
        return fi_tinjectdata(p->ep, p->out, p->size, 1, p->peer, 0);
    return p->tagged ? fi_tinject(p->ep, p->out, p->size, p->peer, 0)
                     : fi_inject(p->ep, p->out, p->size, p->peer);
}

static ssize_t try_send(struct pair *p)
{
    struct fi_context *c = &out_context[p->started % p->window];
    if (p->kind->data)
        return fi_tsenddata(p->ep, p->out, p->size, NULL, 1, p->peer, 0, c);
    return p->tagged ? fi_tsend(p->ep, p->out, p->size, NULL, p->peer, 0, c)
                     : fi_send(p->ep, p->out, p->size, NULL, p->peer, c);
}

/* Inject the message if its size allows, which needs no completion. */
static void put(struct pair *p)
{
    bool inject = p->size <= p->info->tx_attr->inject_size;
    uint64_t since_ns = 0;
    ssize_t r;
    while (p->started - p->left >= p->window)
        progress(p, &since_ns);
    while ((r = inject ? try_inject(p) : try_send(p)) == -FI_EAGAIN)
        progress(p, &since_ns);
    need("sending", r);
    p->started += !inject;
}

/* Wait for the next message. It may have arrived before its run began. */
static void await(struct pair *p)
{
    uint64_t since_ns = 0;
    while (p->came <= p->taken)
        progress(p, &since_ns);
    p->taken++;
}

/* Wait until all sends are complete. */
static void await_sends(struct pair *p)
{
    uint64_t since_ns = 0;
    while (p->left < p->started)
        progress(p, &since_ns);
}

static void rate(struct pair *p)
{
    for (uint64_t i = 0; i < p->iters; i++) {
        if (p->sends) {
            put(p);
        } else {
            await(p);
            refill(p);
        }
    }
    if (p->sends)
        await(p);
    else
        put(p);
}

static void lat(struct pair *p)
{
    for (uint64_t i = 0; i < p->iters; i++) {
        if (!p->sends)
            await(p);
        put(p);
        refill(p); /* while the message is on its way */
        if (p->sends)
            await(p);
    }
}

/* ---- writes and reads ---- */

static ssize_t try_write(struct pair *p, struct fi_context *c, bool last)
{
    struct iovec iov = {.iov_base = p->out, .iov_len = p->size};
    struct fi_rma_iov far = {.addr = p->far.at, .len = p->size, .key = p->far.key};
    struct fi_msg_rma msg = {.msg_iov = &iov,
                             .desc = &p->desc,
                             .iov_count = 1,
                             .addr = p->peer,
                             .rma_iov = &far,
                             .rma_iov_count = 1,
                             .context = c};
    return last ? fi_writemsg(p->ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE)
                : fi_write(p->ep, p->out, p->size, p->desc, p->peer, p->far.at, p->far.key, c);
}

enum access { WRITE, READ, ADD };

static ssize_t try_access(struct pair *p, enum access a, struct fi_context *c, bool last)
{
    if (a == WRITE)
        return try_write(p, c, last);
    if (a == READ)
        return fi_read(p->ep, p->out, p->size, p->desc, p->peer, p->far.at, p->far.key, c);
    return fi_fetch_atomic(p->ep, p->out, 1, p->desc, p->out + 8, p->desc, p->peer, p->far.at,
                           p->far.key, FI_UINT64, FI_SUM, c);
}

/* Start an access. [last]: of writes, complete when the target has it; those before have
 * been delivered then, since both providers keep their order. */
static void start(struct pair *p, enum access a, bool last)
{
    struct fi_context *c = &out_context[p->started % p->window];
    uint64_t since_ns = 0;
    ssize_t r;
    while (p->started - p->left >= p->window)
        progress(p, &since_ns);
    while ((r = try_access(p, a, c, last)) == -FI_EAGAIN)
        progress(p, &since_ns);
    need("starting an access", r);
    p->started++;
}

static void put_stream(struct pair *p)
{
    for (uint64_t i = 0; i < p->iters; i++)
        start(p, WRITE, i + 1 == p->iters);
    await_sends(p);
}

static void get_stream(struct pair *p)
{
    for (uint64_t i = 0; i < p->iters; i++)
        start(p, READ, false);
    await_sends(p);
}

static void one_by_one(struct pair *p, enum access a)
{
    for (uint64_t i = 0; i < p->iters; i++) {
        start(p, a, false);
        await_sends(p);
    }
}

static void write_lat(struct pair *p)
{
    one_by_one(p, WRITE);
}

static void get_lat(struct pair *p)
{
    one_by_one(p, READ);
}

static void add_lat(struct pair *p)
{
    one_by_one(p, ADD);
}

/* A write without a wait at this side, if its size allows. */
static void put_quickly(struct pair *p)
{
    uint64_t since_ns = 0;
    ssize_t r;
    if (p->size > p->info->tx_attr->inject_size) {
        start(p, WRITE, false);
        return;
    }
    while ((r = fi_inject_write(p->ep, p->out, p->size, p->peer, p->far.at, p->far.key)) ==
           -FI_EAGAIN)
        progress(p, &since_ns);
    need("fi_inject_write", r);
}

/* The last word of each write is the number of its turn. This side writes it after it has seen the
 * other side's turn: then its own write before has been delivered, so that the memory is its own
 * again. */
static void put_lat(struct pair *p)
{
    const uint64_t *word = (const uint64_t *)(const void *)(p->in + p->size - 8);
    for (uint64_t i = 0; i < 2 * p->iters; i++) {
        uint64_t since_ns = 0;
        bool own = (i % 2 == 0) == p->sends;
        p->turn += i % 2 == 0;
        if (own) {
            memcpy(p->out + p->size - 8, &p->turn, 8);
            put_quickly(p);
        } else {
            while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != p->turn)
                progress(p, &since_ns);
        }
    }
}

/* Progress until the other side has sent the byte that ends the run. */
static void serve(struct pair *p)
{
    struct fi_cq_entry unused;
    char byte;
    ssize_t n;
    while ((n = recv(p->control, &byte, 1, MSG_DONTWAIT)) < 0 && errno == EAGAIN)
        for (unsigned i = 0; i < 1000; i++)
            (void)!fi_cq_read(p->cq, &unused, 1);
    need("serving", n == 1 ? 0 : -FI_ENOTCONN);
}

/* ---- all ---- */

static const struct kind kinds[] = {
    {.name = "lat", .run = lat, .caps = FI_MSG, .parts = 2},
    {.name = "rate", .run = rate, .caps = FI_MSG, .parts = 1},
    {.name = "tagged_lat", .run = lat, .caps = FI_TAGGED, .parts = 2, .tagged = true},
    {.name = "tagged_rate", .run = rate, .caps = FI_TAGGED, .parts = 1, .tagged = true},
    {.name = "data_lat", .run = lat, .caps = FI_TAGGED, .parts = 2, .tagged = true, .data = true},
    {.name = "many_rate", .run = rate, .caps = FI_MSG | FI_MULTI_RECV, .parts = 1, .many = true},
    {.name = "put_lat", .run = put_lat, .caps = FI_RMA, .parts = 2},
    {.name = "put", .run = put_stream, .caps = FI_RMA, .parts = 1, .serves = true},
    {.name = "write_lat", .run = write_lat, .caps = FI_RMA, .parts = 1, .serves = true},
    {.name = "get_lat", .run = get_lat, .caps = FI_RMA, .parts = 1, .serves = true},
    {.name = "get", .run = get_stream, .caps = FI_RMA, .parts = 1, .serves = true},
    {.name = "add_lat", .run = add_lat, .caps = FI_RMA | FI_ATOMIC, .parts = 1, .serves = true},
};

/* ns for each operation. */
static double run(struct pair *p)
{
    uint64_t start_ns = now_ns();
    double ns;
    char byte = 0;
    if (p->kind->serves && !p->sends) {
        serve(p);
        return 0;
    }
    p->kind->run(p);
    await_sends(p);
    if (!(p->kind->caps & FI_RMA))
        refill(p);
    ns = (double)(now_ns() - start_ns) / (double)p->iters / p->kind->parts;
    if (p->kind->serves)
        need("ending", send(p->control, &byte, 1, MSG_NOSIGNAL) == 1 ? 0 : -FI_ENOTCONN);
    return ns;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static const struct kind *kind_of(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, name))
            return &kinds[i];
    return NULL;
}

static int memory_open(struct pair *p)
{
    size_t fit = p->size ? WINDOW_BYTES / p->size : 0;
    bool words = p->kind->run == put_lat   ? p->size >= 8 && p->size % 8 == 0
                 : p->kind->run == add_lat ? p->size == 8
                 : p->kind->many           ? p->size <= MANY_BYTES / 2
                                           : true;
    size_t in_len = p->kind->many ? MANYS * MANY_BYTES : p->size;
    p->window = fit > WINDOW ? WINDOW : fit < WINDOW_LEAST ? WINDOW_LEAST : fit;
    p->out = aligned_alloc(PAGE, (p->size + PAGE - 1) / PAGE * PAGE);
    p->in = aligned_alloc(PAGE, (in_len + PAGE - 1) / PAGE * PAGE);
    if (!p->size || !p->iters || !words || !p->out || !p->in)
        return -1;
    memset(p->out, 1, p->size); /* touched: a page that was never written is the zero page */
    memset(p->in, 2, in_len);
    return 0;
}

/* Open an endpoint, and prepare what the test needs. */
static void meet(struct pair *p, const char *provider)
{
    char byte = 0;
    fabric_open(p, provider);
    fabric_meet(p);
    if (p->kind->caps & FI_RMA)
        region_meet(p);
    else
        refill(p);
    exchange(p, &byte, &byte, 1);
}

/* One size; 0, or -1 if the test cannot have it. */
static int measure(struct pair *p, const char *provider)
{
    double ns[RUNS];
    char byte = 0;
    if (memory_open(p))
        return -1;
    meet(p, provider);
    run(p); /* connects, and warms up */
    for (int i = 0; i < RUNS; i++)
        ns[i] = run(p);
    qsort(ns, RUNS, sizeof ns[0], ascending);
    if (p->sends)
        printf("{\"test\":\"%s\",\"size\":%zu,\"mean_ns\":%.3f,\"rate_mps\":%.4f}\n", p->kind->name,
               p->size, ns[RUNS / 2], 1e3 / ns[RUNS / 2]);
    exchange(p, &byte, &byte, 1);
    fabric_close(p);
    free(p->in);
    free(p->out);
    return 0;
}

/* The sizes of a list; 0, or -1 if it is none or a size does not suit. */
static int measure_list(const struct pair *common, const char *provider, const char *list)
{
    for (char *end; *list; list = *end ? end + 1 : end) {
        struct pair p = *common;
        p.size = strtoul(list, &end, 10);
        if (end == list || *end != ':')
            return -1;
        list = end + 1;
        p.iters = strtoul(list, &end, 10);
        if (end == list || (*end && *end != ',') || measure(&p, provider))
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct pair p = {.kind = argc == 7 ? kind_of(argv[2]) : NULL};
    if (p.kind && (!strcmp(argv[5], "listen") || !strcmp(argv[5], "call"))) {
        p.tagged = p.kind->tagged;
        p.sends = !strcmp(argv[5], "call");
        p.control = control_open(argv[4], p.sends, argv[6]);
        if (measure_list(&p, argv[1], argv[3]) == 0)
            return 0;
    }
    fprintf(stderr, "usage: %s PROVIDER TEST SIZE:ITERATIONS[,...] PORT listen|call ADDRESS\n",
            argv[0]);
    return 2;
}
