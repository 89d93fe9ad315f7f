/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "services.h"

#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stress/kill/proc.h"

static pid_t subreaper;

void services_begin(bool rdma)
{
    struct ifreq lo = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool alone = !rdma && !unshare(CLONE_NEWNET);
    close(fd);
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (alone) {
        CHECK(!ioctl(fd, SIOCGIFFLAGS, &lo));
        lo.ifr_flags |= IFF_UP;
        CHECK(!ioctl(fd, SIOCSIFFLAGS, &lo));
    }
    close(fd);
    CHECK(!setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1) &&
          !setenv("WEFT_TRANSPORTS", rdma ? "loop,node,rdma" : "loop,node", 1) &&
          !setenv("WEFT_NODE", "1", 1));
    CHECK(!prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)); /* services become its children */
    subreaper = getpid();
}

void services_end(void)
{
    int status;
    while (waitpid(-1, &status, 0) > 0) /* an alarm ends this process if a child does not end */
        ;
    CHECK(errno == ECHILD);
}

/* One that finds the name taken ends as a single thread. */
bool services_runs(pid_t pid)
{
    char path[64], name[32] = "", state = 'Z';
    long threads = 0;
    FILE *f;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    f = fopen(path, "re");
    if (f) {
        if (fscanf(f,
                   "%*d (%31[^)]) %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                   "%*s %ld",
                   name, &state, &threads) != 3)
            state = 'Z';
        fclose(f);
    }
    return !strcmp(name, "weft-node") && state != 'Z' && threads > 1;
}

/* The services that the case's process has as children, at most 2. */
static unsigned services_find(pid_t services[2])
{
    char path[64], text[512];
    unsigned found = 0;
    FILE *f;
    size_t n;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)subreaper, (int)subreaper);
    f = fopen(path, "re");
    CHECK(f);
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    for (char *next, *at = strtok_r(text, " ", &next); at; at = strtok_r(NULL, " ", &next))
        if (found < 2 && services_runs(atoi(at)))
            services[found++] = (pid_t)atoi(at);
    return found;
}

void services_await(pid_t services[2], unsigned count)
{
    uint64_t end = proc_now_ns() + PROC_WAIT_MS * UINT64_C(1000000);
    unsigned found;
    while ((found = services_find(services)) < count && proc_now_ns() < end)
        CHECK(!sched_yield());
    CHECK(found == count);
}
