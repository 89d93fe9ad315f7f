/* SPDX-License-Identifier: BSD-3-Clause */
/* What becomes of failures of Weft's that pass, and that no test can cause in time: too many
 * operations, a sender that cannot be answered, no memory for a report. The program is exported to
 * the libraries that it loads, so its functions are in place of Weft's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <weft/msg.h>
#include <weft/weft.h>

#include "sides.h"

enum { KEY = 7 };

static const enum fi_threading models[] = {FI_THREAD_DOMAIN, FI_THREAD_SAFE};
enum { MODELS = sizeof models / sizeof *models };

static char out[16] = "weft", in[16], target[64];

/* ---- calls of the provider's ---- */

/* The next [times] calls of [name] return [status]. */
static struct {
    const char *name;
    enum weft_status status;
    unsigned times;
} fault;
static bool lost; /* peers are lost by ELIMIT */

static void fault_set(const char *name, enum weft_status status, unsigned times)
{
    fault.name = name;
    fault.status = status;
    fault.times = times;
}

static bool fails(const char *name)
{
    return fault.times && !strcmp(fault.name, name) && fault.times--;
}

static void *weft_symbol(const char *name)
{
    void *weft = dlopen("libweft.so.0", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = weft ? dlsym(weft, name) : NULL;
    assert_non_null(symbol);
    return symbol;
}

/* Call the function of Weft's, unless this call is to fail. */
#define PASS(function, ...)                                                                        \
    do {                                                                                           \
        __typeof__(&(function)) real_;                                                             \
        if (fails(#function))                                                                      \
            return fault.status;                                                                   \
        *(void **)&real_ = weft_symbol(#function);                                                 \
        return real_(__VA_ARGS__);                                                                 \
    } while (0)

enum weft_status weft_peer_status(const struct weft_peer *peer)
{
    if (lost)
        return WEFT_ELIMIT;
    PASS(weft_peer_status, peer);
}

enum weft_status weft_get_slow_(struct weft_remote *r, uint64_t offset, void *dst, size_t len,
                                struct weft_op *op)
{
    PASS(weft_get_slow_, r, offset, dst, len, op);
}

enum weft_status weft_putv(struct weft_remote *r, uint64_t offset, const struct iovec *iov,
                           unsigned count, struct weft_op *op)
{
    PASS(weft_putv, r, offset, iov, count, op);
}

enum weft_status weft_am_request(struct weft_peer *peer, unsigned handler, const uint32_t *args,
                                 unsigned nargs, const void *data, size_t len, size_t reply_max)
{
    PASS(weft_am_request, peer, handler, args, nargs, data, len, reply_max);
}

enum weft_status weft_msg_recv(struct weft_ep *ep, struct weft_peer *source, uint64_t tag,
                               uint64_t mask, void *buf, size_t len, struct weft_op *op)
{
    PASS(weft_msg_recv, ep, source, tag, mask, buf, len, op);
}

enum weft_status weft_msg_post_recv(struct weft_ep *ep, const struct weft_msg_filter *filter,
                                    const struct iovec *iov, unsigned count, struct weft_op *op)
{
    PASS(weft_msg_post_recv, ep, filter, iov, count, op);
}

enum weft_status weft_msg_drop(struct weft_ep *ep, struct weft_msg *msg)
{
    PASS(weft_msg_drop, ep, msg);
}

/* ---- tests ---- */

static struct how how_of(unsigned model)
{
    return (struct how){.threading = models[model]};
}

static struct fid_mr *region(void)
{
    struct fid_mr *mr;
    assert_int_equal(fi_mr_reg(b.domain, target, sizeof target, FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
                               KEY, 0, &mr, NULL),
                     0);
    return mr;
}

static ssize_t read_one(void)
{
    return fi_read(a.ep, in, 8, NULL, a.other, 0, KEY, in);
}

/* Fails when: too many operations under way are a failure of an access, in its call or, of one in
 * several parts or with data, in its entry; or when a peer that is lost by ELIMIT is retried. */
static void access_test(void **state)
{
    const struct iovec iov = {out, 16};
    const struct fi_rma_iov rma[] = {{0, 8, KEY}, {32, 8, KEY}};
    (void)state;
    for (unsigned i = 0; i < MODELS; i++) {
        const struct how how = how_of(i);
        struct fid_mr *mr;
        struct fi_msg_rma m = {
            .msg_iov = &iov, .iov_count = 1, .rma_iov = rma, .rma_iov_count = 2, .data = 99};
        open_both(&how);
        mr = region();
        m.addr = a.other;
        fault_set("weft_get_slow_", WEFT_ELIMIT, 3);
        for (unsigned n = 0; n < 2; n++)
            assert_int_equal(read_one(), -FI_EAGAIN);
        lost = true;
        assert_int_equal(read_one(), -FI_ENOBUFS);
        lost = false;
        RETRY(read_one());
        assert_ptr_equal(take(&a).op_context, in);
        memset(target, 0, sizeof target);
        for (unsigned n = 0; n < 2; n++) {
            fault_set(n ? "weft_am_request" : "weft_putv", WEFT_ELIMIT, 3);
            m.context = &target[n];
            RETRY(fi_writemsg(a.ep, &m, FI_COMPLETION | FI_REMOTE_CQ_DATA));
            assert_ptr_equal(take(&a).op_context, &target[n]);
            assert_int_equal(take(&b).data, 99);
            assert_int_equal(fault.times, 0);
            assert_memory_equal(target, out, 8);
            assert_memory_equal(target + 32, out + 8, 8);
        }
        assert_int_equal(fi_close(&mr->fid), 0);
        close_both();
    }
}

/* Fails when: too many receives, or a sender that cannot be answered now, are failures of a receive
 * for good. */
static void receive_test(void **state)
{
    static const enum weft_status passing[] = {WEFT_ELIMIT, WEFT_ESYSTEM};
    (void)state;
    for (unsigned i = 0; i < MODELS; i++) {
        const struct how how = how_of(i);
        open_both(&how);
        for (unsigned n = 0; n < 2; n++) {
            fault_set("weft_msg_recv", passing[n], 1);
            assert_int_equal(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in), -FI_EAGAIN);
            fault_set("weft_msg_post_recv", passing[n], 1);
            assert_int_equal(fi_recv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, in), -FI_EAGAIN);
        }
        RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in));
        RETRY(fi_tinject(a.ep, out, 8, a.other, 1));
        assert_ptr_equal(take(&b).op_context, in);
        nothing(&b);
        close_both();
    }
}

/* Claim a message of a's, with the context [in]. */
static void claim(void)
{
    const struct fi_msg_tagged m = {.addr = FI_ADDR_UNSPEC, .tag = 5, .context = in};
    struct fi_cq_tagged_entry e;
    struct fi_cq_err_entry none = {0};
    uint64_t deadline = now_ms() + WAIT_MS;
    ssize_t n = 0;
    RETRY(fi_tinject(a.ep, out, 8, a.other, 5));
    while (n != 1) {
        RETRY(fi_trecvmsg(b.ep, &m, FI_PEEK | FI_CLAIM | FI_COMPLETION));
        while ((n = fi_cq_read(b.cq, &e, 1)) == -FI_EAGAIN && now_ms() < deadline)
            turn();
        assert_true(n == 1 || fi_cq_readerr(b.cq, &none, 0) == 1);
        assert_true(now_ms() < deadline);
        turn();
    }
}

/* Fails when: an endpoint with a claimed message that cannot be dropped now can never be closed, or
 * does not work after the attempt. */
static void close_test(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MODELS; i++) {
        const struct how how = how_of(i);
        open_both(&how);
        claim();
        fault_set("weft_msg_drop", WEFT_ENOMEM, 1);
        assert_int_equal(fi_close(&b.ep->fid), -FI_ENOMEM);
        RETRY(fi_trecv(b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, in));
        RETRY(fi_tinject(a.ep, out, 8, a.other, 1));
        assert_ptr_equal(take(&b).op_context, in);
        close_both();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(access_test),
        cmocka_unit_test(receive_test),
        cmocka_unit_test(close_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
