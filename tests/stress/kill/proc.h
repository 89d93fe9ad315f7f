/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes of a test that talk to each other beside what is tested: a socket
 * pair each, every wait bounded, and none outlives the test. */
#ifndef TEST_PROC_H
#define TEST_PROC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <weft/weft.h>

#define PROC_WAIT_MS 10000
#define PROC_ALARM_S 60

/* Ends the process with code 1 after saying what did not hold. */
#define CHECK(c) ((c) ? (void)0 : proc_fail(__FILE__, __LINE__, "%s", #c))
#define CHECK_STATUS(got, want)                                                                    \
    do {                                                                                           \
        enum weft_status proc_got_ = (enum weft_status)(got);                                      \
        if (proc_got_ != (want))                                                                   \
            proc_fail(__FILE__, __LINE__, "%s is %s, not %s", #got, weft_status_name(proc_got_),   \
                      weft_status_name(want));                                                     \
    } while (0)
__attribute__((noreturn, format(printf, 3, 4))) void proc_fail(const char *file, int line,
                                                               const char *fmt, ...);

struct proc {
    pid_t pid;
    int sock; /* to it */
};

/* Start [fn] in a child, which exits with 0 when it returns. */
struct proc proc_start(void (*fn)(int sock, void *arg), void *arg);
/* As it was started, but end and wait for its code to be 0. */
void proc_join(struct proc *p);
/* Send [signal] and wait until it has ended. Returns its wait status. */
int proc_kill(struct proc *p, int signal);
void proc_stop(struct proc *p); /* returns when it is stopped */
void proc_await_stop(struct proc *p);
void proc_continue(struct proc *p);

void proc_say(int sock, const void *data, size_t len);
/* Returns the length; 0 at the end of file. */
size_t proc_hear(int sock, void *data, size_t room);

/* Run a case in a process of its own, and print its result. Returns 0 if it held. */
int proc_case(const char *name, void (*fn)(void));

uint64_t proc_now_ns(void);

#endif
