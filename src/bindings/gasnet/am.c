/* SPDX-License-Identifier: BSD-3-Clause */
/* GASNet's active messages, sent as Weft's active messages. binding.h lists how a GASNet message is
 * packed into a Weft message. */
#include "am.h"

#include <stdlib.h>
#include <string.h>

#include "trace.h"

/* ---- requests ---- */

/* A thread polls after so many requests, and whenever a request finds no room. */
#define REQUESTS_PER_POLL 16
#define REQUEST_COST (GASNETW_BUDGET / REQUESTS_PER_POLL)

/* Returns the room that a request to [handler] reserves for its reply (reply.c). */
static inline size_t reply_room(gasnet_handler_t handler)
{
    uint16_t room = __atomic_load_n(&gasnetw_binding.reply_room[handler], __ATOMIC_RELAXED);
    return WEFT_UNLIKELY(room == AM_TRIAL_ROOM) ? gasnetw_reply_try(handler) : room;
}

__attribute__((noinline, cold)) static void
request_refuse(gasnet_node_t dest, gasnet_handler_t handler, int nargs, const char *what)
{
    gasnetw_check(dest, what);
    if ((unsigned)nargs > 16)
        gasnetw_fatal("%s with %d arguments: 0 to 16 are possible", what, nargs);
    if (!handler)
        gasnetw_fatal(
            "%s for handler 0, which is none: gasnet_attach wrote its index into the table", what);
    if (gasnetw_holds_hsl() && gasnetw_binding.debug)
        gasnetw_fatal("%s while a handler-safe lock is held", what);
}

static inline bool request_is_odd(gasnet_node_t dest, gasnet_handler_t handler, int nargs)
{
    return !gasnetw_binding.attached || dest >= gasnetw_job.nodes || !handler ||
           (unsigned)nargs > 16 || gasnetw_thread_.busy;
}

static inline void request_check(gasnet_node_t dest, gasnet_handler_t handler, int nargs,
                                 const char *what)
{
    if (WEFT_UNLIKELY(request_is_odd(dest, handler, nargs)))
        request_refuse(dest, handler, nargs, what);
}

static inline uint32_t origin_of(gasnet_handler_t handler)
{
    return handler | gasnetw_job.mynode << 8;
}

/* The first word, then the client's. */
static inline unsigned pack(uint32_t *words, gasnet_handler_t handler, int nargs, const A *args)
{
    words[0] = origin_of(handler);
    for (int i = 0; i < nargs; i++)
        words[i + 1] = (uint32_t)args[i];
    return (unsigned)nargs + 1;
}

/* The most arguments of a message that names the place of its data, besides these and the origin.
 */
#define AT_ARGS_MOST (15 - AM_AT_ARGS)

/* Write the place of a Long's data. */
static inline void put_place(uint32_t *words, const void *addr, size_t nbytes)
{
    words[0] = (uint32_t)(uintptr_t)addr;
    words[1] = (uint32_t)((uintptr_t)addr >> 32);
    words[2] = (uint32_t)nbytes;
}

/* Across a network, poll until the message has left: the caller may compute for long, or wait
 * elsewhere for what the message causes. */
static inline void let_leave(struct weft_peer *peer)
{
    if (WEFT_UNLIKELY(gasnetw_binding.across))
        while (weft_peer_sent(peer) == WEFT_AGAIN)
            (void)gasnetw_turn();
}

static inline void count(gasnet_node_t dest)
{
    if (WEFT_UNLIKELY(gasnetw_credit_counts))
        gasnetw_credit_take(dest);
}

/* Send [n] words, the first of which is the origin, and poll while there is no room. */
static inline __attribute__((always_inline)) int
request_words(gasnet_node_t dest, unsigned kind, gasnet_handler_t handler, const uint32_t *words,
              unsigned n, const void *data, size_t len, const char *what)
{
    struct weft_peer *peer = gasnetw_binding.peers[dest];
    size_t room = reply_room(handler);
    enum weft_status status;
    gasnetw_spend(REQUEST_COST);
    count(dest);
    while ((status = weft_am_request(peer, kind, words, n, data, len, room)) == WEFT_AGAIN)
        (void)gasnetw_turn();
    if (WEFT_UNLIKELY(status != WEFT_OK))
        gasnetw_lost(dest, status, what);
    let_leave(peer);
    return GASNET_OK;
}

static inline __attribute__((always_inline)) int request_plain(gasnet_node_t dest, unsigned kind,
                                                               gasnet_handler_t handler, int nargs,
                                                               const A *args, const void *data,
                                                               size_t len, const char *what)
{
    uint32_t words[17];
    unsigned n = pack(words, handler, nargs, args);
    return request_words(dest, kind, handler, words, n, data, len, what);
}

/* A message to this node runs in the call that sends it, unless the thread holds a handler-safe
 * lock, for which the handler might wait. GASNet forbids requests under such a lock. */
static inline bool runs_here(gasnet_node_t dest)
{
    return dest == gasnetw_job.mynode && !gasnetw_holds_hsl();
}

/* A message to this node itself runs in the call that sends it: the thread may block elsewhere
 * next, and the other threads need not call anything that runs handlers. */
static int request_self(unsigned kind, gasnet_handler_t handler, int nargs, const A *args,
                        const void *data, size_t nbytes)
{
    gasnetw_spend(REQUEST_COST);
    if (WEFT_UNLIKELY(atomic_load_explicit(&gasnetw_leaving, memory_order_relaxed)))
        gasnetw_heed_leaving();
    gasnetw_am_self(kind, handler, false, args, (unsigned)nargs, (void *)(uintptr_t)data, nbytes);
    return GASNET_OK;
}

static int long_self(gasnet_handler_t handler, const void *source, size_t nbytes, void *dest_addr,
                     int nargs, const A *args, const char *what)
{
    uint64_t offset;
    if (nbytes) {
        (void)gasnetw_segment_at(gasnetw_job.mynode, dest_addr, nbytes, what, &offset);
        memmove(dest_addr, source, nbytes);
    }
    return request_self(AM_LONG, handler, nargs, args, dest_addr, nbytes);
}

static int request_head(gasnet_node_t dest, unsigned kind, const struct am_head *head, int nargs,
                        const A *args, const void *data, size_t len, const char *what)
{
    struct weft_peer *peer = gasnetw_binding.peers[dest];
    struct iovec iov[2] = {{(void *)(uintptr_t)head, AM_HEAD}, {(void *)(uintptr_t)data, len}};
    size_t room = reply_room(head->origin & 0xff);
    enum weft_status status;
    gasnetw_spend(REQUEST_COST);
    count(dest);
    while ((status = weft_am_requestv(peer, kind, (const uint32_t *)(const void *)args,
                                      (unsigned)nargs, iov, len ? 2 : 1, room)) == WEFT_AGAIN)
        (void)gasnetw_turn();
    if (status != WEFT_OK)
        gasnetw_lost(dest, status, what);
    let_leave(peer);
    return GASNET_OK;
}

int gasnetw_AMRequestShort(gasnet_node_t dest, gasnet_handler_t handler, int nargs, const A *args)
{
    static const char what[] = "gasnet_AMRequestShort";
    request_check(dest, handler, nargs, what);
    gasnetw_trace_request('S', dest, handler, nargs, 0);
    if (WEFT_UNLIKELY(runs_here(dest)))
        return request_self(AM_SHORT, handler, nargs, args, NULL, 0);
    if (WEFT_UNLIKELY(nargs == 16)) {
        struct am_head head = {.origin = origin_of(handler)};
        return request_head(dest, AM_SHORT_HEAD, &head, nargs, args, NULL, 0, what);
    }
    return request_plain(dest, AM_SHORT, handler, nargs, args, NULL, 0, what);
}

/* Returns the room that a request reserves for its reply if the request is an ordinary one, and
 * pays for it from the thread's budget. Otherwise returns AM_TRIAL_ROOM. A request is ordinary if a
 * single weft_am_request sends it: to another node, outside of handlers, to a handler of which is
 * known whether it replies, while the thread need not poll. (Of handler 0, which is none, this is
 * never known.) [words] begins with the origin. */
static inline __attribute__((always_inline)) uint16_t ordinary_room(gasnet_node_t dest,
                                                                    const A *words)
{
    struct gasnetw_thread *t = &gasnetw_thread_;
    uint32_t origin = (uint32_t)words[0];
    int64_t budget = t->budget - REQUEST_COST;
    uint16_t room = __atomic_load_n(&gasnetw_binding.reply_room[origin & 0xff], __ATOMIC_RELAXED);
    if (WEFT_UNLIKELY(dest >= gasnetw_binding.plain_nodes || dest == origin >> 8 || t->busy ||
                      budget < 0))
        return AM_TRIAL_ROOM;
    if (!WEFT_UNLIKELY(room == AM_TRIAL_ROOM))
        t->budget = budget;
    return room;
}

static inline const uint32_t *words_of(const A *words)
{
    return (const uint32_t *)(const void *)words;
}

/* The three functions for ordinary requests store as little as possible: a store between the stores
 * to the shared-memory ring costs time (wf_shm_request). In every unusual case, also without room,
 * they call the function that begins again. */
int gasnetw_short(gasnet_node_t dest, unsigned nwords, const A *words)
{
    const uint16_t room = ordinary_room(dest, words);
    uint64_t both = dest | (uint64_t)nwords << 32; /* keeps one register alive, not two */
    enum weft_status status = WEFT_AGAIN;
    __asm__("" : "+r"(both));
    if (!WEFT_UNLIKELY(room == AM_TRIAL_ROOM))
        status = weft_am_request(gasnetw_binding.peers[dest], AM_SHORT, words_of(words), nwords,
                                 NULL, 0, room);
    if (WEFT_UNLIKELY(status != WEFT_OK))
        return gasnetw_AMRequestShort((gasnet_node_t)both, (gasnet_handler_t)words[0],
                                      (int)(both >> 32) - 1, words + 1);
    return GASNET_OK;
}

int gasnetw_medium(gasnet_node_t dest, unsigned nwords, const A *words, const void *source,
                   size_t nbytes)
{
    const uint16_t room = WEFT_UNLIKELY(nbytes > gasnetw_binding.max_medium)
                              ? AM_TRIAL_ROOM
                              : ordinary_room(dest, words);
    if (WEFT_UNLIKELY(room == AM_TRIAL_ROOM ||
                      weft_am_request(gasnetw_binding.peers[dest], AM_MEDIUM, words_of(words),
                                      nwords, source, nbytes, room) != WEFT_OK))
        return gasnetw_AMRequestMedium(dest, (gasnet_handler_t)words[0], source, nbytes,
                                       (int)nwords - 1, words + 1);
    return GASNET_OK;
}

int gasnetw_AMRequestMedium(gasnet_node_t dest, gasnet_handler_t handler, const void *source,
                            size_t nbytes, int nargs, const A *args)
{
    static const char what[] = "gasnet_AMRequestMedium";
    request_check(dest, handler, nargs, what);
    gasnetw_trace_request('M', dest, handler, nargs, nbytes);
    if (WEFT_UNLIKELY(nbytes > gasnetw_binding.max_medium))
        gasnetw_fatal("%s of %zu bytes: gasnet_AMMaxMedium() is %zu", what, nbytes,
                      gasnetw_binding.max_medium);
    if (WEFT_UNLIKELY(runs_here(dest)))
        return request_self(AM_MEDIUM, handler, nargs, args, source, nbytes);
    if (WEFT_UNLIKELY(nargs == 16)) {
        struct am_head head = {.origin = origin_of(handler), .nbytes = nbytes};
        return request_head(dest, AM_MEDIUM_HEAD, &head, nargs, args, source, nbytes, what);
    }
    return request_plain(dest, AM_MEDIUM, handler, nargs, args, source, nbytes, what);
}

/* ---- Long requests ---- */

/* A Long takes the first of these ways that is possible (GASNet's "packed", then "put first"):
 *
 *   the segment is mapped here   copy the data, then send a message that names their place
 *   the data fit a Medium        one message, with the data
 *   otherwise                    put the data; the put's completion sends the message
 * (weft_am_long)
 *
 * weft_am_long can name neither a place in a segment of EVERYTHING nor a 16th argument. There the
 * call waits for its put, and then sends a message that names the place. With EVERYTHING no data
 * travel in a message: the kernel checks the address of a put, but not that of a copy. */

/* Send the message of a Long. [len]: 0 if its data are in place, or [nbytes] */
static inline __attribute__((always_inline)) void
long_at(gasnet_node_t dest, gasnet_handler_t handler, const void *source, size_t len, size_t nbytes,
        void *dest_addr, int nargs, const A *args, const char *what)
{
    if (nargs <= AT_ARGS_MOST) {
        uint32_t words[1 + AM_AT_ARGS + AT_ARGS_MOST];
        words[0] = origin_of(handler);
        put_place(words + 1, dest_addr, nbytes);
        for (int i = 0; i < nargs; i++)
            words[1 + AM_AT_ARGS + i] = (uint32_t)args[i];
        (void)request_words(dest, AM_LONG_AT, handler, words, 1 + AM_AT_ARGS + (unsigned)nargs,
                            source, len, what);
    } else {
        struct am_head head = {
            .origin = origin_of(handler), .addr = (uintptr_t)dest_addr, .nbytes = nbytes};
        (void)request_head(dest, len ? AM_LONG_DATA : AM_LONG_HEAD, &head, nargs, args, source, len,
                           what);
    }
}

/* Send a Long that needs no source any more when the call returns. Returns false if there is no
 * such way, and nothing was sent. */
static inline __attribute__((always_inline)) bool
long_at_once(gasnet_node_t dest, gasnet_handler_t handler, const void *source, size_t nbytes,
             void *dest_addr, int nargs, const A *args, const char *what)
{
    const bool packs = gasnetw_binding.segment != SEGMENT_EVERYTHING;
    size_t len = 0;
    if (nbytes) {
        uint64_t offset;
        struct weft_remote *r = gasnetw_segment_at(dest, dest_addr, nbytes, what, &offset);
        if (r->base && weft_put(r, offset, source, nbytes, NULL) == WEFT_OK)
            len = 0;
        else if (packs && nbytes <= gasnetw_binding.max_medium)
            len = nbytes;
        else if (packs && nargs < 16)
            return false;
        else
            gasnetw_put_slow(dest, dest_addr, source, nbytes);
    }
    long_at(dest, handler, source, len, nbytes, dest_addr, nargs, args, what);
    return true;
}

/* Send the message of a Long whose data are in place. [words] as for gasnetw_long. */
__attribute__((noinline, cold)) static int
long_placed(gasnet_node_t dest, unsigned nwords, const A *words, size_t nbytes, void *dest_addr)
{
    long_at(dest, (gasnet_handler_t)words[0], NULL, 0, nbytes, dest_addr,
            (int)nwords - 1 - AM_AT_ARGS, words + 1 + AM_AT_ARGS, "gasnet_AMRequestLong");
    return GASNET_OK;
}

int gasnetw_long(gasnet_node_t dest, unsigned nwords, const A *words, const void *source,
                 size_t nbytes, void *dest_addr)
{
    const uint16_t room = ordinary_room(dest, words);
    if (WEFT_UNLIKELY(room == AM_TRIAL_ROOM ||
                      !gasnetw_put_inlined(dest, dest_addr, source, nbytes)))
        return gasnetw_AMRequestLong(dest, (gasnet_handler_t)words[0], source, nbytes, dest_addr,
                                     (int)nwords - 1 - AM_AT_ARGS, words + 1 + AM_AT_ARGS);
    if (WEFT_UNLIKELY(weft_am_request(gasnetw_binding.peers[dest], AM_LONG_AT, words_of(words),
                                      nwords, NULL, 0, room) != WEFT_OK))
        return long_placed(dest, nwords, words, nbytes, dest_addr);
    return GASNET_OK;
}

/* Start a Long request. The source must stay valid and unchanged until [op] is complete. */
static enum weft_status long_start(gasnet_node_t dest, gasnet_handler_t handler, const void *source,
                                   size_t nbytes, void *dest_addr, int nargs, const A *args,
                                   struct weft_op *op, const char *what)
{
    uint32_t words[17];
    uint64_t offset;
    struct weft_remote *r = gasnetw_segment_at(dest, dest_addr, nbytes, what, &offset);
    unsigned n = pack(words, handler, nargs, args);
    size_t room = reply_room(handler);
    enum weft_status status;
    gasnetw_spend(REQUEST_COST);
    count(dest);
    while ((status = weft_am_long(r, offset, source, nbytes, AM_LONG, words, n, room, op)) ==
               WEFT_AGAIN ||
           status == WEFT_ELIMIT)
        (void)gasnetw_turn();
    if (status != WEFT_OK && status != WEFT_PENDING)
        gasnetw_lost(dest, status, what);
    return status;
}

int gasnetw_AMRequestLong(gasnet_node_t dest, gasnet_handler_t handler, const void *source,
                          size_t nbytes, void *dest_addr, int nargs, const A *args)
{
    static const char what[] = "gasnet_AMRequestLong";
    struct weft_op op = {0};
    request_check(dest, handler, nargs, what);
    gasnetw_trace_request('L', dest, handler, nargs, nbytes);
    if (WEFT_UNLIKELY(runs_here(dest)))
        return long_self(handler, source, nbytes, dest_addr, nargs, args, what);
    if (long_at_once(dest, handler, source, nbytes, dest_addr, nargs, args, what))
        return GASNET_OK;
    if (long_start(dest, handler, source, nbytes, dest_addr, nargs, args, &op, what) ==
        WEFT_PENDING)
        gasnetw_await(&op, dest, what);
    return GASNET_OK;
}

/* End an AMRequestLongAsync, for which no caller waits. The caller keeps the source unchanged until
 * the reply's handler starts. The data have arrived by then. */
static void async_done(struct weft_op *op)
{
    enum weft_status status = (enum weft_status)op->status;
    gasnet_node_t dest = (gasnet_node_t)(uintptr_t)op->user;
    free(op);
    if (status != WEFT_OK && !atomic_load(&gasnetw_leaving))
        gasnetw_lost(dest, status, "gasnet_AMRequestLongAsync");
}

int gasnetw_AMRequestLongAsync(gasnet_node_t dest, gasnet_handler_t handler, const void *source,
                               size_t nbytes, void *dest_addr, int nargs, const A *args)
{
    static const char what[] = "gasnet_AMRequestLongAsync";
    struct weft_op *op;
    request_check(dest, handler, nargs, what);
    gasnetw_trace_request('A', dest, handler, nargs, nbytes);
    if (WEFT_UNLIKELY(runs_here(dest)))
        return long_self(handler, source, nbytes, dest_addr, nargs, args, what);
    if (long_at_once(dest, handler, source, nbytes, dest_addr, nargs, args, what))
        return GASNET_OK;
    op = calloc(1, sizeof *op);
    if (!op)
        gasnetw_fatal("%s: out of memory", what);
    op->done = async_done;
    op->user = (void *)(uintptr_t)dest;
    if (long_start(dest, handler, source, nbytes, dest_addr, nargs, args, op, what) != WEFT_PENDING)
        free(op);
    return GASNET_OK;
}

/* ---- replies ---- */

/* Check and trace a reply of [kind] with [nbytes] bytes of data. */
static struct token *reply_check(gasnet_token_t token, unsigned kind, gasnet_handler_t handler,
                                 int nargs, size_t nbytes, const char *what)
{
    struct token *t = token;
    if (!t || !gasnetw_in_handler())
        gasnetw_fatal("%s outside of a handler", what);
    if (t->is_reply)
        gasnetw_fatal("%s inside a reply's handler: only requests are replied to", what);
    if (t->replied)
        gasnetw_fatal("%s: this request has been replied to", what);
    if ((unsigned)nargs > 16)
        gasnetw_fatal("%s with %d arguments: 0 to 16 are possible", what, nargs);
    if (!handler)
        gasnetw_fatal("%s for handler 0, which is none", what);
    if (gasnetw_holds_hsl() && gasnetw_binding.debug)
        gasnetw_fatal("%s while a handler-safe lock is held", what);
    t->replied = true;
    gasnetw_trace_reply(kind, t->origin, handler, nargs, nbytes);
    return t;
}

/* GASNet allows a reply's handler to run inside the call that replies. */
static int reply_self(unsigned kind, gasnet_handler_t handler, int nargs, const A *args,
                      const void *data, size_t nbytes)
{
    gasnetw_am_self(kind, handler, true, args, (unsigned)nargs, (void *)(uintptr_t)data, nbytes);
    return GASNET_OK;
}

/* Send the reply at once if the request reserved enough room for it. Otherwise queue it until the
 * handler has returned (reply.c).
 *   head  begins the payload. If it is NULL, the first argument holds the origin: the sender's rank
 *         and the handler's index */
static int reply(struct token *t, unsigned kind, gasnet_handler_t handler, int nargs, const A *args,
                 const struct am_head *head, const void *data, size_t len, const char *what)
{
    const struct weft_am *am = t->am;
    size_t total = (head ? AM_HEAD : 0) + len;
    uint32_t words[17];
    enum weft_status status;
    if (WEFT_UNLIKELY(total >= am->reply_max || len > gasnetw_binding.max_medium)) {
        gasnetw_reply_later(t->origin, kind, origin_of(handler), nargs, args, head, data, len);
        return GASNET_OK;
    }
    if (WEFT_UNLIKELY(am->reply_max == gasnetw_trial_room())) {
        status = gasnetw_reply_trial(am, t->origin, kind, origin_of(handler), nargs, args, head,
                                     data, len);
    } else if (!head) {
        unsigned n = pack(words, handler, nargs, args);
        status = weft_am_reply(am, kind, words, n, data, len);
    } else {
        memcpy(gasnetw_am_scratch, head, AM_HEAD);
        if (len)
            memcpy(gasnetw_am_scratch + AM_HEAD, data, len);
        status = weft_am_reply(am, kind, (const uint32_t *)(const void *)args, (unsigned)nargs,
                               gasnetw_am_scratch, total);
    }
    if (WEFT_UNLIKELY(status != WEFT_OK))
        gasnetw_lost(t->origin >> 8, status, what);
    return GASNET_OK;
}

int gasnetw_AMReplyShort(gasnet_token_t token, gasnet_handler_t handler, int nargs, const A *args)
{
    static const char what[] = "gasnet_AMReplyShort";
    struct token *t = reply_check(token, AM_SHORT, handler, nargs, 0, what);
    struct am_head head = {.origin = origin_of(handler)};
    if (WEFT_UNLIKELY(!t->am))
        return reply_self(AM_SHORT, handler, nargs, args, NULL, 0);
    if (WEFT_UNLIKELY(nargs == 16))
        return reply(t, AM_SHORT_HEAD, handler, nargs, args, &head, NULL, 0, what);
    return reply(t, AM_SHORT, handler, nargs, args, NULL, NULL, 0, what);
}

int gasnetw_AMReplyMedium(gasnet_token_t token, gasnet_handler_t handler, const void *source,
                          size_t nbytes, int nargs, const A *args)
{
    static const char what[] = "gasnet_AMReplyMedium";
    struct token *t = reply_check(token, AM_MEDIUM, handler, nargs, nbytes, what);
    struct am_head head = {.origin = origin_of(handler), .nbytes = nbytes};
    if (nbytes > gasnetw_binding.max_medium)
        gasnetw_fatal("%s of %zu bytes: gasnet_AMMaxMedium() is %zu", what, nbytes,
                      gasnetw_binding.max_medium);
    if (WEFT_UNLIKELY(!t->am))
        return reply_self(AM_MEDIUM, handler, nargs, args, source, nbytes);
    if (nargs == 16)
        return reply(t, AM_MEDIUM_HEAD, handler, nargs, args, &head, source, nbytes, what);
    return reply(t, AM_MEDIUM, handler, nargs, args, NULL, source, nbytes, what);
}

/* If the requester's segment is mapped here, copy the data to it. Otherwise send the data in the
 * message, or, if they are longer than a Medium, by a put before the message (reply.c). */
int gasnetw_AMReplyLong(gasnet_token_t token, gasnet_handler_t handler, const void *source,
                        size_t nbytes, void *dest_addr, int nargs, const A *args)
{
    static const char what[] = "gasnet_AMReplyLong";
    struct token *t = reply_check(token, AM_LONG, handler, nargs, nbytes, what);
    gasnet_node_t dest = t->origin >> 8;
    struct am_head head = {
        .origin = origin_of(handler), .addr = (uintptr_t)dest_addr, .nbytes = nbytes};
    struct weft_remote *r = NULL;
    uint64_t offset;
    if (nbytes > gasnet_AMMaxLongReply())
        gasnetw_fatal("%s of %zu bytes: gasnet_AMMaxLongReply() is %zu", what, nbytes,
                      gasnet_AMMaxLongReply());
    if (nbytes)
        r = gasnetw_segment_at(dest, dest_addr, nbytes, what, &offset);
    if (WEFT_UNLIKELY(!t->am)) {
        if (nbytes)
            memmove(dest_addr, source, nbytes);
        return reply_self(AM_LONG, handler, nargs, args, dest_addr, nbytes);
    }
    if (!nbytes || (r->base && weft_put(r, offset, source, nbytes, NULL) == WEFT_OK)) {
        uint32_t all[AM_AT_ARGS + AT_ARGS_MOST];
        if (nargs > AT_ARGS_MOST)
            return reply(t, AM_LONG_HEAD, handler, nargs, args, &head, NULL, 0, what);
        put_place(all, dest_addr, nbytes);
        for (int i = 0; i < nargs; i++)
            all[AM_AT_ARGS + i] = (uint32_t)args[i];
        return reply(t, AM_LONG_AT, handler, AM_AT_ARGS + nargs, (const A *)all, NULL, NULL, 0,
                     what);
    }
    return reply(t, AM_LONG_DATA, handler, nargs, args, &head, source, nbytes, what);
}

/* ---- variadic forms ---- */

/* Read at most 16 arguments; the call that gets them refuses a larger [n]. */
#define TAKE_ARGS(a, n)                                                                            \
    do {                                                                                           \
        va_list list;                                                                              \
        va_start(list, n);                                                                         \
        for (int i = 0; i < n && i < 16; i++)                                                      \
            (a)[i] = va_arg(list, A);                                                              \
        va_end(list);                                                                              \
    } while (0)

int gasnet_AMRequestShort(gasnet_node_t dest, gasnet_handler_t handler, int numargs, ...)
{
    A a[16];
    TAKE_ARGS(a, numargs);
    return gasnetw_AMRequestShort(dest, handler, numargs, a);
}

int gasnet_AMRequestMedium(gasnet_node_t dest, gasnet_handler_t handler, void *source_addr,
                           size_t nbytes, int numargs, ...)
{
    A a[16];
    TAKE_ARGS(a, numargs);
    return gasnetw_AMRequestMedium(dest, handler, source_addr, nbytes, numargs, a);
}

int gasnet_AMRequestLong(gasnet_node_t dest, gasnet_handler_t handler, void *source_addr,
                         size_t nbytes, void *dest_addr, int numargs, ...)
{
    A a[16];
    TAKE_ARGS(a, numargs);
    return gasnetw_AMRequestLong(dest, handler, source_addr, nbytes, dest_addr, numargs, a);
}

int gasnet_AMRequestLongAsync(gasnet_node_t dest, gasnet_handler_t handler, void *source_addr,
                              size_t nbytes, void *dest_addr, int numargs, ...)
{
    A a[16];
    TAKE_ARGS(a, numargs);
    return gasnetw_AMRequestLongAsync(dest, handler, source_addr, nbytes, dest_addr, numargs, a);
}

int gasnet_AMReplyShort(gasnet_token_t token, gasnet_handler_t handler, int numargs, ...)
{
    A a[16];
    TAKE_ARGS(a, numargs);
    return gasnetw_AMReplyShort(token, handler, numargs, a);
}

int gasnet_AMReplyMedium(gasnet_token_t token, gasnet_handler_t handler, void *source_addr,
                         size_t nbytes, int numargs, ...)
{
    A a[16];
    TAKE_ARGS(a, numargs);
    return gasnetw_AMReplyMedium(token, handler, source_addr, nbytes, numargs, a);
}

int gasnet_AMReplyLong(gasnet_token_t token, gasnet_handler_t handler, void *source_addr,
                       size_t nbytes, void *dest_addr, int numargs, ...)
{
    A a[16];
    TAKE_ARGS(a, numargs);
    return gasnetw_AMReplyLong(token, handler, source_addr, nbytes, dest_addr, numargs, a);
}
