/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/node/exposed.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "mem/mem.h"
#include "mem/shared.h"

_Static_assert(WF_NODE_REGIONS == WF_MEM_STATE_WORDS, "an entry for each slot of a region");

WF_LOCK_CLASS(via_exposed_lock_class); /* struct via_exposed.lock */

enum via_slab_stage { SLAB_DUE, SLAB_GIVEN, SLAB_LEAVES };

struct via_slab {
    struct wf_list item;
    uint64_t id;
    bool read_only;
    enum via_slab_stage stage;
    unsigned regions;
};

struct via_exposed {
    pthread_mutex_t lock;
    struct wf_mem *mem;
    struct wf_node_regions *table;
    int table_fd;
    bool given WF_UNDER(via_exposed_lock_class); /* the table */
    struct wf_list slabs WF_UNDER(via_exposed_lock_class);
    struct wf_fork_item fork;
};

/* What region_open returns. */
struct via_region {
    struct via_slab *slab;
    uint64_t key;
    uint32_t slot;
};

static WF_ACQUIRES(via_exposed_lock_class) void exposed_lock(struct via_exposed *exposed)
{
    pthread_mutex_lock(&exposed->lock);
}

static WF_RELEASES(via_exposed_lock_class) void exposed_unlock(struct via_exposed *exposed)
{
    pthread_mutex_unlock(&exposed->lock);
}

static void slab_free(struct via_slab *slab)
{
    wf_list_remove(&slab->item);
    free(slab);
}

/* ---- forks ---- */

static WF_UNCHECKED void before_fork(struct wf_fork_item *item)
{
    exposed_lock(wf_container_of(item, struct via_exposed, fork));
}

static WF_UNCHECKED void in_parent(struct wf_fork_item *item)
{
    exposed_unlock(wf_container_of(item, struct via_exposed, fork));
}

static WF_UNCHECKED void in_child(struct wf_fork_item *item)
{
    struct via_exposed *exposed = wf_container_of(item, struct via_exposed, fork);
    close(exposed->table_fd);
    exposed->table_fd = -1;
    exposed_unlock(exposed);
}

static const struct wf_fork_ops fork_ops = {
    .level = WF_FORK_TRANSPORT, .prepare = before_fork, .parent = in_parent, .child = in_child};

/* ---- opening ---- */

WF_UNCHECKED struct via_exposed *wf_via_exposed_open(struct wf_mem *mem)
{
    struct via_exposed *exposed = calloc(1, sizeof *exposed);
    void *table = NULL;
    if (!exposed)
        return NULL;
    exposed->table_fd = wf_shared_create("weft-node-regions", sizeof *exposed->table, 0, &table);
    if (exposed->table_fd < 0) {
        wf_info("peers of other nodes access this process's memory by messages: there is no "
                "memory for the table of its regions: %s",
                strerror(errno));
        free(exposed);
        return NULL;
    }
    exposed->table = table;
    exposed->mem = mem;
    pthread_mutex_init(&exposed->lock, NULL);
    wf_list_init(&exposed->slabs);
    wf_fork_join(&exposed->fork, &fork_ops);
    return exposed;
}

WF_UNCHECKED void wf_via_exposed_close(struct via_exposed *exposed)
{
    wf_fork_leave(&exposed->fork);
    wf_list_each_safe(it, nx, &exposed->slabs)
        slab_free(wf_container_of(it, struct via_slab, item));
    munmap(exposed->table, sizeof *exposed->table);
    if (exposed->table_fd >= 0)
        close(exposed->table_fd);
    pthread_mutex_destroy(&exposed->lock);
    free(exposed);
}

/* ---- packets ---- */

static bool slab_send(int sock, const struct wf_node_slab *of, int fd)
{
    struct wf_node_packet p;
    wf_node_packet_init(&p, WF_NODE_SLAB);
    p.u.slab = *of;
    return !wf_node_packet_send(sock, &p, &fd, 1);
}

static bool unslab_send(int sock, uint64_t id)
{
    struct wf_node_packet p;
    wf_node_packet_init(&p, WF_NODE_UNSLAB);
    p.u.slab.id = id;
    return !wf_node_packet_send(sock, &p, NULL, 0);
}

/* The memfd is open while its packet is sent. Returns false with errno if it was not sent. */
static WF_REQUIRES(via_exposed_lock_class) bool slab_give(struct via_exposed *exposed,
                                                          struct via_slab *slab, int sock)
{
    struct wf_node_slab of = {.id = slab->id, .read_only = slab->read_only};
    size_t size = 0;
    int fd = wf_mem_slab_dup(exposed->mem, slab->id, &size), err;
    bool sent;
    if (fd < 0)
        return false;
    of.size = size;
    sent = slab_send(sock, &of, fd);
    err = errno;
    close(fd);
    errno = err;
    if (sent)
        slab->stage = SLAB_GIVEN;
    return sent;
}

static WF_REQUIRES(via_exposed_lock_class) bool packet_send(struct via_exposed *exposed,
                                                            struct via_slab *slab, int sock)
{
    if (slab->stage == SLAB_DUE)
        return slab_give(exposed, slab, sock);
    if (slab->stage == SLAB_LEAVES) {
        if (!unslab_send(sock, slab->id))
            return false;
        slab_free(slab);
    }
    return true;
}

bool wf_via_exposed_send(struct via_exposed *exposed, int sock, bool *later)
{
    const struct wf_node_slab table = {.size = sizeof *exposed->table};
    bool sent = true;
    exposed_lock(exposed);
    errno = 0;
    if (!exposed->given && !wf_list_empty(&exposed->slabs))
        sent = exposed->given = slab_send(sock, &table, exposed->table_fd);
    wf_list_each_safe(it, nx, &exposed->slabs)
    {
        sent = sent && packet_send(exposed, wf_container_of(it, struct via_slab, item), sock);
    }
    *later =
        !sent && errno != EAGAIN; /* also if the service has ended: then the reader sees that */
    exposed_unlock(exposed);
    return sent || *later;
}

void wf_via_exposed_stale(struct via_exposed *exposed)
{
    exposed_lock(exposed);
    exposed->given = false;
    wf_list_each_safe(it, nx, &exposed->slabs)
    {
        struct via_slab *slab = wf_container_of(it, struct via_slab, item);
        if (slab->stage == SLAB_LEAVES)
            slab_free(slab);
        else
            slab->stage = SLAB_DUE;
    }
    exposed_unlock(exposed);
}

/* ---- regions ---- */

static WF_REQUIRES(via_exposed_lock_class) struct via_slab *slab_find(struct via_exposed *exposed,
                                                                      uint64_t id)
{
    wf_list_each(it, &exposed->slabs)
    {
        struct via_slab *slab = wf_container_of(it, struct via_slab, item);
        if (slab->id == id)
            return slab;
    }
    return NULL;
}

/* Returns NULL if no memory is left. A slab is read-only if its regions are. */
static WF_REQUIRES(via_exposed_lock_class) struct via_slab *slab_add(struct via_exposed *exposed,
                                                                     uint64_t id, bool read_only)
{
    struct via_slab *slab = calloc(1, sizeof *slab);
    if (!slab)
        return NULL;
    *slab = (struct via_slab){.id = id, .read_only = read_only};
    wf_list_append(&exposed->slabs, &slab->item);
    return slab;
}

static uint64_t key_new(void)
{
    uint64_t key;
    do
        randombytes_buf(&key, sizeof key);
    while (!(uint32_t)key); /* that half shows that there is a key (nic.h) */
    return key;
}

/* Returns whether a packet is due. */
static WF_REQUIRES(via_exposed_lock_class) bool expose(struct via_exposed *exposed,
                                                       struct via_region *e,
                                                       const struct wf_nic_memory *memory,
                                                       unsigned access)
{
    struct wf_node_region *r = &exposed->table->of[e->slot];
    bool due = !e->slab->regions++;
    if (e->slab->stage == SLAB_LEAVES) {
        e->slab->stage = SLAB_GIVEN;
        due = false;
    }
    atomic_thread_fence(memory_order_release); /* "region": the slot's last key became 0 before */
    wf_store_relaxed(&r->slab, memory->slab);
    wf_store_relaxed(&r->offset, memory->offset);
    wf_store_relaxed(&r->length, memory->len);
    wf_store_relaxed(&r->access, access & (WEFT_REMOTE_READ | WEFT_REMOTE_WRITE));
    wf_store_release(&r->key, e->key); /* "region" */
    return due;
}

static WF_UNCHECKED void packets_due(struct via_ctx *ctx)
{
    via_lock(ctx);
    wf_via_reader_wake(ctx);
    via_unlock(ctx);
}

enum weft_status wf_via_exposed_region_open(struct via_ctx *ctx, const struct wf_nic_memory *memory,
                                            unsigned access, void **handle)
{
    struct via_exposed *exposed = ctx->exposed;
    struct via_region *e;
    bool due = false;
    if (!memory->slab || memory->len < WF_NIC_LONG || memory->len > WF_NODE_REGION_MOST)
        return WEFT_EUNREACH;
    e = calloc(1, sizeof *e);
    if (!e)
        return WEFT_ENOMEM;
    *e = (struct via_region){.key = key_new(), .slot = memory->slot};
    exposed_lock(exposed);
    e->slab = slab_find(exposed, memory->slab);
    if (!e->slab)
        e->slab = slab_add(exposed, memory->slab, !(access & WEFT_REMOTE_WRITE));
    if (e->slab)
        due = expose(exposed, e, memory, access);
    exposed_unlock(exposed);
    if (due)
        packets_due(ctx);
    if (e->slab) {
        *handle = e;
        return WEFT_OK;
    }
    free(e);
    return WEFT_ENOMEM;
}

void wf_via_exposed_region_keys(const void *handle, uint64_t *at, uint32_t keys[WF_KEY_NICS])
{
    const struct via_region *e = handle;
    memset(keys, 0, WF_KEY_NICS * sizeof *keys);
    *at = wf_node_region_at(e->slot);
    keys[VIA_KEY_RKEY] = (uint32_t)e->key;
    keys[VIA_KEY_INCARNATION] = (uint32_t)(e->key >> 32);
}

void wf_via_exposed_region_close(struct via_ctx *ctx, void *handle)
{
    struct via_exposed *exposed = ctx->exposed;
    struct via_region *e = handle;
    struct via_slab *slab = e->slab;
    bool due = false;
    exposed_lock(exposed);
    wf_store_release(&exposed->table->of[e->slot].key, 0); /* "region" */
    if (!--slab->regions) {
        due = slab->stage == SLAB_GIVEN;
        slab->stage = SLAB_LEAVES;
        if (!due)
            slab_free(slab);
    }
    exposed_unlock(exposed);
    if (due)
        packets_due(ctx);
    free(e);
}
