/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of puts that come from other services without a NIC: this service stores their bytes in the
 * memory of its clients. parts.c sends such parts. */
#include "node/mover.h"

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
    struct node_session *s = word < m->nsessions ? m->sessions[word] : NULL;
    enum wf_node_move_end end = WF_NODE_DONE;
    struct put put;
    if (!s || !s->owed || s->nowed == WF_NODE_PARTS || !put_parse(m, args, nargs, &put))
        return WEFT_EPROTO;
    /* A put that ends well was stored before its region was closed. */
    if (wf_node_region_find(m, put.to, put.key, put.at, 0, WEFT_REMOTE_WRITE, &end) && !stored)
        end = WF_NODE_MOVE_LOST; /* a page of it cannot be had */
    s->owed[(s->owed_first + s->nowed++) % WF_NODE_PARTS] = (struct node_owed){
        .id = put.id, .lane = (uint8_t)wf_node_lane_of(m, put.to, put.from), .end = (uint8_t)end};
    m->nowed++;
    return WEFT_OK;
}

static enum weft_status owed_send(const struct node_mover *m, uint16_t word,
                                  const struct node_owed *o)
{
    const uint32_t args[WF_NODE_ENDED_ARGS] = {o->id, o->end};
    return m->ops->send(m->ops->owner, word, o->lane, WF_NODE_FRAME_ENDED, args, WF_NODE_ENDED_ARGS,
                        NULL, 0);
}

/* Send what the lanes have room for. A full lane does not keep the others' back. */
static int owed_send_all(struct node_mover *m, uint16_t word)
{
    struct node_session *s = m->sessions[word];
    uint32_t full = 0, kept = 0, count = s->nowed;
    for (uint32_t i = 0; i < count; i++) {
        struct node_owed o = s->owed[(s->owed_first + i) % WF_NODE_PARTS];
        if (!(full >> o.lane & 1) && owed_send(m, word, &o) == WEFT_OK)
            continue;
        full |= 1u << o.lane;
        s->owed[(s->owed_first + kept++) % WF_NODE_PARTS] = o;
    }
    s->nowed = kept;
    m->nowed -= count - kept;
    return (int)(count - kept);
}

int wf_node_owed_turn(struct node_mover *m)
{
    int n = 0;
    for (uint32_t word = 0; m->nowed && word < m->nsessions; word++)
        if (m->sessions[word] && m->sessions[word]->nowed)
            n += owed_send_all(m, (uint16_t)word);
    return n;
}

void wf_node_owed_cut(struct node_mover *m, uint16_t word)
{
    struct node_session *s = m->sessions[word];
    m->nowed -= s->nowed;
    s->nowed = 0;
}
