/* SPDX-License-Identifier: BSD-3-Clause */
/* The PMIx server of `weft run`.
 *
 * Nothing remains, even after SIGKILL, because nothing is created:
 *   - PMIX_MCA_gds=hash: the default stores (ds21, ds12) make a directory and
 *     shared segments in PMIX_SERVER_TMPDIR, which a killed server leaves; the
 *     hash store lives in memory (seen with strace on libpmix 4.2.2);
 *   - no PMIX_SERVER_TMPDIR is set, so no directory is needed; the library then names /tmp to its
 *     clients, and none of them writes there;
 *   - tool support is off: no rendezvous file, and no tool may connect;
 *   - the server is never finalized: there would be nothing for it to remove.
 *
 * Once it serves, libpmix's own messages are discarded: if a rank is killed while something is sent
 * to it, weft run's message is enough, without "ptl_base: Broken pipe". With PMIX_MCA_..._verbose
 * they are printed.
 *
 * The server listens on a TCP port of the loopback interface, where libpmix believes the uid that a
 * client claims. Other users are kept out by the job's name, 128 random bits: a client that does
 * not know it is refused, and only this uid can read it, in a rank's environment.
 *
 * The job's secret, by which ranks authenticate each other across the network, is in the job's data
 * (KEY below): it is sent over that same connection, and is never in an environment or on a command
 * line. */
#define _GNU_SOURCE
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <pmix.h>
#include <pmix_server.h>

#include <weft/weft.h>

extern char **environ;

/* The key that src/job/launch.c gets: 32 bytes, WEFT_KEY_SIZE. */
#define KEY "weft.key"

/* libpmix answers from its own thread, within microseconds. */
#define ANSWER_TIMEOUT_S 10

static struct {
    unsigned nranks;
    int fd;
    int talk_fd; /* where libpmix prints; -1: standard error */
    pmix_nspace_t job;
    char **outer; /* the ranks' environment, without PMIx's additions */
    pthread_mutex_t lock;
    pthread_cond_t answered;
    enum wf_host_state *state; /* [nranks]; under lock, as all that follow */
    bool anyone_opened;
    int aborted; /* rank + 1; 0 none */
    int abort_code;
    char abort_why[256];
} host = {.fd = -1,
          .talk_fd = -1,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .answered = PTHREAD_COND_INITIALIZER};

/* ---- callbacks: on libpmix's thread ---- */

static void note(void)
{
    uint64_t one = 1;
    ssize_t n = write(host.fd, &one, sizeof one); /* fails only when already readable */
    (void)n;
}

static bool is_ours(const pmix_proc_t *proc)
{
    return !strncmp(proc->nspace, host.job, PMIX_MAX_NSLEN) && proc->rank < host.nranks;
}

static pmix_status_t on_connected(const pmix_proc_t *proc, void *object, pmix_info_t info[],
                                  size_t ninfo, pmix_op_cbfunc_t done, void *arg)
{
    (void)object, (void)info, (void)ninfo, (void)done, (void)arg;
    if (!is_ours(proc))
        return PMIX_ERR_NOT_FOUND;
    pthread_mutex_lock(&host.lock);
    host.state[proc->rank] = WF_HOST_OPEN;
    host.anyone_opened = true;
    pthread_mutex_unlock(&host.lock);
    note();
    return PMIX_OPERATION_SUCCEEDED;
}

/* The client's PMIx_Finalize returns after this: so its exit is seen after its state. */
static pmix_status_t on_finalized(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done,
                                  void *arg)
{
    (void)object, (void)done, (void)arg;
    if (!is_ours(proc))
        return PMIX_ERR_NOT_FOUND;
    pthread_mutex_lock(&host.lock);
    host.state[proc->rank] = WF_HOST_CLOSED;
    pthread_mutex_unlock(&host.lock);
    note();
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_abort(const pmix_proc_t *proc, void *object, int status, const char msg[],
                              pmix_proc_t procs[], size_t nprocs, pmix_op_cbfunc_t done, void *arg)
{
    (void)object, (void)procs, (void)nprocs, (void)done, (void)arg;
    if (!is_ours(proc))
        return PMIX_ERR_NOT_FOUND;
    pthread_mutex_lock(&host.lock);
    if (!host.aborted) {
        host.aborted = (int)proc->rank + 1;
        host.abort_code = status;
        snprintf(host.abort_why, sizeof host.abort_why, "%s", msg ? msg : "");
    }
    pthread_mutex_unlock(&host.lock);
    note();
    return PMIX_OPERATION_SUCCEEDED;
}

/* All ranks are on this node, so [data] is complete. */
static pmix_status_t on_fence(const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[],
                              size_t ninfo, char *data, size_t ndata, pmix_modex_cbfunc_t done,
                              void *arg)
{
    (void)procs, (void)nprocs, (void)info, (void)ninfo;
    done(PMIX_SUCCESS, data, ndata, arg, NULL, NULL);
    return PMIX_SUCCESS;
}

static pmix_server_module_t module = {
    .client_connected2 = on_connected,
    .client_finalized = on_finalized,
    .abort = on_abort,
    .fence_nb = on_fence,
};

/* ---- calls that answer through a callback ---- */

struct answer {
    bool here;
    pmix_status_t status;
};

static void on_answer(pmix_status_t status, void *arg)
{
    struct answer *a = arg;
    pthread_mutex_lock(&host.lock);
    a->status = status;
    a->here = true;
    pthread_cond_broadcast(&host.answered);
    pthread_mutex_unlock(&host.lock);
}

/* Wait for the callback of a call that returned [started] and was given [a]. */
static pmix_status_t wait_answer(pmix_status_t started, struct answer *a)
{
    struct timespec end;
    int late = 0;
    if (started == PMIX_OPERATION_SUCCEEDED)
        return PMIX_SUCCESS;
    if (started != PMIX_SUCCESS)
        return started;
    clock_gettime(CLOCK_MONOTONIC, &end); /* the time of day may be set meanwhile */
    end.tv_sec += ANSWER_TIMEOUT_S;
    pthread_mutex_lock(&host.lock);
    while (!a->here && !late)
        late = pthread_cond_clockwait(&host.answered, &host.lock, CLOCK_MONOTONIC, &end);
    started = a->here ? a->status : PMIX_ERR_TIMEOUT;
    pthread_mutex_unlock(&host.lock);
    return started;
}

static int complain(const char *what, pmix_status_t status)
{
    fprintf(stderr, "weft run: PMIx cannot %s: %s\n", what, PMIx_Error_string(status));
    return -1;
}

/* ---- set-up ---- */

/* Copy the environment for the ranks, then adapt it for the server. With an outer launcher's
 * variables this server, and then the ranks, would believe that they belong to that one's job. */
static int prepare_environment(void)
{
    size_t kept = 0, count = 0;
    while (environ[count])
        count++;
    host.outer = calloc(count + 1, sizeof *host.outer);
    for (size_t i = 0; host.outer && i < count; i++)
        if (strncmp(environ[i], "PMIX_", 5) || !strncmp(environ[i], "PMIX_MCA_", 9))
            host.outer[kept++] = environ[i];
    if (!host.outer || clearenv())
        return -1;
    for (size_t i = 0; i < kept; i++)
        if (putenv(host.outer[i]))
            return -1;
    /* libpmix discovers the machine through hwloc, whose plugins would even connect to X11
     * displays. */
    return setenv("HWLOC_COMPONENTS", "linux,stop", 1) || setenv("PMIX_MCA_gds", "hash", 1);
}

/* Have libpmix print to a descriptor of its own, which quieten() redirects later: 4.2.2 reads the
 * variable only once, when it starts. */
static int prepare_talk(void)
{
    char number[12];
    for (char **e = host.outer; *e; e++)
        if (!strncmp(*e, "PMIX_MCA_", 9) && strstr(*e, "_verbose="))
            return 0;
    host.talk_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (host.talk_fd < 0)
        return errno == EBADF ? 0 : -1; /* weft run was started without a standard error */
    snprintf(number, sizeof number, "%d", host.talk_fd);
    return setenv("PMIX_OUTPUT_STDERR_FD", number, 1);
}

static void quieten(void)
{
    int null = host.talk_fd < 0 ? -1 : open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0)
        return;
    dup3(null, host.talk_fd, O_CLOEXEC);
    close(null);
}

static int start_server(void)
{
    bool tools = false;
    pmix_info_t info[2];
    pmix_status_t s;
    PMIX_INFO_LOAD(&info[0], PMIX_SERVER_TOOL_SUPPORT, &tools, PMIX_BOOL);
    PMIX_INFO_LOAD(&info[1], PMIX_SERVER_NSPACE, "weft-run", PMIX_STRING);
    s = PMIx_server_init(&module, info, 2);
    PMIX_INFO_DESTRUCT(&info[0]);
    PMIX_INFO_DESTRUCT(&info[1]);
    return s ? complain("start its server", s) : 0;
}

const char *wf_host_name_job(void)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != sizeof random) {
        fprintf(stderr, "weft run: getrandom: %s\n", strerror(errno));
        return NULL;
    }
    snprintf(host.job, sizeof host.job, "weft-%d-%016" PRIx64 "%016" PRIx64, (int)getpid(),
             random[0], random[1]);
    return host.job;
}

/* "0,1,2"; the caller frees it. */
static char *rank_list(unsigned nranks)
{
    size_t room = (size_t)nranks * 11 + 1, used = 0;
    char *list = malloc(room);
    for (unsigned r = 0; list && r < nranks; r++)
        used += (size_t)snprintf(list + used, room - used, "%s%u", r ? "," : "", r);
    return list;
}

/* The job's data for ranks: the keys of pmix_server.h for a job on one node. */
static pmix_status_t describe_job(const char *ranks, const char *node_map, const char *proc_map)
{
    static const char *const counts[] = {PMIX_JOB_SIZE, PMIX_UNIV_SIZE, PMIX_MAX_PROCS,
                                         PMIX_LOCAL_SIZE, PMIX_NODE_SIZE};
    enum { COUNTS = sizeof counts / sizeof counts[0], INFOS = COUNTS + 5 };
    char secret[WEFT_KEY_SIZE];
    pmix_byte_object_t key = {.bytes = secret, .size = sizeof secret};
    uint32_t n = host.nranks;
    struct answer a = {0};
    pmix_info_t *info;
    pmix_status_t s;
    size_t i;
    if (getrandom(secret, sizeof secret, 0) != sizeof secret)
        return PMIX_ERROR;
    PMIX_INFO_CREATE(info, INFOS);
    if (!info)
        return PMIX_ERR_NOMEM;
    for (i = 0; i < COUNTS; i++)
        PMIX_INFO_LOAD(&info[i], counts[i], &n, PMIX_UINT32);
    PMIX_INFO_LOAD(&info[i++], PMIX_LOCAL_PEERS, ranks, PMIX_STRING);
    PMIX_INFO_LOAD(&info[i++], PMIX_JOBID, host.job, PMIX_STRING);
    PMIX_INFO_LOAD(&info[i++], PMIX_NODE_MAP, node_map, PMIX_REGEX);
    PMIX_INFO_LOAD(&info[i++], PMIX_PROC_MAP, proc_map, PMIX_REGEX);
    PMIX_INFO_LOAD(&info[i++], KEY, &key, PMIX_BYTE_OBJECT);
    explicit_bzero(secret, sizeof secret);
    s = wait_answer(PMIx_server_register_nspace(host.job, (int)n, info, INFOS, on_answer, &a), &a);
    PMIX_INFO_FREE(info, INFOS);
    return s;
}

static int register_job(void)
{
    char name[256] = "localhost", *node_map = NULL, *proc_map = NULL;
    char *ranks = rank_list(host.nranks);
    pmix_status_t s = PMIX_ERR_NOMEM;
    gethostname(name, sizeof name - 1);
    if (ranks)
        s = PMIx_generate_regex(name, &node_map);
    if (!s)
        s = PMIx_generate_ppn(ranks, &proc_map);
    if (!s)
        s = describe_job(ranks, node_map, proc_map);
    free(node_map);
    free(proc_map);
    free(ranks);
    return s ? complain("describe the job", s) : 0;
}

static int register_rank(unsigned rank)
{
    struct answer a = {0};
    pmix_proc_t proc;
    pmix_status_t s;
    PMIX_LOAD_PROCID(&proc, host.job, rank);
    s = PMIx_server_register_client(&proc, getuid(), getgid(), NULL, on_answer, &a);
    s = wait_answer(s, &a);
    return s ? complain("register a rank", s) : 0;
}

int wf_host_open(unsigned nranks)
{
    host.nranks = nranks;
    host.state = calloc(nranks, sizeof *host.state);
    host.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!host.state || host.fd < 0 || prepare_environment() || prepare_talk()) {
        fprintf(stderr, "weft run: cannot start: %s\n", strerror(errno));
        return -1;
    }
    if (start_server() || register_job())
        return -1;
    for (unsigned r = 0; r < nranks; r++)
        if (register_rank(r))
            return -1;
    quieten();
    return 0;
}

char **wf_host_environment(unsigned rank)
{
    char **environment = NULL;
    pmix_proc_t proc;
    pmix_status_t s = PMIX_SUCCESS;
    for (char **e = host.outer; *e && !s; e++)
        PMIX_ARGV_APPEND(s, environment, *e);
    PMIX_LOAD_PROCID(&proc, host.job, rank);
    if (!s)
        s = PMIx_server_setup_fork(&proc, &environment);
    if (!s)
        return environment;
    complain("make a rank's environment", s);
    return NULL;
}

/* ---- for the main thread ---- */

int wf_host_fd(void)
{
    return host.fd;
}

void wf_host_drain(void)
{
    uint64_t count;
    ssize_t n = read(host.fd, &count, sizeof count);
    (void)n;
}

enum wf_host_state wf_host_rank_state(unsigned rank)
{
    enum wf_host_state s;
    pthread_mutex_lock(&host.lock);
    s = host.state[rank];
    pthread_mutex_unlock(&host.lock);
    return s;
}

bool wf_host_anyone_opened(void)
{
    bool yes;
    pthread_mutex_lock(&host.lock);
    yes = host.anyone_opened;
    pthread_mutex_unlock(&host.lock);
    return yes;
}

int wf_host_aborted(int *code, char *why, size_t room)
{
    int rank;
    pthread_mutex_lock(&host.lock);
    rank = host.aborted - 1;
    host.aborted = 0;
    *code = host.abort_code;
    snprintf(why, room, "%s", host.abort_why);
    pthread_mutex_unlock(&host.lock);
    return rank;
}

static void ignore_answer(pmix_status_t status, void *arg)
{
    pmix_info_t *info = arg;
    (void)status;
    PMIX_INFO_FREE(info, 2);
}

/* libpmix ends a fence early (PMIX_ERR_PARTIAL_SUCCESS) when a rank's connection breaks, but not
 * when a rank dies before it connected, nor while a child of the rank still holds the socket (both
 * tried). So every end is announced; the announcement is cached for ranks that connect later.
 * (Deregistering the dead client instead makes the fence hang for ever.) */
void wf_host_tell_ended(unsigned rank, bool failed)
{
    pmix_proc_t proc;
    pmix_info_t *info;
    bool yes = true;
    PMIX_LOAD_PROCID(&proc, host.job, rank);
    PMIX_INFO_CREATE(info, 2);
    if (!info)
        return;
    PMIX_INFO_LOAD(&info[0], PMIX_EVENT_AFFECTED_PROC, &proc, PMIX_PROC);
    PMIX_INFO_LOAD(&info[1], PMIX_EVENT_NON_DEFAULT, &yes, PMIX_BOOL);
    if (PMIx_Notify_event(failed ? PMIX_ERR_PROC_TERM_WO_SYNC : PMIX_EVENT_PROC_TERMINATED, &proc,
                          PMIX_RANGE_LOCAL, info, 2, ignore_answer, info) != PMIX_SUCCESS)
        PMIX_INFO_FREE(info, 2);
}
