/* SPDX-License-Identifier: BSD-3-Clause */
/* Protection domains that several processes use, on null NICs: each client is a process, and the
 * test's own process is the one that opened the NIC. */
#define _GNU_SOURCE
#include "unit/share.h"

#include <fcntl.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/hook.h"
#include "unit.h"

#define PAGE 4096u
#define ALL 64u /* more handles than a test makes */

static _Alignas(PAGE) char memory[4 * PAGE];

/* ---- the process that opened the NIC ---- */

struct world {
    struct wf_hca *hca;
    struct wf_hca_pd *pd;
    struct wf_hca_share share;
    int fd; /* the NIC's */
    struct wf_hca_registrar *own;
};

static void world_open(struct world *w, const char *nic)
{
    const struct wf_hca_config config = {.gid_index = -1, .blueflame = true};
    OK(wf_hca_null.open(nic, &config, &w->hca));
    OK(w->hca->ops->pd_open(w->hca, &w->pd));
    OK(w->hca->ops->share->describe(w->pd, &w->share, &w->fd));
    OK(wf_hca_adopt(&w->share, wf_fd_dup(w->fd), &w->own));
}

static void world_close(struct world *w)
{
    w->own->ops->close(w->own);
    w->hca->ops->pd_close(w->pd);
    w->hca->ops->close(w->hca);
}

static unsigned listed(struct world *w)
{
    uint32_t handles[ALL];
    return (unsigned)w->own->ops->list(w->own, handles, ALL);
}

static void client_start(struct world *w, struct share_process *p, int (*run)(int, unsigned),
                         unsigned n)
{
    fflush(stdout);
    assert_true(share_start(p, run, n));
    assert_true(share_send(p->sock, &w->share, sizeof w->share, w->fd));
}

static void assert_same(const struct wf_hca_registration *a, const struct wf_hca_registration *b)
{
    assert_int_equal(a->handle, b->handle);
    assert_int_equal(a->lkey, b->lkey);
    assert_int_equal(a->rkey, b->rkey);
    assert_int_equal(a->at, b->at);
    assert_int_equal(a->len, b->len);
}

/* ---- one process ---- */

/* A domain described twice is one domain. Handles come lowest first, and come again. */
static void test_handles(void **state)
{
    struct wf_hca_registration a, b, c, found;
    struct wf_hca_share again;
    struct world w;
    int fd;
    (void)state;
    world_open(&w, "null0");
    OK(w.hca->ops->share->describe(w.pd, &again, &fd));
    assert_memory_equal(&again, &w.share, sizeof again);
    assert_int_equal(fd, w.fd);
    OK(w.own->ops->reg(w.own, memory, PAGE, 1u << 20, 0, &a));
    OK(w.own->ops->reg(w.own, memory + 1, PAGE, (1u << 21) + 1, 0, &b));
    assert_int_equal(b.handle, a.handle + 1);
    assert_true(a.rkey != b.rkey);
    OK(w.own->ops->find(w.own, b.handle, &found));
    assert_same(&found, &b);
    assert_int_equal(listed(&w), 2);
    OK(w.own->ops->drop(w.own, a.handle));
    assert_int_equal(w.own->ops->find(w.own, a.handle, &found), WEFT_EKEY);
    assert_int_equal(w.own->ops->drop(w.own, a.handle), WEFT_EKEY);
    OK(w.own->ops->reg(w.own, memory, PAGE, 1u << 20, 0, &c));
    assert_int_equal(c.handle, a.handle);
    assert_true(c.rkey != a.rkey);
    /* The domain's own handle, the one above the last, and an invalid one. */
    assert_int_equal(w.own->ops->find(w.own, w.share.pd, &found), WEFT_EKEY);
    assert_int_equal(w.own->ops->drop(w.own, w.share.pd), WEFT_EKEY);
    assert_int_equal(w.own->ops->find(w.own, b.handle + 1, &found), WEFT_EKEY);
    assert_int_equal(w.own->ops->find(w.own, UINT32_MAX, &found), WEFT_EKEY);
    world_close(&w);
}

static void test_refused_ranges(void **state)
{
    static const struct {
        uint64_t at;
        size_t len;
    } wrong[] = {{PAGE, 0}, {PAGE + 1, PAGE}, {-(uint64_t)PAGE, 2 * PAGE}, {-(uint64_t)PAGE, PAGE}};
    struct wf_hca_registration r;
    struct world w;
    (void)state;
    world_open(&w, "null0");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(
            w.own->ops->reg(w.own, memory, wrong[i].len, wrong[i].at, WF_HCA_LOCAL_WRITE, &r),
            WEFT_EINVAL);
    assert_int_equal(w.own->ops->reg(w.own, memory, PAGE, PAGE, WF_HCA_ON_DEMAND, &r),
                     WEFT_EUNREACH);
    assert_int_equal(w.own->ops->reg_dmabuf(w.own, 0, 0, PAGE, PAGE, 0, &r), WEFT_EUNREACH);
    OK(w.own->ops->reg(w.own, memory, PAGE, -(uint64_t)(2 * PAGE), 0, &r));
    assert_int_equal(listed(&w), 1);
    world_close(&w);
    world_open(&w, "null1");
    OK(w.own->ops->reg(w.own, memory, PAGE, PAGE, WF_HCA_ON_DEMAND, &r));
    OK(w.own->ops->reg_dmabuf(w.own, 0, PAGE + 8, PAGE, 8, 0, &r));
    assert_int_equal(w.own->ops->reg_dmabuf(w.own, 0, PAGE + 8, PAGE, 16, 0, &r), WEFT_EINVAL);
    assert_int_equal(w.own->ops->reg_dmabuf(w.own, -1, 0, PAGE, 0, 0, &r), WEFT_EINVAL);
    world_close(&w);
}

static void test_full(void **state)
{
    struct wf_hca_registration r;
    enum weft_status status;
    struct world w;
    unsigned n = 0;
    (void)state;
    world_open(&w, "null0");
    while ((status = w.own->ops->reg(w.own, memory, PAGE, (uint64_t)n * PAGE, 0, &r)) == WEFT_OK)
        n++;
    assert_int_equal(status, WEFT_ELIMIT);
    assert_int_equal(listed(&w), ALL); /* there are more than fit */
    assert_int_equal(wf_hca_drop_within(w.own, 0, (uint64_t)n * PAGE, 0), n);
    assert_int_equal(listed(&w), 0);
    world_close(&w);
}

/* ---- clients ---- */

static enum weft_status client_reg(struct wf_hca_registrar *r, unsigned n, unsigned i,
                                   struct wf_hca_registration *out)
{
    return r->ops->reg(r, memory, PAGE, share_window(n) + i * PAGE, WF_HCA_LOCAL_WRITE, out);
}

/* Registers memory, and deregisters it after the parent's check. */
static int client_honest(int sock, unsigned n)
{
    struct wf_hca_registration reg;
    struct wf_hca_registrar *r = share_adopt(sock);
    char go;
    if (!r || client_reg(r, n, 0, &reg) != WEFT_OK || !share_send(sock, &reg, sizeof reg, -1) ||
        !share_recv(sock, &go, 1, NULL))
        return 1;
    if (r->ops->drop(r, reg.handle) != WEFT_OK || !share_send(sock, &go, 1, -1))
        return 2;
    r->ops->close(r);
    return 0;
}

static void test_client(void **state)
{
    struct wf_hca_registration sent, found;
    struct share_process p;
    struct world w;
    char go = 0;
    (void)state;
    world_open(&w, "null0");
    client_start(&w, &p, client_honest, 0);
    assert_true(share_recv(p.sock, &sent, sizeof sent, NULL));
    OK(w.own->ops->find(w.own, sent.handle, &found));
    assert_same(&found, &sent);
    assert_int_equal(found.at, share_window(0));
    assert_true(share_send(p.sock, &go, 1, -1) && share_recv(p.sock, &go, 1, NULL));
    assert_int_equal(w.own->ops->find(w.own, sent.handle, &found), WEFT_EKEY);
    assert_int_equal(share_wait(&p), 0);
    world_close(&w);
}

#ifdef WF_HOOKS
static const char *kill_at; /* the hook's label */

static int at_hook(const char *label)
{
    if (!strcmp(label, kill_at))
        (void)kill(getpid(), SIGKILL);
    return 0;
}
#endif

/* Registers three, and is killed before it knows the third. */
static int client_killed(int sock, unsigned n)
{
    struct wf_hca_registration reg;
    struct wf_hca_registrar *r = share_adopt(sock);
    if (!r || client_reg(r, n, 0, &reg) != WEFT_OK || client_reg(r, n, 1, &reg) != WEFT_OK)
        return 1;
#ifdef WF_HOOKS
    kill_at = "registered in a shared domain";
    weft_test_hook = at_hook;
#endif
    (void)client_reg(r, n, 2, &reg);
    (void)kill(getpid(), SIGKILL);
    return 2;
}

/* A killed client's registrations are found by its address, and freed. Other clients' stay. */
static void test_killed(void **state)
{
    struct wf_hca_registration other, found;
    struct share_process killed, honest;
    struct world w;
    char go = 0;
    (void)state;
    world_open(&w, "null0");
    client_start(&w, &honest, client_honest, 1);
    assert_true(share_recv(honest.sock, &other, sizeof other, NULL));
    client_start(&w, &killed, client_killed, 2);
    assert_int_equal(share_wait(&killed), SHARE_KILLED);
    assert_int_equal(listed(&w), 4);
    assert_int_equal(wf_hca_drop_within(w.own, share_window(2), SHARE_WINDOW, ALL), 3);
    assert_int_equal(wf_hca_drop_within(w.own, share_window(2), SHARE_WINDOW, ALL), 0);
    OK(w.own->ops->find(w.own, other.handle, &found));
    assert_same(&found, &other);
    assert_true(share_send(honest.sock, &go, 1, -1) && share_recv(honest.sock, &go, 1, NULL));
    assert_int_equal(share_wait(&honest), 0);
    assert_int_equal(listed(&w), 0);
    world_close(&w);
}

#ifdef WF_HOOKS
/* Registers one, and is killed within the null NIC's lock while it registers another. */
static int client_killed_in_lock(int sock, unsigned n)
{
    struct wf_hca_registration reg;
    struct wf_hca_registrar *r = share_adopt(sock);
    if (!r || client_reg(r, n, 0, &reg) != WEFT_OK)
        return 1;
    kill_at = "within the lock of shared objects";
    weft_test_hook = at_hook;
    return (int)client_reg(r, n, 1, &reg);
}

/* The lock is recovered each time, and the second registration was not made. */
static void test_killed_in_lock(void **state)
{
    struct share_process p;
    struct world w;
    (void)state;
    world_open(&w, "null0");
    for (unsigned i = 0; i < 3; i++) {
        client_start(&w, &p, client_killed_in_lock, i);
        assert_int_equal(share_wait(&p), SHARE_KILLED);
        assert_int_equal(listed(&w), 1);
        assert_int_equal(wf_hca_drop_within(w.own, share_window(i), SHARE_WINDOW, ALL), 1);
    }
    world_close(&w);
}
#endif

static _Atomic uint32_t *steps; /* of client_busy: shared memory */

static int client_busy(int sock, unsigned n)
{
    struct wf_hca_registration reg[8];
    struct wf_hca_registrar *r = share_adopt(sock);
    for (uint32_t i = 0; r; i++) {
        unsigned k = i % 8;
        if (i >= 8 && r->ops->drop(r, reg[k].handle) != WEFT_OK)
            return 1;
        if (client_reg(r, n, k, &reg[k]) != WEFT_OK)
            return 2;
        atomic_fetch_add(steps, 1);
    }
    return 3;
}

/* A client killed at any point leaves a table that others can use. */
static void test_killed_anywhere(void **state)
{
    uint64_t rand = test_seed(), end;
    struct share_process p;
    struct world w;
    (void)state;
    steps = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(steps != MAP_FAILED);
    world_open(&w, "null0");
    for (unsigned i = 0; i < 40; i++) {
        uint32_t until = 8 + (uint32_t)(test_rand(&rand) % 500);
        atomic_store(steps, 0);
        client_start(&w, &p, client_busy, i);
        for (end = test_now_ns() + TEST_LIMIT_NS; atomic_load(steps) < until;)
            assert_true(test_now_ns() < end);
        assert_int_equal(kill(p.pid, SIGKILL), 0);
        assert_int_equal(share_wait(&p), SHARE_KILLED);
        assert_in_range(listed(&w), 7, 8);
        assert_in_range(wf_hca_drop_within(w.own, share_window(i), SHARE_WINDOW, ALL), 7, 8);
        assert_int_equal(listed(&w), 0);
    }
    world_close(&w);
    munmap((void *)steps, PAGE);
}

/* ---- which registrations go ---- */

static int list_nothing(struct wf_hca_registrar *r, uint32_t *handles, unsigned room)
{
    (void)r;
    (void)handles;
    (void)room;
    return -1;
}

static int list_full(struct wf_hca_registrar *r, uint32_t *handles, unsigned room)
{
    memset(handles, 0, room * sizeof *handles);
    (void)r;
    return (int)room;
}

static unsigned drop_window_1(struct world *w, uint32_t end)
{
    return wf_hca_drop_within(w->own, share_window(1), SHARE_WINDOW, end);
}

static unsigned looks;

static enum weft_status find_counted(struct wf_hca_registrar *r, uint32_t handle,
                                     struct wf_hca_registration *out)
{
    looks++;
    return wf_hca_share_null.find(r, handle, out);
}

/* Without a whole list, a call looks at a bounded number of handles, and the calls together at
 * all, also if there is a list by then. */
static void test_pieces(void **state)
{
    enum { END = 1 << 20, LEAST = END / WF_HCA_LOOKS };
    struct wf_hca_share_ops ops = wf_hca_share_null;
    struct wf_hca_registration reg;
    unsigned dropped = 0, calls = 1, all = 0;
    uint32_t from = 0;
    struct world w;
    (void)state;
    world_open(&w, "null0");
    ops.list = list_full;
    ops.find = find_counted;
    w.own->ops = &ops;
    OK(ops.reg(w.own, memory, PAGE, share_window(1), 0, &reg));
    looks = 0;
    while (!wf_hca_drop_some(w.own, share_window(1), SHARE_WINDOW, &from, END, &dropped)) {
        assert_in_range(looks, 1, WF_HCA_LOOKS);
        all += looks;
        looks = 0;
        calls++;
        ops.list = wf_hca_share_null.list;
    }
    assert_int_equal(all + looks, END);
    assert_int_equal(calls, LEAST);
    assert_int_equal(dropped, 1);
    world_close(&w);
}

/* Only registrations that lie in the window entirely are dropped, with a list and without. */
static void test_window(void **state)
{
    static const struct {
        uint64_t at; /* from the begin of the window */
        size_t len;
        bool inside;
    } cases[] = {{-(uint64_t)PAGE, PAGE, false},
                 {-(uint64_t)PAGE, 2 * PAGE, false},
                 {0, PAGE, true},
                 {SHARE_WINDOW - PAGE, PAGE, true},
                 {SHARE_WINDOW - PAGE, 2 * PAGE, false},
                 {SHARE_WINDOW, PAGE, false}};
    struct wf_hca_share_ops ops = wf_hca_share_null;
    struct wf_hca_registration reg[6];
    struct world w;
    (void)state;
    world_open(&w, "null0");
    for (unsigned way = 0; way < 3; way++) {
        ops.list = way == 1 ? list_nothing : way == 2 ? list_full : wf_hca_share_null.list;
        w.own->ops = &ops;
        for (unsigned i = 0; i < 6; i++)
            OK(ops.reg(w.own, memory, cases[i].len, share_window(1) + cases[i].at, 0, &reg[i]));
        if (way) /* without a list: the handles below the limit, and no others */
            assert_int_equal(drop_window_1(&w, reg[2].handle), 0);
        assert_int_equal(drop_window_1(&w, ALL), 2);
        for (unsigned i = 0; i < 6; i++)
            assert_int_equal(ops.drop(w.own, reg[i].handle), cases[i].inside ? WEFT_EKEY : WEFT_OK);
    }
    world_close(&w);
}

/* ---- what is refused ---- */

static void assert_refused(const struct wf_hca_share *share, int fd)
{
    struct wf_hca_registrar *r = NULL;
    int open = test_open_files();
    assert_int_equal(wf_hca_adopt(share, fd, &r), WEFT_EINVAL);
    assert_null(r);
    assert_int_equal(test_open_files(), open);
}

/* Descriptors of other files. None is closed. */
static void test_wrong_descriptor(void **state)
{
    struct world w, other;
    struct wf_hca_share real, null;
    int fds[5];
    (void)state;
    world_open(&w, "null0");
    world_open(&other, "null2");
    fds[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
    fds[1] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fds[2] = memfd_create("short", MFD_CLOEXEC);
    fds[3] = wf_fd_dup(other.fd);
    fds[4] = -1;
    null = real = w.share;
    real.driver = RDMA_DRIVER_RXE;
    for (unsigned i = 0; i < 5; i++) {
        struct stat st = {0};
        assert_refused(&w.share, fds[i]);
        assert_refused(&real, fds[i]);
        /* The same with the right file number. */
        if (i == 4 || fstat(fds[i], &st))
            continue;
        real.file = st.st_rdev;
        assert_refused(&real, fds[i]);
        null.file = st.st_ino;
        if (i < 3)
            assert_refused(&null, fds[i]);
        close(fds[i]);
    }
    world_close(&other);
    world_close(&w);
}

static void test_wrong_description(void **state)
{
    const uint32_t wrong_drivers[] = {RDMA_DRIVER_UNKNOWN, RDMA_DRIVER_SIW, RDMA_DRIVER_MLX5, 99};
    struct wf_hca_registration reg;
    struct wf_hca_registrar *r;
    struct world w;
    struct wf_hca_share s;
    (void)state;
    world_open(&w, "null0");
#define WITH(field, value)                                                                         \
    do {                                                                                           \
        s = w.share;                                                                               \
        s.field = (value);                                                                         \
        assert_refused(&s, w.fd);                                                                  \
    } while (0)
    WITH(payload, WF_HCA_PAYLOADS);
    WITH(payload, WF_HCA_PAYLOAD_IRDMA);
    WITH(flags, 4);
    WITH(reserved[5], 1);
    WITH(name[0], 0);
    WITH(name[2], '\n');
    WITH(file, w.share.file + 1);
    for (size_t i = 0; i < sizeof wrong_drivers / sizeof wrong_drivers[0]; i++)
        WITH(driver, wrong_drivers[i]);
    s = w.share;
    memset(s.name, 'x', sizeof s.name);
    assert_refused(&s, w.fd);
    /* A false domain: the registrar is made, and cannot register. */
    s = w.share;
    s.pd = ALL;
    OK(wf_hca_adopt(&s, wf_fd_dup(w.fd), &r));
    assert_int_equal(r->ops->reg(r, memory, PAGE, PAGE, 0, &reg), WEFT_EINVAL);
    r->ops->close(r);
    world_close(&w);
}

/* ---- the process that opened the NIC ends ---- */

static int owner(int sock, unsigned n)
{
    struct world w;
    char go;
    world_open(&w, "null0");
    (void)n;
    (void)share_send(sock, &w.share, sizeof w.share, w.fd);
    (void)share_recv(sock, &go, 1, NULL);
    return 1;
}

static void test_owner_killed(void **state)
{
    struct wf_hca_registration reg, found;
    struct wf_hca_registrar *r;
    struct share_process p;
    (void)state;
    fflush(stdout);
    assert_true(share_start(&p, owner, 0));
    r = share_adopt(p.sock);
    assert_non_null(r);
    OK(client_reg(r, 0, 0, &reg));
    assert_int_equal(kill(p.pid, SIGKILL), 0);
    assert_int_equal(share_wait(&p), SHARE_KILLED);
    OK(r->ops->find(r, reg.handle, &found));
    assert_same(&found, &reg);
    OK(r->ops->drop(r, reg.handle));
    assert_int_equal(r->ops->find(r, reg.handle, &found), WEFT_EKEY);
    r->ops->close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef WF_HOOKS
        cmocka_unit_test(test_killed_in_lock),
#endif
        cmocka_unit_test(test_handles),
        cmocka_unit_test(test_refused_ranges),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_client),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_killed_anywhere),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_wrong_descriptor),
        cmocka_unit_test(test_wrong_description),
        cmocka_unit_test(test_owner_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
