/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "domain.h"
#include "binding.h"
#include "tools.h"
#include "trace.h"

struct gasnet_binding gasnetw_binding;
/* The segments of all nodes before gasnet_attach: none. */
static const struct gasnetw_segment no_segment = {.inlined = &gasnetw_unmapped};
struct gasnetw_job gasnetw_job = {.segments = &no_segment};

/* ---- starting N processes, as GASNet's smp conduit does: GASNET_PSHM_NODES=N ./prog ---- */

static bool has_launcher(void)
{
    return gasnetw_tools_var("PMIX_NAMESPACE") && gasnetw_tools_var("PMIX_RANK");
}

/* Get the path of the weft command that was installed with this library. The library is
 * PREFIX/lib/.../libweft-gasnet.so; the first bin/weft upwards from there is the command. */
static bool beside_library(char *path, size_t size)
{
    Dl_info info;
    char lib[4096], *end;
    if (!dladdr((void *)(uintptr_t)beside_library, &info) || !info.dli_fname ||
        !realpath(info.dli_fname, lib))
        return false;
    while ((end = strrchr(lib, '/')) && end != lib) {
        *end = '\0';
        if ((size_t)snprintf(path, size, "%s/bin/weft", lib) < size && !access(path, X_OK))
            return true;
    }
    return false;
}

static void start_nodes(unsigned long n, int *argc, char ***argv)
{
    char tool[4200], count[24], program[4096];
    ssize_t len = readlink("/proc/thread-self/exe", program, sizeof program - 1);
    char **args = calloc((size_t)*argc + 6, sizeof *args);
    if (len < 0 || !args)
        gasnetw_fatal("gasnet_init: GASNET_PSHM_NODES: cannot start the others: %s",
                      strerror(errno));
    program[len] = '\0';
    snprintf(count, sizeof count, "%lu", n);
    args[0] = (char *)"weft";
    args[1] = (char *)"run";
    args[2] = (char *)"-n";
    args[3] = count;
    args[4] = (char *)"--";
    args[5] = program;
    for (int i = 1; i < *argc; i++)
        args[5 + i] = (*argv)[i];
    (void)unsetenv("GASNET_PSHM_NODES"); /* once */
    fflush(NULL);
    if (beside_library(tool, sizeof tool))
        execv(tool, args);
    execvp("weft", args);
    gasnetw_fatal("gasnet_init: GASNET_PSHM_NODES=%lu: the command weft was not found beside the "
                  "library nor in PATH: add its folder to PATH, or start with weft run -n %lu",
                  n, n);
}

static void start_if_asked(int *argc, char ***argv)
{
    const char *text = gasnetw_tools_var("GASNET_PSHM_NODES");
    unsigned long n;
    char *end;
    if (!text || has_launcher())
        return;
    n = strtoul(text, &end, 10);
    if (end == text || *end || !n || n > 4096)
        gasnetw_fatal("gasnet_init: GASNET_PSHM_NODES=%s: a number of processes, 1 to 4096", text);
    if (n > 1)
        start_nodes(n, argc, argv);
}

/* ---- init ---- */

/* Returns the number of cores in this process's affinity mask. Only the kernel knows the length of
 * the mask (sched_getaffinity(2)). */
static long cores_allowed(void)
{
    for (size_t most = CPU_SETSIZE; most <= (size_t)1 << 20; most *= 2) {
        size_t size = CPU_ALLOC_SIZE(most);
        cpu_set_t *set = CPU_ALLOC(most);
        int failed = !set || sched_getaffinity(0, size, set);
        long cores = failed ? 1 : CPU_COUNT_S(size, set);
        CPU_FREE(set);
        if (!failed || errno != EINVAL)
            return cores;
    }
    return 1;
}

/* Do ranks outnumber cores? A rank that may use one core only was bound to it by a launcher, so
 * then all cores of the machine count. */
static bool is_crowded(void)
{
    long cores = cores_allowed();
    if (cores == 1)
        cores = sysconf(_SC_NPROCESSORS_ONLN);
    return weft_job_local_size(gasnetw_binding.job) > cores;
}

static void open_job(void)
{
    struct weft_job_params params = WEFT_JOB_PARAMS_INIT;
    struct weft_mr_domain domain = WEFT_MR_DOMAIN_INIT;
    enum weft_status s;
    params.flags = gasnetw_binding.mode == MODE_SEQ ? 0 : WEFT_EP_LOCKED;
    params.peer_down = gasnetw_peer_down();
    domain.mode = WEFT_MR_VIRT_ADDR;
    params.mr = gasnetw_binding.segment == SEGMENT_EVERYTHING ? &domain : NULL;
    s = weft_job_open(&params, &gasnetw_binding.job);
    if (s)
        gasnetw_fatal("gasnet_init: %s", weft_status_text(s));
    gasnetw_binding.ep = weft_job_ep(gasnetw_binding.job);
    gasnetw_job.mynode = weft_job_rank(gasnetw_binding.job);
    gasnetw_job.nodes = weft_job_size(gasnetw_binding.job);
    if (gasnetw_job.nodes > GASNET_MAXNODES)
        gasnetw_fatal("gasnet_init: %u nodes: at most %u are possible", gasnetw_job.nodes,
                      GASNET_MAXNODES);
    gasnetw_binding.peers = calloc(gasnetw_job.nodes, sizeof *gasnetw_binding.peers);
    if (!gasnetw_binding.peers)
        gasnetw_fatal("gasnet_init: out of memory for %u nodes", gasnetw_job.nodes);
    for (gasnet_node_t r = 0; r < gasnetw_job.nodes; r++)
        gasnetw_binding.peers[r] = weft_job_peer(gasnetw_binding.job, r);
}

/* What a node publishes about its machine to all nodes. */
struct node_card {
    uint64_t machine;        /* equal for all nodes on one kernel */
    uint64_t pinnable;       /* longest segment that its NICs can pin */
    uint64_t together, each; /* limits of segments: all processes of the machine; one process */
    uint32_t first;          /* lowest rank that shares memory with this rank */
    uint32_t counts;         /* 1: this rank counts its requests (credit.c) */
};

static uint32_t *hosts, *supernodes; /* [nodes]: numbered by first appearance */

static bool is_mate(gasnet_node_t r)
{
    struct weft_path path;
    return r == gasnetw_job.mynode ||
           (gasnetw_binding.segment != SEGMENT_EVERYTHING &&
            weft_path_of(gasnetw_binding.peers[r], WEFT_OP_AM, NULL, 8, &path) == WEFT_OK &&
            strcmp(path.transport, "shm") == 0);
}

/* Returns the FNV-1a hash of the kernel's boot id, or of the host's name if there is no boot id. */
static uint64_t machine_of_node(void)
{
    char text[512] = "";
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    FILE *f = gasnetw_file_open("/proc/sys/kernel/random/boot_id", "r");
    if (f) {
        if (!fgets(text, 64, f))
            text[0] = '\0';
        fclose(f);
    }
    if (!*text && gethostname(text, sizeof text - 1)) /* without /proc */
        text[0] = '\0';
    for (const char *c = text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    return hash;
}

static int by_machine(const void *a, const void *b, void *arg)
{
    const struct node_card *cards = arg;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (cards[x].machine != cards[y].machine)
        return cards[x].machine < cards[y].machine ? -1 : 1;
    return (x > y) - (x < y);
}

static uint32_t run_of(const struct node_card *cards, const uint32_t *order, uint32_t i)
{
    uint32_t n = 1;
    while (i + n < gasnetw_job.nodes && cards[order[i + n]].machine == cards[order[i]].machine)
        n++;
    return n;
}

/* Set hosts[r] to the lowest rank of r's machine; number_them then replaces that rank by a number.
 * Set max_local to this rank's share of its machine's limit, and max_global to the smallest share
 * of all ranks. */
static void find_machines(const struct node_card *cards, uint32_t *order)
{
    gasnetw_binding.max_global = UINTPTR_MAX;
    for (uint32_t r = 0; r < gasnetw_job.nodes; r++)
        order[r] = r;
    qsort_r(order, gasnetw_job.nodes, sizeof *order, by_machine, (void *)(uintptr_t)cards);
    for (uint32_t i = 0, n; i < gasnetw_job.nodes; i += n) {
        n = run_of(cards, order, i);
        for (uint32_t k = i; k < i + n; k++) {
            const struct node_card *c = &cards[order[k]];
            uint64_t most = c->each < c->pinnable ? c->each : c->pinnable;
            uintptr_t share = gasnetw_segment_share(c->together, most, n);
            hosts[order[k]] = order[i];
            if (order[k] == gasnetw_job.mynode)
                gasnetw_binding.max_local = share;
            if (share < gasnetw_binding.max_global)
                gasnetw_binding.max_global = share;
        }
    }
}

/* Replace each lowest rank in [of] by a number, in the order of first appearance. */
static void number_them(uint32_t *of)
{
    uint32_t next = 0;
    for (gasnet_node_t r = 0; r < gasnetw_job.nodes; r++)
        of[r] = of[r] < r ? of[of[r]] : next++;
}

/* Agree with all nodes on the smallest limit and on which nodes share memory. No node sends
 * messages before all nodes are here. */
static void agree(void)
{
    struct node_card mine = {.machine = machine_of_node()};
    struct node_card *cards = calloc(gasnetw_job.nodes, sizeof *cards);
    uint32_t *order = calloc(gasnetw_job.nodes, sizeof *order);
    enum weft_status s;
    hosts = calloc(gasnetw_job.nodes, sizeof *hosts);
    supernodes = calloc(gasnetw_job.nodes, sizeof *supernodes);
    if (!cards || !order || !hosts || !supernodes)
        gasnetw_fatal("gasnet_init: out of memory for %u nodes", gasnetw_job.nodes);
    gasnetw_segment_limits(&mine.together, &mine.each);
    mine.pinnable = gasnetw_segment_pinnable();
    mine.counts = gasnetw_credit_open();
    gasnetw_reply_open();
    while (!is_mate(mine.first))
        mine.first++;
    s = weft_job_allgather(gasnetw_binding.job, &mine, sizeof mine, cards);
    if (s)
        gasnetw_fatal("gasnet_init: %s", weft_status_text(s));
    find_machines(cards, order);
    for (gasnet_node_t r = 0; r < gasnetw_job.nodes; r++)
        if (cards[r].counts)
            gasnetw_credit_agree(r);
    for (gasnet_node_t r = 0; r < gasnetw_job.nodes; r++)
        supernodes[r] = cards[r].first;
    number_them(hosts);
    number_them(supernodes);
    free(order);
    free(cards);
}

int gasnetw_init(int *argc, char ***argv, int mode, int segment)
{
    if (gasnetw_binding.job)
        gasnetw_fatal("gasnet_init has been called before: once is all");
    gasnetw_binding.mode = mode & 3;
    gasnetw_binding.debug = mode & GASNETW_MODE_DEBUG;
    gasnetw_binding.segment = segment;
    if (argc && argv)
        start_if_asked(argc, argv);
    gasnetw_env_before();
    open_job();
    gasnetw_binding.crowded = is_crowded();
    gasnetw_binding.across = weft_job_local_size(gasnetw_binding.job) != gasnetw_job.nodes;
    gasnetw_tools_rank_ = (int)gasnetw_job.mynode;
    gasnetw_tools_started();
    gasnetw_signals_open();
    if (gasnetw_env_yes("GASNET_FREEZE", false))
        gasnett_freezeForDebuggerNow(&gasnetw_tools_frozen, "gasnetw_tools_frozen");
    gasnetw_domains_configure();
    gasnetw_trace_open();
    gasnetw_am_open();
    gasnetw_leave_open();
    agree();
    gasnetw_env_report();
    return GASNET_OK;
}

uintptr_t gasnet_getMaxLocalSegmentSize(void)
{
    return gasnetw_binding.max_local;
}

uintptr_t gasnet_getMaxGlobalSegmentSize(void)
{
    return gasnetw_binding.max_global;
}

/* ---- nodes ---- */

int gasnet_getNodeInfo(gasnet_nodeinfo_t *table, int numentries)
{
    if (!gasnetw_binding.job)
        return GASNET_ERR_NOT_INIT;
    if (numentries < 0 || (numentries && !table))
        return GASNET_ERR_BAD_ARG;
    for (gasnet_node_t r = 0; r < gasnetw_job.nodes && r < (gasnet_node_t)numentries; r++) {
        table[r].host = hosts[r];
        table[r].supernode = supernodes[r];
        table[r].offset = gasnetw_segment_offset(r);
    }
    return GASNET_OK;
}

/* ---- errors ---- */

static const struct {
    int value;
    const char *name, *desc;
} errors[] = {
    {GASNET_OK, "GASNET_OK", "No error"},
    {GASNET_ERR_NOT_INIT, "GASNET_ERR_NOT_INIT", "The job has not been joined or attached"},
    {GASNET_ERR_BAD_ARG, "GASNET_ERR_BAD_ARG", "An argument is not valid"},
    {GASNET_ERR_RESOURCE, "GASNET_ERR_RESOURCE", "A resource was not to be had"},
    {GASNET_ERR_NOT_READY, "GASNET_ERR_NOT_READY", "The operation has not completed"},
    {GASNET_ERR_BARRIER_MISMATCH, "GASNET_ERR_BARRIER_MISMATCH", "Names at a barrier differ"},
};

const char *gasnet_ErrorName(int errval)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].value == errval)
            return errors[i].name;
    return "*unknown*";
}

const char *gasnet_ErrorDesc(int errval)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].value == errval)
            return errors[i].desc;
    return "no description";
}

int gasnet_set_waitmode(int wait_mode)
{
    if (wait_mode < GASNET_WAIT_SPIN || wait_mode > GASNET_WAIT_SPINBLOCK)
        return GASNET_ERR_BAD_ARG;
    gasnetw_binding.crowded =
        wait_mode == GASNET_WAIT_BLOCK || (wait_mode != GASNET_WAIT_SPIN && is_crowded());
    return GASNET_OK;
}
