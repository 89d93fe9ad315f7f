/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of the verdict: where the paper's numbers exclude each other, the conditions of its ratios,
 * and the model's results beyond the paper. */
#include "endpoints.h"
#include "endpoints_verdict.h"

#define SEED 1
#define PAPER_SPEEDUP 7.67 /* of the halo exchange by 16 threads over one */

static const unsigned tall[] = {4, 16, 64, 256};

/* ---- 1.4 and 7.67 ---- */

static void fork_print(const struct wf_params *p)
{
    double all = wf_stencil_of(WF_CAT_EVERYWHERE, 16, 1, p, SEED, 1);
    double hybrid = wf_stencil_of(WF_CAT_EVERYWHERE, 1, 16, p, SEED, 1);
    double one = wf_stencil_of(WF_CAT_EVERYWHERE, 1, 1, p, SEED, 1);
    printf(
        "\n1.4 against 7.67\n"
        "  The paper: 16x1 is 1.4 times as fast as 1x16; 16 threads of a rank exchange a halo "
        "%.2f\n"
        "  times as fast as one; 16 ranks have 16 times the messages. Then 16x1 would be\n"
        "  16/%.2f = %.2f times as fast. Both hold only if a lone rank's thread is %.2f times as\n"
        "  fast as one of 16 ranks.\n"
        "  The model: 16x1 over 1x16 %.2f (calibrated), 16 threads over one %.2f, a lone rank's\n"
        "  thread %.2f times as fast as one of 16.\n",
        PAPER_SPEEDUP, PAPER_SPEEDUP, 16 / PAPER_SPEEDUP, 16 / PAPER_SPEEDUP / 1.4, all / hybrid,
        hybrid / one, one / (all / 16));
}

/* ---- the global array by the height of tiles ---- */

static void tiles_print(const struct wf_params *p)
{
    static const enum wf_category shown[] = {WF_CAT_2XDYNAMIC, WF_CAT_DYNAMIC, WF_CAT_SHARED,
                                             WF_CAT_STATIC, WF_CAT_THREADS};
    printf("\nGlobal array by rows of a tile, %% of MPI everywhere (the paper: 108 94 65 64 3)\n");
    printf("  %6s", "rows");
    for (unsigned c = 0; c < 5; c++)
        printf(" %15s", wf_category_title(shown[c]));
    putchar('\n');
    for (unsigned i = 0; i < 4; i++) {
        double everywhere = wf_ga_of(WF_CAT_EVERYWHERE, 16, tall[i], p, SEED, 1);
        printf("  %6u", tall[i]);
        for (unsigned c = 0; c < 5; c++)
            printf(" %15.1f", 100 * wf_ga_of(shown[c], 16, tall[i], p, SEED, 1) / everywhere);
        putchar('\n');
    }
    puts("  The paper's ratios need tall tiles, or many tiles under way.");
}

/* ---- the stencil ---- */

static void hybrids_print(const struct wf_params *p)
{
    static const enum wf_category shown[] = {WF_CAT_2XDYNAMIC, WF_CAT_SPLIT,  WF_CAT_DYNAMIC,
                                             WF_CAT_SHARED,    WF_CAT_STATIC, WF_CAT_THREADS};
    printf("\nStencil, %% of MPI everywhere\n  %7s %10s", "", "million/s");
    for (unsigned c = 0; c < 6; c++)
        printf(" %15s", wf_category_title(shown[c]));
    putchar('\n');
    for (unsigned ranks = 16; ranks; ranks /= 2) {
        double everywhere = wf_stencil_of(WF_CAT_EVERYWHERE, ranks, 16 / ranks, p, SEED, 1);
        printf("  %3ux%-3u %10.1f", ranks, 16 / ranks, everywhere / 1e6);
        for (unsigned c = 0; c < 6; c++)
            printf(" %15.1f",
                   100 * wf_stencil_of(shown[c], ranks, 16 / ranks, p, SEED, 1) / everywhere);
        putchar('\n');
    }
    puts("  What comes out wrong: Static at 8x2, where two threads use every page, is below 4x4; "
         "the\n"
         "  paper has more processes better for each category. Figure 10(b) is linear only where\n"
         "  most requests are signaled.");
}

/* ---- beyond the paper ---- */

struct choice {
    enum wf_category c;
    enum wf_uar_mode mode;
    bool shrunk, cq_domains, spares, across;
};

static double choice_run(const struct wf_params *params, const struct choice *ch,
                         struct wf_result *r)
{
    struct wf_params p = *params;
    struct wf_bench bench;
    struct wf_ga_params ga;
    p.v[WF_P_ACROSS] = ch->across;
    wf_bench_model(&bench, &p, SEED);
    bench.uars = wf_uar_config_of(ch->mode);
    if (ch->shrunk) {
        bench.uars.total = 2;
        bench.uars.low_latency = 1;
    }
    wf_ga_params_of(&ga, ch->c, 16);
    ga.set.cq_domains = ch->cq_domains;
    ga.set.spares = ch->spares;
    return wf_ga_run(&bench, &ga, r) ? r->per_s : 0;
}

static void choice_print(const struct wf_params *p, const struct choice *ch, const char *note)
{
    const struct choice base = {.c = WF_CAT_EVERYWHERE, .mode = ch->mode};
    struct wf_result everywhere, r;
    double whole = choice_run(p, &base, &everywhere), rate = choice_run(p, ch, &r);
    printf("  %-14s %-7s %3llu UARs of %3llu, %.2f MiB, global array %5.1f%%, %u locks a message, "
           "%u a poll%s%s\n",
           wf_category_title(ch->c), ch->mode == WF_UAR_CLASSIC ? "classic" : "current",
           (unsigned long long)r.ledger.uars, (unsigned long long)everywhere.ledger.uars,
           (double)r.ledger.bytes / (1 << 20), 100 * rate / whole, r.ledger.locks,
           r.ledger.poll_locks, *note ? "; " : "", note);
}

static void choices_print(const struct wf_params *p)
{
    static const struct {
        struct choice c;
        const char *note;
    } rows[] = {
        {{.c = WF_CAT_2XDYNAMIC, .spares = true}, "as the paper"},
        {{.c = WF_CAT_2XDYNAMIC}, "without spare queue pairs"},
        {{.c = WF_CAT_2XDYNAMIC, .cq_domains = true}, "as Weft: no lock of the CQ"},
        {{.c = WF_CAT_SPLIT}, ""},
        {{.c = WF_CAT_SPLIT, .shrunk = true}, "static UARs shrunk"},
        {{.c = WF_CAT_SPLIT, .shrunk = true, .across = true},
         "the same, if pages of two contexts count together"},
        {{.c = WF_CAT_DYNAMIC, .shrunk = true}, "static UARs shrunk"},
        {{.c = WF_CAT_EVERYWHERE, .shrunk = true}, "static UARs shrunk"},
        {{.c = WF_CAT_2XDYNAMIC, .mode = WF_UAR_CURRENT}, "the paper's trade is gone"},
        {{.c = WF_CAT_SPLIT, .mode = WF_UAR_CURRENT}, ""},
        {{.c = WF_CAT_DYNAMIC, .mode = WF_UAR_CURRENT}, ""},
        {{.c = WF_CAT_SHARED, .mode = WF_UAR_CURRENT}, ""},
    };
    puts("\nBeyond the paper");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        choice_print(p, &rows[i].c, rows[i].note);
}

/* Today's library with MLX5_SHUT_UP_BF: all queue pairs without a domain ring one page's doorbell,
 * without a lock. */
static double doorbells_rate(const struct wf_params *p, unsigned list, bool shut,
                             struct wf_result *r)
{
    struct wf_bench bench;
    struct wf_rate_params rate;
    wf_bench_model(&bench, p, SEED);
    bench.uars = wf_uar_config_of(WF_UAR_CURRENT);
    bench.uars.blueflame = !shut;
    wf_rate_params_of(&rate, 16);
    wf_set_params_of(&rate.set, shut ? WF_CAT_STATIC : WF_CAT_EVERYWHERE, 1, 16, 1);
    rate.p = list;
    (void)wf_rate_finish(&rate);
    return wf_rate_run(&bench, &rate, r) ? r->per_s / 1e6 : 0;
}

static void doorbells_print(const struct wf_params *p)
{
    struct wf_result everywhere, r;
    for (unsigned list = 1; list <= 32; list += 31) {
        double whole = doorbells_rate(p, list, false, &everywhere);
        double rate = doorbells_rate(p, list, true, &r);
        printf(
            "  doorbells only, current, p = %2u: %llu UAR for 16 threads; %.1f million messages/s, "
            "MPI everywhere with BlueFlame %.1f\n",
            list, (unsigned long long)r.ledger.uars, rate, whole);
    }
}

void verdict_extra(const struct wf_params *p)
{
    fork_print(p);
    tiles_print(p);
    hybrids_print(p);
    choices_print(p);
    doorbells_print(p);
}
