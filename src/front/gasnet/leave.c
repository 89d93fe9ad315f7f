/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of the job: gasnet_exit, misuse, a node that died.
 *
 * gasnet_exit is not collective, but the usual way to end is that all call it. Those that have
 * called it agree on the largest code, by dissemination: in round k each sends the largest that it
 * knows to the rank 2^k after it and waits for the one from 2^k before. Whoever has all rounds
 * knows that everybody leaves, and goes. Who has not called it yet is not disturbed: it may be
 * about to print what the job was about.
 *
 * If the rounds have not come to an end in T seconds, 3 and an eighth for each node but at most 120
 * (GASNET_EXITTIMEOUT_MIN, _FACTOR, _MAX), or in a quarter of a second where the code is not 0, the
 * ranks 1, 2, 4 ... after are told (NOTICE); who is told runs its handler of SIGQUIT in its next
 * turn, if it has one, leaves, and tells likewise: all know in log2(nodes) steps. If after T more
 * it has not ended, since somebody computes, or is dead, the launcher ends the job. A thread sees
 * to it that this happens even if the endpoint cannot be had: a handler of another thread's may
 * wait for a lock that the thread which leaves holds. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "front.h"
#include "tools.h"
#include "trace.h"

enum { STAYING, TOLD, LEAVING };
#define ROUNDS 32
#define NOTICE ROUNDS /* instead of a round's number */

_Atomic int gasnetw_leaving;
static _Atomic bool told;       /* by a NOTICE */
static _Atomic int told_code;   /* the largest that came */
static _Atomic bool passed_on;  /* a NOTICE, to others */
static _Atomic uint32_t rounds; /* that came: bit k */
static _Atomic int64_t lost_node = -1;
static _Atomic int lost_why;
static int code_now;
static pthread_t leaver;

/* ---- the last words ---- */

static _Noreturn void give_up(int code, const char *why)
{
    fflush(NULL);
    if (gasnetw_front.job)
        weft_job_abort(gasnetw_front.job, code, why);
    _exit(code);
}

void gasnetw_fatal(const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (gasnetw_front.job)
        fprintf(stderr, "*** FATAL ERROR (node %u of %u, process %d): %s\n", gasnetw_job.mynode,
                gasnetw_job.nodes, (int)getpid(), text);
    else
        fprintf(stderr, "*** FATAL ERROR (process %d): %s\n", (int)getpid(), text);
    if (gasnett_print_backtrace_ifenabled)
        (void)gasnett_print_backtrace_ifenabled(STDERR_FILENO);
    gasnett_freezeForDebuggerErr();
    give_up(1, text);
}

void gasnetw_lost(gasnet_node_t node, enum weft_status why, const char *what)
{
    gasnetw_fatal("%s: node %u: %s", what, node, weft_status_text(why));
}

void gasnetw_check(gasnet_node_t node, const char *what)
{
    if (!gasnetw_front.attached)
        gasnetw_fatal("%s before gasnet_attach", what);
    if (node >= gasnetw_job.nodes)
        gasnetw_fatal("%s: node %u: there are %u", what, node, gasnetw_job.nodes);
    if (gasnetw_thread_.in_handler)
        gasnetw_fatal("%s inside a handler: only replies are allowed there", what);
    if (gasnetw_thread_.hsl && gasnetw_front.debug)
        gasnetw_fatal("%s while a handler-safe lock is held", what);
}

/* ---- what others say ---- */

static void keep_largest(_Atomic int *at, int code)
{
    int old = atomic_load(at);
    while (code > old && !atomic_compare_exchange_weak(at, &old, code))
        ;
}

/* Arguments: a round's number or NOTICE, the largest code known. */
static void on_leave(const struct weft_am *am)
{
    int stay = STAYING;
    if (am->nargs != 2 || am->args[0] > NOTICE)
        return;
    keep_largest(&told_code, (int)am->args[1]);
    if (am->args[0] < ROUNDS) {
        atomic_fetch_or(&rounds, UINT32_C(1) << am->args[0]);
        return;
    }
    atomic_store(&told, true);
    (void)atomic_compare_exchange_strong(&gasnetw_leaving, &stay, TOLD);
}

/* While polled: nothing may be sent here. */
static void on_peer_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why,
                         void *arg)
{
    int stay = STAYING, rank = weft_job_peer_rank(gasnetw_front.job, peer);
    (void)ep;
    (void)arg;
    if (rank < 0 || rank == (int)gasnetw_job.mynode)
        return;
    atomic_store(&lost_why, why);
    if (atomic_compare_exchange_strong(&gasnetw_leaving, &stay, TOLD))
        atomic_store(&lost_node, rank);
}

weft_peer_down_fn gasnetw_peer_down(void)
{
    return on_peer_down;
}

static bool has_handler(int signo)
{
    struct sigaction now;
    return !sigaction(signo, NULL, &now) &&
           ((now.sa_flags & SA_SIGINFO) ||
            (now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN));
}

static double now_s(void);

/* The launcher sees a death, too, and knows the signal or code: what it tells is better than that a
 * node is gone. */
#define LAUNCHER_S 0.3
static void let_launcher_say(void)
{
    for (double until = now_s() + LAUNCHER_S; now_s() < until;)
        (void)weft_ep_wait(gasnetw_front.ep, 10000000);
}

/* The program's own SIGQUIT handler may clean up, and may call gasnet_exit itself. */
void gasnetw_heed_leaving(void)
{
    static _Atomic bool raised;
    int64_t lost;
    if (atomic_load(&gasnetw_leaving) == LEAVING) {
        if (!pthread_equal(leaver, pthread_self()))
            for (;;) /* the process ends */
                pause();
        return;
    }
    lost = atomic_load(&lost_node);
    if (has_handler(SIGQUIT) && !atomic_exchange(&raised, true))
        (void)raise(SIGQUIT);
    if (lost >= 0 && !atomic_load(&told)) {
        let_launcher_say();
        gasnetw_fatal("node %" PRId64 " is gone: %s", lost,
                      weft_status_text((enum weft_status)atomic_load(&lost_why)));
    }
    gasnet_exit(atomic_load(&told_code));
}

/* ---- leaving ---- */

static double patience_s(void)
{
    double min = gasnetw_env_number("GASNET_EXITTIMEOUT_MIN", 3),
           max = gasnetw_env_number("GASNET_EXITTIMEOUT_MAX", 120),
           factor = gasnetw_env_number("GASNET_EXITTIMEOUT_FACTOR", 0.125),
           t = gasnetw_env_number("GASNET_EXITTIMEOUT", 0);
    if (t > 0)
        return t;
    t = min + factor * gasnetw_job.nodes;
    return t < max ? t : max;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double deadline_s; /* of the step that is under way */
static double end_s;      /* of all */

static void *watch(void *arg)
{
    (void)arg;
    for (double left; (left = end_s + 1 - now_s()) > 0;) {
        struct timespec t = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
        (void)nanosleep(&t, NULL);
    }
    give_up(code_now, "gasnet_exit: this node could not leave in time");
}

static void watch_over(void)
{
    sigset_t all, old;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (!pthread_create(&thread, NULL, watch, NULL))
        (void)pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static int largest_code(void)
{
    int other = atomic_load(&told_code);
    return other > code_now ? other : code_now;
}

/* False: the time is over. */
static bool look(void)
{
    (void)weft_ep_wait(gasnetw_front.ep, 1000000);
    return now_s() < deadline_s;
}

/* A rank that is lost gets none: the rounds miss it, and the time ends. */
static bool tell(gasnet_node_t rank, unsigned what)
{
    uint32_t args[2] = {what, (uint32_t)largest_code()};
    enum weft_status s;
    while ((s = weft_am_request(gasnetw_front.peers[rank], FRONT_LEAVE, args, 2, NULL, 0, 0)) ==
           WEFT_AGAIN)
        if (!look())
            return false;
    return true;
}

/* Rounds as far as the time allows. True: all are through, and largest_code() is all the same. */
static bool agree(void)
{
    static unsigned k;
    static bool sent;
    gasnet_node_t n = gasnetw_job.nodes, me = gasnetw_job.mynode;
    for (; ((uint64_t)1 << k) < n; k++, sent = false) {
        if (!sent && !tell((gasnet_node_t)((me + ((uint64_t)1 << k)) % n), k))
            return false;
        sent = true;
        while (!(atomic_load(&rounds) >> k & 1))
            if (!look() || (atomic_load(&told) && !atomic_load(&passed_on)))
                return false;
    }
    return true;
}

static void tell_others(void)
{
    gasnet_node_t n = gasnetw_job.nodes, me = gasnetw_job.mynode;
    atomic_store(&passed_on, true);
    for (gasnet_node_t d = 1; d < n; d *= 2)
        if (!tell((me + d) % n, NOTICE))
            return;
}

/* Nothing came of waiting for the others to leave by themselves, or somebody else found that. */
#define GRACE_S 0.25

static bool leave_together(void)
{
    double patience = patience_s(), grace = code_now ? GRACE_S : patience;
    deadline_s = now_s() + (grace < patience ? grace : patience);
    end_s = now_s() + 2 * patience;
    watch_over();
    if (agree())
        return true;
    deadline_s = now_s() + patience;
    tell_others();
    return agree();
}

/* Operations of the client's that are still under way keep the job open: some time for them. */
static void close_all(void)
{
    gasnetw_coll_close();
    gasnetw_segment_close();
    for (unsigned i = 0; i < 4; i++) {
        enum weft_status s = weft_job_close(gasnetw_front.job);
        if (s != WEFT_EBUSY)
            return;
        gasnetw_segment_close();
    }
    give_up(code_now, "gasnet_exit: operations did not end");
}

/* One thread leaves; the others end with the process. */
static void enter_leaving(void)
{
    static _Atomic bool taken;
    if (atomic_exchange(&taken, true)) {
        if (pthread_equal(leaver, pthread_self()))
            _exit(code_now); /* called again from what leaving calls: atexit, a signal's handler */
        for (;;)
            pause();
    }
    leaver = pthread_self();
    atomic_store(&gasnetw_leaving, LEAVING);
}

void gasnet_exit(int exitcode)
{
    char why[64];
    enter_leaving();
    code_now = exitcode & 0xff;
    fflush(NULL);
    gasnetw_tools_finish();
    if (!gasnetw_front.job)
        _exit(code_now);
    gasnetw_trace_close();
    snprintf(why, sizeof why, "gasnet_exit(%d) by node %u", code_now, gasnetw_job.mynode);
    if (gasnetw_thread_.in_handler) /* nothing can be sent from here: the launcher ends the job */
        give_up(code_now, why);
    if (!leave_together())
        give_up(largest_code(), why);
    code_now = largest_code();
    close_all();
    _exit(code_now);
}

/* Return from main, and exit(). */
static void on_process_exit(int status, void *arg)
{
    (void)arg;
    if (gasnetw_front.job && getpid() == gasnetw_front.pid)
        gasnet_exit(status);
}

void gasnetw_leave_open(void)
{
    gasnetw_front.pid = getpid();
    if (weft_am_register(gasnetw_front.ep, FRONT_LEAVE, on_leave, NULL) != WEFT_OK ||
        on_exit(on_process_exit, NULL))
        gasnetw_fatal("gasnet_init: the end of the job cannot be prepared");
}
