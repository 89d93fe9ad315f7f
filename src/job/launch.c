/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "job/launch.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <pmix.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/util.h"
#include "config/config.h"

#define CARD_KEY "weft.card"
#define SECRET_KEY "weft.key"           /* from the launcher */
#define SHARED_SECRET_KEY "weft.secret" /* from rank 0 */
#define ABORT_NS 2000000000u

#define RETRY_NS 1000000

/* The events by which launchers report the end of a rank. The first three report a failure: `weft
 * run` sends the first of them, PRRTE any of the three. The last event reports that a rank ended
 * normally. */
static pmix_status_t end_events[] = {PMIX_ERR_PROC_TERM_WO_SYNC, PMIX_ERR_PROC_ABORTED_BY_SIG,
                                     PMIX_ERR_EXIT_NONZERO_TERM, PMIX_EVENT_PROC_TERMINATED};
enum { RANK_HERE, RANK_ENDED, RANK_FAILED };

struct wf_launch_mine {
    pmix_proc_t self;
    size_t event_ref;
    uint32_t rank, size;
    bool one_node, has_secret;
    unsigned char secret[WF_SECRET];
    enum weft_status status;         /* of the last call, which may still run */
    bool running;                    /* under lock */
    uint64_t deadline_ns;            /* of that call */
    _Atomic unsigned failures, ends; /* ranks that failed; ranks that ended or failed */
    _Atomic unsigned char *fate;     /* [size] of RANK_*; NULL until the size is known */
    struct wf_card *cards;           /* [size] */
    unsigned char card[WF_CARD_MAX];
    size_t card_len;
    int abort_code;
    char abort_why[256];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change; /* with lock: a call or a rank ended */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct wf_launch_mine *_Atomic current; /* for the event handler */
static bool stuck;                             /* under lock */

static void init_change(void)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&change, &attr);
    pthread_condattr_destroy(&attr);
}

/* ---- fork ---- */

static struct wf_fork_item fork_item;

/* Another thread of the parent may have held the lock, or waited for a change: the child does not
 * have it. [stuck] stays: libpmix may wait for a lock of its own for ever. */
static void fork_child(struct wf_fork_item *item)
{
    (void)item;
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    init_change();
}

static const struct wf_fork_ops fork_ops = {
    .level = WF_FORK_TRANSPORT, .stays = true, .child = fork_child};

/* ---- bounded calls ---- */

struct launch_call {
    enum weft_status (*fn)(struct wf_launch_mine *m);
    struct wf_launch_mine *m;
};

static void *call_thread(void *arg)
{
    struct launch_call call = *(struct launch_call *)arg;
    enum weft_status status;
    free(arg);
    status = call.fn(call.m);
    pthread_mutex_lock(&lock);
    call.m->status = status;
    call.m->running = false;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static int start_thread(struct launch_call *call)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    int error;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, &attr, call_thread, call);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return error;
}

static enum weft_status wait_call(struct wf_launch_mine *m, bool ends_too)
{
    const struct timespec end = {.tv_sec = (time_t)(m->deadline_ns / 1000000000u),
                                 .tv_nsec = (long)(m->deadline_ns % 1000000000u)};
    enum weft_status status;
    int late = 0;
    pthread_mutex_lock(&lock);
    while (m->running && !late && !(ends_too && atomic_load(&m->ends)))
        late = pthread_cond_timedwait(&change, &lock, &end);
    stuck = m->running;
    status = !m->running ? m->status : late ? WEFT_ETIMEDOUT : WEFT_EPEER;
    pthread_mutex_unlock(&lock);
    return status;
}

static bool is_stuck(void)
{
    bool yes;
    pthread_mutex_lock(&lock);
    yes = stuck;
    pthread_mutex_unlock(&lock);
    return yes;
}

static void set_running(struct wf_launch_mine *m, bool running)
{
    pthread_mutex_lock(&lock);
    m->running = running;
    pthread_mutex_unlock(&lock);
}

/* Run [fn] on a new thread, and wait until [fn] returns or the deadline has passed. If [ends_too]
 * is true, stop waiting also when a rank ends.
 * Returns what [fn] returned | ETIMEDOUT | EPEER (a rank ended) | ENOMEM | ESYSTEM */
static enum weft_status call_bounded(struct wf_launch_mine *m,
                                     enum weft_status (*fn)(struct wf_launch_mine *m),
                                     uint64_t deadline_ns, bool ends_too)
{
    struct launch_call *call = malloc(sizeof *call);
    int error;
    if (!call)
        return WEFT_ENOMEM;
    *call = (struct launch_call){fn, m};
    m->deadline_ns = deadline_ns;
    set_running(m, true);
    error = start_thread(call);
    if (error) {
        wf_error("cannot start a thread: %s (ulimit -u, or the cgroup's pids.max)",
                 strerror(error));
        set_running(m, false);
        free(call);
        return WEFT_ESYSTEM;
    }
    return wait_call(m, ends_too);
}

static enum weft_status complain(const char *what, pmix_status_t s)
{
    wf_error("PMIx cannot %s: %s", what, PMIx_Error_string(s));
    return s == PMIX_ERR_NOMEM ? WEFT_ENOMEM : WEFT_ESYSTEM;
}

/* ---- ends of ranks: events on libpmix's thread ---- */

static void note_end(struct wf_launch_mine *m, const pmix_proc_t *proc, bool failed)
{
    unsigned char fate = failed ? RANK_FAILED : RANK_ENDED;
    if (strncmp(proc->nspace, m->self.nspace, PMIX_MAX_NSLEN) || proc->rank >= m->size ||
        proc->rank == m->rank || atomic_exchange(&m->fate[proc->rank], fate) == fate)
        return;
    wf_info("the launcher reports that rank %u %s", proc->rank, failed ? "failed" : "ended");
    pthread_mutex_lock(&lock);
    atomic_fetch_add(&m->ends, 1);
    if (failed)
        atomic_fetch_add(&m->failures, 1);
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

/* [source] is not used. libpmix 4.2.2 replays past events to a process that registers late, and
 * names that process as their source (seen in a trial). */
static void on_event(size_t ref, pmix_status_t status, const pmix_proc_t *source,
                     pmix_info_t info[], size_t ninfo, pmix_info_t results[], size_t nresults,
                     pmix_event_notification_cbfunc_fn_t done, void *arg)
{
    struct wf_launch_mine *m = atomic_load(&current);
    (void)ref, (void)source, (void)results, (void)nresults;
    for (size_t i = 0; m && i < ninfo; i++)
        if (PMIX_CHECK_KEY(&info[i], PMIX_EVENT_AFFECTED_PROC) && info[i].value.type == PMIX_PROC &&
            info[i].value.data.proc)
            note_end(m, info[i].value.data.proc, status != PMIX_EVENT_PROC_TERMINATED);
    if (done)
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, arg);
}

/* ---- joining ---- */

/* Get a value that came with the job's data. PMIX_OPTIONAL makes libpmix send no request to the
 * launcher's servers. */
static pmix_status_t get_optional(const pmix_proc_t *proc, const char *key, pmix_value_t **value)
{
    pmix_info_t info;
    pmix_status_t s;
    bool yes = true;
    PMIX_INFO_LOAD(&info, PMIX_OPTIONAL, &yes, PMIX_BOOL);
    s = PMIx_Get(proc, key, &info, 1, value);
    PMIX_INFO_DESTRUCT(&info);
    return s;
}

static enum weft_status get_count(const pmix_proc_t *proc, const char *key, uint32_t *out)
{
    pmix_value_t *value = NULL;
    pmix_status_t s = PMIx_Get(proc, key, NULL, 0, &value);
    enum weft_status status = WEFT_OK;
    if (s)
        return complain("get the job's size", s);
    if (value->type == PMIX_UINT32 && value->data.uint32 > 0 && value->data.uint32 < INT32_MAX) {
        *out = value->data.uint32;
    } else {
        wf_error("the launcher's value of %s is not a number of processes", key);
        status = WEFT_EPROTO;
    }
    PMIX_VALUE_RELEASE(value);
    return status;
}

static bool is_one_node(const struct wf_launch_mine *m, const pmix_proc_t *job)
{
    pmix_value_t *value = NULL;
    bool yes;
    if (get_optional(job, PMIX_LOCAL_SIZE, &value))
        return false;
    yes = value->type == PMIX_UINT32 && value->data.uint32 == m->size;
    PMIX_VALUE_RELEASE(value);
    return yes;
}

static enum weft_status take_secret(struct wf_launch_mine *m, pmix_value_t *value)
{
    if (value->type != PMIX_BYTE_OBJECT || !value->data.bo.bytes ||
        value->data.bo.size != WF_SECRET) {
        wf_error("the job's secret has not %d bytes", WF_SECRET);
        return WEFT_EPROTO;
    }
    memcpy(m->secret, value->data.bo.bytes, WF_SECRET);
    explicit_bzero(value->data.bo.bytes, WF_SECRET);
    return WEFT_OK;
}

/* Get the job's secret, if the launcher gave one. Only `weft run` does: SECRET_KEY is a key of
 * Weft, not of PMIx. */
static enum weft_status get_secret(struct wf_launch_mine *m, const pmix_proc_t *job)
{
    pmix_value_t *value = NULL;
    enum weft_status status;
    if (get_optional(job, SECRET_KEY, &value))
        return WEFT_OK;
    status = take_secret(m, value);
    PMIX_VALUE_RELEASE(value);
    m->has_secret = status == WEFT_OK;
    return status;
}

static enum weft_status client_open(struct wf_launch_mine *m)
{
    struct wf_fd_floor floor;
    pmix_proc_t job;
    enum weft_status status;
    pmix_status_t s;
    wf_fd_floor_hold(&floor);
    s = PMIx_Init(&m->self, NULL, 0);
    wf_fd_floor_drop(&floor);
    if (s)
        return complain("reach the launcher", s);
    PMIX_LOAD_PROCID(&job, m->self.nspace, PMIX_RANK_WILDCARD);
    m->rank = m->self.rank;
    status = get_count(&job, PMIX_JOB_SIZE, &m->size);
    if (!status && m->rank >= m->size)
        status = WEFT_EPROTO;
    if (!status)
        status = get_secret(m, &job);
    if (status)
        goto finalize;
    m->one_node = is_one_node(m, &job);
    m->fate = calloc(m->size, sizeof *m->fate);
    m->cards = calloc(m->size, sizeof *m->cards);
    status = WEFT_ENOMEM;
    if (!m->fate || !m->cards)
        goto finalize;
    atomic_store(&current, m);
    /* Without a callback the call blocks, and returns the number of the handler or an error. */
    s = PMIx_Register_event_handler(end_events, WF_ARRAY_LEN(end_events), NULL, 0, on_event, NULL,
                                    NULL);
    if (s < 0)
        wf_info("the launcher does not report when a rank ends: %s", PMIx_Error_string(s));
    m->event_ref = s < 0 ? SIZE_MAX : (size_t)s;
    return WEFT_OK;
finalize:
    PMIx_Finalize(NULL, 0);
    return status;
}

bool wf_launch_present(void)
{
    return wf_config_launcher("PMIX_NAMESPACE") && wf_config_launcher("PMIX_RANK");
}

static void free_mine(struct wf_launch *launch)
{
    struct wf_launch_mine *m = launch->mine;
    launch->mine = NULL;
    if (!m || is_stuck()) /* a thread that has not returned still uses m */
        return;
    free((void *)m->fate);
    free(m->cards);
    explicit_bzero(m, sizeof *m);
    free(m);
}

enum weft_status wf_launch_open(struct wf_launch *launch, uint64_t deadline_ns)
{
    enum weft_status status;
    pthread_once(&once, init_change);
    wf_fork_join(&fork_item, &fork_ops);
    if (is_stuck()) {
        wf_error("an earlier call to the launcher has not returned: no job can be opened any more");
        return WEFT_EBUSY;
    }
    *launch = (struct wf_launch){.mine = calloc(1, sizeof *launch->mine)};
    if (!launch->mine)
        return WEFT_ENOMEM;
    status = call_bounded(launch->mine, client_open, deadline_ns, false);
    if (status) {
        if (status == WEFT_ETIMEDOUT)
            wf_error("the launcher does not answer (WEFT_JOB_TIMEOUT): is it stopped?");
        free_mine(launch);
        return status;
    }
    launch->rank = launch->mine->rank;
    launch->size = launch->mine->size;
    launch->one_node = launch->mine->one_node;
    launch->has_secret = launch->mine->has_secret;
    memcpy(launch->secret, launch->mine->secret, sizeof launch->secret);
    explicit_bzero(launch->mine->secret, WF_SECRET);
    return WEFT_OK;
}

/* ---- exchange ---- */

/* Whether ranks share a secret first, and so what each has published, follows from their
 * configuration. For a rank of this node the launcher's server waits, then reports a timeout. */
static enum weft_status complain_of_get(uint32_t rank, const char *what, pmix_status_t s)
{
    if (s != PMIX_ERR_NOT_FOUND && s != PMIX_ERR_TIMEOUT)
        return complain(what, s);
    wf_error("rank %u has not published what this rank expects: give all ranks the same "
             "WEFT_NODE and WEFT_TRANSPORTS",
             rank);
    return WEFT_EPROTO;
}

static enum weft_status publish(const char *key, void *bytes, size_t len, const char *what)
{
    pmix_value_t value;
    pmix_status_t s;
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = bytes;
    value.data.bo.size = len;
    s = PMIx_Put(PMIX_GLOBAL, key, &value); /* copies */
    if (!s)
        s = PMIx_Commit();
    return s ? complain(what, s) : WEFT_OK;
}

static pmix_status_t fence(void)
{
    pmix_info_t info;
    pmix_status_t s;
    bool yes = true;
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    s = PMIx_Fence(NULL, 0, &info, 1);
    PMIX_INFO_DESTRUCT(&info);
    return s;
}

/* Wait in a PMIx fence for all ranks. A fence ends with PARTIAL_SUCCESS when the connection of a
 * rank breaks. That rank may be leaving an earlier job of the same processes, and join again soon.
 * So the ranks repeat the fence until a fence ends with all ranks in it, the launcher reports that
 * a rank has ended, or the deadline passes. */
static enum weft_status wait_for_all(struct wf_launch_mine *m)
{
    const struct timespec pause = {.tv_nsec = RETRY_NS};
    pmix_status_t s = fence();
    while (s == PMIX_ERR_PARTIAL_SUCCESS && !atomic_load(&m->ends) &&
           wf_now_ns() < m->deadline_ns) {
        nanosleep(&pause, NULL);
        s = fence();
    }
    if (s == PMIX_ERR_PARTIAL_SUCCESS || s == PMIX_ERR_LOST_CONNECTION)
        return WEFT_EPEER;
    return s ? complain("wait for the other ranks", s) : WEFT_OK;
}

static enum weft_status get_card(struct wf_launch_mine *m, uint32_t rank)
{
    pmix_value_t *value = NULL;
    enum weft_status status = WEFT_EPROTO;
    pmix_proc_t proc;
    pmix_status_t s;
    PMIX_LOAD_PROCID(&proc, m->self.nspace, rank);
    s = PMIx_Get(&proc, CARD_KEY, NULL, 0, &value);
    if (s)
        return complain_of_get(rank, "get a rank's address", s);
    if (value->type == PMIX_BYTE_OBJECT && value->data.bo.bytes)
        status = wf_card_parse(value->data.bo.bytes, value->data.bo.size, &m->cards[rank]);
    PMIX_VALUE_RELEASE(value);
    if (status == WEFT_EVERSION)
        wf_error("rank %u runs another version of Weft", rank);
    else if (status)
        wf_error("the address that rank %u published is not from Weft, or damaged", rank);
    return status;
}

static enum weft_status draw_secret(struct wf_launch_mine *m)
{
    enum weft_status status = wf_card_draw_secret(m->secret);
    return status ? status
                  : publish(SHARED_SECRET_KEY, m->secret, WF_SECRET, "publish the job's secret");
}

static enum weft_status get_shared_secret(struct wf_launch_mine *m)
{
    pmix_proc_t first;
    pmix_value_t *value = NULL;
    enum weft_status status;
    pmix_status_t s;
    PMIX_LOAD_PROCID(&first, m->self.nspace, 0);
    s = PMIx_Get(&first, SHARED_SECRET_KEY, NULL, 0, &value);
    if (s)
        return complain_of_get(0, "get the job's secret", s);
    status = take_secret(m, value);
    PMIX_VALUE_RELEASE(value);
    return status;
}

static enum weft_status share_secret(struct wf_launch_mine *m)
{
    enum weft_status status = m->rank ? WEFT_OK : draw_secret(m);
    if (!status)
        status = wait_for_all(m);
    if (!status && m->rank)
        status = get_shared_secret(m);
    return status;
}

static enum weft_status exchange_cards(struct wf_launch_mine *m)
{
    enum weft_status status =
        publish(CARD_KEY, m->card, m->card_len, "publish this rank's address");
    if (!status)
        status = wait_for_all(m);
    for (uint32_t r = 0; !status && r < m->size; r++)
        status = get_card(m, r);
    return status;
}

static void explain_exchange(const struct wf_launch *launch, enum weft_status status)
{
    if (status == WEFT_ETIMEDOUT)
        wf_error(
            "rank %u: not all of the %u ranks opened the job in time (WEFT_JOB_TIMEOUT=%" PRIu64
            " ms)",
            launch->rank, launch->size, wf_config()->job_timeout_ms);
    if (status != WEFT_EPEER)
        return;
    for (unsigned r = 0; r < launch->size; r++)
        if (atomic_load(&launch->mine->fate[r])) {
            wf_error("rank %u: rank %u ended before it opened the job", launch->rank, r);
            return;
        }
    wf_error("rank %u: another rank disconnected from the launcher before it opened the job",
             launch->rank);
}

enum weft_status wf_launch_share_secret(struct wf_launch *launch, uint64_t deadline_ns)
{
    enum weft_status status = call_bounded(launch->mine, share_secret, deadline_ns, true);
    if (status == WEFT_OK) {
        memcpy(launch->secret, launch->mine->secret, WF_SECRET);
        explicit_bzero(launch->mine->secret, WF_SECRET);
    } else {
        explain_exchange(launch, status);
    }
    launch->has_secret = status == WEFT_OK;
    return status;
}

enum weft_status wf_launch_exchange(struct wf_launch *launch, const struct wf_card *mine,
                                    struct wf_card *cards, uint64_t deadline_ns)
{
    struct wf_launch_mine *m = launch->mine;
    enum weft_status status;
    m->card_len = wf_card_pack(mine, m->card);
    status = call_bounded(m, exchange_cards, deadline_ns, true);
    if (status)
        explain_exchange(launch, status);
    else
        memcpy(cards, m->cards, launch->size * sizeof *cards);
    if (is_stuck()) /* a thread that has not returned still uses them */
        return status;
    explicit_bzero(m->card, sizeof m->card);
    for (unsigned r = 0; r < launch->size; r++)
        explicit_bzero(m->cards[r].secret, WF_SECRET);
    return status;
}

bool wf_launch_failed(const struct wf_launch *launch, unsigned rank)
{
    return launch->mine && rank < launch->size &&
           atomic_load(&launch->mine->fate[rank]) == RANK_FAILED;
}

unsigned wf_launch_failures(const struct wf_launch *launch)
{
    return launch->mine ? atomic_load_explicit(&launch->mine->failures, memory_order_relaxed) : 0;
}

/* ---- leaving ---- */

static enum weft_status client_close(struct wf_launch_mine *m)
{
    pmix_status_t s;
    if (m->event_ref != SIZE_MAX)
        (void)PMIx_Deregister_event_handler(m->event_ref, NULL, NULL);
    atomic_store(&current, NULL);
    s = PMIx_Finalize(NULL, 0);
    return s ? complain("leave the launcher", s) : WEFT_OK;
}

void wf_launch_close(struct wf_launch *launch, uint64_t at_most_ns)
{
    if (!launch->mine)
        return;
    if (!is_stuck() &&
        call_bounded(launch->mine, client_close, wf_now_ns() + at_most_ns, false) == WEFT_ETIMEDOUT)
        wf_warn("the launcher did not confirm that rank %u leaves: is it stopped?", launch->rank);
    free_mine(launch);
}

static enum weft_status ask_abort(struct wf_launch_mine *m)
{
    pmix_status_t s = PMIx_Abort(m->abort_code, m->abort_why, NULL, 0);
    return s ? complain("end the job", s) : WEFT_OK;
}

void wf_launch_abort(struct wf_launch *launch, int code, const char *why)
{
    struct wf_launch_mine *m = launch->mine;
    if (!m || is_stuck())
        return;
    m->abort_code = code;
    strncpy(m->abort_why, why, sizeof m->abort_why - 1);
    (void)call_bounded(m, ask_abort, wf_now_ns() + ABORT_NS, false);
}
