/* SPDX-License-Identifier: BSD-3-Clause */
/* Replies that leave after their handler, as requests of their own, in the order in which they were
 * made.
 *
 * GASNet lets any request be answered by any reply, or by none. To reserve room for the longest
 * would cost each request a place of that size, and a flood of requests that nobody answers has no
 * use for any. So a request reserves nothing until its handler is known to reply: the first reply
 * is kept here, and from the message that it becomes the requester learns whether that handler
 * answers with data, and reserves for a header or for the longest from then on. What is kept is
 * bounded by the requests that others have under way before they know. */
#include <stdlib.h>
#include <string.h>

#include "front.h"

/* Wire: before the payload that the reply would have had. */
struct late_head {
    uint32_t who;     /* the reply's index | rank << 8 */
    uint32_t kind;    /* FRONT_SHORT .. */
    uint32_t request; /* the handler whose request is answered */
    uint32_t nargs;
    int32_t args[16];
};
_Static_assert(sizeof(struct late_head) == FRONT_LATE_HEAD, "wire structure");
_Static_assert(FRONT_LATE_HEAD + FRONT_HEAD <= FRONT_OVERHEAD, "fits beside the longest Medium");

struct late {
    struct late *next;
    gasnet_node_t dest;
    size_t len;
    unsigned char bytes[];
};

/* Handlers append under the endpoint's lock, whoever polls takes: the queue's own lock is never
 * held over a call of Weft's. */
static struct {
    pthread_mutex_t lock;
    struct late *first, **last;
    bool flushing;
} queue = {PTHREAD_MUTEX_INITIALIZER, NULL, &queue.first, false};

_Atomic unsigned gasnetw_replies_waiting;

void gasnetw_reply_later(uint32_t to, unsigned kind, uint32_t who, int nargs,
                         const gasnet_handlerarg_t *args, const struct front_head *head,
                         const void *data, size_t len)
{
    struct late_head h = {.who = who, .kind = kind, .request = to & 0xff, .nargs = (uint32_t)nargs};
    size_t skip = head ? FRONT_HEAD : 0, total = sizeof h + skip + len;
    struct late *l = malloc(sizeof *l + total);
    if (!l)
        gasnetw_fatal("out of memory: a reply of %zu bytes to node %u cannot be kept", len,
                      to >> 8);
    if (nargs)
        memcpy(h.args, args, (size_t)nargs * sizeof *args);
    memcpy(l->bytes, &h, sizeof h);
    if (head)
        memcpy(l->bytes + sizeof h, head, skip);
    if (len)
        memcpy(l->bytes + sizeof h + skip, data, len);
    l->len = total;
    l->dest = to >> 8;
    l->next = NULL;
    pthread_mutex_lock(&queue.lock);
    *queue.last = l;
    queue.last = &l->next;
    atomic_fetch_add_explicit(&gasnetw_replies_waiting, 1, memory_order_relaxed);
    pthread_mutex_unlock(&queue.lock);
}

/* The first, to be sent by the caller alone until it says taken(); null: none, or another thread
 * sends. So they leave in their order. */
static struct late *take(void)
{
    struct late *l = NULL;
    pthread_mutex_lock(&queue.lock);
    if (!queue.flushing && queue.first) {
        l = queue.first;
        queue.flushing = true;
    }
    pthread_mutex_unlock(&queue.lock);
    return l;
}

static void taken(struct late *l, bool sent)
{
    pthread_mutex_lock(&queue.lock);
    queue.flushing = false;
    if (sent) {
        queue.first = l->next;
        if (!queue.first)
            queue.last = &queue.first;
        atomic_fetch_sub_explicit(&gasnetw_replies_waiting, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&queue.lock);
    if (sent)
        free(l);
}

/* One whose requester is lost is gone with it: peer_down ends the job. */
int gasnetw_reply_flush(void)
{
    struct late *l;
    int sent = 0;
    while ((l = take())) {
        enum weft_status status =
            weft_am_request(gasnetw_front.peers[l->dest], FRONT_LATE, NULL, 0, l->bytes, l->len, 0);
        taken(l, status != WEFT_AGAIN);
        if (status == WEFT_AGAIN)
            break;
        sent++;
    }
    return sent;
}

static void learn(unsigned handler, size_t len)
{
    uint16_t *room = &gasnetw_front.reply_room[handler],
             least = (uint16_t)(1 + FRONT_HEAD + (len > FRONT_HEAD ? gasnetw_front.max_medium : 0));
    if (__atomic_load_n(room, __ATOMIC_RELAXED) < least)
        __atomic_store_n(room, least, __ATOMIC_RELAXED);
}

void gasnetw_on_late(const struct weft_am *am)
{
    struct late_head h;
    if (am->len < sizeof h)
        gasnetw_fatal("a deferred reply of %u bytes came: do all ranks run the same library?",
                      am->len);
    memcpy(&h, am->data, sizeof h);
    learn(h.request & 0xff, am->len - sizeof h);
    gasnetw_am_deliver(h.kind, h.who, h.args, h.nargs, (const char *)am->data + sizeof h,
                       am->len - sizeof h);
}
