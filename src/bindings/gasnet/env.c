/* SPDX-License-Identifier: BSD-3-Clause */
/* GASNet's variables. A variable with a meaning here sets a variable of Weft, or is read where it
 * is used. The other known variables are accepted without effect, and GASNET_VERBOSEENV reports
 * that. */
#include <ctype.h>
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

/* Should this process report? Only rank 0 does. Before gasnet_init the binding does not know the
 * rank, so take it from the launcher's variable. */
static bool speaks(void)
{
    const char *rank = getenv("PMIX_RANK");
    return !rank || !strcmp(rank, "0");
}

void gasnetw_env_complain(const char *name, const char *text, const char *want)
{
    if (speaks())
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

static double unit_of(char letter)
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
    if (unit_of(*end) > 0)
        value *= unit_of(*end++);
    if (*end == 'B' || *end == 'b')
        end++;
    if (*end || !(value > 0) || value > 1e18 || (whole && value > 1 && value < 65536) ||
        (below != 1 && value > 1)) {
        gasnetw_env_complain(name, text, "a fraction such as 0.8 or 5/8, or a size such as 512M");
        return 0;
    }
    return (uint64_t)(value <= 1 ? value * (double)whole : value);
}

/* ---- setting Weft's variables ---- */

#define MEDIUM 4032u
#define MEDIUM_MIN 512u
#define AM_MAX_MOST 32704u /* of WEFT_AM_MAX: weft(3) */

static void set_if_free(const char *name, const char *text)
{
    if (!getenv(name))
        (void)setenv(name, text, 1);
}

static void set_number(const char *name, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    set_if_free(name, text);
}

/* Set how many bytes may be in flight through shared memory to one node. GASNet's variable counts
 * the longest Mediums, or bytes. Weft needs room for four Mediums, and GASNet allows 2 to 64: other
 * values are adjusted. */
static void set_payload(void)
{
    uint64_t space = gasnetw_env_size("GASNET_NETWORKDEPTH_SPACE", 0), size = 4096, want,
             depth = (uint64_t)gasnetw_env_number("GASNET_PSHM_NETWORK_DEPTH", 0),
             one = MEDIUM + AM_OVERHEAD;
    if (!depth && !space)
        return;
    want = depth ? depth * one : space;
    if (want < 4 * one || want > 64 * one) {
        if (speaks())
            fprintf(stderr,
                    "WARNING: GASNET_%s is adjusted: room for 4 to 64 Mediums is possible\n",
                    depth ? "PSHM_NETWORK_DEPTH" : "NETWORKDEPTH_SPACE");
        want = want < 4 * one ? 4 * one : 64 * one;
    }
    while (size < want)
        size *= 2;
    set_number("WEFT_SHM_PAYLOAD", size);
}

static void set_pinned(void)
{
    uint64_t bytes = gasnetw_env_size("GASNET_PHYSMEM_MAX", gasnetw_memory_of_node());
    if (!bytes)
        bytes = gasnetw_env_size("GASNET_PHYSMEM_PINNABLE_RATIO", gasnetw_memory_of_node());
    if (bytes)
        set_number("WEFT_PINNED", bytes);
}

/* Give Weft the values of the conduit's variables for transfers by the NICs. A value out of the
 * conduit's range is adjusted, and reported. */
static void set_rdma(void)
{
    static const struct {
        const char *name, *weft;
        uint64_t least, most;
    } rows[] = {
        {"GASNET_GNI_PUT_BOUNCE_REGISTER_CUTOVER", "WEFT_RDMA_PUT_COPY", 4096, 32768},
        {"GASNET_GNI_GET_BOUNCE_REGISTER_CUTOVER", "WEFT_RDMA_GET_COPY", 4096, 32768},
        {"GASNET_GNI_BOUNCE_SIZE", "WEFT_RDMA_COPY_POOL", 65536, 1073741824},
        {"GASNET_GNI_NUM_PD", "WEFT_RDMA_DESCRIPTORS", 32, 65536},
        {"GASNET_GNI_MEMREG", "WEFT_MR_CACHE_COUNT", 16, UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t value = gasnetw_env_size(rows[i].name, 0), fit = value;
        if (!value)
            continue;
        fit = fit < rows[i].least ? rows[i].least : fit > rows[i].most ? rows[i].most : fit;
        if (fit != value && speaks())
            fprintf(stderr,
                    "WARNING: %s=%s is adjusted to %" PRIu64 ": %" PRIu64 " to %" PRIu64
                    " are possible\n",
                    rows[i].name, getenv(rows[i].name), fit, rows[i].least, rows[i].most);
        set_number(rows[i].weft, fit);
    }
    if (!gasnetw_env_yes("GASNET_USE_UDREG", true))
        set_if_free("WEFT_MR_CACHE_COUNT", "0");
}

/* GASNet names algorithms. Those by active messages have the conduit's one leader of each node. */
static void set_barrier(void)
{
    static const char *const leaders[] = {"AMDISSEM", "AMCENTRAL"};
    static const char *const ranks[] = {"RDMADISSEM", "GNIDISSEM", "DISSEM", "DEFAULT"};
    const char *text = getenv("GASNET_BARRIER");
    if (!text || !*text)
        return;
    for (size_t i = 0; i < sizeof leaders / sizeof leaders[0]; i++)
        if (!strcasecmp(text, leaders[i])) {
            set_if_free("WEFT_BARRIER", "leaders");
            return;
        }
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++)
        if (!strcasecmp(text, ranks[i]))
            return;
    gasnetw_env_complain("GASNET_BARRIER", text, "RDMADISSEM, DISSEM, AMDISSEM or AMCENTRAL");
}

/* Node-mates are reached as other nodes are: by all transports but shared memory. */
static void part_mates(void)
{
    char text[256], *end = text, *word, *rest = NULL;
    const char *have = getenv("WEFT_TRANSPORTS");
    snprintf(text, sizeof text, "%s", have && *have ? have : "loop,shm,rdma,tcp");
    have = strdup(text);
    if (!have)
        return;
    for (word = strtok_r((char *)(uintptr_t)have, ",", &rest); word;
         word = strtok_r(NULL, ",", &rest))
        if (strcmp(word, "shm") != 0)
            end += snprintf(end, sizeof text - (size_t)(end - text), "%s%s", end == text ? "" : ",",
                            word);
    free((void *)(uintptr_t)have);
    if (end != text)
        (void)setenv("WEFT_TRANSPORTS", text, 1);
}

/* Returns the number of bytes that [text] says to Weft: digits, then K, M, G or T, then B or iB.
 * Returns 0 if [text] is no such number, or far too long for a message. */
static uint64_t bytes_of(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 0), unit = (uint64_t)unit_of(*end);
    if (unit)
        end++;
    if (!isdigit((unsigned char)*text) || value > UINT32_MAX)
        return 0;
    return *end && strcasecmp(end, "B") && strcasecmp(end, "iB") ? 0 : value * (unit ? unit : 1);
}

/* Set the longest Medium. GASNet promises at least 512 bytes. Weft would refuse to start with a
 * WEFT_AM_MAX beyond its own limits. */
static void set_medium(void)
{
    const char *text = getenv("WEFT_AM_MAX");
    uint64_t bytes = text ? bytes_of(text) : 0;
    if (text && (bytes < MEDIUM_MIN + AM_OVERHEAD || bytes > AM_MAX_MOST)) {
        if (*text)
            gasnetw_env_complain(
                "WEFT_AM_MAX", text,
                "640 to 32704 bytes, such as 4160 or 8K (640: a Medium of 512 bytes)");
        (void)unsetenv("WEFT_AM_MAX");
    }
    set_number("WEFT_AM_MAX", MEDIUM + AM_OVERHEAD);
}

void gasnetw_env_before(void)
{
    set_medium();
    set_payload();
    set_pinned();
    set_rdma();
    set_barrier();
    if (gasnetw_env_number("GASNET_SUPERNODE_MAXSIZE", 0) == 1)
        part_mates();
}

/* ---- reporting ---- */

static const struct {
    const char *name;   /* "X*": all that begin with X */
    const char *effect; /* null: none */
} known[] = {
    {"GASNET_NETWORKDEPTH_SPACE", "space of the ring between node-mates (WEFT_SHM_PAYLOAD)"},
    {"GASNET_NETWORKDEPTH_TOTAL", NULL},
    {"GASNET_NETWORKDEPTH", NULL},
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
    {"GASNET_TMPDIR", NULL},
    {"GASNET_NO_CATCH_SIGNAL", "signals of faults that are not reported"},
    {"GASNET_FREEZE_SIGNAL", "signal at which a node waits for a debugger"},
    {"GASNET_BACKTRACE_SIGNAL", "signal at which a node prints the stack"},
    {"GASNET_FREEZE*", NULL},
    {"GASNET_BACKTRACE_*", NULL},
    {"GASNET_TRACE*", NULL},
    {"GASNET_STATS*", NULL},
    {"GASNET_USE_UDREG", "0: no registration is kept (WEFT_MR_CACHE_COUNT=0)"},
    {"GASNET_GNI_MEMREG", "registrations that are kept (WEFT_MR_CACHE_COUNT)"},
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
    for (char **e = environ; *e; e++)
        report(*e);
}
