/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: a ring tells that its other side has closed before the service thread
 * hears it by the socket. In between, weft_remote_open said EKEY, as if only that region
 * were closed, of a peer that the application had just been told was gone. */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <weft/weft.h>

#include "contract/support.h"
#include "regress.h"

enum { ASK = 1, ROUNDS = 20 };

#define LIMIT_S 5

static _Atomic int over;

static void on_ask(const struct weft_am *am)
{
    (void)am;
}

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    (void)ep;
    (void)peer;
    *(enum weft_status *)arg = why;
}

/* Keeps the only processor busy, so that an idle thread is not run when others sleep. */
static void *spin(void *arg)
{
    while (!atomic_load(&over))
        ;
    return arg;
}

/* The greatest thread number of this process: the thread that was made last. */
static pid_t last_thread(void)
{
    DIR *dir = opendir("/proc/self/task");
    pid_t last = 0;
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (atoi(e->d_name) > last)
            last = atoi(e->d_name);
    if (dir)
        closedir(dir);
    return last;
}

/* Poll until *[done] or something is handled, not longer than LIMIT_S. */
static void poll_until(struct weft_ep *ep, const enum weft_status *done)
{
    time_t end = time(NULL) + LIMIT_S;
    int n = 0;
    while (*done == WEFT_OK && (n = weft_ep_poll(ep)) == 0 && time(NULL) <= end)
        ;
    if (n < 0 || (!n && *done == WEFT_OK)) {
        fprintf(stderr, "nothing came within %d s, or polling failed: %d\n", LIMIT_S, n);
        exit(1);
    }
}

/* 0: ECLOSED as it must be; 1: not; 2: the test itself cannot go on. */
static int round_of(void)
{
    enum weft_status why = WEFT_OK, got;
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    struct weft_ctx *ctx[2];
    struct weft_ep *ep[2];
    struct weft_peer *peer;
    struct weft_mr *mr;
    struct weft_remote *r;
    unsigned char addr[WEFT_ADDR_MAX], key[WEFT_KEY_MAX];
    size_t addr_len = sizeof addr, key_len = sizeof key;
    params.peer_down = on_down;
    params.arg = &why;
    OK(weft_ctx_open(NULL, &ctx[0]));
    if (sched_setscheduler(last_thread(), SCHED_IDLE, &(struct sched_param){0})) {
        perror("sched_setscheduler");
        return 2;
    }
    OK(weft_ctx_open(NULL, &ctx[1]));
    OK(weft_ep_open(ctx[0], &params, &ep[0]));
    OK(weft_ep_open(ctx[1], NULL, &ep[1]));
    OK(weft_am_register(ep[1], ASK, on_ask, NULL));
    OK(weft_ep_address(ep[1], addr, &addr_len));
    OK(weft_peer_open(ep[0], addr, addr_len, &peer));
    OK(weft_mem_alloc(ctx[1], 4096, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &mr));
    OK(weft_mr_key(mr, key, &key_len));
    OK(weft_remote_open(peer, key, key_len, &r));
    OK(weft_am_request(peer, ASK, NULL, 0, NULL, 0, 0));
    poll_until(ep[1], &why);
    OK(weft_remote_close(r));
    OK(weft_mr_close(mr));
    OK(weft_ep_close(ep[1]));
    OK(weft_ctx_close(ctx[1]));
    while (why == WEFT_OK)
        poll_until(ep[0], &why);
    got = weft_remote_open(peer, key, key_len, &r);
    if (why != WEFT_ECLOSED || got != WEFT_ECLOSED)
        fprintf(stderr, "told %s, and opening a region of it gives %s\n", weft_status_name(why),
                weft_status_name(got));
    OK(weft_peer_close(peer));
    OK(weft_ep_close(ep[0]));
    OK(weft_ctx_close(ctx[0]));
    return why != WEFT_ECLOSED || got != WEFT_ECLOSED;
}

int main(void)
{
    cpu_set_t one;
    pthread_t spinner;
    int cpu = sched_getcpu(), bad = 0;
    test_debug("nomap");
    if (setenv("WEFT_TRANSPORTS", "shm", 1))
        return 2;
    CPU_ZERO(&one);
    CPU_SET(cpu < 0 ? 0 : cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) || pthread_create(&spinner, NULL, spin, NULL))
        return 2;
    for (int i = 0; i < ROUNDS && !bad; i++)
        bad = round_of();
    atomic_store(&over, 1);
    pthread_join(spinner, NULL);
    return bad;
}
