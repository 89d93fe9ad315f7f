/* SPDX-License-Identifier: BSD-3-Clause */
/* Remotes that were opened by a region's key of 64 bits (weft_remote_open_key). Such a key names a
 * region but does not describe it. All messages about the region carry the key, and the owner looks
 * the region up for each of them. So messages never reach a closed region, whatever this process
 * knows.
 *
 * This process also learns the region's raw key. The first PUT, TAKE or GET asks for it, and the
 * owner adds it to the answer. What was learnt serves two purposes only: gets copy straight from
 * the owner's memory (WF_PATH_PULL), and NICs put and get (WF_PATH_NIC). Each access goes back to
 * messages if the learnt region is not the key's region any more:
 *
 *  - WF_PATH_PULL compares the region's generation before and after the copy, as it does for a raw
 *    key. The owner changes the generation before it closes or refreshes the region, and no other
 *    region ever has it.
 *  - WF_PATH_NIC: the owner's NIC refuses the remote key, because the owner deregisters the region
 *    before weft_mr_close returns, and no other memory of the owner ever gets the region's address
 *    for NICs (transport.h, region_open). The operation is then repeated by messages.
 *  - An access outside of the learnt range or rights goes by messages: the key may name a larger
 *    region by now. Within a node the generation shows that. Across a network it does not change,
 *    so such an access makes this process forget the region, and asks for the raw key.
 *
 * A remote has one of these states:
 *
 *   state    event                                                        next
 *   UNKNOWN  a message of a put or get asks for the raw key               ASKED
 *   ASKED    its answer carries a raw key                                 LEARNT
 *   ASKED    its answer is a failure                                      UNKNOWN
 *   ASKED    its answer is OK, without a raw key that is valid            SILENT
 *   LEARNT   an access begins, and the transport resolves the raw key,
 *            which permits a copy or names a NIC                          KNOWN
 *   LEARNT   the same, but neither copy nor NIC is possible               SILENT
 *   LEARNT   an access begins, and the transport has to wait              LEARNT (by messages)
 *   LEARNT   the transport refuses the raw key: closed in the meantime    UNKNOWN
 *   KNOWN    the generation differs, or a NIC refused the remote key      UNKNOWN
 *   KNOWN    across a network, an access begins outside of the learnt
 *            range or rights                                              UNKNOWN
 *   SILENT   as many accesses as the pause has begun                      UNKNOWN, a longer pause
 *
 * If the owner permits such an access, the raw key in its answer contains the access. If it refuses
 * the access, the next put or get is a message, too, and asks. That needs no pause: only accesses
 * that fail cost a message.
 *
 * The owner may close the region, and give the key to another one, between the question and the
 * use of the answer. The answer then has the generation and the remote keys of the closed region,
 * which the checks above refuse. If the owner's process ends, its peer handle is lost, and with it
 * all that was learnt.
 *
 * A peer handle keeps the raw keys that it learnt last (struct wf_named_cache), so that a remote
 * opened again begins in the state LEARNT. Only the endpoint's owner touches all this. */
#ifndef WF_CORE_NAMED_H
#define WF_CORE_NAMED_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/address.h"

struct wf_remote;
struct weft_peer;
struct wf_flow;

enum wf_named_state {
    WF_NAMED_UNKNOWN,
    WF_NAMED_ASKED,
    WF_NAMED_LEARNT,
    WF_NAMED_KNOWN,
    WF_NAMED_SILENT,
};

/* A remote that was opened by a key of 64 bits: knowledge of its region. */
struct wf_named {
    enum wf_named_state state;
    uint32_t pause;    /* accesses in the state SILENT */
    uint32_t left;     /* of these, those that have not begun yet */
    struct wf_key key; /* LEARNT and KNOWN: the raw key */
};

/* Let [r], of which only the key of 64 bits is known, learn about its region. Returns OK | ENOMEM
 */
enum weft_status wf_named_open(struct wf_remote *r);
void wf_named_close(struct wf_remote *r);
/* Called before each operation on [r] chooses its path. Checks or completes the knowledge of the
 * region. The operation accesses [len] bytes at [offset]; [access] is the rights that it needs. */
void wf_named_begin(struct wf_remote *r, uint64_t offset, uint64_t len, unsigned access);
/* Has the next message about [r], of a put or get of [len] bytes, to ask for the raw key? The
 * caller calls wf_named_asked once the message is sent. r->named is not NULL. */
bool wf_named_asks(const struct wf_remote *r, uint64_t len);
void wf_named_asked(struct wf_remote *r);
/* The answer to the message that asked for the raw key has come, with [status]. [bytes] is the raw
 * key, in memory that the sender may change, or NULL. */
void wf_named_answered(struct wf_remote *r, enum weft_status status, const void *bytes);
/* The region that was learnt is not the key's region any more. */
void wf_named_forget(struct wf_remote *r);
/* The peer leads to no endpoint any more, and will lead to another one. */
void wf_named_renew(struct wf_remote *r);
/* Does the learnt region contain [len] bytes at [offset], and grant [access]? */
bool wf_named_covers(const struct wf_remote *r, uint64_t offset, uint64_t len, unsigned access);

#endif
