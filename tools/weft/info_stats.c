/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft info --stats`: the counters of running processes. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "info.h"
#include "stats_read.h"
#include "tool.h"

#define PIDS_MAX 1024

struct request {
    pid_t pids[PIDS_MAX];
    unsigned npids;
    char job[256]; /* "": all processes */
    bool json;
    unsigned shown, denied;
};

static void print_json(const struct wf_process_stats *s)
{
    const char *name = s->names;
    printf("{\"pid\":%d,\"command\":", (int)s->pid);
    wf_json_string(stdout, s->command);
    if (s->job[0]) {
        fputs(",\"job\":", stdout);
        wf_json_string(stdout, s->job);
        printf(",\"rank\":%d", s->rank);
    }
    fputs(",\"version\":", stdout);
    wf_json_string(stdout, s->version);
    printf(",\"contexts\":%u,\"endpoints\":%u,\"counters\":{", s->contexts, s->endpoints);
    for (unsigned i = 0; i < s->counters; i++, name += strlen(name) + 1) {
        fputs(i ? "," : "", stdout);
        wf_json_string(stdout, name);
        printf(":%" PRIu64, s->value[i]);
    }
    fputs("}}\n", stdout);
}

static void print_table(const struct wf_process_stats *s)
{
    const char *name = s->names;
    printf("process %d, %s", (int)s->pid, s->command);
    if (s->job[0])
        printf(", rank %d of job %s", s->rank, s->job);
    printf(", weft %s, %u endpoint%s\n", s->version, s->endpoints, s->endpoints == 1 ? "" : "s");
    for (unsigned i = 0; i < s->counters; i++, name += strlen(name) + 1)
        if (s->value[i])
            printf("  %-20s %20" PRIu64 "\n", name, s->value[i]);
}

static void print(struct request *r, const struct wf_process_stats *s)
{
    if (!r->json && r->shown)
        putchar('\n');
    r->shown++;
    (r->json ? print_json : print_table)(s);
}

/* Show [pid], one of all processes, if it has counters. */
static void show_if_any(pid_t pid, void *arg)
{
    struct request *r = arg;
    static struct wf_process_stats s;
    enum wf_stats_found found = wf_stats_of(pid, &s);
    r->denied += found == WF_STATS_DENIED;
    if (found == WF_STATS_FOUND && (!r->job[0] || !strcmp(r->job, s.job)))
        print(r, &s);
}

/* Show [pid], which was named: 0, or 1 with the cause printed. */
static int show_one(struct request *r, pid_t pid)
{
    static struct wf_process_stats s;
    static const char *const why[] = {
        [WF_STATS_NONE] = "has no Weft context open: has it begun, is it the right process?",
        [WF_STATS_GONE] = "does not exist any more, or never did",
        [WF_STATS_DENIED] =
            "belongs to another user or hides itself: look as that user, or as root",
        [WF_STATS_FOREIGN] = "counts in another way than this version knows: use its own weft",
    };
    enum wf_stats_found found = wf_stats_of(pid, &s);
    if (found == WF_STATS_FOUND)
        print(r, &s);
    else
        fprintf(stderr, "weft info --stats: process %d %s\n", (int)pid, why[found]);
    return found != WF_STATS_FOUND;
}

static int show_all(struct request *r)
{
    if (wf_stats_each(show_if_any, r)) {
        fprintf(stderr, "weft info --stats: cannot read /proc: %s\n", strerror(errno));
        return 1;
    }
    if (r->shown)
        return 0;
    fprintf(stderr, "weft info --stats: no process%s has a Weft context open%s\n",
            r->job[0] ? " of this job" : "",
            r->denied ? "; those of other users cannot be read" : "");
    return 1;
}

static int complain(const char *what, const char *arg)
{
    fprintf(stderr, "weft info --stats: %s: %s\n", arg, what);
    return WF_TOOL_USAGE;
}

static pid_t parse_pid(const char *text)
{
    char *end;
    long v;
    errno = 0;
    v = strtol(text, &end, 10);
    return errno || *end || v <= 0 || v > INT32_MAX ? -1 : (pid_t)v;
}

static int parse_job(struct request *r, const char *text)
{
    pid_t pid = text ? parse_pid(text) : -1;
    if (pid < 0)
        return complain("needs the process id of one of its ranks, or of weft run", "--job");
    if (wf_stats_job_of(pid, r->job, sizeof r->job) && r->job[0])
        return 0;
    fprintf(stderr, "weft info --stats: process %d %s\n", (int)pid,
            access("/proc", X_OK) == 0 && kill(pid, 0) && errno == ESRCH
                ? "does not exist any more, or never did"
                : "is no rank or launcher of a job that this user may look at");
    return 1;
}

static int parse_word(struct request *r, const char *arg)
{
    static const char *const names[] = {"--stats", "--job", "--json", "--config", "--help", NULL};
    const char *near;
    pid_t pid;
    if (arg[0] == '-') {
        near = wf_tool_nearest(arg, names);
        fprintf(stderr, "weft info --stats: unknown option %s%s%s%s\n", arg,
                near ? "; did you mean " : "; weft info --help", near ? near : "", near ? "?" : "");
        return WF_TOOL_USAGE;
    }
    pid = parse_pid(arg);
    if (pid < 0)
        return complain("is no process id; weft info --stats alone shows every process", arg);
    if (r->npids == PIDS_MAX)
        return complain("too many process ids; weft info --stats alone shows every process", arg);
    r->pids[r->npids++] = pid;
    return 0;
}

static int parse(int argc, char **argv, struct request *r)
{
    int code = 0;
    for (int i = 1; i < argc && !code; i++) {
        if (!strcmp(argv[i], "--json"))
            r->json = true;
        else if (!strcmp(argv[i], "--job"))
            code = parse_job(r, argv[++i]);
        else if (!strncmp(argv[i], "--job=", 6))
            code = parse_job(r, argv[i] + 6);
        else if (strcmp(argv[i], "--stats"))
            code = parse_word(r, argv[i]);
    }
    if (!code && r->job[0] && r->npids)
        code = complain("give process ids or --job, not both", "--job");
    return code;
}

int wf_info_stats(int argc, char **argv)
{
    static struct request r;
    int code = parse(argc, argv, &r);
    if (code)
        return code;
    if (!r.npids)
        return show_all(&r);
    for (unsigned i = 0; i < r.npids; i++)
        code |= show_one(&r, r.pids[i]);
    return code;
}
