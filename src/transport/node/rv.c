/* SPDX-License-Identifier: BSD-3-Clause */
/* weft/node.h: a process's connection to its node's service, and what it has registered there. The
 * connection has no endpoints (rv_write.c has its rings). A thread waits for the service's end, and
 * then ends all registrations (the fence of nic.h) before a call returns that the service has
 * ended. */
#define _GNU_SOURCE
#include <weft/cache.h>
#include <weft/node.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/params.h"
#include "base/process.h"
#include "base/thread.h"
#include "config/config.h"
#include "mem/budget.h"
#include "mem/cache/monitor.h"
#include "transport/identity.h"
#include "transport/node/attach.h"
#include "transport/node/nic.h"
#include "transport/node/rv.h"
#include "transport/node/rv_cache.h"

#define CACHE_BYTES (UINT64_C(256) << 20)
#define STACK 65536
#define MS UINT64_C(1000000)
#define ACCESS (WEFT_NODE_LOCAL_WRITE | WEFT_NODE_REMOTE_WRITE | WEFT_NODE_REMOTE_READ)

/* ---- registering ---- */

static enum weft_status node_reg(void *owner, void *addr, size_t len, unsigned access,
                                 void **handle)
{
    const struct weft_node *node = owner;
    return wf_via_nic_reg(node->nic, addr, len, access, handle);
}

static void node_dereg(void *owner, void *handle)
{
    (void)owner;
    wf_via_nic_dereg(handle);
}

/* The monitor that needs no reports of the program. */
static struct wf_monitor *monitor(void)
{
    const char *why;
    struct wf_monitor *m = NULL;
    if (wf_config()->mr_cache_monitor <= WEFT_MONITOR_USERFAULTFD)
        m = wf_monitor_userfaultfd(&why);
    return m ? m : &wf_monitor_none;
}

static enum weft_status cache_open(struct weft_node *node)
{
    struct wf_rv_params params = {.ops = {node, node_reg, node_dereg},
                                  .monitor = monitor(),
                                  .budget = wf_budget_own(),
                                  .max_bytes = node->cache_bytes};
    return wf_rv_open(&params, &node->cache);
}

/* ---- the service ---- */

/* The socket of a service that was killed ends before its threads have ended. */
static void await_end(const struct weft_node *node)
{
    struct pollfd p[] = {{.fd = node->link.pidfd, .events = POLLIN},
                         {.fd = node->stop_fd, .events = POLLIN}};
    while (!wf_pidfd_ended(node->link.pidfd) && poll(p, 2, -1) < 0 && errno == EINTR)
        ;
}

static void *watch(void *arg)
{
    struct weft_node *node = arg;
    struct pollfd p[] = {{.fd = node->link.sock, .events = POLLIN},
                         {.fd = node->link.pidfd, .events = POLLIN},
                         {.fd = node->stop_fd, .events = POLLIN}};
    enum weft_status status = WEFT_OK;
    while (status == WEFT_OK) {
        if (poll(p, 3, -1) < 0)
            continue;
        if (p[2].revents && !wf_load_acquire(&node->broken))
            return NULL;
        status = p[2].revents ? WEFT_EPROTO : wf_node_hear(&node->link);
    }
    if (status == WEFT_EPEER)
        await_end(node);
    else /* the service lives, and is to post no more writes of memory that the fence drops */
        (void)shutdown(node->link.sock, SHUT_RDWR);
    wf_via_nic_fence(node->nic);
    wf_node_estate_close(&node->link);
    wf_info("the node's service, process %d, has ended (%s): what was registered with it is not "
            "any more",
            (int)node->link.pid, weft_status_text(status));
    atomic_store_explicit(&node->status, status, memory_order_release);
    wf_rv_ended(node);
    return NULL;
}

static enum weft_status watch_start(struct weft_node *node)
{
    node->stop_fd = wf_fd_high(eventfd(0, EFD_CLOEXEC));
    if (node->stop_fd < 0) {
        wf_warn("weft_node_open: no descriptor is left (ulimit -n)");
        return WEFT_ESYSTEM;
    }
    errno = wf_thread_start(&node->thread, "weft-node-end", STACK, watch, node);
    if (!errno)
        return WEFT_OK;
    wf_warn("weft_node_open: cannot start a thread: %s", strerror(errno));
    close(node->stop_fd);
    return WEFT_ESYSTEM;
}

static void watch_wake(const struct weft_node *node)
{
    (void)!write(node->stop_fd, &(uint64_t){1}, sizeof(uint64_t));
}

void wf_rv_broken(struct weft_node *node)
{
    wf_error("the node's service, process %d, wrote an event that is none: this process leaves it",
             (int)node->link.pid);
    atomic_store_explicit(&node->broken, true, memory_order_release);
    watch_wake(node);
}

static void watch_stop(const struct weft_node *node)
{
    watch_wake(node);
    pthread_join(node->thread, NULL);
    close(node->stop_fd);
}

/* Returns the service's environment: this process's, with the parameters of [node]. The first of
 * equal variables counts. NULL if there is no memory. */
static char **environment(const struct weft_node *node, char **own, char text[2][48])
{
    size_t n = 0;
    char **list;
    while (own && own[n])
        n++;
    list = own ? malloc((n + 3) * sizeof *list) : NULL;
    if (!list)
        return NULL;
    snprintf(text[0], sizeof text[0], "WEFT_NODE_CONNECTIONS=%u", node->parameters.connections);
    snprintf(text[1], sizeof text[1], "WEFT_NODE_INDEX_BITS=%u", node->parameters.index_bits);
    list[0] = text[0];
    list[1] = text[1];
    memcpy(list + 2, own, (n + 1) * sizeof *list);
    return list;
}

static enum weft_status attach(struct weft_node *node, const struct weft_node_params *p)
{
    struct wf_node_attach_params params = {.name = p->name ? p->name : wf_config()->node_name,
                                           .parameters = node->parameters,
                                           .until_ns =
                                               wf_now_ns() + wf_config()->connect_timeout_ms * MS};
    uint8_t key[WF_NODE_KEY];
    char name[WF_NODE_NAME_ROOM], text[2][48], **own;
    enum weft_status status = wf_process_identify(&params.self);
    if (status != WEFT_OK)
        return status;
    if (wf_node_name_expand(params.name, 0, name))
        return WEFT_EINVAL;
    wf_node_key_derive(p->key, p->key_len, key);
    params.key = key;
    params.name = name;
    own = wf_config_service_environment(name);
    params.environment = environment(node, own, text);
    status = params.environment ? wf_node_attach(&params, &node->link) : WEFT_ENOMEM;
    free(params.environment);
    free(own);
    explicit_bzero(key, sizeof key);
    node->self = params.self;
    return status;
}

/* ---- the calls ---- */

static enum weft_status params_check(const struct weft_node_params *p)
{
    if (!p || !p->key || p->key_len < WEFT_SECRET_MIN || p->connections > 16 ||
        p->index_bits > WF_NODE_INDEX_BITS_MAX || (p->events && !wf_rv_ring_size(p->events)))
        return WEFT_EINVAL;
    return wf_params_check("WEFT_NODE_PARAMS", p->version, 0, 0, p->reserved,
                           WF_ARRAY_LEN(p->reserved));
}

static void parameters_set(struct weft_node *node, const struct weft_node_params *p)
{
    wf_node_parameters_here(&node->parameters);
    if (p->connections)
        node->parameters.connections = p->connections;
    if (p->index_bits)
        node->parameters.index_bits = p->index_bits;
    node->cache_bytes = p->cache_bytes ? p->cache_bytes : CACHE_BYTES;
}

static enum weft_status attached(struct weft_node *node, uint32_t events)
{
    enum weft_status status;
    node->nic = node->link.window ? wf_via_nic_open(&node->link, false) : NULL;
    if (!node->nic) {
        wf_warn("weft_node_open: the node's service, process %d, has no RDMA device with which "
                "other processes can register (WEFT_RDMA_DEVICE, ulimit -l; `weft node --list`)",
                (int)node->link.pid);
        return WEFT_EUNREACH;
    }
    status = cache_open(node);
    if (status == WEFT_OK)
        status = wf_rv_rings_open(node, events);
    if (status == WEFT_OK)
        status = watch_start(node);
    if (status == WEFT_OK)
        return status;
    wf_rv_rings_close(node);
    if (node->cache)
        wf_rv_close(node->cache);
    wf_via_nic_close(node->nic);
    return status;
}

enum weft_status weft_node_open(const struct weft_node_params *params, struct weft_node **out)
{
    enum weft_status status = out ? params_check(params) : WEFT_EINVAL;
    struct weft_node *node;
    if (status != WEFT_OK || (status = wf_config_init()) != WEFT_OK)
        return status;
    node = calloc(1, sizeof *node);
    if (!node)
        return WEFT_ENOMEM;
    node->fork_gen = wf_fork_gen_begin();
    parameters_set(node, params);
    status = node->fork_gen ? attach(node, params) : WEFT_ENOMEM;
    if (status == WEFT_OK) {
        status = attached(node, params->events);
        if (status == WEFT_OK) {
            *out = node;
            return status;
        }
        wf_node_detach(&node->link);
    }
    free(node);
    return status;
}

enum weft_status wf_rv_check(const struct weft_node *node)
{
    if (!node)
        return WEFT_EINVAL;
    return wf_fork_gen_is(node->fork_gen) ? WEFT_OK : WEFT_EFORKED;
}

enum weft_status weft_node_close(struct weft_node *node)
{
    enum weft_status status = wf_rv_check(node);
    if (status != WEFT_OK)
        return status;
    if (!wf_rv_writes_await(node))
        wf_rv_rings_return(node); /* a part that finds no memory breaks the queue pair of all */
    watch_stop(node);
    wf_rv_close(node->cache);
    wf_via_nic_close(node->nic);
    wf_rv_rings_close(node);
    wf_node_detach(&node->link);
    free(node);
    return WEFT_OK;
}

static void info_set(struct weft_node_info *out, struct weft_node *node)
{
    *out = (struct weft_node_info){.status = wf_load_acquire(&node->status),
                                   .index = node->link.index,
                                   .index_bits = node->parameters.index_bits,
                                   .connections = node->parameters.connections,
                                   .service = node->link.pid,
                                   .cache_bytes = node->cache_bytes};
    memcpy(out->device, node->link.share.name, sizeof out->device);
}

enum weft_status weft_node_query(struct weft_node *node, struct weft_node_info *out)
{
    enum weft_status status = out ? wf_rv_check(node) : WEFT_EINVAL;
    if (status == WEFT_OK)
        info_set(out, node);
    return status;
}

/* A registration that the service's end has ended has a local key of 0. */
enum weft_status weft_node_mr_open(struct weft_node *node, void *addr, size_t len, unsigned access,
                                   struct weft_node_mr *out)
{
    enum weft_status status =
        out && !(access & ~(unsigned)ACCESS) ? wf_rv_check(node) : WEFT_EINVAL;
    struct wf_rv_use use;
    struct weft_node_mr mr = {.addr = addr, .len = len, .access = access};
    if (status == WEFT_OK)
        status = (enum weft_status)wf_load_acquire(&node->status);
    if (status == WEFT_OK)
        status = wf_rv_get(node->cache, addr, len, access, &use);
    if (status == WEFT_EUNREACH) /* it ends at this moment */
        status = WEFT_EPEER;
    if (status != WEFT_OK)
        return status;
    if (!wf_via_nic_keys(use.handle, &mr.at, &mr.lkey, &mr.rkey)) {
        (void)wf_rv_put(node->cache, use.id, addr, len, access);
        return WEFT_EPEER;
    }
    mr.handle = use.id;
    mr.at += use.offset;
    mr.is_hit = use.is_hit;
    *out = mr;
    return WEFT_OK;
}

enum weft_status weft_node_mr_close(struct weft_node *node, const struct weft_node_mr *mr)
{
    enum weft_status status = mr ? wf_rv_check(node) : WEFT_EINVAL;
    return status == WEFT_OK ? wf_rv_put(node->cache, mr->handle, mr->addr, mr->len, mr->access)
                             : status;
}

enum weft_status weft_node_evict(struct weft_node *node, const void *addr, size_t len,
                                 unsigned access, struct weft_node_evicted *out)
{
    enum weft_status status = out ? wf_rv_check(node) : WEFT_EINVAL;
    return status == WEFT_OK ? wf_rv_evict(node->cache, addr, len, access, out) : status;
}

enum weft_status weft_node_evict_range(struct weft_node *node, const void *addr, size_t len,
                                       struct weft_node_evicted *out)
{
    enum weft_status status = out ? wf_rv_check(node) : WEFT_EINVAL;
    if (status == WEFT_OK)
        wf_rv_evict_range(node->cache, addr, len, out);
    return status;
}

enum weft_status weft_node_evict_amount(struct weft_node *node, uint64_t bytes, uint64_t count,
                                        struct weft_node_evicted *out)
{
    enum weft_status status = out ? wf_rv_check(node) : WEFT_EINVAL;
    return status == WEFT_OK ? wf_rv_evict_amount(node->cache, bytes, count, out) : status;
}

enum weft_status weft_node_cache_count(struct weft_node *node, struct weft_node_cache_counts *out)
{
    enum weft_status status = out ? wf_rv_check(node) : WEFT_EINVAL;
    if (status == WEFT_OK)
        wf_rv_count(node->cache, out);
    return status;
}
