/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's side of the memory that it shares with a node service: the flows of one endpoint,
 * their journal, and the messages that arrive. docs/design/node.md "A flow" describes the protocol.
 * Nothing here opens a descriptor or sends a packet: the transport does, and calls these functions.
 * All of an endpoint's functions are called by the endpoint's owner, and none blocks.
 *
 * A *flow* carries the requests to another endpoint, or the replies to it. Each kind has numbers, a
 * journal and a slot of its own. A flow belongs to the two endpoints, not to a peer handle: its
 * numbers go on when the program opens another handle, so a flow lives as long as its endpoint.
 *
 *   client->lists    A flow with a slot is in [idle] (all is acknowledged) or in [refused], or in
 *                    none of them. A flow with messages to post that may try is in [due].
 *   flow->live       The slot's record is the flow's, and its attempt is flow->attempt.
 *   low..posted      in this attempt's entries; posted..next are still to be posted. */
#ifndef WF_NODE_ENGINE_H
#define WF_NODE_ENGINE_H

#include "base/hook.h"
#include "transport/node/blocks.h"
#include "transport/node/layout.h"
#include "transport/ring/sleep.h"
#include "transport/transport.h"

#define WF_NODE_WINDOW 64 /* messages of a flow that are not acknowledged */
#define WF_NODE_PROBE_NS                                                                           \
    1000000u /* a flow without a slot tries again after this, doubled each time */
#define WF_NODE_PROBE_MAX_NS 100000000u

struct node_client;
struct node_flow;

/* One message of the journal: a cache line. */
struct node_record {
    void *own;      /* its body, if it is in memory of the client's own, else NULL */
    uint32_t where; /* its first block in the submit segment, or WF_NODE_NO_BLOCK */
    uint32_t use;
    uint16_t len, reply_max;
    uint8_t handler, nargs, place, flags;
    uint32_t zero[2];
    uint8_t data[WF_NODE_SUBMIT_DATA]; /* its body, if it is short */
};
_Static_assert(sizeof(struct node_record) == 64, "a line for each message");

/* Where a flow leads. */
struct node_target {
    uint64_t tag;
    uint16_t index, ep;
    uint32_t word; /* the name of its service's, or WF_NODE_NO_WORD */
};

struct node_flow {
    struct node_flow *next_flow; /* in the client's table */
    struct node_target to;
    bool is_reply;
    bool live, begins, refused, asked; /* asked: [resolve] was called and has not been answered */
    bool heeds;                        /* HEED is to be sent, if nothing else is */
    bool released;                     /* it has ended, and its owner has forgotten it */
    bool unacked;  /* it has ended before all its messages, but for HEED, were acknowledged */
    uint8_t moves; /* to its destination that are not complete */
    /* Moves to its destination were LOST [losses] times in a row by [lost_session]: none goes by
     * that one until [direct_ns]. */
    uint8_t losses;
    uint32_t lost_session;
    uint64_t direct_ns;
    uint16_t attempt;
    int16_t slot; /* -1: none */
    uint32_t low, posted, next;
    uint32_t session; /* by which this attempt goes */
    uint32_t bytes;   /* of the journal's bodies */
    enum weft_status ended;
    /* Not OK: the destination has ended. The flow ends when the entries before [ends_at] of the
     * event ring, which it sent before, are consumed, and no move to it is left: the NIC may write
     * into memory of this process until then. The flow is in client->ending meanwhile. */
    enum weft_status ending;
    uint32_t ends_at;
    bool is_over; /* its destination sends nothing any more: the sender of the same tag ends, too */
    struct node_record *journal; /* WF_NODE_WINDOW lines, or NULL */
    struct wf_list slot_item, due_item;
    uint64_t retry_ns;
    uint32_t backoff_ns;
    uint32_t lost_use; /* the client's last move when the last pause after LOST began */
    void *user;        /* the transport's; memory of malloc, freed with the flow */
};

/* An endpoint that has sent to this one. */
struct node_sender {
    struct node_sender *next_sender;
    uint64_t tag;
    uint32_t expect;  /* the number that is delivered next */
    uint32_t word;    /* of its service, or WF_NODE_NO_WORD */
    uint32_t session; /* of that service, in which its end is reported to this endpoint; or 0 */
    struct wf_address address;
    struct wf_contact contact;
    struct node_flow *replies; /* the flow to it, once there is one */
    void *conn;                /* the core's (struct wf_token) */
};

/* A message that is being delivered. Valid during the call. */
struct node_am {
    const uint32_t *args;
    const void *data; /* at a multiple of 16 bytes */
    uint32_t len, reply_max;
    uint8_t handler, nargs, place;
    uint32_t use;
    struct node_sender *from; /* request: its sender */
    struct node_flow *flow;   /* reply: the flow of its request */
    uint32_t word;            /* request: of its sender */
    uint16_t index, ep;
};

/* A move, of which the engine keeps no bytes (moves.c). */
struct node_move_out {
    enum wf_node_move_kind kind;
    uint32_t len; /* 1 .. WF_NODE_MOVE_MAX */
    struct wf_node_move at;
    uint16_t index; /* of the destination's process, if the service has no NIC; else 0 */
    uint32_t id;
    void *user;
    const void *peer; /* the owner's handle that begins it: several may share a flow */
};

/* A move that is not complete, or, if [use] is 0, none. */
struct node_move_use {
    struct node_flow *flow;
    uint32_t use, id;
    uint32_t session; /* by which it goes */
    uint8_t kind;     /* enum wf_node_move_kind */
    void *user;
    const void *peer;
};

/* What the engine calls, inside wf_node_client_poll unless said otherwise. */
struct node_client_ops {
    /* A request has arrived. It may call wf_node_client_reply once, if am->reply_max is not 0. */
    void (*deliver)(void *owner, const struct node_am *am);
    /* A reply has arrived. */
    void (*replied)(void *owner, const struct node_am *am);
    /* The destination was closed (ECLOSED) or has ended (EPEER). What the flow had not
     * acknowledged is lost, and no reply to its requests will come. */
    void (*ended)(void *owner, struct node_flow *flow, enum weft_status why);
    /* The sender has ended, and all its messages were delivered. It is freed next. */
    void (*gone)(void *owner, struct node_sender *sender);
    /* Find the word of the flow's service, and call wf_node_flow_resolve. Also called by sends. */
    void (*resolve)(void *owner, struct node_flow *flow);
    /* Wake the service. Also called by sends. */
    void (*wake)(void *owner);
    /* A move has ended: OK | EKEY (its key is of no use) | EUNREACH (some bytes may have been
     * moved). NULL in an endpoint without moves. */
    void (*moved)(void *owner, struct node_flow *flow, const struct node_move_use *move,
                  enum weft_status status);
    /* Let no NIC access the local memory of [move] any more. Called before [moved] if the service
     * may be at work on it, and not outside of poll. */
    void (*stop)(void *owner, const struct node_move_use *move);
};

struct node_place_use {
    struct node_flow *flow; /* of the request that waits, or NULL */
    uint32_t use, where, blocks;
    uint32_t room; /* the longest reply */
};

struct node_client {
    struct wf_node_submit *submit;
    struct wf_node_event *event;
    const struct wf_node_page *page;
    uint32_t size, lines, am_max;
    bool fence;
    enum weft_status failed; /* not OK: the service broke the protocol or ended the endpoint */
    bool over;               /* and all that was of it has ended: nothing is left to do */
    /* the submit ring */
    uint32_t tail, taken;
    struct wf_node_blocks blocks;
    uint64_t service_seen; /* epoch of the service's sleep word */
    uint64_t epoch;        /* of this side's */
    /* flows */
    struct node_flow **flows; /* hash table */
    uint32_t flow_mask, nflows;
    struct node_flow *by_slot[WF_NODE_SLOTS];
    uint16_t attempts[WF_NODE_SLOTS];
    uint64_t slots_free[WF_NODE_SLOTS / 64];
    struct wf_list idle, refused, due, ending;
    uint32_t changes;          /* of the page, seen */
    bool wants_room, has_room; /* a send returned AGAIN; another one would not */
    bool any_released;         /* a flow, or a sender whose replies have ended, may be freed */
    /* A service may have been lost: its senders end at position [lost_at] of the event ring. */
    bool lost;
    uint32_t lost_at;
    uint64_t now_ns;
    /* the journal */
    void *spare_journals; /* a list through their first words */
    uint64_t own_bytes;   /* bodies in own memory */
    uint64_t sent_bytes;  /* bodies of all journals */
    uint32_t replies;     /* in the journals of replies: their number and bytes */
    uint32_t reply_bytes;
    void *spare; /* for one reply of any length, if malloc fails later; NULL: not allocated */
    /* reply places */
    uint64_t places_free;
    uint32_t uses;
    struct wf_node_blocks reply_blocks;
    struct node_place_use places[WF_NODE_PLACES];
    /* moves */
    uint64_t moves_free;
    uint32_t move_uses;
    struct node_move_use moves[WF_NODE_MOVES];
    /* the event ring */
    uint32_t head, attached_at; /* entries before attached_at are of an earlier service */
    struct node_sender **senders;
    uint32_t sender_mask, nsenders;
    const struct node_am *replying; /* the request that may be replied to */
    uint64_t dropped;               /* messages that came twice */
    uint64_t strange;               /* and those dropped because their sender breaks the protocol */
    const struct node_client_ops *ops;
    void *owner;
    uint32_t args[WF_NODE_ARGS];
    _Alignas(16) uint8_t data[WF_NODE_REPLY_DATA];
};

struct node_client_params {
    struct wf_node_submit *submit; /* both segments zeroed, [size] bytes; the caller unmaps them */
    struct wf_node_event *event;
    const struct wf_node_page *page;
    uint32_t size, am_max; /* wf_node_size_ok */
    uint32_t lines;        /* 0: wf_node_lines(size); or fewer, a power of two, for tests */
    bool fence;            /* no membarrier (ring/sleep.h) */
    const struct node_client_ops *ops;
    void *owner;
};

/* ---- engine.c ---- */

/* Returns OK | ENOMEM. Later calls on flows allocate at a flow's first message, and for messages
 * that were refused. */
enum weft_status wf_node_client_open(const struct node_client_params *params,
                                     struct node_client **out);
void wf_node_client_close(struct node_client *c);
/* The service has died, and nothing writes to the segments any more. Take the acknowledgements and
 * replies that it has written, and prepare the segments for a successor whose page is [page]. Flows
 * that have something to send begin again, and so do those that had an attempt under way: else the
 * successor would not know them, and not report their ends. [resolve] is called for each. [fence]:
 * as in struct node_client_params. Called as poll is. */
void wf_node_client_reattach(struct node_client *c, const struct wf_node_page *page, bool fence);
/* Do what is due at [now_ns] and deliver at most [budget] messages. Returns the number of events;
 * room after a send that returned AGAIN is an event. */
int wf_node_client_poll(struct node_client *c, uint64_t now_ns, int budget);
/* The same without delivering: send entries that are due, and take acknowledgements. Returns true
 * if messages other than HEED are left that were not acknowledged, or moves that are not complete.
 * For an endpoint that closes. */
bool wf_node_client_drain(struct node_client *c, uint64_t now_ns);
/* Read the bell, and look at what its bits stand for. Returns the number of events. */
int wf_node_bell_read(struct node_client *c);
/* The entries of the event ring that are published end before this position. */
uint32_t wf_node_event_tail(const struct node_client *c);
/* Is there something for poll to do? Called when armed, after wf_sleep_barrier. */
bool wf_node_client_pending(const struct node_client *c);
/* The service broke the protocol: [what] for the log. The endpoint works no more. */
void wf_node_client_fail(struct node_client *c, const char *what);

/* ---- target.c: flows ---- */

/* Returns the flow to [to], which is made if there is none, or NULL without memory. */
struct node_flow *wf_node_flow_find(struct node_client *c, const struct node_target *to,
                                    bool is_reply);
/* The flow of requests to the endpoint of [tag], or NULL. */
struct node_flow *wf_node_flow_lookup(const struct node_client *c, uint64_t tag);
/* The answer to [resolve]. */
void wf_node_flow_resolve(struct node_client *c, struct node_flow *flow, uint32_t word);
/* Prepare an attempt: slot, record, session. Returns false if the flow has to wait. */
bool wf_node_flow_begin(struct node_client *c, struct node_flow *flow);
/* Look at the words of [slot]. */
int wf_node_slot_look(struct node_client *c, uint32_t slot);
/* Look at the session of each flow. */
int wf_node_sessions_look(struct node_client *c);
/* Post again from the oldest message on that is not acknowledged, as soon as that is possible. */
void wf_node_flow_again(struct node_client *c, struct node_flow *flow);
/* The same after a service has died, by which the attempt went: no bell reports that it is over. If
 * all is acknowledged, a message without a handler makes the successor know the flow. */
void wf_node_flow_anew(struct node_client *c, struct node_flow *flow);
void wf_node_flow_end(struct node_client *c, struct node_flow *flow, enum weft_status why);
/* The endpoint of [tag] has ended: end the flows to it. */
void wf_node_flows_end(struct node_client *c, uint64_t tag, enum weft_status why);
/* End the flow once what its destination had sent is delivered. */
void wf_node_flow_ending(struct node_client *c, struct node_flow *flow, enum weft_status why);
/* Can one of the flows that are ending end now? */
bool wf_node_any_ends(const struct node_client *c);
/* End the flows whose destinations' last messages are consumed. Returns the number of events. */
int wf_node_flows_ending(struct node_client *c);
/* The flow has ended, and its owner keeps no pointer to it any more: it is freed at the end of the
 * poll. For a flow of replies, its sender is the owner. */
void wf_node_flow_release(struct node_client *c, struct node_flow *flow);
void wf_node_flows_free(struct node_client *c);
/* Has the flow's message number [number] arrived in its destination's ring? Looks at the
 * acknowledgements first. */
bool wf_node_flow_is_past(struct node_client *c, struct node_flow *flow, uint32_t number);

/* ---- journal.c ---- */

static inline struct node_record *wf_node_record_at(const struct node_flow *flow, uint32_t number)
{
    return &flow->journal[number % WF_NODE_WINDOW];
}

/* Is HEED all that is not acknowledged? It carries nothing that could be lost. */
static inline bool wf_node_flow_only_heeds(const struct node_flow *flow)
{
    return flow->next - flow->low == 1 && wf_node_record_at(flow, flow->low)->flags & WF_NODE_HEED;
}

/* Give the flow a journal. Returns false if there is no memory. */
bool wf_node_journal_open(struct node_client *c, struct node_flow *flow);
/* The flow is idle: keep its journal for another one. */
void wf_node_journal_keep(struct node_client *c, struct node_flow *flow);
/* Forget the messages before number [upto]. */
void wf_node_journal_ack(struct node_client *c, struct node_flow *flow, uint32_t upto);
/* Move all bodies from blocks to own memory. A body for which there is no memory stays. */
void wf_node_journal_park(struct node_client *c, struct node_flow *flow);

/* ---- post.c ---- */

/* Send a request. Returns OK, AGAIN (nothing was started; poll counts an event when there may be
 * room), or why the flow has ended. The flow's order is that of the calls. */
enum weft_status wf_node_client_send(struct node_client *c, struct node_flow *flow,
                                     const struct wf_am_out *out);
/* Have the end of the flow's destination reported, also if nothing is sent: the services must know
 * the flow, so an empty message goes, at once or as soon as that is possible. Returns OK, or why
 * the flow has ended. */
enum weft_status wf_node_client_heed(struct node_client *c, struct node_flow *flow);
/* Reply to the request that is being delivered. Never fails for lack of room. */
void wf_node_client_reply(struct node_client *c, const struct node_am *am,
                          const struct wf_am_out *out);
/* The handler of [am] has not replied. */
void wf_node_client_no_reply(struct node_client *c, const struct node_am *am);
/* Prepare all that a reply to [am] needs. Returns false if [am] cannot be delivered yet. */
bool wf_node_reply_room(struct node_client *c, const struct node_am *am);
/* Post what the flow has not posted. Returns the number of entries. */
int wf_node_flow_post(struct node_client *c, struct node_flow *flow);
/* Post all messages that are due. Returns the number of entries. */
int wf_node_client_post(struct node_client *c);
bool wf_node_ring_has_room(struct node_client *c);
/* A call finds no room. Returns its status. */
enum weft_status wf_node_again(struct node_client *c);
/* Publish the entry at the ring's tail, which is written but for its ready word. */
static inline void wf_node_entry_publish(struct node_client *c, struct wf_node_entry *e,
                                         uint32_t len, uint32_t reply_max)
{
    WF_HOOK("node.entry");
    wf_store_release(&e->ready, wf_shm_ready(c->tail++, len, reply_max)); /* "entry" */
    WF_HOOK("node.posted");
    if (wf_sleep_must_wake(&c->page->sleep_epoch, &c->service_seen, c->fence))
        c->ops->wake(c->owner);
}
static inline bool wf_node_is_due(const struct node_flow *flow)
{
    return !wf_list_empty(&flow->due_item);
}

/* ---- moves.c ---- */

/* May wf_node_client_move return OK for a move to the flow's destination? Returns OK | AGAIN (poll
 * counts an event when there may be room) | EUNREACH (there is no session by which it can go) | why
 * the flow has ended. */
enum weft_status wf_node_client_can_move(struct node_client *c, struct node_flow *flow);
/* Have the service's NIC copy bytes. [moved] reports the end once. Returns as
 * wf_node_client_can_move. */
enum weft_status wf_node_client_move(struct node_client *c, struct node_flow *flow,
                                     const struct node_move_out *out);
/* Has the service ended [move], which was not reported yet? No NIC is at work on it then. */
bool wf_node_move_is_over(const struct node_client *c, uint32_t move);
/* Look at the completion of [move]. Returns the number of events. */
int wf_node_move_look(struct node_client *c, uint32_t move);
/* No NIC is at work on the moves any more, or will be: they have ended. */
void wf_node_moves_abandon(struct node_client *c);
/* The gets are of no use any more, and the service accesses no local memory of theirs. */
void wf_node_gets_abandon(struct node_client *c);
/* The same, but the service may be at work on those whose ends it has not written: stop it first.
 */
void wf_node_moves_stop(struct node_client *c);
static inline bool wf_node_has_moves(const struct node_client *c)
{
    return c->moves_free != UINT64_MAX;
}

/* ---- incoming.c ---- */

int wf_node_events_poll(struct node_client *c, int budget);
int wf_node_place_look(struct node_client *c, uint32_t place);
/* The sender of [tag], or NULL. */
struct node_sender *wf_node_sender_find(const struct node_client *c, uint64_t tag);
/* The words of the senders' services were those of an earlier service's page, and the ends of the
 * senders that died with it are not reported. */
void wf_node_senders_forget(struct node_client *c);
/* The sender of [tag], if there is one, sends nothing any more: free it. */
void wf_node_sender_end(struct node_client *c, uint64_t tag);
void wf_node_place_free(struct node_client *c, uint32_t place);
void wf_node_senders_free(struct node_client *c);
/* End the senders whose services are lost, or all of them, and have the services know this endpoint
 * again for senders whose service has another session. */
void wf_node_senders_lost(struct node_client *c, bool all);

#endif
