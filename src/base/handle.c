/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/handle.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "base/log.h"

static bool keep;

/* The ring of objects that are kept. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void **kept;
static size_t first, count, bytes;

static struct wf_fork_item fork_item;

/* Another thread of the parent may have held the lock, or have been changing the ring. The child
 * does not free what its parent kept. */
static void fork_child(struct wf_fork_item *item)
{
    (void)item;
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    first = count = bytes = 0;
}

static const struct wf_fork_ops fork_ops = {
    .level = WF_FORK_MEM, .stays = true, .child = fork_child};

void wf_handles_keep(void)
{
    kept = calloc(WF_HANDLES_KEPT, sizeof *kept);
    keep = kept != NULL;
    if (keep)
        wf_fork_join(&fork_item, &fork_ops);
}

bool wf_handles_are_kept(void)
{
    return keep;
}

static void oldest_free(void)
{
    void *object = kept[first];
    first = (first + 1) % WF_HANDLES_KEPT;
    count--;
    bytes -= malloc_usable_size(object);
    free(object);
}

bool wf_handle_free(void *object)
{
    if (!keep || !object) {
        free(object);
        return false;
    }
    memset(object, 0, malloc_usable_size(object));
    pthread_mutex_lock(&lock);
    kept[(first + count++) % WF_HANDLES_KEPT] = object;
    bytes += malloc_usable_size(object);
    while (count == WF_HANDLES_KEPT || (bytes > WF_HANDLES_BYTES && count > 1))
        oldest_free();
    pthread_mutex_unlock(&lock);
    return true;
}

enum weft_status wf_fork_gen_error(uint64_t fork_gen)
{
    if (fork_gen != WF_FORK_GEN_CLOSED)
        return WEFT_EFORKED;
    wf_error("a call was given a handle that is closed already");
    return WEFT_EINVAL;
}
