/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "mem/slab.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/log.h"

#define HUGE_PAGE ((size_t)2 << 20)

static WF_MEM_UNDER_LOCK void slab_close(struct wf_mem *mem, struct wf_slab *slab)
{
    if (mem->current[slab->read_only] == slab)
        mem->current[slab->read_only] = NULL;
    wf_list_remove(&slab->item);
    munmap(slab->base, slab->size);
    close(slab->fd);
    free(slab);
}

void wf_slabs_close(struct wf_mem *mem)
{
    wf_list_each_safe(it, nx, &mem->slabs)
        slab_close(mem, wf_container_of(it, struct wf_slab, item));
}

static WF_MEM_UNDER_LOCK struct wf_slab *slab_open(struct wf_mem *mem, size_t size, bool read_only)
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

/* A large region gets a slab of its own. A small region gets the next piece of the current slab,
 * which small regions share. */
struct wf_slab *wf_slab_space(struct wf_mem *mem, size_t len, bool read_only, size_t *offset)
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

/* A memfd takes memory only when it is written, and a kernel that overcommits maps any size. But a
 * memfd that is larger than memory and swap together can never be filled. (Sizes that the kernel
 * refuses, because of RLIMIT_AS or overcommit_memory=2, fail in mmap.) */
bool wf_slab_can_exist(size_t len)
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

void wf_slab_release(struct wf_mem *mem, const struct wf_region *r)
{
    struct wf_slab *slab = r->slab;
    if (--slab->regions == 0 && slab != mem->current[slab->read_only])
        slab_close(mem, slab);
    else if (r->length >= 4096) /* whole pages: free them; their space is not reused */
        (void)fallocate(slab->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)r->offset,
                        (off_t)wf_align_up(r->length, 4096));
}

int wf_mem_slab_dup(struct wf_mem *mem, uint64_t id, size_t *size)
{
    int fd = -1;
    wf_mem_lock(mem);
    wf_list_each(it, &mem->slabs)
    {
        struct wf_slab *slab = wf_container_of(it, struct wf_slab, item);
        if (slab->id == id) {
            fd = wf_fd_dup(slab->fd);
            *size = slab->size;
            break;
        }
    }
    wf_mem_unlock(mem);
    return fd;
}
