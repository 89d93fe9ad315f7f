/* SPDX-License-Identifier: BSD-3-Clause */
/* Starting the service of a node. What it reads is in the pipe before the program starts, so that
 * nothing waits for it; the program's line comes by another pipe (src/node/start.h). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/hook.h"
#include "base/process.h"
#include "base/util.h"
#include "config/config.h"
#include "node/start.h"
#include "transport/node/attach.h"

#define END_MS 1000 /* for a process that was killed */

/* ---- the program ---- */

/* Where the program is, seen from the library's folder: installed; in a build folder. */
static const char *const beside[] = {WF_NODE_PROGRAM_BESIDE, "../tools/weft/weft-node"};

static void program_find(char *path, size_t room)
{
    Dl_info info;
    const char *own = "", *slash;
    if (dladdr((void *)(uintptr_t)wf_node_spawn, &info) && info.dli_fname)
        own = info.dli_fname;
    slash = strrchr(own, '/');
    for (size_t i = 0; slash && i < WF_ARRAY_LEN(beside); i++) {
        snprintf(path, room, "%.*s/%s", (int)(slash - own), own, beside[i]);
        if (!access(path, X_OK))
            return;
    }
    snprintf(path, room, "%s", WF_NODE_PROGRAM);
}

/* ---- pipes ---- */

static int pipe_open(int ends[2])
{
    int raw[2];
    if (pipe2(raw, O_CLOEXEC)) /* each end goes through wf_fd_high() next */
        return -1;
    ends[0] = wf_fd_high(raw[0]);
    ends[1] = wf_fd_high(raw[1]);
    if (ends[0] >= 0 && ends[1] >= 0)
        return 0;
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    return -1;
}

/* Returns a pipe from which [start] can be read, and nothing after it; or -1 with errno. */
static int key_pipe(const struct wf_node_start *start)
{
    int ends[2];
    ssize_t n;
    if (pipe_open(ends))
        return -1;
    n = write(ends[1], start, sizeof *start); /* less than PIPE_BUF, so it does not wait */
    close(ends[1]);
    if (n == sizeof *start)
        return ends[0];
    close(ends[0]);
    return -1;
}

/* ---- the process ---- */

static int attributes_set(posix_spawnattr_t *attr)
{
    sigset_t set;
    int err;
    sigfillset(&set);
    err = posix_spawnattr_setsigdefault(attr, &set);
    sigemptyset(&set);
    err = err ? err : posix_spawnattr_setsigmask(attr, &set);
    return err ? err
               : posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
}

/* What a program that starts has as descriptors; -1: none. */
struct given {
    int key_fd, line_fd;
    int estate[WF_NODE_ESTATE], nestate;
};

/* Copy the estate's descriptors, so that none is another one's place in the new process. Returns
 * false with errno. */
static bool estate_copy(const struct wf_node_attach_params *params, struct given *given)
{
    const int above = WF_NODE_ESTATE_AT + WF_NODE_ESTATE;
    bool copied = true;
    for (int i = 0; i < params->nestate; i++) {
        int fd = wf_fd_high(fcntl(params->estate[i], F_DUPFD_CLOEXEC, above));
        given->estate[given->nestate++] = fd;
        copied &= fd >= 0;
    }
    return copied;
}

static void given_close(struct given *given)
{
    const int fds[] = {given->key_fd, given->line_fd};
    for (size_t i = 0; i < WF_ARRAY_LEN(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    for (int i = 0; i < given->nestate; i++)
        if (given->estate[i] >= 0)
            close(given->estate[i]);
    *given = (struct given){.key_fd = -1, .line_fd = -1};
}

static int actions_set(posix_spawn_file_actions_t *actions, const struct given *given)
{
    int err = posix_spawn_file_actions_adddup2(actions, given->key_fd, STDIN_FILENO);
    err = err ? err : posix_spawn_file_actions_adddup2(actions, given->line_fd, STDOUT_FILENO);
    for (int i = 0; i < given->nestate && !err; i++)
        err = posix_spawn_file_actions_adddup2(actions, given->estate[i], WF_NODE_ESTATE_AT + i);
    return err ? err
               : posix_spawn_file_actions_addopen(actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
}

/* Returns 0 or an error number. */
static int process_start(const char *path, const struct wf_node_attach_params *params,
                         const struct given *given, pid_t *pid)
{
    char *argv[] = {(char[]){"weft-node"}, NULL};
    char **own = params->environment ? NULL : wf_config_service_environment(params->name);
    char **env = own ? own : params->environment;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    int err = env ? posix_spawnattr_init(&attr) : ENOMEM;
    if (err)
        goto free_env;
    err = posix_spawn_file_actions_init(&actions);
    if (err)
        goto destroy_attr;
    err = attributes_set(&attr);
    err = err ? err : actions_set(&actions, given);
    err = err ? err : posix_spawn(pid, path, &actions, &attr, argv, env);
    posix_spawn_file_actions_destroy(&actions);
destroy_attr:
    posix_spawnattr_destroy(&attr);
free_env:
    free(own);
    return err;
}

static int ms_until(uint64_t until_ns)
{
    uint64_t now = wf_now_ns();
    return now >= until_ns ? 0 : (int)WF_MIN((until_ns - now + 999999) / 1000000, 3600000);
}

/* Returns false if the time is over, or the caller has to stop. */
static bool end_await(int pidfd, const struct wf_node_attach_params *params)
{
    struct pollfd p[] = {{.fd = pidfd, .events = POLLIN},
                         {.fd = params->stop_fd ? params->stop_fd : -1, .events = POLLIN}};
    return poll(p, 2, ms_until(params->until_ns)) > 0 && p[0].revents;
}

/* The process forks and ends before the line comes, so there is nearly nothing to wait for, unless
 * it is to be [killed]. The program may have reaped it itself (waitpid(2) for any child), or have
 * the kernel do it. */
static void process_reap(pid_t pid, int pidfd, const struct wf_node_attach_params *params,
                         bool killed)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    if (pidfd >= 0 && (killed || !end_await(pidfd, params))) {
        kill(pid, SIGKILL);
        (void)poll(&p, 1, END_MS);
    }
    (void)waitpid(pid, NULL, WNOHANG);
}

/* Read up to the first newline. Returns false if the time is over, or the caller has to stop. */
static bool line_read(int fd, const struct wf_node_attach_params *params, char *line, size_t room)
{
    size_t len = 0;
    bool in_time = true;
    line[0] = 0;
    while (len < room - 1 && !strchr(line, '\n')) {
        struct pollfd p[] = {{.fd = fd, .events = POLLIN},
                             {.fd = params->stop_fd ? params->stop_fd : -1, .events = POLLIN}};
        int ready = poll(p, 2, ms_until(params->until_ns));
        ssize_t n;
        if (ready < 0 && errno == EINTR)
            continue;
        in_time = ready > 0 && p[0].revents;
        n = in_time ? read(fd, line + len, room - 1 - len) : 0;
        if (n <= 0)
            break;
        len += (size_t)n;
        line[len] = 0;
    }
    line[strcspn(line, "\n")] = 0;
    return in_time;
}

static enum weft_status started(const char *path, int line_fd,
                                const struct wf_node_attach_params *params, char why[512])
{
    char line[512];
    if (!line_read(line_fd, params, line, sizeof line)) {
        snprintf(why, 512, "%.256s does not start: is the machine overloaded?", path);
        return WEFT_ETIMEDOUT;
    }
    if (!strcmp(line, WF_NODE_STARTED) || !strcmp(line, WF_NODE_TAKEN))
        return WEFT_OK;
    if (!strcmp(line, WF_NODE_HELD))
        return WEFT_EBUSY;
    if (line[0]) {
        snprintf(why, 512, "%s", line);
        return WEFT_ESYSTEM;
    }
    snprintf(why, 512, "%.256s ended without a word: it cannot be run as it is", path);
    return WEFT_ECLOSED;
}

/* Read the line of the process [pid], and reap it. */
static enum weft_status line_await(const char *path, pid_t pid, int line_fd,
                                   const struct wf_node_attach_params *params, char why[512])
{
    int pidfd = wf_pidfd_open(pid);
    enum weft_status status = started(path, line_fd, params, why);
    process_reap(pid, pidfd, params, status == WEFT_ETIMEDOUT);
    if (pidfd >= 0)
        close(pidfd);
    return status;
}

/* Make what the process gets, and start it. Another thread that forks waits, since its child would
 * keep copies of all of that. On success the process has its end of [line]. */
static WF_UNCHECKED bool given_start(const char *path, const struct wf_node_attach_params *params,
                                     const struct wf_node_start *start, int line[2], pid_t *pid,
                                     char why[512])
{
    struct given given = {.key_fd = -1, .line_fd = -1};
    int err = -1;
    wf_node_taking_begin();
    given.key_fd = key_pipe(start);
    if (given.key_fd < 0 || !estate_copy(params, &given) || pipe_open(line)) {
        snprintf(why, 512, "no descriptor for starting the service: %s (ulimit -n)",
                 strerror(errno));
    } else {
        given.line_fd = line[1];
        err = process_start(path, params, &given, pid);
        if (err)
            snprintf(why, 512, "cannot start %.256s: %s: install it, or give it execute permission",
                     path, strerror(err));
        WF_HOOK("node.given");
    }
    given_close(&given);
    wf_node_taking_end();
    return !err;
}

enum weft_status wf_node_spawn(const struct wf_node_attach_params *params, bool anew, char why[512])
{
    struct wf_node_start start = {
        .line = params->line, .count = (uint32_t)params->nestate, .anew = anew};
    enum weft_status status = WEFT_ESYSTEM;
    int line[2] = {-1, -1};
    char path[4096];
    pid_t pid = -1;
    if (params->program)
        snprintf(path, sizeof path, "%s", params->program);
    else
        program_find(path, sizeof path);
    memcpy(start.key, params->key, sizeof start.key);
    if (given_start(path, params, &start, line, &pid, why))
        status = line_await(path, pid, line[0], params, why);
    explicit_bzero(&start, sizeof start);
    if (line[0] >= 0)
        close(line[0]);
    return status;
}
