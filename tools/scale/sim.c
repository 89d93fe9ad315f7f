/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
/* Its check of longjmp knows one stack only. */
#undef _FORTIFY_SOURCE
#include "sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "base/rand.h"

#define STACK ((size_t)64 << 10)

/* Sanitizers follow swapcontext(3), and no jump from stack to stack. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* A place to go on from. A new thread begins at [at], all others go on at [env]: unlike
 * swapcontext, _longjmp makes no system call. */
struct place {
    ucontext_t at;
    jmp_buf env;
    bool has_env;
};

struct thread {
    struct place place;
    double clock;
    bool is_blocked; /* or has returned */
    unsigned next;   /* 1 + thread: the next waiter of the same lock or barrier */
};

static struct {
    struct wf_vt_costs costs;
    struct thread *threads;
    char *stacks;
    unsigned n, self, alive;
    bool running;
    double horizon; /* the least clock of the other threads that can run */
    double end;
    uint64_t rand;
    struct place home;
    void (*fn)(void *arg, unsigned self);
    void *arg;
} vt;

/* ---- the scheduler ---- */

/* Returns the thread with the least clock. Sets the horizon to the second least. */
static unsigned next_find(void)
{
    unsigned next = vt.n;
    double least = INFINITY, second = INFINITY;
    for (unsigned i = 0; i < vt.n; i++) {
        double clock = vt.threads[i].is_blocked ? INFINITY : vt.threads[i].clock;
        if (clock < least) {
            second = least;
            least = clock;
            next = i;
        } else if (clock < second) {
            second = clock;
        }
    }
    vt.horizon = second;
    return next;
}

static void place_go(struct place *to)
{
    if (to->has_env)
        _longjmp(to->env, 1);
    setcontext(&to->at);
}

static void place_switch(struct place *from, struct place *to)
{
    if (SANITIZED) {
        swapcontext(&from->at, &to->at);
        return;
    }
    from->has_env = true;
    if (!_setjmp(from->env))
        place_go(to);
}

static void next_run(void)
{
    unsigned before = vt.self, next = next_find();
    if (next == before)
        return;
    if (next == vt.n) {
        fputs("virtual time: all threads wait for each other\n", stderr);
        abort();
    }
    vt.self = next;
    place_switch(&vt.threads[before].place, &vt.threads[next].place);
}

static void thread_main(void)
{
    vt.fn(vt.arg, vt.self);
    vt.threads[vt.self].is_blocked = true;
    vt.end = fmax(vt.end, vt.threads[vt.self].clock);
    if (--vt.alive)
        next_run();
    else
        place_go(&vt.home);
}

static void thread_make(unsigned i)
{
    struct thread *t = &vt.threads[i];
    t->clock = 0;
    t->is_blocked = t->place.has_env = false;
    t->next = 0;
    getcontext(&t->place.at);
    t->place.at.uc_stack.ss_sp = vt.stacks + i * STACK;
    t->place.at.uc_stack.ss_size = STACK;
    t->place.at.uc_link = NULL;
    makecontext(&t->place.at, thread_main, 0);
}

static bool memory_take(unsigned n)
{
    vt.threads = malloc(n * sizeof *vt.threads);
    vt.stacks = mmap(NULL, n * STACK, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (vt.threads && vt.stacks != MAP_FAILED)
        return true;
    free(vt.threads);
    return false;
}

double wf_vt_run(const struct wf_vt_costs *costs, uint64_t seed, unsigned n,
                 void (*fn)(void *arg, unsigned self), void *arg)
{
    if (!n || n > WF_VT_THREADS || !memory_take(n))
        return -1;
    vt.costs = *costs;
    vt.n = vt.alive = n;
    vt.rand = seed;
    vt.fn = fn;
    vt.arg = arg;
    vt.end = 0;
    for (unsigned i = 0; i < n; i++)
        thread_make(i);
    vt.running = true;
    vt.self = next_find();
    place_switch(&vt.home, &vt.threads[vt.self].place);
    vt.running = false;
    munmap(vt.stacks, n * STACK);
    free(vt.threads);
    return vt.end;
}

/* ---- clocks ---- */

double wf_vt_now(void)
{
    return vt.running ? vt.threads[vt.self].clock : 0;
}

unsigned wf_vt_self(void)
{
    return vt.self;
}

bool wf_vt_running(void)
{
    return vt.running;
}

void wf_vt_spend(double ns)
{
    vt.threads[vt.self].clock += ns;
}

void wf_vt_wait_until(double ns)
{
    struct thread *t = &vt.threads[vt.self];
    t->clock = fmax(t->clock, ns);
}

void wf_vt_meet(void)
{
    if (vt.threads[vt.self].clock > vt.horizon)
        next_run();
}

uint64_t wf_vt_rand(void)
{
    return wf_rand(&vt.rand);
}

static void block(void)
{
    vt.threads[vt.self].is_blocked = true;
    next_run();
}

static void wake(unsigned i, double at)
{
    struct thread *t = &vt.threads[i];
    t->clock = fmax(t->clock, at);
    t->is_blocked = false;
    vt.horizon = fmin(vt.horizon, t->clock);
}

/* ---- lines, locks, barriers ---- */

/* Several cores that want a line get it in any order: a core that waits tries again at a random
 * moment, within half of the time that a line takes. The core that has it can use it again before
 * the others do. */
static void line_wait(const struct wf_vt_line *line)
{
    wf_vt_meet();
    while (line->free_from > wf_vt_now() && line->owner != vt.self + 1) {
        double part = (double)(wf_vt_rand() >> 11) * 0x1p-53;
        wf_vt_wait_until(line->free_from + part * vt.costs.line / 2);
        wf_vt_meet();
    }
}

void wf_vt_line_use(struct wf_vt_line *line, bool locked)
{
    line_wait(line);
    if (line->owner && line->owner != vt.self + 1)
        wf_vt_spend(vt.costs.line);
    wf_vt_spend(locked ? vt.costs.add : 0);
    line->owner = vt.self + 1;
    line->free_from = wf_vt_now();
}

static void waiter_add(struct wf_vt_lock *lock)
{
    unsigned self = vt.self + 1;
    vt.threads[vt.self].next = 0;
    if (lock->tail)
        vt.threads[lock->tail - 1].next = self;
    else
        lock->head = self;
    lock->tail = self;
    lock->waiters++;
}

/* Removes the waiter that is next. */
static unsigned waiter_take(struct wf_vt_lock *lock)
{
    unsigned skip = vt.costs.fifo ? 0 : (unsigned)(wf_vt_rand() % lock->waiters), before = 0;
    unsigned *at = &lock->head, taken;
    for (; skip; skip--) {
        before = *at;
        at = &vt.threads[*at - 1].next;
    }
    taken = *at;
    *at = vt.threads[taken - 1].next;
    if (lock->tail == taken)
        lock->tail = before;
    lock->waiters--;
    return taken;
}

void wf_vt_lock_take(struct wf_vt_lock *lock)
{
    bool waited = false;
    wf_vt_meet();
    while (lock->held) {
        waiter_add(lock);
        block();
        if (!vt.costs.retakes)
            return;
        wf_vt_meet();
        waited = true;
    }
    lock->held = true;
    if (!waited)
        wf_vt_spend(vt.costs.lock + (lock->last && lock->last != vt.self + 1 ? vt.costs.line : 0));
    lock->last = vt.self + 1;
}

void wf_vt_lock_give(struct wf_vt_lock *lock)
{
    unsigned next;
    double lines;
    wf_vt_meet();
    if (!lock->waiters) {
        lock->held = false;
        return;
    }
    next = waiter_take(lock);
    lines = vt.costs.handover + vt.costs.crowd * lock->waiters;
    if (vt.costs.retakes) {
        /* A waiter reads the lock again and again, so its line has to come back for the release. */
        wf_vt_spend(fmin(lines, 1) * vt.costs.line);
        lines -= fmin(lines, 1);
        lock->held = false;
    } else {
        lock->last = next;
    }
    wake(next - 1, wf_vt_now() + vt.costs.lock + vt.costs.line * lines);
}

void wf_vt_barrier_wait(struct wf_vt_barrier *b, double ns)
{
    wf_vt_meet();
    if (++b->arrived < b->n) {
        vt.threads[vt.self].next = b->head;
        b->head = vt.self + 1;
        block();
        return;
    }
    wf_vt_spend(ns);
    for (unsigned i = b->head; i; i = vt.threads[i - 1].next)
        wake(i - 1, wf_vt_now());
    b->arrived = b->head = 0;
}
