/* SPDX-License-Identifier: BSD-3-Clause */
/* Protection domains that several processes use, on a real device: share_test DEVICE [OTHER].
 *
 * The owner is the process that opens the device, a client one that registers its private memory
 * in the owner's domain. Processes are forked before any device is opened. DEVICE and OTHER have
 * the driver rdma_rxe. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "vm/share_node.h"

#define BUSY_LEN (256 * PAGE)
#define ALL 4096u /* more handles than a test makes */

static const char *device, *other_device;

/* ---- clients ---- */

struct report {
    struct wf_hca_registration reg;
    bool same;
};

static void client_reg(struct wf_hca_registrar *r, void *memory, size_t len, unsigned n, unsigned i,
                       struct wf_hca_registration *out)
{
    OK(r->ops->reg(r, memory, len, share_window(n) + i * (UINT64_C(1) << 30), ACCESS, out));
}

static void await(int sock)
{
    char go;
    CHECK(share_recv(sock, &go, 1, NULL));
}

static void go(int sock)
{
    CHECK(share_send(sock, "", 1, -1));
}

/* Registers memory, and says whether it holds the bytes of test_fill(0) each time it is asked. */
static int client_honest(int sock, unsigned n)
{
    struct wf_hca_registrar *r = share_adopt(sock);
    char *memory = pages(LEN, n), ask;
    struct report report = {.same = false};
    CHECK(r);
    client_reg(r, memory, LEN, n, 0, &report.reg);
    CHECK(share_send(sock, &report, sizeof report, -1));
    while (share_recv(sock, &ask, 1, NULL) && ask != 'x') {
        report.same = test_same(memory, LEN, 0);
        CHECK(share_send(sock, &report, sizeof report, -1));
    }
    OK(r->ops->drop(r, report.reg.handle));
    r->ops->close(r);
    return 0;
}

/* Registers three pieces of memory, of which it tells two, and is killed at the third. */
static int client_killed(int sock, unsigned n)
{
    struct wf_hca_registrar *r = share_adopt(sock);
    struct wf_hca_registration reg[3];
    char *memory = pages(3 * LEN, n);
    CHECK(r);
    for (unsigned i = 0; i < 2; i++)
        client_reg(r, memory + i * LEN, LEN, n, i, &reg[i]);
    CHECK(share_send(sock, reg, 2 * sizeof reg[0], -1));
    client_reg(r, memory + 2 * LEN, LEN, n, 2, &reg[2]);
    (void)kill(getpid(), SIGKILL);
    return 1;
}

/* Another user, with little locked memory: the kernel counts what this process registers. */
static int client_limited(int sock, unsigned n)
{
    const struct rlimit limit = {LEN, LEN};
    struct wf_hca_registration reg;
    struct wf_hca_registrar *r;
    char *memory = pages(2 * LEN, n);
    CHECK(!setrlimit(RLIMIT_MEMLOCK, &limit) && !setresgid(1, 1, 1) && !setresuid(1, 1, 1));
    r = share_adopt(sock);
    CHECK(r);
    CHECK(r->ops->reg(r, memory, 2 * LEN, share_window(n), ACCESS, &reg) == WEFT_ELIMIT);
    client_reg(r, memory, LEN, n, 0, &reg);
    OK(r->ops->drop(r, reg.handle));
    CHECK(r->ops->reg(r, memory, LEN, share_window(n) + 8, ACCESS, &reg) == WEFT_EINVAL);
    CHECK(!munmap(memory, LEN));
    CHECK(r->ops->reg(r, memory, LEN, share_window(n), ACCESS, &reg) == WEFT_EFAULT);
    r->ops->close(r);
    return 0;
}

/* ---- the tests ---- */

/* The owner writes from a client's private memory, and into it. */
static void test_moves(void)
{
    struct share_process p;
    struct wf_hca_end end;
    struct report report;
    struct node n;
    CHECK(share_start(&p, client_honest, 1));
    node_open(&n, device);
    end = node_end(&n);
    node_connect(&n, &end); /* to itself */
    share_with(&n, &p);
    CHECK(share_recv(p.sock, &report, sizeof report, NULL));
    CHECK(report.reg.at == share_window(1) && !report.same);
    memset(n.memory, 0, LEN);
    CHECK(node_write(&n, report.reg.at, report.reg.lkey, (uintptr_t)n.memory, n.mr->rkey, LEN) ==
          WF_HCA_OK);
    CHECK(test_same(n.memory, LEN, 1));
    test_fill(n.memory, LEN, 0);
    CHECK(write_into(&n, &report.reg) == WF_HCA_OK);
    go(p.sock);
    CHECK(share_recv(p.sock, &report, sizeof report, NULL) && report.same);
    CHECK(share_send(p.sock, "x", 1, -1) && share_wait(&p) == 0);
    CHECK(write_into(&n, &report.reg) == WF_HCA_REMOTE_ACCESS);
    node_close(&n);
    printf("    64 KiB of private memory written from and into, refused after its client dropped "
           "it\n");
}

/* How many registrations of client [who] the handles below [end] name. */
static unsigned count_of(struct wf_hca_registrar *r, unsigned who, uint32_t end, uint32_t *highest)
{
    struct wf_hca_registration found;
    unsigned n = 0;
    for (uint32_t handle = 0; handle < end; handle++) {
        if (r->ops->find(r, handle, &found) != WEFT_OK)
            continue;
        *highest = handle;
        n += found.at / SHARE_WINDOW == who + 1;
    }
    return n;
}

static void test_client_killed(void)
{
    struct wf_hca_registration told[2], found;
    struct share_process killed, honest;
    struct wf_hca_registrar *r;
    struct report report;
    struct wf_hca_end end;
    uint32_t highest = 0, any, handles[ALL];
    uint64_t begin, scan_ns, drop_ns;
    struct node n;
    CHECK(share_start(&honest, client_honest, 1) && share_start(&killed, client_killed, 2));
    node_open(&n, device);
    end = node_end(&n);
    node_connect(&n, &end);
    r = own_registrar(&n);
    share_with(&n, &honest);
    CHECK(share_recv(honest.sock, &report, sizeof report, NULL));
    share_with(&n, &killed);
    CHECK(share_recv(killed.sock, told, sizeof told, NULL));
    CHECK(share_wait(&killed) == SHARE_KILLED);

    begin = test_now_ns();
    CHECK(count_of(r, 2, ALL, &highest) == 3);
    scan_ns = test_now_ns() - begin;
    CHECK(count_of(r, 1, ALL, &highest) == 1);
    CHECK(highest < 16);                       /* lowest first */
    CHECK(r->ops->list(r, handles, ALL) == 5); /* and the owner's own */
    CHECK(r->ops->list(r, handles, 2) == 2);
    OK(r->ops->find(r, told[1].handle, &found));
    CHECK(!memcmp(&found, &told[1], sizeof found));
    CHECK(write_into(&n, &told[1]) == WF_HCA_OK); /* it is still there */

    begin = test_now_ns();
    CHECK(wf_hca_drop_within(r, share_window(2), SHARE_WINDOW, ALL) == 3);
    drop_ns = test_now_ns() - begin;
    CHECK(count_of(r, 2, ALL, &any) == 0);
    CHECK(r->ops->find(r, told[1].handle, &found) == WEFT_EKEY);
    CHECK(write_into(&n, &report.reg) == WF_HCA_OK); /* the other client's stays */
    go(honest.sock);
    CHECK(share_recv(honest.sock, &report, sizeof report, NULL) && report.same);
    CHECK(write_into(&n, &told[1]) == WF_HCA_REMOTE_ACCESS);
    CHECK(share_send(honest.sock, "x", 1, -1) && share_wait(&honest) == 0);
    CHECK(r->ops->list(r, handles, ALL) == 1);
    r->ops->close(r);
    node_close(&n);
    printf(
        "    3 regions of a killed client found and dropped; highest handle %u; %u numbers asked "
        "in %.2f ms; listed and dropped in %.2f ms\n",
        highest, ALL, (double)scan_ns / 1e6, (double)drop_ns / 1e6);
}

static _Atomic uint32_t *steps; /* of client_busy: shared memory */

/* Registers and drops, mostly within the kernel, without end. */
static int client_busy(int sock, unsigned n)
{
    struct wf_hca_registrar *r = share_adopt(sock);
    struct wf_hca_registration reg[4];
    char *memory = pages(BUSY_LEN, n);
    CHECK(r);
    for (unsigned i = 0;; i++) {
        if (i >= 4)
            OK(r->ops->drop(r, reg[i % 4].handle));
        client_reg(r, memory, BUSY_LEN, n, i % 4, &reg[i % 4]);
        atomic_fetch_add(steps, 1);
    }
}

/* A client that is killed anywhere, also within the kernel, leaves what can be found. */
static void test_killed_anywhere(void)
{
    enum { KILLS = 20 };
    uint64_t rand = test_seed(), end;
    struct share_process p[KILLS];
    struct wf_hca_registrar *r;
    uint32_t handles[ALL];
    unsigned dropped = 0;
    struct node n;
    steps = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(steps != MAP_FAILED);
    for (unsigned i = 0; i < KILLS; i++)
        CHECK(share_start(&p[i], client_busy, i));
    node_open(&n, device);
    r = own_registrar(&n);
    for (unsigned i = 0; i < KILLS; i++) {
        uint32_t until = 4 + (uint32_t)(test_rand(&rand) % 40);
        uint64_t more = test_rand(&rand) % 2000000;
        atomic_store(steps, 0);
        share_with(&n, &p[i]);
        for (end = test_now_ns() + TEST_LIMIT_NS; atomic_load(steps) < until;)
            CHECK(test_now_ns() < end);
        for (end = test_now_ns() + more; test_now_ns() < end;)
            ;
        CHECK(kill(p[i].pid, SIGKILL) == 0 && share_wait(&p[i]) == SHARE_KILLED);
        dropped += wf_hca_drop_within(r, share_window(i), SHARE_WINDOW, ALL);
        CHECK(r->ops->list(r, handles, ALL) == 1);
    }
    CHECK(dropped >= 3 * KILLS && dropped <= 4 * KILLS);
    r->ops->close(r);
    node_close(&n);
    printf("    %d clients killed anywhere, %u regions found and dropped, none left\n", KILLS,
           dropped);
}

/* An owner that answers a remote node, until it is killed. */
static int owner(int sock, unsigned n)
{
    struct wf_hca_end end;
    struct node node;
    node_open(&node, device);
    end = node_end(&node);
    (void)n;
    CHECK(share_send(sock, &node.share, sizeof node.share, node.fd));
    CHECK(share_send(sock, &end, sizeof end, -1) && share_recv(sock, &end, sizeof end, NULL));
    node_connect(&node, &end);
    go(sock);
    await(sock);
    return 1;
}

/* This process is a client of the owner, and the remote node that the owner is connected to. */
static void test_owner_killed(void)
{
    struct wf_hca_registration reg[2], found;
    struct wf_hca_registrar *r;
    struct share_process p;
    struct wf_hca_end mine, theirs;
    char *memory = pages(2 * LEN, 7);
    struct node n;
    CHECK(share_start(&p, owner, 0));
    node_open(&n, device);
    mine = node_end(&n);
    r = share_adopt(p.sock);
    CHECK(r && share_recv(p.sock, &theirs, sizeof theirs, NULL));
    CHECK(share_send(p.sock, &mine, sizeof mine, -1));
    node_connect(&n, &theirs);
    await(p.sock);
    for (unsigned i = 0; i < 2; i++)
        client_reg(r, memory + i * LEN, LEN, 0, i, &reg[i]);
    CHECK(kill(p.pid, SIGKILL) == 0 && share_wait(&p) == SHARE_KILLED);

    /* Its queue pair still answers. */
    CHECK(write_into(&n, &reg[0]) == WF_HCA_OK && test_same(memory, LEN, 0));
    OK(r->ops->find(r, reg[0].handle, &found));
    CHECK(!memcmp(&found, &reg[0], sizeof found));
    OK(r->ops->drop(r, reg[0].handle));
    CHECK(r->ops->find(r, reg[0].handle, &found) == WEFT_EKEY);
    memset(memory, 0, LEN);
    CHECK(write_into(&n, &reg[0]) == WF_HCA_REMOTE_ACCESS);
    for (size_t i = 0; i < LEN; i++)
        CHECK(!memory[i]);
    r->ops->close(r); /* and with it the owner's objects, and the second region */
    node_close(&n);
    printf("    the queue pair of a killed owner answers until the client drops its region by "
           "handle\n");
}

static void refused(const struct wf_hca_share *share, int fd, const char *what)
{
    struct wf_hca_registrar *r = NULL;
    CHECK(wf_hca_adopt(share, fd, &r) == WEFT_EINVAL && !r);
    printf("    refused: %s\n", what);
}

static void test_refused(void)
{
    struct wf_hca_registration found;
    struct wf_hca_registrar *r;
    struct wf_hca_share share;
    struct node n, other;
    struct stat st;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    uint32_t kinds = 0, handle;
    node_open(&n, device);
    node_open(&other, other_device);
    refused(&n.share, null, "/dev/null");
    share = n.share;
    CHECK(!fstat(null, &st));
    share.file = st.st_rdev;
    refused(&share, null, "/dev/null with its own device number");
    refused(&n.share, n.hca->async_fd, "the descriptor of the device's events");
    refused(&n.share, other.fd, "the command descriptor of another device");
    share = n.share;
    share.driver = RDMA_DRIVER_MLX5;
    refused(&share, n.fd, "another driver");
    share.driver = RDMA_DRIVER_SIW;
    refused(&share, n.fd, "a driver whose payload is not known");
    CHECK(fcntl(n.fd, F_GETFD) >= 0); /* refused, not closed */

    /* Handles of nobody, and of the domain, the queues and the queue pair, which must stay. */
    r = own_registrar(&n);
    CHECK(r->ops->list(r, &handle, 1) == 1);
    for (handle = 0; handle < 64; handle++) {
        if (r->ops->find(r, handle, &found) == WEFT_OK)
            continue;
        CHECK(r->ops->find(r, handle, &found) == WEFT_EKEY);
        CHECK(r->ops->drop(r, handle) == WEFT_EKEY);
        kinds++;
    }
    CHECK(kinds == 63 && r->ops->drop(r, UINT32_MAX) == WEFT_EKEY);
    CHECK(r->ops->reg_dmabuf(r, null, 0, PAGE, 0, ACCESS, &found) == WEFT_EUNREACH);
    r->share.pd += 1; /* a handle of another kind */
    CHECK(r->ops->reg(r, n.memory, PAGE, PAGE * 5, ACCESS, &found) == WEFT_EINVAL);
    r->share.pd -= 1;
    r->share.flags |= WF_HCA_SHARE_DMABUF; /* the driver itself refuses it */
    CHECK(r->ops->reg_dmabuf(r, null, 0, PAGE, 0, ACCESS, &found) != WEFT_OK);
    r->ops->close(r);
    close(null);
    node_close(&other);
    node_close(&n); /* warns if an object is gone */
}

static void test_limited(void)
{
    struct share_process p;
    struct node n;
    CHECK(share_start(&p, client_limited, 3));
    node_open(&n, device);
    share_with(&n, &p);
    CHECK(share_wait(&p) == 0);
    node_close(&n);
    printf("    another user's client is held to its own limit of locked memory\n");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {{"moves", test_moves},
                 {"client killed", test_client_killed},
                 {"killed anywhere", test_killed_anywhere},
                 {"owner killed", test_owner_killed},
                 {"refused", test_refused},
                 {"limited", test_limited}};
    if (argc != 3) {
        fprintf(stderr, "usage: share_test DEVICE OTHER\n");
        return 2;
    }
    device = argv[1];
    other_device = argv[2];
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        printf("%s\n", tests[i].name);
        fflush(stdout);
        tests[i].run();
    }
    printf("all passed\n");
    return 0;
}
