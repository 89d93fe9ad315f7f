/* SPDX-License-Identifier: BSD-3-Clause */
/* The component, as Open MPI loads it, and its variables. */
#include <limits.h>

#include "binding.h"

/* A message of 12,000 bytes takes 1.9 us one way, announced and fetched by a get 8.3; 32,000
 * bytes 3.4 and 10.6; over loopback TCP 14 and 50, 17 and 60 (medians of 3 runs of bench/ompi_perf
 * in turn). */
#define EAGER WEFT_AM_MAX_MOST
#define ANNOUNCED 8192 /* of a message that follows in pieces */
/* Pieces stay in the first-level cache of 48 KiB while they are packed, copied and unpacked. 64 KiB
 * of a vector took 34 to 42 us one way, with WEFT_AM_MAX_MOST 40 to 49 (3 runs of bench/ompi_perf
 * in turn, with a WEFT am_max of the same length). */
#define FRAGMENT 12288

struct wbtl_module wbtl;

static int variable_int(const char *name, const char *doc, int *where)
{
    return mca_base_component_var_register(&mca_btl_weft_component.btl_version, name, doc,
                                           MCA_BASE_VAR_TYPE_INT, NULL, 0, 0, OPAL_INFO_LVL_5,
                                           MCA_BASE_VAR_SCOPE_LOCAL, where);
}

static const mca_base_var_enum_value_t orders[] = {
    {WBTL_ORDER_TAG, "tag"}, {WBTL_ORDER_MODULE, "module"}, {WBTL_ORDER_ALL, "all"}, {0, NULL}};

static void variable_order(void)
{
    mca_base_var_enum_t *names = NULL;
    if (mca_base_var_enum_create("btl_weft_order", orders, &names) != OPAL_SUCCESS)
        return;
    (void)mca_base_component_var_register(
        &mca_btl_weft_component.btl_version, "order",
        "What follows what, where a component of Open MPI asks for it. tag: what is given the "
        "order "
        "tag of a descriptor follows that descriptor. module: besides, whatever is sent to a rank "
        "after a put to it follows the put, and nothing waits. all: besides, a put returns when it "
        "is complete, so that what other BTLs send afterwards follows it (default: tag)",
        MCA_BASE_VAR_TYPE_INT, names, 0, 0, OPAL_INFO_LVL_5, MCA_BASE_VAR_SCOPE_LOCAL,
        &wbtl.vars.order);
    OBJ_RELEASE(names);
}

static int component_register(void)
{
    mca_btl_base_module_t *m = &wbtl.super;
    wbtl.vars = (struct wbtl_variables){
        .list_first = 8, .list_most = 4096, .list_more = 64, .endpoints = 1};
    (void)variable_int("free_list_num",
                       "Number of descriptors that are made at first, of each of three sizes "
                       "(default: 8)",
                       &wbtl.vars.list_first);
    (void)variable_int("free_list_max",
                       "Largest number of descriptors of each size; -1: no limit. If all are in "
                       "use, Open MPI tries again later (default: 4096)",
                       &wbtl.vars.list_most);
    (void)variable_int("free_list_inc",
                       "Number of descriptors that are made when there is none (default: 64)",
                       &wbtl.vars.list_more);
    (void)variable_int("endpoints",
                       "Number of endpoints of a process with MPI_THREAD_MULTIPLE, at most 64. "
                       "Threads get them in turn, for puts, gets and atomics; messages use the "
                       "first (default: 1)",
                       &wbtl.vars.endpoints);
    variable_order();
    wbtl_module_fill(); /* flags without their function are dropped */
    m->btl_component = &mca_btl_weft_component;
    m->btl_eager_limit = EAGER;
    m->btl_rndv_eager_limit = ANNOUNCED;
    m->btl_max_send_size = FRAGMENT;
    m->btl_rdma_pipeline_send_length = ANNOUNCED;
    m->btl_rdma_pipeline_frag_size = INT_MAX;
    m->btl_min_rdma_pipeline_size = INT_MAX;
    /* Above vader's, which is for the peers of the node. */
    m->btl_exclusivity = MCA_BTL_EXCLUSIVITY_HIGH + 1;
    m->btl_latency = 1;
    m->btl_bandwidth = 40000;
    m->btl_flags = MCA_BTL_FLAGS_SEND | MCA_BTL_FLAGS_SEND_INPLACE | MCA_BTL_FLAGS_RDMA |
                   MCA_BTL_FLAGS_ATOMIC_OPS | MCA_BTL_FLAGS_ATOMIC_FOPS | MCA_BTL_FLAGS_RDMA_FLUSH;
    m->btl_atomic_flags = MCA_BTL_ATOMIC_SUPPORTS_ADD | MCA_BTL_ATOMIC_SUPPORTS_AND |
                          MCA_BTL_ATOMIC_SUPPORTS_OR | MCA_BTL_ATOMIC_SUPPORTS_XOR |
                          MCA_BTL_ATOMIC_SUPPORTS_SWAP | MCA_BTL_ATOMIC_SUPPORTS_MIN |
                          MCA_BTL_ATOMIC_SUPPORTS_MAX | MCA_BTL_ATOMIC_SUPPORTS_32BIT |
                          MCA_BTL_ATOMIC_SUPPORTS_CSWAP |
                          MCA_BTL_ATOMIC_SUPPORTS_GLOB; /* the owner's processor does them */
    m->btl_registration_handle_size = WBTL_HANDLE_SIZE;
    m->btl_get_limit = m->btl_put_limit = SIZE_MAX;
    m->btl_get_local_registration_threshold = SIZE_MAX;
    m->btl_put_local_registration_threshold = SIZE_MAX;
    return mca_btl_base_param_register(&mca_btl_weft_component.btl_version, m);
}

static void adjust(const char *name, size_t *value, size_t least, size_t most)
{
    size_t now = *value < least ? least : *value > most ? most : *value;
    if (now != *value)
        opal_output(0, "btl weft: btl_weft_%s is %zu, but has to be %zu to %zu: %zu is used", name,
                    *value, least, most, now);
    *value = now;
}

static void adjust_int(const char *name, int *value, int least, int most)
{
    const int now = *value < least ? least : *value > most ? most : *value;
    if (now != *value)
        opal_output(0, "btl weft: btl_weft_%s is %d, but has to be at %s %d: %d is used", name,
                    *value, now == least ? "least" : "most", now, now);
    *value = now;
}

static void adjust_positive(const char *name, uint32_t *value)
{
    size_t now = *value;
    adjust(name, &now, 1, UINT32_MAX);
    *value = (uint32_t)now;
}

void wbtl_variables_check(void)
{
    mca_btl_base_module_t *m = &wbtl.super;
    adjust("max_send_size", &m->btl_max_send_size, WEFT_AM_MAX_LEAST, WEFT_AM_MAX_MOST);
    adjust("eager_limit", &m->btl_eager_limit, WBTL_SMALL / 2, WEFT_AM_MAX_MOST);
    adjust("rndv_eager_limit", &m->btl_rndv_eager_limit, WBTL_SMALL / 2, m->btl_max_send_size);
    adjust_int("free_list_num", &wbtl.vars.list_first, 0, INT_MAX);
    adjust_int("free_list_inc", &wbtl.vars.list_more, 1, INT_MAX);
    adjust_int("endpoints", &wbtl.vars.endpoints, 1, WBTL_PORTS);
    adjust_positive("latency", &m->btl_latency);         /* less is the module's for accesses, */
    adjust_positive("exclusivity", &m->btl_exclusivity); /* and so is less exclusivity */
    if (wbtl.vars.list_most >= 0) {
        adjust_int("free_list_max", &wbtl.vars.list_most, 8, INT_MAX);
        adjust_int("free_list_num", &wbtl.vars.list_first, 0, wbtl.vars.list_most);
    }
}

static int component_open(void)
{
    return OPAL_SUCCESS;
}

static int component_close(void)
{
    return OPAL_SUCCESS;
}

/* Poll, unless so many copies wait that they have to be delivered first. */
static int poll_if_room(void)
{
    return wbtl_has_room() ? wbtl_ports_poll() : 0;
}

static inline int poll_alone(void)
{
    wbtl.turns++;
    return weft_ep_poll(wbtl.ep);
}

/* Begin queued items, and run the callbacks of those that have ended. A message that ob1 fetches by
 * a get has arrived with that callback, and the get was queued by the handler. A loss is reported
 * before any callback runs (wbtl_losses_report). */
static int drain_and_call_back(void)
{
    int n = wbtl_drain();
    if (!wbtl_is_empty(&wbtl.done) && !atomic_load_explicit(&wbtl.loss_due, memory_order_relaxed))
        n += wbtl_callbacks(WBTL_ROUND);
    return n;
}

int wbtl_turn(void)
{
    int n = OPAL_LIKELY(!wbtl.threads) ? poll_alone() : poll_if_room();
    if (OPAL_UNLIKELY(n < 0)) /* inside a handler */
        return n;
    if (OPAL_UNLIKELY(atomic_load_explicit(&wbtl.received, memory_order_relaxed)))
        n += wbtl_received_deliver();
    if (OPAL_UNLIKELY(atomic_load_explicit(&wbtl.loss_due, memory_order_relaxed)) &&
        !wbtl_losses_report())
        return n;
    if (OPAL_UNLIKELY(atomic_load_explicit(&wbtl.unsent, memory_order_relaxed)))
        n += wbtl_sent_check();
    if (!wbtl_is_empty(&wbtl.done))
        n += wbtl_callbacks(WBTL_ROUND);
    if (OPAL_UNLIKELY(atomic_load_explicit(&wbtl.key_due, memory_order_relaxed)))
        wbtl_key_now();
    if (OPAL_UNLIKELY(atomic_load_explicit(&wbtl.queued, memory_order_relaxed)))
        n += drain_and_call_back();
    if (OPAL_UNLIKELY(atomic_load_explicit(&wbtl.unsent, memory_order_relaxed)))
        n += wbtl_sent_check(); /* what callbacks have sent */
    return n;
}

int wbtl_progress(void)
{
    int n = wbtl_turn();
    return n < 0 ? 0 : n;
}

int wbtl_error(enum weft_status status)
{
    switch (status) {
    case WEFT_OK: return OPAL_SUCCESS;
    case WEFT_EPEER:
    case WEFT_ECLOSED:
    case WEFT_EPROTO:
    case WEFT_EVERSION:
    case WEFT_ELOST:
    case WEFT_ECANCELED:
    case WEFT_EUNREACH: return OPAL_ERR_UNREACH;
    case WEFT_ERANGE: return OPAL_ERR_VALUE_OUT_OF_BOUNDS;
    case WEFT_EKEY: return OPAL_ERR_NOT_FOUND;
    case WEFT_EACCESS: return OPAL_ERR_PERM;
    case WEFT_ENOMEM:
    case WEFT_ELIMIT: return OPAL_ERR_OUT_OF_RESOURCE;
    case WEFT_EINVAL:
    case WEFT_EFAULT:
    case WEFT_EMSGSIZE: return OPAL_ERR_BAD_PARAM;
    default: return OPAL_ERROR;
    }
}

/* Open MPI takes the component by this name. */
mca_btl_base_component_t mca_btl_weft_component __attribute__((visibility("default"))) = {
    .btl_version =
        {
            MCA_BTL_DEFAULT_VERSION("weft"),
            .mca_open_component = component_open,
            .mca_close_component = component_close,
            .mca_register_component_params = component_register,
        },
    .btl_data = {MCA_BASE_METADATA_PARAM_NONE},
    .btl_init = wbtl_init,
    .btl_progress = wbtl_progress,
};
