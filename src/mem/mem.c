/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "mem/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/hook.h"
#include "base/log.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* linux/fcntl.h, Linux 5.1 */
#endif

#define HUGE_PAGE ((size_t)2 << 20)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

int wf_shared_create(const char *name, size_t size, int read_only, void **base)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *p;
    if (fd < 0) {
        wf_error("memfd_create: %m");
        return -1;
    }
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
    close(fd);
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

enum weft_status wf_mem_init(struct wf_mem *mem, size_t slab_size)
{
    void *state;
    *mem = (struct wf_mem){.slab_size = slab_size, .state_fd = -1};
    wf_list_init(&mem->slabs);
    mem->free_slots = NULL;
    mem->state_fd = wf_shared_create("weft-state", WF_MEM_STATE_SIZE, 1, &state);
    if (mem->state_fd < 0)
        return WEFT_ESYSTEM;
    mem->state = state;
    pthread_mutex_init(&mem->lock, NULL);
    return WEFT_OK;
}

static void slab_close(struct wf_mem *mem, struct wf_slab *slab)
{
    if (mem->current == slab)
        mem->current = NULL;
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
    pthread_mutex_destroy(&mem->lock);
    mem->state = NULL;
}

static struct wf_slab *slab_open(struct wf_mem *mem, size_t size)
{
    struct wf_slab *slab = calloc(1, sizeof *slab);
    void *base;
    if (!slab)
        return NULL;
    slab->fd = wf_shared_create("weft-slab", size, 0, &base);
    if (slab->fd < 0) {
        free(slab);
        return NULL;
    }
    slab->base = base;
    slab->size = size;
    slab->id = ++mem->next_slab;
    wf_list_append(&mem->slabs, &slab->item);
    return slab;
}

/* Space for [len] bytes: a slab of its own, or the next piece of the current one. */
static struct wf_slab *slab_for(struct wf_mem *mem, size_t len, size_t *offset)
{
    size_t page = 4096, align = len >= page ? page : WF_CACHE_LINE, size = wf_align_up(len, align);
    struct wf_slab *slab = mem->current;
    if (len >= mem->slab_size) {
        slab = slab_open(mem, wf_align_up(len, page));
        if (slab && slab->size >= HUGE_PAGE)
            (void)madvise(slab->base, slab->size, MADV_HUGEPAGE);
        *offset = 0;
        return slab;
    }
    if (!slab || wf_align_up(slab->used, align) + size > slab->size) {
        struct wf_slab *old = mem->current;
        if (!(slab = slab_open(mem, mem->slab_size)))
            return NULL;
        mem->current = slab;
        if (old && !old->regions)
            slab_close(mem, old);
    }
    *offset = wf_align_up(slab->used, align);
    slab->used = *offset + size;
    return slab;
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
        void *more = realloc(mem->free_slots, (mem->next_slot + 256) * sizeof *mem->free_slots);
        if (!more)
            return -1;
        mem->free_slots = more;
    }
    *slot = mem->next_slot++;
    return 0;
}

enum weft_status wf_mem_region_open(struct wf_mem *mem, size_t len, unsigned access,
                                    struct wf_region *out)
{
    enum weft_status status = WEFT_ENOMEM;
    struct wf_region r = {.length = len, .access = access};
    if (!len || len > SIZE_MAX / 2)
        return len ? WEFT_ENOMEM : WEFT_EINVAL;
    pthread_mutex_lock(&mem->lock);
    if (slot_take(mem, &r.slot)) {
        wf_error("%d memory regions are open: close some", WF_MEM_STATE_WORDS);
        status = WEFT_ELIMIT;
        goto out;
    }
    r.slab = slab_for(mem, len, &r.offset);
    if (!r.slab) {
        mem->free_slots[mem->free_count++] = r.slot;
        goto out;
    }
    r.slab->regions++;
    mem->open_regions++;
    r.base = r.slab->base + r.offset;
    r.gen = wf_load_relaxed(&mem->state[r.slot]) + 1;
    wf_store_release(&mem->state[r.slot], r.gen);
    *out = r;
    status = WEFT_OK;
out:
    pthread_mutex_unlock(&mem->lock);
    return status;
}

void wf_mem_region_close(struct wf_mem *mem, struct wf_region *r)
{
    struct wf_slab *slab = r->slab;
    pthread_mutex_lock(&mem->lock);
    /* "generation": from here on every mate's check fails. A full fence, so
     * that it is seen before anything the owner does with this memory. */
    atomic_store_explicit(&mem->state[r->slot], r->gen + 1, memory_order_seq_cst);
    WF_HOOK("region.closed");
    mem->free_slots[mem->free_count++] = r->slot;
    mem->open_regions--;
    if (--slab->regions == 0 && slab != mem->current)
        slab_close(mem, slab);
    else if (r->length >= 4096) /* page aligned: its pages go, its space is not reused */
        (void)fallocate(slab->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)r->offset,
                        (off_t)wf_align_up(r->length, 4096));
    pthread_mutex_unlock(&mem->lock);
}

int wf_mem_slab_dup(struct wf_mem *mem, uint64_t id, size_t *size)
{
    int fd = -1;
    pthread_mutex_lock(&mem->lock);
    wf_list_each(it, &mem->slabs)
    {
        struct wf_slab *slab = wf_container_of(it, struct wf_slab, item);
        if (slab->id == id) {
            fd = fcntl(slab->fd, F_DUPFD_CLOEXEC, 0);
            *size = slab->size;
            break;
        }
    }
    pthread_mutex_unlock(&mem->lock);
    return fd;
}
