/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that Weft allocates for others to map.
 *
 * Private regions are the caller's memory, named so that its process can find it
 * for others; wf_mem_use holds one open while it is touched.
 *
 * Slabs. A slab is a memfd, sealed against shrinking and growing, that mates
 * map whole. A region of at least the slab size is a slab of its own; smaller
 * ones share a slab whose space is never handed out twice: a mate's late copy
 * into a closed region can only land in memory that nobody uses. With a slab's
 * last region its owner unmaps and closes it; its pages live on only in the
 * hands of those who still map them.
 *
 * State. Each region has a generation word in the state segment, a memfd that
 * mates map read-only (F_SEAL_FUTURE_WRITE). Odd: open. A remote remembers the
 * value it was opened with and checks it before and after each copy.
 *
 * Acquire/release pair "generation": wf_mem_region_close stores it (release)
 * before the memory goes; weft_remote_ok_ and weft_remote_still_ load it.
 *
 * Any thread; one lock, never held across anything that blocks. */
#ifndef WF_MEM_MEM_H
#define WF_MEM_MEM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#include "base/util.h"

/* 8 bytes each; the segment is sparse. */
#define WF_MEM_STATE_WORDS 65536
#define WF_MEM_STATE_SIZE (WF_MEM_STATE_WORDS * sizeof(uint64_t))

struct wf_slab {
    struct wf_list item; /* mem->slabs */
    uint64_t id;
    int fd;
    unsigned char *base;
    size_t size;
    bool read_only;   /* for mates, by its seal */
    size_t used;      /* bytes handed out, never given back */
    unsigned regions; /* open ones */
};

struct wf_mem {
    pthread_mutex_t lock;
    struct wf_list slabs WF_GUARDED_BY(lock);
    struct wf_slab *current[2] WF_GUARDED_BY(lock); /* for small regions: writable by mates,
                                                     * read-only; may be null */
    uint64_t next_slab WF_GUARDED_BY(lock);
    uint32_t *free_slots WF_GUARDED_BY(lock);
    uint32_t free_count WF_GUARDED_BY(lock);
    uint32_t next_slot WF_GUARDED_BY(lock);
    unsigned open_regions WF_GUARDED_BY(lock);
    struct wf_region **regions WF_GUARDED_BY(lock); /* by slot, null: closed; [next_slot up to
                                                     * a multiple of 256] */
    pthread_cond_t unused;                          /* a region's users went to 0 */
    size_t slab_size;                               /* constant */
    int state_fd;                                   /* constant */
    _Atomic uint64_t *state;
};

struct wf_region {
    struct wf_slab *slab; /* null: private */
    unsigned users;       /* wf_mem_use; under mem->lock */
    bool closing;         /* alike */
    unsigned char *base;
    size_t length;
    size_t offset; /* in the slab */
    uint32_t slot;
    uint32_t access;
    uint64_t gen;
};

/* Returns OK | ESYSTEM | ENOMEM */
enum weft_status wf_mem_init(struct wf_mem *mem, size_t slab_size);
/* All regions have been closed. Safe on a zeroed struct. */
void wf_mem_fini(struct wf_mem *mem);

/* [out] stays where it is until it is closed. */
enum weft_status wf_mem_region_open(struct wf_mem *mem, size_t len, unsigned access,
                                    struct wf_region *out);
enum weft_status wf_mem_region_register(struct wf_mem *mem, void *addr, size_t len, unsigned access,
                                        struct wf_region *out);
/* Returns when nobody uses it. */
void wf_mem_region_close(struct wf_mem *mem, struct wf_region *region);

/* Where [offset, offset + len) of the region of [slot] and [gen] is, if it is open
 * and grants [access]; it stays open until wf_mem_unuse. For short: who closes
 * it waits. Returns OK | EKEY | ERANGE | EACCESS */
enum weft_status wf_mem_use(struct wf_mem *mem, uint32_t slot, uint64_t gen, uint64_t offset,
                            uint64_t len, unsigned access, void **base);
void wf_mem_unuse(struct wf_mem *mem, uint32_t slot);

/* A new descriptor of slab [id] and its size; -1 if there is no such slab. The
 * caller closes it. */
int wf_mem_slab_dup(struct wf_mem *mem, uint64_t id, size_t *size);

/* A memfd of [size] bytes named [name] for mates, sealed against shrinking,
 * growing and further seals, mapped shared and writable at *base; with
 * [read_only] mates can map it only to read. Returns the descriptor or -1
 * (logged). Also used by transports for their rings. */
int wf_shared_create(const char *name, size_t size, int read_only, void **base);

/* Map a mate's memfd after checking that it has the seals which keep it from
 * being truncated under us, and at least [size] bytes.
 * Returns OK | EPROTO (not such a memfd) | ENOMEM | ESYSTEM */
enum weft_status wf_shared_map(int fd, size_t size, int writable, void **base);

#endif
