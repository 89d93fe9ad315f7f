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
 *     put_lat      half a ping-pong of writes, each seen in memory
 *     put, get     writes, reads in one direction
 *     get_lat      reads, one after the other
 *
 * All use one place at each side again and again, as fi_pingpong does. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WINDOW 256                     /* operations in flight; 64 to 512 make no difference */
#define WINDOW_BYTES ((size_t)4 << 20) /* fewer of large ones, but ... */
#define WINDOW_LEAST 4                 /* ... at least so many */
#define PAGE ((size_t)4096)            /* all programs that are compared have whole pages */
#define RUNS 5
#define NAME_MAX_BYTES 256
#define PATIENCE_NS 60000000000

struct pair;

struct kind {
    const char *name;
    void (*run)(struct pair *p);
    uint64_t caps;
    unsigned parts;            /* of which the time of an iteration is divided by */
    bool tagged, serves, data; /* serves: the side that listens only progresses */
};

/* Where the other side's region is. */
struct place {
    uint64_t at, key;
};

struct pair {
    const struct kind *kind;
    bool sends, tagged;
    size_t size;
    uint64_t iters, window;
    int control;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_ep *ep;
    struct fid_av *av;
    struct fid_cq *cq;
    fi_addr_t peer;
    unsigned char *out, *in;
    uint64_t posted, came;     /* receives, and their completions */
    uint64_t next_in;          /* the next receive's context; a division would count */
    uint64_t taken;            /* messages that the test has waited for */
    uint64_t started, left;    /* sends that complete, and their completions */
    struct fid_mr *regions[2]; /* of in and out; null without reads and writes */
    void *desc;                /* of out */
    struct place far;          /* as in, at the other side */
    uint64_t turn;
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

static void failed(const char *what)
{
    perror(what);
    exit(1);
}

static int control_listen(int fd, const struct addrinfo *at)
{
    int one = 1, peer;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
        bind(fd, at->ai_addr, at->ai_addrlen) || listen(fd, 1))
        failed("listening");
    peer = accept(fd, NULL, NULL);
    close(fd);
    return peer;
}

static int control_open(const char *port, bool calls, const char *address)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *at;
    int fd, bad = getaddrinfo(address, port, &hints, &at);
    if (bad) {
        fprintf(stderr, "%s: %s\n", address, gai_strerror(bad));
        exit(1);
    }
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || (calls && connect(fd, at->ai_addr, at->ai_addrlen)))
        failed("connecting");
    if (!calls)
        fd = control_listen(fd, at);
    if (fd < 0)
        failed("accepting");
    freeaddrinfo(at);
    return fd;
}

/* This side's address, as text. */
static const char *control_own(const struct pair *p)
{
    static char text[INET_ADDRSTRLEN];
    struct sockaddr_in own;
    socklen_t len = sizeof own;
    if (getsockname(p->control, (struct sockaddr *)&own, &len) ||
        !inet_ntop(AF_INET, &own.sin_addr, text, sizeof text))
        failed("own address");
    return text;
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
    bool named = strcmp(provider, "shm") && strcmp(provider, "weft");
    const char *node = named ? control_own(p) : NULL; /* of endpoints by an IP address */
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT, .size = 4 * WINDOW};
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = p->kind->caps;
    hints->mode = FI_CONTEXT;
    if (p->kind->caps & FI_RMA)
        hints->domain_attr->mr_mode =
            FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->fabric_attr->prov_name = strdup(provider);
    need("fi_getinfo",
         fi_getinfo(FI_VERSION(1, 14), node, NULL, node ? FI_SOURCE : 0, hints, &p->info));
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

/* Register the memory, and exchange where it is. */
static void region_meet(struct pair *p)
{
    struct fid_mr **in = &p->regions[0], **out = &p->regions[1];
    struct place own;
    need("fi_mr_reg",
         fi_mr_reg(p->domain, p->in, p->size, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, in, NULL));
    need("fi_mr_reg",
         fi_mr_reg(p->domain, p->out, p->size, FI_READ | FI_WRITE, 0, 2, 0, out, NULL));
    own.at = p->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)p->in : 0;
    own.key = fi_mr_key(*in);
    p->desc = fi_mr_desc(*out);
    tell(p, &own, &p->far, sizeof own);
}

static void object_close(struct fid *object)
{
    if (object)
        need("fi_close", fi_close(object));
}

/* Close all, each after what uses it: the provider for shared memory removes its file only then. */
static void fabric_close(struct pair *p)
{
    object_close(&p->ep->fid);
    for (unsigned i = 0; i < 2; i++)
        object_close(p->regions[i] ? &p->regions[i]->fid : NULL);
    object_close(&p->av->fid);
    object_close(&p->cq->fid);
    object_close(&p->domain->fid);
    object_close(&p->fabric->fid);
    fi_freeinfo(p->info);
}

/* ---- messages ---- */

static struct fi_context in_context[WINDOW], out_context[WINDOW];

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
    for (ssize_t i = 0; i < n; i++) {
        const struct fi_context *c = done[i].op_context;
        *(c >= out_context && c < out_context + WINDOW ? &p->left : &p->came) += 1;
    }
}

/* Post receives until the window is full. */
static void refill(struct pair *p)
{
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

/* Start a write, or a read. [last]: of writes, complete when the target has it; those before have
 * been delivered then, since both providers keep their order. */
static void start(struct pair *p, bool writes, bool last)
{
    struct fi_context *c = &out_context[p->started % p->window];
    uint64_t since_ns = 0;
    ssize_t r;
    while (p->started - p->left >= p->window)
        progress(p, &since_ns);
    while ((r = writes ? try_write(p, c, last)
                       : fi_read(p->ep, p->out, p->size, p->desc, p->peer, p->far.at, p->far.key,
                                 c)) == -FI_EAGAIN)
        progress(p, &since_ns);
    need(writes ? "fi_write" : "fi_read", r);
    p->started++;
}

static void put_stream(struct pair *p)
{
    for (uint64_t i = 0; i < p->iters; i++)
        start(p, true, i + 1 == p->iters);
    await_sends(p);
}

static void get_stream(struct pair *p)
{
    for (uint64_t i = 0; i < p->iters; i++)
        start(p, false, false);
    await_sends(p);
}

static void get_lat(struct pair *p)
{
    for (uint64_t i = 0; i < p->iters; i++) {
        start(p, false, false);
        await_sends(p);
    }
}

/* A write that nobody waits for at this side, if its size allows. */
static void put_quickly(struct pair *p)
{
    uint64_t since_ns = 0;
    ssize_t r;
    if (p->size > p->info->tx_attr->inject_size) {
        start(p, true, false);
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
    {"lat", lat, FI_MSG, 2, false, false, false},
    {"rate", rate, FI_MSG, 1, false, false, false},
    {"tagged_lat", lat, FI_TAGGED, 2, true, false, false},
    {"tagged_rate", rate, FI_TAGGED, 1, true, false, false},
    {"data_lat", lat, FI_TAGGED, 2, true, false, true},
    {"put_lat", put_lat, FI_RMA, 2, false, false, false},
    {"put", put_stream, FI_RMA, 1, false, true, false},
    {"get_lat", get_lat, FI_RMA, 1, false, true, false},
    {"get", get_stream, FI_RMA, 1, false, true, false},
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
    bool words = p->kind->run != put_lat || (p->size >= 8 && p->size % 8 == 0);
    p->window = fit > WINDOW ? WINDOW : fit < WINDOW_LEAST ? WINDOW_LEAST : fit;
    p->out = aligned_alloc(PAGE, (p->size + PAGE - 1) / PAGE * PAGE);
    p->in = aligned_alloc(PAGE, (p->size + PAGE - 1) / PAGE * PAGE);
    if (!p->size || !p->iters || !words || !p->out || !p->in)
        return -1;
    memset(p->out, 1, p->size); /* touched: a page that was never written is the zero page */
    memset(p->in, 2, p->size);
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
    tell(p, &byte, &byte, 1);
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
    tell(p, &byte, &byte, 1);
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
