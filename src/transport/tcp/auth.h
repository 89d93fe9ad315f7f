/* SPDX-License-Identifier: BSD-3-Clause */
/* Who may come in: MACs under the job's key, keys of single streams, and records
 * sealed with those. All of it is libsodium's: BLAKE2b with a key for MACs and
 * derivation, XChaCha20-Poly1305 for records. */
#ifndef WF_TRANSPORT_TCP_AUTH_H
#define WF_TRANSPORT_TCP_AUTH_H

#include <stdbool.h>

#include "transport/tcp/wire.h"

/* Make libsodium ready. OK | ESYSTEM */
enum weft_status wf_tcp_auth_init(void);

/* Read WF_TCP_KEY bytes from the file at [path]: a regular file of this user's that no
 * one else can read, with at least so many bytes.
 * OK | EINVAL (logged: what to change) | ESYSTEM */
enum weft_status wf_tcp_key_read(const char *path, uint8_t key[WF_TCP_KEY]);

/* [challenge]: all but its MAC is filled in. */
void wf_tcp_challenge_sign(const uint8_t key[WF_TCP_KEY], const struct wf_tcp_hello *hello,
                           struct wf_tcp_challenge *challenge);
bool wf_tcp_challenge_verify(const uint8_t key[WF_TCP_KEY], const struct wf_tcp_hello *hello,
                             const struct wf_tcp_challenge *challenge);
void wf_tcp_proof_sign(const uint8_t key[WF_TCP_KEY], const struct wf_tcp_hello *hello,
                       const struct wf_tcp_challenge *challenge, struct wf_tcp_proof *proof);
bool wf_tcp_proof_verify(const uint8_t key[WF_TCP_KEY], const struct wf_tcp_hello *hello,
                         const struct wf_tcp_challenge *challenge,
                         const struct wf_tcp_proof *proof);

/* The keys of this connection, one a direction. */
void wf_tcp_stream_keys(const uint8_t key[WF_TCP_KEY], const struct wf_tcp_hello *hello,
                        const struct wf_tcp_challenge *challenge, uint8_t by_dialler[WF_TCP_KEY],
                        uint8_t by_accepter[WF_TCP_KEY]);

/* Records: 4 bytes of length (of what follows), then 1 to WF_TCP_RECORD bytes sealed and
 * WF_TCP_TAG more. The nonce is the record's number; the length is authenticated, too. */
#define WF_TCP_RECORD 16384u
#define WF_TCP_TAG 16u
#define WF_TCP_SEALED_MAX (4u + WF_TCP_RECORD + WF_TCP_TAG)

struct wf_tcp_sealer {
    uint8_t key[WF_TCP_KEY];
    uint64_t number; /* of the next record */
};

/* Seal 1 <= [len] <= WF_TCP_RECORD bytes into [out] (WF_TCP_SEALED_MAX). Returns the bytes used. */
size_t wf_tcp_seal(struct wf_tcp_sealer *s, const void *bytes, size_t len, uint8_t *out);
/* Open the record at [in], of which [have] bytes are there. Returns the bytes of [in] used and
 * sets *len (at most WF_TCP_RECORD, to [out]); 0: more is needed; -1: it is not what was
 * sealed. */
long wf_tcp_unseal(struct wf_tcp_sealer *s, const uint8_t *in, size_t have, void *out, size_t *len);

#endif
