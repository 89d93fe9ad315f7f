/* SPDX-License-Identifier: BSD-3-Clause */
/* `weft run`: the life of a job on this machine.
 *
 * A rank leaves in one of two ways. It departs: exit code 0 after
 * weft_job_close, or exit code 0 without ever having opened the job while no
 * other rank opens it either (then it is a plain program). Everything else is
 * a failure, and the first failure's code is the job's. */
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

#define GRACE_NS 2000000000u     /* between SIGTERM and SIGKILL */
#define SWEEP_POLL_MS 20         /* while only grandchildren are left */
#define CODE_NOT_FOUND 127       /* as the shell's: POSIX, 2.8.2 */
#define CODE_NOT_EXECUTABLE 126

struct options {
    unsigned nranks;
    enum wf_bind bind;
    bool keep_going;
    char **argv;
};

struct rank {
    pid_t pid; /* 0 once reaped */
    pid_t was; /* its pid, for messages */
    int status;
    bool fresh; /* reaped and not judged yet */
    bool quiet; /* left with 0, never opened the job */
};

struct run {
    struct options opt;
    const char *job;
    struct rank *ranks; /* [opt.nranks] */
    unsigned alive;
    int signal_fd;
    int code; /* the first failure's; meaningful when failed */
    bool failed;
    bool ending;
    bool killed;
    uint64_t kill_at_ns; /* when ending */
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- options ---- */

static void usage(FILE *to)
{
    fputs("usage: weft run -n N [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
          "\n"
          "Starts PROGRAM N times on this machine, as the ranks of one job.\n"
          "\n"
          "options:\n"
          "  -n N          how many ranks\n"
          "  --bind core   bind each rank to a core of its own; the default when there\n"
          "                are cores enough\n"
          "  --bind none   bind no rank\n"
          "  --keep-going  when a rank fails, leave the others running\n"
          "  --help        print this\n"
          "\n"
          "Rank 0 reads this command's input, the others /dev/null.\n"
          "A rank that ends by a signal, with a code other than 0, or without\n"
          "weft_job_close ends the job: the others get SIGTERM and 2 s later SIGKILL.\n"
          "\n"
          "exit code: 0 if all ranks left well, else the first failure's (128 + n for\n"
          "signal n; 1 if it was 0 without weft_job_close; 126, 127 if PROGRAM could\n"
          "not be started); 2 if this command line was not understood.\n"
          "\n"
          "example:\n"
          "  weft run -n 4 -- ./hello\n",
          to);
}

__attribute__((format(printf, 1, 2))) static int bad_usage(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("weft run: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    return WF_TOOL_USAGE;
}

static int unknown_option(const char *option)
{
    static const char *const names[] = {"-n", "--bind", "--keep-going", "--help", NULL};
    char name[64];
    const char *near;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(option, "="), option);
    near = wf_tool_nearest(name, names);
    if (near)
        return bad_usage("unknown option %s; did you mean %s?", option, near);
    return bad_usage("unknown option %s; weft run --help lists them, and -- ends them", option);
}

static int parse_ranks(const char *text, struct options *opt)
{
    char *end;
    unsigned long n;
    errno = 0;
    n = strtoul(text, &end, 10);
    if (errno || *end || text[0] < '0' || text[0] > '9' || n < 1 || n > WF_RUN_RANKS_MAX)
        return bad_usage("-n %s: must be a number of ranks from 1 to %d", text, WF_RUN_RANKS_MAX);
    opt->nranks = (unsigned)n;
    return 0;
}

static int parse_bind(const char *text, struct options *opt)
{
    if (strcmp(text, "core") && strcmp(text, "none"))
        return bad_usage("--bind %s: must be core or none", text);
    opt->bind = text[0] == 'c' ? WF_BIND_CORE : WF_BIND_NONE;
    return 0;
}

/* If argv[*at] is [name] with a value, in the next word or after '=' (or, for
 * a one-letter option, right behind), set *value and step over it. */
static bool takes_value(char **argv, int *at, const char *name, const char **value)
{
    size_t len = strlen(name);
    const char *arg = argv[*at];
    if (strncmp(arg, name, len))
        return false;
    if (!arg[len]) {
        *value = argv[*at + 1];
        *at += *value != NULL;
        return true;
    }
    if (arg[len] != '=' && name[1] == '-')
        return false;
    *value = arg + len + (arg[len] == '=');
    return arg[len] == '=' || (arg[len] >= '0' && arg[len] <= '9');
}

static int parse_option(char **argv, int *at, struct options *opt)
{
    const char *value = NULL, *option = argv[*at];
    if (!strcmp(option, "--keep-going")) {
        opt->keep_going = true;
        return 0;
    }
    if (takes_value(argv, at, "-n", &value))
        return value ? parse_ranks(value, opt) : bad_usage("-n needs a number of ranks");
    if (takes_value(argv, at, "--bind", &value))
        return value ? parse_bind(value, opt) : bad_usage("--bind needs core or none");
    return unknown_option(option);
}

/* Returns 0 to go on, else leaves *code set. */
static int parse(int argc, char **argv, struct options *opt, int *code)
{
    int i = 1;
    for (; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            usage(stdout);
            *code = 0;
            return -1;
        }
        if ((*code = parse_option(argv, &i, opt)))
            return -1;
    }
    opt->argv = argv + i;
    *code = !opt->nranks ? bad_usage("how many ranks? say -n N (weft run --help)")
            : i >= argc  ? bad_usage("which program? weft run -n %u -- PROGRAM", opt->nranks)
                         : 0;
    return *code ? -1 : 0;
}

/* ---- the end of the job ---- */

static void signal_ranks(struct run *run, int signal)
{
    for (unsigned r = 0; r < run->opt.nranks; r++)
        if (run->ranks[r].pid)
            kill(run->ranks[r].pid, signal); /* not reaped, so still its pid */
    (void)wf_sweep(run->job, signal);
}

static void end_job(struct run *run)
{
    if (run->ending)
        return;
    run->ending = true;
    run->kill_at_ns = now_ns() + GRACE_NS;
    signal_ranks(run, SIGTERM);
    signal_ranks(run, SIGCONT); /* a stopped rank acts on SIGTERM only then */
}

static void kill_job(struct run *run)
{
    for (unsigned r = 0; r < run->opt.nranks && !run->killed; r++)
        if (run->ranks[r].pid)
            fprintf(stderr, "weft run: rank %u (pid %d) is still there after SIGTERM: SIGKILL\n",
                    r, (int)run->ranks[r].pid);
    run->killed = true;
    signal_ranks(run, SIGKILL);
}

/* Rank [r] failed with [code]; [how] completes a sentence. */
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
    wf_host_tell_failed(r);
    if (!run->opt.keep_going)
        end_job(run);
}

/* ---- who left, and how ---- */

static void reap(struct run *run)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (unsigned r = 0; r < run->opt.nranks; r++) {
            struct rank *k = &run->ranks[r];
            if (k->pid != pid)
                continue;
            k->pid = 0;
            k->status = status;
            k->fresh = true;
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
    else if (state == WF_HOST_OPEN)
        fail(run, r, 1, "exited with code 0 without weft_job_close");
    else
        run->ranks[r].quiet = state == WF_HOST_UNSEEN;
}

/* Survivors often fail because a mate did, and wait() hands out exits in any
 * order. But who caused it ended earlier, so it is in the same batch at the
 * latest; and who was killed is more likely the cause than who exited. */
static void judge(struct run *run)
{
    for (int pass = 0; pass < 2; pass++)
        for (unsigned r = 0; r < run->opt.nranks; r++) {
            struct rank *k = &run->ranks[r];
            if (!k->fresh || (pass == 0 && !WIFSIGNALED(k->status)))
                continue;
            k->fresh = false;
            if (WIFSIGNALED(k->status))
                judge_signal(run, r, k->status);
            else
                judge_exit(run, r, WEXITSTATUS(k->status));
        }
}

/* Leaving without opening the job is fine until somebody opens it. */
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

static void judge_abort(struct run *run)
{
    char why[256];
    int code, r = wf_host_aborted(&code, why, sizeof why);
    if (r < 0 || run->ending)
        return;
    fprintf(stderr, "weft run: rank %d (pid %d) aborted the job with code %d%s%s\n", r,
            (int)run->ranks[r].was, code, why[0] ? ": " : "", why);
    if (!run->failed)
        run->code = code & 0xff;
    run->failed = true;
    end_job(run);
}

/* ---- signals ---- */

static bool is_ignored(int signal)
{
    struct sigaction now;
    return !sigaction(signal, NULL, &now) && now.sa_handler == SIG_IGN;
}

/* Ends the job when they come to this process; nohup's choice is kept. */
static void add_end_signals(sigset_t *set)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (!is_ignored(ends[i]))
            sigaddset(set, ends[i]);
}

/* Before any thread starts, so that all inherit the mask. */
static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    add_end_signals(&set);
    signal(SIGCHLD, SIG_DFL); /* an ignored one would reap by itself */
    signal(SIGPIPE, SIG_IGN); /* a closed stderr must not end the job halfway */
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void on_end_signal(struct run *run, int signal)
{
    if (run->ending) {
        kill_job(run); /* asked twice */
        return;
    }
    fprintf(stderr, "weft run: got SIG%s; ending the job\n", sigabbrev_np(signal));
    if (!run->failed)
        run->code = 128 + signal;
    run->failed = true;
    end_job(run);
}

static void read_signals(struct run *run)
{
    struct signalfd_siginfo info;
    while (read(run->signal_fd, &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGCHLD)
            on_end_signal(run, (int)info.ssi_signo);
}

/* ---- the life of the job ---- */

static int start_failed(const struct run *run, unsigned r, int error)
{
    const char *program = run->opt.argv[0];
    bool path = strchr(program, '/');
    const char *hint = "";
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

/* Rank after rank, each up to its exec: if the program cannot be started it
 * shows at rank 0, before any other exists. */
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
    }
    return 0;
}

static int wait_ms(const struct run *run)
{
    uint64_t now = now_ns();
    if (!run->ending || run->killed)
        return -1;
    return now >= run->kill_at_ns ? 0 : (int)((run->kill_at_ns - now) / 1000000u) + 1;
}

static void run_until_all_left(struct run *run)
{
    while (run->alive) {
        struct pollfd fds[2] = {{.fd = run->signal_fd, .events = POLLIN},
                                {.fd = wf_host_fd(), .events = POLLIN}};
        (void)poll(fds, 2, wait_ms(run));
        wf_host_drain();
        read_signals(run);
        reap(run);
        judge_abort(run); /* before the exit that follows it */
        judge(run);
        judge_quiet(run);
        if (run->ending && !run->killed && run->alive && now_ns() >= run->kill_at_ns)
            kill_job(run);
    }
}

/* What ranks started and left: it has the same grace, then goes too. */
static void clear_up(struct run *run)
{
    while (run->ending && now_ns() < run->kill_at_ns && wf_sweep(run->job, 0))
        (void)poll(NULL, 0, SWEEP_POLL_MS);
    wf_sweep_all(run->job);
    wf_sweep_dismiss();
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

static int check_cores(const struct options *opt)
{
    if (opt->bind != WF_BIND_CORE || opt->nranks <= wf_spawn_cores())
        return 0;
    return bad_usage("--bind core: %u ranks, but this process may use %u core%s; "
                     "--bind none lets them share",
                     opt->nranks, wf_spawn_cores(), wf_spawn_cores() == 1 ? "" : "s");
}

int wf_tool_run(int argc, char **argv)
{
    struct run run = {0};
    int code;
    if (parse(argc, argv, &run.opt, &code))
        return code;
    wf_spawn_init();
    if ((code = check_cores(&run.opt)))
        return code;
    run.ranks = calloc(run.opt.nranks, sizeof *run.ranks);
    run.signal_fd = open_signals();
    run.job = wf_host_name_job();
    if (!run.ranks || run.signal_fd < 0 || !run.job || wf_sweep_guard(run.job)) {
        fprintf(stderr, "weft run: cannot start: %s\n", strerror(errno));
        return CODE_NOT_EXECUTABLE;
    }
    if (wf_host_open(run.opt.nranks))
        return CODE_NOT_EXECUTABLE;
    code = run_job(&run);
    fflush(NULL);
    _exit(code); /* the PMIx server has nothing to remove, and could make us wait */
}
