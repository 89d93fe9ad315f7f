/* SPDX-License-Identifier: BSD-3-Clause */
/* The service's second thread, which moves messages: it runs the mover (mover.h) and the sessions
 * with other services (others.c). The desk hands it work, and takes it back when it is done:
 *
 * | job    | asks to                                            | the desk then             |
 * | ------ | -------------------------------------------------- | ------------------------- |
 * | ATTACH | read and write the rings of an endpoint            | sends RING_OK or RING_NO  |
 * | DETACH | read and write them no more, and report the end    | sends UNRING_OK, unmaps   |
 * | OTHER  | find the word of another service, or call it       | sends NODE_OK             |
 * | SLAB   | access a client's memory (slabs.c)                 | -                         |
 * | UNSLAB | access it no more                                  | unmaps it                 |
 * | FAILED | (from the mover) its client broke the protocol     | ends the client           |
 *
 * Lock: node_work.lock guards the two lists of jobs, and nothing is called while it is held. A job
 * belongs to the thread that has taken it from a list. */
#ifndef WF_NODE_WORK_H
#define WF_NODE_WORK_H

#include <pthread.h>

#include "base/late.h"
#include "base/lock.h"
#include "config/stats.h"
#include "node/mover.h"
#include "node/name.h"

WF_LOCK_CLASS(node_work_lock_class); /* struct node_work.lock */

enum node_job_kind {
    NODE_JOB_ATTACH,
    NODE_JOB_DETACH,
    NODE_JOB_OTHER,
    NODE_JOB_SLAB,
    NODE_JOB_UNSLAB,
};

struct node_job {
    struct wf_list item;
    enum node_job_kind kind;
};

struct desk_client;

/* The rings of an endpoint. */
struct desk_ring {
    struct node_job job;
    struct wf_list item;        /* in the client's list; the desk's */
    struct desk_client *client; /* NULL: it has ended; the desk's */
    struct node_port_params params;
    struct node_port *port; /* the mover's; NULL before ATTACH and after DETACH */
    int bell;               /* the service's end of the endpoint's bell (packet.h); or -1 */
    int given;              /* the client's end, until RING_OK is sent; or -1 */
    uint32_t cookie;        /* of RING, then of UNRING */
    enum weft_status status;
    bool busy;            /* a job is under way; the desk's */
    bool leaves;          /* DETACH is to follow; the desk's */
    bool asked;           /* UNRING asked for it; the desk's */
    _Atomic bool bad;     /* FAILED: the client broke the protocol */
    struct node_end *end; /* what DETACH uses; malloc'ed */
};

/* A client asks for the word of another service. */
struct desk_other {
    struct node_job job;
    uint32_t client; /* its index, */
    uint64_t serial; /* and number */
    uint32_t cookie;
    struct wf_address address;
    struct wf_contact contact;
    uint32_t word;
    enum weft_status status;
};

/* An instance of another service, or this service itself (word 0). A client does not know which
 * instance has a port: so the first call names any (a guess), and the process at the port answers
 * with its own. An instance is known from the first frame on that comes from it. A later one of its
 * line (packet.h) is its successor, which has its clients. A later one of another line has others:
 *
 * | state   | event                                   | action                          | next    |
 * | ------- | --------------------------------------- | ------------------------------- | ------- |
 * | -       | a client asks for the service           | take a word, guess an instance  | guessed |
 * | -       | a frame of an instance                  | take a word                     | known   |
 * | guessed | refused, the refusal names an instance  | call that one, begin again      | guessed |
 * | guessed | a frame of the instance that is called  | -                               | known   |
 * | guessed | a frame of another instance             | send to that one, begin again   | known   |
 * | known   | refused, the refusal names a later one  | call that one, begin again      | guessed |
 * | known   | a frame of a later one of its line      | send to that one, begin again   | known   |
 * | any     | a frame of a later one of another line  | LOST, another word for that one | -       |
 * | any     | its session ends, or it breaks a rule   | LOST, the word is free          | -       |
 *
 * The sessions of earlier and lost instances are closed when the turn is over. If these may have
 * queue pairs, by which they write to clients' memory, they are closed before the first frame of
 * the next instance is taken, or of another service of their node.
 *
 * A frame of an earlier instance is refused: the other service loses this one. A service for which
 * there is no word or no memory comes again, after pauses of at most 500 ms, until there is. When
 * it has waited for WEFT_PEER_TIMEOUT, it loses this one, too; but it may call anew. */
struct node_other {
    struct wf_address address;
    struct wf_contact contact;
    uint16_t word;
    bool down; /* to be lost when the turn is over */
    bool guessed;
    uint32_t line;    /* of it (packet.h); 0: not known */
    uint32_t now_gen; /* the instance that a refusal named: to be called when the turn is over */
    unsigned hints;   /* how many were followed */
    struct wf_address stale_address; /* of [stale] */
    struct wf_tpeer *stale; /* an earlier instance, or a wrong guess: to be closed; or NULL */
    bool stale_moves;       /* it may have queue pairs */
    uint32_t full;          /* lanes that had no room, as bits */
    uint32_t greeted;       /* lanes by which this service has sent HELLO */
    uint32_t greetings;     /* and by which it has received one */
    struct wf_tpeer *peer;  /* NULL: this service itself */
};

struct node_work {
    /* Constant while the thread runs. */
    struct wf_node_parameters parameters;
    uint32_t incarnation, line;
    struct wf_address address;
    struct wf_contact contact;
    /* Page, hold, and the sockets at which other services call (packet.h). But for the hold, they
     * are first those of the service before, then the page and the network's. */
    int estate[WF_NODE_ESTATE];
    unsigned nestate;
    struct wf_node_page *page;
    int page_fd;
    int bell_fd;  /* the desk wakes the mover by it */
    int bells_fd; /* an epoll descriptor: has the service's ends of all bells */
    int done_fd;  /* readable when a job is done */
    bool membarrier;
    pthread_t thread;
    const uint8_t *key; /* the job's; the desk's memory */
    const struct wf_node_scope *scope;
    /* The mover's. */
    struct node_mover *mover;
    struct node_mover_ops ops;
    struct node_other *others[WF_NODE_WORDS]; /* by word; NULL: it is free */
    uint32_t nothers;                         /* words from here on are free */
    uint32_t guess;                           /* the last one */
    bool any_full, any_change;
    bool warned_full; /* that all words are taken */
    bool is_short;    /* of memory: a frame was not sent, and no event reports when it can be */
    struct wf_tctx *tctx;
    struct wf_tep *tep;
    int event_fd, epoll_fd;
    _Atomic uint32_t active;
    uint64_t counters[WF_STATS];
    uint64_t epoch;
    unsigned processors; /* that the service may use */
    struct wf_late late; /* whether processes that compute have them */
    /* Both threads'. */
    pthread_mutex_t lock;
    struct wf_list asked WF_UNDER(node_work_lock_class);
    struct wf_list done WF_UNDER(node_work_lock_class);
    _Atomic bool has_asked, stop;
    _Atomic bool young;                     /* as of node_mover, which follows */
    _Atomic uint8_t heirs[WF_NODE_INDEXES]; /* enum node_heir */
    _Atomic uint32_t heirs_gone;            /* how many have become GONE */
};

/* ---- work.c ---- */

/* Start the thread. [work] is all zero but for its parameters, incarnation, line, estate, key and
 * scope. Takes over the estate, if it succeeds. Returns  OK | ENOMEM | ESYSTEM | as the network's
 * ctx_open */
enum weft_status wf_node_work_open(struct node_work *work);
/* All rings are detached, and the desk has taken all jobs. Blocks for at most [close_ms], while
 * other services take what was sent. */
void wf_node_work_close(struct node_work *work, uint32_t close_ms);
/* Hand a job to the mover. */
void wf_node_work_ask(struct node_work *work, struct node_job *job);
/* Returns a job that is done, or NULL. Only the desk calls it. */
struct node_job *wf_node_work_done(struct node_work *work);
/* Is a client awaited that had the index in the service before? Any thread but the mover's. */
void wf_node_work_heir(struct node_work *work, uint32_t index, enum node_heir heir);
/* Clients of the service before may not come any more. */
void wf_node_work_settle(struct node_work *work);
/* A ring's client broke the protocol. Only the mover calls it. */
void wf_node_work_failed(struct node_work *work, struct desk_ring *ring);

/* ---- slabs.c ---- */

/* Do the job; only the mover's thread calls it. */
void wf_node_slab_do(struct node_work *work, struct node_job *job);

/* ---- lanes.c ---- */

/* Open the network of the lanes, by the sockets of work->estate if there are any: then the network
 * takes these over. Sets tctx, tep, contact, address and estate. */
enum weft_status wf_node_lanes_open(struct node_work *work, const struct wf_tep_events *events);

/* The handler of a frame: this plus its kind. */
#define WF_NODE_FRAME_HANDLER WEFT_AM_USER_HANDLERS

/* ---- others.c: only the mover's thread calls these ---- */

/* Listen for other services. Sets tctx, tep, contact and address, and makes the word of this
 * service itself. */
enum weft_status wf_node_others_open(struct node_work *work);
void wf_node_others_close(struct node_work *work, uint32_t close_ms);
/* Find the service of [address], whose generation is not looked at, or make a word for it: messages
 * to it call it. *word is the word's name. Returns OK | ELIMIT | ENOMEM */
enum weft_status wf_node_other_find(struct node_work *work, const struct wf_address *address,
                                    const struct wf_contact *contact, uint32_t *word);
/* Receive from other services, and send frames that are due. Returns the number of events. */
int wf_node_others_poll(struct node_work *work);
/* Try again to send by lanes that had no room or memory. */
void wf_node_others_retry(struct node_work *work);
/* node_mover_ops.send, .has_room and .behind. */
enum weft_status wf_node_other_send(void *owner, uint16_t word, unsigned lane, unsigned kind,
                                    const uint32_t *args, unsigned nargs, const void *data,
                                    size_t len);
/* Before a frame is sent by a lane, and after that, with its status. Return as node_mover_ops.send
 */
enum weft_status wf_node_lane_open(struct node_work *work, struct node_other *other, unsigned lane);
enum weft_status wf_node_lane_sent(struct node_work *work, struct node_other *other, unsigned lane,
                                   enum weft_status status);
bool wf_node_other_has_room(void *owner, uint16_t word, unsigned lane);
void wf_node_other_behind(void *owner, uint16_t word);
/* node_mover_ops.move, of a network with NICs. */
enum weft_status wf_node_other_instance(void *owner, uint16_t word, uint32_t incarnation);
enum weft_status wf_node_other_move(void *owner, uint16_t word, const struct wf_nic_op *op,
                                    uint32_t incarnation, size_t *taken);

/* ---- put_bytes.c: the same ---- */

/* node_mover_ops.send_part. */
enum weft_status wf_node_other_send_part(void *owner, uint16_t word, unsigned lane, unsigned kind,
                                         const uint32_t *args, unsigned nargs, uint32_t id,
                                         uint32_t len);
/* Of struct wf_tep_events. */
void *wf_node_bulk_hold(void *owner, const struct wf_bulk *bulk, uint32_t at, size_t *n);
void wf_node_bulk_unhold(void *owner, const struct wf_bulk *bulk);
void wf_node_bulk_gone(void *owner, const struct wf_bulk *bulk);

#endif
