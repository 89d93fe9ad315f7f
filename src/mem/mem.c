/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/hook.h"
#include "base/log.h"
#include "mem/counter.h"
#include "mem/region_key.h"
#include "mem/shared.h"
#include "mem/slab.h"

WF_UNCHECKED enum weft_status wf_mem_init(struct wf_mem *mem, size_t slab_size, uint64_t auth)
{
    void *state;
    *mem = (struct wf_mem){.slab_size = slab_size, .auth = auth, .state_fd = -1};
    wf_list_init(&mem->slabs);
    mem->free_slots = NULL;
    mem->regions = NULL;
    pthread_cond_init(&mem->unused, NULL);
    mem->state_fd = wf_shared_create("weft-state", WF_MEM_STATE_SIZE, 1, &state);
    if (mem->state_fd < 0)
        return WEFT_ESYSTEM;
    mem->state = state;
    pthread_mutex_init(&mem->lock, NULL);
    return WEFT_OK;
}

WF_UNCHECKED void wf_mem_fini(struct wf_mem *mem)
{
    if (!mem->state)
        return;
    wf_slabs_close(mem);
    munmap(mem->state, WF_MEM_STATE_SIZE);
    close(mem->state_fd);
    free(mem->free_slots);
    free(mem->regions);
    free(mem->by_key);
    pthread_cond_destroy(&mem->unused);
    pthread_mutex_destroy(&mem->lock);
    mem->state = NULL;
}

static WF_MEM_UNDER_LOCK enum weft_status slot_take(struct wf_mem *mem, uint32_t *slot)
{
    if (mem->free_count) {
        *slot = mem->free_slots[--mem->free_count];
        return WEFT_OK;
    }
    if (mem->next_slot == WF_MEM_STATE_WORDS) {
        wf_error("%d memory regions are open: close some", WF_MEM_STATE_WORDS);
        return WEFT_ELIMIT;
    }
    /* Make room for 256 more slots in both arrays. wf_mem_region_close, which cannot fail, then
     * needs no memory to store the free slot in free_slots. */
    if (!(mem->next_slot & 255)) {
        size_t n = mem->next_slot + 256;
        void *more = realloc(mem->free_slots, n * sizeof *mem->free_slots);
        struct wf_region **regions = more ? realloc(mem->regions, n * sizeof *regions) : NULL;
        if (more)
            mem->free_slots = more;
        if (!regions) {
            wf_error("no memory for the table of memory regions (%zu entries)", n);
            return WEFT_ENOMEM;
        }
        mem->regions = regions;
    }
    mem->regions[mem->next_slot] = NULL;
    *slot = mem->next_slot++;
    return WEFT_OK;
}

/* Enter the region in the table, and choose the generation that the region will have once it is
 * enabled. Peers may learn this generation earlier. */
static WF_MEM_UNDER_LOCK void region_list(struct wf_mem *mem, struct wf_region *r)
{
    mem->open_regions++;
    mem->regions[r->slot] = r;
    r->gen = wf_load_relaxed(&mem->state[r->slot]) + 1;
}

static WF_MEM_UNDER_LOCK void region_enable(struct wf_mem *mem, struct wf_region *r)
{
    r->enabled = true;
    wf_store_release(&mem->state[r->slot], r->gen);
}

enum weft_status wf_mem_region_open(struct wf_mem *mem, size_t len, unsigned access,
                                    struct wf_region *out)
{
    enum weft_status status;
    struct wf_region *r = out;
    if (!len || len > SIZE_MAX / 2)
        return len ? WEFT_ENOMEM : WEFT_EINVAL;
    if (len >= mem->slab_size && !wf_slab_can_exist(len))
        return WEFT_ENOMEM;
    *r = (struct wf_region){.length = len, .access = access, .iov_count = 1, .auth = mem->auth};
    r->iov = &r->own_iov;
    wf_mem_lock(mem);
    status = slot_take(mem, &r->slot);
    if (status == WEFT_OK) {
        r->slab = wf_slab_space(mem, len, !(access & WEFT_REMOTE_WRITE), &r->offset);
        if (r->slab) {
            r->slab->regions++;
            r->base = r->slab->base + r->offset;
            r->own_iov = (struct iovec){r->base, len};
            region_list(mem, r);
            region_enable(mem, r);
        } else {
            mem->free_slots[mem->free_count++] = r->slot;
            status = errno == EFBIG ? WEFT_ELIMIT : WEFT_ENOMEM;
        }
    }
    wf_mem_unlock(mem);
    return status;
}

static WF_MEM_UNDER_LOCK struct wf_region *region_find(struct wf_mem *mem, uint32_t slot,
                                                       uint64_t gen)
{
    struct wf_region *r;
    if (slot != WF_MEM_BY_KEY) {
        r = slot < mem->next_slot ? mem->regions[slot] : NULL;
        return r && (r->gen ^ r->auth) == gen ? r : NULL;
    }
    return wf_region_key_find(mem, gen);
}

/* ---- the caller's memory ---- */

enum weft_status wf_mem_region_add(struct wf_mem *mem, struct wf_region *r, unsigned key_bits)
{
    enum weft_status status;
    wf_mem_lock(mem);
    status = slot_take(mem, &r->slot);
    if (status == WEFT_OK && r->flags & WF_REGION_NAMED) {
        status = wf_region_key_add(mem, r, key_bits);
        if (status != WEFT_OK)
            mem->free_slots[mem->free_count++] = r->slot;
    }
    if (status == WEFT_OK)
        region_list(mem, r);
    wf_mem_unlock(mem);
    return status;
}

enum weft_status wf_mem_region_enable(struct wf_mem *mem, struct wf_region *r)
{
    enum weft_status status = WEFT_EINVAL;
    wf_mem_lock(mem);
    if (!r->enabled && !r->refreshing && !r->stale && (r->ep || !(r->flags & WF_REGION_OF_EP))) {
        region_enable(mem, r);
        status = WEFT_OK;
    }
    wf_mem_unlock(mem);
    return status;
}

bool wf_mem_is_enabled(struct wf_mem *mem, const struct wf_region *r)
{
    bool is;
    wf_mem_lock(mem);
    is = r->enabled && !r->refreshing && !r->stale;
    wf_mem_unlock(mem);
    return is;
}

static WF_MEM_UNDER_LOCK void wait_unused(struct wf_mem *mem, const struct wf_region *r)
{
    mem->waiters++;
    while (r->users) /* a user is a thread of this process that copies once, so the wait is short */
        pthread_cond_wait(&mem->unused, &mem->lock);
    mem->waiters--;
}

enum weft_status wf_mem_refresh_begin(struct wf_mem *mem, struct wf_region *r)
{
    wf_mem_lock(mem);
    if (r->refreshing) {
        wf_mem_unlock(mem);
        return WEFT_EBUSY;
    }
    r->refreshing = true;
    if (r->enabled)
        atomic_store_explicit(&mem->state[r->slot], r->gen + 1, memory_order_seq_cst);
    wait_unused(mem, r);
    wf_mem_unlock(mem);
    WF_HOOK("region.refreshing");
    return WEFT_OK;
}

void wf_mem_refresh_end(struct wf_mem *mem, struct wf_region *r, bool good)
{
    wf_mem_lock(mem);
    r->refreshing = false;
    r->stale = !good;
    if (r->enabled && good)
        region_enable(mem, r);
    wf_mem_unlock(mem);
}

enum weft_status wf_mem_bind_counter(struct wf_mem *mem, struct wf_region *r,
                                     struct weft_counter *counter, bool late)
{
    enum weft_status status = WEFT_EINVAL;
    wf_mem_lock(mem);
    if (r->flags & WF_REGION_EVENTS && !atomic_load(&r->counter) && (late || !r->enabled)) {
        atomic_fetch_add(&counter->refs, 1);
        atomic_store(&r->counter, counter);
        status = WEFT_OK;
    }
    wf_mem_unlock(mem);
    return status;
}

enum weft_status wf_mem_bind_ep(struct wf_mem *mem, struct wf_region *r, uint64_t ep)
{
    enum weft_status status = WEFT_EINVAL;
    wf_mem_lock(mem);
    if (r->flags & WF_REGION_OF_EP && !r->ep && !r->enabled) {
        r->ep = ep;
        status = WEFT_OK;
    }
    wf_mem_unlock(mem);
    return status;
}

struct wf_mem_bound wf_mem_bound(struct wf_mem *mem, const struct wf_region *r)
{
    struct wf_mem_bound b;
    wf_mem_lock(mem);
    b = (struct wf_mem_bound){atomic_load(&r->counter), r->ep, r->enabled, r->refreshing};
    wf_mem_unlock(mem);
    return b;
}

struct weft_counter *wf_region_counter(const struct wf_region *r)
{
    struct weft_counter *c = atomic_load_explicit(&r->counter, memory_order_acquire);
    return c && !atomic_load(&c->closed) ? c : NULL;
}

static WF_MEM_UNDER_LOCK enum weft_status allows(const struct wf_region *r, const struct wf_want *w)
{
    uint64_t at = w->offset - r->first;
    if (r->closing || r->refreshing || r->stale || !r->enabled || (r->ep && r->ep != w->ep))
        return WEFT_EKEY;
    if (w->offset < r->first || w->len > r->length || at > r->length - w->len)
        return WEFT_ERANGE;
    if ((r->access & w->access) != w->access)
        return WEFT_EACCESS;
    return w->access & WEFT_REMOTE_WRITE && !w->counted && wf_region_counter(r) ? WEFT_EACCESS
                                                                                : WEFT_OK;
}

static WF_MEM_UNDER_LOCK void unuse(struct wf_mem *mem, struct wf_region *r)
{
    if (--r->users == 0 && mem->waiters)
        pthread_cond_broadcast(&mem->unused);
}

static enum weft_status dmabuf_begin(struct wf_mem *mem, struct wf_region *r)
{
    if (wf_dmabuf_begin(r->dmabuf))
        return WEFT_OK;
    wf_mem_lock(mem);
    unuse(mem, r);
    wf_mem_unlock(mem);
    return WEFT_EFAULT;
}

enum weft_status wf_mem_use(struct wf_mem *mem, const struct wf_want *want,
                            struct wf_region **region)
{
    enum weft_status status = WEFT_EKEY;
    struct wf_region *r;
    wf_mem_lock(mem);
    r = region_find(mem, want->slot, want->gen);
    if (r)
        status = allows(r, want);
    if (status == WEFT_OK) {
        r->users++;
        *region = r;
    }
    wf_mem_unlock(mem);
    return status == WEFT_OK && r->dmabuf ? dmabuf_begin(mem, r) : status;
}

void wf_mem_unuse(struct wf_mem *mem, struct wf_region *region)
{
    if (region->dmabuf)
        wf_dmabuf_end(region->dmabuf);
    wf_mem_lock(mem);
    unuse(mem, region);
    wf_mem_unlock(mem);
}

void wf_mem_unuse_named(struct wf_mem *mem, uint32_t slot, uint64_t gen)
{
    struct wf_region *r;
    bool is_dmabuf;
    wf_mem_lock(mem);
    r = region_find(mem, slot, gen);
    is_dmabuf = r->dmabuf;
    if (!is_dmabuf)
        unuse(mem, r);
    wf_mem_unlock(mem);
    if (is_dmabuf) /* the caller's use keeps the region open, so [r] is valid without the lock */
        wf_mem_unuse(mem, r);
}

/* Does an access to [r] consist of nothing but loads and stores? */
static inline bool is_plain(const struct wf_region *r)
{
    return !(r->flags & ~(unsigned)(WF_REGION_NAMED | WF_REGION_OF_EP)) && !r->dmabuf &&
           r->iov_count == 1 && r->persist == WF_PERSIST_NONE;
}

/* The caller has checked that [want] is allowed. */
static WF_MEM_UNDER_LOCK enum weft_status
plain_atomic(const struct wf_region *r, const struct wf_want *want, struct wf_mem_atomic *a)
{
    unsigned char *word = r->base + (want->offset - r->first);
    if ((uintptr_t)word & (want->len - 1))
        return WEFT_EINVAL;
    a->old = weft_atomic_do_(word, a->operation, a->type, a->operand, a->compare);
    return WEFT_OK;
}

bool wf_mem_atomic_now(struct wf_mem *mem, const struct wf_want *want, struct wf_mem_atomic *a,
                       enum weft_status *status)
{
    const struct wf_region *r;
    bool is_done = true;
    wf_mem_lock(mem);
    r = region_find(mem, want->slot, want->gen);
    *status = r ? allows(r, want) : WEFT_EKEY;
    if (*status == WEFT_OK) { /* else a refresh may be changing what is_plain reads */
        is_done = is_plain(r);
        if (is_done)
            *status = plain_atomic(r, want, a);
    }
    wf_mem_unlock(mem);
    return is_done;
}

void wf_mem_region_close(struct wf_mem *mem, struct wf_region *r)
{
    struct weft_counter *counter;
    wf_mem_lock(mem);
    /* The pair "generation": from this store on, local processes that compare the generation find a
     * difference. The store is a full fence, because these processes must see the new generation
     * before they see what the owner does next with this memory. */
    atomic_store_explicit(&mem->state[r->slot], r->gen + 1, memory_order_seq_cst);
    WF_HOOK("region.closed");
    r->closing = true; /* no new users */
    wait_unused(mem, r);
    mem->regions[r->slot] = NULL;
    if (r->flags & WF_REGION_NAMED)
        wf_region_key_remove(mem, r);
    mem->free_slots[mem->free_count++] = r->slot;
    mem->open_regions--;
    if (r->slab)
        wf_slab_release(mem, r);
    counter = atomic_load(&r->counter);
    wf_mem_unlock(mem);
    if (counter)
        wf_counter_put(counter);
}
