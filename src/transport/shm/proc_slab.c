/* SPDX-License-Identifier: BSD-3-Clause */
/* Maps slabs, the memory files that hold regions, of local processes. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "config/config.h"
#include "transport/shm/service.h"

static void slab_free(struct shm_slab *slab)
{
    wf_list_remove(&slab->item);
    if (slab->base)
        munmap(slab->base, slab->size);
    free(slab);
}

/* Unmap all slabs of [proc], which is being freed. No remote uses them any more. */
void wf_shm_slabs_free(struct shm_proc *proc)
{
    wf_list_each_safe(it, nx, &proc->slabs) slab_free(wf_container_of(it, struct shm_slab, item));
}

/* Called when an answer to a request for a region may have come. Wakes the threads in remote_wait,
 * and the owners that poll. */
void wf_shm_maps_changed(struct shm_ctx *ctx)
{
    pthread_cond_broadcast(&ctx->changed);
    wf_list_each(it, &ctx->teps)
    {
        struct shm_tep *t = wf_container_of(it, struct shm_tep, item);
        if (t->map_pending)
            wf_shm_notify(t);
    }
}

void wf_shm_slab_answer(struct shm_ctx *ctx, struct shm_proc *proc, const struct wf_packet *p,
                        int fd)
{
    wf_list_each_safe(it, nx, &proc->slabs)
    {
        struct shm_slab *slab = wf_container_of(it, struct shm_slab, item);
        void *base;
        if (slab->id != p->u.slab.id || slab->status != WEFT_PENDING)
            continue;
        /* ELIMIT: no descriptor is left. If SLAB_OK came without its descriptor, this process has
         * none left. If SLAB_NO contains ELIMIT, the other process has none left. */
        slab->status = p->type == WF_PACKET_SLAB_OK      ? WEFT_ELIMIT
                       : p->u.slab.status == WEFT_ELIMIT ? WEFT_ELIMIT
                                                         : WEFT_EKEY;
        if (fd >= 0)
            slab->status = wf_shared_map(fd, (size_t)p->u.slab.size, slab->writable, &base);
        if (fd >= 0 && slab->status == WEFT_OK) {
            slab->base = base;
            slab->size = (size_t)p->u.slab.size;
        }
        if (!slab->users)
            slab_free(slab);
    }
    if (fd >= 0)
        close(fd);
    wf_shm_maps_changed(ctx);
}

static struct shm_slab *slab_find(struct shm_proc *proc, uint64_t id)
{
    wf_list_each(it, &proc->slabs)
    {
        struct shm_slab *slab = wf_container_of(it, struct shm_slab, item);
        if (slab->id == id && (slab->status == WEFT_OK || slab->status == WEFT_PENDING))
            return slab;
    }
    return NULL;
}

static void slab_unref(struct shm_slab *slab)
{
    if (--slab->users == 0 && (slab->status != WEFT_PENDING || !slab->requested))
        slab_free(slab);
}

static struct shm_slab *slab_new(struct shm_proc *proc, uint64_t id, bool writable)
{
    struct shm_slab *slab = calloc(1, sizeof *slab);
    if (!slab)
        return NULL;
    slab->id = id;
    slab->writable = writable;
    slab->status = WEFT_PENDING;
    wf_list_append(&proc->slabs, &slab->item);
    return slab;
}

/* Map a slab of this context a second time, for puts and gets of this process. When the slab's
 * last region is closed, the first mapping may go. A put or get that is still copying uses the
 * second mapping, which stays, as a mapping in another process would. */
static void slab_map_self(struct shm_ctx *ctx, struct shm_slab *slab)
{
    size_t size = 0;
    void *base;
    int fd = wf_mem_slab_dup(ctx->mem, slab->id, &size);
    slab->status = fd < 0 ? WEFT_EKEY : wf_shared_map(fd, size, slab->writable, &base);
    if (slab->status == WEFT_OK) {
        slab->base = base;
        slab->size = size;
    }
    if (fd >= 0)
        close(fd);
}

/* Connect to [proc]'s process if not connected yet: the answer, WELCOME, brings the state segment.
 * If [slab] is not NULL, also request the slab. Returns OK, AGAIN, or a failure. AGAIN means that
 * the socket or its backlog is full. No event reports when there is room again. */
static UNDER_LOCK enum weft_status slab_request(struct shm_ctx *ctx, struct shm_proc *proc,
                                                struct shm_slab *slab)
{
    enum weft_status status = wf_shm_proc_connect(ctx, proc);
    struct wf_packet p = {0};
    if (status != WEFT_OK || !slab || slab->requested)
        return status;
    p.u.slab.id = slab->id;
    if (wf_packet_send(proc->sock.fd, &p, WF_PACKET_SLAB, NULL, 0))
        return WEFT_AGAIN;
    slab->requested = true;
    return WEFT_OK;
}

/* Are the state segment and [slab] mapped? Maps or requests what is missing. Returns OK, PENDING
 * (an answer is still to come), AGAIN (a request could not be sent: try again), or a failure. */
static UNDER_LOCK enum weft_status is_mapped(struct shm_ctx *ctx, struct shm_proc *proc,
                                             struct shm_slab *slab)
{
    enum weft_status status = (enum weft_status)proc->down;
    if (status == WEFT_OK && wf_shm_same(&proc->id, &ctx->self)) {
        if (slab && slab->status == WEFT_PENDING)
            slab_map_self(ctx, slab);
    } else if (status == WEFT_OK) {
        status = slab_request(ctx, proc, slab);
        if (status == WEFT_OK && !proc->state)
            status = WEFT_PENDING;
    }
    return status == WEFT_OK && slab ? slab->status : status;
}

static enum weft_status slab_ref(struct shm_proc *proc, uint64_t id, bool writable,
                                 struct shm_slab **out)
{
    struct shm_slab *slab = slab_find(proc, id);
    if (slab && slab->writable != writable)
        /* The key names no region: peers can write either all regions of a slab or none. */
        return WEFT_EKEY;
    if (!slab && !(slab = slab_new(proc, id, writable)))
        return WEFT_ENOMEM;
    slab->users++;
    *out = slab;
    return WEFT_OK;
}

/* Set the fields of [remote]. The state segment is mapped. [slab] is mapped or NULL. */
static enum weft_status remote_fill(const struct shm_ctx *ctx, const struct shm_proc *proc,
                                    const struct wf_key *key, const struct shm_slab *slab,
                                    struct weft_remote *remote)
{
    const uint64_t *state = wf_shm_same(&proc->id, &ctx->self)
                                ? (const uint64_t *)(const void *)ctx->mem->state
                                : proc->state;
    if (slab && (key->offset > slab->size || key->length > slab->size - key->offset))
        return WEFT_EKEY;
    remote->base = slab ? slab->base + key->offset : NULL;
    remote->length = key->length;
    remote->gen_word = state + key->slot;
    remote->gen = key->gen;
    remote->access = key->access;
    return __atomic_load_n(remote->gen_word, __ATOMIC_ACQUIRE) == key->gen ? WEFT_OK : WEFT_EKEY;
}

enum weft_status wf_shm_remote_map(struct wf_tpeer *tpeer, const struct wf_key *key,
                                   struct weft_remote *remote, void **cookie)
{
    struct shm_tep *t = wf_shm_tep_of(SHM_OF(tpeer, shm_peer));
    struct shm_ctx *ctx = t->ctx;
    struct shm_proc *proc = SHM_OF(tpeer, shm_peer)->proc;
    struct shm_slab *slab = *cookie;
    bool is_private = key->slab == WF_KEY_PRIVATE || !wf_config()->shm_map;
    enum weft_status status = WEFT_OK;
    if (key->token != proc->id.token[0] || key->slot >= WF_MEM_STATE_WORDS)
        return WEFT_EKEY;
    shm_lock(ctx);
    if (!slab && !is_private && !proc->down)
        status = slab_ref(proc, key->slab, key->access & WEFT_REMOTE_WRITE, &slab);
    if (status == WEFT_OK)
        status = is_mapped(ctx, proc, slab);
    if (status == WEFT_OK)
        status = remote_fill(ctx, proc, key, slab, remote);
    if (status == WEFT_AGAIN || status == WEFT_PENDING) {
        t->map_pending = true;
        if (status == WEFT_AGAIN) /* the next poll requests again */
            wf_shm_notify(t);
        status = WEFT_PENDING;
    } else if (status != WEFT_OK && slab) {
        slab_unref(slab);
        slab = NULL;
    }
    *cookie = slab;
    shm_unlock(ctx);
    return status;
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

enum weft_status wf_shm_remote_wait(struct wf_tpeer *tpeer, void *cookie, uint64_t until_ns)
{
    struct shm_ctx *ctx = wf_shm_tep_of(SHM_OF(tpeer, shm_peer))->ctx;
    struct shm_proc *proc = SHM_OF(tpeer, shm_peer)->proc;
    enum weft_status status;
    shm_lock(ctx);
    for (;;) {
        uint64_t now = wf_now_ns();
        struct timespec until;
        status = is_mapped(ctx, proc, cookie);
        if ((status != WEFT_AGAIN && status != WEFT_PENDING) || now >= until_ns)
            break;
        until = timespec_of(status == WEFT_AGAIN ? WF_MIN(now + 1000000, until_ns) : until_ns);
        (void)pthread_cond_timedwait(&ctx->changed, &ctx->lock, &until);
    }
    shm_unlock(ctx);
    return status == WEFT_AGAIN || status == WEFT_PENDING ? WEFT_ETIMEDOUT : WEFT_OK;
}

void wf_shm_remote_unmap(struct wf_tpeer *tpeer, void *cookie)
{
    struct shm_ctx *ctx = wf_shm_tep_of(SHM_OF(tpeer, shm_peer))->ctx;
    if (!cookie)
        return;
    shm_lock(ctx);
    slab_unref(cookie);
    shm_unlock(ctx);
}
