/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of gets that come from other services without a NIC: this service copies the bytes from the
 * memory of its clients into a buffer of its own, from which the network sends them. So nothing of
 * a client is in use after the copy, and the client may close its region, or end.
 *
 * | GET    | event                                      | action             | next   |
 * | ------ | ------------------------------------------ | ------------------ | ------ |
 * | -      | GET comes                                  | -                  | waits  |
 * | waits  | room in the lane; its region is not open   | GOT REFUSED, LOST  | -      |
 * | waits  | room in the lane, a buffer                 | copy, GOT DONE     | served |
 * | waits  | likewise, but the region was closed amid   | GOT REFUSED        | -      |
 * | waits  | its session has no buffer, for STARVED_NS  |                    |        |
 * |        | none was given back, and all are taken     | GOT LOST           | -      |
 * | served | STORED                                     | the buffer is free | -      |
 * | served | the network does not send it               | likewise, GOT LOST | -      |
 * | any    | the session ends                           | the buffer is free | -      |
 */
#include <sys/mman.h>

#include "base/clock.h"
#include "mem/lent.h"
#include "node/mover.h"

/* Nodes that are cut off may have taken all buffers, and keep them until their sessions end. If
 * none is given back for so long, the GETs of sessions without one are LOST: one that waits takes
 * the place of others of the node that sent it, and after LOST it goes by messages. */
#define STARVED_NS UINT64_C(100000000)

enum weft_status wf_node_get_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                  unsigned nargs)
{
    struct node_owed o = {.kind = WF_NODE_FRAME_GET};
    if (nargs != WF_NODE_GET_ARGS || args[6] - 1 >= WF_NODE_BUFFER)
        return WEFT_EPROTO;
    o.id = args[0];
    o.key = args[1] | (uint64_t)args[2] << 32;
    o.at = args[3] | (uint64_t)args[4] << 32;
    o.to = (uint16_t)args[5];
    o.from = (uint16_t)(args[5] >> 16);
    o.len = args[6];
    if (o.to >= m->nindexes || o.from >= m->nindexes)
        return WEFT_EPROTO;
    o.lane = (uint8_t)wf_node_lane_of(m, o.to, o.from);
    return wf_node_owed_add(m, word, &o);
}

/* ---- buffers ---- */

static struct node_served *served_of(const struct node_mover *m, uint32_t id)
{
    const struct node_served *served = &m->served[id % WF_NODE_SERVED];
    return served->busy && served->id == id ? (struct node_served *)(uintptr_t)served : NULL;
}

static uint8_t *bytes_of(const struct node_mover *m, const struct node_served *served)
{
    return m->served_bytes + (size_t)(served - m->served) * WF_NODE_BUFFER;
}

/* They have pages from their first use on, until the service ends. */
static bool bytes_open(struct node_mover *m)
{
    void *p;
    if (m->served_bytes)
        return true;
    p = mmap(NULL, (size_t)WF_NODE_SERVED * WF_NODE_BUFFER, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return false;
    m->served_bytes = p;
    for (uint32_t i = 0; i < WF_NODE_SERVED; i++)
        m->served[i].id = i;
    return true;
}

void wf_node_served_close(struct node_mover *m)
{
    if (m->served_bytes)
        munmap(m->served_bytes, (size_t)WF_NODE_SERVED * WF_NODE_BUFFER);
}

/* A session has no more buffers than are free, as with parts (parts.c): so those that a node which
 * is cut off does not give back leave some for others. Returns NULL if there is none for it. */
static struct node_served *served_take(struct node_mover *m, uint16_t word)
{
    struct node_session *s = m->sessions[word];
    struct node_served *served = m->served;
    if (s->nserved >= WF_NODE_SERVED - m->nserved)
        return NULL;
    while (served->busy)
        served++;
    served->busy = true;
    served->sent = served->gone = false;
    served->word = word;
    s->nserved++;
    m->nserved++;
    m->served_ns = wf_now_ns();
    return served;
}

static void served_free(struct node_mover *m, struct node_served *served)
{
    served->busy = false;
    served->id += WF_NODE_SERVED;
    m->sessions[served->word]->nserved--;
    m->nserved--;
    m->served_ns = wf_now_ns();
}

const void *wf_node_served_at(const struct node_mover *m, uint32_t id, uint32_t at)
{
    const struct node_served *served = served_of(m, id);
    return served && at < served->get.len ? bytes_of(m, served) + at : NULL;
}

void wf_node_served_gone(struct node_mover *m, uint32_t id)
{
    struct node_served *served = served_of(m, id);
    struct node_owed o;
    if (!served || !served->sent) {
        if (served)
            served->gone = true; /* wf_node_get_serve ends it */
        return;
    }
    o = served->get;
    o.kind = WF_NODE_FRAME_GOT;
    o.end = WF_NODE_MOVE_LOST;
    (void)wf_node_owed_add(m, served->word, &o); /* no room: the other service has asked too much */
    served_free(m, served);
}

enum weft_status wf_node_stored_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                     unsigned nargs)
{
    struct node_served *served;
    if (nargs != WF_NODE_STORED_ARGS)
        return WEFT_EPROTO;
    served = served_of(m, args[0]);
    if (served && served->word == word && served->sent)
        served_free(m, served);
    return WEFT_OK;
}

void wf_node_served_cut(struct node_mover *m, uint16_t word)
{
    for (uint32_t i = 0; m->nserved && i < WF_NODE_SERVED; i++)
        if (m->served[i].busy && m->served[i].word == word)
            served_free(m, &m->served[i]);
    m->sessions[word]->gets_wait = false;
}

/* ---- answers ---- */

static enum weft_status failed(struct node_owed *o, enum wf_node_move_end end)
{
    o->kind = WF_NODE_FRAME_GOT;
    o->end = (uint8_t)end;
    return WEFT_EKEY;
}

/* Copy the bytes of [o] from [region]. A region that was closed meanwhile may have been without its
 * pages. */
static enum wf_node_move_end copy(const struct node_mover *m, const struct node_owed *o,
                                  uint8_t *to, const void *region)
{
    enum wf_node_move_end end;
    if (!wf_foreign_read(to, region, o->len))
        return WF_NODE_MOVE_LOST;
    atomic_thread_fence(memory_order_acquire); /* "region" */
    (void)wf_node_region_find(m, o->to, o->key, o->at, o->len, WEFT_REMOTE_READ, &end);
    return end;
}

/* All buffers are taken. Has none of them been taken or given back for STARVED_NS? */
static bool is_starved(const struct node_mover *m)
{
    return m->nserved == WF_NODE_SERVED && wf_now_ns() - m->served_ns >= STARVED_NS;
}

int wf_node_gets_wait_ms(const struct node_mover *m)
{
    bool waits = false;
    uint64_t since;
    for (uint32_t i = 0; m->nowed && m->nserved == WF_NODE_SERVED && i < m->nsessions; i++)
        waits |= m->sessions[i] && m->sessions[i]->gets_wait && !m->sessions[i]->nserved;
    since = waits ? wf_now_ns() - m->served_ns : 0;
    return waits ? (int)((STARVED_NS - WF_MIN(since, STARVED_NS) + 999999) / 1000000) : -1;
}

enum weft_status wf_node_get_serve(struct node_mover *m, uint16_t word, struct node_owed *o)
{
    struct node_session *s = m->sessions[word];
    enum wf_node_move_end end;
    const void *region;
    struct node_served *served;
    enum weft_status status;
    uint32_t args[WF_NODE_GOT_ARGS] = {o->id, WF_NODE_DONE, 0, o->to | (uint32_t)o->from << 16};
    if (!m->ops->has_room(m->ops->owner, word, o->lane))
        return WEFT_AGAIN;
    region = wf_node_region_find(m, o->to, o->key, o->at, o->len, WEFT_REMOTE_READ, &end);
    if (!region || !bytes_open(m))
        return failed(o, region ? WF_NODE_MOVE_LOST : end);
    if (o->len > m->serves)
        return WEFT_ELIMIT;
    served = served_take(m, word);
    if (!served)
        return !s->nserved && is_starved(m) ? failed(o, WF_NODE_MOVE_LOST) : WEFT_ELIMIT;
    served->get = *o;
    m->serves -= o->len;
    end = copy(m, o, bytes_of(m, served), region);
    if (end != WF_NODE_DONE) {
        served_free(m, served);
        return failed(o, end);
    }
    args[2] = served->id;
    status = m->ops->send_part(m->ops->owner, word, o->lane, WF_NODE_FRAME_GOT, args,
                               WF_NODE_GOT_ARGS, served->id, o->len);
    served->sent = status == WEFT_OK && !served->gone;
    if (served->sent)
        return status;
    served_free(m, served);
    return status == WEFT_OK ? failed(o, WF_NODE_MOVE_LOST) : status;
}
