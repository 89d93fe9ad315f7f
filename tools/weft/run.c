/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft run`: the life of a job on this machine.
 *
 * A rank departs with exit code 0 after weft_job_close, or with exit code 0 without ever having
 * opened the job if no other rank opens it either (then it is a plain program). Any other end is a
 * failure, and the first failure's code is the job's. */
#define _GNU_SOURCE
#include "run.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tool.h"

#define GRACE_NS 2000000000u /* between SIGTERM and SIGKILL */
#define DOUBT_NS 250000000u  /* for a report that a rank left which arrives after its exit */
#define HOLD_NS 500000000u   /* for a rank that is exiting */
#define SWEEP_POLL_MS 20     /* while only grandchildren are left */
#define CODE_NOT_FOUND 127   /* as the shell's: POSIX, 2.8.2 */
#define CODE_NOT_EXECUTABLE 126

struct rank {
    pid_t pid; /* 0 once reaped */
    pid_t was; /* its pid, kept for messages */
    int status;
    unsigned order;          /* of ranks reaped and not judged yet, from 1; else 0 */
    bool quiet;              /* exit code 0, never opened the job */
    uint64_t doubt_until_ns; /* exit code 0, and may have closed the job; 0: no doubt */
};

struct run {
    struct wf_run_options opt;
    const char *job;
    struct rank *ranks; /* [opt.nranks] */
    unsigned alive;
    unsigned doubts;
    unsigned reaped;
    uint64_t hold_until_ns; /* judging waits for an exiting rank; 0: it does not */
    int signal_fd;          /* wf_guard_divide */
    int child_fd;           /* readable when a child ended: a rank, or a process that one left */
    int aborter;            /* the rank that aborted the job, not judged yet; -1: none */
    int abort_code;
    char abort_why[256];
    int code; /* of the first failure, if failed */
    bool failed;
    bool ending;
    bool killed;
    uint64_t kill_at_ns; /* if ending */
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- the end of the job ---- */

/* Once to each rank: many programs end at once on a second SIGTERM. */
static void signal_ranks(struct run *run, int signal)
{
    for (unsigned r = 0; r < run->opt.nranks; r++)
        if (run->ranks[r].pid)
            kill(run->ranks[r].pid, signal); /* not reaped, so the pid is still its own */
    (void)wf_sweep_others(run->job, signal);
}

static void end_job(struct run *run)
{
    if (run->ending)
        return;
    run->ending = true;
    run->kill_at_ns = now_ns() + GRACE_NS;
    signal_ranks(run, SIGTERM);
    signal_ranks(run, SIGCONT); /* a stopped rank acts on SIGTERM only after that */
}

static void kill_job(struct run *run)
{
    for (unsigned r = 0; r < run->opt.nranks && !run->killed; r++)
        if (run->ranks[r].pid)
            fprintf(stderr, "weft run: rank %u (pid %d) is still there after SIGTERM: SIGKILL\n", r,
                    (int)run->ranks[r].pid);
    run->killed = true;
    signal_ranks(run, SIGKILL);
}

/* Rank [r] failed with [code]; [how] completes the sentence "rank R". */
__attribute__((format(printf, 4, 5))) static void fail(struct run *run, unsigned r, int code,
                                                       const char *how, ...)
{
    va_list args;
    if (run->ending)
        return; /* a consequence */
    va_start(args, how);
    flockfile(stderr);
    fprintf(stderr, "weft run: rank %u (pid %d) ", r, (int)run->ranks[r].was);
    vfprintf(stderr, how, args);
    fputs(run->opt.keep_going ? "; keeping the others running\n" : "; ending the job\n", stderr);
    funlockfile(stderr);
    va_end(args);
    if (!run->failed)
        run->code = code;
    run->failed = true;
    wf_host_tell_ended(r, true);
    if (!run->opt.keep_going)
        end_job(run);
}

/* ---- ranks that ended ---- */

static void reap(struct run *run)
{
    int r, status;
    while ((r = wf_exit_next(&status)) >= 0) {
        struct rank *k = &run->ranks[r];
        k->pid = 0;
        k->status = status;
        k->order = ++run->reaped;
        run->alive--;
    }
}

static void judge_signal(struct run *run, unsigned r, int status)
{
    int n = WTERMSIG(status);
    const char *name = sigabbrev_np(n);
    if (name)
        fail(run, r, 128 + n, "was killed by SIG%s", name);
    else
        fail(run, r, 128 + n, "was killed by signal %d", n);
}

static void judge_exit(struct run *run, unsigned r, int code)
{
    enum wf_host_state state = wf_host_rank_state(r);
    if (code)
        fail(run, r, code, "exited with code %d", code);
    else if (state == WF_HOST_OPEN) {
        run->ranks[r].doubt_until_ns = now_ns() + DOUBT_NS;
        run->doubts++;
    } else if (state == WF_HOST_UNSEEN)
        run->ranks[r].quiet = true;
    else
        wf_host_tell_ended(r, false);
}

/* libpmix's client waits 2 s for the server's answer when it leaves, then exits without it. If this
 * process was stopped or starved for so long, the client's message has not been handled yet. */
static void judge_doubts(struct run *run)
{
    for (unsigned r = 0; r < run->opt.nranks && run->doubts; r++) {
        struct rank *k = &run->ranks[r];
        bool closed = wf_host_rank_state(r) == WF_HOST_CLOSED;
        if (!k->doubt_until_ns || (!closed && !run->ending && now_ns() < k->doubt_until_ns))
            continue;
        k->doubt_until_ns = 0;
        run->doubts--;
        if (closed)
            wf_host_tell_ended(r, false);
        else
            fail(run, r, 1, "exited with code 0 without weft_job_close");
    }
}

/* The first reaped rank that is not judged yet, killed ones before all others; -1: none. */
static int next_to_judge(const struct run *run)
{
    int best = -1;
    bool best_killed = false;
    for (unsigned r = 0; r < run->opt.nranks; r++) {
        const struct rank *k = &run->ranks[r];
        bool killed = k->order && WIFSIGNALED(k->status);
        if (!k->order || (best_killed && !killed))
            continue;
        if (best < 0 || killed > best_killed || k->order < run->ranks[best].order) {
            best = (int)r;
            best_killed = killed;
        }
    }
    return best;
}

/* Ranks often fail because another one did, and must not be taken for the cause. An exiting process
 * closes its sockets, which other ranks notice, before it counts as ended. So judging waits while
 * any rank other than [except] is exiting. */
static bool must_wait(struct run *run, int except)
{
    bool dying = false;
    for (unsigned r = 0; r < run->opt.nranks && !dying; r++)
        dying = (int)r != except && run->ranks[r].pid && wf_exit_dying(run->ranks[r].pid);
    if (!dying || run->ending) {
        run->hold_until_ns = 0;
        return false;
    }
    if (!run->hold_until_ns)
        run->hold_until_ns = now_ns() + HOLD_NS;
    return now_ns() < run->hold_until_ns;
}

/* Has a reaped rank failed that is not judged yet, other than [except]? */
static bool any_failed(const struct run *run, int except)
{
    for (unsigned r = 0; r < run->opt.nranks; r++) {
        const struct rank *k = &run->ranks[r];
        if ((int)r != except && k->order && (k->status || wf_host_rank_state(r) == WF_HOST_OPEN))
            return true;
    }
    return false;
}

static void judge(struct run *run)
{
    int r = next_to_judge(run);
    if (r < 0 || (any_failed(run, -1) && must_wait(run, -1)))
        return;
    for (; r >= 0; r = next_to_judge(run)) {
        struct rank *k = &run->ranks[r];
        k->order = 0;
        if (WIFSIGNALED(k->status))
            judge_signal(run, (unsigned)r, k->status);
        else
            judge_exit(run, (unsigned)r, WEXITSTATUS(k->status));
    }
    run->hold_until_ns = 0;
}

/* A rank may end without opening the job, unless another rank opens it. */
static void judge_quiet(struct run *run)
{
    if (!wf_host_anyone_opened())
        return;
    for (unsigned r = 0; r < run->opt.nranks; r++)
        if (run->ranks[r].quiet) {
            run->ranks[r].quiet = false;
            fail(run, r, 1, "exited with code 0 without weft_job_open, which other ranks called");
        }
}

/* A rank may abort the job because another rank failed. Then the other rank's end decides. */
static void judge_abort(struct run *run)
{
    int r = run->aborter;
    if (r < 0)
        r = wf_host_aborted(&run->abort_code, run->abort_why, sizeof run->abort_why);
    run->aborter = run->ending ? -1 : r;
    if (run->aborter < 0 || any_failed(run, r) || must_wait(run, r))
        return;
    run->aborter = -1;
    fprintf(stderr, "weft run: rank %d (pid %d) aborted the job with code %d%s%s\n", r,
            (int)run->ranks[r].was, run->abort_code, run->abort_why[0] ? ": " : "", run->abort_why);
    if (!run->failed)
        run->code = run->abort_code & 0xff;
    run->failed = true;
    end_job(run);
}

/* ---- signals ---- */

static void on_end_signal(struct run *run, int signal)
{
    if (run->ending) {
        kill_job(run); /* the second one */
        return;
    }
    fprintf(stderr, "weft run: got SIG%s; ending the job\n", sigabbrev_np(signal));
    if (!run->failed)
        run->code = 128 + signal;
    run->failed = true;
    end_job(run);
}

/* Read the signals that the front received. If the front has ended, end the job; the guard ends the
 * rest. */
static void read_signals(struct run *run)
{
    unsigned char signals[16];
    ssize_t n = read(run->signal_fd, signals, sizeof signals);
    if (!n)
        raise(SIGKILL);
    for (ssize_t i = 0; i < n; i++)
        on_end_signal(run, signals[i]);
}

/* ---- the life of the job ---- */

static const char *descriptors_hint(int error)
{
    return error == EMFILE ? " (ulimit -Hn: weft run needs two descriptors for each rank)" : "";
}

static int start_failed(const struct run *run, unsigned r, int error)
{
    const char *program = run->opt.argv[0];
    bool path = strchr(program, '/');
    const char *hint = descriptors_hint(error);
    if (error == EAGAIN)
        hint = " (ulimit -u, or the cgroup's pids.max)";
    else if (error == ENOENT && !path)
        hint = " in PATH";
    else if (error == ENOENT && !access(program, F_OK))
        hint = " (the interpreter it names)";
    fprintf(stderr, "weft run: cannot start %s as rank %u: %s%s\n", program, r, strerror(error),
            hint);
    return error == ENOENT ? CODE_NOT_FOUND : CODE_NOT_EXECUTABLE;
}

/* Rank [r]'s end would not be noticed. */
static int watch_failed(struct run *run, unsigned r)
{
    struct rank *k = &run->ranks[r];
    fprintf(stderr, "weft run: cannot watch rank %u: %s%s\n", r, strerror(errno),
            descriptors_hint(errno));
    kill(k->pid, SIGKILL);
    (void)waitpid(k->pid, NULL, 0);
    k->pid = 0;
    run->alive--;
    return CODE_NOT_EXECUTABLE;
}

/* One rank after the other, each up to its exec: a program that cannot be started fails at rank 0,
 * before other ranks exist. */
static int start_ranks(struct run *run)
{
    bool bound = run->opt.bind == WF_BIND_CORE ||
                 (run->opt.bind == WF_BIND_AUTO && run->opt.nranks <= wf_spawn_cores());
    for (unsigned r = 0; r < run->opt.nranks; r++) {
        struct rank *k = &run->ranks[r];
        int error;
        char **environment = wf_host_environment(r);
        if (!environment)
            return CODE_NOT_EXECUTABLE;
        k->pid = k->was = wf_spawn(r, run->opt.argv, environment, bound, &error);
        for (char **e = environment; *e; e++)
            free(*e);
        free(environment);
        if (k->pid < 0) {
            k->pid = 0;
            return start_failed(run, r, error);
        }
        run->alive++;
        if (wf_exit_watch(r, k->pid))
            return watch_failed(run, r);
    }
    return 0;
}

static int wait_ms(const struct run *run)
{
    uint64_t now = now_ns(), until = run->ending && !run->killed ? run->kill_at_ns : UINT64_MAX;
    if (run->hold_until_ns && run->hold_until_ns < until)
        until = run->hold_until_ns;
    for (unsigned r = 0; r < run->opt.nranks && run->doubts; r++)
        if (run->ranks[r].doubt_until_ns && run->ranks[r].doubt_until_ns < until)
            until = run->ranks[r].doubt_until_ns;
    if (until == UINT64_MAX)
        return -1;
    return now >= until ? 0 : (int)((until - now) / 1000000u) + 1;
}

static void run_until_all_left(struct run *run)
{
    while (run->alive || run->doubts) {
        struct signalfd_siginfo child;
        struct pollfd fds[] = {{.fd = run->signal_fd, .events = POLLIN},
                               {.fd = wf_host_fd(), .events = POLLIN},
                               {.fd = wf_exit_fd(), .events = POLLIN},
                               {.fd = run->child_fd, .events = POLLIN}};
        (void)poll(fds, sizeof fds / sizeof fds[0], wait_ms(run));
        wf_host_drain();
        read_signals(run);
        reap(run);
        while (read(run->child_fd, &child, sizeof child) == sizeof child)
            ;
        wf_sweep_reap();
        judge_abort(run); /* before its exit */
        judge(run);
        judge_doubts(run);
        judge_quiet(run);
        if (run->ending && !run->killed && run->alive && now_ns() >= run->kill_at_ns)
            kill_job(run);
    }
}

/* End what ranks started and left behind, with the same grace. */
static void clear_up(struct run *run)
{
    while (run->ending && now_ns() < run->kill_at_ns && wf_sweep(run->job, 0))
        (void)poll(NULL, 0, SWEEP_POLL_MS);
    wf_sweep_all(run->job);
}

static int run_job(struct run *run)
{
    int code = start_ranks(run);
    if (code) {
        run->failed = run->ending = run->killed = true;
        run->code = code;
        signal_ranks(run, SIGKILL);
    }
    run_until_all_left(run);
    clear_up(run);
    return run->failed ? run->code : 0;
}

static int check_cores(const struct wf_run_options *opt)
{
    if (opt->bind != WF_BIND_CORE || opt->nranks <= wf_spawn_cores())
        return 0;
    return wf_run_usage("--bind core: %u ranks, but this process may use %u core%s; "
                        "--bind none lets them share",
                        opt->nranks, wf_spawn_cores(), wf_spawn_cores() == 1 ? "" : "s");
}

/* SIGCHLD is blocked here, and so in the server's threads. */
static int open_child_fd(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int wf_tool_run(int argc, char **argv)
{
    struct run run = {.aborter = -1};
    int code;
    if (wf_run_parse(argc, argv, &run.opt, &code))
        return code;
    wf_spawn_init();
    if ((code = check_cores(&run.opt)))
        return code;
    run.job = wf_host_name_job();
    run.signal_fd = run.job ? wf_guard_divide(run.job) : -1;
    run.child_fd = open_child_fd();
    run.ranks = calloc(run.opt.nranks, sizeof *run.ranks);
    if (!run.ranks || run.signal_fd < 0 || run.child_fd < 0 || wf_exit_open(run.opt.nranks)) {
        fprintf(stderr, "weft run: cannot start: %s\n", strerror(errno));
        return CODE_NOT_EXECUTABLE;
    }
    if (wf_host_open(run.opt.nranks))
        return CODE_NOT_EXECUTABLE;
    code = run_job(&run);
    fflush(NULL);
    _exit(code); /* the PMIx server has nothing to remove, and could block */
}
