/* SPDX-License-Identifier: BSD-3-Clause */
/* Becoming the service. The client's library starts this program with the job's key in a pipe,
 * which is descriptor 0, and reads one line from a pipe, which is descriptor 1 (start.h). The
 * process that was started forks and ends, so that the service is no child of the client's process.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "config/config.h"
#include "node/node.h"
#include "node/start.h"

#define KEY_MS 5000     /* for the key, which the starter writes before it starts the service */
#define CPUS_MAX 65536u /* no kernel supports so many */

/* ---- the report ---- */

/* Write a line to the starter. Descriptor 1 may be a pipe whose reader has ended. */
__attribute__((format(printf, 1, 2))) static void report(const char *fmt, ...)
{
    char line[512];
    va_list ap;
    int n;
    va_start(ap, fmt);
    n = vsnprintf(line, sizeof line - 1, fmt, ap);
    va_end(ap);
    n = WF_MIN(n, (int)sizeof line - 2);
    line[n] = '\n';
    signal(SIGPIPE, SIG_IGN);
    if (write(STDOUT_FILENO, line, (size_t)n + 1) < 0)
        n = 0; /* the starter has ended */
    signal(SIGPIPE, SIG_DFL);
}

/* ---- the key ---- */

/* The key alone is enough. */
static bool start_read(struct wf_node_start *start)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    size_t have = 0;
    *start = (struct wf_node_start){0};
    while (have < sizeof *start) {
        ssize_t n;
        if (poll(&p, 1, KEY_MS) != 1)
            break;
        n = read(STDIN_FILENO, (uint8_t *)start + have, sizeof *start - have);
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    return (have == sizeof *start || have == WF_NODE_KEY) && start->anew <= 1 && !start->zero &&
           (start->line ? start->count > WF_NODE_ESTATE_SOCKETS : !start->count) &&
           start->count <= WF_NODE_ESTATE;
}

/* ---- what a process inherits ---- */

static void signals_reset(void)
{
    sigset_t none;
    for (int i = 1; i < NSIG; i++)
        (void)signal(i, SIG_DFL); /* fails for KILL, STOP and the C library's own */
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static void descriptors_close_listed(int from)
{
    DIR *dir = opendir("/proc/self/fd"); /* no wf_fd_high(): closed before the function ends */
    struct dirent *d;
    while (dir && (d = readdir(dir))) {
        int fd = atoi(d->d_name);
        if (fd >= from && fd != dirfd(dir))
            close(fd);
    }
    if (dir)
        closedir(dir);
}

/* Close the descriptors from [from] on. */
static void descriptors_close(int from)
{
    if (syscall(SYS_close_range, from, ~0u, 0)) /* Linux 5.9 */
        descriptors_close_listed(from);
}

/* A rank may be bound to one processor; the kernel takes of all those that the cpuset allows. */
static void processors_take_all(void)
{
    size_t size = CPU_ALLOC_SIZE(CPUS_MAX);
    cpu_set_t *all = CPU_ALLOC(CPUS_MAX);
    if (!all)
        return;
    memset(all, 0xff, size);
    (void)sched_setaffinity(0, size, all);
    CPU_FREE(all);
}

static void limit_raise(int resource)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(resource, &limit);
}

static bool standard_close(void)
{
    int fd = wf_fd_high(open("/dev/null", O_RDWR | O_CLOEXEC));
    bool done = fd >= 0;
    for (int i = 0; i < WF_FD_MIN && done; i++)
        done = dup2(fd, i) == i; /* no wf_fd_high(): these are to be below 3 */
    if (fd >= 0)
        close(fd);
    return done;
}

/* ---- the service ---- */

/* Binds the name, which is the lock: at most one process has it. Returns a listening socket, or -1
 * with errno. */
static int name_bind(const char *name)
{
    struct sockaddr_un sa;
    socklen_t len = wf_node_sockaddr(name, &sa);
    int fd = wf_fd_high(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)), err;
    if (fd < 0)
        return -1;
    if (!bind(fd, (struct sockaddr *)&sa, len) && !listen(fd, SOMAXCONN))
        return fd;
    err = errno;
    close(fd);
    errno = err;
    return -1;
}

/* The hold of a new line. Clients of an earlier one may live, and then have its name: only one of
 * them can start the successor that they need. Returns -1 with errno, EADDRINUSE then. */
static int hold_bind(const struct node_desk *desk, bool anew)
{
    char name[WF_NODE_SOCKET_ROOM];
    struct sockaddr_un sa;
    socklen_t len;
    int fd = wf_fd_high(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)), err;
    wf_node_hold_name(desk->name, name);
    len = wf_node_sockaddr(name, &sa);
    if (fd < 0 || !bind(fd, (struct sockaddr *)&sa, len) || anew)
        return fd;
    err = errno;
    close(fd);
    errno = err;
    return -1;
}

/* A service that begins a line takes the hold. Returns false with errno if there is none. */
static bool hold_take(struct node_desk *desk, bool anew)
{
    if (desk->line)
        return true;
    desk->work.estate[1] = hold_bind(desk, anew);
    desk->work.nestate = WF_NODE_ESTATE_SOCKETS;
    return desk->work.estate[1] >= 0;
}

static int serve(struct node_desk *desk, bool anew)
{
    enum weft_status status;
    int fd;
    /* Before the name, which it would keep from the successor that is due. */
    if (!hold_take(desk, anew)) {
        bool held = errno == EADDRINUSE;
        report(held ? WF_NODE_HELD : "the service has no descriptor for its socket (ulimit -n)");
        return !held;
    }
    fd = name_bind(desk->name);
    if (fd < 0 && errno == EADDRINUSE) {
        report(WF_NODE_TAKEN);
        return 0;
    }
    if (fd < 0) {
        report("cannot listen on the abstract socket %s: %s", desk->name, strerror(errno));
        return 1;
    }
    desk->incarnation = wf_node_incarnation();
    desk->line = desk->line ? desk->line : desk->incarnation;
    status = wf_node_desk_init(desk, fd);
    if (status != WEFT_OK) {
        if (status == WEFT_EUNREACH || status == WEFT_EINVAL)
            report("the service finds no network interface that is up, or none that "
                   "WEFT_TCP_INTERFACES names");
        else
            report("the service has no memory or descriptor: %s (ulimit -n, ulimit -v)",
                   strerror(errno));
        close(fd);
        return 1;
    }
    report(WF_NODE_STARTED);
    desk->stop = !standard_close();
    wf_node_desk_run(desk);
    wf_node_desk_fini(desk);
    return 0;
}

/* Everything that can fail for the starter's settings comes before the fork, so that the exit code
 * shows it. */
static bool desk_prepare(struct node_desk *desk, bool *anew)
{
    char name[WF_NODE_NAME_ROOM];
    struct wf_node_start start;
    if (!start_read(&start)) {
        report("the job's key did not come: descriptor 0 is to be a pipe with its %d bytes",
               WF_NODE_KEY);
        return false;
    }
    *anew = start.anew;
    desk->line = start.line;
    desk->work.nestate = start.count;
    for (unsigned i = 0; i < start.count; i++)
        desk->work.estate[i] = WF_NODE_ESTATE_AT + (int)i;
    memcpy(desk->key, start.key, sizeof desk->key);
    sodium_memzero(&start, sizeof start);
    if (wf_config_init() != WEFT_OK) {
        report("a variable of Weft has a value that is not allowed: weft info --config names it");
        return false;
    }
    if (wf_node_mac_init() != WEFT_OK) {
        report("libsodium cannot be initialised: has this host a source of random numbers?");
        return false;
    }
    if (wf_node_name_expand(wf_config()->node_name, 0, name)) {
        report("WEFT_NODE_NAME is longer than %d characters", WF_NODE_NAME_ROOM - 1);
        return false;
    }
    wf_node_parameters_here(&desk->parameters);
    wf_node_scope_here(&desk->place);
    wf_node_socket_name(desk->key, &desk->place, name, desk->name);
    return true;
}

int wf_node_start(void)
{
    static struct node_desk desk;
    int code = 0;
    bool anew;
    pid_t pid;
    descriptors_close(WF_NODE_ESTATE_AT + WF_NODE_ESTATE);
    signals_reset();
    if (!desk_prepare(&desk, &anew))
        return 1;
    descriptors_close(WF_NODE_ESTATE_AT + (int)desk.work.nestate);
    pid = fork();
    if (pid < 0) {
        report("cannot start a process: %s (ulimit -u)", strerror(errno));
        return 1;
    }
    if (!pid) {
        (void)setsid();
        if (chdir("/"))
            (void)0; /* "/" can be left as little as any other folder that is gone */
        processors_take_all();
        limit_raise(RLIMIT_NOFILE);
        limit_raise(RLIMIT_MEMLOCK);
        code = serve(&desk, anew);
    }
    sodium_memzero(desk.key, sizeof desk.key);
    return code;
}
