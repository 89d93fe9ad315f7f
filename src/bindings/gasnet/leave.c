/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of the job: gasnet_exit, misuse, a node that died.
 *
 * gasnet_exit is not collective, but usually all ranks call it. The ranks that have called it agree
 * on the largest exit code by dissemination. In round k a rank sends the largest code that it knows
 * to the rank 2^k after it, and waits for the message of the rank 2^k before it. A rank that has
 * received all rounds knows that all ranks leave, and exits. Ranks that have not called gasnet_exit
 * yet are not disturbed, since they may be about to print results.
 *
 * The rounds may not end within T = min(120, 3 + nodes / 8) seconds (GASNET_EXITTIMEOUT_MIN,
 * _FACTOR, _MAX). If the code is not 0, a leaving rank waits only a quarter of a second. Then it
 * sends a NOTICE to the ranks 1, 2, 4 ... after it. A rank that has received a NOTICE acts in its
 * next turn: it runs its SIGQUIT handler, if it has one, leaves, and sends NOTICEs itself. So
 * NOTICEs reach all ranks in log2(nodes) steps.
 *
 * If the rounds have not ended after T more, because a rank computes or is dead, the launcher ends
 * the job. A thread, the watch, ensures this even if the endpoint stays locked: a handler in
 * another thread may wait for a lock that the leaving thread holds. */
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
static _Atomic bool noticed;       /* a NOTICE was received */
static _Atomic int noticed_code;   /* the largest code received */
static _Atomic unsigned confirmed; /* messages of this rank that got a reply */
static unsigned sent;
static _Atomic bool forwarded;  /* NOTICEs were sent */
static _Atomic uint32_t rounds; /* received: bit k */
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

static double deadline_s;      /* of the current step */
static _Atomic int64_t end_ms; /* when the watch thread ends the process; INT64_MAX: never */
static _Atomic int watch_code;

/* The watch thread. It takes no lock and writes no output, since the leaving thread may be stuck in
 * a lock or in a write. */
static void *watch(void *arg)
{
    struct timespec look = {0, 50000000};
    (void)arg;
    while ((int64_t)(now_s() * 1e3) < atomic_load(&end_ms))
        (void)nanosleep(&look, NULL);
    abandon(atomic_load(&watch_code), "this node could not end in time");
}

/* Start the watch thread, which ends the process with [code] at the time [end_s], whatever other
 * threads do. */
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

/* ---- fatal errors ---- */

/* Make the launcher end the job. Before that, flush stdio for at most a second, since another
 * thread may hold a stream and a pipe may be full. */
#define FLUSH_S 1.0
static _Noreturn void give_up(int code, const char *why)
{
    watch_over(now_s() + FLUSH_S, code);
    fflush(NULL);
    abandon(code, why);
}

/* If another thread leaves the job, stop this thread, so that it does not disturb the thread that
 * leaves. */
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
    if (gasnetw_in_handler())
        gasnetw_fatal("%s inside a handler: only replies are allowed there", what);
    if (gasnetw_holds_hsl() && gasnetw_binding.debug)
        gasnetw_fatal("%s while a handler-safe lock is held", what);
}

/* ---- receiving ---- */

static void keep_largest(_Atomic int *at, int code)
{
    int old = atomic_load(at);
    while (code > old && !atomic_compare_exchange_weak(at, &old, code))
        ;
}

/* Handle a message of a leaving rank. Its arguments are a round's number or NOTICE, and the largest
 * code that the sender knows. The reply confirms the message: a rank waits for these confirmations
 * before it exits. */
static void on_leave(const struct weft_am *am)
{
    int stay = STAYING;
    if (am->is_reply) {
        atomic_fetch_add(&confirmed, 1);
        return;
    }
    if (am->nargs != 2 || am->args[0] > NOTICE || !am->can_reply)
        return;
    keep_largest(&noticed_code, (int)am->args[1]);
    if (weft_am_reply(am, AM_LEAVE, NULL, 0, NULL, 0) != WEFT_OK)
        return; /* its sender is gone */
    if (am->args[0] < ROUNDS) {
        atomic_fetch_or(&rounds, UINT32_C(1) << am->args[0]);
        return;
    }
    atomic_store(&noticed, true);
    (void)atomic_compare_exchange_strong(&gasnetw_leaving, &stay, TOLD);
}

/* Store that a peer was lost. This runs inside a poll, so it may send nothing. */
static void on_peer_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why,
                         void *arg)
{
    int stay = STAYING, rank = weft_job_peer_rank(gasnetw_binding.job, peer);
    int64_t nobody = -1;
    (void)ep;
    (void)arg;
    if (rank < 0 || rank == (int)gasnetw_job.mynode)
        return;
    if (atomic_load(&gasnetw_leaving) ==
        STAYING) { /* only the first thread writes lost_why, then publishes it */
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

/* Give the launcher time to report a death before this rank does, since the launcher knows the
 * signal or code. */
#define LAUNCHER_S 0.3
static void await_launcher(void)
{
    for (double until = now_s() + LAUNCHER_S; now_s() < until;)
        (void)weft_ep_wait(gasnetw_binding.ep, 10000000);
}

/* Run the program's SIGQUIT handler, which may clean up and call gasnet_exit itself. One thread
 * runs the handler, and the same thread leaves the job. */
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
    if (lost >= 0 && !atomic_load(&noticed)) {
        await_launcher();
        gasnetw_fatal("node %" PRId64 " is gone: %s", lost,
                      weft_status_text((enum weft_status)atomic_load(&lost_why)));
    }
    gasnet_exit(atomic_load(&noticed_code));
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
    int other = atomic_load(&noticed_code);
    return other > code_now ? other : code_now;
}

/* False: the time is over. */
static bool look(void)
{
    (void)weft_ep_wait(gasnetw_binding.ep, 1000000);
    return now_s() < deadline_s;
}

/* Send a round or a NOTICE to [rank]. Returns false if the time is over. A lost rank gets no
 * message; then the rounds do not end, and the time runs out. */
static bool send_leave(gasnet_node_t rank, unsigned what)
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

/* Go through the rounds until the deadline. Returns true if all rounds are done; then all ranks
 * have the same code. */
static bool agree(void)
{
    static unsigned k;
    static bool sent_this;
    gasnet_node_t n = gasnetw_job.nodes, me = gasnetw_job.mynode;
    for (; ((uint64_t)1 << k) < n; k++, sent_this = false) {
        if (!sent_this && !send_leave((gasnet_node_t)((me + ((uint64_t)1 << k)) % n), k))
            return false;
        sent_this = true;
        while (!(atomic_load(&rounds) >> k & 1))
            if (!look() || (atomic_load(&noticed) && !atomic_load(&forwarded)))
                return false;
    }
    return true;
}

static void tell_others(void)
{
    gasnet_node_t n = gasnetw_job.nodes, me = gasnetw_job.mynode;
    atomic_store(&forwarded, true);
    for (gasnet_node_t d = 1; d < n; d *= 2)
        if (!send_leave((me + d) % n, NOTICE))
            return;
}

/* How long to wait for other ranks to leave by themselves, in seconds, if the code is not 0. */
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

/* Wait for the confirmations of this rank's messages, but only briefly: a receiver that has all
 * rounds may have exited without a reply. */
#define CONFIRM_S 0.2
static void await_confirmation(void)
{
    deadline_s = now_s() + CONFIRM_S;
    while (atomic_load(&confirmed) < sent && look())
        ;
}

/* Let one thread leave the job. Other threads stop here, and end with the process. */
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

/* Leave the job. Closes no object, since other threads may use it and operations may be under way.
 * Returns the exit code. */
static int leave_job(int code)
{
    double patience = patience_s();
    char why[64];
    if (atomic_load(&gasnetw_leaving) != LEAVING)
        watch_over(now_s() + 2 * patience + 1, code & 0xff);
    enter_leaving(code);
    snprintf(why, sizeof why, "gasnet_exit(%d) by node %u", code_now, gasnetw_job.mynode);
    if (gasnetw_binding.job && gasnetw_in_handler()) /* a handler cannot send the rounds */
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
        _exit(exitcode & 0xff); /* a forked child is no rank */
    _exit(leave_job(exitcode));
}

/* Called at a return from main, or by exit(). If [status] is the job's code, the rest of exit()
 * runs. */
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
