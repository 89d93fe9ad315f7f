/* SPDX-License-Identifier: BSD-3-Clause */
/* Making and parsing of the handshake's messages. Everything here works on bytes: no
 * socket, no key. A parser copies out, and gives nothing of a message that it refuses. */
#ifndef WF_TRANSPORT_NET_CONNECT_HELLO_H
#define WF_TRANSPORT_NET_CONNECT_HELLO_H

#include "transport/net/connect/manager.h"

/* The first 16 bytes of a message, before the rest of it is awaited: [role] or [other]
 * (0: none other) is expected.
 * OK | EPROTO | EVERSION (a process of Weft, with another version, whose role, size and
 * flags mean nothing here; *out is set) */
enum weft_status wf_net_greeting_parse(const void *bytes, unsigned role, unsigned other,
                                       struct wf_net_greeting *out);

/* Whole messages. OK | EPROTO | EVERSION */
enum weft_status wf_net_hello_parse(const void *bytes, struct wf_net_hello *out);
enum weft_status wf_net_challenge_parse(const void *bytes, struct wf_net_challenge *out);
enum weft_status wf_net_proof_parse(const void *bytes, struct wf_net_proof *out);
/* A refusal may be of another version, if that is what it says. */
enum weft_status wf_net_refusal_parse(const void *bytes, struct wf_net_refusal *out);

/* Each with a new nonce; MACs are auth.h's. */
void wf_net_hello_make(const struct wf_dial *call, uint32_t flags, struct wf_net_hello *out);
void wf_net_challenge_make(uint32_t flags, struct wf_net_challenge *out);
void wf_net_proof_make(uint32_t flags, struct wf_net_proof *out);
void wf_net_refusal_make(uint32_t flags, enum wf_net_refusal_reason reason,
                         struct wf_net_refusal *out);

#endif
