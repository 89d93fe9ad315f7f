/* SPDX-License-Identifier: BSD-3-Clause */
/* Standard error without a reader: a pipe, a socket, a terminal. */
#define _GNU_SOURCE
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "base/log.h"

#define LIMIT_S 10 /* a log call that waits is ended by SIGALRM */

static void flag_set(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);
    assert_true(flags >= 0);
    assert_int_equal(fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK), 0);
}

/* Write to [fd] until it is full. Returns the number of bytes. */
static size_t fill(int fd)
{
    static const char text[4096];
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    size_t count = 0;
    ssize_t done;
    flag_set(fd, true);
    do {
        for (size_t n = sizeof text; n; n /= 2)
            while ((done = write(fd, text, n)) > 0)
                count += (size_t)done;
        assert_int_equal(errno, EAGAIN);
    } while (poll(&p, 1, 50) == 1); /* a terminal's buffer drains bit by bit */
    flag_set(fd, false);
    return count;
}

static ssize_t read_some(int fd, char *to, size_t room)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 5000), 1); /* a terminal's buffer drains bit by bit */
    return read(fd, to, room);
}

static void skip_bytes(int fd, size_t count)
{
    char waste[4096];
    while (count) {
        ssize_t n = read_some(fd, waste, count < sizeof waste ? count : sizeof waste);
        assert_true(n > 0);
        count -= (size_t)n;
    }
}

/* Read until the text ends with [last]. */
static void read_until(int fd, const char *last, char *text, size_t room)
{
    size_t have = 0;
    text[0] = 0;
    while (!strstr(text, last)) {
        ssize_t n = read_some(fd, text + have, room - 1 - have);
        assert_true(n > 0);
        have += (size_t)n;
        text[have] = 0;
    }
}

/* Fails when: a log call waits for a reader, or does not report that lines were lost. */
static void check_full(int reader, int writer)
{
    char text[2048];
    size_t count;
    int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0);
    assert_int_equal(dup2(writer, STDERR_FILENO), STDERR_FILENO);
    wf_log_note();
    count = fill(writer);
    alarm(LIMIT_S);
    errno = 77;
    wf_error("the first");
    wf_error("the second");
    alarm(0);
    assert_int_equal(errno, 77);
    skip_bytes(reader, count);
    wf_error("the third");
    wf_error("the fourth");
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(saved);
    read_until(reader, "the fourth\n", text, sizeof text);
    assert_null(strstr(text, "the first"));
    assert_non_null(strstr(text, "the third (2 earlier lines were lost: stderr was full)"));
    close(reader);
    close(writer);
}

static void test_pipe(void **state)
{
    int fd[2];
    (void)state;
    assert_int_equal(pipe(fd), 0);
    check_full(fd[0], fd[1]);
}

static void test_socket(void **state)
{
    int fd[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    check_full(fd[0], fd[1]);
}

static void test_terminal(void **state)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY), slave;
    struct termios t;
    (void)state;
    if (master < 0 || grantpt(master) || unlockpt(master))
        skip(); /* no /dev/pts here */
    slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(slave >= 0);
    assert_int_equal(tcgetattr(slave, &t), 0);
    cfmakeraw(&t);
    assert_int_equal(tcsetattr(slave, TCSANOW, &t), 0);
    check_full(master, slave);
}

/* Fails when: a line to a file is lost, or cut. */
static void test_file(void **state)
{
    char text[4096], many[2000];
    int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600), saved = dup(STDERR_FILENO);
    ssize_t n;
    (void)state;
    if (fd < 0)
        skip();
    memset(many, 'x', sizeof many - 1);
    many[sizeof many - 1] = 0;
    assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
    wf_log_note();
    wf_error("a line of %d", 1);
    wf_error("%s", many);
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(saved);
    n = pread(fd, text, sizeof text - 1, 0);
    assert_true(n > 1000);
    text[n] = 0;
    assert_non_null(strstr(text, "a line of 1\n"));
    assert_int_equal(text[n - 1], '\n');
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipe),
        cmocka_unit_test(test_socket),
        cmocka_unit_test(test_terminal),
        cmocka_unit_test(test_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
