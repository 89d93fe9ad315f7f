/* SPDX-License-Identifier: BSD-3-Clause */
/* Which NIC and port. */
#include "transport/rdma/rdma.h"

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

static const struct wf_hca_port *port_choose(const struct wf_hca *hca, const char *wanted)
{
    for (unsigned i = 0; i < hca->nports; i++) {
        const struct wf_hca_port *p = &hca->ports[i];
        if (p->active && (!*wanted || is_named(wanted, hca, p->number)))
            return p;
    }
    return NULL;
}

static struct wf_hca *hca_choose(const struct wf_hca_port **port)
{
    const struct wf_hca_ops *ops = &wf_hca_verbs;
    const char *wanted = wf_config()->rdma_device;
    struct wf_hca_found found[NICS];
    unsigned n = ops->list(found, NICS);
    for (unsigned i = 0; i < n; i++) {
        struct wf_hca *hca;
        if (ops->open(found[i].name, &hca) != WEFT_OK)
            continue;
        *port = port_choose(hca, wanted);
        if (*port)
            return hca;
        ops->close(hca);
    }
    if (*wanted)
        wf_error("WEFT_RDMA_DEVICE: there is no active port %s (weft info lists them)", wanted);
    return NULL;
}

enum weft_status wf_rdma_ctx_open(struct rdma_ctx **out)
{
    struct rdma_ctx *ctx = calloc(1, sizeof *ctx);
    enum weft_status status;
    if (!ctx)
        return WEFT_ENOMEM;
    ctx->hca = hca_choose(&ctx->port);
    status = ctx->hca ? ctx->hca->ops->pd_open(ctx->hca, &ctx->pd) : WEFT_EUNREACH;
    if (status != WEFT_OK) {
        if (ctx->hca)
            ctx->hca->ops->close(ctx->hca);
        free(ctx);
        return status;
    }
    *out = ctx;
    return WEFT_OK;
}

void wf_rdma_ctx_close(struct rdma_ctx *ctx)
{
    ctx->hca->ops->pd_close(ctx->pd);
    ctx->hca->ops->close(ctx->hca);
    free(ctx);
}

int wf_rdma_describe(char *note, size_t room)
{
    const struct wf_hca_port *port;
    struct wf_hca *hca = hca_choose(&port);
    if (!hca) {
        snprintf(note, room, "no RDMA device with an active port");
        return 0;
    }
    snprintf(note, room, "%s port %u, %s, MTU %u, %s", hca->name, port->number,
             port->link == WF_HCA_ETHERNET ? "Ethernet" : "InfiniBand", port->mtu,
             hca->caps.srq ? "shared receive queue" : "no shared receive queue");
    hca->ops->close(hca);
    return 1;
}
