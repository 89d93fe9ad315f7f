/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of `weft run`. Options end at the program or at "--". */
#include "run.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

static void usage(FILE *to)
{
    fputs("usage: weft run -n N [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
          "\n"
          "Starts PROGRAM N times on this machine, as the ranks of one job.\n"
          "\n"
          "options:\n"
          "  -n N          how many ranks\n"
          "  --bind core   bind each rank to a core of its own; the default when there\n"
          "                are cores enough\n"
          "  --bind none   bind no rank\n"
          "  --keep-going  when a rank fails, leave the others running\n"
          "  --help        print this\n"
          "\n"
          "Rank 0 reads this command's input, the others /dev/null.\n"
          "A rank that ends by a signal, with a code other than 0, or without\n"
          "weft_job_close ends the job: the others get SIGTERM and 2 s later SIGKILL.\n"
          "\n"
          "exit code: 0 if all ranks left well, else the first failure's (128 + n for\n"
          "signal n; 1 if it was 0 without weft_job_close; 126, 127 if PROGRAM could\n"
          "not be started); 2 if this command line was not understood.\n"
          "\n"
          "example:\n"
          "  weft run -n 4 -- ./hello\n",
          to);
}

int wf_run_usage(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("weft run: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    return WF_TOOL_USAGE;
}

static int unknown_option(const char *option)
{
    static const char *const names[] = {"-n", "--bind", "--keep-going", "--help", NULL};
    char name[64];
    const char *near;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(option, "="), option);
    near = wf_tool_nearest(name, names);
    if (near)
        return wf_run_usage("unknown option %s; did you mean %s?", option, near);
    return wf_run_usage("unknown option %s; weft run --help lists them, and -- ends them", option);
}

static int parse_ranks(const char *text, struct wf_run_options *opt)
{
    char *end;
    unsigned long n;
    errno = 0;
    n = strtoul(text, &end, 10);
    if (errno || *end || text[0] < '0' || text[0] > '9' || n < 1 || n > WF_RUN_RANKS_MAX)
        return wf_run_usage("-n %s: must be a number of ranks from 1 to %d", text,
                            WF_RUN_RANKS_MAX);
    opt->nranks = (unsigned)n;
    return 0;
}

static int parse_bind(const char *text, struct wf_run_options *opt)
{
    if (strcmp(text, "core") && strcmp(text, "none"))
        return wf_run_usage("--bind %s: must be core or none", text);
    opt->bind = text[0] == 'c' ? WF_BIND_CORE : WF_BIND_NONE;
    return 0;
}

/* If argv[*at] is [name] with a value, in the next word or after '=' (or, for a one-letter option,
 * directly after it), set *value and advance *at. */
static bool takes_value(char **argv, int *at, const char *name, const char **value)
{
    size_t len = strlen(name);
    const char *arg = argv[*at];
    if (strncmp(arg, name, len))
        return false;
    if (!arg[len]) {
        *value = argv[*at + 1];
        *at += *value != NULL;
        return true;
    }
    if (arg[len] != '=' && name[1] == '-')
        return false;
    *value = arg + len + (arg[len] == '=');
    return arg[len] == '=' || (arg[len] >= '0' && arg[len] <= '9');
}

static int parse_option(char **argv, int *at, struct wf_run_options *opt)
{
    const char *value = NULL, *option = argv[*at];
    if (!strcmp(option, "--keep-going")) {
        opt->keep_going = true;
        return 0;
    }
    if (takes_value(argv, at, "-n", &value))
        return value ? parse_ranks(value, opt) : wf_run_usage("-n needs a number of ranks");
    if (takes_value(argv, at, "--bind", &value))
        return value ? parse_bind(value, opt) : wf_run_usage("--bind needs core or none");
    return unknown_option(option);
}

int wf_run_parse(int argc, char **argv, struct wf_run_options *opt, int *code)
{
    int i = 1;
    for (; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            usage(stdout);
            *code = 0;
            return -1;
        }
        if ((*code = parse_option(argv, &i, opt)))
            return -1;
    }
    opt->argv = argv + i;
    *code = !opt->nranks ? wf_run_usage("how many ranks? say -n N (weft run --help)")
            : i >= argc  ? wf_run_usage("which program? weft run -n %u -- PROGRAM", opt->nranks)
                         : 0;
    return *code ? -1 : 0;
}
