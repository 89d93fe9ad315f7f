/* SPDX-License-Identifier: BSD-3-Clause */
/* hca_uverbs.c over a simulated kernel: requests for each driver, missing features, and requests
 * refused before they are sent. The descriptor is that of /dev/null. */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "transport/rdma/hca_share.h"
#include "transport/rdma/hca_verbs.h"
#include "unit.h"

#define PAGE 4096u

/* ---- the kernel ---- */

static struct kernel {
    uint32_t driver;
    const char *link; /* of the device in /sys/dev/char; NULL: there is none */
    bool no_sysfs, no_query_mr, no_optional, forks_break;
    bool has_mr; /* the handles are those of registrations */
    int refuses; /* errno for requests that register */
    unsigned calls;
    /* the last request that registered or ended a registration */
    unsigned nattrs;
    struct ib_uverbs_attr attrs[16];
    struct ib_uverbs_reg_mr reg;
} kernel;

int __wrap_ioctl(int fd, unsigned long request, ...);
ssize_t __wrap_readlink(const char *path, char *out, size_t len);
int __wrap_access(const char *path, int mode);
enum ibv_fork_status __wrap_ibv_is_fork_initialized(void);

/* The attribute of the request with [id], or NULL. */
static struct ib_uverbs_attr *attr_of(struct ib_uverbs_ioctl_hdr *hdr, unsigned id)
{
    for (unsigned i = 0; i < hdr->num_attrs; i++)
        if (hdr->attrs[i].attr_id == id)
            return &hdr->attrs[i];
    return NULL;
}

static struct ib_uverbs_attr *last(unsigned id)
{
    for (unsigned i = 0; i < kernel.nattrs; i++)
        if (kernel.attrs[i].attr_id == id)
            return &kernel.attrs[i];
    return NULL;
}

/* Writes the output that an attribute points to. */
static void answer(struct ib_uverbs_ioctl_hdr *hdr, unsigned id, const void *bytes, size_t len)
{
    struct ib_uverbs_attr *a = attr_of(hdr, id);
    assert_non_null(a);
    assert_true(a->len >= len);
    memcpy((void *)(uintptr_t)a->data, bytes, len);
}

static int registered(struct ib_uverbs_ioctl_hdr *hdr)
{
    const struct ib_uverbs_reg_mr_resp made = {.mr_handle = 70, .lkey = 71, .rkey = 72};
    const struct ib_uverbs_attr *in = attr_of(hdr, UVERBS_ATTR_CORE_IN);
    assert_int_equal(in->len, sizeof kernel.reg);
    memcpy(&kernel.reg, (const void *)(uintptr_t)in->data, sizeof kernel.reg);
    if (!kernel.refuses)
        answer(hdr, UVERBS_ATTR_CORE_OUT, &made, sizeof made);
    return kernel.refuses;
}

static int registered_dmabuf(struct ib_uverbs_ioctl_hdr *hdr)
{
    const uint32_t lkey = 81, rkey = 82;
    if (kernel.refuses)
        return kernel.refuses;
    attr_of(hdr, UVERBS_ATTR_REG_DMABUF_MR_HANDLE)->data = 80;
    answer(hdr, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, &lkey, sizeof lkey);
    answer(hdr, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, &rkey, sizeof rkey);
    return 0;
}

static int core_support(struct ib_uverbs_ioctl_hdr *hdr)
{
    const uint64_t support = IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS;
    if (kernel.no_optional)
        return EPROTONOSUPPORT;
    answer(hdr, UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, &support, sizeof support);
    return 0;
}

static int request_take(struct ib_uverbs_ioctl_hdr *hdr)
{
    unsigned call = hdr->object_id << 16 | hdr->method_id;
    assert_int_equal(hdr->length, sizeof *hdr + hdr->num_attrs * sizeof hdr->attrs[0]);
    for (unsigned i = 0; i < hdr->num_attrs; i++)
        assert_int_equal(hdr->attrs[i].flags, UVERBS_ATTR_F_MANDATORY);
    if (hdr->driver_id != kernel.driver)
        return EINVAL;
    if (call == (UVERBS_OBJECT_MR << 16 | UVERBS_METHOD_QUERY_MR))
        return kernel.no_query_mr ? EPROTONOSUPPORT : kernel.has_mr ? 0 : ENOENT;
    if (call == (UVERBS_OBJECT_DEVICE << 16 | UVERBS_METHOD_QUERY_CONTEXT))
        return core_support(hdr);
    if (call == (UVERBS_OBJECT_DEVICE << 16 | UVERBS_METHOD_INFO_HANDLES))
        return EPROTONOSUPPORT;
    kernel.nattrs = hdr->num_attrs;
    memcpy(kernel.attrs, hdr->attrs, hdr->num_attrs * sizeof hdr->attrs[0]);
    if (call == (UVERBS_OBJECT_MR << 16 | UVERBS_METHOD_REG_DMABUF_MR))
        return registered_dmabuf(hdr);
    if (call == (UVERBS_OBJECT_DEVICE << 16 | UVERBS_METHOD_INVOKE_WRITE))
        return registered(hdr);
    assert_int_equal(call, UVERBS_OBJECT_MR << 16 | UVERBS_METHOD_MR_DESTROY);
    return kernel.refuses;
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    int err;
    (void)fd;
    kernel.calls++;
    assert_int_equal(request, RDMA_VERBS_IOCTL);
    va_start(args, request);
    err = request_take(va_arg(args, struct ib_uverbs_ioctl_hdr *));
    va_end(args);
    errno = err;
    return err ? -1 : 0;
}

ssize_t __wrap_readlink(const char *path, char *out, size_t len)
{
    assert_string_equal(path, "/sys/dev/char/1:3");
    if (!kernel.link) {
        errno = ENOENT;
        return -1;
    }
    assert_true(strlen(kernel.link) <= len);
    memcpy(out, kernel.link, strlen(kernel.link));
    return (ssize_t)strlen(kernel.link);
}

int __wrap_access(const char *path, int mode)
{
    (void)path;
    (void)mode;
    return kernel.no_sysfs ? -1 : 0;
}

enum ibv_fork_status __wrap_ibv_is_fork_initialized(void)
{
    return kernel.forks_break ? IBV_FORK_ENABLED : IBV_FORK_UNNEEDED;
}

/* ---- a device of a driver, and its registrar ---- */

#define UVERBS "../../devices/pci0000:00/0000:00:01.0/infiniband_verbs/uverbs0"

static struct world {
    struct ibv_context context;
    struct ibv_pd ibv_pd;
    struct verbs_hca hca;
    struct verbs_pd pd;
    int fd;
} world;

static void kernel_begin(uint32_t driver)
{
    kernel = (struct kernel){.driver = driver, .link = UVERBS};
}

static int world_open(void **state)
{
    (void)state;
    world.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    world.context.cmd_fd = world.fd;
    world.hca.context = &world.context;
    strcpy(world.hca.base.name, "test_0");
    world.hca.base.caps.on_demand = world.hca.base.caps.dmabuf = true;
    world.ibv_pd.handle = 5;
    world.pd.pd = &world.ibv_pd;
    world.pd.base.hca = &world.hca.base;
    return world.fd < 0;
}

static int world_close(void **state)
{
    (void)state;
    return close(world.fd);
}

static enum weft_status describe(struct wf_hca_share *out)
{
    int fd = -1;
    enum weft_status status = wf_hca_share_uverbs.describe(&world.pd.base, out, &fd);
    assert_int_equal(fd, status == WEFT_OK ? world.fd : -1);
    return status;
}

static struct wf_hca_registrar *adopted(void)
{
    struct wf_hca_registrar *r = NULL;
    struct wf_hca_share share;
    OK(describe(&share));
    OK(wf_hca_adopt(&share, wf_fd_dup(world.fd), &r));
    return r;
}

/* ---- what is sent ---- */

static void test_describe(void **state)
{
    struct wf_hca_share share;
    struct stat st;
    (void)state;
    assert_int_equal(fstat(world.fd, &st), 0);
    kernel_begin(RDMA_DRIVER_MLX5);
    OK(describe(&share));
    assert_int_equal(share.driver, RDMA_DRIVER_MLX5);
    assert_int_equal(share.pd, 5);
    assert_int_equal(share.payload, WF_HCA_PAYLOAD_NONE);
    assert_int_equal(share.flags, WF_HCA_SHARE_ON_DEMAND | WF_HCA_SHARE_DMABUF);
    assert_int_equal(share.file, st.st_rdev);
    assert_string_equal(share.name, "test_0");
    kernel_begin(RDMA_DRIVER_IRDMA);
    OK(describe(&share));
    assert_int_equal(share.payload, WF_HCA_PAYLOAD_IRDMA);
    kernel_begin(RDMA_DRIVER_SIW);
    assert_int_equal(describe(&share), WEFT_EUNREACH);
    kernel_begin(RDMA_DRIVER_MLX5);
    kernel.no_query_mr = true;
    assert_int_equal(describe(&share), WEFT_EUNREACH);
}

static void test_register(void **state)
{
    const unsigned access = WF_HCA_LOCAL_WRITE | WF_HCA_REMOTE_READ | WF_HCA_RELAXED;
    struct wf_hca_registration out;
    struct wf_hca_registrar *r;
    (void)state;
    kernel_begin(RDMA_DRIVER_MLX5);
    r = adopted();
    OK(r->ops->reg(r, (void *)(PAGE * 3 + 8), 100, PAGE * 7 + 8, access, &out));
    assert_int_equal(kernel.reg.start, PAGE * 3 + 8);
    assert_int_equal(kernel.reg.length, 100);
    assert_int_equal(kernel.reg.hca_va, PAGE * 7 + 8);
    assert_int_equal(kernel.reg.pd_handle, 5);
    assert_int_equal(kernel.reg.access_flags,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING);
    assert_int_equal(last(UVERBS_ATTR_WRITE_CMD)->data, IB_USER_VERBS_CMD_REG_MR);
    assert_int_equal(last(UVERBS_ATTR_WRITE_CMD)->len, 8);
    assert_null(last(UVERBS_ATTR_UHW_IN));
    assert_int_equal(out.handle, 70);
    assert_int_equal(out.lkey, 71);
    assert_int_equal(out.rkey, 72);
    assert_int_equal(out.at, PAGE * 7 + 8);
    assert_int_equal(out.len, 100);
    assert_int_equal(r->ops->list(r, &out.handle, 1), -1);
    OK(r->ops->drop(r, 70));
    assert_int_equal(last(UVERBS_ATTR_DESTROY_MR_HANDLE)->data, 70);
    r->ops->close(r);
}

/* irdma reads 8 bytes, all 0, which stand in the attribute itself. */
static void test_payload(void **state)
{
    struct wf_hca_registration out;
    struct wf_hca_registrar *r;
    (void)state;
    kernel_begin(RDMA_DRIVER_IRDMA);
    r = adopted();
    OK(r->ops->reg(r, (void *)(uintptr_t)PAGE, PAGE, 0, 0, &out));
    assert_non_null(last(UVERBS_ATTR_UHW_IN));
    assert_int_equal(last(UVERBS_ATTR_UHW_IN)->len, 8);
    assert_int_equal(last(UVERBS_ATTR_UHW_IN)->data, 0);
    assert_null(last(UVERBS_ATTR_UHW_OUT));
    r->ops->close(r);
}

static void test_dmabuf(void **state)
{
    struct wf_hca_registration out;
    struct wf_hca_registrar *r;
    (void)state;
    kernel_begin(RDMA_DRIVER_MLX5);
    r = adopted();
    OK(r->ops->reg_dmabuf(r, 9, PAGE + 16, 200, 16, WF_HCA_REMOTE_WRITE, &out));
    assert_int_equal(last(UVERBS_ATTR_REG_DMABUF_MR_FD)->data_s64, 9);
    assert_int_equal(last(UVERBS_ATTR_REG_DMABUF_MR_FD)->len, 0);
    assert_int_equal(last(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE)->data, 5);
    assert_int_equal(last(UVERBS_ATTR_REG_DMABUF_MR_OFFSET)->data, PAGE + 16);
    assert_int_equal(last(UVERBS_ATTR_REG_DMABUF_MR_LENGTH)->data, 200);
    assert_int_equal(last(UVERBS_ATTR_REG_DMABUF_MR_IOVA)->data, 16);
    assert_int_equal(last(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS)->data, IBV_ACCESS_REMOTE_WRITE);
    assert_int_equal(out.handle, 80);
    assert_int_equal(out.lkey, 81);
    assert_int_equal(out.rkey, 82);
    assert_int_equal(out.at, 16);
    assert_int_equal(out.len, 200);
    r->ops->close(r);
}

/* A kernel without the bits that drivers may ignore refuses them, so they are left out. */
static void test_optional_access(void **state)
{
    struct wf_hca_registration out;
    struct wf_hca_registrar *r;
    (void)state;
    kernel_begin(RDMA_DRIVER_MLX5);
    kernel.no_optional = true;
    r = adopted();
    OK(r->ops->reg(r, (void *)(uintptr_t)PAGE, PAGE, 0, WF_HCA_LOCAL_WRITE | WF_HCA_RELAXED, &out));
    assert_int_equal(kernel.reg.access_flags, IBV_ACCESS_LOCAL_WRITE);
    r->ops->close(r);
}

static void test_statuses(void **state)
{
    static const struct {
        int err;
        enum weft_status reg, drop;
    } rows[] = {{ENOMEM, WEFT_ELIMIT, WEFT_ELIMIT},
                {EFAULT, WEFT_EFAULT, WEFT_EFAULT},
                {EINVAL, WEFT_EINVAL, WEFT_EKEY},
                {ENOENT, WEFT_ESYSTEM, WEFT_EKEY},
                {EIO, WEFT_ESYSTEM, WEFT_ESYSTEM}};
    struct wf_hca_registration out = {.handle = 1};
    struct wf_hca_registrar *r;
    (void)state;
    kernel_begin(RDMA_DRIVER_RXE);
    r = adopted();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kernel.refuses = rows[i].err;
        assert_int_equal(r->ops->reg(r, NULL, PAGE, 0, 0, &out), rows[i].reg);
        assert_int_equal(r->ops->drop(r, 3), rows[i].drop);
    }
    assert_int_equal(out.handle, 1); /* set only on success */
    kernel.has_mr = true; /* the driver refuses with the kernel's errno for a wrong handle */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kernel.refuses = rows[i].err;
        assert_int_equal(r->ops->drop(r, 3),
                         rows[i].drop == WEFT_EKEY ? WEFT_ESYSTEM : rows[i].drop);
    }
    kernel.has_mr = false;
    kernel.refuses = EOPNOTSUPP;
    assert_int_equal(r->ops->reg_dmabuf(r, 9, 0, PAGE, 0, 0, &out), WEFT_EUNREACH);
    assert_int_equal(r->ops->find(r, 3, &out), WEFT_EKEY);
    r->ops->close(r);
}

/* ---- what is refused ---- */

static void assert_adopt(const struct wf_hca_share *share, enum weft_status wanted, unsigned calls)
{
    struct wf_hca_registrar *r = NULL;
    int open = test_open_files();
    kernel.calls = 0;
    assert_int_equal(wf_hca_adopt(share, world.fd, &r), wanted);
    assert_null(r);
    assert_int_equal(kernel.calls, calls);
    assert_int_equal(test_open_files(), open);
}

static void test_wrong_class(void **state)
{
    static const char *const links[] = {
        "../../devices/virtual/mem/null",
        "../../devices/virtual/infiniband_mad/umad0",
        "../../devices/pci0000:00/0000:00:01.0/infiniband_verbs/uverbs0/more",
        "",
        NULL,
    };
    struct wf_hca_share share;
    (void)state;
    kernel_begin(RDMA_DRIVER_RXE);
    OK(describe(&share));
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        kernel.link = links[i];
        assert_adopt(&share, WEFT_EINVAL, 0);
    }
    kernel.no_sysfs = true;
    assert_adopt(&share, WEFT_EINVAL, 0);
}

static void test_wrong_device(void **state)
{
    struct wf_hca_share share;
    (void)state;
    kernel_begin(RDMA_DRIVER_RXE);
    OK(describe(&share));
    share.file++;
    assert_adopt(&share, WEFT_EINVAL, 0);
    share.file--;
    share.payload = WF_HCA_PAYLOAD_IRDMA;
    assert_adopt(&share, WEFT_EINVAL, 0);
    share.payload = WF_HCA_PAYLOAD_NONE;
    kernel.driver = RDMA_DRIVER_MLX4;
    assert_adopt(&share, WEFT_EINVAL, 1);
}

static void test_old_kernel(void **state)
{
    struct wf_hca_share share;
    (void)state;
    kernel_begin(RDMA_DRIVER_RXE);
    OK(describe(&share));
    kernel.no_query_mr = true;
    assert_adopt(&share, WEFT_EUNREACH, 1);
    kernel.no_query_mr = false;
    kernel.forks_break = true;
    assert_adopt(&share, WEFT_EUNREACH, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_describe),        cmocka_unit_test(test_register),
        cmocka_unit_test(test_payload),         cmocka_unit_test(test_dmabuf),
        cmocka_unit_test(test_optional_access), cmocka_unit_test(test_statuses),
        cmocka_unit_test(test_wrong_class),     cmocka_unit_test(test_wrong_device),
        cmocka_unit_test(test_old_kernel),
    };
    return cmocka_run_group_tests(tests, world_open, world_close);
}
