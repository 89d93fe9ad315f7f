/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/lend.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* Within a process the copying thread uses plain loads. They must not meet memory that the program
 * has freed or changes, so the owner waits for the copies under way, at most WF_PULL_MAX bytes
 * each. No other lock is taken under this one. */
static pthread_rwlock_t copying = PTHREAD_RWLOCK_INITIALIZER;

struct wf_pull_word wf_pull_lend(uint64_t *word)
{
    static _Atomic uint64_t count;
    uint64_t n = atomic_fetch_add_explicit(&count, 1, memory_order_relaxed) + 1;
    uint64_t value = n * UINT64_C(0x9e3779b97f4a7c15); /* odd: no two products are equal */
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
    return (struct wf_pull_word){(uint64_t)(uintptr_t)word, value};
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
