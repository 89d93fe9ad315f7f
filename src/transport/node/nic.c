/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/node/nic.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft/node.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/log.h"
#include "config/config.h"
#include "mem/budget.h"
#include "mem/dmabuf.h"
#include "mem/staging.h"
#include "transport/node/window.h"
#include "transport/rdma/hca_share.h"
#include "transport/rdma/reg.h"

#define REMOTE (WF_HCA_REMOTE_WRITE | WF_HCA_REMOTE_READ | WF_HCA_REMOTE_ATOMIC)
#define TRIES 5 /* to register a region, for which the cache gives up more each time */
/* A driver may refuse to drop memory at which its NIC is at work. A drop is tried for that long,
 * with these pauses, and all drops of the fence together. */
#define REFUSED_MS 1000u
#define REFUSED_PAUSE_MS 10

WF_LOCK_CLASS(via_nic_lock_class); /* struct via_nic.lock */

/* A registration, or memory that was registered by a service that has ended. */
struct via_mr {
    struct wf_list item; /* in nic->mrs */
    struct via_nic *nic;
    void *addr;
    size_t len;
    enum via_kind kind;
    unsigned access;
    uint32_t handle;
    /* Messages by which a peer may still read. Counted up before its keys are read, and read after
     * [lkey] has become 0 (both in one order of all): where one thread takes a key which another
     * one drops, the latter finds the message. */
    _Atomic uint32_t lends;
    _Atomic uint32_t lkey; /* 0: it is not registered */
    /* These are stored before [lkey] (release), and loaded after it (acquire). Values of two
     * registrations, if it is registered anew meanwhile, name neither of them. */
    _Atomic uint32_t rkey, incarnation;
    _Atomic uint64_t at;
};

struct via_nic {
    pthread_mutex_t lock;
    struct wf_hca_registrar *registrar WF_UNDER(via_nic_lock_class); /* NULL: no service */
    bool ended WF_UNDER(via_nic_lock_class); /* the service has ended: no more is registered */
    uint32_t incarnation WF_UNDER(via_nic_lock_class);
    struct via_window window WF_UNDER(via_nic_lock_class);
    struct wf_list mrs WF_UNDER(via_nic_lock_class);
    /* The last drop was refused for as long as it was tried. The next one is tried once. */
    bool refuses WF_UNDER(via_nic_lock_class);
    struct wf_staging *staging;
    _Atomic uint64_t lent; /* bytes that peers may read (nic_moves.c) */
    struct wf_fork_item fork;
};

static WF_ACQUIRES(via_nic_lock_class) void nic_lock(struct via_nic *nic)
{
    pthread_mutex_lock(&nic->lock);
}

static WF_RELEASES(via_nic_lock_class) void nic_unlock(struct via_nic *nic)
{
    pthread_mutex_unlock(&nic->lock);
}

/* ---- registrations ---- */

static WF_REQUIRES(via_nic_lock_class) enum weft_status
    mr_register(struct via_nic *nic, struct via_mr *mr)
{
    struct wf_hca_registrar *r = nic->registrar;
    struct wf_hca_registration made;
    enum weft_status status = WEFT_EUNREACH;
    uint64_t at;
    if (!r || nic->ended)
        return status;
    at = wf_via_window_take(&nic->window, mr->kind, (uintptr_t)mr->addr, mr->len);
    if (!at)
        return WEFT_ELIMIT;
    status = r->ops->reg(r, mr->addr, mr->len, at, mr->access, &made);
    /* 0 stands for none. Memory that no peer accesses has no remote key with rdma_rxe. */
    if (status == WEFT_OK && (!made.lkey || (mr->access & REMOTE && !made.rkey))) {
        (void)r->ops->drop(r, made.handle);
        status = WEFT_ELIMIT;
    }
    if (status != WEFT_OK) {
        wf_via_window_give(&nic->window, mr->kind, at);
        return status;
    }
    mr->handle = made.handle;
    atomic_store_explicit(&mr->rkey, made.rkey, memory_order_relaxed);
    atomic_store_explicit(&mr->incarnation, nic->incarnation, memory_order_relaxed);
    atomic_store_explicit(&mr->at, at, memory_order_relaxed);
    atomic_store_explicit(&mr->lkey, made.lkey, memory_order_release);
    return WEFT_OK;
}

/* A service that took this process for ended may have dropped what it had registered, and handles
 * are given again: so a registration is looked up, by its address, before its handle is dropped.
 * Returns EKEY if it is gone. */
static WF_REQUIRES(via_nic_lock_class) enum weft_status
    mr_try_drop(struct via_nic *nic, const struct via_mr *mr)
{
    struct wf_hca_registrar *r = nic->registrar;
    struct wf_hca_registration found;
    enum weft_status status = r->ops->find(r, mr->handle, &found);
    if (status == WEFT_OK && found.at != atomic_load_explicit(&mr->at, memory_order_relaxed))
        status = WEFT_EKEY;
    return status == WEFT_OK ? r->ops->drop(r, mr->handle) : status;
}

static uint64_t refused_until(void)
{
    return wf_now_ns() + REFUSED_MS * UINT64_C(1000000);
}

/* The lock is free meanwhile: other threads register and drop memory. */
static WF_REQUIRES(via_nic_lock_class) void refusal_wait(struct via_nic *nic)
{
    nic_unlock(nic);
    (void)poll(NULL, 0, REFUSED_PAUSE_MS);
    nic_lock(nic);
}

/* Try to drop the registration [mr]. Returns false if it is to be tried again, until [until_ns].
 * The addresses of memory that stays registered, or that a peer may still read by its key, are not
 * used again. */
static WF_REQUIRES(via_nic_lock_class) bool mr_tried(struct via_nic *nic, struct via_mr *mr,
                                                     uint64_t until_ns)
{
    enum weft_status status = mr_try_drop(nic, mr);
    const uint64_t at = atomic_load_explicit(&mr->at, memory_order_relaxed);
    bool refused = status != WEFT_OK && status != WEFT_EKEY;
    if (refused && !nic->refuses && wf_now_ns() < until_ns)
        return false;
    atomic_store_explicit(&mr->lkey, 0, memory_order_seq_cst);
    nic->refuses = refused;
    if (refused || atomic_load_explicit(&mr->lends, memory_order_seq_cst))
        wf_via_window_keep(&nic->window, mr->kind, at, mr->len);
    else
        wf_via_window_give(&nic->window, mr->kind, at);
    if (refused)
        wf_warn("%zu KiB stay registered with %s (%s), until all processes that use the node's "
                "service have left it",
                mr->len / 1024, nic->registrar->share.name, weft_status_text(status));
    return true;
}

/* The fence, or another thread, may drop it meanwhile, and a third one register it anew. */
static WF_REQUIRES(via_nic_lock_class) void mr_drop(struct via_nic *nic, struct via_mr *mr)
{
    const uint64_t until_ns = refused_until();
    const uint64_t at = atomic_load_explicit(&mr->at, memory_order_relaxed);
    while (atomic_load_explicit(&mr->lkey, memory_order_relaxed) &&
           atomic_load_explicit(&mr->at, memory_order_relaxed) == at &&
           !mr_tried(nic, mr, until_ns))
        refusal_wait(nic);
}

/* Try to drop all of them. Returns as mr_tried. */
static WF_REQUIRES(via_nic_lock_class) bool all_tried(struct via_nic *nic, uint64_t until_ns)
{
    bool all = true;
    wf_list_each(it, &nic->mrs)
    {
        struct via_mr *mr = wf_container_of(it, struct via_mr, item);
        if (atomic_load_explicit(&mr->lkey, memory_order_relaxed))
            all &= mr_tried(nic, mr, until_ns);
    }
    return all;
}

static WF_UNCHECKED enum weft_status mr_open(struct via_nic *nic, enum via_kind kind, void *addr,
                                             size_t len, unsigned access, struct via_mr **out)
{
    struct via_mr *mr = calloc(1, sizeof *mr);
    enum weft_status status;
    if (!mr)
        return WEFT_ENOMEM;
    *mr = (struct via_mr){.nic = nic, .addr = addr, .len = len, .kind = kind, .access = access};
    nic_lock(nic);
    status = mr_register(nic, mr);
    if (status == WEFT_OK)
        wf_list_append(&nic->mrs, &mr->item);
    nic_unlock(nic);
    if (status == WEFT_OK)
        *out = mr;
    else
        free(mr);
    return status;
}

static WF_UNCHECKED void mr_close(struct via_mr *mr)
{
    nic_lock(mr->nic);
    mr_drop(mr->nic, mr);
    wf_list_remove(&mr->item);
    nic_unlock(mr->nic);
    free(mr);
}

WF_UNCHECKED void wf_via_mr_stop(struct via_mr *mr)
{
    nic_lock(mr->nic);
    mr_drop(mr->nic, mr);
    nic_unlock(mr->nic);
}

WF_UNCHECKED void wf_via_mr_revoke(struct via_mr *mr, uint64_t at)
{
    nic_lock(mr->nic);
    /* else the registration that the key names is gone */
    if (mr->nic->registrar && at - atomic_load_explicit(&mr->at, memory_order_relaxed) < mr->len)
        mr_drop(mr->nic, mr);
    nic_unlock(mr->nic);
}

WF_UNCHECKED uint32_t wf_via_mr_use(struct via_mr *mr, const void *addr, uint64_t *at)
{
    uint32_t lkey = atomic_load_explicit(&mr->lkey, memory_order_seq_cst); /* see [lends] */
    if (__builtin_expect(!lkey, 0)) {
        nic_lock(mr->nic);
        if (!atomic_load_explicit(&mr->lkey, memory_order_relaxed))
            (void)mr_register(mr->nic, mr);
        lkey = atomic_load_explicit(&mr->lkey, memory_order_relaxed);
        nic_unlock(mr->nic);
    }
    *at = atomic_load_explicit(&mr->at, memory_order_relaxed) +
          (uint64_t)((const uint8_t *)addr - (const uint8_t *)mr->addr);
    return lkey;
}

static bool mr_keys(struct via_mr *mr, const void *addr, uint64_t *at, uint32_t keys[WF_KEY_NICS])
{
    if (!wf_via_mr_use(mr, addr, at))
        return false;
    memset(keys, 0, WF_KEY_NICS * sizeof *keys);
    keys[VIA_KEY_RKEY] = atomic_load_explicit(&mr->rkey, memory_order_relaxed);
    keys[VIA_KEY_INCARNATION] = atomic_load_explicit(&mr->incarnation, memory_order_relaxed);
    return keys[VIA_KEY_RKEY];
}

bool wf_via_mr_lend(struct via_mr *mr, const void *addr, uint64_t *at, uint32_t keys[WF_KEY_NICS])
{
    atomic_fetch_add_explicit(&mr->lends, 1, memory_order_seq_cst);
    if (mr_keys(mr, addr, at, keys))
        return true;
    wf_via_mr_lend_end(mr);
    return false;
}

void wf_via_mr_lend_end(struct via_mr *mr)
{
    atomic_fetch_sub_explicit(&mr->lends, 1, memory_order_release);
}

_Atomic uint64_t *wf_via_nic_lent(struct via_nic *nic)
{
    return &nic->lent;
}

/* ---- the program's memory: the cache's functions ---- */

static enum weft_status cached_reg(void *owner, void *addr, size_t len, void **handle)
{
    const struct via_nic *nic = owner;
    /* A peer may read a tagged message of the program's, but not the staging area, which is
     * registered first. */
    unsigned access = wf_rdma_access(nic->staging ? WEFT_REMOTE_READ : 0) | WF_HCA_LOCAL_WRITE;
    struct via_mr *mr;
    enum weft_status status = mr_open(owner, VIA_CACHED, addr, len, access, &mr);
    if (status == WEFT_OK)
        *handle = mr;
    return status;
}

static void cached_dereg(void *owner, void *handle)
{
    (void)owner;
    mr_close(handle);
}

static enum weft_status staging_open(struct via_nic *nic)
{
    struct wf_staging_params p = {0};
    enum weft_status status = wf_cache_params_own(&p.cache);
    wf_staging_params_own(&p, 0); /* no message is staged */
    p.cache.reg_ops = (struct wf_reg_ops){.owner = nic, .reg = cached_reg, .dereg = cached_dereg};
    return status == WEFT_OK ? wf_staging_open(&p, &nic->staging) : status;
}

struct wf_staging *wf_via_nic_staging(const struct via_nic *nic)
{
    return nic->staging;
}

/* ---- services ---- */

/* A child forked meanwhile closes its copy of the descriptor, so that the context can end. */
static WF_UNCHECKED void before_fork(struct wf_fork_item *item)
{
    nic_lock(wf_container_of(item, struct via_nic, fork));
}

static WF_UNCHECKED void in_parent(struct wf_fork_item *item)
{
    nic_unlock(wf_container_of(item, struct via_nic, fork));
}

static WF_UNCHECKED void in_child(struct wf_fork_item *item)
{
    struct via_nic *nic = wf_container_of(item, struct via_nic, fork);
    if (nic->registrar)
        close(nic->registrar->fd);
    nic->registrar = NULL;
    nic_unlock(nic);
}

static const struct wf_fork_ops fork_ops = {
    .level = WF_FORK_TRANSPORT, .prepare = before_fork, .parent = in_parent, .child = in_child};

WF_UNCHECKED void wf_via_nic_renew(struct via_nic *nic, struct wf_node_link *link)
{
    struct wf_hca_registrar *r = NULL;
    nic_lock(nic); /* a child forked meanwhile closes the descriptor once */
    if (link->window && wf_hca_adopt(&link->share, link->command_fd, &r) == WEFT_OK) {
        link->command_fd = -1;
        nic->registrar = r;
        nic->refuses = nic->ended = false;
        nic->incarnation = link->incarnation & WF_NODE_GEN_MASK;
        wf_via_window_begin(&nic->window, link->window);
    } else { /* it is logged, and messages go on */
        wf_node_command_close(link);
    }
    nic_unlock(nic);
}

WF_UNCHECKED void wf_via_nic_fence(struct via_nic *nic)
{
    const uint64_t until_ns = refused_until();
    struct wf_hca_registrar *r;
    nic_lock(nic);
    nic->ended = true;
    r = nic->registrar;
    while (r && !all_tried(nic, until_ns))
        refusal_wait(nic);
    WF_HOOK("node.fenced");
    if (r)
        r->ops->close(r);
    nic->registrar = NULL;
    nic_unlock(nic);
}

static WF_UNCHECKED bool has_registrar(struct via_nic *nic)
{
    return nic->registrar;
}

static WF_UNCHECKED void nic_free(struct via_nic *nic)
{
    wf_via_window_end(&nic->window);
    pthread_mutex_destroy(&nic->lock);
    free(nic);
}

WF_UNCHECKED struct via_nic *wf_via_nic_open(struct wf_node_link *link, bool moves)
{
    struct via_nic *nic = calloc(1, sizeof *nic);
    if (!nic)
        return NULL;
    pthread_mutex_init(&nic->lock, NULL);
    wf_list_init(&nic->mrs);
    wf_fork_join(&nic->fork, &fork_ops);
    wf_via_nic_renew(nic, link);
    if (has_registrar(nic) && (!moves || staging_open(nic) == WEFT_OK))
        return nic;
    wf_via_nic_fence(nic);
    wf_fork_leave(&nic->fork);
    nic_free(nic);
    return NULL;
}

void wf_via_nic_close(struct via_nic *nic)
{
    if (nic->staging)
        wf_staging_close(nic->staging);
    wf_via_nic_fence(nic);
    wf_fork_leave(&nic->fork);
    nic_free(nic);
}

/* ---- registrations of rv.c ---- */

enum weft_status wf_via_nic_reg(struct via_nic *nic, void *addr, size_t len, unsigned access,
                                void **handle)
{
    const unsigned writes = WEFT_NODE_LOCAL_WRITE | WEFT_NODE_REMOTE_WRITE;
    /* Verbs lets no peer write where this process may not. */
    unsigned hca = (access & writes ? WF_HCA_LOCAL_WRITE : 0) |
                   (access & WEFT_NODE_REMOTE_WRITE ? WF_HCA_REMOTE_WRITE : 0) |
                   (access & WEFT_NODE_REMOTE_READ ? WF_HCA_REMOTE_READ : 0);
    struct via_mr *mr;
    enum weft_status status = mr_open(nic, VIA_REGION, addr, len, hca, &mr);
    if (status == WEFT_OK)
        *handle = mr;
    return status;
}

void wf_via_nic_dereg(void *handle)
{
    mr_close(handle);
}

bool wf_via_nic_keys(void *handle, uint64_t *at, uint32_t *lkey, uint32_t *rkey)
{
    const struct via_mr *mr = handle;
    *lkey = atomic_load_explicit(&mr->lkey, memory_order_acquire);
    *rkey = atomic_load_explicit(&mr->rkey, memory_order_relaxed);
    *at = atomic_load_explicit(&mr->at, memory_order_relaxed);
    return *lkey;
}

/* ---- regions ---- */

struct region_attempt {
    struct via_nic *nic;
    const struct wf_nic_memory *memory;
    unsigned access;
    struct via_mr *made;
};

static enum weft_status region_attempt(void *arg)
{
    struct region_attempt *a = arg;
    enum weft_status status = WEFT_ELIMIT;
    if (!wf_budget_take(wf_budget_own(), a->memory->len))
        return status;
    status = mr_open(a->nic, VIA_REGION, a->memory->addr, a->memory->len, a->access, &a->made);
    if (status != WEFT_OK)
        wf_budget_give(wf_budget_own(), a->memory->len);
    return status;
}

/* Register a region anew, after its service's death. Does not wait for another thread that
 * registers or drops memory. */
static WF_UNCHECKED void region_renew(struct via_mr *mr)
{
    if (pthread_mutex_trylock(&mr->nic->lock))
        return;
    if (!atomic_load_explicit(&mr->lkey, memory_order_relaxed))
        (void)mr_register(mr->nic, mr);
    nic_unlock(mr->nic);
}

/* A region that is not registered has no keys: there is no service, or no room. */
void wf_via_nic_region_keys(void *handle, uint64_t *at, uint32_t keys[WF_KEY_NICS])
{
    struct via_mr *mr = handle;
    if (!atomic_load_explicit(&mr->lkey, memory_order_relaxed))
        region_renew(mr);
    memset(keys, 0, WF_KEY_NICS * sizeof *keys);
    *at = 0;
    if (!atomic_load_explicit(&mr->lkey, memory_order_acquire))
        return;
    *at = atomic_load_explicit(&mr->at, memory_order_relaxed);
    keys[VIA_KEY_RKEY] = atomic_load_explicit(&mr->rkey, memory_order_relaxed);
    keys[VIA_KEY_INCARNATION] = atomic_load_explicit(&mr->incarnation, memory_order_relaxed);
}

enum weft_status wf_via_nic_region_open(struct via_nic *nic, const struct wf_nic_memory *memory,
                                        unsigned access, uint64_t *at, uint32_t keys[WF_KEY_NICS],
                                        void **handle)
{
    struct region_attempt a = {nic, memory, wf_rdma_access(access), NULL};
    enum weft_status status;
    if (!nic || (memory->dmabuf && memory->dmabuf->is_real))
        return WEFT_EUNREACH;
    status =
        wf_cache_attempt(wf_staging_cache(nic->staging), memory->len, 1, TRIES, region_attempt, &a);
    if (status != WEFT_OK) {
        wf_info("%zu KiB cannot be registered with the NIC of the node's service (%s): peers reach "
                "them by messages%s",
                memory->len / 1024, weft_status_text(status),
                status == WEFT_ELIMIT
                    ? "; raise ulimit -l, or WEFT_PINNED, unless this context has "
                      "had regions, or cancelled messages, of 16 TiB"
                    : "");
        return status;
    }
    wf_via_nic_region_keys(a.made, at, keys);
    *handle = a.made;
    return WEFT_OK;
}

void wf_via_nic_region_close(void *handle)
{
    struct via_mr *mr = handle;
    wf_budget_give(wf_budget_own(), mr->len);
    mr_close(mr);
}
