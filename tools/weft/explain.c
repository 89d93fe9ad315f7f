/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft explain`: which path each kind of operation takes and why, as reported by weft_path_of,
 * which the operations use themselves. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <weft/cache.h>
#include <weft/job.h>
#include <weft/msg.h>

#include "tool.h"

#define SIZE_LIMIT ((uint64_t)1 << 40)
#define RW (WEFT_REMOTE_READ | WEFT_REMOTE_WRITE)

struct request {
    size_t size;
    int peer; /* -1: another rank if there is one */
    bool json, help;
};

struct explain {
    const struct request *r;
    struct weft_job *job;
    unsigned rank, size, target;
    size_t len; /* of the regions */
    struct weft_mr *shared, *private;
    struct weft_remote **shared_of, *private_of;
    void *memory;
};

/* ---- command line ---- */

static void usage(void)
{
    fputs("usage: weft explain -n SIZE [--peer R] [--json]\n"
          "       weft run -n 2 -- weft explain -n SIZE\n"
          "\n"
          "Prints for each kind of operation of SIZE bytes which way it takes between\n"
          "rank 0 and another rank, how often each byte is copied on it, and why. The\n"
          "answer is that of the function which the operations themselves ask, with the\n"
          "variables of this run (weft info --config). Alone, the peer is rank 0 itself.\n"
          "Tagged messages of 8 to 256 KiB are sent first, because their way is measured.\n"
          "\n"
          "  -n, --size SIZE  bytes; k, M and G allowed\n"
          "  --peer R         the rank that rank 0 talks to; default 1, or 0 if alone\n"
          "  --json           one object for each operation\n"
          "  --help           print this\n"
          "\n"
          "memory:\n"
          "  shared   from weft_mem_alloc, mapped by mates\n"
          "  private  the application's own, given to weft_mr_register\n",
          stdout);
}

static int complain(const char *what, const char *arg)
{
    fprintf(stderr, "weft explain: %s: %s\n", arg, what);
    return -1;
}

static int parse_size(struct request *r, const char *text)
{
    static const char units[] = "kKmMgG";
    char *end = NULL;
    unsigned long long v = 0;
    unsigned shift = 0;
    errno = 0;
    if (text && *text >= '0' && *text <= '9')
        v = strtoull(text, &end, 10);
    if (end && *end && strchr(units, *end))
        shift = 10 * (unsigned)((strchr(units, *end++) - units) / 2 + 1);
    if (!end || errno || *end || v == 0 || v > SIZE_LIMIT >> shift)
        return complain("give a number of bytes, at least 1, such as 8 or 1M", text ? text : "-n");
    r->size = (size_t)v << shift;
    return 0;
}

static int parse_peer(struct request *r, const char *text)
{
    char *end = NULL;
    unsigned long v = text && *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
    if (!end || *end || v > INT32_MAX)
        return complain("give a rank, 0 or more", text ? text : "--peer");
    r->peer = (int)v;
    return 0;
}

static int unknown(const char *arg)
{
    static const char *const names[] = {"-n", "--size", "--peer", "--json", "--help", NULL};
    char name[64];
    const char *near;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(arg, "="), arg);
    near = wf_tool_nearest(name, names);
    fprintf(stderr, "weft explain: unknown argument %s%s%s%s\n", arg,
            near ? "; did you mean " : "; weft explain --help", near ? near : "", near ? "?" : "");
    return -1;
}

/* The value of option [name] at argv[*at], after "=" or in the next word; false: argv[*at] is
 * another option. */
static bool valued(char **argv, int *at, const char *name, const char **value)
{
    size_t n = strlen(name);
    if (strncmp(argv[*at], name, n) || (argv[*at][n] && argv[*at][n] != '='))
        return false;
    *value = argv[*at][n] ? argv[*at] + n + 1 : argv[*at + 1];
    *at += !argv[*at][n] && *value;
    return true;
}

static int parse(int argc, char **argv, struct request *r)
{
    const char *value;
    int bad = 0;
    for (int i = 1; i < argc && !bad; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            r->help = true;
        else if (!strcmp(argv[i], "--json"))
            r->json = true;
        else if (valued(argv, &i, "-n", &value) || valued(argv, &i, "--size", &value))
            bad = parse_size(r, value);
        else if (valued(argv, &i, "--peer", &value))
            bad = parse_peer(r, value);
        else
            bad = unknown(argv[i]);
    }
    if (!bad && !r->help && !r->size)
        bad = complain("how many bytes? say -n SIZE", "no size");
    return bad;
}

/* ---- regions of both kinds on every rank ---- */

static int failed(const struct explain *x, const char *what, enum weft_status s)
{
    fflush(stdout);
    fprintf(stderr, "weft explain: rank %u: %s: %s (%s)\n", x->rank, what, weft_status_text(s),
            weft_status_name(s));
    return -1;
}

/* Memory as a program's own. It is never touched, so any size costs nothing. */
static int private_open(struct explain *x)
{
    unsigned char key[WEFT_KEY_MAX] = {0}, *keys = calloc(x->size, sizeof key);
    size_t len = sizeof key;
    enum weft_status s = WEFT_ENOMEM;
    x->memory = mmap(NULL, x->len, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (keys && x->memory != MAP_FAILED)
        s = weft_mr_register(weft_job_ctx(x->job), x->memory, x->len, WEFT_MEM_HOST, RW,
                             &x->private);
    if (s == WEFT_OK)
        s = weft_mr_key(x->private, key, &len);
    if (s == WEFT_OK)
        s = weft_job_allgather(x->job, key, sizeof key, keys);
    if (s == WEFT_OK && x->rank == 0)
        s = weft_remote_open(weft_job_peer(x->job, x->target), keys + x->target * sizeof key, len,
                             &x->private_of);
    free(keys);
    return s == WEFT_OK ? 0 : failed(x, "registering memory", s);
}

static int regions_open(struct explain *x)
{
    enum weft_status s;
    x->len = x->r->size < 8 ? 8 : x->r->size;
    x->shared_of = calloc(x->size, sizeof(struct weft_remote *));
    s = x->shared_of ? weft_job_mem_alloc(x->job, x->len, RW, &x->shared, x->shared_of)
                     : WEFT_ENOMEM;
    return s == WEFT_OK ? private_open(x) : failed(x, "allocating memory that both reach", s);
}

/* ---- the cost of tagged messages ---- */

enum {
    MEASURED_MIN = 8193, /* bytes; weft_path_of reports their cost */
    MEASURED_MAX = 262144,
    MEASURED = 40, /* messages, of which some go each way */
    PATIENCE_S = 30
};

static enum weft_status exchange(struct explain *x, unsigned char *data)
{
    struct weft_ep *ep = weft_job_ep(x->job);
    struct weft_peer *peer = weft_job_peer(x->job, x->rank == 0 ? x->target : 0);
    enum weft_status s = WEFT_OK;
    for (int i = 0; i < MEASURED && s == WEFT_OK; i++) {
        struct weft_op op = {0};
        if (x->rank == 0)
            s = weft_msg_send(peer, 0, data, x->r->size, &op);
        else
            s = weft_msg_recv(ep, peer, 0, WEFT_TAG_FULL, data, x->r->size, &op);
        if (s == WEFT_PENDING)
            s = weft_op_wait(ep, &op, PATIENCE_S * INT64_C(1000000000));
        if (s == WEFT_PENDING)
            s = WEFT_ETIMEDOUT;
    }
    return s;
}

/* Rank 0 sends messages of the length to the other rank, so that their costs are known. */
static int measure(struct explain *x)
{
    bool one = x->target != 0 && (x->rank == 0 || x->rank == x->target);
    unsigned char *data;
    enum weft_status s = WEFT_ENOMEM;
    if (!one || x->r->size < MEASURED_MIN || x->r->size > MEASURED_MAX)
        return 0;
    data = malloc(x->r->size);
    if (data) {
        memset(data, 1, x->r->size);
        s = exchange(x, data);
    }
    free(data);
    return s == WEFT_OK ? 0 : failed(x, "measuring tagged messages", s);
}

/* Print [text] in lines of 80 columns, indented by [indent]. */
static void show_text(const char *text, int indent)
{
    const size_t room = (size_t)(79 - indent);
    while (*text) {
        size_t n = strlen(text);
        if (n > room)
            for (n = room; n > 1 && text[n] != ' '; n--)
                ;
        printf("%*s%.*s\n", indent, "", (int)n, text);
        text += n;
        while (*text == ' ')
            text++;
    }
}

static void show_costs(const struct weft_path *path)
{
    char text[128], parts[64] = "not measured", copy[64] = "the kernel denies it";
    if (!path->parts_ps && !path->pull_ps)
        return;
    if (path->pull_ps == 0)
        snprintf(copy, sizeof copy, "not measured");
    else if (path->pull_ps != UINT16_MAX)
        snprintf(copy, sizeof copy, "%.3f ns a byte", path->pull_ps / 1e3);
    if (path->parts_ps)
        snprintf(parts, sizeof parts, "%.3f ns a byte", path->parts_ps / 1e3);
    snprintf(text, sizeof text, "measured: in parts: %s; one copy: %s", parts, copy);
    show_text(text, 4);
}

/* ---- rows ---- */

struct kind {
    const char *name, *memory; /* memory: null: none */
    unsigned operation;
};

static const struct kind kinds[] = {
    {"active message", NULL, WEFT_OP_AM},
    {"tagged message", NULL, WEFT_OP_MSG},
    {"put", "shared", WEFT_OP_PUT},
    {"put", "private", WEFT_OP_PUT},
    {"get", "shared", WEFT_OP_GET},
    {"get", "private", WEFT_OP_GET},
    {"long message", "shared", WEFT_OP_AM_LONG},
    {"long message", "private", WEFT_OP_AM_LONG},
    {"atomic", "shared", WEFT_OP_ATOMIC},
    {"atomic", "private", WEFT_OP_ATOMIC},
};

static void show_json(const struct explain *x, const struct kind *k, enum weft_status s,
                      const struct weft_path *path)
{
    printf("{\"operation\":\"%s\",\"memory\":\"%s\",\"peer\":%u,\"size\":%zu", k->name,
           k->memory ? k->memory : "", x->target, k->operation == WEFT_OP_ATOMIC ? 8 : x->r->size);
    if (s == WEFT_OK)
        printf(",\"transport\":\"%s\",\"protocol\":\"%s\",\"copies\":%u,\"inlined\":%s,"
               "\"parts_ps\":%u,\"pull_ps\":%u,\"why\":\"%s\"}\n",
               path->transport, path->protocol, path->copies, path->inlined ? "true" : "false",
               path->parts_ps, path->pull_ps, path->why);
    else
        printf(",\"status\":\"%s\"}\n", weft_status_name(s));
}

static void show_table(const struct explain *x, const struct kind *k, enum weft_status s,
                       const struct weft_path *path)
{
    size_t len = k->operation == WEFT_OP_ATOMIC ? 8 : x->r->size;
    printf("%-15s %-8s %11zu  ", k->name, k->memory ? k->memory : "-", len);
    if (s != WEFT_OK) {
        char why[128];
        printf("not possible\n");
        if (s == WEFT_EMSGSIZE)
            snprintf(why, sizeof why,
                     "an active message carries at most %zu bytes: WEFT_AM_MAX "
                     "raises that",
                     weft_am_max(weft_job_ep(x->job)));
        else
            snprintf(why, sizeof why, "%s", weft_status_text(s));
        show_text(why, 4);
        return;
    }
    printf("%-9s %-17s %6u\n", path->transport, path->protocol, path->copies);
    show_text(path->why, 4);
    show_costs(path);
}

/* ---- local memory ---- */

static void local_row(void *arg, const char *way, const char *when, const char *why,
                      unsigned copies, int is_taken)
{
    const struct explain *x = arg;
    if (x->r->json) {
        printf("{\"operation\":\"local memory\",\"size\":%zu,\"way\":\"%s\",\"when\":\"%s\","
               "\"copies\":%u,\"taken\":%s,\"why\":\"%s\"}\n",
               x->r->size, way, when, copies, is_taken ? "true" : "false", why);
        return;
    }
    printf("%c %-24s %-44s %6u\n", is_taken ? '*' : ' ', way, when, copies);
    show_text(why, 4);
}

static void show_local(const struct explain *x)
{
    if (!x->r->json)
        printf("\n  %-24s %-44s %6s\n", "local memory of devices",
               "that register it; * these bytes", "copies");
    weft_local_rows(x->r->size, local_row, (void *)(uintptr_t)x);
}

static int show(const struct explain *x)
{
    struct weft_peer *peer = weft_job_peer(x->job, x->target);
    if (!x->r->json)
        printf("%-15s %-8s %11s  %-9s %-17s %6s\n", "from rank 0", "memory", "bytes", "transport",
               "protocol", "copies");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct kind *k = &kinds[i];
        const struct weft_remote *r = !k->memory                     ? NULL
                                      : !strcmp(k->memory, "shared") ? x->shared_of[x->target]
                                                                     : x->private_of;
        struct weft_path path;
        enum weft_status s = weft_path_of(peer, k->operation, r,
                                          k->operation == WEFT_OP_ATOMIC ? 8 : x->r->size, &path);
        if (s != WEFT_OK && s != WEFT_EMSGSIZE)
            return failed(x, "asking for the way", s);
        (x->r->json ? show_json : show_table)(x, k, s, &path);
    }
    show_local(x);
    fflush(stdout);
    return 0;
}

/* ---- the job ---- */

static int join(struct explain *x)
{
    enum weft_status s = weft_job_open(NULL, &x->job);
    if (s != WEFT_OK)
        return failed(x, "joining the job", s);
    x->rank = weft_job_rank(x->job);
    x->size = weft_job_size(x->job);
    x->target = x->r->peer >= 0 ? (unsigned)x->r->peer : x->size > 1;
    return 0;
}

static int leave(struct explain *x, int code)
{
    enum weft_status s = weft_job_barrier(x->job);
    for (unsigned i = 0; x->shared_of && i < x->size; i++)
        (void)weft_remote_close(x->shared_of[i]);
    if (x->private_of)
        (void)weft_remote_close(x->private_of);
    (void)weft_mr_close(x->shared);
    (void)weft_mr_close(x->private);
    free(x->shared_of);
    if (s == WEFT_OK)
        s = weft_job_close(x->job);
    if (s != WEFT_OK && s != WEFT_ECLOSED && !code) {
        failed(x, "leaving the job", s);
        return 1;
    }
    return code;
}

static int no_such_rank(struct explain *x)
{
    if (x->rank == 0)
        fprintf(stderr,
                "weft explain: --peer %u: this job has the ranks 0 to %u; start more: weft run -n "
                "%u -- weft explain ...\n",
                x->target, x->size - 1, x->target + 1);
    return leave(x, WF_TOOL_USAGE);
}

int wf_tool_explain(int argc, char **argv)
{
    struct request r = {.peer = -1};
    struct explain x = {.r = &r};
    if (parse(argc, argv, &r))
        return WF_TOOL_USAGE;
    if (r.help) {
        usage();
        return 0;
    }
    if (join(&x))
        return 1;
    if (x.target >= x.size)
        return no_such_rank(&x);
    if (regions_open(&x) || measure(&x) || (x.rank == 0 && show(&x)))
        return 1;
    return leave(&x, 0);
}
