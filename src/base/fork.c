/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "base/fork.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

/* ---- the fork generation ---- */

static const uint64_t no_gen;
const uint64_t *wf_fork_gen_word = &no_gen;

static pthread_mutex_t gen_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *gen_page; /* private, wiped in children */
static uint64_t gen_count; /* a child inherits the count, so no value is repeated */

/* ---- handlers ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct wf_list items = {&items, &items}; /* by level, lowest first */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic uintptr_t forking; /* the thread that forks; 0: none does */
/* How often prepare has run in the current fork beyond the first time. Only the forking thread
 * reads and writes the count. */
static unsigned repeats;

static struct wf_fork_item *fork_item(struct wf_list *it)
{
    return wf_container_of(it, struct wf_fork_item, item);
}

/* Has prepare already run in this fork? The handlers can be registered twice: if a process forks
 * while another thread is registering the handlers, pthread_once registers them again in the
 * child. */
static bool is_repeated(void)
{
    return atomic_load(&forking) == (uintptr_t)pthread_self();
}

static void prepare(void)
{
    if (is_repeated()) {
        repeats++;
        return;
    }
    pthread_mutex_lock(&lock);
    atomic_store(&forking, (uintptr_t)pthread_self());
    for (struct wf_list *it = items.prev; it != &items; it = it->prev)
        if (fork_item(it)->ops->prepare)
            fork_item(it)->ops->prepare(fork_item(it));
    pthread_mutex_lock(&gen_lock);
}

static void end(void)
{
    atomic_store(&forking, 0);
    pthread_mutex_unlock(&lock);
}

static void parent(void)
{
    if (repeats) {
        repeats--;
        return;
    }
    pthread_mutex_unlock(&gen_lock);
    wf_list_each(it, &items) if (fork_item(it)->ops->parent) fork_item(it)->ops->parent(
        fork_item(it));
    end();
}

static void child(void)
{
    if (repeats) {
        repeats--;
        return;
    }
    if (gen_page)
        *gen_page = 0;
    pthread_mutex_unlock(&gen_lock);
    wf_list_each_safe(it, nx, &items)
    {
        struct wf_fork_item *item = fork_item(it);
        if (item->ops->child)
            item->ops->child(item);
        if (!item->ops->stays)
            wf_list_remove(it);
    }
    end();
}

static void handlers_register(void)
{
    (void)pthread_atfork(prepare, parent, child);
}

void wf_fork_join(struct wf_fork_item *item, const struct wf_fork_ops *ops)
{
    struct wf_list *at = &items;
    pthread_once(&once, handlers_register);
    pthread_mutex_lock(&lock);
    if (!item->item.next) {
        item->ops = ops;
        while (at->prev != &items && fork_item(at->prev)->ops->level > ops->level)
            at = at->prev;
        wf_list_append(at, &item->item);
    }
    pthread_mutex_unlock(&lock);
}

void wf_fork_leave(struct wf_fork_item *item)
{
    pthread_mutex_lock(&lock);
    wf_list_remove(&item->item);
    item->item = (struct wf_list){NULL, NULL};
    pthread_mutex_unlock(&lock);
}

/* pthread_once registers the fork handlers before any thread takes gen_lock. If a fork came
 * before the registration, the child could inherit gen_lock in the locked state, without the thread
 * that would unlock it. */
uint64_t wf_fork_gen_begin(void)
{
    uint64_t fork_gen = 0;
    pthread_once(&once, handlers_register);
    pthread_mutex_lock(&gen_lock);
    if (!gen_page) {
        void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            goto out;
        (void)madvise(p, 4096, MADV_WIPEONFORK);
        gen_page = p;
        wf_fork_gen_word = gen_page;
    }
    if (!*gen_page)
        *gen_page = ++gen_count;
    fork_gen = *gen_page;
out:
    pthread_mutex_unlock(&gen_lock);
    return fork_gen;
}
