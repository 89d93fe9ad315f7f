/* SPDX-License-Identifier: BSD-3-Clause */
/* The path of an operation: the way in which its bytes move. Operations choose their path with
 * these functions. weft_path_of uses the same functions, so it reports what an operation would
 * do. */
#ifndef WF_CORE_PATH_H
#define WF_CORE_PATH_H

#include "core/remote.h"

enum wf_path {
    WF_PATH_INLINE, /* the region is mapped here: the application's inlined code copies */
    WF_PATH_HERE,   /* a region of this process: the library copies */
    WF_PATH_WHOLE,  /* one message carries all bytes */
    WF_PATH_PARTS,  /* several messages carry the bytes, one after the other */
    WF_PATH_PULL,   /* the process that gets the bytes copies them once (process_vm_readv) */
    WF_PATH_PIECES, /* messages carry the bytes, each of which is asked for or answered */
    WF_PATH_BULK,   /* bulk messages: the transport moves the payload from memory to memory */
    WF_PATH_NIC,    /* the NICs move the bytes, without the region's owner */
    WF_PATH_NONE,   /* the atomic is not possible: neither the NIC nor the owner may do it */
};

/* Returns true if the kernel can copy bytes between this process and the process of [peer], and has
 * not refused an earlier copy. */
bool wf_path_can_pull(const struct weft_peer *peer);
enum wf_path wf_path_msg(const struct weft_peer *peer, size_t len);
/* The path of a tagged message that is sent now. It is another one than wf_path_msg returns if the
 * message is to show what the other way costs. */
enum wf_path wf_path_msg_take(struct weft_peer *peer, size_t len);
/* May NICs read a long tagged message of [len] bytes in [pieces] buffers, at the side of this
 * endpoint, that is offered to [peer], or by it? */
bool wf_path_msg_nic(const struct weft_peer *peer, uint64_t len, unsigned pieces);
/* The path of a long tagged message that [peer] has offered to this endpoint, without NICs. */
enum wf_path wf_path_offered(const struct weft_peer *peer);
/* The path of a put or get that uses messages. */
enum wf_path wf_path_messages(const struct wf_remote *r, uint64_t len);
/* The path of a put, or of the bytes of a long active message, and of a get. [pieces] is the number
 * of local buffers. */
enum wf_path wf_path_put(const struct wf_remote *r, uint64_t offset, size_t len, unsigned pieces);
enum wf_path wf_path_get(const struct wf_remote *r, uint64_t offset, size_t len, unsigned pieces);
/* Can NICs, or services that stand in for them, do a put or get of [len] bytes of memory that they
 * reach at [peer]? */
bool wf_path_can_nic(const struct weft_peer *peer, uint64_t len);
/* Can NICs do a put or get of this range? [access] is WEFT_REMOTE_READ or WEFT_REMOTE_WRITE. */
bool wf_path_has_nic(const struct wf_remote *r, uint64_t offset, uint64_t len, unsigned access);
/* Is the region one of this process? */
bool wf_path_is_here(const struct wf_remote *r);
/* The path of an atomic. [operation] is an enum weft_atomic, [size] the bytes of the word. */
enum wf_path wf_path_atomic(const struct wf_remote *r, unsigned operation, size_t size);

/* Returns the statistics counter of an operation for [path], which is PULL, PIECES, BULK or NIC.
 * [pull] is the operation's counter for PULL. stats.def lists the operation's other counters after
 * [pull], in the order of enum wf_path. */
static inline enum wf_stat wf_path_stat(enum wf_stat pull, unsigned path)
{
    return (enum wf_stat)(pull + (path - WF_PATH_PULL));
}

#endif
