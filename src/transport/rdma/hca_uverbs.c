/* SPDX-License-Identifier: BSD-3-Clause */
/* hca_share.h over the kernel's uverbs interface. A registrar issues the same ioctls as libibverbs
 * does, on the command descriptor of a context that another process opened. The kernel does not
 * compare the caller of an ioctl with the process that opened the file (for write it does). So a
 * registrar registers and deregisters, and does nothing for which a provider uses write. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/hook.h"
#include "base/log.h"
#include "base/util.h"
#include "transport/rdma/hca_share.h"
#include "transport/rdma/hca_verbs.h"

/* The drivers with reliable connections, and what each requires to register memory. Read from the
 * drivers of Linux 6.1 to 6.12 and their providers in rdma-core 44. A driver that is not in the
 * table may require something else, so its domains are not shared. */
static const struct {
    uint32_t id;
    uint8_t payload;
} drivers[] = {
    {RDMA_DRIVER_MLX5, WF_HCA_PAYLOAD_NONE},   {RDMA_DRIVER_MLX4, WF_HCA_PAYLOAD_NONE},
    {RDMA_DRIVER_RXE, WF_HCA_PAYLOAD_NONE},    {RDMA_DRIVER_HNS, WF_HCA_PAYLOAD_NONE},
    {RDMA_DRIVER_HFI1, WF_HCA_PAYLOAD_NONE},   {RDMA_DRIVER_BNXT_RE, WF_HCA_PAYLOAD_NONE},
    {RDMA_DRIVER_QEDR, WF_HCA_PAYLOAD_NONE},   {RDMA_DRIVER_OCRDMA, WF_HCA_PAYLOAD_NONE},
    {RDMA_DRIVER_IRDMA, WF_HCA_PAYLOAD_IRDMA},
};

/* ---- one ioctl ---- */

#define ATTRS 9 /* most attributes of a request here: those of REG_DMABUF_MR */

/* The header, with room for its attributes behind it. */
union request {
    struct ib_uverbs_ioctl_hdr hdr;
    char room[sizeof(struct ib_uverbs_ioctl_hdr) + ATTRS * sizeof(struct ib_uverbs_attr)];
};

static void request_begin(union request *q, uint32_t driver, uint16_t object, uint16_t method)
{
    memset(q, 0, sizeof *q);
    q->hdr.object_id = object;
    q->hdr.method_id = method;
    q->hdr.driver_id = driver;
}

/* Adds an attribute. The caller sets its data. */
static struct ib_uverbs_attr *attr_add(union request *q, uint16_t id, size_t len)
{
    struct ib_uverbs_attr *a = &q->hdr.attrs[q->hdr.num_attrs++];
    a->attr_id = id;
    a->len = (uint16_t)len;
    a->flags = UVERBS_ATTR_F_MANDATORY;
    return a;
}

/* A number that the kernel reads: it stands in the attribute itself. */
static void in_number(union request *q, uint16_t id, uint64_t value)
{
    attr_add(q, id, sizeof value)->data = value;
}

static void in_handle(union request *q, uint16_t id, uint32_t handle)
{
    attr_add(q, id, 0)->data = handle;
}

/* Bytes that the kernel reads or writes, more than 8 if it reads them. */
static void pointer(union request *q, uint16_t id, const void *bytes, size_t len)
{
    attr_add(q, id, len)->data = (uintptr_t)bytes;
}

/* Returns 0, or the kernel's errno. */
static int request_send(int fd, union request *q)
{
    q->hdr.length = (uint16_t)(sizeof q->hdr + q->hdr.num_attrs * sizeof q->hdr.attrs[0]);
    return ioctl(fd, RDMA_VERBS_IOCTL, &q->hdr) ? errno : 0;
}

static int mr_query(int fd, uint32_t driver, uint32_t handle, struct wf_hca_registration *out)
{
    union request q;
    struct wf_hca_registration found = {.handle = handle};
    int err;
    request_begin(&q, driver, UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR);
    in_handle(&q, UVERBS_ATTR_QUERY_MR_HANDLE, handle);
    pointer(&q, UVERBS_ATTR_QUERY_MR_RESP_LKEY, &found.lkey, sizeof found.lkey);
    pointer(&q, UVERBS_ATTR_QUERY_MR_RESP_RKEY, &found.rkey, sizeof found.rkey);
    pointer(&q, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, &found.len, sizeof found.len);
    pointer(&q, UVERBS_ATTR_QUERY_MR_RESP_IOVA, &found.at, sizeof found.at);
    err = request_send(fd, &q);
    if (!err)
        *out = found;
    return err;
}

/* Returns 0 if [driver] is the driver of the context, EINVAL if another one is, and another errno
 * if the kernel lacks QUERY_MR. The kernel compares the number before anything else. Then it looks
 * for the registration, and finds none (ENOENT), because no context has that many objects. */
static int driver_check(int fd, uint32_t driver)
{
    struct wf_hca_registration none;
    int err = mr_query(fd, driver, INT32_MAX, &none);
    return err == ENOENT ? 0 : err ? err : EINVAL;
}

/* ---- sharing ---- */

#define NEEDS_LINUX "Linux 5.12 or later is needed"

/* Returns the index in [drivers] of the context's driver, or -1 with errno. */
static int driver_of(int fd)
{
    int err = EINVAL;
    for (size_t i = 0; i < WF_ARRAY_LEN(drivers); i++) {
        err = driver_check(fd, drivers[i].id);
        if (!err)
            return (int)i;
        if (err != EINVAL)
            break;
    }
    errno = err;
    return -1;
}

static enum weft_status uverbs_describe(struct wf_hca_pd *pd, struct wf_hca_share *out, int *fd)
{
    int cmd_fd = VERBS(pd->hca, hca)->context->cmd_fd, i = driver_of(cmd_fd);
    struct stat st;
    if (i < 0 || fstat(cmd_fd, &st)) {
        wf_info("%s: other processes cannot register memory in its domain (%s)", pd->hca->name,
                errno == EINVAL ? "what its driver requires is not known" : NEEDS_LINUX);
        return WEFT_EUNREACH;
    }
    memset(out, 0, sizeof *out);
    out->file = st.st_rdev;
    out->driver = drivers[i].id;
    out->pd = VERBS(pd, pd)->pd->handle;
    out->payload = drivers[i].payload;
    out->flags = (uint8_t)((pd->hca->caps.on_demand ? WF_HCA_SHARE_ON_DEMAND : 0) |
                           (pd->hca->caps.dmabuf ? WF_HCA_SHARE_DMABUF : 0));
    strcpy(out->name, pd->hca->name);
    *fd = cmd_fd;
    return WEFT_OK;
}

/* ---- adopting ---- */

struct uverbs_registrar {
    struct wf_hca_registrar base;
    bool optional_access; /* the kernel knows the access bits that drivers may ignore */
};

static struct uverbs_registrar *registrar_of(struct wf_hca_registrar *r)
{
    return (struct uverbs_registrar *)(void *)r;
}

static const char not_rdma[] = "the descriptor is not that of an RDMA device";

/* Returns NULL if a character device is of the class infiniband_verbs, else the reason. The link in
 * /sys is .../infiniband_verbs/uverbsN, also in a container that lacks /dev/infiniband. */
static const char *class_wrong(dev_t device)
{
    static const char class[] = "/infiniband_verbs/uverbs";
    char path[64], link[PATH_MAX];
    const char *at;
    ssize_t n;
    snprintf(path, sizeof path, "/sys/dev/char/%u:%u", major(device), minor(device));
    n = readlink(path, link, sizeof link - 1);
    if (n < 0 && access("/sys/dev/char", F_OK))
        return "/sys/dev/char is missing, by which the descriptor is checked (mount sysfs)";
    link[n < 0 ? 0 : n] = 0;
    at = strstr(link, class);
    return at && !strchr(at + sizeof class - 1, '/') ? NULL : not_rdma;
}

/* Returns NULL, or the reason to refuse the descriptor. Sends nothing to a file that is not a
 * uverbs file. Sets *err to the kernel's errno. */
static const char *descriptor_wrong(const struct wf_hca_share *share, int fd, int *err)
{
    const char *wrong;
    struct stat st;
    *err = EINVAL;
    if (fstat(fd, &st))
        return "the descriptor is not open";
    wrong = S_ISCHR(st.st_mode) ? class_wrong(st.st_rdev) : not_rdma;
    if (wrong)
        return wrong;
    if (st.st_rdev != share->file)
        return "the descriptor is that of another RDMA device";
    *err = driver_check(fd, share->driver);
    if (*err == EINVAL)
        return "the device has another driver";
    return *err ? "the kernel lacks a call: " NEEDS_LINUX : NULL;
}

/* Returns whether pages that are registered stay this process's after a fork without libibverbs's
 * help, which a registrar does not have. */
static bool fork_is_safe(void)
{
    return ibv_is_fork_initialized() == IBV_FORK_UNNEEDED;
}

static bool has_optional_access(int fd, uint32_t driver)
{
    union request q;
    uint64_t support = 0;
    request_begin(&q, driver, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT);
    pointer(&q, UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, &support, sizeof support);
    return !request_send(fd, &q) && support & IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS;
}

static bool knows_driver(const struct wf_hca_share *share)
{
    for (size_t i = 0; i < WF_ARRAY_LEN(drivers); i++)
        if (drivers[i].id == share->driver)
            return drivers[i].payload == share->payload;
    return false;
}

static enum weft_status adopt_check(const struct wf_hca_share *share, int fd)
{
    const char *wrong = wf_hca_share_wrong(share);
    int err = EINVAL;
    if (!wrong && !knows_driver(share))
        wrong = "what its driver requires is not known";
    if (wrong) {
        wf_warn("the description of a shared RDMA device is refused: %s (do all processes of the "
                "job run one build of Weft?)",
                wrong);
        return WEFT_EINVAL;
    }
    wrong = descriptor_wrong(share, fd, &err);
    if (!wrong && !fork_is_safe()) {
        wrong = "the kernel does not copy registered pages at a fork: " NEEDS_LINUX;
        err = EOPNOTSUPP;
    }
    if (wrong)
        wf_warn("memory cannot be registered in the domain of %s: %s", share->name, wrong);
    return !wrong ? WEFT_OK : err == EINVAL ? WEFT_EINVAL : WEFT_EUNREACH;
}

static enum weft_status uverbs_adopt(const struct wf_hca_share *share, int fd,
                                     struct wf_hca_registrar **out)
{
    enum weft_status status = adopt_check(share, fd);
    struct uverbs_registrar *r;
    if (status != WEFT_OK)
        return status;
    r = calloc(1, sizeof *r);
    if (!r)
        return WEFT_ENOMEM;
    r->base = (struct wf_hca_registrar){.ops = &wf_hca_share_uverbs, .share = *share, .fd = fd};
    r->optional_access = has_optional_access(fd, share->driver);
    *out = &r->base;
    return WEFT_OK;
}

static void uverbs_close(struct wf_hca_registrar *r)
{
    close(r->fd);
    free(r);
}

/* ---- registering ---- */

static uint32_t access_bits(struct wf_hca_registrar *r, unsigned access)
{
    uint32_t bits = (uint32_t)wf_verbs_access(access);
    return registrar_of(r)->optional_access ? bits
                                            : bits & ~(uint32_t)IB_UVERBS_ACCESS_OPTIONAL_RANGE;
}

static enum weft_status uverbs_reg(struct wf_hca_registrar *r, void *addr, size_t len, uint64_t at,
                                   unsigned access, struct wf_hca_registration *out)
{
    const struct ib_uverbs_reg_mr in = {.start = (uintptr_t)addr,
                                        .length = len,
                                        .hca_va = at,
                                        .pd_handle = r->share.pd,
                                        .access_flags = access_bits(r, access)};
    struct ib_uverbs_reg_mr_resp made;
    union request q;
    int err;
    if (!wf_hca_range_fits((uintptr_t)addr, len, at))
        return WEFT_EINVAL;
    if (access & WF_HCA_ON_DEMAND && !(r->share.flags & WF_HCA_SHARE_ON_DEMAND))
        return WEFT_EUNREACH;
    request_begin(&q, r->share.driver, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
    pointer(&q, UVERBS_ATTR_CORE_IN, &in, sizeof in);
    pointer(&q, UVERBS_ATTR_CORE_OUT, &made, sizeof made);
    in_number(&q, UVERBS_ATTR_WRITE_CMD, IB_USER_VERBS_CMD_REG_MR);
    if (r->share.payload == WF_HCA_PAYLOAD_IRDMA)
        in_number(&q, UVERBS_ATTR_UHW_IN, 0);
    err = request_send(r->fd, &q);
    if (err)
        return wf_verbs_status(err);
    WF_HOOK("registered in a shared domain");
    *out = (struct wf_hca_registration){made.mr_handle, made.lkey, made.rkey, at, len};
    return WEFT_OK;
}

static enum weft_status uverbs_reg_dmabuf(struct wf_hca_registrar *r, int fd, uint64_t offset,
                                          size_t len, uint64_t at, unsigned access,
                                          struct wf_hca_registration *out)
{
    struct wf_hca_registration made = {.at = at, .len = len};
    struct ib_uverbs_attr *handle;
    union request q;
    int err;
    if (!(r->share.flags & WF_HCA_SHARE_DMABUF))
        return WEFT_EUNREACH;
    if (fd < 0 || !wf_hca_range_fits(offset, len, at))
        return WEFT_EINVAL;
    request_begin(&q, r->share.driver, UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR);
    handle = attr_add(&q, UVERBS_ATTR_REG_DMABUF_MR_HANDLE, 0);
    in_handle(&q, UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, r->share.pd);
    in_number(&q, UVERBS_ATTR_REG_DMABUF_MR_OFFSET, offset);
    in_number(&q, UVERBS_ATTR_REG_DMABUF_MR_LENGTH, len);
    in_number(&q, UVERBS_ATTR_REG_DMABUF_MR_IOVA, at);
    attr_add(&q, UVERBS_ATTR_REG_DMABUF_MR_FD, 0)->data_s64 = fd;
    in_number(&q, UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, access_bits(r, access));
    pointer(&q, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, &made.lkey, sizeof made.lkey);
    pointer(&q, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, &made.rkey, sizeof made.rkey);
    err = request_send(r->fd, &q);
    if (err)
        return wf_verbs_status(err);
    WF_HOOK("registered in a shared domain");
    made.handle = (uint32_t)handle->data;
    *out = made;
    return WEFT_OK;
}

/* ---- the registrations of the context ---- */

/* Converts the errno of a request that names a registration by its handle. A handle of nothing is
 * ENOENT, a handle of another kind of object EINVAL. */
static enum weft_status handle_status(int err)
{
    return err == ENOENT || err == EINVAL ? WEFT_EKEY : wf_verbs_status(err);
}

static enum weft_status uverbs_find(struct wf_hca_registrar *r, uint32_t handle,
                                    struct wf_hca_registration *out)
{
    return handle_status(mr_query(r->fd, r->share.driver, handle, out));
}

static int uverbs_list(struct wf_hca_registrar *r, uint32_t *handles, unsigned room)
{
    union request q;
    uint32_t n = 0;
    room = (unsigned)WF_MIN(room, UINT16_MAX / sizeof *handles);
    request_begin(&q, r->share.driver, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INFO_HANDLES);
    in_number(&q, UVERBS_ATTR_INFO_OBJECT_ID, UVERBS_OBJECT_MR);
    pointer(&q, UVERBS_ATTR_INFO_TOTAL_HANDLES, &n, sizeof n);
    pointer(&q, UVERBS_ATTR_INFO_HANDLES_LIST, handles, room * sizeof *handles);
    return request_send(r->fd, &q) ? -1 : (int)WF_MIN(n, room);
}

/* The kernel returns EINVAL for a handle of another object, and passes on what the driver refuses
 * with: rdma_rxe's EINVAL, if a memory window is bound to the registration. After a refusal the
 * registration still has its handle. */
static enum weft_status uverbs_drop(struct wf_hca_registrar *r, uint32_t handle)
{
    struct wf_hca_registration found;
    union request q;
    int err;
    request_begin(&q, r->share.driver, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY);
    in_handle(&q, UVERBS_ATTR_DESTROY_MR_HANDLE, handle);
    err = request_send(r->fd, &q);
    if ((err == EINVAL || err == ENOENT) && uverbs_find(r, handle, &found) == WEFT_OK)
        return WEFT_ESYSTEM;
    return handle_status(err);
}

const struct wf_hca_share_ops wf_hca_share_uverbs = {
    .describe = uverbs_describe,
    .adopt = uverbs_adopt,
    .close = uverbs_close,
    .reg = uverbs_reg,
    .reg_dmabuf = uverbs_reg_dmabuf,
    .find = uverbs_find,
    .list = uverbs_list,
    .drop = uverbs_drop,
};
