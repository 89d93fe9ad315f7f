/* SPDX-License-Identifier: BSD-3-Clause */
/* The attributes of an answer of fi_getinfo. */
#include <stdlib.h>
#include <string.h>

#include "op.h"

/* Each bit of a tag is a field of its own: fi_endpoint(3), "mem_tag_format". */
#define WFI_TAG_FORMAT UINT64_C(0xaaaaaaaaaaaaaaaa)

/* FI_ORDER_SAS costs nothing: messages through one peer match as they were sent. */
static bool order_is_granted(const char *what, uint64_t order, uint64_t comp_order)
{
    if (!(order & ~WFI_ORDERS_ALL) && !comp_order)
        return true;
    WFI_INFO(CORE,
             "not granted: %s->msg_order %#llx, comp_order %#llx: there is no order of accesses "
             "after sends, and none of completions\n",
             what, (unsigned long long)order, (unsigned long long)comp_order);
    return false;
}

/* May [asked] be promised? Sets *out to [asked], or to [dflt] if it is 0. */
static bool limit(const char *name, size_t asked, size_t most, size_t dflt, size_t *out)
{
    if (asked > most) {
        WFI_INFO(CORE, "not granted: %s %zu; the most is %zu\n", name, asked, most);
        return false;
    }
    *out = asked ? asked : dflt;
    return true;
}

static bool flags_are_granted(const char *what, uint64_t flags, uint64_t most)
{
    if (!(flags & ~most))
        return true;
    WFI_INFO(CORE, "not granted: %s %#llx (fi_weft(7) lists those that are)\n", what,
             (unsigned long long)(flags & ~most));
    return false;
}

bool wfi_info_tx(const struct fi_info *hints, struct fi_info *info)
{
    const struct fi_tx_attr none = {0}, *h = hints && hints->tx_attr ? hints->tx_attr : &none;
    struct fi_tx_attr *t = info->tx_attr;
    const size_t inject = wfi_prov_inject();
    uint64_t levels = wfi_levels_of(info->caps);
    if (!flags_are_granted("tx_attr->caps", h->caps, info->caps & (WFI_TX_CAPS | WFI_CAPS)) ||
        !flags_are_granted("tx_attr->op_flags", h->op_flags, levels | FI_COMPLETION | FI_INJECT) ||
        !order_is_granted("tx_attr", h->msg_order, h->comp_order) ||
        !limit("tx_attr->inject_size", h->inject_size, inject, inject, &t->inject_size) ||
        !limit("tx_attr->size", h->size, WFI_TX_MOST, WFI_SIZE, &t->size) ||
        !limit("tx_attr->iov_limit", h->iov_limit, WFI_IOV, WFI_IOV, &t->iov_limit) ||
        !limit("tx_attr->rma_iov_limit", h->rma_iov_limit, WFI_IOV, WFI_IOV, &t->rma_iov_limit))
        return false;
    t->inject_size = inject;
    t->caps = (h->caps ? h->caps : info->caps) & WFI_TX_CAPS;
    t->op_flags = h->op_flags;
    if (!(t->op_flags & WFI_LEVELS)) /* the strongest that costs nothing */
        t->op_flags |=
            info->caps & (FI_MSG | FI_TAGGED) ? FI_INJECT_COMPLETE : FI_DELIVERY_COMPLETE;
    t->msg_order = h->msg_order ? h->msg_order : FI_ORDER_SAS;
    t->comp_order = FI_ORDER_NONE;
    t->tclass = FI_TC_UNSPEC;
    return true;
}

bool wfi_info_rx(const struct fi_info *hints, struct fi_info *info)
{
    const struct fi_rx_attr none = {0}, *h = hints && hints->rx_attr ? hints->rx_attr : &none;
    struct fi_rx_attr *r = info->rx_attr;
    if (!flags_are_granted("rx_attr->caps", h->caps, info->caps & (WFI_RX_CAPS | WFI_CAPS)) ||
        !flags_are_granted("rx_attr->op_flags", h->op_flags, FI_COMPLETION | FI_MULTI_RECV) ||
        !order_is_granted("rx_attr", h->msg_order, h->comp_order) ||
        !limit("rx_attr->size", h->size, WFI_RX_MOST, WFI_SIZE, &r->size) ||
        !limit("rx_attr->total_buffered_recv", h->total_buffered_recv, 1 << 20, 1 << 20,
               &r->total_buffered_recv) ||
        !limit("rx_attr->iov_limit", h->iov_limit, WFI_IOV, WFI_IOV, &r->iov_limit))
        return false;
    r->caps = (h->caps ? h->caps : info->caps) & WFI_RX_CAPS;
    r->op_flags = h->op_flags;
    r->msg_order = h->msg_order ? h->msg_order : FI_ORDER_SAS;
    r->comp_order = FI_ORDER_NONE;
    return true;
}

static bool copy_auth_key(const uint8_t *key, size_t size, uint8_t **out, size_t *out_size)
{
    if (!key || !size)
        return true;
    *out = malloc(size);
    if (!*out)
        return false;
    memcpy(*out, key, size);
    *out_size = size;
    return true;
}

/* Set *out to the longest accesses that are ordered: all, if the order is asked for, else none. */
static bool order_size(const char *what, uint64_t order, size_t asked, size_t *out)
{
    *out = order ? WFI_NO_LIMIT : 0;
    if (asked <= *out)
        return true;
    WFI_INFO(CORE,
             "not granted: ep_attr->max_order_%s_size %zu; the most is %zu, with the order in "
             "tx_attr->msg_order\n",
             what, asked, *out);
    return false;
}

bool wfi_info_ep(const struct fi_info *hints, struct fi_info *info)
{
    const struct fi_ep_attr none = {0}, *h = hints && hints->ep_attr ? hints->ep_attr : &none;
    const uint64_t order = hints && hints->tx_attr ? hints->tx_attr->msg_order : 0;
    struct fi_ep_attr *e = info->ep_attr;
    if ((h->type != FI_EP_UNSPEC && h->type != FI_EP_RDM) ||
        (h->protocol != FI_PROTO_UNSPEC && h->protocol != WFI_ADDR_FORMAT) ||
        h->protocol_version > 1 || h->msg_prefix_size || h->rx_ctx_cnt > WFI_CONTEXTS ||
        (h->tx_ctx_cnt > WFI_CONTEXTS && h->tx_ctx_cnt != FI_SHARED_CONTEXT)) {
        WFI_INFO(CORE, "not granted: ep_attr: endpoints are FI_EP_RDM, with up to 64 transmit and "
                       "receive contexts\n");
        return false;
    }
    if (!order_size("raw", order & WFI_ORDERS(RAW), h->max_order_raw_size,
                    &e->max_order_raw_size) ||
        !order_size("war", order & WFI_ORDERS(WAR), h->max_order_war_size,
                    &e->max_order_war_size) ||
        !order_size("waw", order & WFI_ORDERS(WAW), h->max_order_waw_size, &e->max_order_waw_size))
        return false;
    if (!limit("ep_attr->max_msg_size", h->max_msg_size, WFI_NO_LIMIT, WFI_NO_LIMIT,
               &e->max_msg_size) ||
        !copy_auth_key(h->auth_key, h->auth_key_size, &e->auth_key, &e->auth_key_size))
        return false;
    e->max_msg_size = WFI_NO_LIMIT;
    e->type = FI_EP_RDM;
    e->protocol = WFI_ADDR_FORMAT; /* a provider's own */
    e->protocol_version = 1;
    e->mem_tag_format = h->mem_tag_format ? h->mem_tag_format : WFI_TAG_FORMAT;
    e->tx_ctx_cnt = h->tx_ctx_cnt ? h->tx_ctx_cnt : 1;
    e->rx_ctx_cnt = h->rx_ctx_cnt ? h->rx_ctx_cnt : 1;
    return true;
}

/* ---- domain ---- */

/* Set the registration mode of the answer. BASIC and SCALABLE come back as they came. Of other bits
 * only those of FI_WEFT_MR_MODE are kept: programs that choose their keys offer the rest, too, and
 * would have to do without if they got it. */
static bool mr_mode_grant(uint32_t version, const struct fi_info *hints, int *out)
{
    const int legacy = FI_MR_BASIC | FI_MR_SCALABLE;
    int mode = hints && hints->domain_attr ? hints->domain_attr->mr_mode : 0;
    if (FI_VERSION_LT(version, FI_VERSION(1, 5))) {
        if (mode != FI_MR_UNSPEC && mode != FI_MR_BASIC && mode != FI_MR_SCALABLE)
            return false;
        *out = mode ? mode : FI_MR_SCALABLE;
        return true;
    }
    if (mode == FI_MR_BASIC || mode == FI_MR_SCALABLE) {
        *out = mode;
        return true;
    }
    if (mode & FI_MR_BASIC && mode & ~(FI_MR_BASIC | FI_MR_LOCAL) & ~FI_MR_SCALABLE) {
        WFI_INFO(CORE, "not granted: mr_mode %#x: FI_MR_BASIC goes with no bit but FI_MR_LOCAL\n",
                 mode);
        return false;
    }
    if (mode & FI_MR_BASIC) {
        *out = FI_MR_BASIC;
        return true;
    }
    *out = mode & ~legacy & (int)wfi_prov_mr_mode();
    return true;
}

#define PROGRESS_UNIFIED 3 /* FI_PROGRESS_CONTROL_UNIFIED of libfabric 2.0 */

/* Are the values known by which programs choose? One that is not would come back as if it held. */
static bool values_are_known(const struct fi_domain_attr *h)
{
    if ((unsigned)h->threading <= FI_THREAD_ENDPOINT &&
        (unsigned)h->control_progress <= PROGRESS_UNIFIED &&
        (unsigned)h->data_progress <= PROGRESS_UNIFIED && (unsigned)h->av_type <= FI_AV_TABLE &&
        (unsigned)h->resource_mgmt <= FI_RM_ENABLED)
        return true;
    WFI_INFO(CORE, "not granted: domain_attr: an unknown value of threading, control_progress, "
                   "data_progress, av_type or resource_mgmt\n");
    return false;
}

static enum fi_threading threading_of(const struct fi_domain_attr *h)
{
    return h->threading == FI_THREAD_UNSPEC ? FI_THREAD_SAFE : h->threading;
}

static enum fi_progress progress_of(enum fi_progress asked)
{
    return asked == FI_PROGRESS_AUTO ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
}

static bool domain_limits(const struct fi_domain_attr *h, struct fi_domain_attr *d)
{
    return limit("domain_attr->mr_key_size", h->mr_key_size, 8, 8, &d->mr_key_size) &&
           limit("domain_attr->cq_data_size", h->cq_data_size, 8, 8, &d->cq_data_size) &&
           limit("domain_attr->cq_cnt", h->cq_cnt, WFI_OBJECTS, WFI_OBJECTS, &d->cq_cnt) &&
           limit("domain_attr->ep_cnt", h->ep_cnt, WFI_OBJECTS, WFI_OBJECTS, &d->ep_cnt) &&
           limit("domain_attr->tx_ctx_cnt", h->tx_ctx_cnt, WFI_OBJECTS, WFI_OBJECTS,
                 &d->tx_ctx_cnt) &&
           limit("domain_attr->rx_ctx_cnt", h->rx_ctx_cnt, WFI_OBJECTS, WFI_OBJECTS,
                 &d->rx_ctx_cnt) &&
           limit("domain_attr->max_ep_tx_ctx", h->max_ep_tx_ctx, WFI_CONTEXTS, WFI_CONTEXTS,
                 &d->max_ep_tx_ctx) &&
           limit("domain_attr->max_ep_rx_ctx", h->max_ep_rx_ctx, WFI_CONTEXTS, WFI_CONTEXTS,
                 &d->max_ep_rx_ctx) &&
           limit("domain_attr->max_ep_stx_ctx", h->max_ep_stx_ctx, WFI_OBJECTS, WFI_OBJECTS,
                 &d->max_ep_stx_ctx) &&
           limit("domain_attr->max_ep_srx_ctx", h->max_ep_srx_ctx, 0, 0, &d->max_ep_srx_ctx) &&
           limit("domain_attr->cntr_cnt", h->cntr_cnt, WFI_OBJECTS, WFI_OBJECTS, &d->cntr_cnt) &&
           limit("domain_attr->mr_iov_limit", h->mr_iov_limit, WFI_IOV, WFI_IOV,
                 &d->mr_iov_limit) &&
           limit("domain_attr->mr_cnt", h->mr_cnt, WFI_OBJECTS, WFI_OBJECTS, &d->mr_cnt) &&
           limit("domain_attr->max_err_data", h->max_err_data, WFI_ADDR_SIZE, WFI_ADDR_SIZE,
                 &d->max_err_data);
}

bool wfi_info_domain(uint32_t version, const struct fi_info *hints, struct fi_info *info)
{
    const struct fi_domain_attr none = {0},
                                *h = hints && hints->domain_attr ? hints->domain_attr : &none;
    struct fi_domain_attr *d = info->domain_attr;
    if (h->domain)
        d->domain = h->domain;
    if (h->name && strcmp(h->name, WFI_NAME))
        return false;
    d->name = strdup(WFI_NAME);
    if (!d->name || !values_are_known(h) || !mr_mode_grant(version, hints, &d->mr_mode) ||
        !domain_limits(h, d) ||
        !flags_are_granted("domain_attr->caps", h->caps, FI_LOCAL_COMM | FI_REMOTE_COMM) ||
        !copy_auth_key(h->auth_key, h->auth_key_size, &d->auth_key, &d->auth_key_size))
        return false;
    d->mr_key_size = d->cq_data_size = 8;
    d->threading = threading_of(h);
    d->control_progress = progress_of(h->control_progress);
    d->data_progress = progress_of(h->data_progress);
    d->resource_mgmt = FI_RM_ENABLED;
    d->av_type = h->av_type ? h->av_type : FI_AV_TABLE;
    d->caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
    d->tclass = FI_TC_UNSPEC;
    return true;
}
