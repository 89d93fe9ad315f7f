/* SPDX-License-Identifier: BSD-3-Clause */
/* libfabric's message rate for `weft perf compare`, since fi_pingpong does not measure it: messages
 * in one direction without waiting, receives posted ahead, and one answer at the end. Uses nothing
 * of Weft.
 *
 * usage: weft-perf-libfabric PROVIDER SIZE ITERATIONS PORT [ADDRESS]
 * Without ADDRESS it receives, and listens on PORT of the loopback interface; over that connection
 * the two exchange their addresses. The sending side prints one JSON object. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WINDOW 256 /* receives posted; 64 to 512 make no difference */
#define RUNS 5
#define NAME_MAX_BYTES 256
#define PATIENCE_NS 60000000000

struct pair {
    bool sends;
    size_t size;
    uint64_t iters;
    int control;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_ep *ep;
    struct fid_av *av;
    struct fid_cq *cq;
    fi_addr_t peer;
    unsigned char *out, *in;
    uint64_t came, left; /* completions: of receives, of sends */
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void need(const char *what, long result)
{
    if (result >= 0)
        return;
    fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-result));
    exit(1);
}

/* ---- exchanging addresses ---- */

static int control_open(const char *port, const char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), peer = fd;
    bool bad = fd < 0 || inet_pton(AF_INET, address ? address : "127.0.0.1", &at.sin_addr) != 1;
    if (!bad && address) {
        bad = connect(fd, (struct sockaddr *)&at, sizeof at);
    } else if (!bad) {
        bad = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
              bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 1);
        peer = bad ? -1 : accept(fd, NULL, NULL);
    }
    if (bad || peer < 0) {
        perror("control connection");
        exit(1);
    }
    return peer;
}

static void tell(const struct pair *p, const void *mine, void *theirs, size_t len)
{
    if (send(p->control, mine, len, MSG_NOSIGNAL) != (ssize_t)len ||
        recv(p->control, theirs, len, MSG_WAITALL) != (ssize_t)len) {
        fprintf(stderr, "the other side is gone\n");
        exit(1);
    }
}

static void fabric_open(struct pair *p, const char *provider)
{
    struct fi_info *hints = fi_allocinfo();
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT, .size = 4 * WINDOW};
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT;
    hints->fabric_attr->prov_name = strdup(provider);
    need("fi_getinfo",
         fi_getinfo(FI_VERSION(1, 14), "127.0.0.1", NULL, FI_SOURCE, hints, &p->info));
    fi_freeinfo(hints);
    need("fi_fabric", fi_fabric(p->info->fabric_attr, &p->fabric, NULL));
    need("fi_domain", fi_domain(p->fabric, p->info, &p->domain, NULL));
    need("fi_cq_open", fi_cq_open(p->domain, &cq, &p->cq, NULL));
    need("fi_av_open", fi_av_open(p->domain, &av, &p->av, NULL));
    need("fi_endpoint", fi_endpoint(p->domain, p->info, &p->ep, NULL));
    need("fi_ep_bind", fi_ep_bind(p->ep, &p->av->fid, 0));
    need("fi_ep_bind", fi_ep_bind(p->ep, &p->cq->fid, FI_SEND | FI_RECV));
    need("fi_enable", fi_enable(p->ep));
}

static void fabric_meet(struct pair *p)
{
    unsigned char mine[NAME_MAX_BYTES] = {0}, theirs[NAME_MAX_BYTES];
    size_t len = sizeof mine;
    need("fi_getname", fi_getname(&p->ep->fid, mine, &len));
    tell(p, mine, theirs, sizeof mine);
    if (fi_av_insert(p->av, theirs, 1, &p->peer, 0, NULL) != 1)
        need("fi_av_insert", -FI_EINVAL);
}

/* ---- messages ---- */

static struct fi_context contexts[WINDOW + 1];

/* Count completions; end the program if there were none for long. */
static void progress(struct pair *p, uint64_t *since_ns)
{
    struct fi_cq_entry done[64];
    ssize_t n = fi_cq_read(p->cq, done, 64);
    if (n == -FI_EAGAIN) {
        uint64_t now = now_ns();
        *since_ns = *since_ns ? *since_ns : now;
        need("waiting", now - *since_ns < PATIENCE_NS ? 0 : -FI_ETIMEDOUT);
        return;
    }
    need("fi_cq_read", n);
    *since_ns = 0;
    for (ssize_t i = 0; i < n; i++)
        *(done[i].op_context == &contexts[WINDOW] ? &p->left : &p->came) += 1;
}

static void post(struct pair *p, uint64_t i)
{
    uint64_t since_ns = 0;
    ssize_t r;
    while ((r = fi_recv(p->ep, p->in + i % WINDOW * p->size, p->size, NULL, FI_ADDR_UNSPEC,
                        &contexts[i % WINDOW])) == -FI_EAGAIN)
        progress(p, &since_ns);
    need("fi_recv", r);
}

/* Inject the message if its size allows, which needs no completion. */
static void put(struct pair *p)
{
    bool inject = p->size <= p->info->tx_attr->inject_size;
    uint64_t since_ns = 0, want = p->left + 1;
    ssize_t r;
    while ((r = inject ? fi_inject(p->ep, p->out, p->size, p->peer)
                       : fi_send(p->ep, p->out, p->size, NULL, p->peer, &contexts[WINDOW])) ==
           -FI_EAGAIN)
        progress(p, &since_ns);
    need("sending", r);
    while (!inject && p->left < want)
        progress(p, &since_ns);
}

static void await(struct pair *p, uint64_t came)
{
    uint64_t since_ns = 0;
    while (p->came < came)
        progress(p, &since_ns);
}

/* ns for each of [iters] messages and one answer. */
static double run(struct pair *p)
{
    uint64_t start = now_ns(), base = p->came;
    if (p->sends) {
        for (uint64_t i = 0; i < p->iters; i++)
            put(p);
        await(p, base + 1);
        post(p, p->came - 1);
    } else {
        for (uint64_t i = 0; i < p->iters; i++) {
            await(p, base + i + 1);
            post(p, base + i);
        }
        put(p);
    }
    return (double)(now_ns() - start) / (double)p->iters;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static struct pair p;
    double ns[RUNS];
    char byte = 0;
    if (argc != 5 && argc != 6) {
        fprintf(stderr, "usage: %s PROVIDER SIZE ITERATIONS PORT [ADDRESS]\n", argv[0]);
        return 2;
    }
    p.sends = argc == 6;
    p.size = (size_t)atol(argv[2]);
    p.iters = (uint64_t)atol(argv[3]);
    p.out = calloc(1, p.size + 1);
    p.in = calloc(WINDOW, p.size + 1);
    if (!p.size || !p.iters || !p.out || !p.in)
        return 2;
    p.control = control_open(argv[4], argv[5]);
    fabric_open(&p, argv[1]);
    fabric_meet(&p);
    for (uint64_t i = 0; i < WINDOW; i++)
        post(&p, i);
    tell(&p, &byte, &byte, 1);
    run(&p); /* connects, and warms up */
    for (int i = 0; i < RUNS; i++)
        ns[i] = run(&p);
    qsort(ns, RUNS, sizeof ns[0], ascending);
    if (p.sends)
        printf("{\"test\":\"rate\",\"size\":%zu,\"rate_mps\":%.4f}\n", p.size, 1e3 / ns[RUNS / 2]);
    tell(&p, &byte, &byte, 1);
    return 0;
}
