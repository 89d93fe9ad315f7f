/* SPDX-License-Identifier: BSD-3-Clause */
/* GASNet's variables. A variable with a meaning here sets a variable of Weft (env_set.c), or is
 * read where it is used. The other known variables are accepted without effect, and
 * GASNET_VERBOSEENV reports that. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "binding.h"

extern char **environ;

/* ---- reading ---- */

char *gasnet_getenv(const char *name)
{
    return name ? getenv(name) : NULL; /* launchers give all nodes their environment */
}

/* Before gasnet_init the binding does not know the rank, so take it from the launcher's variable.
 */
bool gasnetw_env_speaks(void)
{
    const char *rank = getenv("PMIX_RANK");
    return !rank || !strcmp(rank, "0");
}

void gasnetw_env_complain(const char *name, const char *text, const char *want)
{
    if (gasnetw_env_speaks())
        fprintf(stderr, "WARNING: %s=%s is not %s: it is ignored\n", name, text, want);
}

bool gasnetw_env_yes(const char *name, bool dflt)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return dflt;
    if (strchr("yYtT", *text) || !strcasecmp(text, "on") || atoi(text) > 0)
        return true;
    if (strchr("0nNfF", *text) || !strcasecmp(text, "off"))
        return false;
    gasnetw_env_complain(name, text, "yes or no");
    return dflt;
}

double gasnetw_env_number(const char *name, double dflt)
{
    const char *text = getenv(name);
    char *end;
    double value;
    if (!text || !*text)
        return dflt;
    value = strtod(text, &end);
    if (*end || !(value >= 0)) {
        gasnetw_env_complain(name, text, "a number");
        return dflt;
    }
    return value;
}

double gasnetw_env_unit(char letter)
{
    switch (letter) {
    case 'k':
    case 'K': return 1024.0;
    case 'm':
    case 'M': return 1024.0 * 1024;
    case 'g':
    case 'G': return 1024.0 * 1024 * 1024;
    case 't':
    case 'T': return 1024.0 * 1024 * 1024 * 1024;
    default: return 0;
    }
}

bool gasnetw_env_scale(const char *rest, double *value)
{
    if (gasnetw_env_unit(*rest) > 0)
        *value *= gasnetw_env_unit(*rest++);
    return !*rest || ((*rest == 'B' || *rest == 'b') && !rest[1]);
}

/* Reads "0.8" and "5/8" as fractions of [whole], and "16G" as bytes. A bare number above 1 is
 * bytes, too, although GASNet takes some of its variables as megabytes and documents which. */
uint64_t gasnetw_env_size(const char *name, uint64_t whole)
{
    const char *text = getenv(name);
    char *end;
    double value, below = 1;
    if (!text || !*text)
        return 0;
    value = strtod(text, &end);
    if (*end == '/') {
        below = strtod(end + 1, &end);
        value = below > 0 ? value / below : -1;
    }
    if (!gasnetw_env_scale(end, &value) || !(value > 0) || value > 1e18 ||
        (whole && value > 1 && value < 65536) || (below != 1 && value > 1)) {
        gasnetw_env_complain(name, text, "a fraction such as 0.8 or 5/8, or a size such as 512M");
        return 0;
    }
    return (uint64_t)(value <= 1 ? value * (double)whole : value);
}

/* ---- reporting ---- */

static const struct {
    const char *name;   /* "X*": all that begin with X */
    const char *effect; /* null: none */
} known[] = {
    {"GASNET_NETWORKDEPTH_SPACE",
     "bytes of messages under way to a node (WEFT_SHM_PAYLOAD, WEFT_TCP_SEND, WEFT_TCP_SEND_MAX)"},
    {"GASNET_NETWORKDEPTH_TOTAL", "requests under way to all other nodes together"},
    {"GASNET_NETWORKDEPTH", "requests under way to each other node"},
    {"GASNET_PSHM_NETWORK_DEPTH",
     "Mediums that the ring between node-mates holds (WEFT_SHM_PAYLOAD)"},
    {"GASNET_PSHM_NODES", "processes that a program without a launcher starts"},
    {"GASNET_PHYSMEM_MAX", "memory for segments and pinning (WEFT_PINNED)"},
    {"GASNET_PHYSMEM_PINNABLE_RATIO", "memory for pinning (WEFT_PINNED)"},
    {"GASNET_MAX_SEGSIZE", "longest segment"},
    {"GASNET_SEGMENT_RETRY", "try an allocation again that fails"},
    {"GASNET_SUPERNODE_MAXSIZE", "1: node-mates do not share memory; other numbers have no effect"},
    {"GASNET_EXITTIMEOUT", "time in which all leave, seconds"},
    {"GASNET_EXITTIMEOUT_MIN", "least of it"},
    {"GASNET_EXITTIMEOUT_MAX", "most of it"},
    {"GASNET_EXITTIMEOUT_FACTOR", "of it for each node"},
    {"GASNET_VERBOSEENV", "this report"},
    {"GASNET_FREEZE", "wait for a debugger when the job starts"},
    {"GASNET_FREEZE_ON_ERROR", "wait for a debugger after a fatal error"},
    {"GASNET_BACKTRACE", "print the stack after a fatal error"},
    {"GASNET_BACKTRACE_TYPE", "how"},
    {"GASNET_TRACEFILE", "a line for each event"},
    {"GASNET_TRACEMASK",
     "which: A active messages, P puts, G gets, B barriers; H, I, N the program's"},
    {"GASNET_TRACELOCAL", "what GASNETT_TRACE_GET_TRACELOCAL says"},
    {"GASNET_TRACENODES", "which nodes trace"},
    {"GASNET_STATSFILE", "counters when the job ends"},
    {"GASNET_STATSMASK", "which of the program's own lines go there"},
    {"GASNET_STATSNODES", "which nodes write"},
    {"GASNET_MAXIMIZE_RLIMIT*", "which limits gasnett_maximize_rlimits raises"},
    {"GASNET_COLL_PIPE_SEG_SIZE", "bytes of a piece where a collective is a pipeline"},
    {"GASNET_COLL_BROADCAST_TREE_LIMIT", "bytes up to which broadcasts go through a tree"},
    {"GASNET_COLL_SCATTER_TREE_LIMIT", "bytes up to which scatters go through a tree"},
    {"GASNET_COLL_GATHER_TREE_LIMIT", "bytes up to which gathers go through a tree"},
    {"GASNET_COLL_REDUCE_TREE_LIMIT", "bytes up to which reductions go through a tree"},
    {"GASNET_COLL_GATHER_ALL_DISSEM_LIMIT_PER_THREAD", "bytes up to which gather_all disseminates"},
    {"GASNET_COLL_EXCHANGE_DISSEM_LIMIT_PER_THREAD", "bytes up to which exchange disseminates"},
    {"GASNET_BARRIER", "AM...: the lowest node of a machine alone notifies other machines "
                       "(WEFT_BARRIER)"},
    {"GASNET_MAX_THREADS", NULL},
    {"GASNET_NODEMAP_EXACT", NULL},
    {"GASNET_TMPDIR", "folder for the temporary files of gasnetrun_weft (TMPDIR)"},
    {"GASNET_NO_CATCH_SIGNAL", "signals of faults that are not reported"},
    {"GASNET_FREEZE_SIGNAL", "signal at which a node waits for a debugger"},
    {"GASNET_BACKTRACE_SIGNAL", "signal at which a node prints the stack"},
    {"GASNET_FREEZE*", NULL},
    {"GASNET_BACKTRACE_*", NULL},
    {"GASNET_TRACE*", NULL},
    {"GASNET_STATS*", NULL},
    {"GASNET_USE_UDREG", "0: no registration is kept (WEFT_MR_CACHE_COUNT=0)"},
    {"GASNET_GNI_MEMREG", "registrations that are kept (WEFT_MR_CACHE_COUNT)"},
    {"GASNET_GNI_PUT_FMA_RDMA_CUTOVER",
     "longest put that the CPU drives, if that is more (WEFT_RDMA_PUT_COPY)"},
    {"GASNET_GNI_GET_FMA_RDMA_CUTOVER",
     "longest get that the CPU drives, if that is more (WEFT_RDMA_GET_COPY)"},
    {"GASNET_GNI_MEM_CONSISTENCY", "order of the NICs' accesses to memory (WEFT_RDMA_ORDER)"},
    {"GASNET_GNI_BTE_MULTI_CHANNEL", "1: all ports of RDMA devices, 0: one (WEFT_RDMA_RAILS)"},
    {"GASNET_GNI_PUT_BOUNCE_REGISTER_CUTOVER", "longest put that is copied (WEFT_RDMA_PUT_COPY)"},
    {"GASNET_GNI_GET_BOUNCE_REGISTER_CUTOVER", "longest get that is copied (WEFT_RDMA_GET_COPY)"},
    {"GASNET_GNI_BOUNCE_SIZE", "memory for such copies (WEFT_RDMA_COPY_POOL)"},
    {"GASNET_GNI_NUM_PD", "puts and gets under way (WEFT_RDMA_DESCRIPTORS)"},
    {"GASNET_PHYSMEM_NOPROBE", NULL},
    {"GASNET_DOMAIN_COUNT", "endpoints that the threads of a PAR program share (PAR only)"},
    {"GASNET_GNI_PTHREADS_PER_DOMAIN", "threads assigned to one before the next"},
    {"GASNET_AM_DOMAIN_POLL_MASK", "how rarely threads of the others look for messages"},
    {"GASNET_GNI_*", NULL},
    {"GASNET_*", NULL},
    {"PMI_GNI_*", NULL},
    {"PMIRUN_CMD", "the launcher of gasnetrun_weft"},
};

static bool fits(const char *pattern, const char *name, size_t len)
{
    size_t n = strlen(pattern);
    if (pattern[n - 1] == '*')
        return len >= n - 1 && !strncmp(pattern, name, n - 1);
    return n == len && !strncmp(pattern, name, n);
}

static void report(const char *entry)
{
    size_t len = strcspn(entry, "=");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (!fits(known[i].name, entry, len))
            continue;
        fprintf(stderr, "ENV parameter: %s: %s\n", entry,
                known[i].effect ? known[i].effect : "no effect on Weft's transports");
        return;
    }
}

void gasnetw_env_report(void)
{
    if (gasnetw_job.mynode || !gasnetw_env_yes("GASNET_VERBOSEENV", false))
        return;
    fprintf(stderr, "ENV parameter: gasnet_AMMaxMedium() is %zu (WEFT_AM_MAX less %u)\n",
            gasnetw_binding.max_medium, AM_OVERHEAD);
    fprintf(stderr, "ENV parameter: gasnet_getMaxGlobalSegmentSize() is %zu (GASNET_PHYSMEM_MAX)\n",
            (size_t)gasnetw_binding.max_global);
    for (char **e = environ; *e; e++)
        report(*e);
}
