/* SPDX-License-Identifier: BSD-3-Clause */
/* Every refusal that weft.h documents, call by call. Each fails when the check
 * is missing or says something else; all of them, when a refused call changed
 * anything: the pair must still close in order afterwards. */
#include "contract.h"

void test_misuse_ctx(void **state)
{
    struct pair *p = *state;
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    struct weft_ctx *ctx = NULL;
    struct weft_mr *mr;
    GIVES(WEFT_EINVAL, weft_ctx_open(NULL, NULL));
    params.flags = 2;
    GIVES(WEFT_EINVAL, weft_ctx_open(&params, &ctx));
    for (size_t i = 0; i < sizeof params.reserved / sizeof params.reserved[0]; i++) {
        params = (struct weft_ctx_params)WEFT_CTX_PARAMS_INIT;
        params.reserved[i] = 1;
        GIVES(WEFT_EINVAL, weft_ctx_open(&params, &ctx));
    }
    params = (struct weft_ctx_params)WEFT_CTX_PARAMS_INIT;
    params.version = 99 << 16;
    GIVES(WEFT_EVERSION, weft_ctx_open(&params, &ctx));
    params.version = (WEFT_VERSION_MAJOR << 16) | (WEFT_VERSION_MINOR + 1);
    GIVES(WEFT_EVERSION, weft_ctx_open(&params, &ctx));
    params.version = 0;
    GIVES(WEFT_OK, weft_ctx_open(&params, &ctx)); /* 0.0: older, and compatible */
    OK(weft_mem_alloc(ctx, 1, 0, &mr));
    GIVES(WEFT_EBUSY, weft_ctx_close(ctx));
    OK(weft_mr_close(mr));
    GIVES(WEFT_OK, weft_ctx_close(ctx));
    GIVES(WEFT_EINVAL, weft_ctx_close(NULL));
    GIVES(WEFT_EBUSY, weft_ctx_close(p->ctx[0]));
    assert_true(weft_am_max(p->ep[0]) >= 512);
}

static void misuse_ep_params(struct pair *p)
{
    struct weft_ep_params params = WEFT_EP_PARAMS_INIT;
    struct weft_ep *ep = NULL;
    GIVES(WEFT_EINVAL, weft_ep_open(NULL, &params, &ep));
    GIVES(WEFT_EINVAL, weft_ep_open(p->ctx[0], &params, NULL));
    params.flags = 4;
    GIVES(WEFT_EINVAL, weft_ep_open(p->ctx[0], &params, &ep));
    for (size_t i = 0; i < sizeof params.reserved / sizeof params.reserved[0]; i++) {
        params = (struct weft_ep_params)WEFT_EP_PARAMS_INIT;
        params.reserved[i] = 1;
        GIVES(WEFT_EINVAL, weft_ep_open(p->ctx[0], &params, &ep));
    }
    params = (struct weft_ep_params)WEFT_EP_PARAMS_INIT;
    params.version = 99 << 16;
    GIVES(WEFT_EVERSION, weft_ep_open(p->ctx[0], &params, &ep));
    assert_null(ep);
}

static void misuse_address(struct pair *p)
{
    unsigned char addr[WEFT_ADDR_MAX + 1];
    size_t len, full;
    struct weft_peer *peer = NULL;
    len = 0;
    GIVES(WEFT_EMSGSIZE, weft_ep_address(p->ep[0], NULL, &len));
    full = len;
    assert_in_range(full, 1, WEFT_ADDR_MAX);
    len = full - 1;
    GIVES(WEFT_EMSGSIZE, weft_ep_address(p->ep[0], addr, &len));
    assert_int_equal(len, full);
    GIVES(WEFT_EINVAL, weft_ep_address(p->ep[0], NULL, &len));
    GIVES(WEFT_EINVAL, weft_ep_address(p->ep[0], addr, NULL));
    GIVES(WEFT_EINVAL, weft_ep_address(NULL, addr, &len));
    GIVES(WEFT_OK, weft_ep_address(p->ep[0], addr, &len));
    GIVES(WEFT_EINVAL, weft_peer_open(NULL, addr, len, &peer));
    GIVES(WEFT_EINVAL, weft_peer_open(p->ep[0], NULL, len, &peer));
    GIVES(WEFT_EINVAL, weft_peer_open(p->ep[0], addr, len, NULL));
    for (size_t n = 0; n < len; n++)
        GIVES(WEFT_EINVAL, weft_peer_open(p->ep[0], addr, n, &peer));
    addr[0] ^= 0x80;
    GIVES(WEFT_EVERSION, weft_peer_open(p->ep[0], addr, len, &peer));
    memset(addr + 1, 0, len - 1);
    addr[0] ^= 0x80;
    GIVES(WEFT_EINVAL, weft_peer_open(p->ep[0], addr, len, &peer));
    assert_null(peer);
}

void test_misuse_ep(void **state)
{
    struct pair *p = *state;
    uint64_t word = 0;
    misuse_ep_params(p);
    misuse_address(p);
    GIVES(WEFT_EBUSY, weft_ep_close(p->ep[0]));
    GIVES(WEFT_EINVAL, weft_ep_close(NULL));
    assert_int_equal(weft_ep_poll(NULL), WEFT_EINVAL);
    assert_int_equal(weft_ep_wait(NULL, 0), WEFT_EINVAL);
    assert_int_equal(weft_ep_wait(NULL, -1), WEFT_EINVAL);
    assert_int_equal(weft_ep_fd(NULL), WEFT_EINVAL);
    assert_true(weft_ep_fd(p->ep[0]) >= 0);
    GIVES(WEFT_EINVAL, weft_ep_arm(NULL));
    GIVES(WEFT_EINVAL, weft_word_wait(NULL, &word, 0, NULL, 0));
    GIVES(WEFT_EINVAL, weft_word_wait(p->ep[0], NULL, 0, NULL, 0));
    GIVES(WEFT_EINVAL, weft_word_wait(p->ep[0], (void *)((char *)&word + 4), 0, NULL, 0));
    GIVES(WEFT_EINVAL, weft_peer_close(NULL));
    GIVES(WEFT_EINVAL, weft_peer_status(NULL));
    GIVES(WEFT_OK, weft_peer_status(p->peer[0]));
    assert_null(weft_peer_arg(p->peer[0]));
    weft_peer_set_arg(p->peer[0], &word);
    assert_ptr_equal(weft_peer_arg(p->peer[0]), &word);
}

static void nothing(const struct weft_am *am)
{
    ++*(int *)((struct pair *)am->arg)->test;
}

void test_misuse_am(void **state)
{
    struct pair *p = *state;
    size_t max = weft_am_max(p->ep[0]);
    const uint32_t args[17] = {0};
    char *data = calloc(1, max + 1);
    int seen = 0, n = WEFT_AM_MAX_ARGS;
    p->test = &seen;
    GIVES(WEFT_EINVAL, weft_am_register(NULL, 1, nothing, p));
    GIVES(WEFT_EINVAL, weft_am_register(p->ep[0], WEFT_AM_USER_HANDLERS, nothing, p));
    GIVES(WEFT_EINVAL, weft_am_register(p->ep[0], WEFT_AM_HANDLERS, nothing, p));
    GIVES(WEFT_EINVAL, weft_am_register(p->ep[0], UINT32_MAX, nothing, p));
    pair_register(p, WEFT_AM_USER_HANDLERS - 1, nothing);
    GIVES(WEFT_EINVAL, weft_am_request(NULL, 1, NULL, 0, NULL, 0, 0));
    GIVES(WEFT_EINVAL, weft_am_request(p->peer[0], 240, NULL, 0, NULL, 0, 0));
    GIVES(WEFT_EINVAL, weft_am_request(p->peer[0], 256, NULL, 0, NULL, 0, 0));
    GIVES(WEFT_EINVAL, weft_am_request(p->peer[0], 1, args, 17, NULL, 0, 0));
    GIVES(WEFT_EINVAL, weft_am_request(p->peer[0], 1, args, UINT32_MAX, NULL, 0, 0));
    GIVES(WEFT_EINVAL, weft_am_request(p->peer[0], 1, NULL, 1, NULL, 0, 0));
    GIVES(WEFT_EINVAL, weft_am_request(p->peer[0], 1, NULL, 0, NULL, 1, 0));
    GIVES(WEFT_EMSGSIZE, weft_am_request(p->peer[0], 1, NULL, 0, data, max + 1, 0));
    GIVES(WEFT_EMSGSIZE, weft_am_request(p->peer[0], 1, NULL, 0, data, SIZE_MAX, 0));
    GIVES(WEFT_EMSGSIZE, weft_am_request(p->peer[0], 1, NULL, 0, data, (size_t)1 << 32, 0));
    GIVES(WEFT_EMSGSIZE, weft_am_request(p->peer[0], 1, NULL, 0, data, 0, max + 2));
    GIVES(WEFT_EMSGSIZE, weft_am_request(p->peer[0], 1, NULL, 0, data, 0, SIZE_MAX));
    GIVES(WEFT_EMSGSIZE, weft_am_request(p->peer[0], 1, NULL, 0, data, 0, (size_t)1 << 32));
    GIVES(WEFT_EINVAL, weft_am_reply(NULL, 1, NULL, 0, NULL, 0));
    GIVES(WEFT_EINVAL, weft_am_source(NULL, data, &max));
    pair_quiet(p);
    assert_int_equal(seen, 0);
    assert_int_equal(pair_stat(p, "REQUESTS_SENT"), 0);
    OK(weft_am_request(p->peer[0], WEFT_AM_USER_HANDLERS - 1, args, (unsigned)n, data, max,
                       max + 1)); /* the largest of everything */
    UNTIL(p, seen == 1);
    free(data);
}

void test_misuse_mem(void **state)
{
    struct pair *p = *state;
    struct weft_mr *mr = NULL;
    struct weft_remote *r = NULL;
    unsigned char key[WEFT_KEY_MAX];
    size_t len = sizeof key, room;
    GIVES(WEFT_EINVAL, weft_mem_alloc(NULL, 64, 0, &mr));
    GIVES(WEFT_EINVAL, weft_mem_alloc(p->ctx[1], 0, 0, &mr));
    GIVES(WEFT_EINVAL, weft_mem_alloc(p->ctx[1], 64, 64, &mr));
    GIVES(WEFT_EINVAL, weft_mem_alloc(p->ctx[1], 64, ~0u, &mr));
    GIVES(WEFT_EINVAL, weft_mem_alloc(p->ctx[1], 64, 0, NULL));
    GIVES(WEFT_ENOMEM, weft_mem_alloc(p->ctx[1], SIZE_MAX, 0, &mr));
    GIVES(WEFT_ENOMEM, weft_mem_alloc(p->ctx[1], SIZE_MAX / 2, 0, &mr));
    assert_null(mr);
    OK(weft_mem_alloc(p->ctx[1], 64, WEFT_REMOTE_READ, &mr));
    assert_int_equal(weft_mr_length(mr), 64);
    GIVES(WEFT_EBUSY, weft_ctx_close(p->ctx[1]));
    room = 1;
    GIVES(WEFT_EMSGSIZE, weft_mr_key(mr, key, &room));
    GIVES(WEFT_EINVAL, weft_mr_key(mr, NULL, &room));
    GIVES(WEFT_EINVAL, weft_mr_key(mr, key, NULL));
    GIVES(WEFT_EINVAL, weft_mr_key(NULL, key, &room));
    OK(weft_mr_key(mr, key, &len));
    assert_int_equal(len, room);
    GIVES(WEFT_EINVAL, weft_remote_open(NULL, key, len, &r));
    GIVES(WEFT_EINVAL, weft_remote_open(p->peer[0], NULL, len, &r));
    GIVES(WEFT_EINVAL, weft_remote_open(p->peer[0], key, len, NULL));
    assert_null(r);
    OK(weft_remote_open(p->peer[0], key, len, &r));
    GIVES(WEFT_EBUSY, weft_peer_close(p->peer[0]));
    GIVES(WEFT_EBUSY, weft_ep_close(p->ep[0]));
    OK(weft_remote_close(r));
    OK(weft_mr_close(mr));
    GIVES(WEFT_EINVAL, weft_remote_close(NULL));
    GIVES(WEFT_EINVAL, weft_mr_close(NULL));
    GIVES(WEFT_EINVAL, weft_flush(NULL, NULL));
}
