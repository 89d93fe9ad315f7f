/* SPDX-License-Identifier: BSD-3-Clause */
/* sums COUNT [rdma]: processes add to the same elements at the same time, COUNT times each:
 *
 *   the owner          by its own instructions, and by calls on its own region
 *   its second thread  by calls at an endpoint of its own
 *   a first peer       in mapped memory, by weft_atomic_array
 *   a second peer      in mapped memory, by weft_atomic and weft_atomic_array in turn
 *   a third peer       by messages (WEFT_DEBUG=nomap)
 *   two more           with "rdma" only: by messages across RDMA; and to a word of a region of
 *                      WEFT_MR_NIC_ATOMICS, by the owner's NIC
 *
 * At the end each element must be the sum. Fails when: an atomic of one way is not atomic to those
 * of another. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/atomic.h>
#include <weft/mr.h>

#include "contract/support.h"
#include "must.h"

#define PEERS 3 /* on the node; those by RDMA follow */
#define MOST_PEERS 5
#define ROW 64 /* bytes of the elements of one kind */

/* The kinds that are added to, each in a row of its own, and the elements of a call. */
static const struct {
    unsigned kind;
    size_t size, count;
} rows[] = {{WEFT_KIND_UINT8, 1, 5},  {WEFT_KIND_INT16, 2, 3},  {WEFT_KIND_UINT32, 4, 2},
            {WEFT_KIND_UINT64, 8, 2}, {WEFT_KIND_DOUBLE, 8, 2}, {WEFT_KIND_DOUBLE_COMPLEX, 16, 2},
            {WEFT_KIND_INT128, 16, 2}};
#define ROWS (sizeof rows / sizeof *rows)

struct shared {
    _Atomic uint32_t ready, over;
    size_t addr_len, key_len, nic_len;
    unsigned char addr[WEFT_ADDR_MAX], key[WEFT_KEY_MAX], nic[WEFT_KEY_MAX];
};

static unsigned peers = PEERS;
static bool rdma;

/* An array of ones. */
static void ones(unsigned char *at, unsigned row)
{
    double one = 1;
    memset(at, 0, ROW);
    for (size_t i = 0; i < rows[row].count; i++) {
        unsigned char *to = at + i * rows[row].size;
        if (rows[row].kind == WEFT_KIND_DOUBLE || rows[row].kind == WEFT_KIND_DOUBLE_COMPLEX)
            memcpy(to, &one, sizeof one);
        else
            *to = 1;
    }
}

static void array_add(struct weft_ep *ep, struct weft_remote *r, unsigned row)
{
    uint64_t until = test_now_ns() + TEST_LIMIT_NS;
    unsigned char one[ROW];
    enum weft_status s;
    struct weft_op op = {0};
    ones(one, row);
    s = weft_atomic_array(r, row * ROW, WEFT_DO_SUM, rows[row].kind, rows[row].count, one, NULL,
                          NULL, &op);
    for (; s == WEFT_PENDING; s = (enum weft_status)op.status)
        poll_or_end(ep, until);
    MUST(s);
}

static void word_add(struct weft_remote *r, unsigned row)
{
    unsigned type = rows[row].size == 8 ? WEFT_U64 : WEFT_U32;
    for (size_t i = 0; i < rows[row].count; i++)
        MUST(weft_atomic(r, row * ROW + i * rows[row].size, WEFT_ATOMIC_ADD, type, 1, 0, NULL,
                         NULL));
}

/* By the NIC of the region's context. */
static void nic_add(struct weft_ep *ep, struct weft_remote *r)
{
    uint64_t until = test_now_ns() + TEST_LIMIT_NS;
    struct weft_op op = {0};
    enum weft_status s = weft_atomic(r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, NULL, &op);
    for (; s == WEFT_PENDING; s = (enum weft_status)op.status)
        poll_or_end(ep, until);
    MUST(s);
}

static void peer(struct shared *s, unsigned number, uint64_t count)
{
    const bool mapped = number < 2;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *to;
    struct weft_remote *r, *nic = NULL;
    if (number == 2)
        test_debug("nomap");
    if (number >= PEERS && setenv("WEFT_TRANSPORTS", "loop,rdma", 1))
        exit(1);
    must_open(rdma, &ctx, &ep);
    while (!atomic_load(&s->ready))
        sched_yield();
    MUST(weft_peer_open(ep, s->addr, s->addr_len, &to));
    MUST(weft_remote_open(to, s->key, s->key_len, &r));
    if (number >= PEERS)
        MUST(weft_remote_open(to, s->nic, s->nic_len, &nic));
    if (!r->base != !mapped) {
        fprintf(stderr, "peer %u: the region is %smapped\n", number, mapped ? "not " : "");
        exit(1);
    }
    for (uint64_t i = 0; i < count; i++) {
        for (unsigned row = 0; row < ROWS; row++)
            if (number == 1 && i % 2 &&
                (rows[row].kind == WEFT_KIND_UINT32 || rows[row].kind == WEFT_KIND_UINT64))
                word_add(r, row);
            else
                array_add(ep, r, row);
        if (nic)
            nic_add(ep, nic);
    }
    atomic_fetch_add(&s->over, 1);
    if (nic)
        MUST(weft_remote_close(nic));
    MUST(weft_remote_close(r));
    MUST(weft_peer_close(to));
    MUST(weft_ep_close(ep));
    MUST(weft_ctx_close(ctx));
    exit(0);
}

/* By the owner's own instructions. */
static void own_add(unsigned char *base, unsigned row)
{
    for (size_t i = 0; i < rows[row].count; i++) {
        void *at = base + row * ROW + i * rows[row].size;
        switch (rows[row].size) {
        case 1: __atomic_fetch_add((uint8_t *)at, 1, __ATOMIC_RELAXED); break;
        case 2: __atomic_fetch_add((uint16_t *)at, 1, __ATOMIC_RELAXED); break;
        case 4: __atomic_fetch_add((uint32_t *)at, 1, __ATOMIC_RELAXED); break;
        default: __atomic_fetch_add((uint64_t *)at, 1, __ATOMIC_RELAXED);
        }
    }
}

static int is_sum(const unsigned char *base, unsigned row, uint64_t sum)
{
    double number = (double)sum;
    unsigned char want[16] = {0};
    if (rows[row].kind == WEFT_KIND_DOUBLE || rows[row].kind == WEFT_KIND_DOUBLE_COMPLEX)
        memcpy(want, &number, sizeof number);
    else
        memcpy(want, &sum, sizeof sum);
    for (size_t i = 0; i < rows[row].count; i++)
        if (memcmp(base + row * ROW + i * rows[row].size, want, rows[row].size)) {
            fprintf(stderr, "element %zu of kind %u is not the sum of %llu\n", i, rows[row].kind,
                    (unsigned long long)sum);
            return 0;
        }
    return 1;
}

/* The NIC may still write to [word] by DMA as far as the compiler knows. */
static int is_value(const uint64_t *word, uint64_t sum)
{
    uint64_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    if (value != sum)
        fprintf(stderr, "the word of the NIC is %llu, not %llu\n", (unsigned long long)value,
                (unsigned long long)sum);
    return value == sum;
}

struct other {
    struct weft_ctx *ctx;
    const struct shared *s;
    uint64_t count;
};

static void *other_thread(void *arg)
{
    const struct other *o = arg;
    struct weft_ep *ep;
    struct weft_peer *to;
    struct weft_remote *r;
    MUST(weft_ep_open(o->ctx, NULL, &ep));
    MUST(weft_peer_open(ep, o->s->addr, o->s->addr_len, &to));
    MUST(weft_remote_open(to, o->s->key, o->s->key_len, &r));
    for (uint64_t i = 0; i < o->count; i++)
        for (unsigned row = 0; row < ROWS; row++)
            array_add(ep, r, row);
    MUST(weft_remote_close(r));
    MUST(weft_peer_close(to));
    MUST(weft_ep_close(ep));
    return NULL;
}

/* A word for NICs' atomics; NULL without "rdma". */
static struct weft_mr *nic_region(struct weft_ctx *ctx, struct shared *s, uint64_t *word)
{
    struct weft_mr *mr = NULL;
    if (!rdma)
        return NULL;
    MUST(weft_mr_reg(ctx, word, sizeof *word, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, 0, 1,
                     WEFT_MR_NIC_ATOMICS, &mr, NULL));
    s->nic_len = sizeof s->nic;
    MUST(weft_mr_key(mr, s->nic, &s->nic_len));
    return mr;
}

static int owner(struct shared *s, uint64_t count)
{
    static uint64_t word;
    uint64_t until = test_now_ns() + 5 * TEST_LIMIT_NS;
    struct other other = {.s = s, .count = count};
    pthread_t thread;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *self;
    struct weft_remote *r;
    struct weft_mr *mr, *nic;
    unsigned char *base;
    int good = 1;
    must_open(rdma, &ctx, &ep);
    MUST(weft_mem_alloc(ctx, ROWS * ROW, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &mr));
    base = weft_mr_base(mr);
    s->addr_len = sizeof s->addr;
    s->key_len = sizeof s->key;
    MUST(weft_ep_address(ep, s->addr, &s->addr_len));
    MUST(weft_mr_key(mr, s->key, &s->key_len));
    MUST(weft_peer_open(ep, s->addr, s->addr_len, &self));
    MUST(weft_remote_open(self, s->key, s->key_len, &r));
    nic = nic_region(ctx, s, &word);
    other.ctx = ctx;
    if (pthread_create(&thread, NULL, other_thread, &other))
        return 1;
    atomic_store(&s->ready, 1);
    for (uint64_t i = 0; i < count; i++) {
        for (unsigned row = 0; row < ROWS; row++)
            if (i % 2 && row < 4)
                own_add(base, row);
            else
                array_add(ep, r, row);
        poll_or_end(ep, until);
    }
    while (atomic_load(&s->over) < peers)
        poll_or_end(ep, until);
    if (pthread_join(thread, NULL))
        return 1;
    for (unsigned row = 0; row < ROWS; row++)
        good &= is_sum(base, row, (peers + 2) * count);
    if (nic) {
        good &= is_value(&word, (peers - PEERS) * count);
        MUST(weft_mr_close(nic));
    }
    MUST(weft_remote_close(r));
    MUST(weft_peer_close(self));
    MUST(weft_mr_close(mr));
    MUST(weft_ep_close(ep));
    MUST(weft_ctx_close(ctx));
    printf("measured %zu kinds, %llu additions by each of %u processes and a thread%s\n", ROWS,
           (unsigned long long)count, peers + 1, rdma ? ", and by a NIC" : "");
    return !good;
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 0) : 20000;
    struct shared *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[MOST_PEERS];
    int bad;
    if (s == MAP_FAILED)
        return 1;
    rdma = argc > 2 && !strcmp(argv[2], "rdma");
    peers = rdma ? MOST_PEERS : PEERS;
    for (unsigned i = 0; i < peers; i++)
        if (!(pids[i] = fork()))
            peer(s, i, count);
    bad = owner(s, count);
    for (unsigned i = 0; i < peers; i++) {
        int status;
        bad |= waitpid(pids[i], &status, 0) != pids[i] || status;
    }
    return bad;
}
