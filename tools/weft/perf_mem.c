/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft perf mem`: the memory that the library takes to start, and for peers to which nothing was
 * sent. Resident memory as the kernel counts it (Rss of smaps_rollup, proc(5)), including the pages
 * of libraries and of shared memory. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef WF_TOOL_PMIX
#include <pmix.h>
#endif

#include "perf.h"
#include "stats_read.h"

#define PEERS 100000u
#define ENDPOINTS 64u
#define NODE_PROCESSES 128u

static const unsigned steps[] = {2, 1000, PEERS};

struct mem {
    bool json;
    bool in_job, quiet;      /* quiet: not rank 0 */
    int other_in, other_out; /* pipes */
    pid_t other;
    unsigned char address[WEFT_ADDR_MAX];
    size_t address_len;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_job *job;
    struct weft_peer **peers;
};

static int fail(const char *what, enum weft_status s)
{
    fprintf(stderr, "weft perf mem: %s: %s (%s)\n", what, weft_status_text(s), weft_status_name(s));
    return -1;
}

/* Resident bytes of this process. */
static uint64_t resident(void)
{
    char line[256];
    uint64_t kib = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "re");
    while (f && !kib && fgets(line, sizeof line, f))
        (void)sscanf(line, "Rss: %" SCNu64, &kib);
    if (f)
        fclose(f);
    return kib * 1024;
}

/* ---- rows ---- */

static void row(const struct mem *m, const char *what, uint64_t count, uint64_t before,
                uint64_t after, const char *note)
{
    uint64_t grew = after > before ? after - before : 0;
    if (m->quiet)
        return;
    if (m->json)
        printf("{\"test\":\"mem\",\"what\":\"%s\",\"count\":%" PRIu64 ",\"before\":%" PRIu64
               ",\"after\":%" PRIu64 ",\"grew\":%" PRIu64 ",\"each\":%.1f}\n",
               what, count, before, after, grew, (double)grew / (double)count);
    else
        printf("%-14s %7" PRIu64 " %11.2f %11.2f %14.1f  %s\n", what, count,
               (double)before / 1048576, (double)after / 1048576, (double)grew / (double)count,
               note);
    fflush(stdout);
}

static void head(const struct mem *m)
{
    if (!m->json && !m->quiet)
        printf("%-14s %7s %11s %11s %14s\n", "what", "count", "before MiB", "after MiB",
               "bytes for each");
}

/* ---- another process of this node, for a real address ---- */

__attribute__((noreturn)) static void other_main(int in, int out, pid_t parent)
{
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    char byte;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || weft_ctx_open(NULL, &ctx) || weft_ep_open(ctx, NULL, &ep) ||
        weft_ep_address(ep, address, &len) || write(out, address, len) != (ssize_t)len)
        _exit(1);
    (void)!read(in, &byte, 1); /* returns when the other end is closed */
    _exit(weft_ep_close(ep) || weft_ctx_close(ctx));
}

/* To be called before this process has threads. */
static int other_start(struct mem *m)
{
    int to[2], from[2];
    pid_t self = getpid();
    ssize_t n;
    if (pipe(to) || pipe(from) || (m->other = fork()) < 0) {
        fprintf(stderr, "weft perf mem: starting a second process: %s\n", strerror(errno));
        return -1;
    }
    if (m->other == 0) {
        close(to[1]);
        other_main(to[0], from[1], self);
    }
    close(to[0]);
    close(from[1]);
    m->other_in = to[1];
    n = read(from[0], m->address, sizeof m->address);
    close(from[0]);
    m->address_len = n > 0 ? (size_t)n : 0;
    if (n < 8)
        fprintf(stderr, "weft perf mem: the second process could not open an endpoint\n");
    return n < 8 ? -1 : 0;
}

static void other_end(struct mem *m)
{
    close(m->other_in);
    while (waitpid(m->other, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* ---- peers ---- */

/* The address of another endpoint of that process: bytes 2 to 3 are its id, 4 to 7 its generation
 * (docs/protocol.md "Addresses"). No such endpoint exists, which is not noticed before the first
 * message. */
static void forge(const struct mem *m, unsigned i, unsigned char *address)
{
    uint16_t id = (uint16_t)(1 + i % 65535);
    uint32_t generation = 1000 + i;
    memcpy(address, m->address, m->address_len);
    memcpy(address + 2, &id, sizeof id);
    memcpy(address + 4, &generation, sizeof generation);
}

static int peers_add(struct mem *m, unsigned from, unsigned to)
{
    unsigned char address[WEFT_ADDR_MAX];
    for (unsigned i = from; i < to; i++) {
        enum weft_status s;
        forge(m, i, address);
        s = weft_peer_open(m->ep, address, m->address_len, &m->peers[i]);
        if (s != WEFT_OK)
            return fail("adding a peer by its address", s);
    }
    return 0;
}

static int peers_close(struct mem *m, unsigned n)
{
    while (n--) {
        enum weft_status s = weft_peer_close(m->peers[n]);
        if (s != WEFT_OK)
            return fail("closing a peer", s);
    }
    return 0;
}

static int measure_peers(struct mem *m)
{
    uint64_t before;
    unsigned have = 0;
    m->peers = malloc(PEERS * sizeof(struct weft_peer *));
    if (!m->peers)
        return fail("a table of peers", WEFT_ENOMEM);
    memset(m->peers, 0xff,
           PEERS * sizeof(struct weft_peer *)); /* makes it resident before the measurement */
    (void)malloc_trim(0); /* peers must not reuse memory that endpoints freed */
    before = resident();
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (peers_add(m, have, steps[i]))
            return -1;
        have = steps[i];
        row(m, "untouched peer", have, before, resident(), "added by address, never talked to");
    }
    if (peers_close(m, have))
        return -1;
    free(m->peers);
    return 0;
}

/* ---- endpoints ---- */

static int measure_endpoints(struct mem *m)
{
    struct weft_ep *eps[ENDPOINTS];
    uint64_t before = resident(), after;
    for (unsigned i = 0; i < ENDPOINTS; i++) {
        enum weft_status s = weft_ep_open(m->ctx, NULL, &eps[i]);
        if (s != WEFT_OK)
            return fail("opening an endpoint", s);
    }
    after = resident();
    row(m, "endpoint", ENDPOINTS, before, after, "rings are lent when it first talks");
    if (!m->json && !m->quiet)
        printf("%-14s %7u %11s %11.2f\n", "the same, node", NODE_PROCESSES * ENDPOINTS, "",
               (double)(after - before) * NODE_PROCESSES / 1048576);
    for (unsigned i = 0; i < ENDPOINTS; i++) {
        enum weft_status s = weft_ep_close(eps[i]);
        if (s != WEFT_OK)
            return fail("closing an endpoint", s);
    }
    return 0;
}

/* ---- start ---- */

static int start_alone(struct mem *m)
{
    uint64_t before = resident();
    enum weft_status s = weft_ctx_open(NULL, &m->ctx);
    if (s == WEFT_OK)
        s = weft_ep_open(m->ctx, NULL, &m->ep);
    if (s != WEFT_OK)
        return fail("opening an endpoint", s);
    row(m, "start", 1, before, resident(), "one endpoint; before: this program alone");
    return 0;
}

#ifdef WF_TOOL_PMIX
/* The state of any program under a launcher before it uses Weft. */
static int pmix_start(struct mem *m, pmix_proc_t *self)
{
    uint64_t before = resident();
    pmix_status_t s = PMIx_Init(self, NULL, 0);
    if (s != PMIX_SUCCESS) {
        fprintf(stderr, "weft perf mem: PMIx_Init: %s\n", PMIx_Error_string(s));
        return -1;
    }
    row(m, "PMIx_Init", 1, before, resident(), "alone");
    return 0;
}

static void pmix_end(void)
{
    (void)PMIx_Finalize(NULL, 0);
}
#else
typedef int pmix_proc_t;
static int pmix_start(struct mem *m, pmix_proc_t *self)
{
    (void)m, (void)self;
    return 0;
}

static void pmix_end(void)
{
}
#endif

static int start_in_job(struct mem *m)
{
    uint64_t before = resident();
    enum weft_status s = weft_job_open(NULL, &m->job);
    if (s != WEFT_OK)
        return fail("joining the job", s);
    m->ctx = weft_job_ctx(m->job);
    m->ep = weft_job_ep(m->job);
    row(m, "start in a job", 1, before, resident(), "one endpoint; before: after PMIx_Init");
    return 0;
}

static int finish(struct mem *m)
{
    enum weft_status s = WEFT_OK;
    if (m->in_job)
        return weft_job_close(m->job) == WEFT_OK ? 0 : -1;
    s = weft_ep_close(m->ep);
    if (s == WEFT_OK)
        s = weft_ctx_close(m->ctx);
    return s == WEFT_OK ? 0 : fail("closing", s);
}

int wf_perf_mem(bool json)
{
    struct mem m = {.json = json};
    pmix_proc_t self;
    int bad, rank = wf_stats_rank_of(getpid());
    m.in_job = rank >= 0;
    m.quiet = rank > 0;
    if (other_start(&m))
        return 1;
    head(&m);
    bad = m.in_job ? pmix_start(&m, &self) || start_in_job(&m) : start_alone(&m);
    bad = bad || measure_endpoints(&m) || measure_peers(&m) || finish(&m);
    if (m.in_job)
        pmix_end();
    other_end(&m);
    return bad ? 1 : 0;
}
