/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "base/params.h"
#include "config/config.h"
#include "mem/budget.h"
#include "mem/elements.h"
#include "core/core.h"
#include "core/event.h"
#include "core/mr_domain.h"
#include "core/region.h"
#include "transport/identity.h"

const struct wf_transport *const wf_transports[WF_TRANSPORTS] = {
    &wf_loop_transport, &wf_shm_transport,
#ifdef WF_HAVE_TCP
    &wf_node_transport,
#endif
#ifdef WF_HAVE_VERBS
    &wf_rdma_transport,
#endif
#ifdef WF_HAVE_TCP
    &wf_tcp_transport,
#endif
};

static enum weft_status params_check(const struct weft_ctx_params *p)
{
    enum weft_status status =
        p ? wf_params_check("WEFT_CTX_PARAMS", p->version, p->flags, WEFT_CTX_NETWORK, p->reserved,
                            WF_ARRAY_LEN(p->reserved))
          : WEFT_OK;
    if (status == WEFT_OK && p && p->sharing > WEFT_SHARING_SPLIT) {
        wf_error("weft_ctx_open: params.sharing is %u, which is not in enum weft_sharing",
                 p->sharing);
        return WEFT_EINVAL;
    }
    if (status == WEFT_OK && p && p->progress > WEFT_PROGRESS_THREAD) {
        wf_error("weft_ctx_open: params.progress is %u, which is not in enum weft_progress",
                 p->progress);
        return WEFT_EINVAL;
    }
    if (status == WEFT_OK && p && p->am_max &&
        (p->am_max < WEFT_AM_MAX_LEAST || p->am_max > WEFT_AM_MAX_MOST)) {
        wf_error("weft_ctx_open: params.am_max is %u bytes: give %u to %u, or 0", p->am_max,
                 WEFT_AM_MAX_LEAST, WEFT_AM_MAX_MOST);
        return WEFT_EINVAL;
    }
    if (status == WEFT_OK && p && p->msg_eager > WEFT_MSG_EAGER_MOST) {
        wf_error("weft_ctx_open: params.msg_eager is %u bytes: give at most %u", p->msg_eager,
                 WEFT_MSG_EAGER_MOST);
        return WEFT_EINVAL;
    }
    if (status == WEFT_OK && p && p->reserved0) {
        wf_error("weft_ctx_open: params.reserved0 is %u: give 0", p->reserved0);
        return WEFT_EINVAL;
    }
    return status;
}

/* Take what the program asks for, and for the rest what the variables say. */
static void limits_set(struct weft_ctx *ctx, const struct weft_ctx_params *p)
{
    ctx->am_max = (uint32_t)wf_config()->am_max;
    ctx->msg_eager = (uint32_t)wf_config()->msg_eager;
    if (p && p->am_max)
        ctx->am_max = (uint32_t)wf_align_up(p->am_max, 64);
    if (p && p->msg_eager)
        ctx->msg_eager = p->msg_eager;
}

static bool wants_thread(const struct weft_ctx_params *p)
{
    return p && p->progress ? p->progress == WEFT_PROGRESS_THREAD : wf_config()->progress;
}

/* The values of WEFT_SHARING are those of enum weft_sharing, in its order. */
static enum weft_sharing sharing_of(const struct weft_ctx_params *p)
{
    enum weft_sharing set = (enum weft_sharing)wf_config()->sharing;
    if (set == WEFT_SHARING_DEFAULT && p)
        set = (enum weft_sharing)p->sharing;
    return set == WEFT_SHARING_DEFAULT ? WEFT_SHARING_AUTO : set;
}

static void transports_close(struct weft_ctx *ctx)
{
    for (int i = WF_TRANSPORTS; i-- > 0;)
        if (ctx->tctx[i])
            wf_transports[i]->ctx_close(ctx->tctx[i]);
}

void wf_ctx_close_within(struct weft_ctx *ctx, uint32_t ms)
{
    for (int i = 0; i < WF_TRANSPORTS; i++)
        if (ctx->tctx[i])
            ctx->tctx[i]->close_ms = ms;
}

/* Parse the next name of a comma-separated list, and move *at behind the name and its comma.
 * Returns the length of *name. */
static size_t name_next(const char **at, const char **name)
{
    size_t n = strcspn(*at, ",");
    *name = *at;
    *at += n + ((*at)[n] == ',');
    return n;
}

static bool name_is(const char *name, size_t n, const char *of)
{
    return strlen(of) == n && !memcmp(name, of, n);
}

bool wf_ctx_wants(const struct wf_transport *t)
{
    return wf_config_wants(t->name) || t == &wf_loop_transport;
}

bool wf_ctx_wants_service(void)
{
#ifdef WF_HAVE_TCP
    return wf_config()->node && wf_ctx_wants(&wf_node_transport);
#else
    return false;
#endif
}

bool wf_ctx_uses(const struct weft_ctx *ctx, const struct wf_transport *t)
{
    for (int i = 0; i < WF_TRANSPORTS; i++)
        if (wf_transports[i] == t)
            return ctx->tctx[i] != NULL;
    return false;
}

static enum weft_status transports_check(void)
{
    const char *at = wf_config()->transports, *name;
    while (*at) {
        size_t n = name_next(&at, &name);
        bool known = name_is(name, n, "tcp") || name_is(name, n, "rdma") ||
                     name_is(name, n, "node"); /* built in or not */
        for (int i = 0; i < WF_TRANSPORTS; i++)
            known |= name_is(name, n, wf_transports[i]->name);
        if (!known) {
            wf_error("WEFT_TRANSPORTS=%s: there is no transport \"%.*s\"; weft info lists them",
                     wf_config()->transports, (int)n, name);
            return WEFT_EINVAL;
        }
    }
    return WEFT_OK;
}

/* Add a transport's address [more] to the context's address [to]. All transports listen on the same
 * network interfaces, so only the ports differ. */
static void contact_add(struct wf_contact *to, const struct wf_contact *more)
{
    uint16_t port = more->port ? more->port : to->port, rdma = more->rdma ? more->rdma : to->rdma;
    uint16_t index = more->node ? more->index : to->index;
    uint8_t node = more->node | to->node;
    *to = *more;
    to->port = port;
    to->rdma = rdma;
    to->node = node;
    to->index = index;
}

void wf_ctx_contact_add(struct weft_ctx *ctx, int i)
{
    const struct wf_transport *t = wf_transports[i];
    const struct wf_contact *more = t->contact ? t->contact(ctx->tctx[i]) : NULL;
    if (!more)
        return;
    wf_ctx_lock(ctx);
    contact_add(&ctx->contact, more);
    wf_ctx_unlock(ctx);
}

static enum weft_status transport_open(struct weft_ctx *ctx, int i, struct wf_tctx_params *params)
{
    const struct wf_transport *t = wf_transports[i];
    enum weft_status status;
    ctx->absent[i] = "it cannot be used here: weft info";
    params->why = &ctx->absent[i];
    status = t->ctx_open(params, &ctx->tctx[i]);
    if (status != WEFT_OK)
        ctx->tctx[i] = NULL;
    else
        wf_ctx_contact_add(ctx, i);
    return status == WEFT_EUNREACH ? WEFT_OK : status;
}

/* With a node's service no NIC is opened: an address has room for one of the two ports. */
static bool is_replaced(const struct wf_transport *t)
{
#ifdef WF_HAVE_VERBS
    return t == &wf_rdma_transport && wf_ctx_wants_service();
#else
    (void)t;
    return false;
#endif
}

static enum weft_status transports_open(struct weft_ctx *ctx, const struct weft_ctx_params *p)
{
    struct wf_tctx_params params = {.mem = &ctx->mem,
                                    .self = &ctx->self,
                                    .fork_gen = ctx->fork_gen,
                                    .network = p && p->flags & WEFT_CTX_NETWORK,
                                    .sharing = ctx->sharing,
                                    .endpoints = p ? p->endpoints : 0,
                                    .am_max = ctx->am_max};
    enum weft_status status = transports_check();
    for (int i = 0; i < WF_TRANSPORTS && status == WEFT_OK; i++)
        if (wf_ctx_wants(wf_transports[i]) && is_replaced(wf_transports[i]))
            ctx->absent[i] = "WEFT_NODE is on, so the node's service carries the messages";
        else if (wf_ctx_wants(wf_transports[i]))
            status = transport_open(ctx, i, &params);
        else
            ctx->absent[i] = "WEFT_TRANSPORTS of this process does not name it";
    if (status != WEFT_OK)
        transports_close(ctx);
    return status;
}

enum weft_status weft_ctx_set_key(struct weft_ctx *ctx, const void *key, size_t len)
{
    enum weft_status status = wf_ctx_check(ctx);
    if (status != WEFT_OK)
        return status;
    if (!key || len < WEFT_SECRET_MIN) {
        wf_error("weft_ctx_set_key: a secret has %u bytes or more, all of them random",
                 WEFT_SECRET_MIN);
        return WEFT_EINVAL;
    }
    for (int i = 0; i < WF_TRANSPORTS && status == WEFT_OK; i++)
        if (ctx->tctx[i] && wf_transports[i]->set_key) {
            status = wf_transports[i]->set_key(ctx->tctx[i], key, len);
            if (status == WEFT_OK) /* a client of the node's service has one only with the key */
                wf_ctx_contact_add(ctx, i);
        }
    return status;
}

enum weft_status weft_ctx_open(const struct weft_ctx_params *params, struct weft_ctx **out)
{
    enum weft_status status = out ? params_check(params) : WEFT_EINVAL;
    struct wf_mr_domain domain;
    struct weft_ctx *ctx;
    wf_log_note();
    if (status == WEFT_OK)
        status = wf_mr_domain_check(params ? params->mr : NULL, &domain);
    if (status == WEFT_OK)
        status = wf_config_init();
    if (status != WEFT_OK)
        return status;
    ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return WEFT_ENOMEM;
    ctx->domain = domain;
    ctx->sharing = sharing_of(params);
    limits_set(ctx, params);
    wf_list_init(&ctx->eps);
    ctx->cores = wf_processors_allowed();
    ctx->fork_gen = wf_fork_gen_begin();
    wf_pull_begin();
    wf_atomics_begin();
    status = ctx->fork_gen ? wf_process_identify(&ctx->self) : WEFT_ENOMEM;
    if (status == WEFT_OK)
        status = wf_mem_init(&ctx->mem, wf_config()->slab, domain.auth);
    if (status != WEFT_OK)
        goto free_ctx;
    status = wf_stats_open(&ctx->stats);
    if (status == WEFT_OK)
        status = transports_open(ctx, params);
    if (status != WEFT_OK)
        goto fini_mem;
    status = wants_thread(params) ? wf_progress_open(ctx) : WEFT_OK;
    if (status != WEFT_OK)
        goto close_transports;
    if (domain.eq && (status = wf_eq_use(domain.eq)) != WEFT_OK) {
        wf_progress_close(ctx);
        goto close_transports;
    }
    pthread_mutex_init(&ctx->lock, NULL);
    wf_keymap_init(&ctx->keymap, ctx->self.token[1]);
    wf_mr_async_init(&ctx->mr_async);
    wf_names_init(&ctx->names);
    *out = ctx;
    return WEFT_OK;
close_transports:
    transports_close(ctx);
fini_mem:
    wf_stats_close(&ctx->stats);
    wf_mem_fini(&ctx->mem);
free_ctx:
    free(ctx);
    return status;
}

struct weft_ctx wf_closed_ctx = {.fork_gen = WF_FORK_GEN_CLOSED};
struct weft_ep wf_closed_ep = {.fork_gen = WF_FORK_GEN_CLOSED};
struct weft_peer wf_closed_peer = {.ep = &wf_closed_ep};

enum weft_status wf_refuse_close(const char *call, const char *what)
{
    wf_error("%s: the %s belongs to the job, and weft_job_close closes it", call, what);
    return WEFT_EINVAL;
}

bool wf_ctx_has_more(struct weft_ctx *ctx, const struct weft_ep *ep, unsigned regions)
{
    bool more;
    wf_ctx_lock(ctx);
    more = ctx->regions != regions || ctx->eps.next != &ep->item || ctx->eps.prev != &ep->item;
    wf_ctx_unlock(ctx);
    return more;
}

enum weft_status weft_ctx_close(struct weft_ctx *ctx)
{
    enum weft_status status = wf_ctx_check(ctx);
    bool in_use;
    if (status == WEFT_OK && ctx->of_job)
        status = wf_refuse_close("weft_ctx_close", "context");
    if (status != WEFT_OK)
        return status;
    wf_ctx_lock(ctx);
    in_use = !wf_list_empty(&ctx->eps) || ctx->regions;
    wf_ctx_unlock(ctx);
    if (in_use || wf_keymap_busy(&ctx->keymap))
        return WEFT_EBUSY;
    wf_names_fini(&ctx->names);
    wf_mr_async_close(&ctx->mr_async);
    wf_keymap_fini(&ctx->keymap);
    if (ctx->domain.eq)
        wf_eq_unuse(ctx->domain.eq);
    wf_progress_close(ctx);
    transports_close(ctx);
    wf_stats_close(&ctx->stats);
    wf_mem_fini(&ctx->mem);
    pthread_mutex_destroy(&ctx->lock);
    if (wf_handle_free(ctx))
        ctx->fork_gen = WF_FORK_GEN_CLOSED;
    return WEFT_OK;
}

void weft_ctx_set_local_ranks(struct weft_ctx *ctx, unsigned ranks)
{
    if (!ctx)
        return;
    atomic_store_explicit(&ctx->local_ranks, ranks, memory_order_relaxed);
    wf_budget_divide(ranks);
}

void weft_transport_rows(weft_transport_row_fn row, void *arg)
{
    for (int i = 0; i < WF_TRANSPORTS; i++) {
        char note[256] = "";
        int usable = wf_transports[i]->probe(note, sizeof note);
        row(arg, wf_transports[i]->name, usable, note);
    }
}

void weft_device_rows(weft_device_row_fn row, void *arg)
{
    for (int i = 0; i < WF_TRANSPORTS; i++)
        if (wf_transports[i]->devices)
            wf_transports[i]->devices(row, arg);
}

void weft_resource_rows(const struct weft_ctx *ctx, weft_resource_row_fn row, void *arg)
{
    if (wf_ctx_check(ctx) != WEFT_OK)
        return;
    for (int i = 0; i < WF_TRANSPORTS; i++)
        if (ctx->tctx[i] && wf_transports[i]->resources)
            wf_transports[i]->resources(ctx->tctx[i], row, arg);
}

uint64_t weft_pinnable(const struct weft_ctx *ctx, uint64_t reserve, uint64_t *pinned)
{
    const struct wf_budget *budget;
    uint64_t used, limit;
    uint32_t pins = 0;
    if (pinned)
        *pinned = 0;
    if (wf_ctx_check(ctx) != WEFT_OK)
        return UINT64_MAX;
    for (int i = 0; i < WF_TRANSPORTS; i++)
        if (ctx->tctx[i])
            pins = WF_MAX(pins, ctx->tctx[i]->pins);
    budget = wf_budget_own();
    used = atomic_load_explicit(&budget->used, memory_order_relaxed);
    limit = atomic_load_explicit(&budget->limit, memory_order_relaxed);
    if (pinned)
        *pinned = used;
    if (!pins)
        return UINT64_MAX;
    return used < limit && reserve < limit - used ? (limit - used - reserve) / pins : 0;
}

uint64_t weft_inline_counts_[3];

static void inline_rows(weft_stat_row_fn row, void *arg)
{
    static const struct {
        const char *name, *doc;
    } rows[] = {{"INLINE_PUT", "inlined puts of code compiled with WEFT_COUNT_INLINE"},
                {"INLINE_GET", "inlined gets of code compiled with WEFT_COUNT_INLINE"},
                {"INLINE_ATOMIC", "inlined atomics of code compiled with WEFT_COUNT_INLINE"}};
    for (size_t i = 0; i < WF_ARRAY_LEN(rows); i++)
        row(arg, rows[i].name, __atomic_load_n(&weft_inline_counts_[i], __ATOMIC_RELAXED),
            rows[i].doc);
}

void weft_stat_rows(const struct weft_ctx *ctx, weft_stat_row_fn row, void *arg)
{
    static const struct {
        const char *name, *doc;
    } rows[] = {
#define WF_STAT(name, doc) {#name, doc},
#include "config/stats.def"
#undef WF_STAT
    };
    struct weft_ctx *c = (struct weft_ctx *)(uintptr_t)ctx; /* for its lock */
    uint64_t sum[WF_STATS];
    if (!ctx || !wf_fork_gen_is(ctx->fork_gen))
        return;
    wf_ctx_lock(c);
    wf_stats_sum(&c->stats, sum);
    wf_ctx_unlock(c);
    for (int i = 0; i < WF_STATS; i++)
        row(arg, rows[i].name, sum[i], rows[i].doc);
    inline_rows(row, arg);
}
