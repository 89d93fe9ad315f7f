/* SPDX-License-Identifier: BSD-3-Clause */
/* The limit that a test is compared with, measured alternately with the test in the same processes
 * (--pairs): the machine's between ranks that share memory, else one TCP connection's. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "perf.h"
#include "transport/address.h"

#define WORD 8u

/* What the ranks exchange. */
struct card {
    uint64_t machine; /* equal where ranks run on one machine */
    int32_t pid, fd;
    int32_t cpu; /* -1 unless bound to a single one */
    int32_t ok;
    uint16_t port; /* where rank 0 listens for the limit's connection; 0: nowhere */
    uint8_t zero[6];
    uint8_t ip[WF_NET_IP];
};

static int gather(struct wf_perf *p, const struct card *mine, struct card cards[2])
{
    enum weft_status s = weft_job_allgather(p->job, mine, sizeof *mine, cards);
    return s == WEFT_OK ? 0 : wf_perf_fail(p, "exchanging what the limit needs", s);
}

static int only_cpu(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) < 0 || CPU_COUNT(&set) != 1)
        return -1;
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &set))
            return c;
    return -1;
}

static int have_a_core_each(const struct wf_perf *p, const struct card cards[2])
{
    bool shared =
        cards[0].machine == cards[1].machine && cards[0].cpu >= 0 && cards[0].cpu == cards[1].cpu;
    if (shared && p->rank == 0)
        fprintf(stderr,
                "weft perf: --pairs needs a core for each rank, both are bound to "
                "core %d: use weft run --bind core on two cores\n",
                cards[0].cpu);
    return shared ? -1 : 0;
}

/* ---- ranks that share memory ---- */

static int machine_map(struct wf_perf *p, const struct card cards[2], int fd)
{
    char path[64];
    int bad, own = fd;
    if (p->rank == 1) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", cards[0].pid, cards[0].fd);
        own = open(path, O_RDWR | O_CLOEXEC);
    }
    bad = own < 0 ||
          wf_machine_init(&p->machine, (int)p->rank, own, p->o->size_last, cards[1 - p->rank].pid);
    if (bad)
        fprintf(stderr, "weft perf: rank %u: --pairs: sharing memory for the limit: %s\n", p->rank,
                strerror(errno));
    if (own >= 0)
        close(own);
    return bad;
}

/* Set up the two ranks as the pair of processes that a limit needs. */
static int machine_open(struct wf_perf *p, struct card *mine)
{
    struct card cards[2];
    if (p->rank == 0)
        mine->fd = wf_machine_memfd(p->o->size_last);
    if (gather(p, mine, cards) || have_a_core_each(p, cards))
        return -1;
    p->peer_pid = cards[1 - p->rank].pid;
    mine->ok = !machine_map(p, cards, mine->fd);
    if (gather(p, mine, cards))
        return -1;
    p->has_machine = cards[0].ok && cards[1].ok;
    return p->has_machine ? 0 : -1;
}

/* ---- ranks that do not share memory ---- */

/* Where the library listens. The limit's connection goes to the same address and another port, and
 * so by the same route as the test's connections. */
static int own_contact(struct wf_perf *p, struct wf_contact *contact)
{
    uint8_t bytes[WEFT_ADDR_MAX];
    struct wf_address address;
    size_t len = sizeof bytes;
    enum weft_status s = weft_ep_address(p->ep, bytes, &len);
    if (s == WEFT_OK)
        s = wf_address_parse(bytes, len, &address, contact);
    if (s == WEFT_OK && !contact->port)
        s = WEFT_EUNREACH;
    return s == WEFT_OK ? 0 : wf_perf_fail(p, "finding out where the library listens", s);
}

/* Rank 0's listening socket at one of the library's addresses; -1: none. */
static int net_listen(const struct wf_contact *contact, struct card *mine)
{
    for (unsigned i = 0; i < contact->count; i++) {
        int fd = wf_net_listen(contact->ip[i], &mine->port);
        if (fd >= 0) {
            memcpy(mine->ip, contact->ip[i], sizeof mine->ip);
            return fd;
        }
    }
    return -1;
}

static int net_connect(struct wf_perf *p, const struct card *host, int listener)
{
    int fd = -1;
    if (!host->port)
        errno = EADDRNOTAVAIL;
    else
        fd = p->rank == 0 ? wf_net_accept(listener) : wf_net_connect(host->ip, host->port);
    if (fd >= 0 && wf_net_init(&p->net, (int)p->rank, fd, p->o->size_last) == 0)
        return 0;
    fprintf(stderr, "weft perf: rank %u: --pairs: the connection for the limit: %s\n", p->rank,
            strerror(errno));
    return -1;
}

static int net_open(struct wf_perf *p, struct card *mine)
{
    struct wf_contact contact = {0};
    struct card cards[2];
    int listener = -1;
    mine->ok = !own_contact(p, &contact);
    if (p->rank == 0 && mine->ok)
        listener = net_listen(&contact, mine);
    if (gather(p, mine, cards) || have_a_core_each(p, cards))
        return -1;
    mine->ok = !net_connect(p, &cards[0], listener);
    if (gather(p, mine, cards))
        return -1;
    p->has_net = cards[0].ok && cards[1].ok;
    return p->has_net ? 0 : -1;
}

int wf_perf_limit_open(struct wf_perf *p)
{
    struct card mine = {
        .machine = p->machine_id, .pid = getpid(), .fd = -1, .cpu = only_cpu(), .ok = 1};
    return p->limit >= WF_PERF_TCP_LAT ? net_open(p, &mine) : machine_open(p, &mine);
}

void wf_perf_limit_close(struct wf_perf *p)
{
    if (p->has_machine)
        wf_machine_fini(&p->machine);
    if (p->has_net)
        wf_net_fini(&p->net);
    p->has_machine = p->has_net = false;
}

/* ---- one run ---- */

static int machine_run(struct wf_perf *p, uint64_t iters, double *v)
{
    double p99;
    switch (p->limit) {
    case WF_PERF_LINE_LAT: return wf_machine_line_lat(&p->machine, 20000, v, &p99);
    case WF_PERF_LINE_RATE: return wf_machine_line_rate(&p->machine, WF_MACHINE_LINES, 2000000, v);
    case WF_PERF_KERNEL_GBS:
        return wf_machine_kernel_copy(&p->machine, p->len, iters, false, p->peer_pid, v);
    case WF_PERF_ADD_LAT: return wf_machine_add(&p->machine, iters, v);
    default: return wf_machine_copy(&p->machine, p->len, iters, v);
    }
}

static int net_run(struct wf_perf *p, uint64_t iters, double *v)
{
    size_t len = p->len ? p->len : WORD; /* a barrier exchanges no more than that */
    if (p->limit == WF_PERF_TCP_GBS)
        return wf_net_stream(&p->net, len, iters, v);
    return wf_net_round(&p->net, p->limit == WF_PERF_TCP_RTT ? WORD : len, len, iters, v);
}

int wf_perf_limit_run(struct wf_perf *p, uint64_t iters, double *v)
{
    if (p->has_net ? net_run(p, iters, v) : machine_run(p, iters, v)) {
        fprintf(stderr, "weft perf %s: rank %u: the limit's loop: the other rank is gone\n",
                p->test->name, p->rank);
        return -1;
    }
    if (p->limit == WF_PERF_COPY_RATE)
        *v = 1e3 / *v;
    if (p->limit == WF_PERF_COPY_GBS)
        *v = (double)p->len / *v;
    if (p->limit == WF_PERF_TCP_LAT)
        *v /= 2;
    return 0;
}

const struct wf_perf_limit_kind wf_perf_limit_kinds[] = {
    [WF_PERF_LINE_LAT] = {"line_lat", "ns"}, [WF_PERF_LINE_RATE] = {"line_rate", "million/s"},
    [WF_PERF_COPY_LAT] = {"copy", "ns"},     [WF_PERF_COPY_RATE] = {"1/copy", "million/s"},
    [WF_PERF_COPY_GBS] = {"copy", "GB/s"},   [WF_PERF_KERNEL_GBS] = {"kernel_copy", "GB/s"},
    [WF_PERF_ADD_LAT] = {"add", "ns"},       [WF_PERF_NO_RATE] = {"none", "million/s"},
    [WF_PERF_TCP_LAT] = {"tcp_lat", "ns"},   [WF_PERF_TCP_RTT] = {"tcp_round", "ns"},
    [WF_PERF_TCP_GBS] = {"tcp", "GB/s"},
};

double wf_perf_figure_of(enum wf_perf_limit limit, const struct wf_perf_result *r)
{
    switch (limit) {
    case WF_PERF_NO_RATE:
    case WF_PERF_LINE_RATE:
    case WF_PERF_COPY_RATE: return r->rate_mps;
    case WF_PERF_TCP_GBS:
    case WF_PERF_COPY_GBS:
    case WF_PERF_KERNEL_GBS: return r->gbs;
    default: return r->lat_ns;
    }
}
