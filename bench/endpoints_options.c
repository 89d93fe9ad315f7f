/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "endpoints.h"

void options_usage(FILE *to)
{
    fputs("usage: endpoints COMMAND [OPTIONS]\n\n"
          "  rate        message rate of 2-byte writes\n"
          "  ga          global array: get two tiles, put one\n"
          "  stencil     halo exchange; --ranks R --threads T\n"
          "  assign      which doorbell register queue pairs and domains get; --check\n"
          "  ledger      objects, doorbell pages and bytes of each category; --check\n"
          "  figures     the paper's figures as CSV and SVG; --out DIR\n"
          "  verdict     the model against the paper's numbers\n"
          "  contention  two real threads, against the model\n"
          "  params      the model's parameters\n\n"
          "  --device D        model (default), null0, copy0 (null0 that moves bytes), or a NIC\n"
          "  --set paper|here  parameters of the model; --params FILE changes some\n"
          "  --seed N          of the model\n"
          "  --mode M          doorbell registers: classic (default) or current\n"
          "  --uuars N[:L]     static registers, and those of low latency (classic; 16:4)\n"
          "  --category C      everywhere naive 2xdynamic split dynamic shared static threads\n"
          "  --ranks R --threads T\n"
          "  --share WHAT=X    X-way sharing of buf, ctx, pd, mr, cq or qp (rate)\n"
          "  --level 0|1|2     domains of a shared context: spaced, a page, half a page (rate)\n"
          "  --depth D -p P -q Q --messages N     (rate; 128, 32, 64)\n"
          "  --no-inline --no-blueflame --unaligned\n"
          "  --rows N --width N --tiles N         (ga; stencil: rows)\n"
          "  --iterations N                       (stencil)\n"
          "  --cq-domains      completion queues of domains have no locks, either\n"
          "  --paper           count the paper's spare queue pairs of 2xDynamic\n"
          "  --check-only      make the objects and print the ledger, send nothing (rate)\n"
          "  --draws N         (verdict; 20)      --pairs N  (contention; 15)\n",
          to);
}

static bool refuse(const char *option, const char *text, const char *what)
{
    fprintf(stderr, "endpoints: %s %s: %s\n", option, text, what);
    return false;
}

/* Reads a number from [least] to [most]. */
static bool number_read(const char *option, const char *text, uint64_t least, uint64_t most,
                        uint64_t *out)
{
    char *end, what[80];
    errno = 0;
    *out = strtoull(text, &end, 10);
    snprintf(what, sizeof what, "must be a number from %llu to %llu", (unsigned long long)least,
             (unsigned long long)most);
    if (end == text || *end || errno || strchr(text, '-') || *out < least || *out > most)
        return refuse(option, text, what);
    return true;
}

static bool unsigned_read(const char *option, const char *text, unsigned least, unsigned most,
                          unsigned *out)
{
    uint64_t number;
    bool ok = number_read(option, text, least, most, &number);
    if (ok)
        *out = (unsigned)number;
    return ok;
}

static bool device_set(struct options *o)
{
    struct wf_bench *b = &o->bench;
    if (!strcmp(o->device, "model"))
        return true;
    b->is_model = false;
    b->device = o->device;
    if (!strcmp(o->device, "copy0")) {
        b->ops = copy_hca();
        b->device = "null0";
        return true;
    }
    if (!strncmp(o->device, "null", 4)) {
        b->ops = &wf_hca_null;
        return true;
    }
#ifdef WF_HAVE_VERBS
    b->ops = &wf_hca_verbs;
    return true;
#else
    return refuse("--device", o->device, "this build has no verbs: use model or null0");
#endif
}

static bool share_read(struct options *o, const char *text)
{
    const char *is = strchr(text, '=');
    for (unsigned w = 0; is && w < WF_WAYS; w++)
        if (strlen(wf_way_name((enum wf_way)w)) == (size_t)(is - text) &&
            !strncmp(text, wf_way_name((enum wf_way)w), (size_t)(is - text)))
            return unsigned_read("--share", is + 1, 1, 4096, &o->ways[w]);
    return refuse("--share", text, "must be buf, ctx, pd, mr, cq or qp, then =X");
}

static bool uuars_read(struct options *o, char *text)
{
    char *low = strchr(text, ':');
    unsigned total, least = 4;
    if (low)
        *low++ = 0;
    if (!unsigned_read("--uuars", text, 2, WF_UAR_STATIC_MAX, &total) ||
        (low && !unsigned_read("--uuars", low, 0, WF_UAR_STATIC_MAX, &least)))
        return false;
    o->bench.uars.total = (uint16_t)total;
    o->bench.uars.low_latency = (uint16_t)least;
    if (wf_uar_config_wrong(&o->bench.uars))
        return refuse("--uuars", text, wf_uar_config_wrong(&o->bench.uars));
    return true;
}

static bool mode_read(struct options *o, const char *text)
{
    if (!strcmp(text, "current"))
        o->bench.uars.mode = WF_UAR_CURRENT;
    else if (strcmp(text, "classic") != 0)
        return refuse("--mode", text, "must be classic or current");
    return true;
}

static bool set_read(struct options *o, const char *text)
{
    return wf_params_set(&o->bench.params, text) || refuse("--set", text, "must be paper or here");
}

static bool params_read(struct options *o, const char *file)
{
    char why[200];
    if (wf_params_read(&o->bench.params, file, why, sizeof why))
        return true;
    fprintf(stderr, "endpoints: --params: %s\n", why);
    return false;
}

static bool category_read(struct options *o, const char *text)
{
    o->category = wf_category_find(text);
    o->has_category = true;
    return o->category < WF_CATEGORIES ||
           refuse(
               "--category", text,
               "must be everywhere, naive, 2xdynamic, split, dynamic, shared, static or threads");
}

enum {
    DEVICE = 256,
    SET,
    PARAMS,
    SEED,
    MODE,
    UUARS,
    CATEGORY,
    RANKS,
    THREADS,
    SHARE,
    LEVEL,
    DEPTH,
    MESSAGES,
    NO_INLINE,
    NO_BLUEFLAME,
    UNALIGNED,
    ROWS,
    WIDTH,
    TILES,
    ITERATIONS,
    CQ_DOMAINS,
    PAPER,
    CHECK,
    CHECK_ONLY,
    OUT,
    DRAWS,
    PAIRS,
    HELP
};

static const struct option longs[] = {{"device", 1, NULL, DEVICE},
                                      {"set", 1, NULL, SET},
                                      {"params", 1, NULL, PARAMS},
                                      {"seed", 1, NULL, SEED},
                                      {"mode", 1, NULL, MODE},
                                      {"uuars", 1, NULL, UUARS},
                                      {"category", 1, NULL, CATEGORY},
                                      {"ranks", 1, NULL, RANKS},
                                      {"threads", 1, NULL, THREADS},
                                      {"share", 1, NULL, SHARE},
                                      {"level", 1, NULL, LEVEL},
                                      {"depth", 1, NULL, DEPTH},
                                      {"messages", 1, NULL, MESSAGES},
                                      {"no-inline", 0, NULL, NO_INLINE},
                                      {"no-blueflame", 0, NULL, NO_BLUEFLAME},
                                      {"unaligned", 0, NULL, UNALIGNED},
                                      {"rows", 1, NULL, ROWS},
                                      {"width", 1, NULL, WIDTH},
                                      {"tiles", 1, NULL, TILES},
                                      {"iterations", 1, NULL, ITERATIONS},
                                      {"cq-domains", 0, NULL, CQ_DOMAINS},
                                      {"paper", 0, NULL, PAPER},
                                      {"check", 0, NULL, CHECK},
                                      {"check-only", 0, NULL, CHECK_ONLY},
                                      {"out", 1, NULL, OUT},
                                      {"draws", 1, NULL, DRAWS},
                                      {"pairs", 1, NULL, PAIRS},
                                      {"help", 0, NULL, HELP},
                                      {NULL, 0, NULL, 0}};

static bool flag_read(struct options *o, int option)
{
    switch (option) {
    case NO_INLINE: o->no_inline = true; return true;
    case NO_BLUEFLAME: o->no_blueflame = true; return true;
    case UNALIGNED: o->unaligned = true; return true;
    case CQ_DOMAINS: o->cq_domains = true; return true;
    case PAPER: o->paper = true; return true;
    case CHECK: o->check = true; return true;
    case CHECK_ONLY: o->check_only = true; return true;
    default: return false;
    }
}

static bool count_read(struct options *o, int option, const char *text)
{
    switch (option) {
    case RANKS: return unsigned_read("--ranks", text, 1, 4096, &o->ranks);
    case THREADS: return unsigned_read("--threads", text, 1, 4096, &o->threads);
    case DEPTH: return unsigned_read("--depth", text, 1, 32768, &o->depth);
    case 'p': return unsigned_read("-p", text, 1, 32768, &o->p);
    case 'q': return unsigned_read("-q", text, 1, 32768, &o->q);
    case ROWS: return unsigned_read("--rows", text, 1, 1u << 20, &o->rows);
    case WIDTH: return unsigned_read("--width", text, 1, 4096, &o->width);
    case TILES: return unsigned_read("--tiles", text, 1, 1u << 20, &o->tiles);
    case ITERATIONS: return unsigned_read("--iterations", text, 1, 1u << 20, &o->iterations);
    case DRAWS: return unsigned_read("--draws", text, 1, 1000, &o->draws);
    case PAIRS: return unsigned_read("--pairs", text, 1, 1000, &o->pairs);
    case MESSAGES: return number_read("--messages", text, 1, UINT64_C(1) << 40, &o->messages);
    case SEED: return number_read("--seed", text, 0, UINT64_MAX, &o->bench.seed);
    default: return false;
    }
}

static bool option_read(struct options *o, int option, char *text)
{
    unsigned level;
    switch (option) {
    case DEVICE: o->device = text; return device_set(o);
    case SET: return set_read(o, text);
    case PARAMS: return params_read(o, text);
    case MODE: return mode_read(o, text);
    case UUARS: return uuars_read(o, text);
    case CATEGORY: return category_read(o, text);
    case SHARE: return share_read(o, text);
    case OUT: o->out = text; return true;
    case LEVEL:
        if (!unsigned_read("--level", text, 0, 2, &level))
            return false;
        o->level = (int)level;
        return true;
    default: return text ? count_read(o, option, text) : flag_read(o, option);
    }
}

bool options_read(int argc, char **argv, struct options *o)
{
    struct wf_params params;
    int option;
    *o = (struct options){
        .device = "model", .ranks = 1, .threads = 16, .draws = 20, .pairs = 15, .level = -1};
    (void)wf_params_set(&params, "paper");
    wf_bench_model(&o->bench, &params, 1);
    while ((option = getopt_long(argc, argv, "p:q:", longs, NULL)) != -1) {
        if (option == HELP) {
            options_usage(stdout);
            exit(0);
        }
        if (option == '?' || !option_read(o, option, optarg))
            return false;
    }
    if (optind != argc - 1) {
        options_usage(stderr);
        return false;
    }
    o->command = argv[optind];
    return true;
}
