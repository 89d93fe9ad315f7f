/* SPDX-License-Identifier: BSD-3-Clause */
/* The moving part of a node service: entries of its clients become frames to other services, and
 * their frames become entries and replies of its clients. docs/design/node.md "A flow" has the
 * tables of states. One thread calls all of these functions. None blocks, and none allocates but
 * the functions that open something.
 *
 * The mover keeps no state that its successor needs: the rows of expect.c are a cache, and flows
 * that wait are found again when a client attaches to a successor. */
#ifndef WF_NODE_MOVER_H
#define WF_NODE_MOVER_H

#include "node/frames.h"
#include "transport/node/layout.h"
#include "transport/transport.h"

#define WF_NODE_LANES 16
#define WF_NODE_WAYS 8 /* rows of expect that may hold a flow */
#define WF_NODE_TURN_ENTRIES 32
#define WF_NODE_TURN_BYTES 65536
#define WF_NODE_ACK_AFTER 32 /* messages */
#define WF_NODE_ANSWERS 5    /* in a frame */
#define WF_NODE_PORTS 32768  /* endpoints of a service: ids are 16 bits */
/* Ends of endpoints that a session may be behind. All endpoints of a service may end at once: a
 * session that took the ends before them must not be lost by that. */
#define WF_NODE_ENDS (2 * WF_NODE_PORTS)
#define WF_NODE_NIL UINT32_MAX
#define WF_NODE_PARTS 256u /* of all moves, under way at a time */
/* Buffers of WF_NODE_BUFFER bytes, for parts of gets that this service serves. */
#define WF_NODE_SERVED 32u
/* What may be due to a session: an end for each part that the other service has under way, and a
 * STORED for each buffer that it serves from. */
#define WF_NODE_OWED (WF_NODE_PARTS + WF_NODE_SERVED)

struct node_mover;
struct node_port;
struct node_part;

/* ---- what the mover calls ---- */

struct node_mover_ops {
    /* Send a frame on lane [lane] of the session with the service of page word [word]. OK; AGAIN if
     * the lane has no room, or ENOMEM: the owner makes a turn when it may have; EPEER: the session
     * is about to end. */
    enum weft_status (*send)(void *owner, uint16_t word, unsigned lane, unsigned kind,
                             const uint32_t *args, unsigned nargs, const void *data, size_t len);
    /* Is the lane half empty? */
    bool (*has_room)(void *owner, uint16_t word, unsigned lane);
    /* The tag of an endpoint, from its address bytes. */
    uint64_t (*tag)(void *owner, const struct wf_address *address);
    void (*wake)(void *owner, struct node_port *port); /* its client sleeps */
    /* The client broke the protocol: its endpoint has that status. The desk detaches it. */
    void (*failed)(void *owner, struct node_port *port);
    /* The service of page word [word] has not taken WF_NODE_ENDS ends, and will not get them: end
     * its session, unless nothing has come by it. */
    void (*behind)(void *owner, uint16_t word);
    void *owner;
    /* Have the NIC start [op], as nic_op of transport.h does, by the session with the service of
     * page word [word]. The peer's key is of the service with [incarnation]. Its end is reported by
     * wf_node_part_done. Returns OK; AGAIN: the owner makes a turn when there may be room; EKEY:
     * that service has ended; or another failure: it cannot be done now. NULL: there is no NIC. */
    enum weft_status (*move)(void *owner, uint16_t word, const struct wf_nic_op *op,
                             uint32_t incarnation, size_t *taken);
    /* A frame has come from the service of page word [word]. Is it the one with [incarnation]? OK;
     * EKEY: that one has ended; EUNREACH: that is a later one. NULL: there is no NIC. */
    enum weft_status (*instance)(void *owner, uint16_t word, uint32_t incarnation);
    /* As send, with [len] bytes more, also after the call has returned: of PUT those of the part
     * [id] (wf_node_part_at), of GOT those of the buffer [id] (wf_node_served_at). NULL: there is a
     * NIC, or moves are not possible. */
    enum weft_status (*send_part)(void *owner, uint16_t word, unsigned lane, unsigned kind,
                                  const uint32_t *args, unsigned nargs, uint32_t id, uint32_t len);
};

/* ---- objects ---- */

/* A client that the service before had. Messages for its endpoints are refused until they attach.
 */
enum node_heir {
    NODE_HEIR_UNKNOWN, /* there may be one, if the service is young */
    NODE_HEIR_AWAITED, /* there is one */
    NODE_HEIR_GONE,    /* there is none any more, or all its endpoints are attached */
};

/* What this service remembers of the attempts that it refused itself. */
struct node_near {
    uint32_t next;    /* in the lane's list: port id * WF_NODE_SLOTS + slot */
    uint16_t attempt; /* refused; 0: none */
    bool queued;
};

struct node_lane {
    uint32_t head, tail; /* flows that wait for the lane, in the order of refusal */
    uint32_t full_in;    /* the turn in which it last took no answer, or no WRITTEN */
    /* writes.c. Numbers of WRITTENs in this session: the last one sent by this lane, and taken. */
    uint32_t written, taken;
    bool taken_due; /* TAKEN is to be sent */
};

/* A frame that is to be sent: ENDED, GOT or STORED; or a GET that is to be answered by GOT. */
struct node_owed {
    uint32_t id; /* of the part; STORED: of the other service's buffer */
    uint8_t lane, end;
    uint8_t kind;      /* enum wf_node_frame */
    uint16_t to, from; /* GET, GOT: indexes of the two clients */
    uint32_t len;      /* GET, */
    uint64_t key, at;  /* of what */
};

/* A buffer from which a part of a get is served. */
struct node_served {
    uint32_t id;   /* index; the rest is counted up with each use */
    uint16_t word; /* of the session that has it, until STORED comes or the session ends */
    bool busy;
    bool sent;            /* else the call that sends it has not returned, */
    bool gone;            /* and may have reported that it is not sent */
    struct node_owed get; /* what it answers */
};

/* A key of messages that the other service's NIC has refused: the sender has taken them back. */
struct node_refused {
    uint64_t until_ns; /* no read by it is posted until then */
    uint32_t window;   /* of the sender, */
    uint32_t rkey;     /* and its key */
};

struct node_session {
    uint32_t number;
    uint32_t use;   /* services that had the word before */
    uint32_t state; /* enum wf_node_session_state */
    struct node_lane lanes[WF_NODE_LANES];
    /* Bytes of parts under way with the services that have, or had, the word: with a NIC all, else
     * those of puts; and those of gets, which the other service sends. */
    uint32_t moving, getting;
    uint32_t nparts;     /* and how many */
    uint32_t moves_full; /* the turn in which it last had no room for a part */
    /* Frames that are due, the oldest first: room for WF_NODE_OWED. NULL with a NIC. */
    struct node_owed *owed;
    uint32_t nowed, nstored; /* all, and the STOREDs of them */
    uint32_t nserved;        /* buffers that it has */
    bool gets_wait;          /* for a buffer, or for the next turn */
    struct node_end *end;    /* the next to send by it, in mover->ends; NULL: none */
    uint32_t end_lane;       /* and by which lane */
    uint32_t refusals;       /* of keys; the last of them: */
    struct node_refused refused[8];
};

/* What a write waits for, after its bytes have been moved. */
enum node_write_stage {
    NODE_WRITE_MOVES,
    NODE_WRITE_DUE,  /* room in the lane for WRITTEN */
    NODE_WRITE_SENT, /* TAKEN */
    NODE_WRITE_OVER, /* nothing */
};

/* A move of a client that is not complete. */
struct node_move {
    struct wf_node_move at; /* of the bytes that are not posted */
    uint32_t left;          /* those */
    uint32_t use, session;
    uint32_t word;      /* its name */
    uint16_t under_way; /* parts */
    uint8_t kind;
    uint8_t end;  /* enum wf_node_move_end, the worst of its parts; 0: it is none */
    uint8_t next; /* in the queue */
    bool queued;
    /* a write's */
    uint8_t stage;   /* enum node_write_stage */
    uint8_t lane;    /* of WRITTEN: the client's choice */
    uint16_t to;     /* without a NIC: the index of the destination's process */
    uint32_t bytes;  /* all of them */
    uint32_t number; /* of WRITTEN, in its lane */
};

/* The submit segment of an endpoint whose buffers are sent. It stays mapped while a part is under
 * way, also when the endpoint has left: else its bytes would be missing in the middle of a frame,
 * which breaks a lane that all clients use. */
struct node_buffers {
    const struct wf_node_submit *submit;
    uint32_t bytes; /* that are mapped */
    uint32_t size;  /* where the buffers begin */
    uint32_t parts; /* under way */
    bool left;      /* the endpoint: unmapped with the last part */
};

/* A slab of a client, in which regions of its table are, or that table (id 0). The desk's memory.
 */
struct node_slab {
    struct node_slab *next; /* of the client */
    void *base;
    uint64_t id, size;
    uint16_t index; /* the client's */
    bool read_only;
};

/* An attached endpoint. */
struct node_port {
    struct node_mover *mover;
    struct node_port *next_of_index;
    struct wf_node_submit *submit;
    struct wf_node_event *event;
    uint32_t id, size, lines, am_max;
    uint16_t index, ep;
    uint64_t tag;
    uint8_t sender[WF_NODE_SENDER]; /* what follows BEGIN */
    bool fence, failed;
    uint64_t epoch_seen;
    /* the submit ring */
    uint32_t head;
    /* the event ring; positions in the payload area grow for ever */
    uint32_t tail, taken;
    uint64_t pay_head, pay_tail;
    uint64_t *pay_end; /* of each entry's block */
    uint32_t waiting;  /* first and last of the flows that wait for room here */
    uint32_t waiting_last;
    uint64_t room_all[WF_NODE_WORDS / 64]; /* sessions with more flows that wait */
    bool room_all_any;
    uint32_t ends_due; /* rows whose [ended] is to be delivered */
    struct node_near near[WF_NODE_SLOTS];
    /* moves (parts.c) */
    uint32_t window;                /* of its client (wf_node_window); 0: it has none */
    struct node_move *moves;        /* by place; NULL: it has none */
    struct node_buffers *buffers;   /* NULL: of a service with a NIC */
    uint8_t moves_head, moves_tail; /* those with bytes to be posted */
    uint8_t nqueued;
    /* writes.c: the most events of peers' writes that wait; 0: it takes messages */
    uint32_t events;
    uint32_t nwrites;   /* that wait for room, or for TAKEN */
    uint32_t next_move; /* where the next turn of those that wait for room begins */
    void *user;         /* the desk's */
};

/* A flow of another service's client, as this service expects it. */
struct node_row {
    uint64_t tag; /* 0: unused */
    uint32_t expect, acked, used;
    uint32_t next_dirty;
    uint16_t port; /* id of the destination */
    uint16_t word, index, ep, attempt;
    uint16_t refused; /* attempt that was refused; 0: none */
    uint8_t slot, lane;
    uint8_t is_reply : 1, dirty : 1;
    uint8_t ended : 3; /* enum wf_node_state: the sender has ended, and its port has to learn it */
};
_Static_assert(sizeof(struct node_row) == 40, "40 bytes for each flow (docs/design/node.md)");

/* A flow that was refused here. */
struct node_waiter {
    uint32_t next; /* in the port's list, in the list of free ones, or in [strays] */
    uint32_t next_hash;
    uint32_t blocks; /* that its message needs */
    uint32_t to_tag;
    uint16_t to_index;
    uint16_t word, index, ep, attempt;
    uint8_t slot, lane;
    bool refusal_due; /* REFUSED was not sent yet */
};

/* The end of an endpoint of this service, on its way to all others. Each session sends the ends in
 * their order, at its own pace. */
struct node_end {
    struct wf_list item; /* in mover->ends */
    uint64_t tag;
    enum wf_node_state state; /* CLOSED or DEAD */
    uint32_t left;            /* sessions that are still to send it */
};

/* A client whose moves break queue pairs, which all clients use. */
struct node_blame {
    uint64_t until_ns; /* its moves are not posted until then: they are LOST */
    /* Refused reads of messages that were spared, in time: each counts for a while, one after the
     * other, until then. */
    uint64_t spared_ns;
    uint32_t window; /* the client's: the index may have another one now */
    uint8_t times;   /* the last pauses; each was twice as long as the one before */
};

struct node_mover {
    const struct node_mover_ops *ops;
    struct wf_node_page *page;
    uint32_t lanes, nindexes;
    uint32_t turn; /* counted up by each; the first is 1 */
    bool young;    /* clients of an earlier service may still attach */
    const _Atomic uint8_t *heirs;
    const _Atomic uint32_t *heirs_gone;
    struct node_port *by_index[WF_NODE_INDEXES];
    struct node_port **ports; /* by id; NULL: free */
    uint32_t nports, port_room;
    struct node_session *sessions[WF_NODE_WORDS];
    uint32_t nsessions;  /* words in use */
    struct wf_list ends; /* the oldest first */
    uint32_t nends;
    /* expect.c */
    struct node_row *rows;
    uint32_t row_mask; /* of sets */
    uint32_t clock;
    uint32_t dirty, dirty_last, ndirty; /* rows to acknowledge */
    uint32_t unacked;                   /* messages since the last acknowledgement */
    /* answer.c */
    struct node_waiter *waiters;
    uint32_t nwaiters, waiters_free;
    uint32_t strays, strays_last; /* those whose destination is not attached */
    /* Sessions with more of them than the table holds. */
    uint64_t strays_lost[WF_NODE_WORDS / 64];
    bool strays_lost_any;
    bool strays_again;     /* some of these have an answer now */
    uint32_t gone_seen;    /* of [heirs_gone] */
    uint32_t *waiter_hash; /* as many buckets as waiters */
    uint32_t refusals_due;
    /* parts.c */
    struct node_part *parts;
    uint32_t nparts, next_part;
    uint32_t nqueued;   /* moves with bytes to be posted */
    uint32_t next_port; /* where a turn of them begins */
    /* regions.c: by index */
    struct node_slab *tables[WF_NODE_INDEXES], *slabs[WF_NODE_INDEXES];
    /* carry.c and serve.c */
    uint32_t nowed;      /* of all sessions */
    uint32_t first_owed; /* where a turn of them begins */
    uint32_t serves;     /* bytes that this turn may still copy, also in vain */
    struct node_served served[WF_NODE_SERVED];
    uint8_t *served_bytes;     /* NULL: none was served yet */
    uint32_t nserved;          /* that are busy */
    uint64_t served_ns;        /* when one was last taken, or freed */
    struct node_blame *blames; /* by index */
    /* writes.c: writes that wait for room, and for TAKEN; lanes by which TAKEN is to be sent */
    uint32_t nwrites_due, nwrites_sent, ntaken_due;
    uint32_t next_writer; /* the port where a turn of those that wait for room begins */
    uint64_t dropped; /* frames for endpoints that do not exist, and replies that no slot expects */
    uint8_t scratch[WF_NODE_SENDER + 32768 + 64];
};

struct node_mover_params {
    const struct node_mover_ops *ops;
    struct wf_node_page *page;         /* zeroed but for the incarnation */
    const struct wf_node_page *before; /* of the service before, or NULL; read by mover_open */
    uint32_t lanes;                    /* 1..WF_NODE_LANES */
    uint32_t index_bits;               /* 1..12 */
    uint32_t rows;                     /* of expect: a power of two, WF_NODE_WAYS or more */
    uint32_t waiters;                  /* a power of two */
    bool young;
    const _Atomic uint8_t *heirs;       /* by index, enum node_heir; NULL: UNKNOWN */
    const _Atomic uint32_t *heirs_gone; /* counted up when one has become GONE; or NULL */
};

struct node_port_params {
    struct wf_node_submit *submit;
    struct wf_node_event *event;
    uint32_t size, am_max; /* wf_node_size_ok */
    uint32_t lines;        /* 0: wf_node_lines(size); or fewer, a power of two, for tests */
    uint16_t index;
    uint32_t window; /* 0: none */
    struct wf_address address;
    struct wf_contact contact;
    bool fence;
};

/* ---- mover.c ---- */

/* Returns OK | ENOMEM. */
enum weft_status wf_node_mover_open(const struct node_mover_params *params,
                                    struct node_mover **out);
/* All ports are detached. */
void wf_node_mover_close(struct node_mover *m);
/* Attach an endpoint. The segments may have been used by an earlier service. Returns OK | ENOMEM |
 * ELIMIT (32,768 endpoints) | EINVAL (the segments contradict themselves). */
enum weft_status wf_node_port_attach(struct node_mover *m, const struct node_port_params *params,
                                     struct node_port **out);
/* From here on, nothing of the endpoint is read or written, but for bytes of parts that are under
 * way. Returns true if it has such parts, and so keeps the submit segment: the mover unmaps it. */
bool wf_node_port_detach(struct node_port *port);
/* The session of page word [word] has a new state. UP counts the session up, which makes all flows
 * begin again; after LOST it is that of another service. Returns OK | ENOMEM (only the first time
 * for a word). */
enum weft_status wf_node_session_set(struct node_mover *m, uint16_t word,
                                     enum wf_node_session_state state);
/* The service is no longer young: it answers messages for endpoints that no client has with CLOSED
 * or DEAD, but for those of an heir that is awaited. */
void wf_node_mover_settle(struct node_mover *m);
/* One turn: read entries of each client, then send answers that are due. Returns how many entries
 * and answers there were. */
int wf_node_mover_turn(struct node_mover *m);
/* Has a client written something that a turn would take? Called by a thread that is about to sleep,
 * after wf_sleep_barrier. */
bool wf_node_mover_pending(const struct node_mover *m);
/* End the endpoint with EPROTO; [what] is for the log. */
void wf_node_port_fail(struct node_port *port, const char *what);
/* Wake the client if it sleeps. */
void wf_node_port_wake(struct node_port *port);
/* The name of the word, which has a session (wf_node_word_name). */
uint32_t wf_node_word_of(const struct node_mover *m, uint16_t word);
struct node_port *wf_node_port_find(const struct node_mover *m, uint32_t index, uint32_t tag);

/* ---- submit.c ---- */

int wf_node_submit_turn(struct node_port *port);
/* Give room to flows that wait for a lane that is half empty. */
int wf_node_lanes_turn(struct node_mover *m);
/* No flow waits for the lanes of the session any more. */
void wf_node_lanes_reset(struct node_mover *m, struct node_session *s);

/* ---- parts.c ---- */

enum weft_status wf_node_parts_open(struct node_mover *m);
/* Prepare an endpoint that is being attached. Returns false without memory. */
bool wf_node_moves_open(struct node_port *port);
/* Free what wf_node_moves_open has made: it is not attached. */
void wf_node_moves_close(struct node_port *port);
void wf_node_parts_close(struct node_mover *m);
/* It is being detached. Parts that are under way go on. Returns as wf_node_port_detach. */
bool wf_node_moves_forget(struct node_port *port);
/* An entry with WF_NODE_MOVE. Returns false if the client broke the protocol. */
bool wf_node_move_take(struct node_port *port, const struct wf_node_entry *e, uint32_t len,
                       uint32_t reply_max);
/* Post parts: of each endpoint at most 256 KiB. Returns how many, and how many moves have ended. */
int wf_node_moves_turn(struct node_mover *m);
/* The NIC has ended the part that it was given as [id], with a status of nic_op_done. EKEY and
 * EINVAL are the doing of the part's client. */
void wf_node_part_done(struct node_mover *m, uint32_t id, enum weft_status status);
/* The NIC is no more at work for sessions of [word] other than number [session] (0: for none), and
 * reports none of their parts. */
void wf_node_parts_cut(struct node_mover *m, uint16_t word, uint32_t session);

/* Byte [at] of the part [id], which was given to ops.send_part. Returns NULL if it has ended. */
const void *wf_node_part_at(const struct node_mover *m, uint32_t id, uint32_t at);
/* An ENDED of the service of page word [word]. */
enum weft_status wf_node_ended_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                    unsigned nargs);
/* The bytes of that service's GOT from [at] on are to be stored; [len] is its length. Returns
 * where, or NULL: they are dropped. */
void *wf_node_got_at(const struct node_mover *m, uint16_t word, const uint32_t *args,
                     unsigned nargs, uint32_t len, uint32_t at);
/* A GOT has come whole. [stored]: it had bytes, and all were stored. Returns OK | EPROTO */
enum weft_status wf_node_got_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                  unsigned nargs, bool stored);

/* Report the end of the move to its client, if it has no more to do. */
void wf_node_move_end_if_over(struct node_port *port, uint8_t move);

/* ---- blame.c ---- */

/* Are moves of the client at [index], which has [window], not posted? */
bool wf_node_is_paused(const struct node_mover *m, uint16_t index, uint32_t window);
/* A part of that client's has broken a queue pair: EKEY, the peer's NIC has refused its key;
 * EINVAL, its own memory is none. [reads]: of a message (WF_NODE_READ). The client pauses, unless
 * the sender of the message is to blame. */
void wf_node_blame(struct node_mover *m, uint16_t index, uint32_t window, enum weft_status status,
                   bool reads);
/* The NIC of the session's service has refused the key of [at], by which a message was read. */
void wf_node_key_refused(struct node_session *s, const struct wf_node_move *at);
/* Was the key of [at] refused a short while ago? */
bool wf_node_is_refused(const struct node_session *s, const struct wf_node_move *at);

/* ---- regions.c ---- */

/* A client gives a slab, whose id it gives once at a time, or takes it back. */
void wf_node_slab_add(struct node_mover *m, struct node_slab *slab);
void wf_node_slab_remove(struct node_mover *m, struct node_slab *slab);
/* Find [len] bytes at [at], an address of the region with [key] of the client at [index], which a
 * peer accesses as [access] says. Returns the first of them, or NULL with the end of the part:
 * REFUSED or, if the service has not got the slab, LOST. */
void *wf_node_region_find(const struct node_mover *m, uint32_t index, uint64_t key, uint64_t at,
                          uint32_t len, unsigned access, enum wf_node_move_end *end);

/* ---- carry.c ---- */

/* The bytes of PUT from [at] on are to be stored; [len] is its length. Returns where, or NULL: they
 * are dropped. */
void *wf_node_put_at(const struct node_mover *m, const uint32_t *args, unsigned nargs, uint32_t len,
                     uint32_t at);
/* A PUT has come whole. [stored]: all its bytes were. Returns OK | EPROTO */
enum weft_status wf_node_put_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                  unsigned nargs, bool stored);
/* Something is due to the session of [word]. Returns OK | EPROTO (it has asked for too much) */
enum weft_status wf_node_owed_add(struct node_mover *m, uint16_t word, const struct node_owed *o);
/* Send the frames that are due. Returns their number. */
int wf_node_owed_turn(struct node_mover *m);
/* The session of [word] has ended: nothing is due to it. */
void wf_node_owed_cut(struct node_mover *m, uint16_t word);

/* ---- serve.c ---- */

/* A GET, or a STORED, of another service. */
enum weft_status wf_node_get_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                  unsigned nargs);
enum weft_status wf_node_stored_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                     unsigned nargs);
/* Answer the GET [o], which is due to the session of [word]. Returns OK; ELIMIT: it waits for a
 * buffer, or the next turn; EKEY: [o] is a GOT without bytes now; or as node_mover_ops.send. */
enum weft_status wf_node_get_serve(struct node_mover *m, uint16_t word, struct node_owed *o);
/* Byte [at] of the buffer [id]. Returns NULL if its bytes were stored, or its session has ended. */
const void *wf_node_served_at(const struct node_mover *m, uint32_t id, uint32_t at);
/* In how many ms is a GET that has no buffer to be answered? Returns -1 if there is none. */
int wf_node_gets_wait_ms(const struct node_mover *m);
/* Its bytes are not sent. */
void wf_node_served_gone(struct node_mover *m, uint32_t id);
void wf_node_served_close(struct node_mover *m);
/* The session of [word] has ended: it has no buffers. */
void wf_node_served_cut(struct node_mover *m, uint16_t word);

/* ---- writes.c ---- */

/* The bytes of a write have been moved: report it to the other service, now or when there is room.
 */
void wf_node_write_report(struct node_port *port, uint8_t move);
/* Send the WRITTENs and TAKENs that are due. Returns the number of frames, and of writes that
 * failed. */
int wf_node_writes_turn(struct node_mover *m);
/* The session of [word] has ended: its writes have failed. */
void wf_node_writes_cut(struct node_mover *m, uint16_t word);
/* The endpoint is being detached. */
void wf_node_writes_forget(struct node_port *port);
/* Frames of another service. */
enum weft_status wf_node_written_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                      unsigned nargs);
enum weft_status wf_node_taken_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                    unsigned nargs);

/* ---- deliver.c ---- */

/* A frame of the session of page word [word] came. [args] and [data] are the other service's.
 * Returns OK, or EPROTO: the session is to be ended. */
enum weft_status wf_node_frame_take(struct node_mover *m, uint16_t word, unsigned kind,
                                    const uint32_t *args, unsigned nargs, const void *data,
                                    size_t len);
/* Load the client's count of consumed events. Returns false if it is wrong: the port has failed. */
bool wf_node_port_refresh(struct node_port *port);
/* Find room for [bytes] bytes in the payload area; *at is their position. */
bool wf_node_payload_find(struct node_port *port, uint32_t bytes, uint64_t *at);
/* Deliver the end of the row's sender. Returns false if there is no room. */
bool wf_node_end_deliver(struct node_port *port, const struct node_row *row);

/* ---- end.c ---- */

/* Report an end to all other services, in the next turns. Takes over [end], which is memory of
 * malloc: its tag and state are set. */
void wf_node_end_add(struct node_mover *m, struct node_end *end);
/* Send the ends that are due, as far as the lanes have room. Returns the number of frames. */
int wf_node_ends_send(struct node_mover *m);
/* The session is lost: it sends no more ends. */
void wf_node_ends_cut(struct node_mover *m, struct node_session *s);
/* An END of another service. */
enum weft_status wf_node_end_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                  unsigned nargs);
/* Deliver ends that had no room. */
int wf_node_ends_turn(struct node_port *port);

/* ---- expect.c ---- */

enum weft_status wf_node_expect_open(struct node_mover *m, uint32_t rows);
/* Returns the flow's row, or NULL. */
struct node_row *wf_node_row_find(struct node_mover *m, uint64_t tag, uint32_t port, bool is_reply);
/* Returns a row for a flow that has none, or NULL if no row can be evicted. */
struct node_row *wf_node_row_new(struct node_mover *m, uint64_t tag, uint32_t port, bool is_reply);
/* The row has something to acknowledge. */
void wf_node_row_dirty(struct node_mover *m, struct node_row *row);
/* Forget all rows of a destination, and the acknowledgements due to a session. */
void wf_node_rows_forget(struct node_mover *m, uint32_t port);
void wf_node_rows_cut(struct node_mover *m, uint16_t word);

/* ---- answer.c ---- */

enum weft_status wf_node_waiters_open(struct node_mover *m, uint32_t waiters);
/* Send the acknowledgements that are due, as far as the lanes have room. */
int wf_node_acks_send(struct node_mover *m);
/* Refuse a message that needs [blocks] blocks of the payload area. [port] is NULL if no such
 * destination is attached: the answer is then CLOSED or DEAD, unless the service is young. */
void wf_node_refuse(struct node_mover *m, struct node_port *port, const struct node_data *d,
                    uint16_t word, unsigned lane, uint32_t blocks);
/* Send refusals and room that are due. */
int wf_node_waiters_turn(struct node_mover *m);
/* A destination has attached: flows that wait for it. */
void wf_node_waiters_claim(struct node_mover *m, struct node_port *port);
/* A destination has gone, or a session. */
void wf_node_waiters_forget(struct node_mover *m, struct node_port *port);
void wf_node_waiters_cut(struct node_mover *m, uint16_t word);
/* An ANSWER or ROOM ALL for clients of this service. */
enum weft_status wf_node_answers_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                      unsigned nargs);
enum weft_status wf_node_room_all_take(struct node_mover *m, uint16_t word, const uint32_t *args,
                                       unsigned nargs);
/* Store a word of the other service's in a slot, and ring the bell. */
void wf_node_far_store(struct node_port *port, uint32_t slot, uint16_t attempt,
                       enum wf_node_state state);

static inline unsigned wf_node_lane_of(const struct node_mover *m, unsigned a, unsigned b)
{
    return (a + b) % m->lanes;
}

#endif
