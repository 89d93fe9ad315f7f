/* SPDX-License-Identifier: BSD-3-Clause */
/* src/job/across.c: a leader that lies to the others breaks the job, and nothing else. Each rank is
 * a node of its own (JOB_TEST_NODES=1). The last one lies; the others wait in barriers until one
 * fails, and print how.
 *
 *   forge -KIND READY WAIT  one message, KIND from 1 on; code 3: there is no such kind forge SEED
 *   many random messages forge 0 READY WAIT      no lie: the job continues, and the others report
 *   it
 *
 * Before a rank closes the job it writes a byte to descriptor READY and reads one from WAIT. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <weft/job.h>

#include "core/ctl.h"
#include "job/job.h"

#define ARGS 9

static struct weft_job *job;

static void check(enum weft_status s, const char *what)
{
    if (s == WEFT_OK)
        return;
    printf("%u: %s %s\n", weft_job_rank(job), what, weft_status_name(s));
    exit(1);
}

/* A rank that fails to open the job reports how long it ran until then. */
static void open_job(void)
{
    enum weft_status s = weft_job_open(NULL, &job);
    struct timespec t;
    if (s == WEFT_OK || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t))
        return;
    printf("0: open %s after %ld ms of processor\n", weft_status_name(s),
           t.tv_sec * 1000L + t.tv_nsec / 1000000);
    exit(1);
}

static void send(unsigned to, const uint32_t *args, unsigned nargs, const void *data, size_t len)
{
    enum weft_status s;
    do {
        (void)weft_ep_poll(weft_job_ep(job));
        s = wf_ctl_request(weft_job_peer(job, to), WF_CTL_JOB, args, nargs, data, len, 0);
    } while (s == WEFT_AGAIN);
}

/* A message of the last rank to the one before it, and one change that makes it false: STEP of
 * round 0 of the next barrier, with 8 bytes, or TROUBLE of it. */
static const struct lie {
    const char *what;
    uint32_t kind;  /* 1 STEP, 2 TROUBLE */
    unsigned at;    /* the argument that differs, */
    uint32_t by;    /* by so much */
    unsigned nargs; /* fewer of them */
    int len;        /* so much more payload */
    int before;     /* bytes of payload of the truth that is sent before it; -1: none is */
} lies[] = {
    {"no such message", 1, 0, 2, 0, 0, -1},
    {"no such round", 1, 1, 31, 0, 0, -1},
    {"a round in which another tells", 1, 1, 1, 0, 0, -1},
    {"too far ahead", 1, 2, 2, 0, 0, -1},
    {"over long ago", 1, 2, -1u, 0, 0, -1},
    {"far too far ahead", 1, 3, 1, 0, 0, -1},
    {"longer than a rank can give", 1, 6, WEFT_JOB_ALLGATHER_MAX - 7, 0, 0, -1},
    {"not from the beginning", 1, 7, 1, 0, 0, -1},
    {"far from the beginning", 1, 8, 1, 0, 0, -1},
    {"more than there is", 1, 0, 0, 0, 1, -1},
    {"nothing of something", 1, 0, 0, 0, -8, -1},
    {"something of nothing", 1, 6, -8u, 0, 0, -1},
    {"too few arguments", 1, 0, 0, 1, 0, -1},
    {"no arguments", 1, 0, 0, ARGS, 0, -1},
    {"twice the same", 1, 0, 0, 0, 0, 8},
    {"another length than before", 1, 6, 8, 0, 0, 4},
    {"another vote than before", 1, 4, 1, 0, -4, 4},
    {"an unknown flag", 2, 1, 2, 0, 0, -1},
    {"trouble of the receiver", 2, 2, -1u, 0, 0, -1},
    {"trouble of a third", 2, 2, -2u, 0, 0, -1},
    {"trouble of nobody", 2, 2, 1u << 31, 0, 0, -1},
    {"trouble with a payload", 2, 0, 0, 0, 1, -1},
    {"trouble with too few arguments", 2, 0, 0, 1, 0, -1},
};
#define LIES (sizeof lies / sizeof lies[0])

static void send_lie(const struct lie *l)
{
    uint32_t number = (uint32_t)job->barriers + 1;
    uint32_t step[ARGS] = {1, 0, number, 0, 0, 0, 8, 0, 0};
    uint32_t trouble[ARGS] = {2, 0, job->rank, number, 0};
    uint32_t *args = l->kind == 1 ? step : trouble;
    unsigned nargs = l->kind == 1 ? ARGS : 5, to = job->size - 2;
    int len = (l->kind == 1 ? 8 : 0) + l->len;
    unsigned char bytes[64] = {0};
    if (l->before >= 0)
        send(to, args, nargs, bytes, (size_t)l->before);
    args[l->at] += l->by;
    send(to, args, nargs - l->nargs, bytes, (size_t)len);
}

static void lie_at_random(unsigned seed)
{
    unsigned char bytes[512];
    srand(seed);
    memset(bytes, 0xaa, sizeof bytes);
    for (unsigned i = 0; i < 20000; i++) {
        uint32_t args[ARGS + 1] = {(uint32_t)rand() % 4,
                                   (uint32_t)rand() % 4,
                                   (uint32_t)job->barriers + (uint32_t)rand() % 4,
                                   0,
                                   0,
                                   0,
                                   (uint32_t)rand() % 4500,
                                   0,
                                   0,
                                   0};
        for (unsigned flip = (unsigned)rand() % 3; flip; flip--)
            args[rand() % ARGS] = (uint32_t)rand() >> rand() % 32;
        send((unsigned)rand() % (job->size - 1), args, (unsigned)rand() % (ARGS + 2), bytes,
             (size_t)rand() % sizeof bytes);
    }
    send_lie(&lies[0]);
}

int main(int argc, char **argv)
{
    int how = argc > 1 ? atoi(argv[1]) : 0;
    enum weft_status s;
    char byte;
    if (-how > (int)LIES)
        return 3;
    open_job();
    s = weft_job_barrier(job); /* a lie may come while others are still in it */
    if (weft_job_rank(job) == weft_job_size(job) - 1) {
        if (how < 0)
            send_lie(&lies[-how - 1]);
        else if (how)
            lie_at_random((unsigned)how);
        for (s = WEFT_OK; how && s == WEFT_OK;)
            s = weft_job_barrier(job);
        check(how ? WEFT_OK : weft_job_barrier(job), "the liar's barrier");
    } else {
        for (unsigned i = 0; s == WEFT_OK && (how || !i); i++)
            s = weft_job_barrier(job);
        printf("%u: barrier %s\n", weft_job_rank(job), weft_status_name(s));
    }
    fflush(stdout);
    if (argc > 3 && (write(atoi(argv[2]), "r", 1) != 1 || read(atoi(argv[3]), &byte, 1) != 1))
        return 4;
    check(weft_job_close(job), "close");
    return 0;
}
