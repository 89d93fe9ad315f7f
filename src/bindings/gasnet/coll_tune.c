/* SPDX-License-Identifier: BSD-3-Clause */
/* Tunables of collectives, and counts of calls. */
#include "coll.h"

#include <errno.h>
#include <stdio.h>

#include "tools.h"

static _Atomic uint64_t counts[COLL_KINDS];
static const char *const kind_names[COLL_KINDS] = {"broadcast", "scatter", "gather", "gather_all",
                                                   "exchange",  "reduce",  "scan",   "barrier"};

struct gasnetw_coll_limits gasnetw_coll_limits;

/* The limits between algorithms. For data up to a limit, latency decides: the algorithm has few
 * rounds, in which data pass through other nodes. For longer data, bandwidth decides: data go
 * directly or in a pipeline. A default is about the length at which a copy takes as long as a
 * message. The defaults are estimates, not measured. */
static const struct limit {
    const char *name;
    uint64_t *value, dflt;
    const char *what;
} limits[] = {
    {"GASNET_COLL_PIPE_SEG_SIZE", &gasnetw_coll_limits.pipe_segment, 65536,
     "bytes of a piece in a pipeline"},
    {"GASNET_COLL_BROADCAST_TREE_LIMIT", &gasnetw_coll_limits.broadcast_tree, 131072,
     "bytes up to which a broadcast goes whole through a binomial tree, not in a pipeline"},
    {"GASNET_COLL_SCATTER_TREE_LIMIT", &gasnetw_coll_limits.scatter_tree, 4096,
     "bytes for each image up to which a scatter goes through a tree, not straight"},
    {"GASNET_COLL_GATHER_TREE_LIMIT", &gasnetw_coll_limits.gather_tree, 4096,
     "the same of a gather"},
    {"GASNET_COLL_REDUCE_TREE_LIMIT", &gasnetw_coll_limits.reduce_tree, 131072,
     "bytes up to which a reduction goes whole through a binomial tree, not in a pipeline"},
    {"GASNET_COLL_GATHER_ALL_DISSEM_LIMIT_PER_THREAD", &gasnetw_coll_limits.gather_all_dissem, 4096,
     "bytes of each image up to which gather_all is by dissemination, not round a ring"},
    {"GASNET_COLL_EXCHANGE_DISSEM_LIMIT_PER_THREAD", &gasnetw_coll_limits.exchange_dissem, 512,
     "bytes for each image up to which an exchange is by dissemination, not in pairs"},
};
enum { LIMITS = sizeof limits / sizeof limits[0] };

void gasnetw_coll_limits_read(void)
{
    for (int i = 0; i < LIMITS; i++) {
        uint64_t given = gasnetw_env_size(limits[i].name, 0);
        *limits[i].value = given ? given : limits[i].dflt;
    }
}

static FILE *dump_open(const char *filename, const char *mode, const char *what)
{
    FILE *f = gasnetw_file_open(filename, mode);
    if (!f)
        fprintf(stderr, "%s: %s: %s\n", what, filename, strerror(errno));
    return f;
}

void gasnet_coll_dumpTuningState(char *filename, gasnet_team_handle_t team)
{
    gasnetw_coll_check_team(team, "gasnet_coll_dumpTuningState");
    FILE *f = filename ? dump_open(filename, "w", "gasnet_coll_dumpTuningState") : stderr;
    for (int i = 0; f && i < LIMITS; i++)
        fprintf(f, "%s %llu # %s\n", limits[i].name, (unsigned long long)*limits[i].value,
                limits[i].what);
    if (f && f != stderr)
        fclose(f);
}

static void limit_set(const char *name, unsigned long long value)
{
    for (int i = 0; i < LIMITS; i++)
        if (!strcmp(limits[i].name, name)) {
            *limits[i].value = value ? value : 1;
            return;
        }
    fprintf(stderr, "gasnet_coll_loadTuningState: %s is not known here\n", name);
}

void gasnet_coll_loadTuningState(char *filename, gasnet_team_handle_t team)
{
    char line[256], name[128];
    unsigned long long value;
    gasnetw_coll_check_team(team, "gasnet_coll_loadTuningState");
    FILE *f = filename ? dump_open(filename, "r", "gasnet_coll_loadTuningState") : NULL;
    gasnetw_sched_lock();
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%127s %llu", name, &value) == 2)
            limit_set(name, value);
    gasnetw_sched_unlock();
    if (f)
        fclose(f);
}

void gasnet_coll_dumpProfile(char *filename, gasnet_team_handle_t team)
{
    gasnetw_coll_check_team(team, "gasnet_coll_dumpProfile");
    FILE *f = filename ? dump_open(filename, "w", "gasnet_coll_dumpProfile") : stderr;
    for (int i = 0; f && i < COLL_KINDS; i++)
        fprintf(f, "%s %llu\n", kind_names[i],
                (unsigned long long)atomic_load_explicit(&counts[i], memory_order_relaxed));
    if (f && f != stderr)
        fclose(f);
}

void gasnetw_coll_count(enum gasnetw_coll_kind kind)
{
    atomic_fetch_add_explicit(&counts[kind], 1, memory_order_relaxed);
}
