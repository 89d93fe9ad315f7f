/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rdma/report.h"

#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "transport/rdma/device.h"

static void port_text(const struct wf_hca_port *p, char *text, size_t room)
{
    char gid[WF_HCA_GID_TEXT] = "none";
    if (p->has_gid)
        (void)wf_hca_gid_text(&p->gid, gid);
    snprintf(text, room, "%s, GID %s, MTU %u, %g Gbit/s",
             p->link == WF_HCA_ETHERNET ? "Ethernet" : "InfiniBand", gid, p->mtu,
             (double)p->mbps / 1000);
}

static void others_append(const struct rdma_ctx *ctx, char *note, size_t room)
{
    size_t at = strlen(note);
    for (unsigned i = 1; i < ctx->nports && at < room; i++)
        at += (size_t)snprintf(note + at, room - at, "%s %s:%u", i > 1 ? "," : "; and",
                               ctx->ports[i].device->hca->name,
                               wf_rdma_port_hca(&ctx->ports[i])->number);
}

/* Returns 1 if RDMA can be used, and describes the ports in [note]. Otherwise returns 0, and [note]
 * is the reason. */
static int ports_describe(const struct rdma_ctx *ctx, const char *reason, char *note, size_t room)
{
    const struct wf_hca *hca = ctx->devices[0].hca;
    const struct wf_hca_port *first;
    char text[WF_RDMA_REASON];
    if (!ctx->nports) {
        snprintf(note, room, "%s", *reason ? reason : "no RDMA device with an active port");
        return 0;
    }
    if (wf_config()->rdma_cm && !hca->ops->cm) {
        snprintf(note, room, "WEFT_RDMA_CM=1, and the connection manager is not built in");
        return 0;
    }
    first = wf_rdma_port_hca(&ctx->ports[0]);
    port_text(first, text, sizeof text);
    snprintf(note, room, "%s:%u, %s, %s", hca->name, first->number, text,
             hca->caps.srq ? "shared receive queue" : "no shared receive queue");
    others_append(ctx, note, room);
    return 1;
}

int wf_rdma_describe(char *note, size_t room)
{
    struct rdma_ctx ctx = {.ndevices = 0};
    char reason[WF_RDMA_REASON];
    int usable;
    wf_rdma_ports_choose(&ctx, reason, sizeof reason);
    usable = ports_describe(&ctx, reason, note, room);
    wf_rdma_devices_close(&ctx);
    return usable;
}

/* Calls [row] for each port of the device, with the port's description and the reason why the port
 * would not be used, if there is one. */
static void ports_report(const struct rdma_ctx *ctx, const struct wf_hca *hca,
                         weft_device_row_fn row, void *arg)
{
    for (unsigned i = 0; i < hca->nports; i++) {
        const struct wf_hca_port *p = &hca->ports[i];
        const char *reason = wf_rdma_port_unusable(hca, p);
        char name[WF_HCA_NAME + 8], note[WF_RDMA_REASON];
        snprintf(name, sizeof name, "%s:%u", hca->name, p->number);
        port_text(p, note, sizeof note);
        if (!reason)
            reason =
                ctx->nports ? wf_rdma_port_unused(ctx, hca->name, p) : "WEFT_RDMA_DEVICE is wrong";
        row(arg, name, reason, note);
    }
}

void wf_rdma_devices(weft_device_row_fn row, void *arg)
{
    const struct wf_hca_ops *ops = wf_rdma_hca_ops();
    const struct wf_hca_config config = wf_rdma_config();
    struct rdma_ctx ctx = {.ndevices = 0};
    struct wf_hca_found found[WF_RDMA_NICS];
    unsigned n = ops->list(found, WF_RDMA_NICS);
    char reason[WF_RDMA_REASON];
    wf_rdma_ports_choose(&ctx, reason, sizeof reason);
    for (unsigned i = 0; i < n; i++) {
        struct wf_hca *hca;
        enum weft_status status = ops->open(found[i].name, &config, &hca);
        if (status != WEFT_OK) {
            row(arg, found[i].name, "cannot be opened", weft_status_text(status));
            continue;
        }
        ports_report(&ctx, hca, row, arg);
        ops->close(hca);
    }
    wf_rdma_devices_close(&ctx);
}

void wf_rdma_resources(struct rdma_ctx *ctx, weft_resource_row_fn row, void *arg)
{
    static const char *const names[WF_HCA_KINDS] = {[WF_HCA_CONTEXT] = "contexts",
                                                    [WF_HCA_PD] = "protection domains",
                                                    [WF_HCA_TD] = "thread domains",
                                                    [WF_HCA_CQ] = "completion queues",
                                                    [WF_HCA_SRQ] = "shared receive queues",
                                                    [WF_HCA_QP] = "queue pairs",
                                                    [WF_HCA_MR] = "memory regions",
                                                    [WF_HCA_UAR] = "UAR pages",
                                                    [WF_HCA_UUAR] = "uUARs",
                                                    [WF_HCA_UUAR_USED] = "uUARs used"};
    for (int kind = 0; kind < WF_HCA_KINDS; kind++) {
        uint64_t objects = 0, bytes = 0;
        for (unsigned i = 0; i < ctx->ndevices; i++) {
            const struct wf_hca_ledger *l = &ctx->devices[i].hca->ledger;
            objects += atomic_load_explicit(&l->objects[kind], memory_order_relaxed);
            bytes += atomic_load_explicit(&l->bytes[kind], memory_order_relaxed);
        }
        row(arg, names[kind], objects, bytes);
    }
}
