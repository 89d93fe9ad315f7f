/* SPDX-License-Identifier: BSD-3-Clause */
/* The command `weft`: dispatches to its subcommands. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <weft/weft.h>

#include "tool.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *doc;
};

#ifndef WF_TOOL_PMIX
int wf_tool_run(int argc, char **argv)
{
    (void)argc, (void)argv;
    fputs("weft run: built without libpmix: install it and configure with -Dpmix=enabled\n",
          stderr);
    return WF_TOOL_USAGE;
}
#endif

static const struct command commands[] = {
    {"run", wf_tool_run, "start a program as the ranks of a job on this machine"},
    {"info", wf_tool_info, "what this library can do here; counters of running programs"},
    {"perf", wf_tool_perf, "measure latency, rate, bandwidth and memory; compare with others"},
    {"explain", wf_tool_explain, "which way an operation takes, and why"},
    {"plan", wf_tool_plan, "what threads should share of a NIC: pages, memory, rates"},
    {"node", wf_tool_node, "list and stop the node services of this user"},
};
#define COMMANDS (sizeof commands / sizeof commands[0])

#define WORD_MAX 40

static unsigned least(unsigned a, unsigned b, unsigned c)
{
    unsigned m = a < b ? a : b;
    return m < c ? m : c;
}

/* Edit distance of [a] and [b]: insertions, deletions, replacements, swaps of neighbours. */
static unsigned distance(const char *a, const char *b)
{
    unsigned d[WORD_MAX + 1][WORD_MAX + 1];
    size_t la = strlen(a), lb = strlen(b);
    if (la > WORD_MAX || lb > WORD_MAX)
        return WORD_MAX;
    for (size_t i = 0; i <= la; i++)
        d[i][0] = (unsigned)i;
    for (size_t j = 0; j <= lb; j++)
        d[0][j] = (unsigned)j;
    for (size_t i = 1; i <= la; i++)
        for (size_t j = 1; j <= lb; j++) {
            bool same = a[i - 1] == b[j - 1];
            d[i][j] = least(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + !same);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < d[i][j])
                d[i][j] = d[i - 2][j - 2] + 1;
        }
    return d[la][lb];
}

void wf_json_string(FILE *to, const char *text)
{
    putc('"', to);
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == '"' || *text == '\\')
            fprintf(to, "\\u%04x", (unsigned char)*text);
        else
            putc(*text, to);
    putc('"', to);
}

const char *wf_tool_nearest(const char *word, const char *const *names)
{
    const char *best = NULL;
    unsigned best_distance = (unsigned)strlen(word) / 2 + 1; /* more than half wrong is no typo */
    for (; *names; names++) {
        unsigned d = distance(word, *names);
        if (d < best_distance) {
            best = *names;
            best_distance = d;
        }
    }
    return best;
}

static void usage(FILE *to)
{
    fputs("usage: weft COMMAND [ARGUMENTS]\n\ncommands:\n", to);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].doc);
    fputs("  help     what a command does: weft help COMMAND\n"
          "\noptions:\n"
          "  --version   print the version\n"
          "  --help      print this\n"
          "\nexample:\n"
          "  weft run -n 2 -- weft perf am_lat\n",
          to);
}

static const struct command *find(const char *name)
{
    const char *names[COMMANDS + 4] = {"help", "--version", "--help"};
    const char *near;
    for (size_t i = 0; i < COMMANDS; i++) {
        if (!strcmp(name, commands[i].name))
            return &commands[i];
        names[3 + i] = commands[i].name;
    }
    near = wf_tool_nearest(name, names);
    fprintf(stderr, "weft: there is no command \"%s\"", name);
    if (near)
        fprintf(stderr, "; did you mean \"%s\"?", near);
    fputs(near ? "\n" : "; weft --help lists them\n", stderr);
    return NULL;
}

static int help(const char *name)
{
    char *args[] = {(char *)(uintptr_t)name, (char[]){"--help"}, NULL};
    const struct command *c;
    if (!name) {
        usage(stdout);
        return 0;
    }
    c = find(name);
    return c ? c->run(2, args) : WF_TOOL_USAGE;
}

/* Open standard descriptors that the caller closed: else another file would get their numbers, and
 * messages would be written to it. */
static bool standard_open(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
        if (fd < 0)
            return false;
    } while (fd <= STDERR_FILENO);
    return close(fd) == 0;
}

int main(int argc, char **argv)
{
    const struct command *c;
    if (!standard_open())
        return 1;
    /* One write per line, so that lines of other processes do not end up inside one. */
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
    if (argc < 2) {
        usage(stderr);
        return WF_TOOL_USAGE;
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        printf("weft %s\n", weft_version());
        return 0;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
        return help(NULL);
    if (!strcmp(argv[1], "help"))
        return help(argv[2]);
    c = find(argv[1]);
    return c ? c->run(argc - 1, argv + 1) : WF_TOOL_USAGE;
}
