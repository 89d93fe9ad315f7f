/* SPDX-License-Identifier: BSD-3-Clause */
/* Creates and maps the two segments of a connection. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/config.h"
#include "transport/shm/shm.h"

struct wf_shm_geometry wf_shm_geometry_full(uint32_t am_max)
{
    const struct wf_config *c = wf_config();
    uint32_t payload = (uint32_t)c->shm_payload;
    while (payload < 4 * am_max) /* a context may have longer messages than WEFT_AM_MAX */
        payload *= 2;
    return (struct wf_shm_geometry){(uint32_t)c->shm_slots, payload, am_max,
                                    (uint32_t)c->shm_places};
}

/* The smallest ring that makes progress: 64 messages in flight, two of them of the greatest length,
 * and two long replies. Such a ring takes 38 KiB; a ring of the default sizes takes 760 KiB. */
struct wf_shm_geometry wf_shm_geometry_small(uint32_t am_max)
{
    struct wf_shm_geometry g = wf_shm_geometry_full(am_max);
    uint32_t payload = 4096;
    while (payload < WF_MAX(2 * am_max, am_max + WF_SHM_ARGS_BLOCK))
        payload *= 2;
    g.slots = WF_MIN(g.slots, 64u);
    g.payload = WF_MIN(g.payload, payload);
    g.places = WF_MIN(g.places, 2u);
    return g;
}

size_t wf_shm_ring_bytes(const struct wf_shm_geometry *g)
{
    return wf_shm_fwd_size(g) + wf_shm_back_size(g) +
           g->slots * (sizeof(struct shm_due) + sizeof(struct shm_block));
}

uint64_t wf_shm_memory_bound(unsigned endpoints, uint32_t am_max)
{
    struct wf_shm_geometry full = wf_shm_geometry_full(am_max),
                           small = wf_shm_geometry_small(am_max);
    uint64_t rings = wf_config()->shm_rings, few = WF_MIN(rings, WF_SHM_RINGS_MIN);
    uint64_t all = endpoints * rings * wf_shm_ring_bytes(&full);
    return WF_MIN(all, wf_config()->shm_memory + endpoints * few * wf_shm_ring_bytes(&small));
}

static struct shm_segs *segs_new(const struct wf_shm_geometry *g)
{
    struct shm_segs *s = calloc(1, sizeof *s);
    if (s) {
        atomic_init(&s->refs, 1);
        s->geometry = *g;
    }
    return s;
}

static void segs_free(struct shm_segs *s)
{
    if (s->fwd)
        munmap(s->fwd, wf_shm_fwd_size(&s->geometry));
    if (s->back)
        munmap(s->back, wf_shm_back_size(&s->geometry));
    free(s);
}

/* The sender's side: create both segments as memfds. The caller closes [fds]. On failure, logs the
 * error and returns NULL. */
struct shm_segs *wf_shm_segs_create(const struct wf_shm_geometry *g, int fds[2])
{
    struct shm_segs *s = segs_new(g);
    void *fwd = NULL, *back = NULL;
    if (!s)
        return NULL;
    fds[0] = wf_shared_create("weft-ring", wf_shm_fwd_size(g), 1, &fwd);
    s->fwd = fwd;
    if (fds[0] >= 0) {
        fds[1] = wf_shared_create("weft-back", wf_shm_back_size(g), 0, &back);
        s->back = back;
        if (fds[1] >= 0)
            return s;
        close(fds[0]);
    }
    segs_free(s);
    return NULL;
}

/* The receiver's side: map the two segments that came with a RING packet. On failure, stores the
 * reason in *why and returns NULL. */
struct shm_segs *wf_shm_segs_map(const struct wf_shm_geometry *g, const int fds[2],
                                 enum weft_status *why)
{
    struct shm_segs *s = segs_new(g);
    void *fwd = NULL, *back = NULL;
    if (!s) {
        *why = WEFT_ENOMEM;
        return NULL;
    }
    *why = wf_shared_map(fds[0], wf_shm_fwd_size(g), 0, &fwd);
    if (*why == WEFT_OK)
        *why = wf_shared_map(fds[1], wf_shm_back_size(g), 1, &back);
    s->fwd = fwd;
    s->back = back;
    if (*why == WEFT_OK)
        return s;
    segs_free(s);
    return NULL;
}

void wf_shm_segs_ref(struct shm_segs *segs)
{
    atomic_fetch_add_explicit(&segs->refs, 1, memory_order_relaxed);
}

void wf_shm_segs_unref(struct shm_segs *segs)
{
    if (atomic_fetch_sub_explicit(&segs->refs, 1, memory_order_acq_rel) == 1)
        segs_free(segs);
}

bool wf_shm_is_eventfd(int fd)
{
    static const char name[] = "anon_inode:[eventfd]";
    char path[64], link[sizeof name];
    snprintf(path, sizeof path, "/proc/thread-self/fd/%d", fd);
    return readlink(path, link, sizeof link) == (ssize_t)sizeof name - 1 &&
           !memcmp(link, name, sizeof name - 1);
}
