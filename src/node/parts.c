/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts and gets of clients that this service's NIC executes, in parts. docs/design/node.md "The
 * wire of a move" has the tables. What the mover keeps of a move it may lose: its client then
 * repeats the move by messages. Without a NIC, a part is a frame to the other service, which stores
 * a put's bytes and reports the end (carry.c), or answers with a get's bytes (serve.c). */
#include "node/mover.h"

#include <stdlib.h>
#include <sys/mman.h>

#define PART (256u << 10)
/* Bytes of a session under way (without a NIC: in each direction), so that a short part waits for
 * no more in the queue pair. Without a NIC, a short message waits for them in a socket: 512 KiB
 * take 10% to 30% of the rate of 1 MiB, and halve the time of 8 bytes beside seven streams
 * (bench/node-traffic, fair). */
#define UNDER_WAY (1u << 20)
#define UNDER_WAY_TCP (512u << 10)
#define SHORT 4096u /* a part that waits for none of them */
#define NONE UINT8_MAX
_Static_assert(WF_NODE_MOVES < NONE, "an index, or none");

struct node_part {
    struct node_port *port; /* NULL: detached */
    uint32_t id;            /* index; the rest is counted up with each use */
    uint32_t bytes, session;
    uint32_t window; /* of the client, which may have closed the endpoint */
    uint16_t index;  /* the client's */
    uint16_t word;
    uint8_t move;
    bool busy;
    bool posted;                  /* and counted; else the call that posts it has not returned */
    bool gone;                    /* it has ended within that call */
    struct node_buffers *buffers; /* a put's without a NIC: where its bytes are */
    bool gets;                    /* without a NIC: a get's, in [port]'s event segment */
    bool reads;                   /* of a message: WF_NODE_READ */
    uint64_t at;                  /* and at which offset of the buffers */
};

enum weft_status wf_node_parts_open(struct node_mover *m)
{
    m->parts = calloc(WF_NODE_PARTS, sizeof *m->parts);
    m->blames = calloc(m->nindexes, sizeof *m->blames);
    for (uint32_t i = 0; m->parts && i < WF_NODE_PARTS; i++)
        m->parts[i].id = i;
    return m->parts && m->blames ? WEFT_OK : WEFT_ENOMEM;
}

bool wf_node_moves_open(struct node_port *port)
{
    port->moves_head = port->moves_tail = NONE;
    bool carries = port->mover->ops->send_part;
    if (!port->mover->ops->move)
        port->window = 0;
    if (!port->window && !carries)
        return true;
    port->moves = calloc(WF_NODE_MOVES, sizeof *port->moves);
    if (carries)
        port->buffers = calloc(1, sizeof *port->buffers);
    if (!port->moves || (carries && !port->buffers))
        return false;
    if (carries)
        *port->buffers = (struct node_buffers){
            .submit = port->submit, .bytes = wf_node_submit_bytes(port->size), .size = port->size};
    return true;
}

void wf_node_moves_close(struct node_port *port)
{
    free(port->moves);
    free(port->buffers);
}

static void buffers_drop(struct node_buffers *b)
{
    if (--b->parts || !b->left)
        return;
    munmap((void *)(uintptr_t)b->submit, b->bytes);
    free(b);
}

void wf_node_parts_close(struct node_mover *m)
{
    for (uint32_t i = 0; m->parts && i < WF_NODE_PARTS; i++)
        if (m->parts[i].busy && m->parts[i].buffers)
            buffers_drop(m->parts[i].buffers);
    free(m->parts);
    free(m->blames);
}

/* ---- the queue of an endpoint ---- */

static void queued(struct node_port *port, uint8_t move)
{
    port->moves[move].queued = true;
    port->nqueued++;
    port->mover->nqueued++;
}

static void queue_push(struct node_port *port, uint8_t move)
{
    port->moves[move].next = NONE;
    if (port->moves_head == NONE)
        port->moves_head = move;
    else
        port->moves[port->moves_tail].next = move;
    port->moves_tail = move;
    queued(port, move);
}

/* A short move goes before the next part of long ones. Those that are read in a turn are less than
 * PART together, so long ones go on, too. */
static void queue_push_first(struct node_port *port, uint8_t move)
{
    port->moves[move].next = port->moves_head;
    if (port->moves_head == NONE)
        port->moves_tail = move;
    port->moves_head = move;
    queued(port, move);
}

static uint8_t queue_pop(struct node_port *port)
{
    uint8_t move = port->moves_head;
    port->moves_head = port->moves[move].next;
    port->moves[move].queued = false;
    port->nqueued--;
    port->mover->nqueued--;
    return move;
}

/* ---- ends ---- */

void wf_node_move_end_if_over(struct node_port *port, uint8_t move)
{
    struct node_move *v = &port->moves[move];
    if (v->left || v->under_way || v->queued)
        return;
    if (wf_node_kind_writes(v->kind) && v->end == WF_NODE_DONE && v->stage != NODE_WRITE_OVER) {
        wf_node_write_report(port, move);
        return;
    }
    wf_store_release(&port->event->slots[move].moved,
                     v->use | (uint64_t)v->end << 32); /* "moved" */
    v->end = 0;
    wf_shm_bell_ring(&port->event->bell, WF_NODE_SLOTS + WF_NODE_PLACES + move);
    wf_node_port_wake(port);
}

/* Post no more parts of the move. */
static void move_fail(struct node_move *v, enum wf_node_move_end end)
{
    v->end = (uint8_t)WF_MAX(v->end, (uint8_t)end);
    v->left = 0;
}

static enum wf_node_move_end end_of(enum weft_status status)
{
    return status == WEFT_OK     ? WF_NODE_DONE
           : status == WEFT_EKEY ? WF_NODE_MOVE_REFUSED
                                 : WF_NODE_MOVE_LOST;
}

static uint32_t *under_way_of(struct node_session *s, bool gets)
{
    return gets ? &s->getting : &s->moving;
}

/* The NIC has refused the part, or its local memory. */
static void part_refused(struct node_mover *m, const struct node_part *part,
                         enum weft_status status)
{
    struct node_session *s = m->sessions[part->word];
    if (part->reads && part->port && status == WEFT_EKEY && part->session == s->number)
        wf_node_key_refused(s, &part->port->moves[part->move].at);
    wf_node_blame(m, part->index, part->window, status, part->reads);
}

static void part_end(struct node_mover *m, struct node_part *part, enum weft_status status)
{
    struct node_port *port = part->port;
    part->busy = false;
    part->id += WF_NODE_PARTS;
    m->nparts--;
    *under_way_of(m->sessions[part->word], part->gets) -= part->bytes;
    m->sessions[part->word]->nparts--;
    if (part->buffers)
        buffers_drop(part->buffers);
    else if (!part->gets && (status == WEFT_EKEY || status == WEFT_EINVAL))
        part_refused(m, part, status);
    if (!port)
        return;
    port->moves[part->move].under_way--;
    if (status != WEFT_OK)
        move_fail(&port->moves[part->move], end_of(status));
    wf_node_move_end_if_over(port, part->move);
}

static struct node_part *part_of(const struct node_mover *m, uint32_t id)
{
    struct node_part *part = m->parts ? &m->parts[id % WF_NODE_PARTS] : NULL;
    return part && part->busy && part->id == id ? part : NULL;
}

void wf_node_part_done(struct node_mover *m, uint32_t id, enum weft_status status)
{
    struct node_part *part = part_of(m, id);
    if (part && part->posted)
        part_end(m, part, status);
    else if (part)
        part->gone = true; /* part_post ends it */
}

static const enum weft_status statuses[WF_NODE_MOVE_ENDS] = {[WF_NODE_DONE] = WEFT_OK,
                                                             [WF_NODE_MOVE_LOST] = WEFT_EUNREACH,
                                                             [WF_NODE_MOVE_REFUSED] = WEFT_EKEY};

/* The service that has taken the part reports its end. One that has ended here before does not
 * matter any more. */
enum weft_status wf_node_ended_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                    unsigned nargs)
{
    struct node_part *part;
    if (nargs != WF_NODE_ENDED_ARGS || !args[1] || args[1] >= WF_NODE_MOVE_ENDS)
        return WEFT_EPROTO;
    part = part_of(m, args[0]);
    if (part && part->word == word && part->buffers)
        wf_node_part_done(m, part->id, statuses[args[1]]);
    return WEFT_OK;
}

/* The part of a get that the session of [word] has under way as [id]. */
static struct node_part *get_of(const struct node_mover *m, uint16_t word, uint32_t id)
{
    struct node_part *part = part_of(m, id);
    bool is_its = part && part->gets && part->word == word;
    return is_its && part->session == m->sessions[word]->number ? part : NULL;
}

/* Those of an endpoint that has left are dropped. */
void *wf_node_got_at(const struct node_mover *m, uint16_t word, const uint32_t *args,
                     unsigned nargs, uint32_t len, uint32_t at)
{
    const struct node_part *part = NULL;
    if (nargs == WF_NODE_GOT_ARGS && args[1] == WF_NODE_DONE)
        part = get_of(m, word, args[0]);
    if (!part || !part->port || len != part->bytes)
        return NULL;
    return (uint8_t *)part->port->event + part->port->size + part->at + at;
}

enum weft_status wf_node_got_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                  unsigned nargs, bool stored)
{
    struct node_owed o = {.kind = WF_NODE_FRAME_STORED};
    struct node_part *part;
    enum weft_status status = WEFT_EUNREACH;
    if (nargs != WF_NODE_GOT_ARGS || word >= m->nsessions || !m->sessions[word] ||
        !m->sessions[word]->owed || !args[1] || args[1] >= WF_NODE_MOVE_ENDS ||
        (uint16_t)args[3] >= m->nindexes || args[3] >> 16 >= m->nindexes)
        return WEFT_EPROTO;
    o.id = args[2];
    o.lane = (uint8_t)wf_node_lane_of(m, (uint16_t)args[3], args[3] >> 16);
    if (args[1] != WF_NODE_DONE && (stored || args[2]))
        return WEFT_EPROTO;
    if (args[1] == WF_NODE_DONE && wf_node_owed_add(m, word, &o) != WEFT_OK)
        return WEFT_EPROTO;
    part = get_of(m, word, args[0]);
    if (stored || args[1] != WF_NODE_DONE)
        status = statuses[args[1]];
    if (part)
        wf_node_part_done(m, part->id, status);
    return WEFT_OK;
}

const void *wf_node_part_at(const struct node_mover *m, uint32_t id, uint32_t at)
{
    const struct node_part *part = part_of(m, id);
    if (!part || !part->buffers || at >= part->bytes)
        return NULL;
    return (const uint8_t *)part->buffers->submit + part->buffers->size + part->at + at;
}

void wf_node_parts_cut(struct node_mover *m, uint16_t word, uint32_t session)
{
    for (uint32_t i = 0; m->nparts && i < WF_NODE_PARTS; i++)
        if (m->parts[i].busy && m->parts[i].word == word && m->parts[i].session != session)
            part_end(m, &m->parts[i], WEFT_EUNREACH);
}

bool wf_node_moves_forget(struct node_port *port)
{
    struct node_mover *m = port->mover;
    bool kept = port->buffers && port->buffers->parts;
    for (uint32_t i = 0; m->nparts && i < WF_NODE_PARTS; i++)
        if (m->parts[i].busy && m->parts[i].port == port)
            m->parts[i].port = NULL;
    m->nqueued -= port->nqueued;
    wf_node_writes_forget(port);
    if (kept) {
        port->buffers->left = true;
        port->buffers = NULL;
    }
    wf_node_moves_close(port);
    return kept;
}

/* ---- entries ---- */

/* Without a NIC: a put or get of bytes in the buffers, to or from the client at index [slot]. */
static bool carry_ok(const struct node_port *port, const struct wf_node_entry *e)
{
    const uint64_t most = WF_NODE_BUFFERS * WF_NODE_BUFFER;
    return e->handler <= WF_NODE_GET && !e->nargs && !e->move.lkey && !e->move.immediate &&
           e->slot < port->mover->nindexes && e->number - 1 < PART && e->move.local < most &&
           e->number <= most - e->move.local && wf_node_word_index(e->where) != WF_NODE_OWN;
}

/* Writes may be empty, and never go to this service itself. */
static bool bytes_ok(const struct node_port *port, const struct wf_node_entry *e)
{
    bool writes = wf_node_kind_writes(e->handler);
    if (port->buffers)
        return carry_ok(port, e);
    if ((e->move.immediate && e->handler != WF_NODE_WRITE) || e->slot ||
        e->nargs >= (writes ? port->mover->lanes : 1) ||
        (writes && wf_node_word_index(e->where) == WF_NODE_OWN))
        return false;
    if (writes && !e->number)
        return true;
    return e->handler != WF_NODE_REACH && e->number - 1 < WF_NODE_MOVE_MAX &&
           e->move.remote <= UINT64_MAX - e->number &&
           wf_node_is_in_window(port->window, e->move.local, e->number);
}

bool wf_node_move_take(struct node_port *port, const struct wf_node_entry *e, uint32_t len,
                       uint32_t reply_max)
{
    const struct node_mover *m = port->mover;
    uint32_t word = wf_node_word_index(e->where);
    struct node_move *v;
    if (!port->moves || len || reply_max || e->flags != WF_NODE_MOVE || e->attempt ||
        e->handler >= WF_NODE_MOVE_KINDS || e->place >= WF_NODE_MOVES || !e->use ||
        word >= m->nsessions || !m->sessions[word] || !bytes_ok(port, e))
        return false;
    v = &port->moves[e->place];
    if (v->end)
        return false;
    *v = (struct node_move){.at = e->move,
                            .left = e->number,
                            .bytes = e->number,
                            .use = e->use,
                            .session = e->session,
                            .word = e->where,
                            .kind = e->handler,
                            .lane = e->nargs,
                            .to = e->slot,
                            .end = WF_NODE_DONE};
    if (e->number <= SHORT)
        queue_push_first(port, e->place);
    else
        queue_push(port, e->place);
    return true;
}

/* ---- parts ---- */

static struct node_part *part_free(struct node_mover *m)
{
    for (uint32_t i = 0; i < WF_NODE_PARTS; i++) {
        struct node_part *part = &m->parts[m->next_part++ % WF_NODE_PARTS];
        if (!part->busy)
            return part;
    }
    return NULL;
}

/* A session has no more parts than are free: so those that a node which is cut off does not end
 * leave room for others, however many such nodes there are. */
static bool has_room(const struct node_mover *m, const struct node_session *s, uint32_t bytes,
                     uint32_t under_way)
{
    const uint32_t most = m->ops->send_part ? UNDER_WAY_TCP : UNDER_WAY;
    return s->nparts < WF_NODE_PARTS - m->nparts &&
           (bytes <= SHORT || !under_way || under_way + bytes <= most);
}

/* Give a part to the NIC. If a queue pair has no room, it has none for the other moves of the turn,
 * which may be thousands, and is not asked again. Returns as node_mover_ops.move */
static enum weft_status nic_give(struct node_mover *m, uint16_t word, const struct wf_nic_op *op,
                                 uint32_t incarnation, size_t *taken)
{
    struct node_session *s = m->sessions[word];
    enum weft_status status = WEFT_AGAIN;
    if (s->moves_full != m->turn)
        status = m->ops->move(m->ops->owner, word, op, incarnation, taken);
    if (status == WEFT_AGAIN)
        s->moves_full = m->turn;
    return status;
}

/* Send a part of a put to the other service. Returns as node_mover_ops.send */
static enum weft_status put_send(struct node_port *port, const struct node_move *v, uint16_t word,
                                 uint32_t id, uint32_t len)
{
    struct node_mover *m = port->mover;
    const uint32_t args[WF_NODE_PUT_ARGS] = {id,
                                             v->at.rkey,
                                             v->at.incarnation,
                                             (uint32_t)v->at.remote,
                                             (uint32_t)(v->at.remote >> 32),
                                             v->to | (uint32_t)port->index << 16};
    return m->ops->send_part(m->ops->owner, word, wf_node_lane_of(m, port->index, v->to),
                             WF_NODE_FRAME_PUT, args, WF_NODE_PUT_ARGS, id, len);
}

/* Ask the other service for a part of a get. Returns as node_mover_ops.send */
static enum weft_status get_send(const struct node_port *port, const struct node_move *v,
                                 uint16_t word, uint32_t id, uint32_t len)
{
    const struct node_mover *m = port->mover;
    const uint32_t args[WF_NODE_GET_ARGS] = {id,
                                             v->at.rkey,
                                             v->at.incarnation,
                                             (uint32_t)v->at.remote,
                                             (uint32_t)(v->at.remote >> 32),
                                             v->to | (uint32_t)port->index << 16,
                                             len};
    return m->ops->send(m->ops->owner, word, wf_node_lane_of(m, port->index, v->to),
                        WF_NODE_FRAME_GET, args, WF_NODE_GET_ARGS, NULL, 0);
}

/* Returns as put_send, or as node_mover_ops.move. */
static enum weft_status part_give(struct node_port *port, const struct node_move *v, uint16_t word,
                                  uint32_t id, uint32_t len, size_t *taken)
{
    const uint32_t keys[WF_KEY_NICS] = {v->at.rkey};
    const struct wf_nic_op op = {.local = (void *)(uintptr_t)v->at.local,
                                 .len = len,
                                 .remote = v->at.remote,
                                 .keys = keys,
                                 .id = id,
                                 .kind = wf_node_kind_gets(v->kind) ? WF_NIC_OP_GET : WF_NIC_OP_PUT,
                                 .is_lent = true,
                                 .lkey = v->at.lkey};
    if (!port->buffers)
        return nic_give(port->mover, word, &op, v->at.incarnation, taken);
    *taken = len;
    return v->kind == WF_NODE_GET ? get_send(port, v, word, id, len)
                                  : put_send(port, v, word, id, len);
}

/* Post the next part of the move. Returns OK | AGAIN | why its rest cannot be posted. */
static enum weft_status part_post(struct node_port *port, uint8_t move, uint32_t *bytes)
{
    struct node_mover *m = port->mover;
    struct node_move *v = &port->moves[move];
    uint16_t word = (uint16_t)wf_node_word_index(v->word);
    struct node_session *s = m->sessions[word];
    uint32_t len = WF_MIN(v->left, PART);
    bool gets = port->buffers && v->kind == WF_NODE_GET;
    uint32_t *under_way = under_way_of(s, gets);
    struct node_part *part;
    enum weft_status status;
    size_t taken = 0;
    if (s->state != WF_NODE_UP || s->number != v->session || wf_node_word_of(m, word) != v->word ||
        wf_node_is_paused(m, port->index, port->window))
        return WEFT_EUNREACH;
    if (v->kind == WF_NODE_READ && wf_node_is_refused(s, &v->at))
        return WEFT_EKEY;
    if (!has_room(m, s, len, *under_way))
        return WEFT_AGAIN;
    part = part_free(m);
    *part = (struct node_part){.port = port,
                               .id = part->id,
                               .bytes = len,
                               .session = s->number,
                               .window = port->window,
                               .index = port->index,
                               .word = word,
                               .move = move,
                               .busy = true, /* its bytes may be asked for by the next call */
                               .buffers = v->kind == WF_NODE_PUT ? port->buffers : NULL,
                               .gets = gets,
                               .reads = v->kind == WF_NODE_READ,
                               .at = v->at.local};
    status = part_give(port, v, word, part->id, len, &taken);
    if (part->gone)
        status = WEFT_EUNREACH;
    part->busy = part->posted = status == WEFT_OK;
    if (status != WEFT_OK)
        return status == WEFT_ENOMEM && port->buffers ? WEFT_AGAIN : status;
    part->bytes = (uint32_t)taken;
    if (part->buffers)
        part->buffers->parts++;
    m->nparts++;
    s->nparts++;
    *under_way += part->bytes;
    v->under_way++;
    v->left -= part->bytes;
    v->at.local += part->bytes;
    v->at.remote += part->bytes;
    *bytes = part->bytes;
    return WEFT_OK;
}

/* Post parts of the endpoint's moves, one of each in turn, of PART bytes together. Short ones for
 * which there is no room stay before the others. */
static int port_turn(struct node_port *port)
{
    uint8_t first[WF_NODE_MOVES];
    uint32_t bytes = 0, waits = 0, nfirst = 0;
    int n = 0;
    while (bytes < PART && waits < port->nqueued) {
        uint8_t move = queue_pop(port);
        struct node_move *v = &port->moves[move];
        uint32_t posted = 0;
        enum weft_status status = v->left ? part_post(port, move, &posted) : WEFT_OK;
        bytes += posted;
        if (status != WEFT_OK && status != WEFT_AGAIN)
            move_fail(v, end_of(status));
        n += status != WEFT_AGAIN;
        if (status == WEFT_AGAIN && v->left <= SHORT) {
            first[nfirst++] = move;
        } else if (v->left) {
            waits += status == WEFT_AGAIN;
            queue_push(port, move);
        } else {
            wf_node_move_end_if_over(port, move);
        }
    }
    while (nfirst)
        queue_push_first(port, first[--nfirst]);
    return n;
}

/* The turn begins behind the endpoint that was the last to post: where there is room for one part
 * at a time, each of them has the next one. */
int wf_node_moves_turn(struct node_mover *m)
{
    uint32_t first = m->next_port;
    int n = 0;
    for (uint32_t i = 0; m->nqueued && i < m->nports; i++) {
        uint32_t at = (first + i) % m->nports, before = m->nparts;
        struct node_port *port = m->ports[at];
        if (port && port->nqueued && !port->failed)
            n += port_turn(port);
        if (m->nparts > before)
            m->next_port = at + 1;
    }
    return n;
}
