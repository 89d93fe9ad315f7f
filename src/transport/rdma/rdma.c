/* SPDX-License-Identifier: BSD-3-Clause */
/* Which NIC and port. */
#include "transport/rdma/rdma.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "config/config.h"
#include "transport/rdma/wire.h"

#define NICS 16

/* "name" or "name:port" */
static bool is_named(const char *wanted, const struct wf_hca *hca, unsigned port)
{
    size_t n = strcspn(wanted, ":");
    if (strlen(hca->name) != n || strncmp(hca->name, wanted, n) != 0)
        return false;
    return !wanted[n] || (unsigned)strtoul(wanted + n + 1, NULL, 10) == port;
}

/* Its place in hca->ports; false: none will do. */
static bool port_choose(const struct wf_hca *hca, const char *wanted, unsigned *port)
{
    for (*port = 0; *port < hca->nports; (*port)++) {
        const struct wf_hca_port *p = &hca->ports[*port];
        if (p->active && (!*wanted || is_named(wanted, hca, p->number)))
            return true;
    }
    return false;
}

static struct wf_hca *hca_choose(unsigned *port)
{
    const struct wf_hca_ops *ops = &wf_hca_verbs;
    const char *wanted = wf_config()->rdma_device;
    struct wf_hca_found found[NICS];
    unsigned n = ops->list(found, NICS);
    for (unsigned i = 0; i < n; i++) {
        struct wf_hca *hca;
        if (ops->open(found[i].name, &hca) != WEFT_OK)
            continue;
        if (port_choose(hca, wanted, port))
            return hca;
        ops->close(hca);
    }
    if (*wanted)
        wf_error("WEFT_RDMA_DEVICE: there is no active port %s (weft info lists them)", wanted);
    return NULL;
}

static void ctx_free(struct rdma_ctx *ctx)
{
    if (ctx->hca)
        ctx->hca->ops->close(ctx->hca);
    pthread_mutex_destroy(&ctx->lock);
    free(ctx);
}

/* Is what an endpoint takes to be had? If not, others carry its messages. */
static bool is_enough(struct rdma_ctx *ctx)
{
    struct rdma_tep *trial;
    enum weft_status status = wf_rdma_tep_open(ctx, &trial);
    if (status == WEFT_OK)
        wf_rdma_tep_close(trial);
    else
        wf_info("%s is not used: %s", ctx->hca->name, weft_status_text(status));
    return status == WEFT_OK;
}

enum weft_status wf_rdma_ctx_open(struct rdma_ctx **out)
{
    struct rdma_ctx *ctx;
    enum weft_status status;
    if (wf_config()->tcp_encrypt) {
        wf_info("rdma is not used: it does not encrypt (WEFT_TCP_ENCRYPT)");
        return WEFT_EUNREACH;
    }
    ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return WEFT_ENOMEM;
    pthread_mutex_init(&ctx->lock, NULL);
    ctx->hca = hca_choose(&ctx->port_at);
    status = WEFT_EUNREACH;
    if (ctx->hca && ctx->hca->ops->pd_open(ctx->hca, &ctx->pd) == WEFT_OK)
        status = WEFT_OK;
    else if (ctx->hca)
        wf_warn("%s is not used: no protection domain can be had: %m", ctx->hca->name);
    if (status == WEFT_OK && !is_enough(ctx)) {
        ctx->hca->ops->pd_close(ctx->pd);
        status = WEFT_EUNREACH;
    }
    if (status != WEFT_OK) {
        ctx_free(ctx);
        return status;
    }
    *out = ctx;
    return WEFT_OK;
}

void wf_rdma_ctx_look(struct rdma_ctx *ctx)
{
    struct wf_hca_event e;
    pthread_mutex_lock(&ctx->lock);
    do {
        ctx->hca->ops->async(ctx->hca, &e);
        if (e.kind == WF_HCA_EVENT_CQ_FATAL || e.kind == WF_HCA_EVENT_SRQ_FATAL ||
            e.kind == WF_HCA_EVENT_GONE)
            atomic_store_explicit(&ctx->gone, true, memory_order_relaxed);
    } while (e.kind != WF_HCA_EVENT_NONE);
    pthread_mutex_unlock(&ctx->lock);
}

void wf_rdma_ctx_close(struct rdma_ctx *ctx)
{
    ctx->hca->ops->pd_close(ctx->pd);
    ctx_free(ctx);
}

int wf_rdma_describe(char *note, size_t room)
{
    const struct wf_hca_port *port;
    unsigned at;
    struct wf_hca *hca = hca_choose(&at);
    if (!hca) {
        snprintf(note, room, "no RDMA device with an active port");
        return 0;
    }
    port = &hca->ports[at];
    snprintf(note, room, "%s port %u, %s, MTU %u, %s", hca->name, port->number,
             port->link == WF_HCA_ETHERNET ? "Ethernet" : "InfiniBand", port->mtu,
             hca->caps.srq ? "shared receive queue" : "no shared receive queue");
    hca->ops->close(hca);
    return 1;
}
