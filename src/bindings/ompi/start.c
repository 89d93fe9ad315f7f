/* SPDX-License-Identifier: BSD-3-Clause */
/* The modules open a context of Weft and its endpoints, and publish how other ranks reach this one.
 */
#include <stdlib.h>
#include <string.h>

#include <opal/mca/pmix/pmix.h>

#include "binding.h"
#include "key.h"
#include "rma.h"

static void config_row(void *arg, const char *name, const char *value, const char *dflt,
                       const char *doc)
{
    (void)arg, (void)dflt, (void)doc;
    if (!strcmp(name, "WEFT_KEY_FILE") && *value)
        wbtl.key_file = true;
    if (!strcmp(name, "WEFT_NODE") && strcmp(value, "0"))
        wbtl.key_early = true;
    if (!strcmp(name, "WEFT_PROGRESS") && !strcmp(value, "thread")) {
        atomic_store(&wbtl.holds, 1);
        atomic_store(&wbtl.copies, 1);
        wbtl.threads = wbtl.own_thread = true;
    }
}

/* ---- what ranks publish ---- */

static unsigned char page; /* other ranks read it, but not its value: order.c */

static enum weft_status page_register(void)
{
    return weft_mr_register(wbtl.ctx, &page, sizeof page, WEFT_MEM_HOST, WEFT_REMOTE_READ,
                            &wbtl.page);
}

enum weft_status wbtl_card_fill(struct wbtl_card *card)
{
    size_t len = sizeof card->address, page_len = sizeof card->page;
    enum weft_status s = weft_ep_address(wbtl.ep, card->address, &len);
    if (s == WEFT_OK)
        s = weft_mr_key(wbtl.page, card->page, &page_len);
    card->page_len = (uint32_t)page_len;
    return s;
}

static bool publish(struct wbtl_card *card)
{
    int rc = OPAL_ERROR;
    enum weft_status s = page_register();
    if (s == WEFT_OK)
        s = wbtl_card_fill(card);
    if (s == WEFT_OK)
        OPAL_MODEX_SEND(rc, OPAL_PMIX_GLOBAL, &mca_btl_weft_component.btl_version, card,
                        sizeof *card);
    return rc == OPAL_SUCCESS;
}

/* Has the launcher collected all that [name] published, in the fence of the job's ranks? Then a
 * card that the launcher does not have was never published: the rank has no such component. The
 * launcher would still wait 2 s for the card. */
static bool is_collected(const opal_process_name_t *name)
{
    return name->jobid == OPAL_PROC_MY_NAME.jobid && opal_pmix_collect_all_data &&
           !opal_pmix_base_async_modex;
}

/* Returns what [name] has published as [key], or NULL. [now]: the launcher does not wait for it. */
static opal_value_t *card_get(const opal_process_name_t *name, const char *key, bool now)
{
    opal_value_t *value = NULL, *at_once = now ? OBJ_NEW(opal_value_t) : NULL;
    opal_list_t info;
    int rc;
    OBJ_CONSTRUCT(&info, opal_list_t);
    if (at_once) {
        at_once->key = strdup(OPAL_PMIX_IMMEDIATE);
        at_once->type = OPAL_BOOL;
        at_once->data.flag = true;
        opal_list_append(&info, &at_once->super);
    }
    rc = opal_pmix.get(name, key, at_once ? &info : NULL, &value);
    OPAL_LIST_DESTRUCT(&info);
    return rc == OPAL_SUCCESS ? value : NULL;
}

bool wbtl_card_of(const opal_process_name_t *name, struct wbtl_card *out)
{
    char *key = mca_base_component_to_string(&mca_btl_weft_component.btl_version);
    opal_value_t *value = key ? card_get(name, key, is_collected(name)) : NULL;
    bool good = value && value->type == OPAL_BYTE_OBJECT && value->data.bo.bytes &&
                (size_t)value->data.bo.size == sizeof *out;
    if (good) {
        memcpy(out, value->data.bo.bytes, sizeof *out);
        good = out->format == WBTL_CARD && out->page_len <= sizeof out->page;
        explicit_bzero(value->data.bo.bytes, sizeof *out);
    }
    if (value)
        OBJ_RELEASE(value);
    free(key);
    return good;
}

/* ---- open and close ---- */

static enum weft_status ports_open(void)
{
    struct weft_ep_params ep = WEFT_EP_PARAMS_INIT;
    const unsigned count = wbtl.threads ? (unsigned)wbtl.vars.endpoints : 1;
    enum weft_status s = WEFT_OK;
    ep.flags = wbtl.threads ? WEFT_EP_NOWAIT : 0;
    ep.peer_down = wbtl_peer_down;
    while (wbtl.nports < count &&
           (s = weft_ep_open(wbtl.ctx, &ep, &wbtl.ports[wbtl.nports].ep)) == WEFT_OK)
        wbtl.nports++;
    if (wbtl.nports)
        wbtl.ep = wbtl.ports[0].ep;
    return s;
}

static enum weft_status open_all(struct wbtl_card *card)
{
    struct weft_ctx_params ctx = WEFT_CTX_PARAMS_INIT;
    enum weft_status s;
    ctx.flags = WEFT_CTX_NETWORK;
    ctx.am_max = WEFT_AM_MAX_MOST; /* puts and gets by messages need it as well */
    ctx.endpoints = (uint32_t)wbtl.vars.endpoints;
    s = weft_ctx_open(&ctx, &wbtl.ctx);
    if (s != WEFT_OK) {
        wbtl.ctx = NULL;
        return s;
    }
    weft_ctx_set_local_ranks(wbtl.ctx, (unsigned)opal_process_info.num_local_peers + 1);
    s = wbtl_key_open(card);
    if (s == WEFT_OK)
        s = ports_open();
    while (s == WEFT_OK &&
           (s = weft_am_register(wbtl.ep, WBTL_HANDLER, wbtl_on_message, NULL)) == WEFT_AGAIN)
        s = WEFT_OK; /* Weft's thread is inside, for a short time */
    return s;
}

static enum weft_status ports_close(void)
{
    enum weft_status s = WEFT_OK;
    while (wbtl.nports && s == WEFT_OK) {
        struct weft_ep *ep = wbtl.ports[wbtl.nports - 1].ep;
        for (int i = 0; (s = weft_ep_close(ep)) == WEFT_AGAIN && i < 1000; i++)
            (void)weft_ep_wait(ep, 1000000);
        if (s == WEFT_OK)
            wbtl.nports--;
    }
    return s;
}

/* Close the open objects. Returns false if an endpoint that another thread uses, or the context,
 * stays open until the process ends. */
static bool close_all(void)
{
    enum weft_status s = ports_close();
    if (wbtl.page)
        (void)weft_mr_close(wbtl.page);
    wbtl.page = NULL;
    if (s == WEFT_OK && wbtl.ctx)
        s = weft_ctx_close(wbtl.ctx);
    if (s != WEFT_OK)
        opal_output(0, "btl weft: an endpoint stays open until the process ends: %s",
                    weft_status_text(s));
    return s == WEFT_OK;
}

static void counter_show(void *arg, const char *name, uint64_t value, const char *doc)
{
    (void)arg, (void)doc;
    if (value)
        opal_output_verbose(10, opal_btl_base_framework.framework_output,
                            "btl weft: counter %s %llu", name, (unsigned long long)value);
}

/* Free everything, unless Weft may still call functions of the component: then it drops messages,
 * and the component cannot be started again. */
static void leave(void)
{
    const struct wbtl_variables vars = wbtl.vars;
    if (!close_all()) {
        wbtl.abandoned = true;
        wbtl_hold_begin();
        return;
    }
    wbtl_received_free();
    wbtl_lists_fini();
    pthread_mutex_destroy(&wbtl.lock);
    pthread_mutex_destroy(&wbtl.mem_lock);
    pthread_cond_destroy(&wbtl.taken);
    /* A later MPI_Init of this process begins anew, as MPI_T may keep the component open. */
    wbtl = (struct wbtl_module){.super = wbtl.super, .rma = wbtl.rma, .vars = vars};
}

void wbtl_module_fill(void)
{
    mca_btl_base_module_t *m = &wbtl.super;
    m->btl_add_procs = wbtl_add_procs;
    m->btl_del_procs = wbtl_del_procs;
    m->btl_register = wbtl_register;
    m->btl_finalize = wbtl_finalize;
    m->btl_alloc = wbtl_alloc;
    m->btl_free = wbtl_free;
    m->btl_prepare_src = wbtl_prepare_src;
    m->btl_send = wbtl_send;
    m->btl_sendi = wbtl_sendi;
    m->btl_put = wbtl_put;
    m->btl_get = wbtl_get;
    m->btl_atomic_op = wbtl_atomic_op;
    m->btl_atomic_fop = wbtl_atomic_fop;
    m->btl_atomic_cswap = wbtl_atomic_cswap;
    m->btl_flush = wbtl_flush;
    m->btl_register_mem = wbtl_register_mem;
    m->btl_deregister_mem = wbtl_deregister_mem;
    m->btl_dump = mca_btl_base_dump;
    m->btl_register_error = wbtl_register_error;
}

/* ---- the module for accesses ---- */

/* With pml_ob1_use_all_rdma, ob1 accesses by this module, too, and reports the end by it. */
static mca_btl_base_descriptor_t *rma_alloc(mca_btl_base_module_t *btl, wbtl_peer *endpoint,
                                            uint8_t order, size_t size, uint32_t flags)
{
    return wbtl_alloc(&wbtl.super, wbtl_peer_of(btl, endpoint), order, size, flags);
}

static mca_btl_base_descriptor_t *rma_prepare_src(mca_btl_base_module_t *btl, wbtl_peer *endpoint,
                                                  opal_convertor_t *convertor, uint8_t order,
                                                  size_t reserve, size_t *size, uint32_t flags)
{
    return wbtl_prepare_src(&wbtl.super, wbtl_peer_of(btl, endpoint), convertor, order, reserve,
                            size, flags);
}

static int rma_send(mca_btl_base_module_t *btl, wbtl_peer *endpoint, mca_btl_base_descriptor_t *des,
                    mca_btl_base_tag_t tag)
{
    return wbtl_send(&wbtl.super, wbtl_peer_of(btl, endpoint), des, tag);
}

static int rma_finalize(mca_btl_base_module_t *btl)
{
    (void)btl; /* wbtl_finalize closes what the modules share */
    return OPAL_SUCCESS;
}

bool wbtl_rma_fill(void)
{
    const uint32_t needed = MCA_BTL_FLAGS_RDMA | MCA_BTL_FLAGS_ATOMIC_FOPS;
    mca_btl_base_module_t *m = &wbtl.rma;
    *m = wbtl.super;
    m->btl_flags &= ~(uint32_t)(MCA_BTL_FLAGS_SEND | MCA_BTL_FLAGS_SEND_INPLACE);
    m->btl_alloc = rma_alloc;
    m->btl_prepare_src = rma_prepare_src;
    m->btl_send = rma_send;
    m->btl_sendi = NULL;
    m->btl_register = NULL;
    m->btl_register_error = NULL;
    m->btl_finalize = rma_finalize;
    m->btl_latency = 0;     /* wbtl.super's is at least 1 */
    m->btl_exclusivity = 0; /* after wbtl.super, which adds the ranks */
    /* ob1 takes the largest of a rank's modules, and lets them share long messages by bandwidth. */
    m->btl_rdma_pipeline_send_length = m->btl_min_rdma_pipeline_size = 0;
    m->btl_bandwidth = 1;
    return (m->btl_flags & needed) == needed;
}

static void not_used(const char *why)
{
    opal_output_verbose(1, opal_btl_base_framework.framework_output, "btl weft: not used: %s", why);
}

mca_btl_base_module_t **wbtl_init(int *count, bool progress_threads, bool mpi_threads)
{
    mca_btl_base_module_t **modules;
    struct wbtl_card card = {.format = WBTL_CARD};
    enum weft_status s = WEFT_ENOMEM;
    bool done;
    (void)progress_threads;
    *count = 0;
    if (wbtl.abandoned) {
        not_used("an earlier MPI_Finalize left an endpoint open");
        return NULL;
    }
    modules = malloc(2 * sizeof *modules);
    if (!modules)
        return NULL;
    wbtl.threads = mpi_threads;
    wbtl.patience_ns = WBTL_LEAVE_NS;
    wbtl_incoming_init(&wbtl.incoming);
    weft_config_rows(config_row, NULL);
    wbtl_variables_check();
    pthread_mutex_init(&wbtl.lock, NULL);
    pthread_mutex_init(&wbtl.mem_lock, NULL);
    pthread_cond_init(&wbtl.taken, NULL);
    if (wbtl_lists_init())
        s = open_all(&card);
    done = s == WEFT_OK && publish(&card);
    explicit_bzero(card.key, sizeof card.key);
    if (done) {
        modules[0] = &wbtl.super;
        modules[1] = &wbtl.rma;
        *count = wbtl_rma_fill() ? 2 : 1;
        return modules;
    }
    not_used(s == WEFT_OK ? "the launcher does not take the address" : weft_status_text(s));
    free(modules);
    leave();
    return NULL;
}

int wbtl_finalize(mca_btl_base_module_t *btl)
{
    (void)btl;
    wbtl.leaving = true;
    wbtl_hold_begin(); /* the handler does not wait for progress any more */
    wbtl_remove_all();
    wbtl_mem_close();
    weft_stat_rows(wbtl.ctx, counter_show, NULL);
    leave();
    return OPAL_SUCCESS;
}
