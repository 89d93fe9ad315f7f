/* SPDX-License-Identifier: BSD-3-Clause */
#include "sides.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct side a, b;

uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

bool over_network(void)
{
    const char *transports = getenv("WEFT_TRANSPORTS");
    return transports && !strstr(transports, "shm");
}

static enum fi_threading model;

void model_set(int argc, char **argv)
{
    if (argc > 1)
        model = strcmp(argv[1], "domain") ? FI_THREAD_COMPLETION : FI_THREAD_DOMAIN;
}

struct fi_info *hints_new(const struct how *how)
{
    struct fi_info *h = fi_allocinfo();
    assert_non_null(h);
    h->caps = how->caps;
    h->addr_format = how->addr_format;
    h->ep_attr->type = FI_EP_RDM;
    h->fabric_attr->prov_name = strdup("weft");
    h->tx_attr->op_flags = how->tx_flags;
    h->tx_attr->msg_order = h->rx_attr->msg_order = how->order;
    h->rx_attr->op_flags = how->rx_flags;
    h->domain_attr->threading = how->threading ? how->threading : model;
    h->domain_attr->data_progress = how->progress;
    h->domain_attr->av_type = how->av_type;
    h->domain_attr->mr_mode = how->mr_mode;
    h->domain_attr->auth_key_size = 32; /* by it the contexts trust each other over TCP */
    h->domain_attr->auth_key = malloc(32);
    assert_non_null(h->domain_attr->auth_key);
    memset(h->domain_attr->auth_key, 7, 32);
    return h;
}

static void counters_open(struct side *s)
{
    static const uint64_t ways[4] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE};
    for (int i = 0; i < 4; i++) {
        struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
        assert_int_equal(fi_cntr_open(s->domain, &attr, &s->cntr[i], NULL), 0);
        assert_int_equal(fi_ep_bind(s->ep, &s->cntr[i]->fid, ways[i]), 0);
    }
}

void side_open(struct side *s, const struct how *how)
{
    struct fi_info *h = hints_new(how);
    struct fi_av_attr av = {.type = how->av_type, .rx_ctx_bits = how->rx_ctx_bits};
    struct fi_cq_attr cq = {.format = how->format ? how->format : FI_CQ_FORMAT_TAGGED,
                            .wait_obj = how->wait_obj,
                            .wait_cond = how->wait_cond};
    memset(s, 0, sizeof *s);
    assert_int_equal(fi_getinfo(how->version ? how->version : API, how->node, how->service,
                                how->node || how->service ? FI_SOURCE : 0, h, &s->info),
                     0);
    fi_freeinfo(h);
    assert_int_equal(fi_fabric(s->info->fabric_attr, &s->fabric, NULL), 0);
    assert_int_equal(fi_domain(s->fabric, s->info, &s->domain, NULL), 0);
    assert_int_equal(fi_av_open(s->domain, &av, &s->av, NULL), 0);
    if (!how->no_queue)
        assert_int_equal(fi_cq_open(s->domain, &cq, &s->cq, NULL), 0);
    assert_int_equal(fi_endpoint(s->domain, s->info, &s->ep, NULL), 0);
    assert_int_equal(fi_ep_bind(s->ep, &s->av->fid, 0), 0);
    if (s->cq)
        assert_int_equal(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV | how->bind_flags),
                         0);
    if (how->counters)
        counters_open(s);
    assert_int_equal(fi_enable(s->ep), 0);
}

void side_close(struct side *s)
{
    if (s->ep)
        assert_int_equal(fi_close(&s->ep->fid), 0);
    for (int i = 0; i < 4; i++)
        if (s->cntr[i])
            assert_int_equal(fi_close(&s->cntr[i]->fid), 0);
    if (s->cq)
        assert_int_equal(fi_close(&s->cq->fid), 0);
    if (s->av)
        assert_int_equal(fi_close(&s->av->fid), 0);
    if (s->domain)
        assert_int_equal(fi_close(&s->domain->fid), 0);
    if (s->fabric)
        assert_int_equal(fi_close(&s->fabric->fid), 0);
    fi_freeinfo(s->info);
    memset(s, 0, sizeof *s);
}

static fi_addr_t insert(struct side *s, struct side *of)
{
    uint8_t name[64];
    size_t len = sizeof name;
    fi_addr_t addr = FI_ADDR_NOTAVAIL;
    assert_int_equal(fi_getname(&of->ep->fid, name, &len), 0);
    assert_int_equal(len, of->info->src_addrlen);
    assert_int_equal(fi_av_insert(s->av, name, 1, &addr, 0, NULL), 1);
    return addr;
}

void open_both(const struct how *how)
{
    side_open(&a, how);
    side_open(&b, how);
    if (!how->strangers)
        sides_meet();
}

void sides_meet(void)
{
    /* Not the same index on both sides: a mistaken one is noticed. */
    a.self = insert(&a, &a);
    a.other = insert(&a, &b);
    b.other = insert(&b, &a);
    b.self = insert(&b, &b);
}

void close_both(void)
{
    side_close(&a);
    side_close(&b);
}

static void poll_one(struct side *s)
{
    if (s->cq)
        (void)fi_cq_read(s->cq, NULL, 0);
    else if (s->cntr[0])
        (void)fi_cntr_read(s->cntr[0]);
}

void turn(void)
{
    poll_one(&a);
    poll_one(&b);
}

struct fi_cq_tagged_entry take_from(struct side *s, fi_addr_t *source)
{
    struct fi_cq_tagged_entry e;
    uint64_t end = now_ms() + WAIT_MS;
    ssize_t n;
    memset(&e, 0xee, sizeof e);
    while ((n = fi_cq_readfrom(s->cq, &e, 1, source)) == -FI_EAGAIN && now_ms() < end)
        turn();
    if (n == -FI_EAVAIL) {
        struct fi_cq_err_entry err = {0};
        char text[128];
        (void)fi_cq_readerr(s->cq, &err, 0);
        print_error("error %s: %s\n", fi_strerror(err.err),
                    fi_cq_strerror(s->cq, err.prov_errno, err.err_data, text, sizeof text));
    }
    assert_int_equal(n, 1);
    return e;
}

struct fi_cq_tagged_entry take(struct side *s)
{
    return take_from(s, NULL);
}

struct fi_cq_err_entry take_error(struct side *s)
{
    struct fi_cq_tagged_entry e;
    struct fi_cq_err_entry err;
    uint64_t end = now_ms() + WAIT_MS;
    ssize_t n;
    memset(&err, 0, sizeof err);
    while ((n = fi_cq_read(s->cq, &e, 1)) == -FI_EAGAIN && now_ms() < end)
        turn();
    assert_int_equal(n, -FI_EAVAIL);
    assert_int_equal(fi_cq_readerr(s->cq, &err, 0), 1);
    return err;
}

void nothing(struct side *s)
{
    struct fi_cq_tagged_entry e;
    for (int i = 0; i < 2000; i++) {
        turn();
        assert_int_equal(fi_cq_read(s->cq, &e, 1), -FI_EAGAIN);
    }
}

void counted(struct side *s, int i, uint64_t n)
{
    uint64_t end = now_ms() + WAIT_MS;
    while (fi_cntr_read(s->cntr[i]) < n && now_ms() < end)
        turn();
    assert_int_equal(fi_cntr_read(s->cntr[i]), n);
}

void fill(void *buf, size_t len, unsigned seed)
{
    uint8_t *p = buf;
    for (size_t i = 0; i < len; i++)
        p[i] = (uint8_t)(seed * 131 + i * 7 + (i >> 8));
}

void check(const void *buf, size_t len, unsigned seed)
{
    const uint8_t *p = buf;
    for (size_t i = 0; i < len; i++)
        if (p[i] != (uint8_t)(seed * 131 + i * 7 + (i >> 8)))
            fail_msg("byte %zu of %zu is %u", i, len, p[i]);
}
