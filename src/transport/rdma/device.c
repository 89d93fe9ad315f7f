/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rdma/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "config/config.h"
#include "mem/staging.h"
#include "transport/rdma/contexts.h"
#include "transport/rdma/rail.h"
#include "transport/rdma/reg.h"
#include "transport/rdma/td_pool.h"

const struct wf_hca_ops *wf_rdma_hca_ops(void)
{
    return wf_config()->rdma_null ? &wf_hca_null : &wf_hca_verbs;
}

/* The doorbell pages of this process, with the limit of WEFT_UARS. */
static struct wf_uar_budget *budget_own(void)
{
    static struct wf_uar_budget own;
    static _Atomic int of; /* process; a forked child has none of its parent's pages */
    int self = (int)getpid();
    if (atomic_exchange_explicit(&of, self, memory_order_relaxed) != self)
        atomic_store_explicit(&own.taken, 0, memory_order_relaxed);
    atomic_store_explicit(&own.limit, (uint32_t)wf_config()->uars, memory_order_relaxed);
    return &own;
}

struct wf_hca_config wf_rdma_config(void)
{
    const struct wf_config *c = wf_config();
    return (struct wf_hca_config){
        .gid_index = c->rdma_gid_index == WF_AUTO ? -1 : (int)c->rdma_gid_index,
        /* rdma_mtu is 0 for auto, 1 for 256 bytes, 2 for 512 bytes, ... */
        .mtu = (uint16_t)(c->rdma_mtu ? 128u << c->rdma_mtu : 0),
        .blueflame = c->rdma_blueflame,
        .budget = budget_own()};
}

/* ---- WEFT_RDMA_DEVICE ---- */

/* One entry of WEFT_RDMA_DEVICE: "name" or "name:port". */
struct named_port {
    const char *at;
    size_t len;
};

/* Reads the next entry at [*at], and moves [*at] behind it. Returns false if there is no entry
 * left. */
static bool entry_next(const char **at, struct named_port *out)
{
    *at += strspn(*at, ",");
    *out = (struct named_port){*at, strcspn(*at, ",")};
    *at += out->len;
    return out->len;
}

static bool entry_names_device(const struct named_port *e, const char *name)
{
    size_t len = strlen(name);
    return len <= e->len && !memcmp(name, e->at, len) && (len == e->len || e->at[len] == ':');
}

static bool entry_names_port(const struct named_port *e, const char *name, unsigned port)
{
    size_t len = strlen(name);
    return entry_names_device(e, name) &&
           (len == e->len || (unsigned)strtoul(e->at + len + 1, NULL, 10) == port);
}

/* Returns whether WEFT_RDMA_DEVICE names the port. Returns true for every port if the variable is
 * empty. */
static bool is_named(const char *name, unsigned port)
{
    const char *at = wf_config()->rdma_device;
    struct named_port e;
    while (entry_next(&at, &e))
        if (entry_names_port(&e, name, port))
            return true;
    return !*wf_config()->rdma_device;
}

static void no_port_explain(const char *name, size_t len, char *reason, size_t room)
{
    snprintf(reason, room,
             "WEFT_RDMA_DEVICE: there is no active port %.*s (weft info lists the ports)", (int)len,
             name);
}

/* ---- choosing ports ---- */

static const char no_such_gid[] = "no such GID";

const char *wf_rdma_port_unusable(const struct wf_hca *hca, const struct wf_hca_port *p)
{
    if (!is_named(hca->name, p->number))
        return "not the one named";
    if (!p->active)
        return "port down";
    if (hca->config.gid_index >= 0 && !p->has_gid)
        return no_such_gid;
    return p->has_gid || (p->lid && !p->needs_gid) ? NULL : "no GID";
}

/* Writes to [reason] which GIDs the port has. Called if WEFT_RDMA_GID_INDEX names a GID that the
 * port does not have. */
static void gids_explain(struct wf_hca *hca, const struct wf_hca_port *p, char *reason, size_t room)
{
    struct wf_hca_gid gids[WF_HCA_GIDS];
    char text[WF_HCA_GID_TEXT];
    int n = hca->ops->gids(hca, p->number, gids, WF_HCA_GIDS);
    size_t at = (size_t)snprintf(reason, room, "WEFT_RDMA_GID_INDEX=%d: %s:%u has %s",
                                 hca->config.gid_index, hca->name, p->number,
                                 n > 0 ? "these:" : "no GID at all");
    for (int i = 0; i < n && at < room; i++)
        at += (size_t)snprintf(reason + at, room - at, "%s %s", i ? "," : "",
                               wf_hca_gid_text(&gids[i], text));
}

static bool is_chosen(const struct rdma_ctx *ctx, const char *name, unsigned port)
{
    for (unsigned i = 0; i < ctx->nports; i++)
        if (!strcmp(ctx->ports[i].device->hca->name, name) &&
            wf_rdma_port_hca(&ctx->ports[i])->number == port)
            return true;
    return false;
}

/* Returns whether the port has the same speed and link layer as the first chosen port. If
 * WEFT_RDMA_DEVICE names no port, only such ports are chosen. */
static bool is_like_first(const struct rdma_ctx *ctx, const struct wf_hca_port *p)
{
    const struct wf_hca_port *first = ctx->nports ? wf_rdma_port_hca(&ctx->ports[0]) : p;
    return p->mbps == first->mbps && p->link == first->link;
}

static unsigned ports_max(void)
{
    return *wf_config()->rdma_device ? WF_RDMA_RAILS : (unsigned)wf_config()->rdma_rails;
}

const char *wf_rdma_port_unused(const struct rdma_ctx *ctx, const char *name,
                                const struct wf_hca_port *p)
{
    if (is_chosen(ctx, name, p->number))
        return NULL;
    if (!*wf_config()->rdma_device && !is_like_first(ctx, p))
        return "not like the first";
    return ctx->nports < ports_max() ? NULL : "enough others (WEFT_RDMA_RAILS)";
}

/* Returns the device [name] of ctx->devices. Opens the device first if necessary. Returns NULL if
 * the device cannot be opened, or if the context already has WF_RDMA_RAILS devices. */
static struct rdma_device *device_open(struct rdma_ctx *ctx, const char *name)
{
    const struct wf_hca_config config = wf_rdma_config();
    struct rdma_device *d = ctx->devices;
    for (; d < ctx->devices + ctx->ndevices; d++)
        if (!strcmp(d->hca->name, name))
            return d;
    if (ctx->ndevices == WF_RDMA_RAILS ||
        wf_rdma_hca_ops()->open(name, &config, &d->hca) != WEFT_OK)
        return NULL;
    d->ctx = ctx;
    d->number = ctx->ndevices++;
    return d;
}

/* Closes the device [d] if none of its ports was chosen, and if [d] is the device that was opened
 * last. */
static void device_drop(struct rdma_ctx *ctx, const struct rdma_device *d)
{
    for (unsigned i = 0; i < ctx->nports; i++)
        if (ctx->ports[i].device == d)
            return;
    if (d->number != ctx->ndevices - 1)
        return;
    d->hca->ops->close(d->hca);
    ctx->ndevices--;
}

void wf_rdma_devices_close_from(struct rdma_ctx *ctx, unsigned first)
{
    for (unsigned i = first; i < ctx->ndevices; i++) {
        struct rdma_device *d = &ctx->devices[i];
        if (d->pd)
            d->hca->ops->pd_close(d->pd);
        d->hca->ops->close(d->hca);
        *d = (struct rdma_device){.ctx = NULL};
    }
    ctx->ndevices = first;
}

void wf_rdma_devices_close(struct rdma_ctx *ctx)
{
    wf_rdma_devices_close_from(ctx, 0);
    ctx->nports = 0;
}

/* Adds usable ports of device [name] to ctx->ports. If [entry] is not NULL, considers only the
 * ports that [entry] names. Returns whether the device has any of the considered ports, usable or
 * not. If a port does not have the GID that WEFT_RDMA_GID_INDEX names, and [reason] is empty, lists
 * the port's GIDs in [reason]. */
static bool ports_add(struct rdma_ctx *ctx, const char *name, const struct named_port *entry,
                      char *reason, size_t room)
{
    struct rdma_device *d = device_open(ctx, name);
    /* If the context already has WF_RDMA_RAILS ports, device_open may return NULL. Then assume that
     * the considered ports exist. */
    bool exists = !d && ctx->nports == WF_RDMA_RAILS;
    for (unsigned i = 0; d && i < d->hca->nports; i++) {
        const struct wf_hca_port *p = &d->hca->ports[i];
        const char *unusable = wf_rdma_port_unusable(d->hca, p);
        if (entry && !entry_names_port(entry, name, p->number))
            continue;
        exists = true;
        if (unusable == no_such_gid && !*reason)
            gids_explain(d->hca, p, reason, room);
        if (!unusable && !wf_rdma_port_unused(ctx, name, p) && !is_chosen(ctx, name, p->number))
            ctx->ports[ctx->nports++] = (struct rdma_port){d, i};
    }
    if (d)
        device_drop(ctx, d);
    return exists;
}

/* Adds the ports that [e] names. Returns false if there is no such port. */
static bool entry_add(struct rdma_ctx *ctx, const struct wf_hca_found *found, unsigned nfound,
                      const struct named_port *e, char *reason, size_t room)
{
    for (unsigned i = 0; i < nfound; i++)
        if (entry_names_device(e, found[i].name))
            return ports_add(ctx, found[i].name, e, reason, room);
    return false;
}

/* Chooses the ports in the order in which WEFT_RDMA_DEVICE names them. Chooses no port at all if
 * one of the named ports does not exist. */
void wf_rdma_ports_choose(struct rdma_ctx *ctx, char *reason, size_t room)
{
    const char *wanted = wf_config()->rdma_device, *at = wanted;
    struct wf_hca_found found[WF_RDMA_NICS];
    unsigned n = wf_rdma_hca_ops()->list(found, WF_RDMA_NICS);
    bool all = true;
    struct named_port one;
    *reason = 0;
    while (all && entry_next(&at, &one)) {
        all = entry_add(ctx, found, n, &one, reason, room);
        if (!all) {
            wf_rdma_devices_close(ctx);
            no_port_explain(one.at, one.len, reason, room);
        }
    }
    for (unsigned i = 0; !*wanted && i < n; i++)
        (void)ports_add(ctx, found[i].name, NULL, reason, room);
    if (*wanted && !ctx->nports && !*reason)
        no_port_explain(wanted, strlen(wanted), reason, room);
}

/* ---- a context ---- */

static void ctx_free(struct rdma_ctx *ctx)
{
    wf_rdma_devices_close(ctx);
    pthread_mutex_destroy(&ctx->lock);
    free(ctx);
}

/* Opens ctx->local, which registers memory, and ctx->kept, the first endpoint. Returns false if the
 * devices have too few resources for one endpoint. Then the context is not opened, and other
 * transports carry the messages. */
static bool first_ep_open(struct rdma_ctx *ctx, uint32_t am_max)
{
    enum weft_status status = wf_rdma_reg_open(ctx, am_max);
    if (status == WEFT_OK && (status = wf_rdma_ep_new(ctx, 0, &ctx->kept)) != WEFT_OK)
        wf_staging_close(ctx->local);
    if (status == WEFT_OK && !wf_rdma_ep_connects(ctx->kept)) {
        wf_rdma_ep_close(ctx->kept);
        wf_staging_close(ctx->local);
        status = WEFT_EUNREACH;
    }
    if (status != WEFT_OK)
        wf_info("%s is not used: %s", ctx->devices[0].hca->name, weft_status_text(status));
    return status == WEFT_OK;
}

/* Returns whether the device may be used. With WEFT_RDMA_CM=1 the device needs a connection
 * manager. */
static bool has_cm(const struct wf_hca *hca)
{
    if (!wf_config()->rdma_cm || hca->ops->cm)
        return true;
    wf_warn(
        "%s is not used: WEFT_RDMA_CM=1, and the connection manager (librdmacm) is not built in",
        hca->name);
    return false;
}

static void ports_remove(struct rdma_ctx *ctx, const struct rdma_device *d)
{
    unsigned n = 0;
    for (unsigned i = 0; i < ctx->nports; i++)
        if (ctx->ports[i].device != d)
            ctx->ports[n++] = ctx->ports[i];
    ctx->nports = n;
}

/* Opens a protection domain on each device. Returns false if no port is left. */
static bool domains_open(struct rdma_ctx *ctx)
{
    for (unsigned i = 0; i < ctx->ndevices; i++) {
        struct rdma_device *d = &ctx->devices[i];
        if (d->hca->ops->pd_open(d->hca, &d->pd) == WEFT_OK)
            continue;
        wf_warn("%s is not used: it gives no protection domain: %m", d->hca->name);
        wf_rdma_device_fail(d);
        ports_remove(ctx, d);
    }
    return ctx->nports != 0;
}

enum weft_status wf_rdma_ctx_open(enum weft_sharing category, uint32_t endpoints, uint32_t am_max,
                                  uint32_t receives, struct rdma_ctx **out)
{
    struct rdma_ctx *ctx;
    char reason[WF_RDMA_REASON];
    if (wf_config()->tcp_encrypt) {
        wf_info("RDMA is not used: it does not encrypt (WEFT_TCP_ENCRYPT)");
        return WEFT_EUNREACH;
    }
    ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return WEFT_ENOMEM;
    pthread_mutex_init(&ctx->lock, NULL);
    ctx->category = category;
    ctx->endpoints = endpoints;
    ctx->receives = receives ? receives : (uint32_t)wf_config()->rdma_receives;
    wf_rdma_ports_choose(ctx, reason, sizeof reason);
    if (!ctx->nports && *reason)
        wf_error("%s; RDMA is not used", reason);
    if (!ctx->nports || !has_cm(ctx->devices[0].hca) || !domains_open(ctx)) {
        ctx_free(ctx);
        return WEFT_EUNREACH;
    }
    wf_rdma_contexts_open(ctx);
    if (!first_ep_open(ctx, am_max)) {
        ctx_free(ctx);
        return WEFT_EUNREACH;
    }
    *out = ctx;
    return WEFT_OK;
}

void wf_rdma_ctx_close(struct rdma_ctx *ctx)
{
    if (ctx->kept)
        wf_rdma_ep_close(ctx->kept);
    wf_staging_close(ctx->local);
    ctx_free(ctx);
}

static void device_read_events(struct rdma_device *d)
{
    struct wf_hca_event e;
    do {
        d->hca->ops->async(d->hca, &e);
        if (e.kind == WF_HCA_EVENT_GONE)
            wf_rdma_device_fail(d);
    } while (e.kind != WF_HCA_EVENT_NONE);
}

void wf_rdma_ctx_read_events(struct rdma_ctx *ctx)
{
    pthread_mutex_lock(&ctx->lock);
    for (unsigned i = 0; i < ctx->ndevices; i++)
        device_read_events(&ctx->devices[i]);
    pthread_mutex_unlock(&ctx->lock);
}

bool wf_rdma_atomics(const struct rdma_ctx *ctx)
{
    for (unsigned i = 0; i < ctx->ndevices; i++)
        if (wf_rdma_device_atomics(&ctx->devices[i]))
            return true;
    return false;
}
