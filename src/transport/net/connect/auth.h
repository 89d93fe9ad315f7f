/* SPDX-License-Identifier: BSD-3-Clause */
/* Authentication and encryption: MACs under the job's key, the keys of each connection, and AEAD
 * records. All of it is libsodium's: keyed BLAKE2b for MACs and for deriving keys, and
 * XChaCha20-Poly1305 for records. */
#ifndef WF_TRANSPORT_NET_CONNECT_AUTH_H
#define WF_TRANSPORT_NET_CONNECT_AUTH_H

#include <stdbool.h>

#include "transport/net/proto.h"

/* Initialise libsodium. OK | ESYSTEM */
enum weft_status wf_net_auth_init(void);

/* Read WF_NET_KEY bytes from the file at [path]: a regular file of at least that size, which this
 * user owns and no other user can access.
 * OK | EINVAL (logged: what to change) | ESYSTEM */
enum weft_status wf_net_key_read(const char *path, uint8_t key[WF_NET_KEY]);

/* Set and check the MACs. The transcript, all but the MACs, is complete. */
void wf_net_challenge_sign(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                           struct wf_net_challenge *challenge);
bool wf_net_challenge_verify(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                             const struct wf_net_challenge *challenge);
void wf_net_proof_sign(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                       const struct wf_net_challenge *challenge, struct wf_net_proof *proof);
bool wf_net_proof_verify(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                         const struct wf_net_challenge *challenge,
                         const struct wf_net_proof *proof);

/* Derive the keys of a connection, one for each direction. */
void wf_net_stream_keys(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                        const struct wf_net_challenge *challenge, uint8_t by_dialler[WF_NET_KEY],
                        uint8_t by_accepter[WF_NET_KEY]);

/* An AEAD record: 4 bytes that hold the length of the rest, 1 to WF_AEAD_RECORD encrypted bytes,
 * and a tag of WF_AEAD_TAG. The nonce is the record's number; the length is authenticated data. */
#define WF_AEAD_RECORD 16384u
#define WF_AEAD_TAG 16u
#define WF_AEAD_RECORD_MAX (4u + WF_AEAD_RECORD + WF_AEAD_TAG)

/* One direction of one connection, on either side. */
struct wf_aead {
    uint8_t key[WF_NET_KEY];
    uint64_t number; /* of the next record */
};

/* Encrypt 1 <= [len] <= WF_AEAD_RECORD bytes into a record at [out], which has room for
 * WF_AEAD_RECORD_MAX. Returns the record's length. */
size_t wf_aead_seal(struct wf_aead *s, const void *bytes, size_t len, uint8_t *out);
/* Decrypt the record at [in], of which [have] bytes have arrived, into [out], which has room for
 * WF_AEAD_RECORD.
 * Returns  the record's length, and *len, the number of decrypted bytes | 0: the record is not
 *          complete | -1: it is not the record that the peer sent with this number */
long wf_aead_open(struct wf_aead *s, const uint8_t *in, size_t have, void *out, size_t *len);

#endif
