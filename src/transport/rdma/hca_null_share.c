/* SPDX-License-Identifier: BSD-3-Clause */
/* hca_share.h of the null NICs. A memfd stands for the command descriptor. It holds a table of
 * objects, as the kernel has one for each context: domains that are shared, and what registrars
 * have registered. The index of an object is its handle. As in the kernel, an operation is done
 * whole or not at all if its process is killed, and the table lives as long as any process has the
 * memfd. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hook.h"
#include "base/log.h"
#include "mem/shared.h"
#include "transport/rdma/hca_null.h"
#include "transport/rdma/hca_share.h"

#define MAGIC UINT64_C(0x6c6c756e74666577)
#define OBJECTS 4096u

enum object_kind { FREE, DOMAIN, REGISTRATION };

/* [kind] is written last when the object is made, and first when it ends. */
struct object {
    uint32_t kind; /* enum object_kind */
    uint32_t key;
    uint64_t at; /* of a domain: the address of its struct in the process that shares it */
    uint64_t len;
};

struct null_objects {
    uint64_t magic;
    pthread_mutex_t lock; /* robust: guards what follows */
    uint32_t next_key;
    struct object of[OBJECTS];
};

struct null_registrar {
    struct wf_hca_registrar base;
    struct null_objects *objects;
};

static struct null_objects *objects_of(struct wf_hca_registrar *r)
{
    return ((struct null_registrar *)(void *)r)->objects;
}

/* ---- the table ---- */

/* A process that is killed while it has the lock leaves at most an object whose kind is still
 * FREE. */
static void objects_lock(struct null_objects *o)
{
    int err = pthread_mutex_lock(&o->lock);
    if (err == EOWNERDEAD)
        err = pthread_mutex_consistent(&o->lock);
    if (err)
        abort(); /* the table would change without a lock */
}

static void objects_unlock(struct null_objects *o)
{
    (void)pthread_mutex_unlock(&o->lock);
}

static bool objects_init(struct null_objects *o)
{
    pthread_mutexattr_t attr;
    bool ok = !pthread_mutexattr_init(&attr) &&
              !pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) &&
              !pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST) &&
              !pthread_mutex_init(&o->lock, &attr);
    o->magic = MAGIC;
    return ok;
}

/* Makes an object with the lowest free handle. The caller has the lock. Returns OBJECTS if none is
 * free. */
static uint32_t object_make(struct null_objects *o, enum object_kind kind, uint64_t at,
                            uint64_t len)
{
    uint32_t handle = 0;
    while (handle < OBJECTS && o->of[handle].kind != FREE)
        handle++;
    if (handle == OBJECTS)
        return handle;
    o->of[handle] = (struct object){FREE, ++o->next_key, at, len};
    WF_HOOK("within the lock of shared objects");
    __atomic_store_n(&o->of[handle].kind, (uint32_t)kind, __ATOMIC_RELEASE);
    return handle;
}

/* Returns the registration that has [handle], or NULL. The caller has the lock. */
static struct object *registration_at(struct null_objects *o, uint32_t handle)
{
    return handle < OBJECTS && o->of[handle].kind == REGISTRATION ? &o->of[handle] : NULL;
}

/* ---- sharing ---- */

void wf_null_share_close(struct null_hca *null)
{
    if (!null->objects)
        return;
    munmap(null->objects, sizeof *null->objects);
    close(null->objects_fd);
}

static bool share_open(struct null_hca *null)
{
    void *base;
    int fd;
    if (null->objects)
        return true;
    fd = wf_shared_create("weft-null", sizeof(struct null_objects), 0, &base);
    if (fd < 0)
        return false;
    if (!objects_init(base)) {
        munmap(base, sizeof(struct null_objects));
        close(fd);
        return false;
    }
    null->objects = base;
    null->objects_fd = fd;
    return true;
}

/* Returns the handle of a domain. Makes one at the first call. */
static uint32_t domain_handle(struct null_objects *o, const struct wf_hca_pd *pd)
{
    uint32_t handle = 0;
    objects_lock(o);
    while (handle < OBJECTS && (o->of[handle].kind != DOMAIN || o->of[handle].at != (uintptr_t)pd))
        handle++;
    if (handle == OBJECTS)
        handle = object_make(o, DOMAIN, (uintptr_t)pd, 0);
    objects_unlock(o);
    return handle;
}

static enum weft_status null_describe(struct wf_hca_pd *pd, struct wf_hca_share *out, int *fd)
{
    struct null_hca *null = (struct null_hca *)(void *)pd->hca;
    uint32_t handle = OBJECTS;
    struct stat st;
    pthread_mutex_lock(&null->sim.lock);
    if (share_open(null) && !fstat(null->objects_fd, &st))
        handle = domain_handle(null->objects, pd);
    pthread_mutex_unlock(&null->sim.lock);
    if (handle == OBJECTS)
        return WEFT_ELIMIT;
    memset(out, 0, sizeof *out);
    out->file = st.st_ino;
    out->driver = WF_HCA_DRIVER_NULL;
    out->pd = handle;
    out->flags = (uint8_t)((pd->hca->caps.on_demand ? WF_HCA_SHARE_ON_DEMAND : 0) |
                           (pd->hca->caps.dmabuf ? WF_HCA_SHARE_DMABUF : 0));
    strcpy(out->name, pd->hca->name);
    *fd = null->objects_fd;
    return WEFT_OK;
}

/* ---- adopting ---- */

/* Maps the table of the memfd. Returns NULL, or the reason of a failure. */
static const char *objects_map(const struct wf_hca_share *share, int fd, struct null_objects **out)
{
    const char *wrong = wf_hca_share_wrong(share);
    void *base;
    struct stat st;
    if (wrong)
        return wrong;
    if (share->driver != WF_HCA_DRIVER_NULL || share->payload)
        return "its driver is not that of null NICs";
    if (fstat(fd, &st) || st.st_ino != share->file)
        return "the descriptor is that of another file";
    if (wf_shared_map(fd, sizeof **out, 1, &base) != WEFT_OK)
        return "the descriptor is not that of a null NIC";
    *out = base;
    if ((*out)->magic == MAGIC)
        return NULL;
    munmap(base, sizeof **out);
    return "the memory is not that of a null NIC";
}

static enum weft_status null_adopt(const struct wf_hca_share *share, int fd,
                                   struct wf_hca_registrar **out)
{
    struct null_registrar *r = calloc(1, sizeof *r);
    const char *wrong;
    if (!r)
        return WEFT_ENOMEM;
    wrong = objects_map(share, fd, &r->objects);
    if (wrong) {
        wf_warn("the description of a shared null NIC is refused: %s", wrong);
        free(r);
        return WEFT_EINVAL;
    }
    r->base = (struct wf_hca_registrar){.ops = &wf_hca_share_null, .share = *share, .fd = fd};
    *out = &r->base;
    return WEFT_OK;
}

static void null_close(struct wf_hca_registrar *r)
{
    munmap(objects_of(r), sizeof *objects_of(r));
    close(r->fd);
    free(r);
}

/* ---- registering ---- */

static enum weft_status registration_make(struct wf_hca_registrar *r, uint64_t offset, size_t len,
                                          uint64_t at, struct wf_hca_registration *out)
{
    struct null_objects *o = objects_of(r);
    enum weft_status status = WEFT_EINVAL;
    uint32_t handle = OBJECTS, key = 0;
    if (!wf_hca_range_fits(offset, len, at))
        return WEFT_EINVAL;
    objects_lock(o);
    if (r->share.pd < OBJECTS && o->of[r->share.pd].kind == DOMAIN) {
        handle = object_make(o, REGISTRATION, at, len);
        status = handle < OBJECTS ? WEFT_OK : WEFT_ELIMIT;
        key = o->next_key;
    }
    objects_unlock(o);
    if (status != WEFT_OK)
        return status;
    WF_HOOK("registered in a shared domain");
    *out = (struct wf_hca_registration){handle, key, key, at, len};
    return WEFT_OK;
}

static enum weft_status null_reg(struct wf_hca_registrar *r, void *addr, size_t len, uint64_t at,
                                 unsigned access, struct wf_hca_registration *out)
{
    if (access & WF_HCA_ON_DEMAND && !(r->share.flags & WF_HCA_SHARE_ON_DEMAND))
        return WEFT_EUNREACH;
    return registration_make(r, (uintptr_t)addr, len, at, out);
}

/* Accepts any descriptor as a dma-buf. */
static enum weft_status null_reg_dmabuf(struct wf_hca_registrar *r, int fd, uint64_t offset,
                                        size_t len, uint64_t at, unsigned access,
                                        struct wf_hca_registration *out)
{
    (void)access;
    if (!(r->share.flags & WF_HCA_SHARE_DMABUF))
        return WEFT_EUNREACH;
    return fd < 0 ? WEFT_EINVAL : registration_make(r, offset, len, at, out);
}

/* ---- the registrations of the context ---- */

static enum weft_status null_find(struct wf_hca_registrar *r, uint32_t handle,
                                  struct wf_hca_registration *out)
{
    struct null_objects *o = objects_of(r);
    const struct object *found;
    objects_lock(o);
    found = registration_at(o, handle);
    if (found)
        *out = (struct wf_hca_registration){handle, found->key, found->key, found->at, found->len};
    objects_unlock(o);
    return found ? WEFT_OK : WEFT_EKEY;
}

static int null_list(struct wf_hca_registrar *r, uint32_t *handles, unsigned room)
{
    struct null_objects *o = objects_of(r);
    unsigned n = 0;
    objects_lock(o);
    for (uint32_t handle = 0; handle < OBJECTS && n < room; handle++)
        if (registration_at(o, handle))
            handles[n++] = handle;
    objects_unlock(o);
    return (int)n;
}

static enum weft_status null_drop(struct wf_hca_registrar *r, uint32_t handle)
{
    struct null_objects *o = objects_of(r);
    struct object *found;
    objects_lock(o);
    found = registration_at(o, handle);
    if (found)
        found->kind = FREE;
    objects_unlock(o);
    return found ? WEFT_OK : WEFT_EKEY;
}

const struct wf_hca_share_ops wf_hca_share_null = {
    .describe = null_describe,
    .adopt = null_adopt,
    .close = null_close,
    .reg = null_reg,
    .reg_dmabuf = null_reg_dmabuf,
    .find = null_find,
    .list = null_list,
    .drop = null_drop,
};
