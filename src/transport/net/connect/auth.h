/* SPDX-License-Identifier: BSD-3-Clause */
/* Who may come in: MACs under the job's key, keys of single streams, and records
 * sealed with those. All of it is libsodium's: BLAKE2b with a key for MACs and
 * derivation, XChaCha20-Poly1305 for records. */
#ifndef WF_TRANSPORT_NET_CONNECT_AUTH_H
#define WF_TRANSPORT_NET_CONNECT_AUTH_H

#include <stdbool.h>

#include "transport/net/proto.h"

/* Make libsodium ready. OK | ESYSTEM */
enum weft_status wf_net_auth_init(void);

/* Read WF_NET_KEY bytes from the file at [path]: a regular file of this user's that no
 * one else can read, with at least so many bytes.
 * OK | EINVAL (logged: what to change) | ESYSTEM */
enum weft_status wf_net_key_read(const char *path, uint8_t key[WF_NET_KEY]);

/* [challenge]: all but its MAC is filled in. */
void wf_net_challenge_sign(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                           struct wf_net_challenge *challenge);
bool wf_net_challenge_verify(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                             const struct wf_net_challenge *challenge);
void wf_net_proof_sign(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                       const struct wf_net_challenge *challenge, struct wf_net_proof *proof);
bool wf_net_proof_verify(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                         const struct wf_net_challenge *challenge,
                         const struct wf_net_proof *proof);

/* The keys of this connection, one a direction. */
void wf_net_stream_keys(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                        const struct wf_net_challenge *challenge, uint8_t by_dialler[WF_NET_KEY],
                        uint8_t by_accepter[WF_NET_KEY]);

/* Records: 4 bytes of length (of what follows), then 1 to WF_AEAD_RECORD bytes sealed and
 * WF_AEAD_TAG more. The nonce is the record's number; the length is authenticated, too. */
#define WF_AEAD_RECORD 16384u
#define WF_AEAD_TAG 16u
#define WF_AEAD_RECORD_MAX (4u + WF_AEAD_RECORD + WF_AEAD_TAG)

struct wf_aead {
    uint8_t key[WF_NET_KEY];
    uint64_t number; /* of the next record */
};

/* Seal 1 <= [len] <= WF_AEAD_RECORD bytes into [out] (WF_AEAD_RECORD_MAX). Returns the bytes used.
 */
size_t wf_aead_seal(struct wf_aead *s, const void *bytes, size_t len, uint8_t *out);
/* Open the record at [in], of which [have] bytes are there. Returns the bytes of [in] used and
 * sets *len (at most WF_AEAD_RECORD, to [out]); 0: more is needed; -1: it is not what was
 * sealed. */
long wf_aead_open(struct wf_aead *s, const uint8_t *in, size_t have, void *out, size_t *len);

#endif
