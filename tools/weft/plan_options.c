/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of `weft plan`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "tool.h"

void wf_plan_usage(void)
{
    fputs("usage: weft plan --nodes N --ranks P --threads T [OPTIONS]\n\n"
          "Prints what the threads of a program share of a NIC in each category of\n"
          "WEFT_SHARING: contexts, queue pairs, doorbell pages (UARs), memory, locks, and\n"
          "the rate that a model of the NIC predicts. Recommends one. Then what the\n"
          "connections of a node take, by kind.\n\n"
          "  --nodes N        nodes of the machine\n"
          "  --ranks P        processes of each node; default 1\n"
          "  --threads T      threads of each process; default 1\n"
          "  --peers K        of each endpoint; default: all ranks of other nodes\n"
          "  --loss PERCENT   of the speed of MPI everywhere that may be lost; default 0\n"
          "  --locks          allow categories in which threads contend for locks\n"
          "  --uars U         doorbell pages of the NIC; default 8192\n"
          "  --memory BYTES   of a node, for queues and buffers; k, M, G; default: any\n"
          "  --mode MODE      the driver's policy: current (default) or classic\n"
          "  --paper          sizes and categories of the paper, without Weft's split\n"
          "  --json           objects instead of tables\n"
          "  --plot FILE.svg  draw rates and pages (by gnuplot)\n",
          stdout);
}

enum option {
    NODES,
    RANKS,
    THREADS,
    PEERS,
    LOSS,
    UARS,
    MEMORY,
    MODE,
    PLOT,
    LOCKS,
    PAPER,
    JSON,
    HELP
};
#define VALUED LOCKS /* those before it take a value */

static const char *const names[] = {"--nodes", "--ranks",  "--threads", "--peers", "--loss",
                                    "--uars",  "--memory", "--mode",    "--plot",  "--locks",
                                    "--paper", "--json",   "--help",    NULL};

static int complain(const char *option, const char *value, const char *what)
{
    fprintf(stderr, WF_PLAN ": %s %s: %s\n", option, value ? value : "", what);
    return WF_TOOL_USAGE;
}

/* A whole number from 1 to [most]. */
static int number(const char *option, const char *text, uint64_t most, uint64_t *out)
{
    char *end, what[64];
    unsigned long long v;
    errno = 0;
    v = strtoull(text, &end, 10);
    snprintf(what, sizeof what, "give a whole number from 1 to %llu", (unsigned long long)most);
    if (errno || end == text || *end || *text == '-' || !v || v > most)
        return complain(option, text, what);
    *out = v;
    return 0;
}

static int percent(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    if (end == text || *end || !(*out >= 0 && *out <= 100))
        return complain("--loss", text, "give a percentage from 0 to 100");
    return 0;
}

static double unit_of(const char *text)
{
    switch (*text) {
    case 0: return 1;
    case 'k':
    case 'K': return 1024.0;
    case 'M': return 1024.0 * 1024;
    case 'G': return 1024.0 * 1024 * 1024;
    case 'T': return 1024.0 * 1024 * 1024 * 1024;
    default: return 0;
    }
}

static int bytes(const char *text, double *out)
{
    char *end;
    double v = strtod(text, &end);
    *out = v * unit_of(end);
    if (end == text || !(*out > 0) || (*end && end[1]))
        return complain("--memory", text, "give bytes, such as 512M or 16G");
    return 0;
}

static int mode(const char *text, enum wf_uar_mode *out)
{
    if (strcmp(text, "classic") != 0 && strcmp(text, "current") != 0)
        return complain("--mode", text,
                        "give current, or classic (the driver's policy before 2020)");
    *out = strcmp(text, "classic") ? WF_UAR_CURRENT : WF_UAR_CLASSIC;
    return 0;
}

static int with_value(struct wf_plan_options *o, enum option which, const char *value)
{
    switch (which) {
    case NODES: return number("--nodes", value, WF_PLAN_NODES_MAX, &o->nodes);
    case RANKS: return number("--ranks", value, WF_PLAN_RANKS_MAX, &o->ranks);
    case THREADS: return number("--threads", value, WF_PLAN_THREADS_MAX, &o->threads);
    case PEERS: return number("--peers", value, WF_PLAN_PEERS_MAX, &o->peers);
    case UARS: return number("--uars", value, UINT32_MAX, &o->uars);
    case LOSS: return percent(value, &o->loss);
    case MEMORY: return bytes(value, &o->memory);
    case MODE: return mode(value, &o->mode);
    default: o->plot = value; return 0;
    }
}

static void without_value(struct wf_plan_options *o, enum option which)
{
    o->locks |= which == LOCKS;
    o->paper |= which == PAPER;
    o->json |= which == JSON;
    o->help |= which == HELP;
}

static int unknown(const char *word)
{
    const char *near = wf_tool_nearest(word, names);
    fprintf(stderr, WF_PLAN ": %s: there is no such option%s%s%s; weft plan --help lists them\n",
            word, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    return WF_TOOL_USAGE;
}

/* What mlx5 would refuse. */
static int driver_check(const struct wf_plan_options *o)
{
    const struct wf_uar_config env = wf_uar_config_env(o->mode);
    const char *wrong = wf_uar_config_wrong(&env);
    if (!wrong)
        return 0;
    fprintf(stderr, WF_PLAN ": the driver would open no context: %s\n", wrong);
    return WF_TOOL_USAGE;
}

int wf_plan_options_parse(int argc, char **argv, struct wf_plan_options *o)
{
    int bad = 0;
    *o = (struct wf_plan_options){
        .ranks = 1, .threads = 1, .uars = WF_UAR_NIC_PAGES, .mode = WF_UAR_CURRENT};
    for (int i = 1; i < argc && !bad; i++) {
        int which = 0;
        while (names[which] && strcmp(argv[i], names[which]) != 0)
            which++;
        if (!names[which])
            bad = unknown(argv[i]);
        else if (which >= VALUED)
            without_value(o, (enum option)which);
        else if (++i == argc)
            bad = complain(argv[i - 1], NULL, "a value is missing");
        else
            bad = with_value(o, (enum option)which, argv[i]);
    }
    if (bad || o->help)
        return bad;
    if (!o->nodes) {
        fputs(WF_PLAN ": give the number of nodes: --nodes N (weft plan --help)\n", stderr);
        return WF_TOOL_USAGE;
    }
    if (o->nodes == 1 && !o->peers) {
        fputs(WF_PLAN ": one node needs no NIC: give --nodes 2 or more, or --peers K\n", stderr);
        return WF_TOOL_USAGE;
    }
    return driver_check(o);
}
