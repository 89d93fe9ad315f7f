/* SPDX-License-Identifier: BSD-3-Clause */
/* fi_getinfo(3): what is granted and what is refused. It opens nothing, so one process suffices. */
#include "sides.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

static struct fi_info *hints, *info;

static int setup(void **state)
{
    (void)state;
    hints = fi_allocinfo();
    hints->fabric_attr->prov_name = strdup("weft");
    info = NULL;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fi_freeinfo(info);
    fi_freeinfo(hints);
    return 0;
}

static int ask_as(uint32_t version)
{
    fi_freeinfo(info);
    info = NULL;
    return fi_getinfo(version, NULL, NULL, 0, hints, &info);
}

static void granted(void)
{
    assert_int_equal(ask_as(API), 0);
    assert_string_equal(info->fabric_attr->prov_name, "weft");
    assert_null(info->next);
}

static void refused(void)
{
    assert_int_equal(ask_as(API), -FI_ENODATA);
}

static void answer_test(void **state)
{
    (void)state;
    granted();
    assert_int_equal(info->ep_attr->type, FI_EP_RDM);
    assert_string_equal(info->fabric_attr->name, "weft");
    assert_string_equal(info->domain_attr->name, "weft");
    assert_non_null(info->src_addr);
    assert_int_equal(info->src_addrlen, 64);
    assert_null(info->dest_addr);
    assert_int_equal(info->mode, 0);
    assert_int_equal(info->domain_attr->cq_data_size, 8);
    assert_true(info->ep_attr->mem_tag_format >> 63);
    assert_true(info->caps & FI_MSG && info->caps & FI_RMA && info->caps & FI_TAGGED &&
                info->caps & FI_ATOMIC && info->caps & FI_DIRECTED_RECV);
    assert_int_equal(info->domain_attr->threading, FI_THREAD_SAFE);
    assert_int_equal(info->domain_attr->data_progress, FI_PROGRESS_MANUAL);
    assert_true(info->tx_attr->inject_size >= 512 && info->tx_attr->inject_size < 1u << 20);
    /* Every limit is a number. */
    assert_true(info->ep_attr->max_msg_size <= (size_t)1 << 62);
    assert_true(info->tx_attr->size && info->tx_attr->size < SIZE_MAX / 2);
    assert_true(info->rx_attr->size && info->rx_attr->size < SIZE_MAX / 2);
}

static void caps_test(void **state)
{
    static const uint64_t unknown[] = {FI_MULTICAST,    FI_COLLECTIVE, FI_TRIGGER,
                                       FI_VARIABLE_MSG, FI_HMEM,       FI_RMA_EVENT,
                                       1ull << 43,      1ull << 44,    1ull << 60};
    (void)state;
    hints->caps = FI_TAGGED;
    granted();
    /* No primary one that was not asked for. */
    assert_false(info->caps & (FI_MSG | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_SOURCE_ERR));
    assert_int_equal(info->caps & (FI_SEND | FI_RECV), FI_SEND | FI_RECV);
    hints->caps = FI_RMA;
    granted();
    assert_true(info->caps & FI_READ && info->caps & FI_REMOTE_WRITE);
    assert_false(info->tx_attr->caps & (FI_REMOTE_READ | FI_REMOTE_WRITE));
    assert_false(info->rx_attr->caps & (FI_READ | FI_WRITE));
    hints->caps = FI_RMA | FI_READ;
    granted();
    assert_false(info->caps & (FI_WRITE | FI_REMOTE_READ));
    for (unsigned i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        hints->caps = FI_MSG | unknown[i];
        refused();
    }
}

static void endpoints_test(void **state)
{
    (void)state;
    hints->ep_attr->type = FI_EP_MSG;
    refused();
    hints->ep_attr->type = FI_EP_DGRAM;
    refused();
    hints->ep_attr->type = FI_EP_RDM;
    granted();
    hints->ep_attr->rx_ctx_cnt = 65;
    refused();
    hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
    refused();
    hints->ep_attr->rx_ctx_cnt = hints->ep_attr->tx_ctx_cnt = 64;
    granted();
    assert_int_equal(info->ep_attr->rx_ctx_cnt, 64);
    assert_true(info->domain_attr->max_ep_rx_ctx >= 64);
    hints->ep_attr->rx_ctx_cnt = 1;
    hints->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
    granted();
    hints->ep_attr->protocol = FI_PROTO_UDP;
    refused();
}

static void levels_test(void **state)
{
    (void)state;
    hints->caps = FI_RMA | FI_ATOMIC;
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    granted();
    assert_int_equal(info->tx_attr->op_flags, FI_DELIVERY_COMPLETE);
    hints->tx_attr->op_flags = FI_COMMIT_COMPLETE;
    granted();
    hints->caps = FI_RMA | FI_MSG;
    refused(); /* it does not hold for messages */
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    granted();
    assert_int_equal(info->tx_attr->op_flags, FI_DELIVERY_COMPLETE);
    hints->tx_attr->op_flags = FI_MATCH_COMPLETE;
    granted();
    hints->tx_attr->op_flags = 0;
    granted();
    assert_int_equal(info->tx_attr->op_flags, FI_INJECT_COMPLETE);
    hints->tx_attr->op_flags = FI_INJECT_COMPLETE | FI_COMPLETION;
    granted();
    hints->tx_attr->op_flags = FI_TRANSMIT_COMPLETE;
    granted();
}

static void order_test(void **state)
{
    static const uint64_t paid[] = {FI_ORDER_RAR,     FI_ORDER_RAW,        FI_ORDER_WAR,
                                    FI_ORDER_WAW,     FI_ORDER_SAR,        FI_ORDER_SAW,
                                    FI_ORDER_RMA_WAW, FI_ORDER_ATOMIC_RAW, FI_ORDER_ATOMIC_WAR};
    static const uint64_t others[] = {FI_ORDER_RAS, FI_ORDER_WAS, FI_ORDER_STRICT, FI_ORDER_DATA};
    (void)state;
    granted();
    assert_int_equal(info->tx_attr->msg_order, FI_ORDER_SAS); /* no program pays unasked */
    assert_int_equal(info->ep_attr->max_order_raw_size, 0);
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    granted();
    assert_int_equal(info->tx_attr->msg_order, FI_ORDER_SAS);
    for (unsigned i = 0; i < sizeof paid / sizeof *paid; i++) {
        hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS | paid[i];
        granted();
        assert_int_equal(info->tx_attr->msg_order, FI_ORDER_SAS | paid[i]);
    }
    hints->tx_attr->msg_order = FI_ORDER_RAW;
    hints->ep_attr->max_order_raw_size = 4096;
    granted();
    assert_true(info->ep_attr->max_order_raw_size >= 4096);
    assert_int_equal(info->ep_attr->max_order_waw_size, 0);
    hints->ep_attr->max_order_waw_size = 1;
    refused();
    hints->ep_attr->max_order_waw_size = hints->ep_attr->max_order_raw_size = 0;
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++) {
        hints->tx_attr->msg_order = others[i];
        refused();
    }
    hints->tx_attr->msg_order = 0;
    hints->tx_attr->comp_order = FI_ORDER_STRICT;
    refused();
}

static void modes_test(void **state)
{
    const int all = FI_MR_LOCAL | FI_MR_RAW | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY |
                    FI_MR_MMU_NOTIFY | FI_MR_RMA_EVENT | FI_MR_ENDPOINT | FI_MR_HMEM;
    int *mode = &hints->domain_attr->mr_mode;
    (void)state;
    granted();
    assert_int_equal(info->domain_attr->mr_mode, 0);
    *mode = FI_MR_BASIC;
    granted();
    assert_int_equal(info->domain_attr->mr_mode, FI_MR_BASIC);
    *mode = FI_MR_SCALABLE;
    granted();
    assert_int_equal(info->domain_attr->mr_mode, FI_MR_SCALABLE);
    *mode = all;
    granted();
    assert_int_equal(info->domain_attr->mr_mode, FI_MR_ALLOCATED);
    *mode = FI_MR_BASIC | FI_MR_VIRT_ADDR;
    refused();
    *mode = FI_MR_UNSPEC;
    assert_int_equal(ask_as(FI_VERSION(1, 4)), 0);
    assert_int_equal(info->domain_attr->mr_mode, FI_MR_SCALABLE);
    *mode = FI_MR_VIRT_ADDR;
    assert_int_equal(ask_as(FI_VERSION(1, 4)), -FI_ENODATA);
}

static void limits_test(void **state)
{
    (void)state;
    hints->tx_attr->inject_size = 1u << 20;
    refused();
    hints->tx_attr->inject_size = 1;
    granted();
    assert_true(info->tx_attr->inject_size >= 512);
    hints->tx_attr->iov_limit = 65;
    refused();
    hints->tx_attr->iov_limit = 1;
    granted();
    hints->domain_attr->mr_key_size = 9;
    refused();
    hints->domain_attr->mr_key_size = 4;
    hints->domain_attr->cq_data_size = 4;
    granted();
    assert_int_equal(info->domain_attr->cq_data_size, 8);
    hints->domain_attr->cq_data_size = 9;
    refused();
    hints->domain_attr->cq_data_size = 0;
    hints->domain_attr->max_ep_rx_ctx = 65;
    refused();
    hints->domain_attr->max_ep_rx_ctx = 0;
    hints->ep_attr->max_msg_size = SIZE_MAX;
    refused();
}

static void names_test(void **state)
{
    (void)state;
    hints->domain_attr->name = strdup("weft");
    hints->fabric_attr->name = strdup("weft");
    granted();
    free(hints->domain_attr->name);
    hints->domain_attr->name = strdup("eth0");
    refused();
    free(hints->domain_attr->name);
    hints->domain_attr->name = NULL;
    free(hints->fabric_attr->name);
    hints->fabric_attr->name = strdup("other");
    refused();
}

static void threads_test(void **state)
{
    (void)state;
    for (int t = FI_THREAD_SAFE; t <= FI_THREAD_ENDPOINT; t++) {
        hints->domain_attr->threading = (enum fi_threading)t;
        granted();
        assert_int_equal(info->domain_attr->threading, t);
    }
    hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
    granted();
    assert_int_equal(info->domain_attr->data_progress, FI_PROGRESS_AUTO);
}

/* Values that do not exist are not granted; what libfabric 2.0 adds is. */
static void values_test(void **state)
{
    struct fi_domain_attr *d = hints->domain_attr;
    (void)state;
    d->threading = (enum fi_threading)(FI_THREAD_ENDPOINT + 1);
    refused();
    d->threading = (enum fi_threading) - 1;
    refused();
    d->threading = FI_THREAD_UNSPEC;
    d->data_progress = (enum fi_progress)4;
    refused();
    d->data_progress = FI_PROGRESS_UNSPEC;
    d->control_progress = (enum fi_progress)4;
    refused();
    d->control_progress = (enum fi_progress)3; /* FI_PROGRESS_CONTROL_UNIFIED */
    granted();
    assert_int_equal(info->domain_attr->control_progress, FI_PROGRESS_MANUAL);
    d->av_type = (enum fi_av_type)(FI_AV_TABLE + 1);
    refused();
    d->av_type = FI_AV_UNSPEC;
    d->resource_mgmt = (enum fi_resource_mgmt)(FI_RM_ENABLED + 1);
    refused();
    d->resource_mgmt = FI_RM_UNSPEC;
    granted();
}

static void addresses_test(void **state)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    (void)state;
    /* An answer's format and address may be in later hints. */
    granted();
    hints->addr_format = info->addr_format;
    hints->dest_addr = malloc(64);
    memset(hints->dest_addr, 9, 64);
    hints->dest_addrlen = 64;
    granted();
    assert_int_equal(info->dest_addrlen, 64);
    assert_memory_equal(info->dest_addr, hints->dest_addr, 64);
    /* A sockaddr as a later source: where the endpoint is opened. */
    free(hints->dest_addr);
    hints->dest_addr = NULL;
    hints->addr_format = FI_FORMAT_UNSPEC;
    hints->src_addr = malloc(sizeof in);
    memcpy(hints->src_addr, &in, sizeof in);
    hints->src_addrlen = sizeof in;
    granted();
    assert_int_equal(info->src_addrlen, 64);
    hints->addr_format = FI_SOCKADDR_IN;
    granted();
    assert_int_equal(info->src_addrlen, sizeof in);
    assert_memory_equal(info->src_addr, &in, sizeof in);
    hints->addr_format = FI_SOCKADDR_IN6;
    refused();
    hints->addr_format = FI_FORMAT_UNSPEC;
    fi_freeinfo(info);
    info = NULL;
    assert_int_equal(fi_getinfo(API, NULL, NULL, FI_SOURCE, hints, &info), 0);
    free(hints->src_addr);
    hints->src_addr = calloc(1, 64);
    hints->src_addrlen = 64;
    granted();
    memset(hints->src_addr, 5, 64); /* an endpoint's own address, which Weft chooses */
    refused();
    free(hints->src_addr);
    hints->src_addr = NULL;
    hints->addr_format = FI_ADDR_STR;
    refused();
    hints->addr_format = FI_SOCKADDR_IB;
    refused();
}

/* Node and service, as fi_getinfo(3) has them. */
static void nodes_test(void **state)
{
    const struct sockaddr_in *in;
    const struct sockaddr_in6 *in6;
    void *earlier;
    (void)state;
    hints->addr_format = FI_SOCKADDR_IN;
    assert_int_equal(fi_getinfo(API, "127.0.0.1", "9999", 0, hints, &info), 0);
    assert_int_equal(info->addr_format, FI_SOCKADDR_IN);
    assert_int_equal(info->dest_addrlen, sizeof *in);
    in = info->dest_addr;
    assert_true(in->sin_family == AF_INET && ntohs(in->sin_port) == 9999 &&
                in->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    in = info->src_addr;
    assert_true(in && info->src_addrlen == sizeof *in && in->sin_family == AF_INET);
    fi_freeinfo(info);
    info = NULL;
    assert_int_equal(fi_getinfo(API, "127.0.0.1", "9999", FI_SOURCE, hints, &info), 0);
    assert_null(info->dest_addr);
    in = info->src_addr;
    assert_int_equal(ntohs(in->sin_port), 9999);
    fi_freeinfo(info);
    info = NULL;
    assert_int_equal(fi_getinfo(API, NULL, "9998", FI_SOURCE, hints, &info), 0);
    in = info->src_addr;
    assert_true(ntohs(in->sin_port) == 9998 && in->sin_addr.s_addr == 0);
    fi_freeinfo(info);
    info = NULL;
    assert_int_equal(fi_getinfo(API, "::1", "9999", FI_NUMERICHOST, hints, &info), -FI_ENODATA);
    assert_int_equal(fi_getinfo(API, "no.such.host.invalid", "1", FI_NUMERICHOST, hints, &info),
                     -FI_ENODATA);
    assert_int_equal(fi_getinfo(API, "127.0.0.1", "65536", 0, hints, &info), -FI_ENODATA);
    assert_int_equal(fi_getinfo(API, "127.0.0.1", "65535", 0, hints, &info), 0);
    fi_freeinfo(info);
    info = NULL;
    hints->addr_format = FI_SOCKADDR;
    assert_int_equal(fi_getinfo(API, "fi_sockaddr_in6://[::1]:77", NULL, 0, hints, &info), 0);
    in6 = info->dest_addr;
    assert_true(info->dest_addrlen == sizeof *in6 && in6->sin6_family == AF_INET6 &&
                ntohs(in6->sin6_port) == 77 && IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr));
    fi_freeinfo(info);
    info = NULL;
    assert_int_equal(fi_getinfo(API, "fi_sockaddr_in6://[::1]", NULL, FI_SOURCE, hints, &info), 0);
    in6 = info->src_addr;
    assert_true(info->src_addrlen == sizeof *in6 && in6->sin6_family == AF_INET6 &&
                !in6->sin6_port && IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr));
    hints->caps = FI_MSG | FI_SOURCE | FI_SOURCE_ERR;
    refused(); /* the sockaddr of an unknown sender is not known */
    hints->caps = 0;
    /* In Weft's own format a name has 64 bytes, too; an answer's are taken in hints. */
    hints->addr_format = FI_FORMAT_UNSPEC;
    fi_freeinfo(info);
    info = NULL;
    assert_int_equal(fi_getinfo(API, "127.0.0.1", "9999", 0, hints, &info), 0);
    assert_int_equal(info->dest_addrlen, 64);
    hints->dest_addr = malloc(64);
    hints->dest_addrlen = 64;
    memcpy(hints->dest_addr, info->dest_addr, 64);
    hints->addr_format = info->addr_format;
    granted();
    assert_memory_equal(info->dest_addr, hints->dest_addr, 64);
    fi_freeinfo(info);
    info = NULL;
    assert_int_equal(fi_getinfo(API, "127.0.0.1", "9999", FI_SOURCE, hints, &info), 0);
    assert_int_equal(info->src_addrlen, 64);
    assert_int_equal(info->dest_addrlen, 64); /* of the hints */
    earlier = hints->src_addr = malloc(64);
    hints->src_addrlen = 64;
    memcpy(earlier, info->src_addr, 64);
    granted();
    assert_memory_equal(info->src_addr, earlier, 64);
    fi_freeinfo(info);
    info = NULL;
    assert_int_equal(fi_getinfo(API, "127.0.0.1", NULL, 0, hints, &info), -FI_ENODATA);
    assert_int_equal(fi_getinfo(API, "127.0.0.1", "9999", FI_PROV_ATTR_ONLY, hints, &info), 0);
}

static void quick_test(void **state)
{
    uint64_t begin = now_ms();
    (void)state;
    for (int i = 0; i < 100; i++)
        granted();
    assert_in_range(now_ms() - begin, 0, 500 * 10); /* 5 ms each on a quiet machine */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(answer_test),  TEST(caps_test),   TEST(endpoints_test), TEST(levels_test),
        TEST(order_test),   TEST(modes_test),  TEST(limits_test),    TEST(names_test),
        TEST(threads_test), TEST(values_test), TEST(addresses_test), TEST(nodes_test),
        TEST(quick_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
