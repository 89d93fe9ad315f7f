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

#include "binding.h"
#include "tools.h"
#include "trace.h"

enum { STAYING, TOLD, LEAVING };
#define ROUNDS 32
#define NOTICE ROUNDS /* instead of a round's number */

_Atomic int gasnetw_leaving;
static _Atomic bool told;          /* by a NOTICE */
static _Atomic int told_code;      /* the largest that came */
static _Atomic unsigned confirmed; /* of what this rank told */
static unsigned sent;
static _Atomic bool passed_on;  /* a NOTICE, to others */
static _Atomic uint32_t rounds; /* that came: bit k */
static _Atomic int64_t lost_node = -1;
static _Atomic int lost_why;
static int code_now;
static pthread_t leaver;

/* ---- the watch ---- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static _Noreturn void abandon(int code, const char *why)
{
    if (gasnetw_binding.job)
        weft_job_abort(gasnetw_binding.job, code, why);
    _exit(code);
}

static double deadline_s;      /* of the step that is under way */
static _Atomic int64_t end_ms; /* when the watch ends the process; INT64_MAX: not */
static _Atomic int watch_code;

/* Takes no lock, and writes nothing: whoever leaves may be stuck in either. */
static void *watch(void *arg)
{
    struct timespec look = {0, 50000000};
    (void)arg;
    while ((int64_t)(now_s() * 1e3) < atomic_load(&end_ms))
        (void)nanosleep(&look, NULL);
    abandon(atomic_load(&watch_code), "this node could not end in time");
}

/* Have the process end at [end_s], with [code], whatever its other threads are stuck in. */
static void watch_over(double end_s, int code)
{
    static _Atomic bool watched;
    sigset_t all, old;
    pthread_t thread;
    atomic_store(&watch_code, code);
    atomic_store(&end_ms, (int64_t)(end_s * 1e3));
    if (atomic_exchange(&watched, true))
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (!pthread_create(&thread, NULL, watch, NULL))
        (void)pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* ---- the last words ---- */

/* The launcher ends the job. Output that is kept in memory goes out first, if that is possible in a
 * second: another thread may hold a stream, and a pipe may be full. */
#define FLUSH_S 1.0
static _Noreturn void give_up(int code, const char *why)
{
    watch_over(now_s() + FLUSH_S, code);
    fflush(NULL);
    abandon(code, why);
}

/* Others may not disturb who leaves. */
static void stop_if_leaving(void)
{
    if (atomic_load(&gasnetw_leaving) == LEAVING && !pthread_equal(leaver, pthread_self()))
        for (;;)
            pause();
}

void gasnetw_fatal(const char *fmt, ...)
{
    char text[512];
    va_list args;
    stop_if_leaving();
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (gasnetw_binding.job)
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
    if (!gasnetw_binding.attached)
        gasnetw_fatal("%s before gasnet_attach", what);
    if (node >= gasnetw_job.nodes)
        gasnetw_fatal("%s: node %u: there are %u", what, node, gasnetw_job.nodes);
    if (gasnetw_thread_.in_handler)
        gasnetw_fatal("%s inside a handler: only replies are allowed there", what);
    if (gasnetw_thread_.hsl && gasnetw_binding.debug)
        gasnetw_fatal("%s while a handler-safe lock is held", what);
}

/* ---- what others say ---- */

static void keep_largest(_Atomic int *at, int code)
{
    int old = atomic_load(at);
    while (code > old && !atomic_compare_exchange_weak(at, &old, code))
        ;
}

/* A request's arguments: a round's number or NOTICE, the largest code known. The reply says that it
 * has come: who goes waits for that. */
static void on_leave(const struct weft_am *am)
{
    int stay = STAYING;
    if (am->is_reply) {
        atomic_fetch_add(&confirmed, 1);
        return;
    }
    if (am->nargs != 2 || am->args[0] > NOTICE || !am->can_reply)
        return;
    keep_largest(&told_code, (int)am->args[1]);
    if (weft_am_reply(am, AM_LEAVE, NULL, 0, NULL, 0) != WEFT_OK)
        return; /* its sender is gone */
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
    int stay = STAYING, rank = weft_job_peer_rank(gasnetw_binding.job, peer);
    int64_t nobody = -1;
    (void)ep;
    (void)arg;
    if (rank < 0 || rank == (int)gasnetw_job.mynode)
        return;
    if (atomic_load(&gasnetw_leaving) == STAYING) { /* who is first; then everybody may see it */
        atomic_store(&lost_why, why);
        (void)atomic_compare_exchange_strong(&lost_node, &nobody, rank);
    }
    (void)atomic_compare_exchange_strong(&gasnetw_leaving, &stay, TOLD);
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

/* The launcher sees a death, too, and knows the signal or code: what it tells is better than that a
 * node is gone. */
#define LAUNCHER_S 0.3
static void let_launcher_say(void)
{
    for (double until = now_s() + LAUNCHER_S; now_s() < until;)
        (void)weft_ep_wait(gasnetw_binding.ep, 10000000);
}

/* The program's own SIGQUIT handler may clean up, and may call gasnet_exit itself: one thread runs
 * it, and is the one that leaves. */
static void raise_once(void)
{
    static _Atomic bool raised;
    static _Thread_local bool mine;
    if (mine || !has_handler(SIGQUIT))
        return;
    if (atomic_exchange(&raised, true))
        for (;;)
            pause();
    mine = true;
    (void)raise(SIGQUIT);
}

void gasnetw_heed_leaving(void)
{
    int64_t lost;
    stop_if_leaving();
    if (atomic_load(&gasnetw_leaving) == LEAVING)
        return;
    raise_once();
    lost = atomic_load(&lost_node);
    if (lost >= 0 && !atomic_load(&told)) {
        let_launcher_say();
        gasnetw_fatal("node %" PRId64 " is gone: %s", lost,
                      weft_status_text((enum weft_status)atomic_load(&lost_why)));
    }
    gasnet_exit(atomic_load(&told_code));
}

/* ---- leaving ---- */

#define LONGEST_S 86400.0
static double patience_s(void)
{
    double min = gasnetw_env_number("GASNET_EXITTIMEOUT_MIN", 3),
           max = gasnetw_env_number("GASNET_EXITTIMEOUT_MAX", 120),
           factor = gasnetw_env_number("GASNET_EXITTIMEOUT_FACTOR", 0.125),
           t = gasnetw_env_number("GASNET_EXITTIMEOUT", 0);
    if (t > 0)
        return t < LONGEST_S ? t : LONGEST_S;
    t = min + factor * gasnetw_job.nodes;
    t = t < max ? t : max;
    return t < LONGEST_S ? t : LONGEST_S;
}

static int largest_code(void)
{
    int other = atomic_load(&told_code);
    return other > code_now ? other : code_now;
}

/* False: the time is over. */
static bool look(void)
{
    (void)weft_ep_wait(gasnetw_binding.ep, 1000000);
    return now_s() < deadline_s;
}

/* A rank that is lost gets none: the rounds miss it, and the time ends. */
static bool tell(gasnet_node_t rank, unsigned what)
{
    uint32_t args[2] = {what, (uint32_t)largest_code()};
    enum weft_status s;
    while ((s = weft_am_request(gasnetw_binding.peers[rank], AM_LEAVE, args, 2, NULL, 0, 1)) ==
           WEFT_AGAIN)
        if (!look())
            return false;
    sent += s == WEFT_OK;
    return true;
}

/* Rounds as far as the time allows. True: all are through, and largest_code() is all the same. */
static bool agree(void)
{
    static unsigned k;
    static bool said;
    gasnet_node_t n = gasnetw_job.nodes, me = gasnetw_job.mynode;
    for (; ((uint64_t)1 << k) < n; k++, said = false) {
        if (!said && !tell((gasnet_node_t)((me + ((uint64_t)1 << k)) % n), k))
            return false;
        said = true;
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

static bool leave_together(double patience)
{
    double grace = code_now ? GRACE_S : patience;
    deadline_s = now_s() + (grace < patience ? grace : patience);
    if (agree())
        return true;
    deadline_s = now_s() + patience;
    tell_others();
    return agree();
}

/* What this rank said has come, as far as its receivers still say so: they may have gone, knowing
 * all there is to know. */
#define CONFIRM_S 0.2
static void await_confirmation(void)
{
    deadline_s = now_s() + CONFIRM_S;
    while (atomic_load(&confirmed) < sent && look())
        ;
}

/* One thread leaves; the others end with the process. */
static void enter_leaving(int code)
{
    static _Atomic bool taken;
    if (atomic_exchange(&taken, true)) {
        stop_if_leaving();
        if (atomic_load(&gasnetw_leaving) == LEAVING) /* again, from a signal's handler */
            abandon(largest_code(), "gasnet_exit was called again while this node leaves");
        for (;;)
            pause();
    }
    code_now = code & 0xff;
    leaver = pthread_self();
    atomic_store(&gasnetw_leaving, LEAVING);
}

/* Nothing is closed: other threads may be anywhere, and operations under way. Returns the code. */
static int leave_job(int code)
{
    double patience = patience_s();
    char why[64];
    if (atomic_load(&gasnetw_leaving) != LEAVING)
        watch_over(now_s() + 2 * patience + 1, code & 0xff);
    enter_leaving(code);
    snprintf(why, sizeof why, "gasnet_exit(%d) by node %u", code_now, gasnetw_job.mynode);
    if (gasnetw_binding.job && gasnetw_thread_.in_handler) /* nothing can be sent from here */
        give_up(code_now, why);
    fflush(NULL);
    gasnetw_tools_finish();
    if (!gasnetw_binding.job)
        return code_now;
    gasnetw_trace_close();
    if (!leave_together(patience))
        give_up(largest_code(), why);
    code_now = largest_code();
    atomic_store(&watch_code, code_now);
    await_confirmation();
    (void)weft_job_leave(gasnetw_binding.job);
    return code_now;
}

void gasnet_exit(int exitcode)
{
    if (gasnetw_binding.job && getpid() != gasnetw_binding.pid)
        _exit(exitcode & 0xff); /* a forked child is no node */
    _exit(leave_job(exitcode));
}

/* Return from main, and exit(): what is left of it goes on, if its code is the job's. */
static void on_process_exit(int status, void *arg)
{
    int code;
    (void)arg;
    if (!gasnetw_binding.job || getpid() != gasnetw_binding.pid)
        return;
    code = leave_job(status);
    if (code != (status & 0xff))
        _exit(code);
    atomic_store(&end_ms, INT64_MAX);
}

void gasnetw_leave_open(void)
{
    gasnetw_binding.pid = getpid();
    if (weft_am_register(gasnetw_binding.ep, AM_LEAVE, on_leave, NULL) != WEFT_OK ||
        on_exit(on_process_exit, NULL))
        gasnetw_fatal("gasnet_init: the end of the job cannot be prepared");
}
