/* SPDX-License-Identifier: BSD-3-Clause */
/* Replies whose requests reserved no room for them, and how requesters learn to reserve it.
 *
 * GASNet lets any request be answered by any reply, or by no reply. To reserve room for the longest
 * reply would cost each request a slot of that size, even in a flood of requests without replies.
 * So each node learns, for each handler index, whether that handler replies:
 *
 * - Its first TRIALS requests to a handler reserve room for any reply, until one is answered.
 *   Such a reply names the request's handler, so that the requester learns.
 * - Then requests to the handler reserve room for a header, or for the longest reply if a reply has
 *   had data.
 * - If none of the TRIALS is answered, later requests to the handler reserve nothing.
 *
 * A reply for which its request reserved room leaves in the call that makes it. Any other reply is
 * kept here until the handler has returned, and then sent as a message (weft_ep_defer), from which
 * the requester learns.
 *
 * Kept replies are sent in the order in which handlers made them. Their number is bounded: a node
 * learns which handlers reply when it polls, so replies are kept only for requests that the node
 * sent before.
 *
 * If the data of a Long reply are longer than a message, a put writes them to the requester's
 * segment. The source of the put is the copy that is kept here, since the client may change its own
 * data after the reply. The message leaves when the put is complete, and later replies may leave
 * before it. Such a reply is always kept, so a node keeps as many of them as other nodes request.
 */
#include <stdlib.h>
#include <string.h>

#include "am.h"

/* The head of a deferred reply on the wire. The reply's payload follows. */
struct late_head {
    uint32_t origin;  /* the reply's */
    uint32_t kind;    /* AM_SHORT .. */
    uint32_t request; /* the handler whose request is answered */
    uint32_t nargs;
    int32_t args[16];
};
_Static_assert(sizeof(struct late_head) == AM_LATE_HEAD, "wire structure");
_Static_assert(AM_LATE_HEAD + AM_HEAD <= AM_OVERHEAD, "fits beside the longest Medium");

struct late {
    struct weft_op op; /* first, so that its done finds the rest */
    struct late *next;
    gasnet_node_t dest;
    size_t len;            /* of the message */
    size_t put;            /* data behind it, to be put first; 0: none, or they have arrived */
    unsigned char bytes[]; /* the message, then these data */
};

/* Replies kept for one node. Each node has its own queue, so that a node that does not poll does
 * not delay replies to other nodes. */
struct queue {
    struct weft_deferred send; /* sends them, outside of handlers */
    gasnet_node_t dest;
    struct late *first, **last;
};

/* All deferred replies. Handlers append, and a deferred call removes. [lock] protects both, and is
 * never held over a call of Weft. */
static struct {
    pthread_mutex_t lock;
    struct queue **of; /* [nodes]; a queue is created with the first reply to its node */
} late = {PTHREAD_MUTEX_INITIALIZER, NULL};

static void send_all(struct weft_deferred *send);

static struct queue *queue_of(gasnet_node_t dest)
{
    struct queue *q;
    if (!late.of)
        late.of = calloc(gasnetw_job.nodes, sizeof *late.of);
    if (!late.of || dest >= gasnetw_job.nodes)
        return NULL;
    q = late.of[dest];
    if (!q && (q = calloc(1, sizeof *q))) {
        q->send.fn = send_all;
        q->send.arg = q;
        q->dest = dest;
        q->last = &q->first;
        late.of[dest] = q;
    }
    return q;
}

/* Let the next poll send the replies of [q], unless it does so already. */
static void send_later(struct queue *q)
{
    enum weft_status s = weft_ep_defer(gasnetw_binding.ep, &q->send);
    if (s != WEFT_OK && s != WEFT_EBUSY)
        gasnetw_fatal("replies to node %u cannot be sent: %s", q->dest, weft_status_text(s));
}

static bool append(struct late *l)
{
    struct queue *q;
    l->next = NULL;
    pthread_mutex_lock(&late.lock);
    q = queue_of(l->dest);
    if (q) {
        *q->last = l;
        q->last = &l->next;
    }
    pthread_mutex_unlock(&late.lock);
    if (q)
        send_later(q);
    return q != NULL;
}

static struct late_head late_head(uint32_t to, unsigned kind, uint32_t origin, int nargs,
                                  const gasnet_handlerarg_t *args)
{
    struct late_head h = {
        .origin = origin, .kind = kind, .request = to & 0xff, .nargs = (uint32_t)nargs};
    if (nargs)
        memcpy(h.args, args, (size_t)nargs * sizeof *args);
    return h;
}

/* Write a deferred reply's head and what follows it to [to]. Returns how many bytes. */
static size_t late_write(unsigned char *to, const struct late_head *h, const struct am_head *head,
                         const void *data, size_t len)
{
    size_t n = sizeof *h;
    memcpy(to, h, sizeof *h);
    if (head) {
        memcpy(to + n, head, AM_HEAD);
        n += AM_HEAD;
    }
    if (len)
        memcpy(to + n, data, len);
    return n + len;
}

static _Noreturn void no_memory(gasnet_node_t dest, size_t len)
{
    gasnetw_fatal("out of memory: a reply of %zu bytes to node %u cannot be kept", len, dest);
}

void gasnetw_reply_later(uint32_t to, unsigned kind, uint32_t origin, int nargs,
                         const gasnet_handlerarg_t *args, const struct am_head *head,
                         const void *data, size_t len)
{
    bool put = len > gasnetw_binding.max_medium; /* an AM_LONG_DATA */
    struct late_head h = late_head(to, put ? AM_LONG_HEAD : kind, origin, nargs, args);
    size_t skip = head ? AM_HEAD : 0;
    struct late *l = malloc(sizeof *l + sizeof h + skip + len);
    if (!l)
        no_memory(to >> 8, len);
    memset(l, 0, sizeof *l);
    l->len = late_write(l->bytes, &h, head, data, len);
    l->dest = to >> 8;
    l->put = put ? len : 0;
    l->len -= l->put;
    if (!append(l))
        no_memory(to >> 8, len);
}

/* Remove the first reply of [q]. Returns the reply, or NULL. */
static struct late *take(struct queue *q)
{
    struct late *l;
    pthread_mutex_lock(&late.lock);
    l = q->first;
    if (l) {
        q->first = l->next;
        if (!q->first)
            q->last = &q->first;
    }
    pthread_mutex_unlock(&late.lock);
    return l;
}

/* Make [l], which could not be sent, the first reply of [q] again. */
static void give_back(struct queue *q, struct late *l)
{
    pthread_mutex_lock(&late.lock);
    l->next = q->first;
    if (!l->next)
        q->last = &l->next;
    q->first = l;
    pthread_mutex_unlock(&late.lock);
}

/* The put of [l] failed. A reply to a lost requester is dropped, since peer_down ends the job. */
static void put_failed(struct late *l)
{
    struct weft_peer *peer = gasnetw_binding.peers[l->dest];
    if (!atomic_load(&gasnetw_leaving) && weft_peer_status(peer) == WEFT_OK)
        gasnetw_lost(l->dest, (enum weft_status)l->op.status, "gasnet_AMReplyLong");
    free(l);
}

/* The put has ended. If the data have arrived, queue their message. Polls call this function, under
 * the rules of a handler. */
static void put_done(struct weft_op *op)
{
    struct late *l = (struct late *)op;
    if (op->status != WEFT_OK) {
        put_failed(l);
        return;
    }
    l->put = 0;
    if (!append(l))
        no_memory(l->dest, l->len);
}

/* Start to put the data of [l]. Returns AGAIN if there is no room, else OK: then put_done owns [l],
 * and may have freed it. */
static enum weft_status put_start(struct late *l)
{
    const struct am_head *head = (const void *)(l->bytes + AM_LATE_HEAD);
    uint64_t offset;
    struct weft_remote *r = gasnetw_segment_at(l->dest, (void *)(uintptr_t)head->addr, l->put,
                                               "gasnet_AMReplyLong", &offset);
    enum weft_status status;
    l->op.done = put_done;
    status = weft_put(r, offset, l->bytes + l->len, l->put, &l->op);
    if (status == WEFT_PENDING)
        return WEFT_OK;
    if (status == WEFT_AGAIN || status == WEFT_ELIMIT)
        return WEFT_AGAIN;
    l->op.status = status;
    put_done(&l->op);
    return WEFT_OK;
}

/* Send [l], or start its put. Returns AGAIN if there is no room, else OK: then the caller no longer
 * owns [l]. A reply to a lost requester is dropped. */
static enum weft_status send_one(struct late *l)
{
    if (l->put)
        return put_start(l);
    if (weft_am_request(gasnetw_binding.peers[l->dest], AM_LATE, NULL, 0, l->bytes, l->len, 0) ==
        WEFT_AGAIN)
        return WEFT_AGAIN;
    free(l);
    return WEFT_OK;
}

/* Send as many replies of a queue as there is room for. Weft runs one such call at a time, which
 * keeps their order. When the endpoint closes, drop them. */
static void send_all(struct weft_deferred *send)
{
    struct queue *q = send->arg;
    for (struct late *l; (l = take(q));)
        if (send->status != WEFT_OK) {
            free(l);
        } else if (send_one(l) == WEFT_AGAIN) {
            give_back(q, l);
            send_later(q);
            return;
        }
}

enum weft_status gasnetw_reply_trial(const struct weft_am *am, uint32_t to, unsigned kind,
                                     uint32_t origin, int nargs, const gasnet_handlerarg_t *args,
                                     const struct am_head *head, const void *data, size_t len)
{
    struct late_head h = late_head(to, kind, origin, nargs, args);
    size_t n = late_write(gasnetw_am_scratch, &h, head, data, len);
    return weft_am_reply(am, AM_LATE, NULL, 0, gasnetw_am_scratch, n);
}

/* ---- learning ---- */

#define TRIALS 16

static _Atomic uint16_t trials[256]; /* of requests, by their handler */

void gasnetw_reply_open(void)
{
    for (unsigned i = 0; i < 256; i++)
        gasnetw_binding.reply_room[i] = AM_TRIAL_ROOM;
}

size_t gasnetw_reply_try(gasnet_handler_t handler)
{
    uint16_t trial = AM_TRIAL_ROOM, without = gasnetw_credit_counts; /* 1: for a credit */
    if (atomic_fetch_add_explicit(&trials[handler], 1, memory_order_relaxed) < TRIALS)
        return gasnetw_trial_room();
    /* Another thread may have learnt meanwhile. */
    (void)__atomic_compare_exchange_n(&gasnetw_binding.reply_room[handler], &trial, without, false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return trial == AM_TRIAL_ROOM ? without : trial;
}

static void learn(unsigned handler, size_t len)
{
    uint16_t *room = &gasnetw_binding.reply_room[handler], now,
             least = (uint16_t)(1 + AM_HEAD + (len > AM_HEAD ? gasnetw_binding.max_medium : 0));
    if (!handler) /* none: ordinary_room relies on it that nothing is known of it */
        return;
    now = __atomic_load_n(room, __ATOMIC_RELAXED);
    if (now < least || now == AM_TRIAL_ROOM)
        __atomic_store_n(room, least, __ATOMIC_RELAXED);
}

void gasnetw_on_late(const struct weft_am *am)
{
    struct late_head h;
    if (am->len < sizeof h)
        gasnetw_fatal("a deferred reply of %u bytes came: do all ranks run the same library?",
                      am->len);
    memcpy(&h, am->data, sizeof h);
    gasnetw_credit_return(h.origin >> 8);
    if (h.kind == AM_CREDIT)
        return;
    learn(h.request & 0xff, am->len - sizeof h);
    gasnetw_am_deliver(h.kind, h.origin, h.args, h.nargs, (const char *)am->data + sizeof h,
                       am->len - sizeof h);
}
