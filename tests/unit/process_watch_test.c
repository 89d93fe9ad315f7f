/* SPDX-License-Identifier: BSD-3-Clause */
/* The ends of processes without pidfd_open(2). */
#define _GNU_SOURCE
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "base/process_watch.h"

enum { LIMIT_MS = 10000 };

static unsigned descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static pid_t child_start(void (*body)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        body();
        _exit(0);
    }
    return pid;
}

static void sleeper(void)
{
    for (;;)
        pause();
}

static bool is_readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, ms) > 0;
}

/* Wait until [n] descriptors are open. */
static void await_descriptors(unsigned n)
{
    for (int ms = 0; descriptors() != n; ms++) {
        assert_true(ms < LIMIT_MS);
        (void)poll(NULL, 0, 1);
    }
}

/* Fails when: the end of a process is not seen before it is reaped, or is forgotten afterwards. */
static void test_end(void **state)
{
    unsigned before = descriptors();
    pid_t pid = child_start(sleeper);
    int fd = wf_process_watch(pid);
    (void)state;
    assert_true(fd >= 0);
    assert_false(wf_pidfd_ended(fd));
    assert_false(is_readable(fd, 50)); /* some looks */
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_true(is_readable(fd, LIMIT_MS));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(wf_pidfd_ended(fd));
    close(fd);
    errno = 0;
    assert_int_equal(wf_process_watch(pid), -1);
    assert_int_equal(errno, ESRCH);
    await_descriptors(before);
}

static void *thread_body(void *arg)
{
    sleeper();
    return arg;
}

static void leaderless(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_body, NULL))
        _exit(1);
    pthread_exit(NULL);
}

static char state_of(pid_t pid)
{
    char path[64], state = 0;
    FILE *f;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*d %*s %c", &state), 1);
    fclose(f);
    return state;
}

/* Fails when: a process of which the first thread has ended is taken for ended. */
static void test_leaderless(void **state)
{
    pid_t pid = child_start(leaderless);
    int fd = wf_process_watch(pid);
    (void)state;
    assert_true(fd >= 0);
    for (int ms = 0; state_of(pid) != 'Z'; ms++) {
        assert_true(ms < LIMIT_MS);
        (void)poll(NULL, 0, 1);
    }
    assert_false(is_readable(fd, 50));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_true(is_readable(fd, LIMIT_MS));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(fd);
}

/* Fails when: the thread keeps its end of a watch that its caller has closed. */
static void test_closed(void **state)
{
    unsigned before = descriptors();
    pid_t pid = child_start(sleeper);
    int fds[40];
    (void)state;
    for (unsigned i = 0; i < 40; i++)
        assert_true((fds[i] = wf_process_watch(pid)) >= 0);
    for (unsigned i = 0; i < 40; i++)
        close(fds[i]);
    await_descriptors(before);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Fails when: a forked child keeps the other end of a watch, or cannot watch. */
static void test_forked(void **state)
{
    unsigned before = descriptors();
    pid_t pid = child_start(sleeper), child;
    int fd = wf_process_watch(pid), status;
    (void)state;
    assert_true(fd >= 0);
    child = fork();
    if (!child) {
        int own;
        close(fd);
        if (descriptors() != before)
            _exit(1);
        own = wf_process_watch(pid);
        _exit(own < 0 || kill(pid, SIGKILL) || !is_readable(own, LIMIT_MS));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(is_readable(fd, LIMIT_MS));
    close(fd);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_end), cmocka_unit_test(test_leaderless),
        cmocka_unit_test(test_closed), cmocka_unit_test(test_forked)};
    wf_process_watch_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
