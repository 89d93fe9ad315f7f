/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of puts that come from other services without a NIC: this service stores their bytes in the
 * memory of its clients. parts.c sends such parts. What is due to other services for their parts,
 * also of gets (serve.c), waits here for room in its lane. */
#include "node/mover.h"

/* Bytes that are copied for gets in a turn, so that messages do not wait long. */
#define SERVES (512u << 10)

struct put {
    uint32_t id; /* of the part, the other service's */
    uint64_t key, at;
    uint16_t to, from; /* indexes of the two clients */
};

static bool put_parse(const struct node_mover *m, const uint32_t *args, unsigned nargs,
                      struct put *out)
{
    if (nargs != WF_NODE_PUT_ARGS)
        return false;
    *out = (struct put){.id = args[0],
                        .key = args[1] | (uint64_t)args[2] << 32,
                        .at = args[3] | (uint64_t)args[4] << 32,
                        .to = (uint16_t)args[5],
                        .from = (uint16_t)(args[5] >> 16)};
    return out->to < m->nindexes && out->from < m->nindexes;
}

void *wf_node_put_at(const struct node_mover *m, const uint32_t *args, unsigned nargs, uint32_t len,
                     uint32_t at)
{
    enum wf_node_move_end end;
    struct put put;
    uint8_t *first = NULL;
    if (put_parse(m, args, nargs, &put))
        first = wf_node_region_find(m, put.to, put.key, put.at, len, WEFT_REMOTE_WRITE, &end);
    return first ? first + at : NULL;
}

enum weft_status wf_node_put_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                  unsigned nargs, bool stored)
{
    enum wf_node_move_end end = WF_NODE_DONE;
    struct node_owed o = {.kind = WF_NODE_FRAME_ENDED};
    struct put put;
    if (!put_parse(m, args, nargs, &put))
        return WEFT_EPROTO;
    /* A put that ends well was stored before its region was closed. */
    if (wf_node_region_find(m, put.to, put.key, put.at, 0, WEFT_REMOTE_WRITE, &end) && !stored)
        end = WF_NODE_MOVE_LOST; /* a page of it cannot be had */
    o.id = put.id;
    o.lane = (uint8_t)wf_node_lane_of(m, put.to, put.from);
    o.end = (uint8_t)end;
    return wf_node_owed_add(m, word, &o);
}

/* ---- frames that are due ---- */

enum weft_status wf_node_owed_add(struct node_mover *m, uint16_t word, const struct node_owed *o)
{
    struct node_session *s = word < m->nsessions ? m->sessions[word] : NULL;
    bool stored = o->kind == WF_NODE_FRAME_STORED;
    if (!s || !s->owed ||
        (stored ? s->nstored == WF_NODE_SERVED : s->nowed - s->nstored == WF_NODE_PARTS))
        return WEFT_EPROTO;
    s->owed[s->nowed++] = *o;
    s->nstored += stored;
    m->nowed++;
    return WEFT_OK;
}

static enum weft_status frame_send(const struct node_mover *m, uint16_t word,
                                   const struct node_owed *o)
{
    const uint32_t got[WF_NODE_GOT_ARGS] = {o->id, o->end, 0, o->to | (uint32_t)o->from << 16};
    const uint32_t ended[WF_NODE_ENDED_ARGS] = {o->id, o->end};
    unsigned nargs = o->kind == WF_NODE_FRAME_GOT     ? WF_NODE_GOT_ARGS
                     : o->kind == WF_NODE_FRAME_ENDED ? WF_NODE_ENDED_ARGS
                                                      : WF_NODE_STORED_ARGS;
    return m->ops->send(m->ops->owner, word, o->lane, o->kind,
                        o->kind == WF_NODE_FRAME_GOT ? got : ended, nargs, NULL, 0);
}

/* Returns OK; ELIMIT: it is a GET that waits, but not for its lane; or as node_mover_ops.send. */
static enum weft_status owed_send(struct node_mover *m, uint16_t word, struct node_owed *o)
{
    if (o->kind == WF_NODE_FRAME_GET) {
        enum weft_status status = wf_node_get_serve(m, word, o);
        if (status != WEFT_EKEY)
            return status;
    }
    return frame_send(m, word, o);
}

/* Send what the lanes have room for. Neither a full lane nor a GET that waits keeps others back,
 * but for GETs behind it. Returns the number of those that were sent, or failed. */
static int owed_send_all(struct node_mover *m, uint16_t word)
{
    struct node_session *s = m->sessions[word];
    uint32_t full = 0, kept = 0, stored = 0, failed = 0, sent;
    bool gets_wait = false;
    for (uint32_t i = 0; i < s->nowed; i++) { /* a call may add more (wf_node_served_gone) */
        struct node_owed o = s->owed[i];
        bool waits = full >> o.lane & 1 || (gets_wait && o.kind == WF_NODE_FRAME_GET);
        enum weft_status status = waits ? WEFT_AGAIN : owed_send(m, word, &o);
        if (status == WEFT_OK) {
            stored += o.kind == WF_NODE_FRAME_STORED;
            continue;
        }
        if (status == WEFT_ELIMIT)
            gets_wait = true;
        else if (!waits)
            full |= 1u << o.lane;
        failed += o.kind != s->owed[i].kind; /* a GET is a GOT now: its buffer is for others */
        s->owed[kept++] = o;
    }
    s->gets_wait = gets_wait;
    sent = s->nowed - kept;
    s->nowed = kept;
    s->nstored -= stored;
    m->nowed -= sent;
    return (int)(sent + failed);
}

/* The turn begins behind the session that was the first to send or to copy in the last one: so each
 * has free buffers, and copies, in turn. */
int wf_node_owed_turn(struct node_mover *m)
{
    uint32_t first = m->first_owed;
    bool any = false;
    int n = 0;
    m->serves = SERVES;
    for (uint32_t i = 0; m->nowed && i < m->nsessions; i++) {
        uint32_t word = (first + i) % m->nsessions;
        int sent =
            m->sessions[word] && m->sessions[word]->nowed ? owed_send_all(m, (uint16_t)word) : 0;
        if (!any && (sent || m->serves < SERVES)) {
            any = true;
            m->first_owed = word + 1;
        }
        n += sent;
    }
    return n;
}

void wf_node_owed_cut(struct node_mover *m, uint16_t word)
{
    struct node_session *s = m->sessions[word];
    m->nowed -= s->nowed;
    s->nowed = s->nstored = 0;
}
