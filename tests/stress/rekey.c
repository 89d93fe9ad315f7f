/* SPDX-License-Identifier: BSD-3-Clause */
/* rekey COUNT [SEED]: a process gives one key of 64 bits to COUNT regions, one after the other,
 * while another process reads by that key all the time. Over shared memory, or the transports of
 * WEFT_TRANSPORTS.
 *
 * Region i holds the number i in each word. The owner overwrites the memory of a closed region, and
 * makes the next region there or in a second buffer. A read that began after region i was announced
 * must give one number, at least i and at most that of the newest region; or EKEY, between two
 * regions. Fails when: what the reader learnt of a region is used after the region lost its key. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/mr.h>

#include "contract/support.h"
#include "must.h"

#define KEY 7
#define WORDS 600 /* 4,800 bytes: two pages, and more than one message */
#define POISON UINT64_C(0xdbdbdbdbdbdbdbdb)

struct shared {
    _Atomic uint64_t begun;     /* number of the newest region, before it exists */
    _Atomic uint64_t announced; /* number of the newest region that can be read */
    _Atomic uint64_t reads;
    _Atomic uint32_t ready, done; /* the owner begins; it needs no more reads */
    _Atomic uint32_t over;
    size_t addr_len;
    unsigned char addr[WEFT_ADDR_MAX];
};

static bool over_network(void)
{
    const char *transports = getenv("WEFT_TRANSPORTS");
    return transports && (strstr(transports, "tcp") || strstr(transports, "rdma"));
}

static void fill(uint64_t *words, uint64_t value)
{
    for (unsigned i = 0; i < WORDS; i++)
        __atomic_store_n(&words[i], value, __ATOMIC_RELAXED);
}

/* Let the reader read for a while: not at all, or until it has made a few reads. */
static void pause_between(struct shared *s, struct weft_ep *ep, uint64_t *random)
{
    uint64_t until = test_now_ns() + TEST_LIMIT_NS,
             reads = atomic_load(&s->reads) + test_rand(random) % 4;
    for (uint64_t polls = test_rand(random) % 16; polls; polls--)
        poll_or_end(ep, until);
    while (atomic_load(&s->reads) < reads)
        poll_or_end(ep, until);
}

static int owner(struct shared *s, uint64_t count, uint64_t seed)
{
    static uint64_t words[2][WORDS] __attribute__((aligned(4096)));
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    must_open(over_network(), &ctx, &ep);
    s->addr_len = sizeof s->addr;
    MUST(weft_ep_address(ep, s->addr, &s->addr_len));
    atomic_store(&s->ready, 1);
    for (uint64_t i = 1; i <= count; i++) {
        uint64_t *at = words[test_rand(&seed) % 2];
        struct weft_mr *mr;
        atomic_store(&s->begun, i);
        fill(at, i);
        MUST(weft_mr_reg(ctx, at, sizeof words[0], WEFT_REMOTE_READ, 0, KEY, 0, &mr, NULL));
        atomic_store(&s->announced, i);
        pause_between(s, ep, &seed);
        MUST(weft_mr_close(mr));
        fill(at, POISON);
        if (test_rand(&seed) % 4 == 0)
            pause_between(s, ep, &seed);
    }
    atomic_store(&s->done, 1);
    for (uint64_t until = test_now_ns() + TEST_LIMIT_NS; atomic_load(&s->over) < 1;)
        poll_or_end(ep, until);
    atomic_store(&s->over, 2);
    MUST(weft_ep_close(ep));
    MUST(weft_ctx_close(ctx));
    return 0;
}

static void check(const uint64_t *got, size_t n, uint64_t least, uint64_t most)
{
    for (size_t i = 0; i < n; i++)
        if (got[i] != got[0] || got[i] < least || got[i] > most) {
            fprintf(stderr, "word %zu is %llx, word 0 is %llx: the regions were %llx to %llx\n", i,
                    (unsigned long long)got[i], (unsigned long long)got[0],
                    (unsigned long long)least, (unsigned long long)most);
            exit(1);
        }
}

static uint64_t learnt, pulled;

static void row(void *arg, const char *name, uint64_t value, const char *doc)
{
    (void)arg;
    (void)doc;
    learnt = strcmp(name, "KEYS_LEARNT") ? learnt : value;
    pulled = strcmp(name, "GET_PULL") && strcmp(name, "GET_NIC") ? pulled : pulled + value;
}

static void reader(struct shared *s, uint64_t count, uint64_t seed)
{
    static uint64_t got[WORDS];
    uint64_t refused = 0, reads = 0, until = test_now_ns() + TEST_LIMIT_NS;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer;
    struct weft_remote *r;
    must_open(over_network(), &ctx, &ep);
    while (!atomic_load(&s->ready))
        poll_or_end(ep, until);
    MUST(weft_peer_open(ep, s->addr, s->addr_len, &peer));
    MUST(weft_remote_open_key(peer, KEY, &r));
    while (!atomic_load(&s->done) || reads < 10) {
        struct weft_op op = {0};
        uint64_t last;
        size_t n = test_rand(&seed) % 8 ? 8 : WORDS;
        enum weft_status status;
        last = atomic_load(&s->announced);
        until = test_now_ns() + TEST_LIMIT_NS;
        status = weft_get(r, 0, got, n * sizeof *got, &op);
        for (; status == WEFT_PENDING; status = (enum weft_status)op.status)
            poll_or_end(ep, until);
        /* Several messages may find different regions. */
        if (status == WEFT_OK)
            check(got, n * sizeof *got <= 4000 ? n : 1, last, atomic_load(&s->begun));
        else if (status != WEFT_EKEY)
            MUST(status);
        refused += status == WEFT_EKEY;
        reads++;
        atomic_store(&s->reads, reads);
    }
    atomic_store(&s->over, 1);
    while (atomic_load(&s->over) < 2)
        poll_or_end(ep, until);
    (void)weft_ep_poll(ep);
    weft_stat_rows(ctx, row, NULL);
    printf("measured %llu regions, %llu reads: %llu between two regions, %llu without the owner, "
           "learnt %llu "
           "times\n",
           (unsigned long long)count, (unsigned long long)reads, (unsigned long long)refused,
           (unsigned long long)pulled, (unsigned long long)learnt);
    MUST(weft_remote_close(r));
    MUST(weft_peer_close(peer));
    MUST(weft_ep_close(ep));
    MUST(weft_ctx_close(ctx));
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 0) : 100000;
    uint64_t seed =
        argc > 2 && strtoull(argv[2], NULL, 0) ? strtoull(argv[2], NULL, 0) : test_seed();
    struct shared *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;
    pid_t pid;
    if (s == MAP_FAILED)
        return 1;
    pid = fork();
    if (!pid)
        _exit(owner(s, count, seed));
    reader(s, count, seed + 1);
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
