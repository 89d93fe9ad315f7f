/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes and parses the messages of the handshake. All functions work on bytes in memory; they use
 * neither a socket nor the key. A parser copies the message to *out, if it accepts the message. */
#ifndef WF_TRANSPORT_NET_CONNECT_HELLO_H
#define WF_TRANSPORT_NET_CONNECT_HELLO_H

#include "transport/net/connect/manager.h"

/* Parse the first 16 bytes of a message, while the rest may still be under way. The message's role
 * has to be [role] or [other]. If [other] is 0, the role has to be [role].
 * Returns OK | EPROTO | EVERSION (the sender uses another version of the protocol; *out is set, but
 * that version may define role, size and flags differently) */
enum weft_status wf_net_greeting_parse(const void *bytes, unsigned role, unsigned other,
                                       struct wf_net_greeting *out);

/* Parse a whole message. Return OK | EPROTO | EVERSION */
enum weft_status wf_net_hello_parse(const void *bytes, struct wf_net_hello *out);
enum weft_status wf_net_challenge_parse(const void *bytes, struct wf_net_challenge *out);
enum weft_status wf_net_proof_parse(const void *bytes, struct wf_net_proof *out);
/* Accepts a refusal of another protocol version exactly if the refusal's reason is VERSION. */
enum weft_status wf_net_refusal_parse(const void *bytes, struct wf_net_refusal *out);

/* Make a message. A hello and a challenge get a new random nonce. The caller then sets the MACs
 * (auth.h). */
void wf_net_hello_make(const struct wf_dial *dial, uint32_t flags, struct wf_net_hello *out);
void wf_net_challenge_make(uint32_t flags, struct wf_net_challenge *out);
void wf_net_proof_make(uint32_t flags, struct wf_net_proof *out);
/* [now_gen] is 0 unless the reason is GONE. */
void wf_net_refusal_make(uint32_t flags, enum wf_net_refusal_reason reason, uint32_t now_gen,
                         struct wf_net_refusal *out);

#endif
