/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes and parses the handshake's messages. All functions work on bytes: no socket, no key. A
 * parser copies the message out, and sets *out only if it accepts the message. */
#ifndef WF_TRANSPORT_NET_CONNECT_HELLO_H
#define WF_TRANSPORT_NET_CONNECT_HELLO_H

#include "transport/net/connect/manager.h"

/* Parse the first 16 bytes of a message, before the rest is awaited. Its role has to be [role] or
 * [other] (0: [role] only).
 * Returns OK | EPROTO | EVERSION (the sender uses another version of the protocol, in which role,
 *         size and flags may differ; *out is set) */
enum weft_status wf_net_greeting_parse(const void *bytes, unsigned role, unsigned other,
                                       struct wf_net_greeting *out);

/* Parse whole messages. Return OK | EPROTO | EVERSION */
enum weft_status wf_net_hello_parse(const void *bytes, struct wf_net_hello *out);
enum weft_status wf_net_challenge_parse(const void *bytes, struct wf_net_challenge *out);
enum weft_status wf_net_proof_parse(const void *bytes, struct wf_net_proof *out);
/* The version of a refusal may be another one only if its reason is VERSION. */
enum weft_status wf_net_refusal_parse(const void *bytes, struct wf_net_refusal *out);

/* Hello and challenge get a new nonce. The caller sets the MACs (auth.h). */
void wf_net_hello_make(const struct wf_dial *dial, uint32_t flags, struct wf_net_hello *out);
void wf_net_challenge_make(uint32_t flags, struct wf_net_challenge *out);
void wf_net_proof_make(uint32_t flags, struct wf_net_proof *out);
void wf_net_refusal_make(uint32_t flags, enum wf_net_refusal_reason reason,
                         struct wf_net_refusal *out);

#endif
