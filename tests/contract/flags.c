/* SPDX-License-Identifier: BSD-3-Clause */
/* weft_op.flags: WEFT_OP_COPIED. The source of an operation is unmapped when its call has returned,
 * so that any later access to it is a fault. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <sys/mman.h>
#include <weft/atomic.h>

#include "contract.h"

#define FULL WEFT_TAG_FULL

enum { MOST = 40, LONG_HANDLER = 30 };

static const size_t sizes[] = {0, 1, 8, 100, 511, 512, 513, 4096, 4097, 8192, 9000, 20000, 32768};
#define SIZES (sizeof sizes / sizeof sizes[0])

static unsigned char *source_new(size_t len, uint64_t id)
{
    void *p = mmap(NULL, len + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    test_fill(p, len, id);
    return p;
}

static size_t length(struct pair *p, uint64_t i)
{
    size_t len = sizes[test_mix(i) % SIZES], most = weft_copied_max(p->ep[0]);
    return len < most ? len : most;
}

/* Send [len] bytes in [pieces] pieces, and unmap them. */
static enum weft_status send_copied(struct pair *p, uint64_t id, size_t len, unsigned pieces,
                                    struct weft_op *op)
{
    unsigned char *src = source_new(len, id);
    struct iovec iov[2] = {{src, len}, {NULL, 0}};
    enum weft_status status;
    if (pieces > 1) {
        iov[0].iov_len = len / 3;
        iov[1] = (struct iovec){src + len / 3, len - len / 3};
    }
    *op = (struct weft_op){.flags = WEFT_OP_COPIED};
    status = weft_msg_sendv(p->peer[0], id, iov, pieces, op);
    munmap(src, len + 1);
    return status;
}

static void receive_is(struct pair *p, uint64_t id, size_t len)
{
    unsigned char *in = malloc(len + 1);
    struct weft_op r = {0};
    GIVES(WEFT_OK, op_end(p, &r, weft_msg_recv(p->ep[1], NULL, id, FULL, in, len, &r)));
    assert_int_equal(r.len, len);
    assert_true(test_same(in, len, id));
    free(in);
}

/* Fails when: a message's source is read after its call, by any way (a receive posted before or
 * later, with and without credit, in one or two pieces, with a connection that breaks), or the
 * message changes. */
void test_copied_send(void **state)
{
    struct pair *p = *state;
    for (unsigned round = 0; round < 6; round++) {
        static struct weft_op s[MOST];
        enum weft_status status[MOST];
        for (unsigned i = 0; i < MOST; i++) {
            uint64_t id = round * MOST + i;
            status[i] = send_copied(p, id, length(p, id), 1 + i % 2, &s[i]);
            assert_true(status[i] == WEFT_OK || status[i] == WEFT_PENDING);
        }
        if (round % 2 && p->setup->network)
            pair_break();
        for (unsigned i = 0; i < MOST; i++)
            receive_is(p, round * MOST + i, length(p, round * MOST + i));
        for (unsigned i = 0; i < MOST; i++)
            GIVES(WEFT_OK, op_end(p, &s[i], status[i]));
    }
}

/* Fails when: the copies of sends take memory without bound, an operation is refused for ever
 * afterwards, or a copy is not given back when its send was cancelled. */
void test_copied_many(void **state)
{
    enum { SENDS = 4000 };
    struct pair *p = *state;
    const size_t len = weft_copied_max(p->ep[0]);
    struct weft_op *s = calloc(SENDS, sizeof *s);
    enum weft_status status = WEFT_OK;
    unsigned n = 0, first = 0, most = (unsigned)(((size_t)40 << 20) / len);
    if (most > SENDS)
        most = SENDS;
    for (unsigned round = 0; round < 2; round++) {
        n = 0;
        for (status = WEFT_OK; n < most && status != WEFT_AGAIN; n += status != WEFT_AGAIN) {
            status = send_copied(p, round * SENDS + n, len, 1, &s[n]);
            assert_true(status >= 0);
            if (status == WEFT_OK)
                assert_int_equal(s[n].status, WEFT_OK);
            pair_poll(p);
        }
        if (len >= 32768)
            GIVES(WEFT_AGAIN, status);
        assert_true(n >= first / 2); /* as many as in the first round, or nearly so */
        first = n;
        for (unsigned i = 0; i < n; i++) {
            if (round == 0 && s[i].status == WEFT_PENDING && i % 3) {
                OK(weft_msg_cancel(p->ep[0], &s[i]));
                continue;
            }
            receive_is(p, round * SENDS + i, len);
            UNTIL(p, s[i].status != WEFT_PENDING);
        }
        pair_quiet(p);
    }
    free(s);
}

/* Fails when: closing a peer with copied operations under way reads their copies later. */
void test_copied_closed(void **state)
{
    struct pair *p = *state;
    struct region g = region_open(p, 1, 40000, RW, 1);
    for (unsigned i = 0; i < 20; i++) {
        struct weft_peer *kept = p->peer[0];
        struct weft_op s[4], put = {.flags = WEFT_OP_COPIED};
        size_t len = length(p, i + 40);
        unsigned char *src = source_new(len, i);
        const struct iovec one = {src, len};
        uint64_t polls = test_mix(i) % 5;
        struct weft_remote *r;
        p->peer[0] = peer_to(p->ep[0], p->ep[1]);
        OK(weft_remote_open(p->peer[0], g.key, g.key_len, &r));
        for (unsigned k = 0; k < 4; k++)
            assert_true(
                send_copied(p, 1000 + i, 32000 % (weft_copied_max(p->ep[0]) + 1), 1, &s[k]) >= 0);
        assert_true(weft_putv(r, 0, &one, 1, &put) >= 0);
        munmap(src, len + 1);
        while (polls--)
            pair_poll(p);
        OK(weft_remote_close(r));
        OK(weft_peer_close(p->peer[0]));
        assert_true(put.status == WEFT_OK || put.status == WEFT_ECANCELED);
        for (unsigned k = 0; k < 4; k++)
            assert_true(s[k].status == WEFT_OK || s[k].status == WEFT_ECANCELED);
        p->peer[0] = kept;
    }
    pair_quiet(p);
    region_close(&g);
}

static unsigned char *ran_at;

static void on_long(const struct weft_am *am)
{
    EXPECT(am->nargs == 1 && test_same(am->data, (size_t)am->long_len, am->args[0]));
    ran_at = (unsigned char *)(uintptr_t)am->data;
}

/* Fails when: a put, an atomic or a long message reads its source after its call, or changes it. */
void test_copied_rma(void **state)
{
    struct pair *p = *state;
    pair_register(p, LONG_HANDLER, on_long);
    for (unsigned own = 0; own < 2; own++) {
        struct region g = region_open(p, 1, 40000, RW, (int)own);
        for (unsigned i = 0; i < 40; i++) {
            size_t len = length(p, i), half = len / 2;
            unsigned char *src = source_new(len, i), *add;
            struct iovec iov[2] = {{src, half}, {src + half, len - half}};
            /* the atomic waits for the others, so it needs its copy */
            struct weft_op op = {.flags = WEFT_OP_COPIED}, lop = op,
                           aop = {.flags = WEFT_OP_COPIED | WEFT_OP_FENCED};
            uint64_t v[2] = {i, i + 1}, old[2] = {0}, was[2];
            const uint32_t arg = i;
            enum weft_status status = weft_putv(g.r, 64, iov, 2, &op), l, a;
            ran_at = NULL;
            l = weft_am_long(g.r, 64, src, len, LONG_HANDLER, &arg, 1, 0, &lop);
            munmap(src, len + 1);
            memcpy(was, g.base, sizeof was);
            add = source_new(sizeof v, 0);
            memcpy(add, v, sizeof v);
            a = weft_atomic_array(g.r, 0, WEFT_DO_SUM, WEFT_KIND_UINT64, 2, add, NULL, old, &aop);
            munmap(add, sizeof v + 1);
            if (i % 8 == 7 && p->setup->network)
                pair_break();
            GIVES(WEFT_OK, op_end(p, &op, status));
            GIVES(WEFT_OK, op_end(p, &lop, l));
            GIVES(WEFT_OK, op_end(p, &aop, a));
            UNTIL(p, ran_at != NULL);
            assert_true(test_same(g.base + 64, len, i));
            assert_memory_equal(old, was, sizeof old);
            for (unsigned k = 0; k < 2; k++) {
                uint64_t now;
                memcpy(&now, g.base + 8 * k, 8);
                assert_int_equal(now, was[k] + v[k]);
            }
        }
        region_close(&g);
    }
}

/* Fails when: a flag of another operation, an unknown one, or a source that is too long is taken.
 */
void test_flags_refused(void **state)
{
    struct pair *p = *state;
    size_t most = weft_copied_max(p->ep[0]);
    struct region g = region_open(p, 1, most + 1, RW, 1);
    unsigned char *buf = calloc(1, most + 1);
    const struct weft_msg_head head = {1, 0, 0, 0};
    const struct iovec one = {buf, most + 1}, few = {buf, 8};
    struct weft_op op = {.flags = WEFT_OP_COPIED}, odd = {.flags = 1u << 20};
    uint64_t old;
    assert_true(most >= weft_am_max(p->ep[0]) && weft_copied_max(NULL) == 0);
    GIVES(WEFT_EMSGSIZE, weft_msg_sendv(p->peer[0], 1, &one, 1, &op));
    GIVES(WEFT_EMSGSIZE, weft_msg_post_send(p->peer[0], &head, &one, 1, &op));
    GIVES(WEFT_EMSGSIZE, weft_putv(g.r, 0, &one, 1, &op));
    GIVES(WEFT_EMSGSIZE, weft_am_long(g.r, 0, buf, most + 1, 1, NULL, 0, 0, &op));
    GIVES(WEFT_EINVAL, weft_getv(g.r, 0, &few, 1, &op));
    GIVES(WEFT_EINVAL, weft_msg_sendv(p->peer[0], 1, &few, 1, &odd));
    GIVES(WEFT_EINVAL, weft_putv(g.r, 0, &few, 1, &odd));
    GIVES(WEFT_EINVAL, weft_getv(g.r, 0, &few, 1, &odd));
    GIVES(WEFT_EINVAL, weft_am_long(g.r, 0, buf, 8, 1, NULL, 0, 0, &odd));
    GIVES(WEFT_EINVAL,
          weft_atomic_array(g.r, 0, WEFT_DO_SUM, WEFT_KIND_UINT64, 1, buf, NULL, &old, &odd));
    assert_int_equal(op.status, 0);
    free(buf);
    region_close(&g);
}
