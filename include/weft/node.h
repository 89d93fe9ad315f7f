/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory registered with the NIC of the node's service, for runtimes with a protocol of their own:
 * the interface of the kernel module rv. The service is a process that opens the NIC once for all
 * processes of a job on a node. A process of the job registers its own memory in the service's
 * protection domain, without a message to the service, and gives the keys to its peers. A peer, a
 * process of another node, has its own service write to that memory, with an immediate of 32 bits;
 * each write is an event at both ends.
 *
 *   weft_node      any thread. Calls wait for each other while one of them registers
 *   weft_node_peer any thread. It is the way to a process of another node, until the weft_node or
 *                  the peer's ends
 *   registration   a range of whole pages. It may contain and overlap others. It serves all ranges
 *                  within it that ask for equal access, and is kept when its last use ends
 *
 * A call never returns a registration of pages that are not mapped at its addresses any more: as
 * for weft/cache.h, which describes what the program promises, and which changes of memory are
 * seen. Where these cannot be seen, or are reported by the program (WEFT_MR_CACHE_MONITOR=import or
 * none), no registration is kept after its last use. Memory that was unmapped stays pinned until
 * its use ends and the next call is made.
 *
 * A weft_node has 16 TiB of addresses for registrations, and none comes again: a peer may have the
 * key of one that has gone. After that weft_node_mr_open returns ELIMIT. The next weft_node_open
 * has 16 TiB of its own.
 *
 * A write is done once or it fails: nothing repeats it. The program then asks the peer, in its own
 * way, whether the peer had the event, and writes again if not (weft_node_write).
 *
 * The end of the service, for which a program may look by weft_node_query, ends all registrations:
 * no NIC accesses their memory any more, soon after it. The program closes the weft_node, and opens
 * another one, which starts or finds another service.
 *
 * A forked child owns nothing of its parent's: calls return WEFT_EFORKED. */
#ifndef WEFT_NODE_H
#define WEFT_NODE_H

#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_node;

/* Reserved space must be zero. */
struct weft_node_params {
    uint32_t version;
    uint32_t connections; /* to each other node, 1 to 16; 0: WEFT_NODE_CONNECTIONS */
    /* There are at most 2^index_bits processes of the job on a node, 1 to 12; 0:
     * WEFT_NODE_INDEX_BITS. */
    uint32_t index_bits;
    /* The most events of peers' writes that wait until the program takes them, at most 32,768. 0:
     * this process has no events, and writes nothing. 512 events, or fewer, take 512 KiB of shared
     * memory. */
    uint32_t events;
    /* A secret that the processes of the job share, and no others: they have one service on a node.
     * As for weft_ctx_set_key, [key_len] is WEFT_SECRET_MIN or more. */
    const void *key;
    size_t key_len;
    const char *name;     /* of the node; NULL: WEFT_NODE_NAME */
    uint64_t cache_bytes; /* the most bytes that are registered at a time; 0: 256 MiB */
    uint64_t reserved[8];
};
#define WEFT_NODE_PARAMS_INIT                                                                      \
    {                                                                                              \
        (WEFT_VERSION_MAJOR << 16) | WEFT_VERSION_MINOR, 0, 0, 0, 0, 0, 0, 0,                      \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

struct weft_node_info {
    /* OK, or why the service serves this process no more: EPEER (it has died), ECLOSED (it was
     * stopped), EPROTO (logged) */
    int32_t status;
    uint32_t index; /* of this process among those of the job on the node */
    uint32_t index_bits, connections;
    int32_t service; /* its process */
    uint32_t zero;
    uint64_t cache_bytes;
    char device[64]; /* the NIC's name */
    uint64_t reserved[8];
};

/* Attach to the node's service of the job, and start it if there is none. Indexes are given in
 * turn, so that the index of a process that has ended comes again as late as possible.
 *   params  read during the call
 * Blocks   at most WEFT_CONNECT_TIMEOUT
 * Returns  OK | EINVAL (params or a variable) | EVERSION | ENOMEM | ESYSTEM
 *          | EUNREACH (the service has no NIC that other processes can register with)
 *          | EBUSY (the service of the job on this node has other parameters)
 *          | ELIMIT (all indexes are taken) | EACCESS (another user has the service's name)
 *          | ETIMEDOUT (no service answers) | EPROTO | ENOSYS (Weft was built without libibverbs or
 *          libsodium). All but EINVAL, ENOMEM and ENOSYS are logged, with what to change */
WEFT_API WEFT_MUST_USE enum weft_status weft_node_open(const struct weft_node_params *params,
                                                       struct weft_node **out);

/* Deregister all memory, used or not, and leave the service. No NIC accesses the memory any
 * more when the call returns. Writes that are under way end first, for at most WEFT_PEER_TIMEOUT;
 * then the service gives up those that it has not begun, for at most 500 ms. No other thread uses
 * [node] or its peers. Returns  OK | EINVAL | EFORKED */
WEFT_API enum weft_status weft_node_close(struct weft_node *node);

/* Returns  OK | EINVAL | EFORKED */
WEFT_API enum weft_status weft_node_query(struct weft_node *node, struct weft_node_info *out);

/* Access to a registration. The NIC always reads it for this process. */
enum weft_node_access {
    WEFT_NODE_LOCAL_WRITE = 1,  /* what this process asks for is written to it */
    WEFT_NODE_REMOTE_WRITE = 2, /* peers write by its remote key */
    WEFT_NODE_REMOTE_READ = 4,  /* peers read by it */
};

/* A use of a registration. The fields are constant. */
struct weft_node_mr {
    uint64_t handle; /* of the registration; never that of another one */
    void *addr;
    size_t len;
    uint64_t at; /* the NIC's address of [addr]; never its virtual address, and never used again */
    uint32_t lkey, rkey;
    uint32_t access; /* enum weft_node_access */
    uint32_t is_hit; /* 1: the registration was there */
    uint64_t reserved[2];
};

/* Register [addr, addr + len), or use a registration that contains it and has the same access. It
 * stays registered until weft_node_mr_close, and the memory stays mapped until then.
 * Blocks   as long as the kernel registers, and the calls of other threads
 * Returns  OK | EINVAL (len is 0, the range wraps, unknown access) | EFAULT (some of it is not
 *          mapped, or may not be written) | ELIMIT (cache_bytes, WEFT_PINNED or ulimit -l, even if
 *          all that is not used were given up) | ENOMEM | ESYSTEM | EFORKED
 *          | EPEER, ECLOSED, EPROTO (as weft_node_info.status) */
WEFT_API WEFT_MUST_USE enum weft_status weft_node_mr_open(struct weft_node *node, void *addr,
                                                          size_t len, unsigned access,
                                                          struct weft_node_mr *out);

/* End a use. The registration is kept, if its memory has not changed. [mr] is what
 * weft_node_mr_open returned; addr and len may also be those of another range within the
 * registration. Returns  OK | EINVAL (the registration is not used, or does not contain the range)
 * | EFORKED */
WEFT_API enum weft_status weft_node_mr_close(struct weft_node *node, const struct weft_node_mr *mr);

struct weft_node_evicted {
    uint64_t bytes, count; /* of registrations that have gone */
};

/* Deregister the registration of exactly the pages of [addr, addr + len), and of this access. When
 * these calls return, the NIC refuses its keys.
 * Returns  OK | EKEY (there is none, or it is used) | EINVAL | EFORKED */
WEFT_API enum weft_status weft_node_evict(struct weft_node *node, const void *addr, size_t len,
                                          unsigned access, struct weft_node_evicted *out);
/* Deregister those that overlap [addr, addr + len) and are not used. Returns  OK | EINVAL | EFORKED
 */
WEFT_API enum weft_status weft_node_evict_range(struct weft_node *node, const void *addr,
                                                size_t len, struct weft_node_evicted *out);
/* Deregister those that are not used, the least recently used first, until [bytes] and [count] have
 * gone; one, if both are 0. Returns  OK | EKEY (nothing went) | EINVAL | EFORKED */
WEFT_API enum weft_status weft_node_evict_amount(struct weft_node *node, uint64_t bytes,
                                                 uint64_t count, struct weft_node_evicted *out);

struct weft_node_cache_counts {
    uint64_t bytes, most_bytes, max_bytes; /* registered now, the most ever, cache_bytes */
    uint64_t count, most_count;            /* registrations */
    uint64_t used, most_used;              /* those that are used */
    uint64_t used_bytes, most_used_bytes;
    uint64_t most_uses; /* of one registration at a time */
    uint64_t hits, misses;
    uint64_t full;    /* calls that returned ELIMIT */
    uint64_t failed;  /* calls that the kernel refused for another reason */
    uint64_t removed; /* registrations that went because their memory changed, when not used */
    uint64_t evicted; /* for another reason, or because it had changed while they were used */
    uint64_t reserved[8];
};
/* Returns  OK | EINVAL | EFORKED */
WEFT_API enum weft_status weft_node_cache_count(struct weft_node *node,
                                                struct weft_node_cache_counts *out);

/* ---- writes ---- */

struct weft_node_peer;

/* Write the address of this process, which peers need to open it, to [addr]: *len bytes, at most
 * WEFT_ADDR_MAX. Returns  OK | EINVAL | EMSGSIZE (*len is too small, and now right) | EFORKED */
WEFT_API enum weft_status weft_node_address(struct weft_node *node, void *addr, size_t *len);

/* Open the way to the process that has [addr], which is of another node, and has the same job and
 * parameters.
 * Blocks   until the service answers, at most WEFT_CONNECT_TIMEOUT
 * Returns  OK | EINVAL (no such address; the own node's; the weft_node has no events) | EVERSION
 *          | ENOMEM | ELIMIT (of the service) | EUNREACH | ETIMEDOUT | EFORKED
 *          | EPEER, ECLOSED, EPROTO (as weft_node_info.status) */
WEFT_API WEFT_MUST_USE enum weft_status weft_node_peer_open(struct weft_node *node,
                                                            const void *addr, size_t len,
                                                            struct weft_node_peer **out);
/* Returns  OK | EBUSY (the event of a write was not taken yet) | EINVAL | EFORKED. weft_node_close
 * closes all peers. */
WEFT_API enum weft_status weft_node_peer_close(struct weft_node_peer *peer);

/* Begin to connect the service to the peer's. Processes of a node share these connections: where
 * another one has connected, this takes one message. A second call has no effect.
 * Returns  OK | EINVAL | EFORKED */
WEFT_API enum weft_status weft_node_connect(struct weft_node_peer *peer);
/* Returns  OK        the peer's service has answered
 *          PENDING   it has not answered; this call and weft_node_event go on connecting
 *          EPEER     the peer's service has ended, or could not be reached for WEFT_PEER_TIMEOUT
 *          ETIMEDOUT it did not answer for WEFT_CONNECT_TIMEOUT
 *          EINVAL | EFORKED | as weft_node_info.status
 * A failure is final: open another peer, by the address that the process has then. */
WEFT_API enum weft_status weft_node_connected(struct weft_node_peer *peer);

/* How often a connection (0 to connections - 1) was made: 0 before the first time, then 1, and one
 * more when the event of a write was taken that failed and was posted under the present count. All
 * connections to a peer count together.
 * Returns  OK | EINVAL | EFORKED | as weft_node_connected */
WEFT_API enum weft_status weft_node_connects(struct weft_node_peer *peer, uint32_t connection,
                                             uint32_t *count);

struct weft_node_peer_counts {
    uint64_t connects;             /* as weft_node_connects */
    uint64_t posted, posted_bytes; /* writes */
    uint64_t done, failed;         /* whose events were taken */
    uint64_t bytes;                /* of those that are done */
    uint64_t under_way;            /* whose events were not taken */
    /* Events of writes from the peer's node that were taken. If several peers of it are open, one
     * of them counts all. */
    uint64_t received, received_bytes;
    uint64_t reserved[5];
};
/* The counts of a peer, or of all that are open: [peer] is NULL. Returns  OK | EINVAL | EFORKED */
WEFT_API enum weft_status weft_node_peer_stats(struct weft_node *node, struct weft_node_peer *peer,
                                               struct weft_node_peer_counts *out);

/* Reserved space must be zero. */
struct weft_node_post {
    const struct weft_node_mr *mr; /* contains the bytes; NULL if len is 0 */
    const void *addr;
    size_t len;      /* 0 to 1 GiB */
    uint64_t remote; /* where: weft_node_mr.at of the peer's registration, plus an offset */
    uint32_t remote_key;
    /* The index of the receiving process (weft_node_info.index) in the high index_bits bits. The
     * others are the program's. */
    uint32_t immediate;
    uint64_t id; /* comes back in the event */
    uint64_t reserved[2];
};
struct weft_node_sent {
    uint32_t connection; /* by which the immediate goes: a peer's connections in turn */
    uint32_t count;      /* of weft_node_connects */
};

/* Write [len] bytes to the peer's memory. The receiving process then has an event with the
 * immediate (WEFT_NODE_RECEIVED), which never comes before the bytes are in its memory. This
 * process has an event (WEFT_NODE_SENT) in any case. The bytes do not change, and stay registered,
 * until then: the write is one more use of the registration. Events have no order among writes.
 *
 * The event's status is OK if the peer's service has the immediate. If no process there has the
 * index, or the receiver's events are full, the receiving event is dropped. Else the write has
 * failed, and some of its bytes may have been written:
 *     EKEY      the peer's NIC refused the key, or the service of the key has ended. The receiver
 *               has no event
 *     EUNREACH  a connection broke, or the peer's service ended. The receiver may have its event
 *     EPEER     the own service ended. The receiver may have its event
 * When the failure's event is taken, weft_node_connects is another count, and the receiver gets no
 * event of that write later, while the two services live. If weft_node_connected then reports a
 * failure, the program connects anew before it asks the receiver. A wrong key breaks connections
 * that others use: the service refuses further writes of this process for 1 to 64 s, which fail
 * with EUNREACH.
 *
 * Returns  OK | AGAIN (not connected yet; or 64 writes of this process are under way, or have
 *          events that were not taken) | EINVAL (weft_node_connect was not called; the registration
 *          is not used, or does not contain the bytes; len) | EFORKED | as weft_node_connected */
WEFT_API WEFT_MUST_USE enum weft_status weft_node_write(struct weft_node_peer *peer,
                                                        const struct weft_node_post *post,
                                                        struct weft_node_sent *out);

enum weft_node_event_kind { WEFT_NODE_SENT = 1, WEFT_NODE_RECEIVED };

struct weft_node_event_entry {
    uint32_t kind;  /* enum weft_node_event_kind */
    int32_t status; /* RECEIVED: OK */
    uint64_t id;    /* SENT: weft_node_post.id */
    /* SENT: of the write. RECEIVED: a peer of the writer's node, or NULL if none is open */
    struct weft_node_peer *peer;
    uint32_t bytes;
    uint32_t immediate;         /* RECEIVED */
    uint32_t connection, count; /* SENT: as weft_node_write has returned */
    uint32_t index;             /* RECEIVED: of the writer on its node */
    uint32_t zero;
    uint64_t reserved[2];
};

/* Take an event. Events that are there when the service ends come first, then those of the writes
 * that fail by it.
 * Returns  OK | AGAIN (there is none) | EINVAL (the weft_node has no events) | EFORKED
 *          | EPEER, ECLOSED, EPROTO (as weft_node_info.status; there will be none) */
WEFT_API enum weft_status weft_node_event(struct weft_node *node,
                                          struct weft_node_event_entry *out);

struct weft_node_event_counts {
    uint64_t room;         /* weft_node_params.events */
    uint64_t head, tail;   /* RECEIVED: events taken, and events put (modulo 2^32) */
    uint64_t overflow;     /* RECEIVED: dropped, since [room] waited */
    uint64_t sent, failed; /* SENT: taken, and those of them with another status than OK */
    uint64_t sent_bytes;   /* of the others */
    uint64_t received, received_bytes; /* RECEIVED: taken */
    uint64_t reserved[6];
};
/* Returns  OK | EINVAL | EFORKED */
WEFT_API enum weft_status weft_node_event_stats(struct weft_node *node,
                                                struct weft_node_event_counts *out);

WEFT_LAYOUT_(sizeof(struct weft_node_params) == 112);
WEFT_LAYOUT_(sizeof(struct weft_node_info) == 160);
WEFT_LAYOUT_(sizeof(struct weft_node_mr) == 64);
WEFT_LAYOUT_(sizeof(struct weft_node_cache_counts) == 192);
WEFT_LAYOUT_(sizeof(struct weft_node_peer_counts) == 112);
WEFT_LAYOUT_(sizeof(struct weft_node_post) == 64);
WEFT_LAYOUT_(sizeof(struct weft_node_event_entry) == 64);
WEFT_LAYOUT_(sizeof(struct weft_node_event_counts) == 120);

#ifdef __cplusplus
}
#endif

#endif
