/* SPDX-License-Identifier: BSD-3-Clause */
/* The transport "node": a context's messages go by the service of its node. engine.h has the flows
 * and rings of an endpoint; here are the context's connection to the service, and what makes a
 * transport (transport.h) of the engine.
 *
 *   via.c       the table of functions; contexts; whether a peer can be reached
 *   via_link.c  the thread that sends packets to the service and reads those that it sends
 *   via_next.c  what that thread does when the service has ended: a successor
 *   via_ep.c    endpoints: rings, polling, sleeping, closing
 *   via_ops.c   peers, requests and replies
 *   via_moves.c regions, puts and gets that the service executes
 *   via_state.c what messages to a peer wait for, for the log
 *
 * Threads. An endpoint's owner uses its engine, flows and peers. The reader's thread sends and
 * receives packets; it and the owners share what via_ctx.lock guards. While it holds the lock, a
 * thread waits for nothing but via_ctx.answered.
 *
 * Rings. An owner wants its endpoint's rings to be given to the service, or taken back; the reader
 * does it. When a service has died, and its successor is there, the owner prepares the rings for
 * that one (wf_node_client_reattach):
 *
 * | stage  | event                              | by     | action             | next   |
 * | ------ | ---------------------------------- | ------ | ------------------ | ------ |
 * | WANTED | the socket has room                | reader | RING               | ASKED  |
 * | ASKED  | RING_OK                            | reader | keep the new bell  | GIVEN  |
 * | ASKED  | RING_NO                            | reader | -                  | NO     |
 * | GIVEN  | the endpoint closes                | owner  | -                  | LEAVES |
 * | LEAVES | the socket has room                | reader | UNRING             | LEFT   |
 * | LEFT   | UNRING_OK                          | reader | -                  | NO     |
 * | others | the service has died               | reader | -                  | STALE  |
 * | STALE  | a successor is there; poll, close  | owner  | reattach           | WANTED |
 *
 * Until then, an endpoint works on as if the dead service were slow: what it sends waits in its
 * ring, and then in its journal. The successor does not take it for gone, since this process sends
 * SETTLED only when all endpoints that the dead one had are GIVEN again, or closed.
 *
 * The end of the service. If it was stopped, breaks the protocol, or has no successor within
 * WEFT_PEER_TIMEOUT after its death, the reader sets via_ctx.ended. Each endpoint then delivers
 * what its ring holds, and after that all its flows end with EPEER. */
#ifndef WF_TRANSPORT_NODE_VIA_H
#define WF_TRANSPORT_NODE_VIA_H

#include <pthread.h>

#include "base/lock.h"
#include "config/stats.h"
#include "transport/node/attach.h"
#include "transport/node/engine.h"

WF_LOCK_CLASS(via_ctx_lock_class); /* struct via_ctx.lock */

/* Another service, as endpoints of this context know it. The service answers NODE with ELIMIT or
 * ENOMEM while it has no room: then NODE is sent again, for WEFT_CONNECT_TIMEOUT from the first one
 * on. A failure ends the flows that waited for the answer, however late they look. A flow that asks
 * later than FORGET_MS after it has NODE sent again. */
struct via_node {
    struct wf_node_other who;
    uint32_t failures;       /* answers that were no word, so far */
    uint32_t word;           /* its name; WF_NODE_NO_WORD: not known yet */
    enum weft_status status; /* or why there is none */
    uint32_t cookie;         /* of NODE; 0: to be sent at [at_ns] */
    uint64_t at_ns;          /* then: when it failed */
    uint64_t until_ns;       /* when to try no more; 0: NODE was not sent yet */
    uint32_t pause_ms;
};

enum via_stage { VIA_NO, VIA_WANTED, VIA_ASKED, VIA_GIVEN, VIA_LEAVES, VIA_LEFT, VIA_STALE };

/* The page of a service, as this process has mapped it. */
struct via_page {
    const struct wf_node_page *map;
    uint32_t refs; /* of endpoints, and of the context if the service is the present one */
    bool membarrier;
};

struct via_nic;
struct via_exposed;
struct wf_mem;

struct via_ctx {
    struct wf_tctx base;
    /* By which of the two the service accesses this process's memory: nic.h, or exposed.h. At most
     * one is not NULL. Not to be read before [attached]. */
    struct via_nic *nic;
    struct via_exposed *exposed;
    struct wf_mem *mem;
    struct wf_process_id self;
    unsigned number; /* of the context in its process: %n of WEFT_NODE_NAME */
    /* The key is set once. The thread that sets it attaches; endpoints are opened before that, and
     * then have no service, or afterwards. */
    bool has_key, attaching WF_UNDER(via_ctx_lock_class);
    /* Constant once [attached] is set, which is at most once. */
    _Atomic bool attached;
    uint8_t key[WF_NODE_KEY];
    char **environment; /* of services that this context starts */
    struct wf_contact contact;
    pthread_t reader;
    int wake_fd; /* wakes the reader */
    int stop_fd; /* and ends it */
    struct wf_fork_item fork;
    /* The reader's. One link is the present service's, the other one a successor's. */
    struct wf_node_link links[2];
    pthread_mutex_t lock;
    pthread_cond_t answered;
    struct wf_list eps WF_UNDER(via_ctx_lock_class);
    struct wf_node_link *link WF_UNDER(via_ctx_lock_class);
    struct via_page *page WF_UNDER(via_ctx_lock_class); /* NULL: the service has died */
    bool unsettled WF_UNDER(via_ctx_lock_class);        /* SETTLED is to be sent */
    struct via_node *nodes WF_UNDER(via_ctx_lock_class);
    uint32_t nnodes, nodes_room WF_UNDER(via_ctx_lock_class);
    uint32_t cookie WF_UNDER(via_ctx_lock_class);
    uint64_t warned_ns WF_UNDER(via_ctx_lock_class); /* of a failure to reach a service */
    uint32_t nasks WF_UNDER(via_ctx_lock_class);     /* NODEs that are not answered */
    bool unsent WF_UNDER(via_ctx_lock_class);        /* a packet is to be sent by the reader */
    uint64_t short_ns WF_UNDER(via_ctx_lock_class); /* when flows look again that found no memory */
    _Atomic uint32_t changes;                       /* counted up when an endpoint has to look */
    _Atomic int ended;                              /* not OK: the service has ended, and why */
};

struct via_token {
    struct wf_token base;
    const struct node_am *am; /* a request that is being delivered */
};

struct via_ep {
    struct wf_tep base;
    struct via_ctx *ctx;
    struct wf_list item;                       /* in ctx->eps */
    bool is_open WF_UNDER(via_ctx_lock_class); /* the service has had its rings */
    enum via_stage stage WF_UNDER(via_ctx_lock_class);
    bool comes_back WF_UNDER(via_ctx_lock_class); /* a service that has died had its rings */
    uint32_t cookie WF_UNDER(via_ctx_lock_class); /* ASKED and LEFT: of the packet */
    enum weft_status refusal WF_UNDER(via_ctx_lock_class); /* NO: why, if the service refused */
    int given_bell WF_UNDER(via_ctx_lock_class); /* that came with RING_OK, for the owner; or -1 */
    int fds[2];                                  /* submit segment, event segment */
    struct via_page *page;                       /* of the service that the engine works with */
    struct wf_address address;
    struct node_client *client;
    void *submit, *event;
    int bell;     /* this side's end (node/packet.h), or -1; also in [epoll_fd] */
    int epoll_fd; /* the owner's */
    struct wf_fork_item fork;
    uint32_t size;
    struct wf_cache_user *user; /* of the memory for puts and gets; NULL: these go by messages */
    unsigned descs;             /* of mem/staging.h that it holds */
    uint64_t lend_ns;           /* no memory is lent before, since no more could be registered */
    /* Without a NIC (bounce.c): the buffers of its segments that moves use, as bits, and for each
     * of the event segment's where its bytes go; NULL: they are dropped. */
    uint32_t buffers;
    struct via_get {
        void *to;
        uint32_t len;
    } gets[WF_NODE_BUFFERS];
    int budget;
    bool closing;
    uint32_t changes; /* of ctx->changes, seen */
    unsigned nasked;  /* flows that wait for a word */
    struct via_token token;
    struct wf_list peers;
};

struct via_peer {
    struct wf_tpeer base;
    struct wf_list item;   /* in ep->peers */
    struct via_peer *next; /* in the flow's list */
    struct wf_address address;
    struct wf_contact contact;
    uint64_t tag;
    struct node_flow *flow; /* NULL before the first message, and after its end */
    enum weft_status status;
    bool unsent; /* it was lost before its ring had all messages */
};

/* node_flow.user of a flow of requests. */
struct via_flow {
    struct via_peer *peers;
    struct wf_node_other who; /* the destination's service */
    /* The flow waits for an answer about [who], which had [failures] when the flow asked. */
    bool waits;
    uint32_t failures;
};

#define VIA_OF(ptr, type) ((struct type *)(void *)(ptr))

static inline WF_ACQUIRES(via_ctx_lock_class) void via_lock(struct via_ctx *ctx)
{
    pthread_mutex_lock(&ctx->lock);
}

static inline WF_RELEASES(via_ctx_lock_class) void via_unlock(struct via_ctx *ctx)
{
    pthread_mutex_unlock(&ctx->lock);
}

static inline int wf_via_service_pid(struct via_ctx *ctx)
{
    int pid;
    via_lock(ctx);
    pid = (int)ctx->link->pid;
    via_unlock(ctx);
    return pid;
}

static inline void wf_via_count(struct via_ep *ep, enum wf_stat stat)
{
    uint64_t *c = &ep->base.counters[stat];
    __atomic_store_n(c, *c + 1, __ATOMIC_RELAXED);
}

/* ---- via_link.c ---- */

/* Make and destroy the lock and the condition. */
void wf_via_lock_init(struct via_ctx *ctx);
void wf_via_lock_fini(struct via_ctx *ctx);
/* Start the reader of an attached link. Returns OK | ESYSTEM (logged) */
enum weft_status wf_via_reader_start(struct via_ctx *ctx);
void wf_via_reader_stop(struct via_ctx *ctx);
/* Wake the reader to send the packets that are due. */
WF_REQUIRES(via_ctx_lock_class) void wf_via_reader_wake(struct via_ctx *ctx);
/* Wake all endpoints: there is something new for them. */
WF_REQUIRES(via_ctx_lock_class) void wf_via_eps_wake(struct via_ctx *ctx);
/* Takes an answer of the service (struct wf_node_link). */
bool wf_via_answer(struct wf_node_link *link, const struct wf_node_packet *p, int *fds, int nfds);
/* Returns the name of the word of the service that [flow] leads to, or WF_NODE_NO_WORD: with
 * *status OK, it is asked for, and ctx->changes counts up when the answer has come, or, if this
 * process had no memory to ask, after some time. Else *status is why there is none. [page] is that
 * of the asking endpoint: if its service has died, there is no word yet. */
uint32_t wf_via_word(struct via_ctx *ctx, const struct via_page *page, struct via_flow *flow,
                     enum weft_status *status);

/* ---- via_next.c: what the reader calls ---- */

/* Map the page of [link]. Returns NULL without memory, or if it is none. */
struct via_page *wf_via_page_new(const struct wf_node_link *link);
WF_REQUIRES(via_ctx_lock_class) void wf_via_page_drop(struct via_page *page);
/* Fill in what attaching takes, but for the name. */
struct wf_node_attach_params wf_via_attach_params(const struct via_ctx *ctx, const char *name,
                                                  uint64_t ms);
/* The service has died. Find or start its successor, for at most WEFT_PEER_TIMEOUT. Returns false
 * if there is none, which is logged, or if the reader is to stop. */
bool wf_via_succeed(struct via_ctx *ctx);

/* ---- via_ep.c ---- */

enum weft_status wf_via_ep_open(struct wf_tctx *tctx, const struct wf_tep_params *params,
                                struct wf_tep **out);
void wf_via_ep_close(struct wf_tep *tep);
/* Take a new bell, and reattach to a successor. Returns false if the service has refused the rings,
 * or there is no room for the bell. Only the owner calls it. */
bool wf_via_ep_look(struct via_ep *ep);
int wf_via_poll(struct wf_tep *tep);
enum weft_status wf_via_arm(struct wf_tep *tep);
void wf_via_disarm(struct wf_tep *tep);

/* ---- via_moves.c: functions of the transport's table, and node_client_ops.moved and .stop ---- */

/* Where a region's keys have its remote key, and the incarnation of the service. Without a NIC,
 * they have the halves of the region's key there. */
#define VIA_KEY_RKEY 0
#define VIA_KEY_INCARNATION (WF_KEY_NICS - 1)

enum weft_status wf_via_region_open(struct wf_tctx *tctx, const struct wf_nic_memory *memory,
                                    unsigned access, uint64_t *at, uint32_t keys[WF_KEY_NICS],
                                    void **handle);
void wf_via_region_keys(struct wf_tctx *tctx, void *handle, uint64_t *at,
                        uint32_t keys[WF_KEY_NICS]);
void wf_via_region_close(struct wf_tctx *tctx, void *handle);
enum weft_status wf_via_op(struct wf_tpeer *tpeer, const struct wf_nic_op *op, size_t *taken);
void wf_via_op_stop(struct wf_tpeer *tpeer);
bool wf_via_put_open(struct wf_tpeer *tpeer, struct wf_put_window *window, uint32_t most,
                     size_t len);
void wf_via_moved(void *owner, struct node_flow *flow, const struct node_move_use *move,
                  enum weft_status status);
void wf_via_move_stop(void *owner, const struct node_move_use *move);

/* ---- via_ops.c ---- */

extern const struct node_client_ops wf_via_client_ops;
enum weft_status wf_via_peer_open(struct wf_tep *tep, struct wf_tpeer *tpeer,
                                  const struct wf_address *to, const struct wf_contact *contact);
void wf_via_peer_close(struct wf_tpeer *tpeer);
enum weft_status wf_via_request(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                const void *data, size_t len, size_t reply_max);
enum weft_status wf_via_requestv(struct wf_tpeer *tpeer, unsigned what, const uint32_t *args,
                                 const struct iovec *iov, size_t len, size_t reply_max);
enum weft_status wf_via_tagged(struct wf_tpeer *tpeer, uint64_t tag, const void *data, size_t len);
enum weft_status wf_via_reply(struct wf_token *token, const struct wf_am_out *out);
void wf_via_source(const struct wf_token *token, struct wf_address *out,
                   struct wf_contact *contact);
bool wf_via_is_away(struct wf_tpeer *tpeer, struct wf_order *order);
bool wf_via_is_sent(struct wf_tpeer *tpeer);
void wf_via_explain(struct wf_tpeer *tpeer, char *out, size_t room); /* via_state.c */
enum weft_status wf_via_heed(struct wf_tpeer *tpeer);
struct wf_tpeer *wf_via_find(struct wf_tep *tep, const struct wf_address *address,
                             struct wf_tpeer *after);
void wf_via_address(const struct wf_tpeer *tpeer, struct wf_address *out);
bool wf_via_is_same(const struct wf_tpeer *a, const struct wf_tpeer *b);
enum weft_status wf_via_remote_map(struct wf_tpeer *tpeer, const struct wf_key *key,
                                   struct weft_remote *remote, void **cookie);
void wf_via_remote_unmap(struct wf_tpeer *tpeer, void *cookie);
enum weft_status wf_via_status(struct wf_tpeer *tpeer);
enum weft_status wf_via_failed(const struct wf_tpeer *tpeer);
/* Returns the flow of requests to the peer, or NULL with the reason in *why. */
struct node_flow *wf_via_flow(struct wf_tpeer *tpeer, enum weft_status *why);
/* Ask again for the words that flows wait for. */
void wf_via_words_look(struct via_ep *ep);

#endif
