/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of the core that transports call: a part of the contract in transport.h, which
 * includes this file. The node service implements them, too, for its own endpoint. */
#ifndef WF_TRANSPORT_UPCALLS_H
#define WF_TRANSPORT_UPCALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

struct wf_bulk;
struct wf_tep;
struct wf_tpeer;

/* Functions that the core implements. The endpoint's owner runs them inside poll. */
struct wf_tep_events {
    /* A message has arrived. The core sets the ep and arg of [am]. [am] and its payload are valid
     * during the call only. */
    void (*deliver)(void *owner, struct weft_am *am);
    /* [tpeer] has become unreachable. Called at most once per peer. */
    void (*peer_down)(void *owner, struct wf_tpeer *tpeer, enum weft_status why);
    /* The connection of *conn (struct wf_token) has ended. Its messages were delivered before. */
    void (*conn_down)(void *owner, void **conn);
    /* Returns the address of the payload bytes of [bulk] from offset [at] on, or NULL if the memory
     * is gone. *n is the number of bytes that the transport wants; the core may reduce it, but not
     * to 0. After a non-NULL result, the transport calls bulk_unhold before any other function of
     * the core. Both may also be called outside of poll. */
    void *(*bulk_hold)(void *owner, const struct wf_bulk *bulk, uint32_t at, size_t *n);
    void (*bulk_unhold)(void *owner, const struct wf_bulk *bulk);
    /* The memory that bulk_hold returns is another process's, which can make a page of it
     * impossible at any time. So the kernel makes each copy, and one that fails breaks at most the
     * connection: payload to be sent is gone (bulk_gone), payload that arrives is dropped (long_len
     * is 0). */
    bool bulk_is_foreign;
    /* The NIC operation [id] has ended, and the core may reuse its local memory.
     *   OK        Done. [old] is the value before an atomic that fetches.
     *   EKEY      The peer's NIC refused the key or the range. Nothing was moved or changed.
     *   EUNREACH  The connection is lost. Some bytes may have been moved, but an atomic was not
     *             done.
     *   EINVAL    The same, because the key or the range of lent memory ([is_lent]) is wrong.
     *   ELOST     The connection is lost. The atomic was done once or not at all.
     * An atomic is never done in part. If peer_down reports the loss of the peer, nic_op_done is
     * not called for the operations to the peer. */
    void (*nic_op_done)(void *owner, uint32_t id, enum weft_status status, uint64_t old);
    /* Report the [n] oldest of the short puts to [tpeer] (struct wf_put_window) that were not
     * reported yet. put_done: all [n] are complete. put_lost: the peer's NIC refused the first of
     * the [n] ([refused] is true), or the connection is lost, and some bytes may have been written.
     * Neither function is called after peer_down. */
    void (*put_done)(void *owner, struct wf_tpeer *tpeer, uint32_t n);
    void (*put_lost)(void *owner, struct wf_tpeer *tpeer, uint32_t n, bool refused);
    /* Returns true if the core has sent a part of a message to [tpeer] and will send the rest. The
     * transport must not close the connection meanwhile in favour of another peer. */
    bool (*is_unfinished)(void *owner, struct wf_tpeer *tpeer);
    /* The core may call remote_map again for the regions for which remote_map returned PENDING. */
    void (*mapped)(void *owner);
    /* A short way for a one-way request to WF_AM_TAGGED, of any length. [conn] is *conn of its
     * token. Returns false if the core has not taken the message: then the transport calls deliver.
     * A transport need not call this function. */
    bool (*tagged)(void *owner, void *conn, uint64_t tag, const void *data, uint32_t len);
    /* As tagged, for a request with WF_TAGGED_MORE_ARGS arguments, which the core checks: [tag],
     * [word] and [what]. */
    bool (*tagged_more)(void *conn, uint64_t tag, uint64_t word, uint32_t what, const void *data,
                        uint32_t len);
    void (*bulk_gone)(void *owner, const struct wf_bulk *bulk); /* bulk_hold was NULL: not sent */
    /* Before peer_down with EPEER: the process at the address of [tpeer] has an endpoint of that
     * number, whose generation is [ep_gen]. This is not authenticated; a connection to that
     * endpoint is. NULL if the owner does not follow endpoints to their successors. */
    void (*moved)(void *owner, struct wf_tpeer *tpeer, uint32_t ep_gen);
    /* Returns the tpeer of [tep] that follows [after], in no particular order, or the first one if
     * [after] is NULL; or NULL if there is none. A tpeer may be one that peer_open has refused, or
     * that is closed. For a transport that keeps no table of its own. */
    struct wf_tpeer *(*peer_next)(void *owner, const struct wf_tep *tep, struct wf_tpeer *after);
};

#endif
