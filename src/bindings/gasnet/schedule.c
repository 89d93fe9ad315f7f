/* SPDX-License-Identifier: BSD-3-Clause */
#include "schedule.h"

#include <sched.h>
#include <stdlib.h>
#include <weft/msg.h>

/* A block of memory that lives as long as its schedule. */
struct gasnetw_scratch {
    struct gasnetw_scratch *next;
    _Alignas(64) unsigned char bytes[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gasnetw_sched *oldest, **newest = &oldest; /* active; guarded by lock */
static _Atomic unsigned active;

void gasnetw_sched_lock(void)
{
    pthread_mutex_lock(&lock);
}

void gasnetw_sched_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

unsigned gasnetw_sched_active(void)
{
    return atomic_load_explicit(&active, memory_order_relaxed);
}

void *gasnetw_alloc(size_t len)
{
    void *p = malloc(len ? len : 1);
    if (!p)
        gasnetw_fatal("collectives: no memory for %zu bytes; give the process more", len);
    return p;
}

void *gasnetw_zalloc(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size ? size : 1);
    if (!p)
        gasnetw_fatal("collectives: no memory for %zu times %zu bytes; give the process more",
                      count, size);
    return p;
}

void *gasnetw_sched_scratch(struct gasnetw_sched *s, size_t len)
{
    struct gasnetw_scratch *m = NULL;
    if (posix_memalign((void **)&m, 64, sizeof *m + len) != 0)
        gasnetw_fatal("collectives: no memory for a buffer of %zu bytes", len);
    m->next = s->scratch;
    s->scratch = m;
    return m->bytes;
}

void gasnetw_sched_fini(struct gasnetw_sched *s)
{
    while (s->scratch) {
        struct gasnetw_scratch *m = s->scratch;
        s->scratch = m->next;
        free(m);
    }
    free(s->steps);
    s->steps = NULL;
}

/* ---- building ---- */

static struct gasnetw_step *add(struct gasnetw_sched *s, enum gasnetw_step_kind kind)
{
    if (s->count == s->room) {
        unsigned room = s->room ? s->room * 2 : 8;
        struct gasnetw_step *more = realloc(s->steps, room * sizeof *more);
        if (!more)
            gasnetw_fatal("collectives: no memory for %u steps", room);
        s->steps = more;
        s->room = room;
    }
    struct gasnetw_step *t = &s->steps[s->count++];
    memset(t, 0, sizeof *t);
    t->kind = (uint8_t)kind;
    return t;
}

void gasnetw_sched_send(struct gasnetw_sched *s, gasnet_node_t node, const void *from, size_t len)
{
    if (!len)
        return;
    struct gasnetw_step *t = add(s, STEP_SEND);
    t->node = node;
    t->from = from;
    t->len = len;
}

void gasnetw_sched_recv(struct gasnetw_sched *s, gasnet_node_t node, void *to, size_t len)
{
    if (!len)
        return;
    struct gasnetw_step *t = add(s, STEP_RECV);
    t->node = node;
    t->to = to;
    t->len = len;
}

void gasnetw_sched_copy(struct gasnetw_sched *s, void *to, const void *from, size_t len)
{
    if (!len || to == from)
        return;
    struct gasnetw_step *t = add(s, STEP_COPY);
    t->to = to;
    t->from = from;
    t->len = len;
}

void gasnetw_sched_fold(struct gasnetw_sched *s, void *to, const void *left, const void *right,
                        size_t elems)
{
    if (!elems)
        return;
    struct gasnetw_step *t = add(s, STEP_FOLD);
    t->to = to;
    t->from = left;
    t->right = right;
    t->len = elems;
}

void gasnetw_sched_call(struct gasnetw_sched *s, gasnetw_step_fn fn, size_t arg)
{
    struct gasnetw_step *t = add(s, STEP_CALL);
    t->fn = fn;
    t->len = arg;
}

void gasnetw_sched_round(struct gasnetw_sched *s)
{
    add(s, STEP_ROUND);
}

/* ---- running; lock held ---- */

/* Fold one element per call. So it does not matter how the client's function understands its
 * counts. */
static void fold(const struct gasnetw_fold *f, const struct gasnetw_step *t)
{
    for (size_t i = 0; i < t->len; i++) {
        size_t at = i * f->elem_size;
        f->fn((char *)t->to + at, 1, (const char *)t->from + at, 1, (const char *)t->right + at,
              f->elem_size, f->flags, f->arg);
    }
}

/* Did the message of step [t] start? [st] is what Weft returned. AGAIN and ELIMIT end when other
 * messages complete, so the step tries again. */
static bool posted(struct gasnetw_step *t, enum weft_status st)
{
    if (st == WEFT_AGAIN || st == WEFT_ELIMIT)
        return false;
    if (st == WEFT_OK || st == WEFT_PENDING || st == WEFT_ETRUNC)
        t->running = true;
    else
        gasnetw_lost(t->node, st, "a collective");
    return true;
}

static bool start_step(struct gasnetw_sched *s, struct gasnetw_step *t)
{
    struct weft_peer *peer;
    switch (t->kind) {
    case STEP_SEND:
        peer = weft_job_peer(gasnetw_binding.job, t->node);
        return posted(t, weft_msg_send(peer, s->tag, t->from, t->len, &t->op));
    case STEP_RECV:
        peer = weft_job_peer(gasnetw_binding.job, t->node);
        return posted(t, weft_msg_recv(gasnetw_binding.ep, peer, s->tag, WEFT_TAG_FULL, t->to,
                                       t->len, &t->op));
    case STEP_COPY: memmove(t->to, t->from, t->len); break;
    case STEP_FOLD: fold(&s->fold, t); break;
    case STEP_CALL: t->fn(s, t->len); break;
    }
    return true;
}

/* Is the message of [t] complete? Acquire: the caller then sees what Weft wrote to the buffer,
 * whichever thread polled. */
static bool step_done(const struct gasnetw_step *t)
{
    if (!t->running)
        return true;
    enum weft_status st = (enum weft_status)__atomic_load_n(&t->op.status, __ATOMIC_ACQUIRE);
    if (st == WEFT_PENDING)
        return false;
    if (st == WEFT_ETRUNC || (st == WEFT_OK && t->kind == STEP_RECV && t->op.len != t->len))
        gasnetw_fatal("collective: node %u sent %llu bytes where %zu were expected; all nodes must "
                      "make the same calls with the same sizes",
                      t->node, (unsigned long long)t->op.len, t->len);
    if (st != WEFT_OK)
        gasnetw_lost(t->node, st, "a collective");
    return true;
}

/* Advance [s] as far as possible. Returns true if [s] is complete. */
static bool advance(struct gasnetw_sched *s)
{
    for (;;) {
        for (; s->started < s->count && s->steps[s->started].kind != STEP_ROUND; s->started++)
            if (!start_step(s, &s->steps[s->started]))
                return false;
        for (; s->first < s->started; s->first++)
            if (!step_done(&s->steps[s->first]))
                return false;
        if (s->started == s->count)
            return true;
        s->first = ++s->started;
    }
}

static void finish(struct gasnetw_sched *s)
{
    /* Release: a thread that sees s->done also sees the received data (gasnetw_sched_wait, coll.c).
     */
    atomic_store_explicit(&s->done, true, memory_order_release);
}

void gasnetw_sched_start(struct gasnetw_sched *s)
{
    if (advance(s)) {
        finish(s);
        return;
    }
    s->next = NULL;
    *newest = s;
    newest = &s->next;
    atomic_fetch_add_explicit(&active, 1, memory_order_relaxed);
    /* Set this only while a schedule is active, since every turn of a wait calls it. */
    gasnetw_progress = gasnetw_sched_progress;
}

void gasnetw_sched_progress(void)
{
    if (!gasnetw_sched_active() || pthread_mutex_trylock(&lock) != 0)
        return;
    for (struct gasnetw_sched **at = &oldest, *s; (s = *at);) {
        if (!advance(s)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        if (newest == &s->next)
            newest = at;
        atomic_fetch_sub_explicit(&active, 1, memory_order_relaxed);
        finish(s);
    }
    if (!oldest)
        gasnetw_progress = NULL;
    pthread_mutex_unlock(&lock);
}

/* Take a turn as gasnetw_wait_turn, but sleep even while schedules are active. Schedules wait for
 * messages, which end the sleep, and this call advances the schedules. If the node has several
 * images, yield before sleeping: steps of another image's thread end no sleep, and that thread may
 * need the core. */
enum { TURNS = 64, YIELDS = 2000, NAP_NS = 50000 };
bool gasnetw_sched_threads;

static void wait_turn(unsigned *turns)
{
    if (gasnetw_turn()) {
        *turns = 0;
    } else if (*turns < (gasnetw_binding.crowded || gasnetw_sched_threads ? 1 : TURNS)) {
        ++*turns;
    } else if (gasnetw_sched_threads && *turns < YIELDS) {
        ++*turns;
        sched_yield();
    } else {
        int events = weft_ep_wait(gasnetw_binding.ep, NAP_NS);
        if (events < 0)
            gasnetw_fatal("polling failed: %s", weft_status_text((enum weft_status)events));
        gasnetw_after_poll();
        if (events)
            *turns = 0;
    }
}

void gasnetw_sched_wait(_Atomic bool *done)
{
    unsigned turns = 0;
    /* Acquire: finish(). */
    while (!atomic_load_explicit(done, memory_order_acquire))
        wait_turn(&turns);
}
