/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft info --resources`: connects an endpoint with N others over a device that completes all work
 * requests and transfers nothing (WEFT_DEBUG=nullnic), and prints the resources in use. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <weft/weft.h>

#include "info.h"
#include "tool.h"

#define PEERS_MAX 10000u
#define ROWS_MAX 16u
#define PATIENCE_S 60

struct rows {
    const char *names[ROWS_MAX];
    uint64_t counts[ROWS_MAX], bytes[ROWS_MAX];
    unsigned n;
};

static void on_row(void *arg, const char *name, uint64_t count, uint64_t bytes)
{
    struct rows *r = arg;
    if (r->n == ROWS_MAX)
        return;
    r->names[r->n] = name;
    r->counts[r->n] = count;
    r->bytes[r->n++] = bytes;
}

static uint64_t count_of(const struct rows *r, const char *name)
{
    for (unsigned i = 0; i < r->n; i++)
        if (!strcmp(r->names[i], name))
            return r->counts[i];
    return 0;
}

/* ---- the peers ---- */

struct many {
    struct weft_ctx *one, *others;
    struct weft_ep *ep, **eps;
    unsigned peers;
};

static int failed(const char *what, enum weft_status s)
{
    fprintf(stderr, "weft info: --resources: %s: %s (%s)\n", what, weft_status_text(s),
            weft_status_name(s));
    return 1;
}

static enum weft_status ctx_open(struct weft_ctx **ctx)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "of one process, for itself alone";
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    enum weft_status s;
    params.flags = WEFT_CTX_NETWORK;
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

static int peers_call(struct many *m)
{
    unsigned char to[WEFT_ADDR_MAX];
    size_t len = sizeof to;
    enum weft_status s = weft_ep_address(m->ep, to, &len);
    for (unsigned i = 0; i < m->peers && s == WEFT_OK; i++) {
        s = weft_ep_open(m->others, NULL, &m->eps[i]);
        if (s == WEFT_OK)
            s = call(m->eps[i], to, len);
    }
    return s == WEFT_OK ? 0 : failed("connecting", s);
}

/* Wait until each peer has its queue pair. */
static int peers_await(struct many *m, struct rows *r)
{
    time_t end = time(NULL) + PATIENCE_S;
    do {
        (void)weft_ep_poll(m->ep);
        for (unsigned i = 0; i < m->peers; i++)
            (void)weft_ep_poll(m->eps[i]);
        r->n = 0;
        weft_resource_rows(m->one, on_row, r);
        if (count_of(r, "queue pairs") >= m->peers)
            return 0;
    } while (time(NULL) < end);
    fprintf(stderr, "weft info: --resources: only %" PRIu64 " of %u peers connected within %d s\n",
            count_of(r, "queue pairs"), m->peers, PATIENCE_S);
    return 1;
}

/* ---- printing ---- */

static void print_json(unsigned peers, const struct rows *r)
{
    printf("{\"peers\":%u", peers);
    for (unsigned i = 0; i < r->n; i++)
        printf(",\"%s\":{\"count\":%" PRIu64 ",\"bytes\":%" PRIu64 "}", r->names[i], r->counts[i],
               r->bytes[i]);
    puts("}");
}

static void print_table(unsigned peers, const struct rows *r)
{
    uint64_t all = 0;
    printf("%u peers\n", peers);
    for (unsigned i = 0; i < r->n; i++) {
        printf("    %-22s %8" PRIu64 " %14" PRIu64 " bytes\n", r->names[i], r->counts[i],
               r->bytes[i]);
        all += r->bytes[i];
    }
    printf("    %-22s %8s %14" PRIu64 " bytes, %" PRIu64 " for each peer\n", "all", "", all,
           all / peers);
}

/* The process ends without closing: that would wait for answers, which this device does not bring.
 */
static int show(unsigned peers, bool json)
{
    struct many m = {.peers = peers};
    struct rows r;
    enum weft_status s;
    m.eps = calloc(peers, sizeof *m.eps);
    s = m.eps ? ctx_open(&m.one) : WEFT_ENOMEM;
    if (s == WEFT_OK)
        s = ctx_open(&m.others);
    if (s == WEFT_OK)
        s = weft_ep_open(m.one, NULL, &m.ep);
    if (s != WEFT_OK)
        return failed("opening", s);
    if (peers_call(&m) || peers_await(&m, &r))
        return 1;
    (json ? print_json : print_table)(peers, &r);
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

/* Of the devices that move nothing the first one, with what else WEFT_DEBUG says. */
static void device_null(void)
{
    const char *debug = getenv("WEFT_DEBUG");
    char text[1024];
    snprintf(text, sizeof text, "nullnic,%s", debug ? debug : "");
    setenv("WEFT_DEBUG", text, 1);
    setenv("WEFT_RDMA_DEVICE", "null0", 1);
}

int wf_info_resources(int argc, char **argv)
{
    unsigned peers[16] = {2, 100, 1000}, n = 0;
    bool json = false;
    int bad = 0;
    for (int i = 1; i < argc; i++) {
        char *end;
        unsigned long v;
        if (!strcmp(argv[i], "--resources"))
            continue;
        if (!strcmp(argv[i], "--json")) {
            json = true;
            continue;
        }
        v = strtoul(argv[i], &end, 10);
        if (*end || !v || v > PEERS_MAX || *argv[i] == '-' || n == sizeof peers / sizeof *peers)
            return unknown(argv[i]);
        peers[n++] = (unsigned)v;
    }
    n = n ? n : 3;
    files_raise();
    device_null();
    setenv("WEFT_TRANSPORTS", "loop,rdma", 1);
    setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1);
    setenv("WEFT_TCP_ENCRYPT", "0", 1);
    setenv("WEFT_PINNED", "1000g", 1); /* nothing is pinned: all these peers are one process */
    for (unsigned i = 0; i < n && !bad; i++)
        bad = show(peers[i], json);
    fflush(stdout);
    _Exit(bad);
}
