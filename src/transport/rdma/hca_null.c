/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulated NICs that move no bytes. A request completes when it is posted, and nothing is ever
 * received. With these NICs tests count the instructions and the memory that Weft itself uses, and
 * check what Weft chooses.
 *
 *   null0   InfiniBand, has a LID but no GID
 *   null1   RoCE; has four GIDs, and a second port that is down; registers memory on demand and
 *           dma-bufs
 *   null2, null3   as null0; there are two devices unless WEFT_DEBUG=nullnics says otherwise
 *
 * Both have doorbell registers, as an mlx5 NIC has them (uar.h). */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "config/config.h"
#include "transport/rdma/hca_null.h"
#include "transport/rdma/hca_share.h"
#include "transport/rdma/sizes.h"

static _Atomic uint32_t next_number;

static const struct wf_hca_caps caps = {.inline_max = 220,
                                        .max_sq = 32768,
                                        .max_rq = 32768,
                                        .max_cq = 1u << 22,
                                        .max_reads = 16,
                                        .srq = true,
                                        .td = true,
                                        .uars = true,
                                        .atomics = true};
static const char *const names[] = {"null0", "null1", "null2", "null3"};

static unsigned null_list(struct wf_hca_found *out, unsigned room)
{
    unsigned n = WF_MIN(room, (unsigned)wf_config()->rdma_null_nics);
    for (unsigned i = 0; i < n; i++)
        strcpy(out[i].name, names[i]);
    return n;
}

/* The GIDs of an Ethernet port: fe80::1 and 192.0.2.1, each as RoCE v1 and as RoCE v2. */
static int null_gids(struct wf_hca *hca, unsigned number, struct wf_hca_gid *out, unsigned room)
{
    static const uint8_t addresses[2][16] = {{0xfe, 0x80, [15] = 1},
                                             {[10] = 0xff, [11] = 0xff, [12] = 192, 0, 2, 1}};
    uint8_t n = (uint8_t)WF_MIN(room, hca->ports[0].link == WF_HCA_ETHERNET ? 4u : 0u);
    (void)number;
    for (uint8_t i = 0; i < n; i++) {
        out[i].index = i;
        out[i].type = i % 2 ? WF_HCA_GID_ROCE_V2 : WF_HCA_GID_ROCE_V1;
        memcpy(out[i].raw, addresses[i / 2], sizeof out->raw);
    }
    return n;
}

static void ports_set(struct wf_hca *hca, bool is_roce)
{
    hca->nports = is_roce ? 2 : 1;
    for (unsigned i = 0; i < hca->nports; i++) {
        struct wf_hca_port *port = &hca->ports[i];
        struct wf_hca_gid gids[4];
        *port = (struct wf_hca_port){.number = (uint8_t)(i + 1),
                                     .active = !i,
                                     .link = is_roce ? WF_HCA_ETHERNET : WF_HCA_INFINIBAND,
                                     .lid = !is_roce,
                                     .mbps = 100000};
        wf_hca_port_set(hca, port, gids, null_gids(hca, port->number, gids, 4), 4096);
    }
}

static struct wf_uar_nic nics[WF_ARRAY_LEN(names)];

static struct wf_uar_config uar_config(const struct wf_hca_config *config)
{
    bool classic = wf_config()->rdma_null_classic;
    struct wf_uar_config c = wf_uar_config_env(classic ? WF_UAR_CLASSIC : WF_UAR_CURRENT);
    c.blueflame &= config->blueflame;
    return c;
}

static void refusal_explain(const char *name, enum weft_status status,
                            const struct wf_uar_config *uars)
{
    if (status == WEFT_EINVAL)
        wf_error("%s cannot be opened: %s", name, wf_uar_config_wrong(uars));
    else if (status == WEFT_ELIMIT)
        wf_error("%s cannot be opened: all its UAR pages are taken (WEFT_DEBUG=nulluars)", name);
}

static enum weft_status null_open(const char *name, const struct wf_hca_config *config,
                                  struct wf_hca **out)
{
    const struct wf_uar_config uars = uar_config(config);
    size_t which = 0;
    struct null_hca *null;
    struct wf_sim *sim;
    struct wf_hca *hca;
    enum weft_status status;
    while (which < WF_ARRAY_LEN(names) && strcmp(name, names[which]) != 0)
        which++;
    if (which == WF_ARRAY_LEN(names))
        return WEFT_EUNREACH;
    null = calloc(1, sizeof *null);
    if (!null)
        return WEFT_ENOMEM;
    sim = &null->sim;
    hca = &sim->base;
    hca->ops = &wf_hca_null;
    hca->config = *config;
    strcpy(hca->name, name);
    hca->caps = caps;
    hca->caps.on_demand = hca->caps.dmabuf = which == 1;
    hca->async_fd = -1;
    ports_set(hca, which == 1);
    wf_uar_nic_limit(&nics[which], (uint32_t)wf_config()->rdma_null_pages);
    status = wf_sim_open(sim, &nics[which], &uars);
    if (status != WEFT_OK) {
        refusal_explain(name, status, &uars);
        free(null);
        return status;
    }
    *out = hca;
    return WEFT_OK;
}

static void null_close(struct wf_hca *hca)
{
    wf_null_share_close((struct null_hca *)(void *)hca);
    wf_sim_close(wf_sim_of(hca));
    free(hca);
}

static uint64_t null_now_ns(struct wf_hca *hca)
{
    (void)hca;
    return wf_now_ns();
}

static enum weft_status mr_make(struct wf_hca_pd *pd, struct wf_hca_mr fields,
                                struct wf_hca_mr **out)
{
    struct wf_hca_mr *mr = calloc(1, sizeof *mr);
    if (!mr)
        return WEFT_ENOMEM;
    *mr = fields;
    mr->hca = pd->hca;
    mr->lkey = mr->rkey = ++next_number;
    wf_hca_made(pd->hca, WF_HCA_MR, fields.len);
    *out = mr;
    return WEFT_OK;
}

static enum weft_status null_mr_open(struct wf_hca_pd *pd, void *addr, size_t len, uint64_t at,
                                     unsigned access, struct wf_hca_mr **out)
{
    bool on_demand = access & WF_HCA_ON_DEMAND;
    (void)at;
    if (on_demand && !pd->hca->caps.on_demand)
        return WEFT_EUNREACH;
    return mr_make(
        pd, (struct wf_hca_mr){.addr = addr, .len = len, .access = access, .unpinned = on_demand},
        out);
}

/* Accepts any descriptor as a dma-buf. */
static enum weft_status null_mr_open_dmabuf(struct wf_hca_pd *pd, int fd, uint64_t offset,
                                            size_t len, uint64_t at, unsigned access,
                                            struct wf_hca_mr **out)
{
    if (!pd->hca->caps.dmabuf)
        return WEFT_EUNREACH;
    if (fd < 0 || (offset ^ at) & 4095)
        return WEFT_EINVAL;
    return mr_make(pd, (struct wf_hca_mr){.len = len, .access = access, .unpinned = true}, out);
}

static void null_mr_close(struct wf_hca_mr *mr)
{
    wf_hca_freed(mr->hca, WF_HCA_MR, mr->len);
    free(mr);
}

const struct wf_hca_ops wf_hca_null = {
    .name = "null",
    .list = null_list,
    .open = null_open,
    .close = null_close,
    .now_ns = null_now_ns,
    .gids = null_gids,
    .pd_open = wf_sim_pd_open,
    .pd_close = wf_sim_pd_close,
    .td_open = wf_sim_td_open,
    .td_close = wf_sim_td_close,
    .cq_open = wf_null_cq_open,
    .cq_close = wf_null_cq_close,
    .srq_open = wf_null_srq_open,
    .srq_close = wf_null_srq_close,
    .qp_open = wf_null_qp_open,
    .qp_connect = wf_null_qp_connect,
    .qp_break = wf_null_qp_break,
    .qp_reset = wf_null_qp_reset,
    .qp_place = wf_sim_qp_place,
    .qp_close = wf_null_qp_close,
    .mr_open = null_mr_open,
    .mr_open_dmabuf = null_mr_open_dmabuf,
    .mr_close = null_mr_close,
    .post = wf_null_post,
    .post_recv = wf_null_post_recv,
    .post_srq = wf_null_post_srq,
    .poll = wf_null_poll,
    .share = &wf_hca_share_null,
    WF_SIM_REFUSED,
};
