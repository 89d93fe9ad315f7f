/* SPDX-License-Identifier: BSD-3-Clause */
/* The path of an operation: how its bytes go. Operations ask here, and so does weft_path_of, so
 * that what it reports is what is done. */
#ifndef WF_CORE_PATH_H
#define WF_CORE_PATH_H

#include "core/remote.h"

enum wf_path {
    WF_PATH_INLINE, /* the region is mapped: a copy in the caller's code */
    WF_PATH_HERE,   /* the region is this process's own: a copy */
    WF_PATH_WHOLE,  /* the message carries the bytes */
    WF_PATH_PULL,   /* one copy through the kernel, by the receiving process */
    WF_PATH_PIECES, /* in messages */
    WF_PATH_BULK,   /* in messages whose bytes the transport moves from memory to memory */
    WF_PATH_NIC,    /* by the NICs, without the region's owner */
    WF_PATH_NONE,   /* an atomic that neither NIC nor owner may do */
};

/* May the kernel copy bytes between this process and [peer]'s, as far as is known? */
bool wf_path_can_pull(const struct weft_peer *peer);
enum wf_path wf_path_msg(const struct weft_peer *peer, size_t len);
/* Of a long message that [peer] has offered. */
enum wf_path wf_path_offered(const struct weft_peer *peer);
/* Of a put or get that messages do. */
enum wf_path wf_path_messages(const struct wf_remote *r, uint64_t len);
/* Also of the bytes of a long active message. */
enum wf_path wf_path_put(const struct wf_remote *r, size_t len, unsigned pieces);
enum wf_path wf_path_get(const struct wf_remote *r, size_t len);
/* [operation]: enum weft_atomic; [size]: bytes of the word */
enum wf_path wf_path_atomic(const struct wf_remote *r, unsigned operation, size_t size);

/* The counter of an operation by [path], one of PULL, PIECES, BULK and NIC; [pull]: that by PULL.
 * stats.def has each operation's in this order. */
static inline enum wf_stat wf_path_stat(enum wf_stat pull, unsigned path)
{
    return (enum wf_stat)(pull + (path - WF_PATH_PULL));
}

#endif
