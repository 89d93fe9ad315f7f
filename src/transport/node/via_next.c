/* SPDX-License-Identifier: BSD-3-Clause */
/* The service has died: its successor is found or started, and gets the index that this context
 * has. The endpoints' owners reattach their rings (via_ep.c). */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/log.h"
#include "base/process.h"
#include "config/config.h"
#include "mem/shared.h"
#include "transport/node/exposed.h"
#include "transport/node/nic.h"
#include "transport/ring/sleep.h"

#define PAUSE_MIN_MS 20 /* between two attempts to attach */
#define PAUSE_MAX_MS 500
#define MS UINT64_C(1000000)

/* ---- pages ---- */

struct via_page *wf_via_page_new(const struct wf_node_link *link)
{
    struct via_page *page = calloc(1, sizeof *page);
    void *map;
    if (page && wf_shared_map(link->page_fd, sizeof *page->map, 0, &map) != WEFT_OK) {
        free(page);
        page = NULL;
    }
    if (page)
        *page = (struct via_page){.map = map, .refs = 1, .membarrier = link->membarrier};
    return page;
}

void wf_via_page_drop(struct via_page *page)
{
    if (!page || --page->refs)
        return;
    munmap((void *)(uintptr_t)page->map, sizeof *page->map);
    free(page);
}

struct wf_node_attach_params wf_via_attach_params(const struct via_ctx *ctx, const char *name,
                                                  uint64_t ms)
{
    struct wf_node_attach_params params = {.key = ctx->key,
                                           .name = name,
                                           .environment = ctx->environment,
                                           .self = ctx->self,
                                           .membarrier =
                                               wf_config()->membarrier && wf_sleep_register(),
                                           .until_ns = wf_now_ns() + ms * MS};
    wf_node_parameters_here(&params.parameters);
    return params;
}

/* ---- the death of a service ---- */

/* Its socket ends before its threads have: wait until nothing of it writes any more. */
static bool await_end(const struct via_ctx *ctx, const struct wf_node_link *link, uint64_t until_ns)
{
    struct pollfd p[] = {{.fd = link->pidfd, .events = POLLIN},
                         {.fd = ctx->stop_fd, .events = POLLIN}};
    uint64_t now;
    while (!wf_pidfd_ended(link->pidfd)) {
        now = wf_now_ns();
        if (now >= until_ns || (poll(p, 2, (int)((until_ns - now) / MS + 1)) > 0 && p[1].revents))
            return false;
    }
    return true;
}

static WF_REQUIRES(via_ctx_lock_class) void ep_stale(struct via_ep *ep)
{
    if (ep->stage == VIA_NO)
        return;
    ep->comes_back |= ep->stage != VIA_WANTED && ep->stage != VIA_STALE;
    ep->stage = VIA_STALE;
    wf_node_fd_close(&ep->given_bell);
}

/* Nothing that the service was asked for will be answered. */
static WF_UNCHECKED void away(struct via_ctx *ctx)
{
    via_lock(ctx);
    wf_list_each(it, &ctx->eps) ep_stale(wf_container_of(it, struct via_ep, item));
    for (uint32_t i = 0; i < ctx->nnodes; i++)
        ctx->nodes[i] = (struct via_node){
            .who = ctx->nodes[i].who, .word = WF_NODE_NO_WORD, .failures = ctx->nodes[i].failures};
    ctx->nasks = 0;
    wf_via_page_drop(ctx->page);
    ctx->page = NULL;
    ctx->unsettled = false;
    if (ctx->exposed)
        wf_via_exposed_stale(ctx->exposed);
    via_unlock(ctx);
}

/* ---- its successor ---- */

/* Its clients' addresses name the index, and the port at which the service is called. */
static bool is_successor(const struct wf_node_link *old, const struct wf_node_link *link)
{
    return link->index == old->index && link->line == old->line &&
           !memcmp(&link->contact, &old->contact, sizeof old->contact);
}

static WF_UNCHECKED bool adopt(struct via_ctx *ctx, struct wf_node_link *link)
{
    struct wf_node_link *old = ctx->link;
    struct via_page *page = wf_via_page_new(link);
    if (!page) {
        wf_node_detach(link);
        return false;
    }
    link->answer = wf_via_answer;
    link->owner = ctx;
    if (ctx->nic)
        wf_via_nic_renew(ctx->nic, link);
    else
        wf_node_command_close(link);
    WF_HOOK("node.successor");
    via_lock(ctx);
    ctx->link = link;
    ctx->page = page;
    ctx->unsettled = true;
    ctx->unsent = true;
    wf_via_eps_wake(ctx);
    pthread_cond_broadcast(&ctx->answered);
    via_unlock(ctx);
    wf_node_detach(old);
    return true;
}

/* Could another attempt end otherwise? */
static bool may_pass(enum weft_status status)
{
    return status == WEFT_ESYSTEM || status == WEFT_ELIMIT || status == WEFT_ENOMEM ||
           status == WEFT_ETIMEDOUT;
}

static bool is_stopped(const struct via_ctx *ctx, int ms)
{
    struct pollfd p = {.fd = ctx->stop_fd, .events = POLLIN};
    return poll(&p, 1, ms) == 1;
}

static WF_UNCHECKED enum weft_status attach(struct via_ctx *ctx, uint64_t until_ns, char why[512])
{
    struct wf_node_link *old = ctx->link, *link = &ctx->links[old == &ctx->links[0]];
    char name[WF_NODE_NAME_ROOM];
    struct wf_node_attach_params params = wf_via_attach_params(ctx, name, 0);
    enum weft_status status = WEFT_EINVAL;
    char last[512];
    int pause_ms = PAUSE_MIN_MS;
    if (wf_node_name_expand(wf_config()->node_name, ctx->number, name))
        return status;
    params.held = old->index + 1;
    params.last = old->incarnation;
    params.line = old->line;
    params.estate = old->estate;
    params.nestate = old->nestate;
    params.until_ns = until_ns;
    params.stop_fd = ctx->stop_fd;
    params.why = last;
    for (;;) {
        status = wf_node_attach(&params, link);
        if (status != WEFT_OK && (status != WEFT_ETIMEDOUT || !*why)) /* the least exact reason */
            snprintf(why, 512, "%s", last);
        if (status == WEFT_OK && !is_successor(old, link)) {
            wf_node_detach(link);
            snprintf(why, 512, "another service has its name, which does not have its clients");
            return WEFT_EPEER;
        }
        if (status == WEFT_OK && adopt(ctx, link))
            return WEFT_OK;
        if (status == WEFT_OK)
            snprintf(why, 512, "its page cannot be mapped (ulimit -v)");
        status = status == WEFT_OK ? WEFT_ENOMEM : status;
        if (!may_pass(status) || wf_now_ns() >= until_ns || is_stopped(ctx, pause_ms))
            return status;
        pause_ms = WF_MIN(2 * pause_ms, PAUSE_MAX_MS);
    }
}

WF_UNCHECKED bool wf_via_succeed(struct via_ctx *ctx)
{
    uint64_t until_ns = wf_now_ns() + wf_config()->peer_timeout_ms * MS;
    char why[512] = "";
    int pid = (int)ctx->link->pid;
    wf_info("the node's service, process %d, has ended: finding its successor", pid);
    if (await_end(ctx, ctx->link, until_ns)) {
        if (ctx->nic)
            wf_via_nic_fence(ctx->nic);
        away(ctx);
        if (attach(ctx, until_ns, why) == WEFT_OK)
            return true;
    } else {
        snprintf(why, sizeof why, "its process does not end");
    }
    if (!is_stopped(ctx, 0))
        wf_warn("the node's service, process %d, has ended, and has no successor: this process's "
                "messages by it are lost: %s",
                pid, why);
    return false;
}
