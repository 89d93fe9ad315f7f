/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/lend.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/fork.h"

/* Within a process the copying thread uses plain loads. They must not meet memory that the program
 * has freed or changes, so the owner waits for the copies under way, at most WF_PULL_MAX bytes
 * each. Copies that begin later wait for the owner. No other lock is taken under this one. */
static pthread_rwlock_t copying = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

/* An endpoint may read a word after the endpoint that lent it has closed: the offer is still kept.
 * So the memory of words is never freed, and is used for nothing but words. */
struct word {
    uint64_t value; /* 0: not lent */
    struct word *next;
};
_Static_assert(offsetof(struct word, value) == 0, "a pointer to the value is one to the word");

#define WORDS 256 /* in one allocation */

static pthread_mutex_t words_lock = PTHREAD_MUTEX_INITIALIZER; /* of [words]; taken last */
static struct word *words;                                     /* that nobody uses */

/* ---- fork ---- */

static struct wf_fork_item fork_item;

/* Another thread of the parent may have held a lock, or have been changing the list. */
static void fork_child(struct wf_fork_item *item)
{
    (void)item;
    copying = (pthread_rwlock_t)PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    words_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    words = NULL;
}

static const struct wf_fork_ops fork_ops = {
    .level = WF_FORK_MEM, .stays = true, .child = fork_child};

void wf_pull_begin(void)
{
    wf_fork_join(&fork_item, &fork_ops);
}

/* ---- words ---- */

uint64_t *wf_pull_word_new(void)
{
    struct word *w;
    pthread_mutex_lock(&words_lock);
    if (!words && (w = calloc(WORDS, sizeof *w)))
        for (int i = 0; i < WORDS; i++) {
            w[i].next = words;
            words = &w[i];
        }
    w = words;
    words = w ? w->next : NULL;
    pthread_mutex_unlock(&words_lock);
    return w ? &w->value : NULL;
}

void wf_pull_word_free(uint64_t *word)
{
    struct word *w = (struct word *)word;
    wf_pull_end(word);
    pthread_mutex_lock(&words_lock);
    w->next = words;
    words = w;
    pthread_mutex_unlock(&words_lock);
}

void wf_pull_lend(uint64_t *word)
{
    static _Atomic uint64_t count;
    uint64_t n = atomic_fetch_add_explicit(&count, 1, memory_order_relaxed) + 1;
    /* The factor is odd, so no two products are equal. */
    __atomic_store_n(word, n * UINT64_C(0x9e3779b97f4a7c15), __ATOMIC_RELAXED);
}

void wf_pull_end(uint64_t *word)
{
    __atomic_store_n(word, 0, __ATOMIC_RELAXED);
}

/* Another process reads the bytes, then the word (shm/pull.c). It must not find the old word after
 * bytes that the program writes from now on. */
void wf_pull_take_back(uint64_t *word)
{
    pthread_rwlock_wrlock(&copying);
    __atomic_store_n(word, 0, __ATOMIC_RELAXED);
    pthread_rwlock_unlock(&copying);
    atomic_thread_fence(memory_order_release);
}

enum weft_status wf_pull_here(void *dst, const struct wf_pull_from *from, size_t len)
{
    const uint64_t *word = (const uint64_t *)(uintptr_t)from->word.addr;
    enum weft_status status = WEFT_OK;
    if (word)
        pthread_rwlock_rdlock(&copying);
    if (word && __atomic_load_n(word, __ATOMIC_RELAXED) != from->word.value)
        status = WEFT_ECANCELED;
    else
        memmove(dst, (const void *)(uintptr_t)from->addr, len);
    if (word)
        pthread_rwlock_unlock(&copying);
    return status;
}
