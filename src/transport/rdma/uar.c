/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rdma/uar.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "config/mlx5_env.h"

#define DEDICATED_MOST                                                                             \
    4u                  /* current mode: queue pairs without a domain that have their own uUAR     \
                         */
#define SHARED_PAGES 6u /* current mode: pages for the others */

/* Why a context has a page. */
enum purpose { STATIC, DOORBELLS, DEDICATED, SHARED, DOMAINS };

struct uuar {
    uint32_t users;    /* queue pairs */
    bool given;        /* DEDICATED: to a queue pair; DOMAINS: to a thread domain */
    bool mixed;        /* had users of several owners since it was unused */
    const void *owner; /* of the domain, or of the first queue pair; NULL: unused */
    uint64_t freed;    /* when it became free */
};

struct wf_uar_page {
    uint32_t number; /* of the NIC */
    uint8_t purpose;
    struct uuar uuars[2];
};

/* ---- a NIC ---- */

void wf_uar_nic_open(struct wf_uar_nic *nic)
{
    memset(nic, 0, sizeof *nic);
    wf_uar_nic_limit(nic, WF_UAR_NIC_PAGES);
}

void wf_uar_nic_limit(struct wf_uar_nic *nic, uint32_t pages)
{
    atomic_store_explicit(&nic->pages, WF_MIN(pages, WF_UAR_NIC_MAX), memory_order_relaxed);
}

/* Takes the lowest free page. */
static bool page_take(struct wf_uar_nic *nic, uint32_t *out)
{
    uint32_t pages = atomic_load_explicit(&nic->pages, memory_order_relaxed);
    for (uint32_t i = 0; i < pages; i++) {
        uint64_t bit = UINT64_C(1) << i % 64;
        if (atomic_load_explicit(&nic->used[i / 64], memory_order_relaxed) & bit ||
            atomic_fetch_or_explicit(&nic->used[i / 64], bit, memory_order_relaxed) & bit)
            continue;
        *out = i;
        return true;
    }
    return false;
}

static void page_give(struct wf_uar_nic *nic, uint32_t number)
{
    atomic_fetch_and_explicit(&nic->used[number / 64], ~(UINT64_C(1) << number % 64),
                              memory_order_relaxed);
}

/* ---- a context ---- */

struct wf_uar_config wf_uar_config_of(enum wf_uar_mode mode)
{
    return (struct wf_uar_config){.mode = mode, .total = 16, .low_latency = 4, .blueflame = true};
}

/* The driver takes at least total - 12 uUARs for low latency. */
struct wf_uar_config wf_uar_config_env(enum wf_uar_mode mode)
{
    struct wf_uar_config c = wf_uar_config_of(mode);
    const struct wf_mlx5_env dflt = {c.total, c.low_latency, false};
    const struct wf_mlx5_env env = wf_mlx5_env_read(&dflt);
    c.total = env.total;
    c.low_latency = env.low_latency;
    if (c.total > 12)
        c.low_latency = (uint16_t)WF_MAX(c.low_latency, c.total - 12);
    c.blueflame = !env.shut_up_bf;
    return c;
}

const char *wf_uar_config_wrong(const struct wf_uar_config *c)
{
    if (c->mode != WF_UAR_CLASSIC)
        return NULL;
    if (c->total < 2 || c->total % 2 || c->total > WF_UAR_STATIC_MAX)
        return "MLX5_TOTAL_UUARS must be even, from 2 to 512";
    if (c->low_latency >= c->total)
        return "MLX5_NUM_LOW_LAT_UUARS, 4 by default, must be less than MLX5_TOTAL_UUARS: "
               "MLX5_TOTAL_UUARS=2 needs MLX5_NUM_LOW_LAT_UUARS=1";
    return NULL;
}

static enum weft_status page_add(struct wf_uars *u, enum purpose purpose)
{
    if (u->npages == u->room) {
        uint32_t room = u->room ? 2 * u->room : 16;
        struct wf_uar_page *grown = realloc(u->pages, room * sizeof *grown);
        if (!grown)
            return WEFT_ENOMEM;
        u->pages = grown;
        u->room = room;
    }
    u->pages[u->npages] = (struct wf_uar_page){.purpose = (uint8_t)purpose};
    for (int i = 0; i < 2; i++)
        u->pages[u->npages].uuars[i].freed = ++u->clock;
    if (!page_take(u->nic, &u->pages[u->npages].number))
        return WEFT_ELIMIT;
    u->npages++;
    return WEFT_OK;
}

enum weft_status wf_uars_open(struct wf_uars *u, struct wf_uar_nic *nic,
                              const struct wf_uar_config *config)
{
    bool classic = config->mode == WF_UAR_CLASSIC;
    uint32_t pages = classic ? config->total / 2u : 1;
    enum weft_status status = wf_uar_config_wrong(config) ? WEFT_EINVAL : WEFT_OK;
    *u = (struct wf_uars){.nic = nic, .config = *config};
    for (uint32_t i = 0; i < pages && status == WEFT_OK; i++)
        status = page_add(u, classic ? STATIC : DOORBELLS);
    if (status != WEFT_OK)
        wf_uars_close(u);
    return status;
}

void wf_uars_close(struct wf_uars *u)
{
    for (uint32_t i = 0; i < u->npages; i++)
        page_give(u->nic, u->pages[i].number);
    free(u->pages);
    u->pages = NULL;
    u->npages = u->room = 0;
}

static uint32_t pages_of(const struct wf_uars *u, enum purpose purpose)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < u->npages; i++)
        n += u->pages[i].purpose == purpose;
    return n;
}

static struct uuar *uuar_of(const struct wf_uars *u, const struct wf_uuar *uuar)
{
    return &u->pages[uuar->at].uuars[uuar->half];
}

static struct wf_uuar uuar_at(const struct wf_uars *u, uint32_t at, unsigned half,
                              enum wf_uuar_kind kind)
{
    return (struct wf_uuar){
        .page = u->pages[at].number, .at = at, .half = (uint8_t)half, .kind = (uint8_t)kind};
}

/* ---- uUARs of one user ---- */

/* Finds the free uUAR of the [purpose] that comes first: the lowest, or the one that became free
 * first. */
static bool free_find(const struct wf_uars *u, enum purpose purpose, struct wf_uuar *out)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t i = 0; i < 2 * u->npages; i++) {
        const struct wf_uar_page *p = &u->pages[i / 2];
        uint64_t rank = u->config.mode == WF_UAR_CLASSIC ? i : p->uuars[i % 2].freed;
        if (p->purpose != purpose || p->uuars[i % 2].given || rank >= first)
            continue;
        first = rank;
        *out = uuar_at(u, i / 2, i % 2, WF_UUAR_DEDICATED);
    }
    return first != UINT64_MAX;
}

static void uuar_release(struct wf_uars *u, struct uuar *x)
{
    x->given = false;
    x->freed = ++u->clock;
}

enum weft_status wf_uars_td(struct wf_uars *u, struct wf_uuar *out)
{
    if (!free_find(u, DOMAINS, out)) {
        enum weft_status status = WEFT_ELIMIT;
        if (u->config.mode != WF_UAR_CLASSIC || pages_of(u, DOMAINS) < WF_UAR_DYNAMIC_PAGES)
            status = page_add(u, DOMAINS);
        if (status != WEFT_OK)
            return status;
        (void)free_find(u, DOMAINS, out);
    }
    uuar_of(u, out)->given = true;
    uuar_of(u, out)->owner = NULL;
    return WEFT_OK;
}

void wf_uars_td_own(struct wf_uars *u, const struct wf_uuar *uuar, const void *owner)
{
    uuar_of(u, uuar)->owner = owner;
}

void wf_uars_td_free(struct wf_uars *u, const struct wf_uuar *uuar)
{
    uuar_release(u, uuar_of(u, uuar));
}

void wf_uars_td_qp(struct wf_uars *u, const struct wf_uuar *uuar)
{
    uuar_of(u, uuar)->users++;
}

void wf_uars_td_qp_free(struct wf_uars *u, const struct wf_uuar *uuar)
{
    uuar_of(u, uuar)->users--;
}

/* ---- queue pairs without a domain ---- */

static void owner_add(struct uuar *x, const void *owner)
{
    if (!x->users) {
        x->owner = owner;
        x->mixed = false;
    }
    x->mixed |= x->owner != owner;
}

/* Finds the uUAR with the fewest queue pairs among those of index [from] to [to] - 1 that are on
 * pages of the [purpose]. */
static bool least_used(const struct wf_uars *u, enum purpose purpose, uint32_t from, uint32_t to,
                       struct wf_uuar *out)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t i = from; i < to; i++) {
        const struct wf_uar_page *p = &u->pages[i / 2];
        if (p->purpose != purpose || p->uuars[i % 2].users >= least)
            continue;
        least = p->uuars[i % 2].users;
        *out = uuar_at(u, i / 2, i % 2, WF_UUAR_SHARED);
    }
    return least != UINT32_MAX;
}

/* The static pages are the first of a classic context, so a static uUAR's index is its number. */
static void classic_choose(const struct wf_uars *u, struct wf_uuar *out)
{
    uint32_t total = u->config.total, low = total - u->config.low_latency;
    for (uint32_t i = low; i < total; i++)
        if (!u->pages[i / 2].uuars[i % 2].users) {
            *out = uuar_at(u, i / 2, i % 2, WF_UUAR_DEDICATED);
            return;
        }
    if (!least_used(u, STATIC, 1, low, out))
        *out = uuar_at(u, 0, 0, WF_UUAR_DOORBELL);
}

static enum weft_status current_choose(struct wf_uars *u, struct wf_uuar *out)
{
    enum weft_status status;
    if (!u->config.blueflame) {
        *out = uuar_at(u, 0, 0, WF_UUAR_DOORBELL);
        return WEFT_OK;
    }
    if (free_find(u, DEDICATED, out))
        return WEFT_OK;
    if (2 * pages_of(u, DEDICATED) < DEDICATED_MOST) {
        status = page_add(u, DEDICATED);
        if (status == WEFT_OK)
            (void)free_find(u, DEDICATED, out);
        return status;
    }
    status = pages_of(u, SHARED) < SHARED_PAGES ? page_add(u, SHARED) : WEFT_OK;
    if (status != WEFT_OK)
        return status;
    (void)least_used(u, SHARED, 0, 2 * u->npages, out);
    return WEFT_OK;
}

enum weft_status wf_uars_qp(struct wf_uars *u, const void *owner, struct wf_uuar *out)
{
    enum weft_status status = WEFT_OK;
    if (u->config.mode == WF_UAR_CLASSIC)
        classic_choose(u, out);
    else
        status = current_choose(u, out);
    if (status != WEFT_OK)
        return status;
    owner_add(uuar_of(u, out), owner);
    uuar_of(u, out)->users++;
    uuar_of(u, out)->given = out->kind == WF_UUAR_DEDICATED;
    return WEFT_OK;
}

void wf_uars_qp_free(struct wf_uars *u, const struct wf_uuar *uuar)
{
    struct uuar *x = uuar_of(u, uuar);
    x->users--;
    if (!x->users)
        x->owner = NULL;
    if (uuar->kind == WF_UUAR_DEDICATED)
        uuar_release(u, x);
}

/* ---- levels of sharing, and counts ---- */

static bool has_others(const struct uuar *x, const void *owner)
{
    return x->owner && (x->mixed || x->owner != owner);
}

unsigned wf_uuar_level(const struct wf_uars *u, const struct wf_uuar *uuar, const void *owner)
{
    const struct wf_uar_page *p = &u->pages[uuar->at];
    if (has_others(&p->uuars[uuar->half], owner))
        return 3;
    return has_others(&p->uuars[!uuar->half], owner) ? 2 : 1;
}

struct wf_uar_count wf_uars_count(const struct wf_uars *u)
{
    struct wf_uar_count c = {.pages = u->npages, .uuars = 2 * u->npages};
    for (uint32_t i = 0; i < u->npages; i++)
        c.used += (u->pages[i].uuars[0].users > 0) + (u->pages[i].uuars[1].users > 0);
    c.wasted = c.uuars - c.used;
    return c;
}
