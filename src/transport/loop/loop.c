/* SPDX-License-Identifier: BSD-3-Clause */
/* The transport for messages that an endpoint sends to itself. A slot holds one request and
 * later its reply. The slots are private memory, allocated when the first message is sent. Only
 * the endpoint's owner accesses them, so nothing here is atomic. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/util.h"
#include "config/config.h"
#include "config/stats.h"
#include "mem/mem.h"
#include "transport/transport.h"

#include <sys/mman.h>
#include <unistd.h>

#define SLOTS 64

enum slot_state { SLOT_FREE, SLOT_REQUEST, SLOT_RUNNING, SLOT_REPLY };

struct loop_msg {
    uint32_t args[16];
    uint32_t len, reply_max;
    uint16_t nargs;
    uint8_t handler;
    bool ordered; /* sent by request_ordered (rule 8 of transport.h) */
};

struct loop_slot {
    enum slot_state state;
    struct wf_tpeer *tpeer; /* the peer that sent the request; NULL if closed since */
    struct loop_msg msg[2]; /* request, reply */
};

struct loop_ctx {
    struct wf_tctx base;
    struct wf_mem *mem;
    uint64_t token;
};

struct loop_token {
    struct wf_token base;
    uint32_t slot;
};

struct loop_tep {
    struct wf_tep base;
    struct loop_ctx *ctx;
    struct wf_address address;
    struct loop_slot *slots; /* null until the first message */
    uint8_t *payload;        /* 2 * SLOTS * am_max bytes: for each slot a request and a reply */
    uint32_t next;           /* where sends and polls begin to search the slots */
    uint32_t busy;           /* number of slots that are not free */
    bool shuffle, armed;
    uint64_t rand;
    void *conn;              /* wf_token.conn points here */
    struct loop_token token; /* of the message being delivered */
    struct wf_list peers;
};

struct loop_peer {
    struct wf_tpeer base;
    struct wf_list item; /* tep->peers */
};

/* A second mapping of a region's slab. put and get use it, as they use a mapping of another
 * process's slab. */
struct loop_map {
    void *base;
    size_t size;
};

#define LOOP_OF(ptr, type) ((struct type *)(void *)(ptr))

static void count(struct loop_tep *t, enum wf_stat stat)
{
    uint64_t *c = &t->base.counters[stat];
    __atomic_store_n(c, __atomic_load_n(c, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}

static uint8_t *payload_of(struct loop_tep *t, uint32_t slot, bool reply)
{
    return t->payload + (size_t)(2 * slot + reply) * t->base.am_max;
}

static int loop_probe(char *note, size_t room)
{
    snprintf(note, room, "an endpoint's messages to itself");
    return 1;
}

static enum weft_status loop_ctx_open(const struct wf_tctx_params *params, struct wf_tctx **out)
{
    struct loop_ctx *ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return WEFT_ENOMEM;
    ctx->base.transport = &wf_loop_transport;
    ctx->base.caps_off =
        (wf_config()->shm_pull ? 0u : WF_CAP_PULL) | (wf_config()->shm_map ? 0u : WF_CAP_MAPS);
    ctx->mem = params->mem;
    ctx->token = params->self->token[0];
    *out = &ctx->base;
    return WEFT_OK;
}

static void loop_ctx_close(struct wf_tctx *tctx)
{
    free(tctx);
}

static enum weft_status loop_ep_open(struct wf_tctx *tctx, const struct wf_tep_params *params,
                                     struct wf_tep **out)
{
    struct loop_tep *t = calloc(1, sizeof *t);
    if (!t)
        return WEFT_ENOMEM;
    t->base = wf_tep_of(&wf_loop_transport, params);
    t->ctx = LOOP_OF(tctx, loop_ctx);
    t->address = params->address;
    wf_list_init(&t->peers);
    t->shuffle = wf_config()->shuffle;
    t->rand = wf_config()->shuffle_seed ? wf_config()->shuffle_seed : wf_now_ns();
    *out = &t->base;
    return WEFT_OK;
}

static void loop_ep_close(struct wf_tep *tep)
{
    struct loop_tep *t = LOOP_OF(tep, loop_tep);
    if (t->conn)
        t->base.events->conn_down(t->base.owner, &t->conn);
    free(t->slots);
    free(t->payload);
    free(t);
}

static enum weft_status loop_reach(struct wf_tctx *tctx, const struct wf_address *from,
                                   const struct wf_address *to, const struct wf_contact *contact,
                                   const char **why)
{
    (void)tctx;
    (void)contact;
    *why = "it is another endpoint";
    return memcmp(from, to, sizeof *from) ? WEFT_EUNREACH : WEFT_OK;
}

static enum weft_status loop_peer_open(struct wf_tep *tep, struct wf_tpeer *tpeer,
                                       const struct wf_address *to,
                                       const struct wf_contact *contact)
{
    (void)to;
    (void)contact;
    tpeer->tep = tep;
    wf_list_append(&LOOP_OF(tep, loop_tep)->peers, &LOOP_OF(tpeer, loop_peer)->item);
    return WEFT_OK;
}

static void loop_peer_close(struct wf_tpeer *tpeer)
{
    struct loop_tep *t = LOOP_OF(tpeer->tep, loop_tep);
    for (uint32_t i = 0; t->slots && i < SLOTS; i++)
        if (t->slots[i].tpeer == tpeer)
            t->slots[i].tpeer = NULL;
    wf_list_remove(&LOOP_OF(tpeer, loop_peer)->item);
}

static bool slots_make(struct loop_tep *t)
{
    if (t->slots)
        return true;
    t->slots = calloc(SLOTS, sizeof *t->slots);
    t->payload = aligned_alloc(64, 2 * (size_t)SLOTS * t->base.am_max);
    if (t->slots && t->payload) {
        wf_tep_activate(&t->base);
        return true;
    }
    free(t->slots);
    free(t->payload);
    t->slots = NULL;
    t->payload = NULL;
    return false;
}

static void msg_fill(struct loop_tep *t, uint32_t slot, bool reply, const struct wf_am_out *out)
{
    struct loop_msg *m = &t->slots[slot].msg[reply];
    m->len = out->len;
    m->reply_max = out->reply_max;
    m->nargs = out->nargs;
    m->handler = out->handler;
    if (out->nargs)
        memcpy(m->args, out->args, 4u * out->nargs);
    if (out->pieces)
        wf_am_pieces_copy(payload_of(t, slot, reply), out);
    else if (out->len)
        memcpy(payload_of(t, slot, reply), out->data, out->len);
}

/* The endpoint is armed, so its owner will sleep on event_fd. A message was sent since, so make
 * event_fd readable. */
static void loop_wake(struct loop_tep *t)
{
    uint64_t one = 1;
    t->armed = false;
    if (write(t->base.event_fd, &one, sizeof one) < 0)
        wf_error("cannot wake an endpoint: %m");
}

static enum weft_status out_send(struct wf_tpeer *tpeer, const struct wf_am_out *out, bool ordered)
{
    struct loop_tep *t = LOOP_OF(tpeer->tep, loop_tep);
    uint32_t slot;
    if (!slots_make(t))
        return WEFT_ENOMEM;
    if (t->busy == SLOTS) {
        count(t, WF_STAT_AGAIN);
        return WEFT_AGAIN;
    }
    for (slot = t->next; t->slots[slot].state != SLOT_FREE;)
        slot = (slot + 1) % SLOTS;
    msg_fill(t, slot, false, out);
    t->slots[slot].msg[0].ordered = ordered;
    t->slots[slot].state = SLOT_REQUEST;
    t->slots[slot].tpeer = tpeer;
    t->next = (slot + 1) % SLOTS;
    t->busy++;
    if (t->armed)
        loop_wake(t);
    count(t, WF_STAT_REQUESTS_SENT);
    return WEFT_OK;
}

static enum weft_status request_send(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                     const void *data, size_t len, size_t reply_max, bool ordered)
{
    struct wf_am_out out =
        wf_am_out(WF_AM_HANDLER(what), args, WF_AM_NARGS(what), data, len, reply_max);
    return out_send(tpeer, &out, ordered);
}

static enum weft_status loop_request(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                     const void *data, size_t len, size_t reply_max)
{
    return request_send(tpeer, what, args, data, len, reply_max, false);
}

static enum weft_status loop_requestv(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                      const struct iovec *iov, size_t len, size_t reply_max)
{
    struct wf_am_out out = wf_am_outv(what, args, iov, len, reply_max);
    return out_send(tpeer, &out, out.handler >= WEFT_AM_USER_HANDLERS);
}

static enum weft_status loop_request_ordered(struct wf_tpeer *tpeer, unsigned what,
                                             const uint32_t *args, const void *data, size_t len,
                                             size_t reply_max)
{
    return request_send(tpeer, what, args, data, len, reply_max, true);
}

static enum weft_status loop_tagged(struct wf_tpeer *tpeer, uint64_t tag, const void *data,
                                    size_t len)
{
    struct wf_tagged_args args = wf_tagged_args(tag);
    return request_send(tpeer, WF_AM_WHAT(WF_AM_TAGGED, 2), args.v, data, len, 0, true);
}

static enum weft_status loop_reply(struct wf_token *token, const struct wf_am_out *out)
{
    struct loop_tep *t = LOOP_OF(token->tep, loop_tep);
    uint32_t slot = LOOP_OF(token, loop_token)->slot;
    msg_fill(t, slot, true, out);
    t->slots[slot].state = SLOT_REPLY;
    count(t, WF_STAT_REPLIES_SENT);
    return WEFT_OK;
}

static void loop_source(const struct wf_token *token, struct wf_address *out,
                        struct wf_contact *contact)
{
    (void)contact;
    *out = LOOP_OF(token->tep, loop_tep)->address;
}

static void deliver(struct loop_tep *t, uint32_t slot, bool reply)
{
    struct loop_slot *s = &t->slots[slot];
    struct loop_msg *m = &s->msg[reply];
    struct wf_token *token = &t->token.base;
    uint64_t serial = token->serial + 1;
    struct weft_am am = {.data = payload_of(t, slot, reply),
                         .len = m->len,
                         .args = m->args,
                         .nargs = m->nargs,
                         .handler = m->handler,
                         .is_reply = reply,
                         .token = token,
                         .serial = serial};
    t->token = (struct loop_token){
        .base = {.serial = serial, .tep = &t->base, .conn = &t->conn, .tpeer = s->tpeer},
        .slot = slot};
    if (!reply) {
        am.reply_max = m->reply_max;
        am.can_reply = m->reply_max != 0;
        token->can_reply = am.can_reply;
        token->reply_room = m->reply_max ? m->reply_max - 1 : 0;
        s->state = SLOT_RUNNING;
    }
    count(t, reply ? WF_STAT_REPLIES_RECEIVED : WF_STAT_REQUESTS_RECEIVED);
    t->base.events->deliver(t->base.owner, &am);
    token->serial++;
    if (s->state == SLOT_REPLY && !reply)
        return; /* the slot holds its reply now */
    s->state = SLOT_FREE;
    t->busy--;
}

static bool is_ordered(const struct loop_tep *t, uint32_t slot)
{
    const struct loop_slot *s = &t->slots[slot];
    return s->state == SLOT_REQUEST && s->msg[0].ordered;
}

/* Put the slots into random order. Requests sent by request_ordered keep their order among each
 * other (rule 8 of transport.h). */
static void shuffle(struct loop_tep *t, uint8_t *order, uint32_t n)
{
    uint8_t ordered[SLOTS];
    uint32_t nordered = 0, next = 0;
    for (uint32_t i = 0; i < n; i++)
        if (is_ordered(t, order[i]))
            ordered[nordered++] = order[i];
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = (uint32_t)(wf_rand(&t->rand) % i);
        uint8_t swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
    for (uint32_t i = 0; i < n; i++)
        if (is_ordered(t, order[i]))
            order[i] = ordered[next++];
}

/* Deliver each message that is pending when the call begins. A message sent by a handler waits
 * for the next call. */
static int loop_poll(struct wf_tep *tep)
{
    struct loop_tep *t = LOOP_OF(tep, loop_tep);
    uint8_t order[SLOTS];
    uint32_t n = 0;
    if (!t->busy)
        return 0;
    for (uint32_t i = 0; i < SLOTS; i++)
        if (t->slots[(t->next + i) % SLOTS].state != SLOT_FREE)
            order[n++] = (uint8_t)((t->next + i) % SLOTS);
    if (t->shuffle)
        shuffle(t, order, n);
    for (uint32_t i = 0; i < n; i++)
        deliver(t, order[i], t->slots[order[i]].state == SLOT_REPLY);
    return (int)n;
}

static enum weft_status loop_arm(struct wf_tep *tep)
{
    struct loop_tep *t = LOOP_OF(tep, loop_tep);
    t->armed = !t->busy;
    return t->armed ? WEFT_OK : WEFT_AGAIN;
}

static void loop_disarm(struct wf_tep *tep)
{
    LOOP_OF(tep, loop_tep)->armed = false;
}

static enum weft_status map_again(struct loop_ctx *ctx, const struct wf_key *key,
                                  struct loop_map **out)
{
    struct loop_map *map = malloc(sizeof *map);
    enum weft_status status = WEFT_EKEY;
    size_t size = 0;
    int fd;
    if (!map)
        return WEFT_ENOMEM;
    fd = wf_mem_slab_dup(ctx->mem, key->slab, &size);
    if (fd >= 0 && key->offset <= size && key->length <= size - key->offset)
        status = wf_shared_map(fd, size, key->access & WEFT_REMOTE_WRITE, &map->base);
    if (fd >= 0)
        close(fd);
    if (status != WEFT_OK) {
        free(map);
        return status;
    }
    map->size = size;
    *out = map;
    return WEFT_OK;
}

static enum weft_status loop_remote_map(struct wf_tpeer *tpeer, const struct wf_key *key,
                                        struct weft_remote *remote, void **cookie)
{
    struct loop_ctx *ctx = LOOP_OF(tpeer->tep, loop_tep)->ctx;
    struct loop_map *map = NULL;
    enum weft_status status;
    if (key->token != ctx->token || key->slot >= WF_MEM_STATE_WORDS)
        return WEFT_EKEY;
    remote->length = key->length;
    remote->gen_word = (const uint64_t *)(const void *)ctx->mem->state + key->slot;
    remote->gen = key->gen;
    remote->access = key->access;
    if (__atomic_load_n(remote->gen_word, __ATOMIC_ACQUIRE) != key->gen)
        return WEFT_EKEY;
    status =
        key->slab == WF_KEY_PRIVATE || !wf_config()->shm_map ? WEFT_OK : map_again(ctx, key, &map);
    if (status == WEFT_OK && map)
        remote->base = (unsigned char *)map->base + key->offset;
    *cookie = map;
    return status;
}

static void loop_remote_unmap(struct wf_tpeer *tpeer, void *cookie)
{
    struct loop_map *map = cookie;
    (void)tpeer;
    if (!map)
        return;
    munmap(map->base, map->size);
    free(map);
}

static struct wf_tpeer *loop_find(struct wf_tep *tep, const struct wf_address *address,
                                  struct wf_tpeer *after)
{
    const struct loop_tep *t = LOOP_OF(tep, loop_tep);
    const struct wf_list *it = after ? LOOP_OF(after, loop_peer)->item.next : t->peers.next;
    if (it == &t->peers || memcmp(address, &t->address, sizeof *address))
        return NULL;
    return &wf_container_of(it, struct loop_peer, item)->base;
}

static void loop_address(const struct wf_tpeer *tpeer, struct wf_address *out)
{
    *out = LOOP_OF(tpeer->tep, loop_tep)->address;
}

static enum weft_status loop_pull(struct wf_tpeer *tpeer, void *dst,
                                  const struct wf_pull_from *from, size_t len)
{
    (void)tpeer;
    return wf_pull_here(dst, from, len);
}

static enum weft_status loop_flush(struct wf_tpeer *tpeer)
{
    (void)tpeer;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return WEFT_OK;
}

static enum weft_status loop_status(struct wf_tpeer *tpeer)
{
    (void)tpeer;
    return WEFT_OK;
}

const struct wf_transport wf_loop_transport = {
    .name = "loop",
    .caps = WF_CAP_MAPS | WF_CAP_SLEEP | WF_CAP_PULL,
    .tpeer_size = sizeof(struct loop_peer),
    .probe = loop_probe,
    .ctx_open = loop_ctx_open,
    .ctx_close = loop_ctx_close,
    .ep_open = loop_ep_open,
    .ep_close = loop_ep_close,
    .reach = loop_reach,
    .peer_open = loop_peer_open,
    .peer_close = loop_peer_close,
    .request = loop_request,
    .requestv = loop_requestv,
    .request_ordered = loop_request_ordered,
    .tagged = loop_tagged,
    .reply = loop_reply,
    .source = loop_source,
    .find = loop_find,
    .address = loop_address,
    .pull = loop_pull,
    .poll = loop_poll,
    .arm = loop_arm,
    .disarm = loop_disarm,
    .remote_map = loop_remote_map,
    .remote_unmap = loop_remote_unmap,
    .flush = loop_flush,
    .status = loop_status,
};
