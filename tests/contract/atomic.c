/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions whose atomics are their owner's NIC's (WEFT_MR_NIC_ATOMICS): over RDMA what they do, over
 * others that they cannot be had. */
#define _GNU_SOURCE
#include "contract.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <weft/atomic.h>

#include "connections.h"

#define WORDS 512
#define KEY 7

/* ---- a region of end 1 ---- */

struct words {
    uint64_t *at; /* [WORDS] */
    struct weft_mr *mr;
    struct weft_remote *r; /* end 0's */
};

static void allocated(struct pair *p)
{
    struct weft_mr_domain d = WEFT_MR_DOMAIN_INIT;
    d.mode = WEFT_MR_ALLOCATED;
    pair_reopen(p, &d, 0);
}

static enum weft_status words_reg(struct pair *p, void *at, uint64_t access, uint64_t flags,
                                  struct weft_mr **out)
{
    return weft_mr_reg(p->ctx[1], at, WORDS * sizeof(uint64_t), access, 0, KEY, flags, out, NULL);
}

static struct weft_remote *words_remote(struct weft_peer *peer, const struct weft_mr *mr)
{
    unsigned char key[WEFT_KEY_MAX];
    size_t len = sizeof key;
    struct weft_remote *r = NULL;
    OK(weft_mr_key(mr, key, &len));
    OK(weft_remote_open(peer, key, len, &r));
    assert_null(r->base);
    return r;
}

/* False: it cannot be had here, which was said. */
static bool words_open(struct pair *p, struct words *w)
{
    *w = (struct words){.at = NULL};
    allocated(p);
    w->at = mmap(NULL, WORDS * sizeof *w->at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                 -1, 0);
    assert_true(w->at != MAP_FAILED);
    if (by_rdma(p)) {
        OK(words_reg(p, w->at, RW, WEFT_MR_NIC_ATOMICS, &w->mr));
        w->r = words_remote(p->peer[other(p, 1)], w->mr);
        return true;
    }
    GIVES(WEFT_ENOSYS, words_reg(p, w->at, RW, WEFT_MR_NIC_ATOMICS, &w->mr));
    assert_null(w->mr);
    OK(words_reg(p, w->at, RW, 0, &w->mr)); /* its key is free */
    OK(weft_mr_close(w->mr));
    munmap(w->at, WORDS * sizeof *w->at);
    return false;
}

static void words_close(struct words *w)
{
    if (w->r)
        OK(weft_remote_close(w->r));
    if (w->mr)
        OK(weft_mr_close(w->mr));
    munmap(w->at, WORDS * sizeof *w->at);
}

static enum weft_status atomic_end(struct pair *p, struct weft_remote *r, unsigned word,
                                   unsigned operation, unsigned type, uint64_t operand,
                                   uint64_t compare, uint64_t *fetched)
{
    struct weft_op op = {0};
    return rma_end(p, r, &op,
                   weft_atomic(r, 8 * word, operation, type, operand, compare, fetched, &op));
}

static enum weft_status array_by(struct pair *p, struct weft_remote *r, unsigned operation,
                                 unsigned kind, size_t count, int64_t operand, int64_t compare,
                                 void *fetched)
{
    const int64_t v[2] = {operand, operand}, c[2] = {compare, compare};
    struct weft_op op = {0};
    return rma_end(p, r, &op, weft_atomic_array(r, 40, operation, kind, count, v, c, fetched, &op));
}

/* Word 5 is 40. The five arrays that NICs do. */
static void arrays_by_nic(struct pair *p, struct words *w)
{
    uint64_t old = 1;
    GIVES(WEFT_OK, array_by(p, w->r, WEFT_DO_SUM, WEFT_KIND_INT64, 1, -2, 0, &old));
    assert_true(old == 40 && w->at[5] == 38);
    GIVES(WEFT_OK, array_by(p, w->r, WEFT_DO_READ, WEFT_KIND_UINT64, 1, 9, 9, &old));
    assert_true(old == 38 && w->at[5] == 38);
    GIVES(WEFT_OK, array_by(p, w->r, WEFT_DO_CSWAP, WEFT_KIND_INT64, 1, 7, 38, &old));
    assert_true(old == 38 && w->at[5] == 7);
    GIVES(WEFT_OK, array_by(p, w->r, WEFT_DO_CSWAP, WEFT_KIND_UINT64, 1, 9, 8, &old));
    assert_true(old == 7 && w->at[5] == 7);
    GIVES(WEFT_OK, array_by(p, w->r, WEFT_DO_SUM, WEFT_KIND_UINT64, 1, 1, 0, NULL));
    assert_true(w->at[5] == 8 && !w->at[4] && !w->at[6]);
}

static void arrays_refused(struct pair *p, struct words *w, struct weft_remote *by_key)
{
    uint64_t old[3];
    char *odd = (char *)old + 4;
    GIVES(WEFT_ENOSYS, array_by(p, w->r, WEFT_DO_SUM, WEFT_KIND_UINT64, 2, 1, 0, old));
    GIVES(WEFT_ENOSYS, array_by(p, w->r, WEFT_DO_SUM, WEFT_KIND_DOUBLE, 1, 1, 0, old));
    GIVES(WEFT_ENOSYS, array_by(p, w->r, WEFT_DO_READ, WEFT_KIND_INT128, 1, 1, 0, old));
    GIVES(WEFT_ENOSYS, array_by(p, w->r, WEFT_DO_WRITE, WEFT_KIND_UINT64, 1, 1, 0, NULL));
    GIVES(WEFT_ENOSYS, array_by(p, w->r, WEFT_DO_CSWAP_NE, WEFT_KIND_UINT64, 1, 1, 1, NULL));
    GIVES(WEFT_EINVAL, array_by(p, w->r, WEFT_DO_SUM, WEFT_KIND_UINT64, 1, 1, 0, odd));
    GIVES(WEFT_ENOSYS, array_by(p, by_key, WEFT_DO_SUM, WEFT_KIND_UINT64, 1, 1, 0, old));
    GIVES(WEFT_ENOSYS, array_by(p, by_key, WEFT_DO_READ, WEFT_KIND_UINT64, 1, 1, 0, old));
    GIVES(WEFT_ENOSYS, array_by(p, by_key, WEFT_DO_SUM, WEFT_KIND_INT128, 1, 1, 0, old));
    assert_int_equal(w->at[5], 0);
}

/* Fails when: the NIC's atomics do something else than weft_atomic says, are not theirs, or are
 * told to be something else. */
void test_atomic_values(void **state)
{
    struct pair *p = *state;
    uint64_t old = 1, nic, sent;
    struct weft_path path;
    struct words w;
    if (!words_open(p, &w))
        return;
    OK(weft_path_of(w.r->peer, WEFT_OP_ATOMIC, w.r, 8, &path));
    assert_string_equal(path.protocol, "rdma atomic");
    GIVES(WEFT_ENOSYS, weft_path_of(w.r->peer, WEFT_OP_ATOMIC, w.r, 4, &path));
    nic = pair_stat(p, "ATOMIC_NIC");
    sent = pair_stat(p, "ATOMIC_SENT");
    w.at[3] = UINT64_C(0x0102030405060708);
    GIVES(WEFT_OK,
          atomic_end(p, w.r, 3, WEFT_ATOMIC_ADD, WEFT_U64, UINT64_C(0x1000000000000001), 0, &old));
    assert_true(old == UINT64_C(0x0102030405060708));
    assert_true(w.at[3] == UINT64_C(0x1102030405060709));
    GIVES(WEFT_OK, atomic_end(p, w.r, 3, WEFT_ATOMIC_ADD, WEFT_I64, (uint64_t)-9, 0, NULL));
    assert_true(w.at[3] == UINT64_C(0x1102030405060700));
    GIVES(WEFT_OK, atomic_end(p, w.r, 3, WEFT_ATOMIC_CAS, WEFT_U64, 5, 4, &old));
    assert_true(old == UINT64_C(0x1102030405060700) && w.at[3] == old);
    GIVES(WEFT_OK, atomic_end(p, w.r, 3, WEFT_ATOMIC_CAS, WEFT_U64, 5, old, &old));
    assert_true(old == UINT64_C(0x1102030405060700) && w.at[3] == 5);
    GIVES(WEFT_OK, atomic_end(p, w.r, 3, WEFT_ATOMIC_CAS, WEFT_I64, 6, 5, NULL));
    assert_int_equal(w.at[3], 6);
    GIVES(WEFT_PENDING, weft_atomic(w.r, 24, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, NULL, NULL));
    GIVES(WEFT_OK, flush_end(p, w.r->peer));
    assert_int_equal(w.at[3], 7);
    assert_true(!w.at[2] && !w.at[4]);
    GIVES(WEFT_OK, atomic_end(p, w.r, WORDS - 1, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &old));
    assert_true(!old && w.at[WORDS - 1] == 1);
    w.at[5] = 40;
    arrays_by_nic(p, &w);
    pair_quiet(p);
    assert_int_equal(pair_stat(p, "ATOMIC_NIC") - nic, 7 + 5);
    assert_int_equal(pair_stat(p, "ATOMIC_SENT"), sent);
    words_close(&w);
}

/* Fails when: a processor does one, a right is not needed, or another error is given. */
void test_atomic_refused(void **state)
{
    static const uint64_t rights[] = {WEFT_REMOTE_READ, WEFT_REMOTE_WRITE, 0};
    struct pair *p = *state;
    struct weft_remote *by_key, *own;
    struct weft_path path;
    struct weft_peer *self;
    struct weft_mr *mr = NULL;
    uint64_t old = 1;
    struct words w;
    if (!words_open(p, &w))
        return;
    for (unsigned operation = WEFT_ATOMIC_ADD; operation <= WEFT_ATOMIC_CAS; operation++)
        for (unsigned type = WEFT_U64; type <= WEFT_I32; type++)
            if (type >= WEFT_U32 || (operation != WEFT_ATOMIC_ADD && operation != WEFT_ATOMIC_CAS))
                GIVES(WEFT_ENOSYS, atomic_end(p, w.r, 0, operation, type, 1, 0, &old));
    GIVES(WEFT_ENOSYS, signal_end(p, w.r, 64, &old, 8, w.r, 0, 1, WEFT_SIGNAL_ADD));
    GIVES(WEFT_ENOSYS, signal_end(p, w.r, 64, &old, 0, w.r, 0, 1, WEFT_SIGNAL_SET));
    GIVES(WEFT_EINVAL, weft_atomic(w.r, 4, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &old, NULL));
    GIVES(WEFT_ERANGE, weft_atomic(w.r, 8 * WORDS, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &old, NULL));
    OK(weft_remote_open_key(p->peer[other(p, 1)], KEY, &by_key));
    GIVES(WEFT_ENOSYS, atomic_end(p, by_key, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &old));
    GIVES(WEFT_ENOSYS, atomic_end(p, by_key, 0, WEFT_ATOMIC_SWAP, WEFT_U64, 1, 0, &old));
    arrays_refused(p, &w, by_key);
    OK(weft_remote_close(by_key));
    self = peer_to(p->ep[1], p->ep[1]);
    own = words_remote(self, w.mr);
    GIVES(WEFT_ENOSYS, atomic_end(p, own, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &old));
    GIVES(WEFT_ENOSYS, weft_path_of(self, WEFT_OP_ATOMIC, own, 8, &path));
    GIVES(WEFT_OK, put_end(p, own, 8, &old, 8)); /* these go as ever */
    OK(weft_remote_close(own));
    OK(weft_remote_open_key(self, KEY, &own));
    GIVES(WEFT_ENOSYS, atomic_end(p, own, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &old));
    OK(weft_remote_close(own));
    OK(weft_peer_close(self));
    assert_true(old == 1 && w.at[0] == 0 && w.at[1] == 1 && w.at[8] == 0);
    OK(weft_mr_close(w.mr));
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++)
        GIVES(WEFT_EINVAL, words_reg(p, w.at, rights[i], WEFT_MR_NIC_ATOMICS, &mr));
    GIVES(WEFT_EINVAL, words_reg(p, w.at, RW, WEFT_MR_NIC_ATOMICS | WEFT_MR_EVENT, &mr));
    GIVES(WEFT_EINVAL, words_reg(p, w.at, RW, WEFT_MR_NIC_ATOMICS | WEFT_MR_PMEM, &mr));
    GIVES(WEFT_EINVAL,
          weft_mr_reg(p->ctx[1], (char *)w.at + 4, 64, RW, 0, 9, WEFT_MR_NIC_ATOMICS, &mr, NULL));
    OK(words_reg(p, w.at, RW, 0, &w.mr)); /* nothing was left of them */
    words_close(&w);
}

/* Fails when: a region that is closed is changed, a key of before a refresh is, or one of
 * afterwards is not. */
void test_atomic_closed(void **state)
{
    struct pair *p = *state;
    struct weft_remote *again;
    uint64_t old = 1;
    struct words w;
    if (!words_open(p, &w))
        return;
    GIVES(WEFT_OK, atomic_end(p, w.r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 5, 0, &old));
    OK(weft_mr_refresh(w.mr, NULL, 0, 0));
    again = words_remote(w.r->peer, w.mr);
    for (int i = 0; i < 2; i++) { /* the second time without the NIC */
        GIVES(WEFT_EKEY, atomic_end(p, w.r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &old));
        GIVES(WEFT_OK, atomic_end(p, again, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, &old));
        assert_int_equal(old, 5 + i);
    }
    OK(weft_mr_close(w.mr));
    w.mr = NULL;
    for (int i = 0; i < 2; i++)
        GIVES(WEFT_EKEY, atomic_end(p, again, 0, WEFT_ATOMIC_CAS, WEFT_U64, 9, 7, NULL));
    assert_int_equal(w.at[0], 7);
    assert_int_equal(p->downs[0] + p->downs[1], 0);
    OK(weft_remote_close(again));
    words_close(&w);
}

/* ---- many at once ---- */

#define ADDERS 4
#define UNDER_WAY 24
#define ADDS 600      /* of each */
#define MOST 1000000u /* where connections break */
#define BREAKS 8

/* An endpoint that adds to word 0. What ended how. */
struct adder {
    struct weft_ep *ep;
    struct weft_peer *peer;
    struct weft_remote *r;
    struct weft_op ops[UNDER_WAY];
    uint64_t fetched[UNDER_WAY];
    bool fetches[UNDER_WAY], is_used[UNDER_WAY];
    unsigned begun, done, lost, undone;
    unsigned most;
    unsigned char *seen; /* [ADDERS * most] old values, of all: none comes twice */
};

static void one_over(struct adder *a, int i)
{
    enum weft_status status = (enum weft_status)a->ops[i].status;
    a->is_used[i] = false;
    if (status == WEFT_OK) {
        a->done++;
        if (a->fetches[i]) {
            assert_true(a->fetched[i] < ADDERS * (uint64_t)MOST);
            assert_int_equal(a->seen[a->fetched[i]]++, 0);
        }
    } else if (status == WEFT_ELOST) {
        a->lost++;
    } else { /* not done: its connection goes by TCP meanwhile */
        GIVES(WEFT_EUNREACH, status);
        a->undone++;
    }
}

static void one_begin(struct adder *a, int i)
{
    enum weft_status status;
    a->fetches[i] = a->begun % 3 != 0;
    a->ops[i] = (struct weft_op){.status = WEFT_OK};
    status = weft_atomic(a->r, 0, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0,
                         a->fetches[i] ? &a->fetched[i] : NULL, &a->ops[i]);
    if (status == WEFT_EUNREACH || status == WEFT_AGAIN)
        return;
    GIVES(WEFT_PENDING, status);
    a->is_used[i] = true;
    a->begun++;
}

/* False: all it had to do is over. */
static bool adder_turn(struct adder *a)
{
    bool any = false;
    (void)weft_ep_poll(a->ep);
    for (int i = 0; i < UNDER_WAY; i++) {
        if (a->is_used[i] && a->ops[i].status != WEFT_PENDING)
            one_over(a, i);
        if (!a->is_used[i] && a->begun < a->most)
            one_begin(a, i);
        any |= a->is_used[i];
    }
    return any || a->begun < a->most;
}

/* The owner's own other endpoint is one of them. */
static void adders_open(struct pair *p, const struct words *w, struct adder *a, unsigned most)
{
    unsigned char *seen = calloc(ADDERS, most);
    memset(a, 0, ADDERS * sizeof *a);
    for (int i = 0; i < ADDERS; i++) {
        OK(weft_ep_open(p->ctx[i == 1], NULL, &a[i].ep));
        a[i].peer = peer_to(a[i].ep, p->ep[1]);
        a[i].r = words_remote(a[i].peer, w->mr);
        a[i].most = most;
        a[i].seen = seen;
    }
}

static void adders_close(struct pair *p, struct adder *a)
{
    pair_quiet(p);
    free(a->seen);
    for (int i = 0; i < ADDERS; i++) {
        OK(weft_remote_close(a[i].r));
        OK(weft_peer_close(a[i].peer));
        OK(weft_ep_close(a[i].ep));
    }
}

static bool adders_turn(struct adder *a)
{
    bool any = false;
    for (int i = 0; i < ADDERS; i++)
        any |= adder_turn(&a[i]);
    return any;
}

static unsigned all_done(const struct adder *a)
{
    unsigned n = 0;
    for (int i = 0; i < ADDERS; i++)
        n += a[i].done;
    return n;
}

/* Fails when: of additions to one word, of several endpoints at once, one is lost, done twice, or
 * is told a value that another was told. */
void test_atomic_many(void **state)
{
    struct pair *p = *state;
    struct adder a[ADDERS];
    struct words w;
    if (!words_open(p, &w))
        return;
    adders_open(p, &w, a, ADDS);
    UNTIL(p, !adders_turn(a));
    assert_int_equal(all_done(a), ADDERS * ADDS);
    assert_int_equal(w.at[0], ADDERS * ADDS);
    adders_close(p, a);
    words_close(&w);
}

/* One of them, and so its queue pair. */
static void one_break(unsigned which)
{
    int fds[64], n = test_connections(fds, 64);
    if (n)
        (void)shutdown(fds[which % (unsigned)n], SHUT_RDWR);
}

/* How often connections broke, since then. */
static uint64_t breaks_since(const struct pair *p, uint64_t before)
{
    return pair_stat(p, "TCP_BREAKS") - before;
}

/* One turn of all, which breaks a connection when some work was done since the last; enough of
 * that, and they come to an end. False: they have. */
static bool breaking_turn(struct pair *p, struct adder *a, uint64_t before, unsigned *tries,
                          unsigned *at)
{
    uint64_t broke = breaks_since(p, before);
    bool any = adders_turn(a);
    for (int i = 0; i < ADDERS; i++)
        if (broke >= BREAKS && a[i].most == MOST)
            a[i].most = a[i].begun;
    for (unsigned i = 0; i < *tries % 3; i++) /* now the one side sees it first, now the other */
        pair_poll(p);
    if (broke < BREAKS && *tries <= broke && all_done(a) > *at + 100) {
        *at = all_done(a);
        one_break((*tries)++);
    }
    return any;
}

/* Fails when: an addition whose connection breaks is done twice, or told to be done when it was
 * not, or is never over. */
void test_atomic_breaks(void **state)
{
    struct pair *p = *state;
    struct adder a[ADDERS];
    uint64_t sum = 0, done = 0, lost = 0, undone = 0, begun = 0, before;
    unsigned tries = 0, at = 0;
    struct words w;
    if (!words_open(p, &w))
        return;
    adders_open(p, &w, a, MOST);
    before = pair_stat(p, "TCP_BREAKS");
    UNTIL(p, !breaking_turn(p, a, before, &tries, &at));
    sum = w.at[0];
    for (int i = 0; i < ADDERS; i++) {
        begun += a[i].begun;
        done += a[i].done;
        lost += a[i].lost;
        undone += a[i].undone;
    }
    print_message("# %llu done, %llu lost, %llu not done, sum %llu\n", (unsigned long long)done,
                  (unsigned long long)lost, (unsigned long long)undone, (unsigned long long)sum);
    assert_true(sum >= done && sum <= done + lost);
    assert_int_equal(done + lost + undone, begun);
    assert_true(breaks_since(p, before) >= BREAKS);
    assert_int_equal(p->downs[0] + p->downs[1], 0);
    adders_close(p, a);
    words_close(&w);
}
