/* SPDX-License-Identifier: BSD-3-Clause */
/* Kills ranks, and `weft run`, in the middle of things, many times.
 *
 * usage: kill_soak --weft PATH [--count N] [--seed S] [--from K] [--only M] [--slow F]
 *
 *   parts                                                   times
 *   random        a rank, at a random moment                N
 *   at LABEL      a rank, at a store of the send path       N / 5 for each label
 *   job ends      a rank, without --keep-going              N / 5, at least 2
 *                 (every other time the ranks ignore SIGTERM)
 *   launcher      `weft run` itself, at a random moment     N / 2
 *
 * With --keep-going every call must report the death to every survivor within a second and must go
 * on talking to the others (kill_rank.c checks); otherwise all must be gone within 3 s; both F
 * times that (at most 5) on a machine that may be busy with other things. Nothing may be left
 * behind: no process, no file in /tmp, /dev/shm, /var/tmp or /run (the test has private ones, so
 * that others' files do not count), no name of an abstract socket.
 *
 * The turns are numbered through all parts; --from K skips the first K, --only
 * M ends after M more. A turn depends on the seed and its number alone. One line
 * per part. Exit code 0: all that was run held.
 *
 * What makes it fail: a survivor that waits for a reply, a lock or a slot of
 * the dead; a death told with the wrong status, late, or not by all calls
 * (tried: generations of the dead left as they were); a rank that outlives the
 * launcher (tried: neither a parent-death signal nor the guard); a store
 * directory that PMIx leaves. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rand.h"
#include "kill_board.h"

#define MS UINT64_C(1000000)
#define START_NS (20 * KILL_SECOND)
#define RUN_NS (25 * KILL_SECOND) /* a hanging rank's own watchdog comes first */
#define SLOW_MAX 5                /* RUN_NS has to be longer */
#define SLOW_NS (200 * MS)        /* noticed so late: worth a line */

enum kind { RANDOM, LABEL, ENDS, LAUNCHER };

struct part {
    const char *name;
    enum kind kind;
    const char *label;
    unsigned count;
    unsigned run, held;
    uint64_t worst_ns;
};

static const char *const labels[] = {KILL_LABELS};
#define LABELS (sizeof labels / sizeof labels[0])
#define PARTS (LABELS + 3)

static struct {
    char weft[PATH_MAX], rank[PATH_MAX];
    unsigned count, from, only, slow;
    uint64_t seed;
    struct part parts[PARTS];
    bool private_dirs;
    int signals, board_fd, log_fd;
    struct kill_board *board;
} t = {.count = 100, .seed = 1, .only = UINT_MAX, .slow = 1};

/* So soon the job is gone. */
static uint64_t end_ns(void)
{
    return 3 * t.slow * KILL_SECOND;
}

/* One job. */
struct turn {
    struct part *part;
    unsigned number;
    uint64_t rand;
    pid_t pid; /* of `weft run`; 0 once reaped */
    int status;
    int ready[2];
    unsigned started;
    char why[512]; /* what did not hold first; empty: nothing */
};

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("kill_soak: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    exit(2);
}

__attribute__((format(printf, 2, 3))) static void blame(struct turn *turn, const char *fmt, ...)
{
    va_list args;
    if (turn->why[0])
        return;
    va_start(args, fmt);
    vsnprintf(turn->why, sizeof turn->why, fmt, args);
    va_end(args);
}

/* ---- private directories ---- */

static const char *const hidden[] = {"/tmp", "/dev/shm", "/var/tmp", "/run"};
#define HIDDEN (sizeof hidden / sizeof hidden[0])
#define KEPT 3
static struct kept {
    char path[PATH_MAX]; /* what must stay visible in a hidden directory */
    int fd;
} kept[KEPT];

static void write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        die("%s: %s", path, strerror(errno));
    close(fd);
}

static bool own_mounts(void)
{
    char map[64];
    unsigned uid = getuid(), gid = getgid();
    if (!unshare(CLONE_NEWNS))
        return true;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
        return false;
    write_text("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "%u %u 1", uid, uid);
    write_text("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "%u %u 1", gid, gid);
    write_text("/proc/self/gid_map", map);
    return true;
}

/* A binary that lies in a directory about to be hidden: its first component
 * there is put back. */
static void keep(const char *path, struct kept *k)
{
    k->fd = -1;
    for (size_t i = 0; i < HIDDEN; i++) {
        size_t n = strlen(hidden[i]);
        if (strncmp(path, hidden[i], n) || path[n] != '/')
            continue;
        n += 1 + strcspn(path + n + 1, "/");
        snprintf(k->path, sizeof k->path, "%.*s", (int)n, path);
        k->fd = open(k->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (k->fd < 0)
            die("%s: %s (put the build into a directory)", k->path, strerror(errno));
    }
}

static void put_back(const struct kept *k)
{
    char from[64];
    if (k->fd < 0 || (mkdir(k->path, 0700) && errno == EEXIST))
        return;
    snprintf(from, sizeof from, "/proc/self/fd/%d", k->fd);
    if (mount(from, k->path, NULL, MS_BIND | MS_REC, NULL))
        die("cannot show %s again: %s", k->path, strerror(errno));
}

static bool hide(void)
{
    char cwd[PATH_MAX];
    if (!own_mounts() || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return false;
    keep(t.weft, &kept[0]);
    keep(t.rank, &kept[1]);
    keep(getcwd(cwd, sizeof cwd) ? cwd : "/", &kept[2]);
    for (size_t i = 0; i < HIDDEN; i++)
        if (mount("kill_soak", hidden[i], "tmpfs", 0, "mode=1777"))
            return false;
    for (int i = 0; i < KEPT; i++)
        put_back(&kept[i]);
    return true;
}

static bool is_kept(const char *dir, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    for (int i = 0; i < KEPT; i++)
        if (kept[i].fd >= 0 && !strcmp(path, kept[i].path))
            return true;
    return false;
}

static void check_files(struct turn *turn)
{
    for (size_t i = 0; i < HIDDEN && t.private_dirs; i++) {
        DIR *dir = opendir(hidden[i]);
        struct dirent *d;
        while (dir && (d = readdir(dir)))
            if (strcmp(d->d_name, ".") && strcmp(d->d_name, "..") && !is_kept(hidden[i], d->d_name))
                blame(turn, "left behind: %s/%s", hidden[i], d->d_name);
        if (dir)
            closedir(dir);
    }
}

static void check_sockets(struct turn *turn)
{
    char line[512], name[64];
    FILE *f = fopen("/proc/net/unix", "re");
    if (!f)
        die("/proc/net/unix: %s", strerror(errno));
    while (fgets(line, sizeof line, f))
        for (int r = 0; r < KILL_RANKS; r++) {
            const uint64_t *token = t.board->rank[r].token;
            snprintf(name, sizeof name, "@weft-%016llx", (unsigned long long)token[0]);
            if (token[0] && strstr(line, name))
                blame(turn, "left behind: the socket of rank %d, %s", r, name);
        }
    fclose(f);
}

/* ---- processes ---- */

static void reap(struct turn *turn)
{
    int status;
    pid_t pid;
    struct signalfd_siginfo info;
    while (read(t.signals, &info, sizeof info) == sizeof info)
        ;
    /* This process is the subreaper: orphans become its children. */
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == turn->pid) {
            turn->pid = 0;
            turn->status = status;
        }
}

static bool all_started(struct turn *turn)
{
    return turn->started == KILL_RANKS;
}

static bool launcher_ended(struct turn *turn)
{
    return !turn->pid;
}

static bool nobody_left(struct turn *turn)
{
    siginfo_t info;
    (void)turn;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) && errno == ECHILD;
}

static bool never(struct turn *turn)
{
    (void)turn;
    return false;
}

static void read_ready(struct turn *turn)
{
    char buf[KILL_RANKS];
    ssize_t n = read(turn->ready[0], buf, sizeof buf);
    if (n > 0)
        turn->started += (unsigned)n;
}

/* Wait for [what] until [until_ns], or until the launcher ended. */
static bool await(struct turn *turn, bool (*what)(struct turn *), uint64_t until_ns)
{
    for (;;) {
        struct pollfd fds[2] = {{.fd = t.signals, .events = POLLIN},
                                {.fd = turn->ready[0], .events = POLLIN}};
        bool had_launcher = turn->pid != 0;
        uint64_t now;
        struct timespec left;
        read_ready(turn);
        reap(turn);
        if (what(turn))
            return true;
        now = wf_now_ns();
        if (now >= until_ns || (what == all_started && had_launcher && !turn->pid))
            return false;
        left = (struct timespec){(time_t)((until_ns - now) / KILL_SECOND),
                                 (long)((until_ns - now) % KILL_SECOND)};
        fds[1].fd = turn->started < KILL_RANKS ? fds[1].fd : -1;
        (void)ppoll(fds, 2, &left, NULL);
    }
}

__attribute__((noreturn)) static void become_launcher(const struct turn *turn)
{
    char board[16], ready[16];
    const char *argv[12] = {t.weft, "run", "-n", "4"};
    int n = 4;
    sigset_t none;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    snprintf(board, sizeof board, "%d", t.board_fd);
    snprintf(ready, sizeof ready, "%d", turn->ready[1]);
    (void)fcntl(t.board_fd, F_SETFD, 0);
    (void)fcntl(turn->ready[1], F_SETFD, 0);
    dup2(t.log_fd, STDOUT_FILENO);
    dup2(t.log_fd, STDERR_FILENO);
    if (turn->part->kind == RANDOM || turn->part->kind == LABEL)
        argv[n++] = "--keep-going";
    argv[n++] = "--";
    argv[n++] = t.rank;
    argv[n++] = board;
    argv[n++] = ready;
    execv(t.weft, (char **)(uintptr_t)argv);
    perror(t.weft);
    _exit(127);
}

static void start(struct turn *turn)
{
    if (pipe2(turn->ready, O_CLOEXEC | O_NONBLOCK))
        die("pipe: %s", strerror(errno));
    if (ftruncate(t.log_fd, 0) || lseek(t.log_fd, 0, SEEK_SET))
        die("log: %s", strerror(errno));
    fflush(NULL);
    turn->pid = fork();
    if (turn->pid < 0)
        die("fork: %s", strerror(errno));
    if (!turn->pid)
        become_launcher(turn);
    close(turn->ready[1]);
}

/* The end of a turn that went wrong: nothing of it may disturb the next. */
static void kill_all(struct turn *turn)
{
    for (int r = 0; r < KILL_RANKS; r++)
        if (t.board->rank[r].pid > 0) /* ours until reaped, here or by the launcher */
            (void)kill(t.board->rank[r].pid, SIGKILL);
    if (turn->pid)
        (void)kill(turn->pid, SIGKILL);
    (void)await(turn, nobody_left, wf_now_ns() + end_ns());
}

/* ---- turns ---- */

static uint64_t below(struct turn *turn, uint64_t n)
{
    return wf_rand(&turn->rand) % n;
}

/* How often a label is passed differs: the rare ones are hit at once. */
static uint64_t choose_hit(struct turn *turn)
{
    static const char *const rare[] = {"connect.ring",  "send.wake", "reply.wake",
                                       "region.closed", "arm.said",  "signal.store"};
    for (size_t i = 0; i < sizeof rare / sizeof rare[0]; i++)
        if (!strcmp(rare[i], turn->part->label))
            return 1 + below(turn, 8);
    return 1 + below(turn, 100);
}

static void board_reset(struct turn *turn)
{
    memset(t.board, 0, sizeof *t.board);
    t.board->seed = wf_rand(&turn->rand);
    t.board->notice_ns = t.slow * KILL_SECOND;
    t.board->victim = (int)below(turn, KILL_RANKS);
    t.board->stubborn = turn->part->kind == ENDS && turn->number % 2;
    if (turn->part->label) {
        t.board->hit = choose_hit(turn);
        snprintf(t.board->label, sizeof t.board->label, "%s", turn->part->label);
    }
}

static void kill_process(struct turn *turn, pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    t.board->killed_ns = wf_now_ns();
    if (fd < 0 || syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0))
        blame(turn, "cannot kill process %d: %s", (int)pid, strerror(errno));
    if (fd >= 0)
        close(fd);
}

/* By which call it learned last. */
static enum kill_seen slowest(const struct kill_rank *k)
{
    int last = 0;
    for (int i = 1; i < KILL_SEEN; i++)
        if (k->seen_ns[i] > k->seen_ns[last])
            last = i;
    return (enum kill_seen)last;
}

static void check_survivor(struct turn *turn, int r)
{
    static const char *const names[] = {KILL_SEEN_NAMES};
    struct kill_rank *k = &t.board->rank[r];
    enum kill_seen last = slowest(k);
    uint64_t ns = k->seen_ns[last] - t.board->killed_ns;
    if (k->fail[0])
        blame(turn, "rank %d: %s", r, k->fail);
    else if (k->phase != KILL_LEFT)
        blame(turn, "rank %d ended in phase %d of %d", r, k->phase, KILL_LEFT);
    if (turn->why[0])
        return;
    if (ns > SLOW_NS)
        printf("kill: turn %u, %s: rank %d learned of the death after %llu ms (%s)\n", turn->number,
               turn->part->name, r, (unsigned long long)(ns / MS), names[last]);
    if (ns > t.board->notice_ns)
        blame(turn, "more than %u s until rank %d learned of the death", t.slow, r);
    if (ns > turn->part->worst_ns)
        turn->part->worst_ns = ns;
}

static void check_code(struct turn *turn)
{
    if (!WIFEXITED(turn->status) || WEXITSTATUS(turn->status) != 128 + SIGKILL)
        blame(turn, "weft run ended with status 0x%x instead of code %d", turn->status,
              128 + SIGKILL);
}

static void check_survivors(struct turn *turn)
{
    struct kill_rank *v = &t.board->rank[t.board->victim];
    if (v->fail[0])
        blame(turn, "rank %d (the victim): %s", t.board->victim, v->fail);
    if (!t.board->killed_ns)
        blame(turn, "rank %d never came to %s (%llu of %llu times in %llu steps)", t.board->victim,
              t.board->label, (unsigned long long)v->hits, (unsigned long long)t.board->hit,
              (unsigned long long)v->ops);
    for (int r = 0; r < KILL_RANKS; r++)
        if (r != t.board->victim)
            check_survivor(turn, r);
    check_code(turn);
}

static void check_ended(struct turn *turn)
{
    uint64_t ns = wf_now_ns() - t.board->killed_ns;
    if (ns > end_ns())
        blame(turn, "the job was gone only after %llu ms", (unsigned long long)(ns / MS));
    if (ns > turn->part->worst_ns)
        turn->part->worst_ns = ns;
    if (turn->part->kind == ENDS)
        check_code(turn);
}

static void turn_rank(struct turn *turn)
{
    bool keep_going = turn->part->kind != ENDS;
    if (!await(turn, all_started, wf_now_ns() + START_NS)) {
        blame(turn, "the ranks did not start");
        check_survivors(turn);
        return;
    }
    if (!turn->part->label) {
        (void)await(turn, never, wf_now_ns() + below(turn, 200 * MS));
        kill_process(turn, t.board->rank[t.board->victim].pid);
    }
    if (!await(turn, launcher_ended, wf_now_ns() + (keep_going ? RUN_NS : end_ns())))
        blame(turn, "weft run did not end");
    if (!await(turn, nobody_left, wf_now_ns() + end_ns()))
        blame(turn, "processes of the job were left");
    if (keep_going)
        check_survivors(turn);
    else
        check_ended(turn);
}

/* From the very start to well into the traffic. */
static void turn_launcher(struct turn *turn)
{
    (void)await(turn, never, wf_now_ns() + below(turn, 500 * MS));
    if (turn->pid)
        kill_process(turn, turn->pid);
    else
        blame(turn, "weft run had ended by itself");
    if (!await(turn, nobody_left, t.board->killed_ns + end_ns()))
        blame(turn, "processes of the job were left");
    check_ended(turn);
}

static void log_print(void)
{
    char buf[4096];
    ssize_t n;
    off_t at = 0;
    while ((n = pread(t.log_fd, buf, sizeof buf, at)) > 0) {
        fwrite(buf, 1, (size_t)n, stdout);
        at += n;
    }
}

static void turn_run(struct part *part, unsigned number)
{
    struct turn turn = {.part = part, .number = number, .rand = t.seed * 1000003u + number};
    (void)wf_rand(&turn.rand);
    board_reset(&turn);
    start(&turn);
    if (part->kind == LAUNCHER)
        turn_launcher(&turn);
    else
        turn_rank(&turn);
    kill_all(&turn);
    check_files(&turn);
    check_sockets(&turn);
    close(turn.ready[0]);
    part->run++;
    part->held += !turn.why[0];
    if (!turn.why[0])
        return;
    printf("kill: turn %u, %s, seed %llu: %s\n", number, part->name, (unsigned long long)t.seed,
           turn.why);
    log_print();
    fflush(stdout);
}

static void parts_make(void)
{
    static char names[LABELS][48];
    unsigned fifth = (t.count + 4) / 5;
    size_t n = 0;
    t.parts[n++] = (struct part){.name = "random", .kind = RANDOM, .count = t.count};
    for (size_t i = 0; i < LABELS; i++) {
        snprintf(names[i], sizeof names[i], "at %s", labels[i]);
        t.parts[n++] =
            (struct part){.name = names[i], .kind = LABEL, .label = labels[i], .count = fifth};
    }
    t.parts[n++] = (struct part){.name = "job ends", .kind = ENDS, .count = fifth < 2 ? 2 : fifth};
    t.parts[n++] = (struct part){.name = "launcher", .kind = LAUNCHER, .count = (t.count + 1) / 2};
}

/* Turns [from, from + only) that fall into this part. Returns whether all held. */
static bool part_run(struct part *part, unsigned *number)
{
    for (unsigned i = 0; i < part->count; i++, ++*number)
        if (*number >= t.from && *number - t.from < t.only)
            turn_run(part, *number);
    if (part->run) {
        printf("kill: %-18s %u of %u held; slowest %.1f ms\n", part->name, part->held, part->run,
               (double)part->worst_ns / (double)MS);
        fflush(stdout);
    }
    return part->held == part->run;
}

static unsigned number_of(const char *option, const char *text, uint64_t *wide)
{
    char *end;
    unsigned long long n;
    errno = 0;
    n = strtoull(text, &end, 0);
    if (errno || !*text || *end || *text == '-' || (!wide && n > UINT_MAX))
        die("--%s %s: must be a number", option, text);
    if (wide)
        *wide = n;
    return (unsigned)n;
}

static void parse(int argc, char **argv)
{
    static const struct option options[] = {{"count", 1, NULL, 'c'}, {"seed", 1, NULL, 's'},
                                            {"weft", 1, NULL, 'w'},  {"from", 1, NULL, 'f'},
                                            {"only", 1, NULL, 'o'},  {"slow", 1, NULL, 'l'},
                                            {NULL, 0, NULL, 0}};
    char *slash;
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (c) {
        case 'c': t.count = number_of("count", optarg, NULL); break;
        case 's': (void)number_of("seed", optarg, &t.seed); break;
        case 'f': t.from = number_of("from", optarg, NULL); break;
        case 'o': t.only = number_of("only", optarg, NULL); break;
        case 'l': t.slow = number_of("slow", optarg, NULL); break;
        case 'w':
            if (!realpath(optarg, t.weft))
                die("--weft %s: %s", optarg, strerror(errno));
            break;
        default: exit(2);
        }
    if (!t.slow || t.slow > SLOW_MAX)
        die("--slow %u: 1 to %d", t.slow, SLOW_MAX);
    if (!t.weft[0] || optind < argc)
        die("usage: kill_soak --weft PATH [--count N] [--seed S] [--from K] [--only M] [--slow F]");
    if (readlink("/proc/self/exe", t.rank, sizeof t.rank - 16) < 0 ||
        !(slash = strrchr(t.rank, '/')))
        die("/proc/self/exe: %s", strerror(errno));
    strcpy(slash + 1, "kill_rank");
}

static void prepare(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    t.private_dirs = hide();
    t.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    t.board_fd = memfd_create("kill-board", MFD_CLOEXEC);
    t.log_fd = memfd_create("kill-log", MFD_CLOEXEC);
    if (t.signals < 0 || t.log_fd < 0 || ftruncate(t.board_fd, sizeof *t.board) ||
        prctl(PR_SET_CHILD_SUBREAPER, 1))
        die("cannot start: %s", strerror(errno));
    (void)fcntl(t.log_fd, F_SETFL, O_APPEND);
    t.board = mmap(NULL, sizeof *t.board, PROT_READ | PROT_WRITE, MAP_SHARED, t.board_fd, 0);
    if (t.board == MAP_FAILED)
        die("mmap: %s", strerror(errno));
}

int main(int argc, char **argv)
{
    unsigned number = 0;
    bool held = true;
    parse(argc, argv);
    prepare();
    parts_make();
    if (!t.private_dirs)
        printf("kill: files left behind are not looked for: private mounts need root or user "
               "namespaces\n");
    for (size_t i = 0; i < PARTS; i++)
        held &= part_run(&t.parts[i], &number);
    printf("kill: seed %llu, turns %u to %u: %s\n", (unsigned long long)t.seed, t.from,
           number > t.from && number - t.from > t.only ? t.from + t.only : number,
           held ? "all held" : "FAILED");
    return held ? 0 : 1;
}
