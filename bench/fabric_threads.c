/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads with a domain of the libfabric provider each, and threads with endpoints of one domain,
 * beside as many contexts and endpoints of Weft's own. Each thread sends bursts of tagged messages
 * of 8 bytes from one endpoint of its own to another, and receives them: no thread waits for
 * another, however few processors there are.
 *
 *     FI_PROVIDER_PATH=DIR WEFT_TRANSPORTS=shm fabric_threads rates [THREADS [ROUNDS]]
 *     FI_PROVIDER_PATH=DIR WEFT_TRANSPORTS=shm fabric_threads memory [THREADS]
 *
 * "rates" runs the provider and the native calls in turn, each with one thread, then with all of
 * them, and prints the medians of the rounds, and their middle half. "memory" prints how much the
 * resident memory of a process grows when it opens the same objects. */
#define _GNU_SOURCE
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/msg.h>
#include <weft/weft.h>

#include "bind.h"

#define THREADS_MAX 16u
#define ROUNDS_MAX 99u
#define BURST 64u
#define BURSTS 16u        /* between two reads of the clock */
#define RUN_NS 100000000u /* of all threads together, and of all that run one by one */
#define PATIENCE_S 600    /* after which the program ends, whatever it waits for */
#define TAG 1

enum { OUT, IN, SIDES };
enum kind { PROVIDER, NATIVE, KINDS };

/* What the threads have. */
static const struct layout {
    const char *name;
    bool own_domain; /* each thread; else all threads have endpoints of one */
    enum fi_threading threading;
    uint32_t flags; /* of the native endpoints */
} layouts[] = {
    {"a domain each, FI_THREAD_DOMAIN", true, FI_THREAD_DOMAIN, 0},
    {"one domain, FI_THREAD_COMPLETION", false, FI_THREAD_COMPLETION, 0},
    {"one domain, FI_THREAD_SAFE", false, FI_THREAD_SAFE, WEFT_EP_LOCKED},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* A thread, and what it uses. */
struct lane {
    _Alignas(128) struct fid_ep *ep[SIDES];
    struct fid_cq *cq[SIDES];
    fi_addr_t to;
    struct weft_ep *wep[SIDES];
    struct weft_peer *peer;
    enum kind kind;
    unsigned number;
    double rate; /* messages a second, of the last run */
    pthread_t thread;
    uint64_t out, in[BURST];
    struct weft_op ops[BURST];
    /* Of the thread, or, of the first one, of all. */
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct weft_ctx *ctx;
};

static struct {
    unsigned threads;
    uint64_t run_ns;
    pthread_barrier_t start;
} t = {.threads = 8};

/* ---- the provider ---- */

static void provider_domain_open(struct lane *l, const struct layout *layout)
{
    struct fi_info *hints = fi_allocinfo();
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    CHECK(hints != NULL);
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED;
    hints->domain_attr->threading = layout->threading;
    hints->fabric_attr->prov_name = strdup("weft");
    CHECK(!fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &l->info));
    fi_freeinfo(hints);
    CHECK(!fi_fabric(l->info->fabric_attr, &l->fabric, NULL));
    CHECK(!fi_domain(l->fabric, l->info, &l->domain, NULL));
    CHECK(!fi_av_open(l->domain, &av, &l->av, NULL));
}

static void provider_domain_close(struct lane *l)
{
    CHECK(!fi_close(&l->av->fid));
    CHECK(!fi_close(&l->domain->fid));
    CHECK(!fi_close(&l->fabric->fid));
    fi_freeinfo(l->info);
}

/* Open the endpoints of [l] in the domain of [of]. */
static void provider_open(struct lane *l, const struct lane *of)
{
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED};
    uint8_t name[WEFT_ADDR_MAX];
    size_t len = sizeof name;
    for (int side = 0; side < SIDES; side++) {
        CHECK(!fi_cq_open(of->domain, &cq, &l->cq[side], NULL));
        CHECK(!fi_endpoint(of->domain, of->info, &l->ep[side], NULL));
        CHECK(!fi_ep_bind(l->ep[side], &of->av->fid, 0));
        CHECK(!fi_ep_bind(l->ep[side], &l->cq[side]->fid, FI_TRANSMIT | FI_RECV));
        CHECK(!fi_enable(l->ep[side]));
    }
    CHECK(!fi_getname(&l->ep[IN]->fid, name, &len));
    CHECK(fi_av_insert(of->av, name, 1, &l->to, 0, NULL) == 1);
}

static void provider_close(struct lane *l)
{
    for (int side = 0; side < SIDES; side++) {
        CHECK(!fi_close(&l->ep[side]->fid));
        CHECK(!fi_close(&l->cq[side]->fid));
    }
}

static void provider_burst(struct lane *l)
{
    struct fi_cq_tagged_entry e[BURST];
    ssize_t n;
    for (unsigned i = 0; i < BURST; i++)
        CHECK(!fi_trecv(l->ep[IN], &l->in[i], 8, NULL, FI_ADDR_UNSPEC, TAG, 0, &l->in[i]));
    for (unsigned i = 0; i < BURST; i++) {
        while ((n = fi_tinject(l->ep[OUT], &l->out, 8, l->to, TAG)) == -FI_EAGAIN) {
            (void)fi_cq_read(l->cq[OUT], NULL, 0);
            (void)fi_cq_read(l->cq[IN], NULL, 0);
        }
        CHECK(!n);
    }
    for (ssize_t got = 0; got<BURST; got += n> 0 ? n : 0) {
        n = fi_cq_read(l->cq[IN], e, BURST);
        CHECK(n > 0 || n == -FI_EAGAIN);
    }
}

/* ---- native ---- */

static void native_domain_open(struct lane *l)
{
    CHECK(weft_ctx_open(NULL, &l->ctx) == WEFT_OK);
}

static void native_open(struct lane *l, const struct lane *of, const struct layout *layout)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    uint8_t name[WEFT_ADDR_MAX];
    size_t len = sizeof name;
    params.flags = layout->flags;
    for (int side = 0; side < SIDES; side++)
        CHECK(weft_ep_open(of->ctx, &params, &l->wep[side]) == WEFT_OK);
    CHECK(weft_ep_address(l->wep[IN], name, &len) == WEFT_OK);
    CHECK(weft_peer_open(l->wep[OUT], name, len, &l->peer) == WEFT_OK);
}

static void native_close(struct lane *l)
{
    CHECK(weft_peer_close(l->peer) == WEFT_OK);
    for (int side = 0; side < SIDES; side++)
        CHECK(weft_ep_close(l->wep[side]) == WEFT_OK);
}

static void native_burst(struct lane *l)
{
    enum weft_status s;
    for (unsigned i = 0; i < BURST; i++)
        CHECK(weft_msg_recv(l->wep[IN], NULL, TAG, WEFT_TAG_FULL, &l->in[i], 8, &l->ops[i]) ==
              WEFT_PENDING);
    for (unsigned i = 0; i < BURST; i++) {
        while ((s = weft_msg_send(l->peer, TAG, &l->out, 8, NULL)) == WEFT_AGAIN) {
            (void)weft_ep_poll(l->wep[OUT]);
            (void)weft_ep_poll(l->wep[IN]);
        }
        CHECK(s == WEFT_OK);
    }
    while (__atomic_load_n(&l->ops[BURST - 1].status, __ATOMIC_ACQUIRE) == WEFT_PENDING)
        (void)weft_ep_poll(l->wep[IN]);
    CHECK(l->ops[BURST - 1].status == WEFT_OK);
}

/* ---- both ---- */

/* Open the domains [first] and later ones, of [n] threads. */
static void domains_open(struct lane *lanes, enum kind kind, const struct layout *layout,
                         unsigned first, unsigned n)
{
    for (unsigned i = first; i < (layout->own_domain ? n : 1); i++)
        if (kind == NATIVE)
            native_domain_open(&lanes[i]);
        else
            provider_domain_open(&lanes[i], layout);
}

static void domains_close(struct lane *lanes, enum kind kind, const struct layout *layout)
{
    for (unsigned i = 0; i < (layout->own_domain ? t.threads : 1); i++)
        if (kind == NATIVE)
            CHECK(weft_ctx_close(lanes[i].ctx) == WEFT_OK);
        else
            provider_domain_close(&lanes[i]);
}

static void lanes_open(struct lane *lanes, enum kind kind, const struct layout *layout)
{
    for (unsigned i = 0; i < t.threads; i++) {
        const struct lane *of = &lanes[layout->own_domain ? i : 0];
        lanes[i].kind = kind;
        lanes[i].number = i;
        if (kind == NATIVE)
            native_open(&lanes[i], of, layout);
        else
            provider_open(&lanes[i], of);
    }
}

static void lanes_close(struct lane *lanes, enum kind kind)
{
    for (unsigned i = 0; i < t.threads; i++)
        if (kind == NATIVE)
            native_close(&lanes[i]);
        else
            provider_close(&lanes[i]);
}

static void burst(struct lane *l)
{
    if (l->kind == NATIVE)
        native_burst(l);
    else
        provider_burst(l);
}

/* ---- rates ---- */

static void *work(void *arg)
{
    struct lane *l = arg;
    uint64_t start, spent, n = 0;
    CHECK(bind_to((int)l->number % (int)sysconf(_SC_NPROCESSORS_ONLN)));
    burst(l);
    pthread_barrier_wait(&t.start);
    start = now_ns();
    do {
        for (unsigned i = 0; i < BURSTS; i++)
            burst(l);
        n += BURSTS * BURST;
        spent = now_ns() - start;
    } while (spent < t.run_ns);
    l->rate = (double)n * 1e3 / (double)spent;
    return NULL;
}

/* Millions of messages a second by [n] threads together. */
static double run(struct lane *lanes, unsigned n, uint64_t ns)
{
    double sum = 0;
    t.run_ns = ns;
    CHECK(!pthread_barrier_init(&t.start, NULL, n));
    for (unsigned i = 0; i < n; i++)
        CHECK(!pthread_create(&lanes[i].thread, NULL, work, &lanes[i]));
    for (unsigned i = 0; i < n; i++) {
        pthread_join(lanes[i].thread, NULL);
        sum += lanes[i].rate;
    }
    pthread_barrier_destroy(&t.start);
    return sum;
}

/* The mean of all threads, each alone: two processors need not be equally fast. */
static double run_alone(struct lane *lanes)
{
    double sum = 0;
    for (unsigned i = 0; i < t.threads; i++)
        sum += run(&lanes[i], 1, RUN_NS / t.threads);
    return sum / t.threads;
}

static void spread_print(const char *before, double *values, unsigned n)
{
    qsort(values, n, sizeof *values, ascending);
    printf("%s%.2f (%.2f to %.2f)", before, values[n / 2], values[n / 4], values[n - 1 - n / 4]);
}

static void rates_of(const struct layout *layout, unsigned rounds)
{
    static struct lane lanes[KINDS][THREADS_MAX];
    static double one[KINDS][ROUNDS_MAX], all[KINDS][ROUNDS_MAX], scale[KINDS][ROUNDS_MAX];
    static double beside[ROUNDS_MAX], scales[ROUNDS_MAX];
    for (int k = 0; k < KINDS; k++) {
        domains_open(lanes[k], (enum kind)k, layout, 0, t.threads);
        lanes_open(lanes[k], (enum kind)k, layout);
    }
    for (unsigned i = 0; i < rounds; i++) {
        for (int k = 0; k < KINDS; k++)
            one[k][i] = run_alone(lanes[k]);
        for (int k = 0; k < KINDS; k++) {
            all[k][i] = run(lanes[k], t.threads, RUN_NS);
            scale[k][i] = all[k][i] / one[k][i];
        }
        beside[i] = all[PROVIDER][i] / all[NATIVE][i];
        scales[i] = scale[PROVIDER][i] / scale[NATIVE][i];
    }
    printf("| %s |", layout->name);
    for (int k = 0; k < KINDS; k++) {
        qsort(one[k], rounds, sizeof **one, ascending);
        qsort(all[k], rounds, sizeof **all, ascending);
        printf(" %.2f | %.2f |", one[k][rounds / 2], all[k][rounds / 2]);
        spread_print(" ", scale[k], rounds);
        printf(" |");
    }
    spread_print(" ", beside, rounds);
    spread_print(" | ", scales, rounds);
    printf(" |\n");
    for (int k = 0; k < KINDS; k++) {
        lanes_close(lanes[k], (enum kind)k);
        domains_close(lanes[k], (enum kind)k, layout);
    }
}

static void rates(unsigned rounds)
{
    printf("Millions of messages a second; %u threads, %u rounds.\n\n", t.threads, rounds);
    printf("| threads have | provider, one | all | all over one | native, one | all | all over one "
           "| provider over native, all | the same of all over one |\n"
           "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (unsigned i = 0; i < LAYOUTS; i++)
        rates_of(&layouts[i], rounds);
}

/* ---- memory ---- */

/* The resident memory of this process, in KiB. */
static long resident(void)
{
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    char line[128];
    long kib = -1;
    CHECK(f != NULL);
    while (kib < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "Rss: %ld", &kib) != 1)
            kib = -1;
    fclose(f);
    CHECK(kib > 0);
    return kib;
}

static void memory_of(const struct layout *layout, enum kind kind)
{
    static struct lane lanes[THREADS_MAX];
    long before = resident(), first, domains, endpoints, messages;
    domains_open(lanes, kind, layout, 0, 1);
    first = resident();
    domains_open(lanes, kind, layout, 1, t.threads);
    domains = resident();
    lanes_open(lanes, kind, layout);
    endpoints = resident();
    for (unsigned i = 0; i < t.threads; i++)
        burst(&lanes[i]);
    messages = resident();
    printf("| %s, %s | %ld | %ld | %ld | %ld | %ld |\n", layout->name,
           kind == NATIVE ? "native" : "provider", first - before, domains - first,
           endpoints - domains, messages - endpoints, messages - before);
    lanes_close(lanes, kind);
    domains_close(lanes, kind, layout);
}

/* Each row is a process of its own. */
static void memory(void)
{
    printf("KiB; %u threads.\n\n"
           "| threads have | first domain | other domains | endpoints | first messages | sum |\n"
           "| --- | --- | --- | --- | --- | --- |\n",
           t.threads);
    fflush(stdout);
    for (unsigned i = 0; i < LAYOUTS * KINDS; i++) {
        int result = 1;
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            alarm(PATIENCE_S);
            memory_of(&layouts[i / KINDS], (enum kind)(i % KINDS));
            exit(0);
        }
        CHECK(waitpid(child, &result, 0) == child && !result);
    }
}

int main(int argc, char **argv)
{
    unsigned long rounds = argc > 3 ? strtoul(argv[3], NULL, 10) : 15;
    if (argc > 2)
        t.threads = (unsigned)strtoul(argv[2], NULL, 10);
    alarm(PATIENCE_S);
    if (argc < 2 || !t.threads || t.threads > THREADS_MAX || !rounds || rounds > ROUNDS_MAX ||
        (strcmp(argv[1], "rates") && strcmp(argv[1], "memory"))) {
        fprintf(stderr, "usage: fabric_threads rates [THREADS [ROUNDS]] | memory [THREADS]\n");
        return 2;
    }
    if (!strcmp(argv[1], "rates"))
        rates((unsigned)rounds);
    else
        memory();
    return 0;
}
