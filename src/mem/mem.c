/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "mem/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/hook.h"
#include "base/log.h"
#include "base/rand.h"
#include "mem/counter.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* linux/fcntl.h, Linux 5.1 */
#endif

#define HUGE_PAGE ((size_t)2 << 20)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* The limit on file sizes holds for memfds, too, and who goes beyond it is ended by SIGXFSZ
 * (setrlimit(2)): look first. Sets errno. */
static bool is_too_big(size_t size)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY ||
        size <= limit.rlim_cur)
        return false;
    wf_error("%zu bytes of shared memory are more than the limit on file sizes, %llu bytes, which "
             "holds for them, too: raise it (ulimit -f unlimited)",
             size, (unsigned long long)limit.rlim_cur);
    errno = EFBIG;
    return true;
}

int wf_shared_create(const char *name, size_t size, int read_only, void **base)
{
    int fd = wf_fd_high(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    void *p;
    int err;
    if (fd < 0) {
        wf_error("memfd_create: %m");
        return -1;
    }
    if (is_too_big(size))
        goto close_fd;
    if (ftruncate(fd, (off_t)size)) {
        wf_error("cannot allocate %zu bytes of shared memory: %m", size);
        goto close_fd;
    }
    p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        wf_error("cannot map %zu bytes of shared memory: %m", size);
        goto close_fd;
    }
    /* The owner's writable mapping exists: F_SEAL_FUTURE_WRITE keeps it and
     * denies others theirs, and hole punching with it. */
    if (fcntl(fd, F_ADD_SEALS, SEALS | (read_only ? F_SEAL_FUTURE_WRITE : 0))) {
        wf_error("cannot seal shared memory: %m (Linux 5.1 or later is needed)");
        goto unmap;
    }
    *base = p;
    return fd;
unmap:
    munmap(p, size);
close_fd:
    err = errno;
    close(fd);
    errno = err;
    return -1;
}

enum weft_status wf_shared_map(int fd, size_t size, int writable, void **base)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    void *p;
    /* A file that can shrink would kill its mapper by SIGBUS. */
    if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_SEAL)) != (F_SEAL_SHRINK | F_SEAL_SEAL) ||
        fstat(fd, &st) || !S_ISREG(st.st_mode) || (uint64_t)st.st_size < size || !size)
        return WEFT_EPROTO;
    p = mmap(NULL, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return errno == ENOMEM ? WEFT_ENOMEM : WEFT_EPROTO;
    *base = p;
    return WEFT_OK;
}

enum weft_status wf_mem_init(struct wf_mem *mem, size_t slab_size, uint64_t auth)
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

static void slab_close(struct wf_mem *mem, struct wf_slab *slab)
{
    if (mem->current[slab->read_only] == slab)
        mem->current[slab->read_only] = NULL;
    wf_list_remove(&slab->item);
    munmap(slab->base, slab->size);
    close(slab->fd);
    free(slab);
}

void wf_mem_fini(struct wf_mem *mem)
{
    if (!mem->state)
        return;
    wf_list_each_safe(it, nx, &mem->slabs)
        slab_close(mem, wf_container_of(it, struct wf_slab, item));
    munmap(mem->state, WF_MEM_STATE_SIZE);
    close(mem->state_fd);
    free(mem->free_slots);
    free(mem->regions);
    free(mem->by_key);
    pthread_cond_destroy(&mem->unused);
    pthread_mutex_destroy(&mem->lock);
    mem->state = NULL;
}

static struct wf_slab *slab_open(struct wf_mem *mem, size_t size, bool read_only)
{
    struct wf_slab *slab = calloc(1, sizeof *slab);
    void *base;
    if (!slab)
        return NULL;
    slab->fd = wf_shared_create("weft-slab", size, read_only, &base);
    if (slab->fd < 0) {
        free(slab);
        return NULL;
    }
    slab->base = base;
    slab->size = size;
    slab->read_only = read_only;
    slab->id = ++mem->next_slab;
    wf_list_append(&mem->slabs, &slab->item);
    return slab;
}

/* Space for [len] bytes: a slab of its own, or the next piece of the current one. */
static struct wf_slab *slab_for(struct wf_mem *mem, size_t len, bool read_only, size_t *offset)
{
    size_t page = 4096, align = len >= page ? page : WF_CACHE_LINE, size = wf_align_up(len, align);
    struct wf_slab *slab = mem->current[read_only];
    if (len >= mem->slab_size) {
        slab = slab_open(mem, wf_align_up(len, page), read_only);
        if (slab && slab->size >= HUGE_PAGE)
            (void)madvise(slab->base, slab->size, MADV_HUGEPAGE);
        *offset = 0;
        return slab;
    }
    if (!slab || wf_align_up(slab->used, align) + size > slab->size) {
        struct wf_slab *old = slab;
        if (!(slab = slab_open(mem, mem->slab_size, read_only)))
            return NULL;
        mem->current[read_only] = slab;
        if (old && !old->regions)
            slab_close(mem, old);
    }
    *offset = wf_align_up(slab->used, align);
    slab->used = *offset + size;
    return slab;
}

/* A memfd has a size before it has memory, and overcommitting kernels map any: what is larger than
 * all memory and swap can never be written. (What the kernel itself refuses, for RLIMIT_AS or
 * overcommit_memory=2, fails in mmap.) */
static bool can_exist(size_t len)
{
    struct sysinfo si;
    uint64_t total;
    if (sysinfo(&si))
        return true;
    total = ((uint64_t)si.totalram + si.totalswap) * si.mem_unit;
    if (len > total)
        wf_error("cannot allocate %zu bytes: memory and swap of this machine are %llu", len,
                 (unsigned long long)total);
    return len <= total;
}

static int slot_take(struct wf_mem *mem, uint32_t *slot)
{
    if (mem->free_count) {
        *slot = mem->free_slots[--mem->free_count];
        return 0;
    }
    if (mem->next_slot == WF_MEM_STATE_WORDS)
        return -1;
    if (!(mem->next_slot & 255)) { /* room for every slot to come back without allocating */
        size_t n = mem->next_slot + 256;
        void *more = realloc(mem->free_slots, n * sizeof *mem->free_slots);
        struct wf_region **regions = more ? realloc(mem->regions, n * sizeof *regions) : NULL;
        if (more)
            mem->free_slots = more;
        if (!regions)
            return -1;
        mem->regions = regions;
    }
    mem->regions[mem->next_slot] = NULL;
    *slot = mem->next_slot++;
    return 0;
}

/* Its generation when it is enabled; peers can know it before. */
static void region_list(struct wf_mem *mem, struct wf_region *r)
{
    mem->open_regions++;
    mem->regions[r->slot] = r;
    r->gen = wf_load_relaxed(&mem->state[r->slot]) + 1;
}

static void region_enable(struct wf_mem *mem, struct wf_region *r)
{
    r->enabled = true;
    wf_store_release(&mem->state[r->slot], r->gen);
}

static enum weft_status region_slot(struct wf_mem *mem, struct wf_region *r)
{
    if (!slot_take(mem, &r->slot))
        return WEFT_OK;
    wf_error("%d memory regions are open: close some", WF_MEM_STATE_WORDS);
    return WEFT_ELIMIT;
}

enum weft_status wf_mem_region_open(struct wf_mem *mem, size_t len, unsigned access,
                                    struct wf_region *out)
{
    enum weft_status status;
    struct wf_region *r = out;
    if (!len || len > SIZE_MAX / 2)
        return len ? WEFT_ENOMEM : WEFT_EINVAL;
    if (len >= mem->slab_size && !can_exist(len))
        return WEFT_ENOMEM;
    *r = (struct wf_region){.length = len, .access = access, .count = 1, .auth = mem->auth};
    r->pieces = &r->one;
    pthread_mutex_lock(&mem->lock);
    status = region_slot(mem, r);
    if (status == WEFT_OK) {
        r->slab = slab_for(mem, len, !(access & WEFT_REMOTE_WRITE), &r->offset);
        if (r->slab) {
            r->slab->regions++;
            r->base = r->slab->base + r->offset;
            r->one = (struct iovec){r->base, len};
            region_list(mem, r);
            region_enable(mem, r);
        } else {
            mem->free_slots[mem->free_count++] = r->slot;
            status = errno == EFBIG ? WEFT_ELIMIT : WEFT_ENOMEM;
        }
    }
    pthread_mutex_unlock(&mem->lock);
    return status;
}

/* ---- keys ---- */

#define KEY_CHAINS 4096u /* of each of the two kinds */

static struct wf_region **chain_sent(struct wf_mem *mem, uint64_t sent)
{
    return &mem->by_key[wf_rand(&sent) % KEY_CHAINS];
}

static struct wf_region **chain_named(struct wf_mem *mem, uint64_t key)
{
    return &mem->by_key[KEY_CHAINS + wf_rand(&key) % KEY_CHAINS];
}

/* By its name, or by what is sent for it: one message must not name two regions. */
static bool key_is_taken(struct wf_mem *mem, uint64_t key, uint64_t auth)
{
    const struct wf_region *r = *chain_named(mem, key), *s = *chain_sent(mem, key ^ auth);
    while (r && r->key != key)
        r = r->next_name;
    while (s && (s->key ^ s->auth) != (key ^ auth))
        s = s->next_key;
    return r || s;
}

/* One that nobody guesses by accident; with few bits the next that is free. */
static bool key_choose(struct wf_mem *mem, unsigned bits, uint64_t auth, uint64_t *key)
{
    uint64_t mask = bits < 64 ? (UINT64_C(1) << bits) - 1 : UINT64_MAX;
    uint64_t k = wf_rand(&mem->next_key);
    for (unsigned tries = 0; tries <= WF_MEM_STATE_WORDS; tries++, k++) {
        *key = k & mask;
        if (*key != WF_MEM_NO_KEY && !key_is_taken(mem, *key, auth))
            return true;
        if (tries >= mask)
            break;
    }
    return false;
}

static enum weft_status key_list(struct wf_mem *mem, struct wf_region *r, unsigned bits)
{
    struct wf_region **sent, **named;
    if (!mem->by_key) {
        mem->by_key = calloc((size_t)2 * KEY_CHAINS, sizeof(struct wf_region *));
        mem->next_key = (uint64_t)(uintptr_t)mem->by_key ^ (uint64_t)(uintptr_t)mem->state;
    }
    if (!mem->by_key)
        return WEFT_ENOMEM;
    if (r->key == WF_MEM_NO_KEY ? !key_choose(mem, bits, r->auth, &r->key)
                                : key_is_taken(mem, r->key, r->auth))
        return WEFT_ENOKEY;
    sent = chain_sent(mem, r->key ^ r->auth);
    named = chain_named(mem, r->key);
    r->next_key = *sent;
    *sent = r;
    r->next_name = *named;
    *named = r;
    return WEFT_OK;
}

static void key_unlist(struct wf_mem *mem, struct wf_region *r)
{
    struct wf_region **at = chain_sent(mem, r->key ^ r->auth);
    while (*at != r)
        at = &(*at)->next_key;
    *at = r->next_key;
    for (at = chain_named(mem, r->key); *at != r;)
        at = &(*at)->next_name;
    *at = r->next_name;
}

static struct wf_region *region_find(struct wf_mem *mem, uint32_t slot, uint64_t gen)
{
    struct wf_region *r;
    if (slot != WF_MEM_BY_KEY) {
        r = slot < mem->next_slot ? mem->regions[slot] : NULL;
        return r && (r->gen ^ r->auth) == gen ? r : NULL;
    }
    r = mem->by_key ? *chain_sent(mem, gen) : NULL;
    while (r && (r->key ^ r->auth) != gen)
        r = r->next_key;
    return r;
}

/* ---- the caller's memory ---- */

enum weft_status wf_mem_region_add(struct wf_mem *mem, struct wf_region *r, unsigned key_bits)
{
    enum weft_status status;
    pthread_mutex_lock(&mem->lock);
    status = region_slot(mem, r);
    if (status == WEFT_OK && r->flags & WF_REGION_NAMED) {
        status = key_list(mem, r, key_bits);
        if (status != WEFT_OK)
            mem->free_slots[mem->free_count++] = r->slot;
    }
    if (status == WEFT_OK)
        region_list(mem, r);
    pthread_mutex_unlock(&mem->lock);
    return status;
}

enum weft_status wf_mem_region_enable(struct wf_mem *mem, struct wf_region *r)
{
    enum weft_status status = WEFT_EINVAL;
    pthread_mutex_lock(&mem->lock);
    if (!r->enabled && !r->refreshing && !r->stale && (r->ep || !(r->flags & WF_REGION_OF_EP))) {
        region_enable(mem, r);
        status = WEFT_OK;
    }
    pthread_mutex_unlock(&mem->lock);
    return status;
}

bool wf_mem_is_enabled(struct wf_mem *mem, const struct wf_region *r)
{
    bool is;
    pthread_mutex_lock(&mem->lock);
    is = r->enabled && !r->refreshing && !r->stale;
    pthread_mutex_unlock(&mem->lock);
    return is;
}

static void wait_unused(struct wf_mem *mem, const struct wf_region *r)
{
    while (r->users) /* threads of this process, at one copy each */
        pthread_cond_wait(&mem->unused, &mem->lock);
}

enum weft_status wf_mem_refresh_begin(struct wf_mem *mem, struct wf_region *r)
{
    pthread_mutex_lock(&mem->lock);
    if (r->refreshing) {
        pthread_mutex_unlock(&mem->lock);
        return WEFT_EBUSY;
    }
    r->refreshing = true;
    if (r->enabled)
        atomic_store_explicit(&mem->state[r->slot], r->gen + 1, memory_order_seq_cst);
    wait_unused(mem, r);
    pthread_mutex_unlock(&mem->lock);
    WF_HOOK("region.refreshing");
    return WEFT_OK;
}

void wf_mem_refresh_end(struct wf_mem *mem, struct wf_region *r, bool good)
{
    pthread_mutex_lock(&mem->lock);
    r->refreshing = false;
    r->stale = !good;
    if (r->enabled && good)
        region_enable(mem, r);
    pthread_mutex_unlock(&mem->lock);
}

enum weft_status wf_mem_bind_counter(struct wf_mem *mem, struct wf_region *r,
                                     struct weft_counter *counter, bool late)
{
    enum weft_status status = WEFT_EINVAL;
    pthread_mutex_lock(&mem->lock);
    if (r->flags & WF_REGION_EVENTS && !atomic_load(&r->counter) && (late || !r->enabled)) {
        atomic_fetch_add(&counter->refs, 1);
        atomic_store(&r->counter, counter);
        status = WEFT_OK;
    }
    pthread_mutex_unlock(&mem->lock);
    return status;
}

enum weft_status wf_mem_bind_ep(struct wf_mem *mem, struct wf_region *r, uint64_t ep)
{
    enum weft_status status = WEFT_EINVAL;
    pthread_mutex_lock(&mem->lock);
    if (r->flags & WF_REGION_OF_EP && !r->ep && !r->enabled) {
        r->ep = ep;
        status = WEFT_OK;
    }
    pthread_mutex_unlock(&mem->lock);
    return status;
}

struct wf_mem_bound wf_mem_bound(struct wf_mem *mem, const struct wf_region *r)
{
    struct wf_mem_bound b;
    pthread_mutex_lock(&mem->lock);
    b = (struct wf_mem_bound){atomic_load(&r->counter), r->ep, r->enabled, r->refreshing};
    pthread_mutex_unlock(&mem->lock);
    return b;
}

struct weft_counter *wf_region_counter(const struct wf_region *r)
{
    struct weft_counter *c = atomic_load_explicit(&r->counter, memory_order_acquire);
    return c && !atomic_load(&c->closed) ? c : NULL;
}

static enum weft_status allows(const struct wf_region *r, const struct wf_want *w)
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

static void unuse(struct wf_mem *mem, struct wf_region *r)
{
    if (--r->users == 0)
        pthread_cond_broadcast(&mem->unused);
}

static enum weft_status dmabuf_begin(struct wf_mem *mem, struct wf_region *r)
{
    if (wf_dmabuf_begin(r->dmabuf))
        return WEFT_OK;
    pthread_mutex_lock(&mem->lock);
    unuse(mem, r);
    pthread_mutex_unlock(&mem->lock);
    return WEFT_EFAULT;
}

enum weft_status wf_mem_use(struct wf_mem *mem, const struct wf_want *want,
                            struct wf_region **region)
{
    enum weft_status status = WEFT_EKEY;
    struct wf_region *r;
    pthread_mutex_lock(&mem->lock);
    r = region_find(mem, want->slot, want->gen);
    if (r)
        status = allows(r, want);
    if (status == WEFT_OK) {
        r->users++;
        *region = r;
    }
    pthread_mutex_unlock(&mem->lock);
    return status == WEFT_OK && r->dmabuf ? dmabuf_begin(mem, r) : status;
}

void wf_mem_unuse(struct wf_mem *mem, struct wf_region *region)
{
    if (region->dmabuf)
        wf_dmabuf_end(region->dmabuf);
    pthread_mutex_lock(&mem->lock);
    unuse(mem, region);
    pthread_mutex_unlock(&mem->lock);
}

void wf_mem_unuse_named(struct wf_mem *mem, uint32_t slot, uint64_t gen)
{
    struct wf_region *r;
    bool is_dmabuf;
    pthread_mutex_lock(&mem->lock);
    r = region_find(mem, slot, gen);
    is_dmabuf = r->dmabuf;
    if (!is_dmabuf)
        unuse(mem, r);
    pthread_mutex_unlock(&mem->lock);
    if (is_dmabuf) /* it stays: it is in use */
        wf_mem_unuse(mem, r);
}

static void space_release(struct wf_mem *mem, const struct wf_region *r)
{
    struct wf_slab *slab = r->slab;
    if (--slab->regions == 0 && slab != mem->current[slab->read_only])
        slab_close(mem, slab);
    else if (r->length >= 4096) /* page aligned: its pages go, its space is not reused */
        (void)fallocate(slab->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)r->offset,
                        (off_t)wf_align_up(r->length, 4096));
}

void wf_mem_region_close(struct wf_mem *mem, struct wf_region *r)
{
    struct weft_counter *counter;
    pthread_mutex_lock(&mem->lock);
    /* "generation": from here on every mate's check fails. A full fence, so
     * that it is seen before anything the owner does with this memory. */
    atomic_store_explicit(&mem->state[r->slot], r->gen + 1, memory_order_seq_cst);
    WF_HOOK("region.closed");
    r->closing = true; /* no new users */
    wait_unused(mem, r);
    mem->regions[r->slot] = NULL;
    if (r->flags & WF_REGION_NAMED)
        key_unlist(mem, r);
    mem->free_slots[mem->free_count++] = r->slot;
    mem->open_regions--;
    if (r->slab)
        space_release(mem, r);
    counter = atomic_load(&r->counter);
    pthread_mutex_unlock(&mem->lock);
    if (counter)
        wf_counter_put(counter);
}

int wf_mem_slab_dup(struct wf_mem *mem, uint64_t id, size_t *size)
{
    int fd = -1;
    pthread_mutex_lock(&mem->lock);
    wf_list_each(it, &mem->slabs)
    {
        struct wf_slab *slab = wf_container_of(it, struct wf_slab, item);
        if (slab->id == id) {
            fd = wf_fd_dup(slab->fd);
            *size = slab->size;
            break;
        }
    }
    pthread_mutex_unlock(&mem->lock);
    return fd;
}
