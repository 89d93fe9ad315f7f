/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft info --resources`: connects endpoints with N others each over a device that completes all
 * work requests and transfers nothing (WEFT_DEBUG=nullnic), and prints the resources in use. With
 * --threads there is an endpoint for each thread, and the table shows what the endpoints share. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <weft/weft.h>

#include "config/sharing_names.h"
#include "info.h"
#include "tool.h"

#define PEERS_MAX 10000u
#define THREADS_MAX 1024u
#define ROWS_MAX 16u
#define PATIENCE_S 60

struct rows {
    const char *names[ROWS_MAX];
    uint64_t counts[ROWS_MAX], bytes[ROWS_MAX];
    unsigned n;
};

/* Rows of several contexts are added up. */
static void on_row(void *arg, const char *name, uint64_t count, uint64_t bytes)
{
    struct rows *r = arg;
    unsigned i = 0;
    while (i < r->n && strcmp(r->names[i], name) != 0)
        i++;
    if (i == ROWS_MAX)
        return;
    r->n += i == r->n;
    r->names[i] = name;
    r->counts[i] += count;
    r->bytes[i] += bytes;
}

static uint64_t count_of(const struct rows *r, const char *name)
{
    for (unsigned i = 0; i < r->n; i++)
        if (!strcmp(r->names[i], name))
            return r->counts[i];
    return 0;
}

/* ---- the peers ---- */

/* What the options ask for. */
struct plan {
    unsigned threads;          /* 0: one endpoint, and no table of what it shares */
    enum weft_sharing sharing; /* of their contexts */
    bool json;
};

struct many {
    const struct plan *plan;
    struct weft_ctx **ctxs, *others;
    struct weft_ep **own, **eps; /* [nown], the endpoints that are counted; [nown * peers] */
    unsigned nctxs, nown, peers; /* peers: of each endpoint */
};

static int failed(const char *what, enum weft_status s)
{
    fprintf(stderr, "weft info: --resources: %s: %s (%s)\n", what, weft_status_text(s),
            weft_status_name(s));
    return 1;
}

static enum weft_status ctx_open(enum weft_sharing sharing, unsigned endpoints,
                                 struct weft_ctx **ctx)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "of one process, for itself alone";
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    enum weft_status s;
    params.flags = WEFT_CTX_NETWORK;
    params.sharing = sharing;
    params.endpoints = endpoints;
    s = weft_ctx_open(&params, ctx);
    return s == WEFT_OK ? weft_ctx_set_key(*ctx, key, sizeof key) : s;
}

/* Send a first message from [from] to [to]. */
static enum weft_status call(struct weft_ep *from, const unsigned char *to, size_t len)
{
    struct weft_peer *peer;
    enum weft_status s = weft_peer_open(from, to, len, &peer);
    return s == WEFT_OK ? weft_am_request(peer, 0, NULL, 0, NULL, 0, 0) : s;
}

/* Connect the peers of one endpoint. */
static enum weft_status peers_of_call(struct many *m, unsigned own)
{
    unsigned char to[WEFT_ADDR_MAX];
    size_t len = sizeof to;
    enum weft_status s = weft_ep_address(m->own[own], to, &len);
    for (unsigned i = own * m->peers; i < (own + 1) * m->peers && s == WEFT_OK; i++) {
        s = weft_ep_open(m->others, NULL, &m->eps[i]);
        if (s == WEFT_OK)
            s = call(m->eps[i], to, len);
    }
    return s;
}

static int peers_call(struct many *m)
{
    enum weft_status s = WEFT_OK;
    for (unsigned i = 0; i < m->nown && s == WEFT_OK; i++)
        s = peers_of_call(m, i);
    return s == WEFT_OK ? 0 : failed("connecting", s);
}

static void count(const struct many *m, struct rows *r)
{
    memset(r, 0, sizeof *r);
    for (unsigned i = 0; i < m->nctxs; i++)
        weft_resource_rows(m->ctxs[i], on_row, r);
}

/* Wait until each peer has its queue pair. */
static int peers_await(struct many *m, struct rows *r)
{
    time_t end = time(NULL) + PATIENCE_S;
    unsigned all = m->nown * m->peers;
    do {
        for (unsigned i = 0; i < m->nown; i++)
            (void)weft_ep_poll(m->own[i]);
        for (unsigned i = 0; i < all; i++)
            (void)weft_ep_poll(m->eps[i]);
        count(m, r);
        if (count_of(r, "queue pairs") >= all)
            return 0;
    } while (time(NULL) < end);
    fprintf(stderr, "weft info: --resources: only %" PRIu64 " of %u peers connected within %d s\n",
            count_of(r, "queue pairs"), all, PATIENCE_S);
    return 1;
}

/* ---- printing ---- */

/* "queue pair, completion queue", or "none". */
static const char *locks_text(unsigned locks, char text[64])
{
    static const char *const names[] = {"queue pair", "uUAR", "completion queue", "endpoint"};
    size_t at = 0;
    strcpy(text, "none");
    for (unsigned i = 0; i < 4; i++)
        if (locks & 1u << i)
            at += (size_t)snprintf(text + at, 64 - at, "%s%s", at ? ", " : "", names[i]);
    return text;
}

static void print_json(const struct many *m, const struct rows *r)
{
    printf("{\"peers\":%u", m->peers);
    for (unsigned i = 0; i < r->n; i++)
        printf(",\"%s\":{\"count\":%" PRIu64 ",\"bytes\":%" PRIu64 "}", r->names[i], r->counts[i],
               r->bytes[i]);
    for (unsigned i = 0; m->plan->threads && i < m->nown; i++) {
        struct weft_ep_sharing_info v;
        if (weft_ep_sharing(m->own[i], &v) == WEFT_OK)
            printf("%s{\"category\":\"%s\",\"level\":%u,\"locks\":%u}",
                   i ? "," : ",\"endpoints\":[", wf_sharing_text((enum weft_sharing)v.category),
                   v.level, v.locks);
    }
    puts(m->plan->threads ? "]}" : "}");
}

static void print_endpoints(const struct many *m)
{
    printf("    endpoint  category    level  locks that a message and its completion take\n");
    for (unsigned i = 0; i < m->nown; i++) {
        struct weft_ep_sharing_info v;
        char text[64];
        if (weft_ep_sharing(m->own[i], &v) == WEFT_OK)
            printf("    %8u  %-10s  %5u  %s\n", i + 1,
                   wf_sharing_text((enum weft_sharing)v.category), v.level,
                   locks_text(v.locks, text));
    }
}

static void print_table(const struct many *m, const struct rows *r)
{
    uint64_t all = 0;
    if (m->plan->threads)
        printf("%u threads, %u endpoints, %u peers each\n", m->plan->threads, m->nown, m->peers);
    else
        printf("%u peers\n", m->peers);
    for (unsigned i = 0; i < r->n; i++) {
        printf("    %-22s %8" PRIu64 " %14" PRIu64 " bytes\n", r->names[i], r->counts[i],
               r->bytes[i]);
        all += r->bytes[i];
    }
    printf("    %-22s %8s %14" PRIu64 " bytes, %" PRIu64 " for each peer\n", "all", "", all,
           all / m->peers / m->nown);
    if (m->plan->threads)
        print_endpoints(m);
}

/* The endpoints of the threads: each in a context of its own, or all in one; or one for all. */
static enum weft_status own_open(struct many *m)
{
    unsigned threads = m->plan->threads ? m->plan->threads : 1;
    bool everywhere = m->plan->sharing == WEFT_SHARING_EVERYWHERE;
    enum weft_status s = WEFT_OK;
    m->nown = m->plan->sharing == WEFT_SHARING_THREADS ? 1 : threads;
    m->nctxs = everywhere ? threads : 1;
    m->ctxs = calloc(m->nctxs, sizeof *m->ctxs);
    m->own = calloc(m->nown, sizeof *m->own);
    m->eps = calloc((size_t)m->nown * m->peers, sizeof *m->eps);
    if (!m->ctxs || !m->own || !m->eps)
        return WEFT_ENOMEM;
    for (unsigned i = 0; i < m->nctxs && s == WEFT_OK; i++)
        s = ctx_open(m->plan->sharing, everywhere ? 1 : m->plan->threads, &m->ctxs[i]);
    for (unsigned i = 0; i < m->nown && s == WEFT_OK; i++)
        s = weft_ep_open(m->ctxs[everywhere ? i : 0], NULL, &m->own[i]);
    return s == WEFT_OK ? ctx_open(WEFT_SHARING_DEFAULT, 0, &m->others) : s;
}

/* The process ends without closing: that would wait for answers, which this device does not bring.
 */
static int show(const struct plan *plan, unsigned peers)
{
    struct many m = {.plan = plan, .peers = peers};
    struct rows r;
    enum weft_status s = own_open(&m);
    if (s != WEFT_OK)
        return failed("opening", s);
    if (peers_call(&m) || peers_await(&m, &r))
        return 1;
    (plan->json ? print_json : print_table)(&m, &r);
    fflush(stdout);
    return 0;
}

/* ---- the command ---- */

static void files_raise(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l))
        return;
    l.rlim_cur = l.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &l);
}

static int unknown(const char *word)
{
    fprintf(stderr, "weft info: --resources %s: give numbers of peers, 1 to %u\n", word, PEERS_MAX);
    return WF_TOOL_USAGE;
}

/* The first device that moves nothing, with the other items of WEFT_DEBUG. */
static void device_null(const char *mode)
{
    const char *debug = getenv("WEFT_DEBUG");
    char text[1024];
    snprintf(text, sizeof text, "nullnic,%s%s", mode, debug ? debug : "");
    setenv("WEFT_DEBUG", text, 1);
    setenv("WEFT_RDMA_DEVICE", "null0", 1);
    unsetenv("WEFT_SHARING"); /* --sharing, for the counted endpoints alone */
}

/* A number from 1 to [most], or 0. */
static unsigned number(const char *text, unsigned most)
{
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    return *end || *text == '-' || v > most ? 0 : (unsigned)v;
}

static int threads_parse(const char *text, struct plan *plan)
{
    plan->threads = text ? number(text, THREADS_MAX) : 0;
    if (plan->threads)
        return 0;
    fprintf(stderr, "weft info: --threads %s: give a number from 1 to %u\n", text ? text : "",
            THREADS_MAX);
    return WF_TOOL_USAGE;
}

static int sharing_parse(const char *text, struct plan *plan)
{
    int found = text ? wf_sharing_parse(text) : -1;
    if (found >= 0) {
        plan->sharing = (enum weft_sharing)found;
        return 0;
    }
    fprintf(stderr, "weft info: --sharing %s: give one of %s\n", text ? text : "",
            WF_SHARING_VALUES);
    return WF_TOOL_USAGE;
}

static int mode_parse(const char *text, const char **mode)
{
    if (text && (!strcmp(text, "classic") || !strcmp(text, "current"))) {
        *mode = !strcmp(text, "classic") ? "classicuars," : "";
        return 0;
    }
    fprintf(stderr, "weft info: --mode %s: give classic or current\n", text ? text : "");
    return WF_TOOL_USAGE;
}

int wf_info_resources(int argc, char **argv)
{
    unsigned peers[16] = {2, 100, 1000}, n = 0;
    struct plan plan = {.threads = 0};
    const char *mode = "";
    int bad = 0;
    for (int i = 1; i < argc && !bad; i++) {
        unsigned v = number(argv[i], PEERS_MAX);
        if (!strcmp(argv[i], "--resources"))
            continue;
        if (!strcmp(argv[i], "--json"))
            plan.json = true;
        else if (!strcmp(argv[i], "--threads"))
            bad = threads_parse(argv[++i], &plan);
        else if (!strcmp(argv[i], "--sharing"))
            bad = sharing_parse(argv[++i], &plan);
        else if (!strcmp(argv[i], "--mode"))
            bad = mode_parse(argv[++i], &mode);
        else if (!v || n == sizeof peers / sizeof *peers)
            bad = unknown(argv[i]);
        else
            peers[n++] = v;
    }
    if (bad)
        return bad;
    if (plan.sharing != WEFT_SHARING_DEFAULT && !plan.threads)
        plan.threads = 1;
    if (!n && plan.threads)
        peers[n++] = 1;
    n = n ? n : 3;
    files_raise();
    device_null(mode);
    setenv("WEFT_TRANSPORTS", "loop,rdma", 1);
    setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1);
    setenv("WEFT_TCP_ENCRYPT", "0", 1);
    setenv("WEFT_PINNED", "1000g", 1); /* nothing is pinned: all these peers are one process */
    for (unsigned i = 0; i < n && !bad; i++)
        bad = show(&plan, peers[i]);
    fflush(stdout);
    _Exit(bad);
}
