/* SPDX-License-Identifier: BSD-3-Clause */
/* Authentication and encryption: MACs under the job's key, the keys of each connection, and AEAD
 * records. libsodium computes all of them: keyed BLAKE2b makes MACs and derives keys, and
 * XChaCha20-Poly1305 encrypts records. */
#ifndef WF_TRANSPORT_NET_CONNECT_AUTH_H
#define WF_TRANSPORT_NET_CONNECT_AUTH_H

#include <stdbool.h>

#include "transport/net/proto.h"

/* Initialise libsodium. Returns OK | ESYSTEM */
enum weft_status wf_net_auth_init(void);

/* Read the job's key from the file at [path]. The file has to be a regular file of at least
 * WF_NET_KEY bytes. It has to belong to this user, and its mode must give other users no access.
 * Returns OK | EINVAL (the log says what to change) | ESYSTEM */
enum weft_status wf_net_key_read(const char *path, uint8_t key[WF_NET_KEY]);

/* Make the job's key of a secret. WF_NET_KEY bytes are the key; from other lengths it is the
 * BLAKE2b of a label and the secret. */
void wf_net_key_derive(const void *secret, size_t len, uint8_t key[WF_NET_KEY]);

/* Compute or check the MAC of a message under the job's key: the keyed BLAKE2b of [label] and then
 * of the bytes of all parts. All messages for one label have the same length, and no two kinds of
 * message have the same label. The check takes the same time for every wrong MAC. */
#define WF_NET_LABEL 16
struct wf_net_part {
    const void *bytes;
    size_t len;
};
void wf_net_mac(const uint8_t key[WF_NET_KEY], const uint8_t label[WF_NET_LABEL],
                const struct wf_net_part *parts, size_t count, uint8_t mac[WF_NET_MAC]);
bool wf_net_mac_verify(const uint8_t key[WF_NET_KEY], const uint8_t label[WF_NET_LABEL],
                       const struct wf_net_part *parts, size_t count,
                       const uint8_t mac[WF_NET_MAC]);

/* Set or check the MAC of a message. The caller has set all other fields of the messages. */
void wf_net_challenge_sign(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                           struct wf_net_challenge *challenge);
bool wf_net_challenge_verify(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                             const struct wf_net_challenge *challenge);
void wf_net_proof_sign(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                       const struct wf_net_challenge *challenge, struct wf_net_proof *proof);
bool wf_net_proof_verify(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                         const struct wf_net_challenge *challenge,
                         const struct wf_net_proof *proof);

/* Derive the two keys of a connection. The dialling side sends with [by_dialler], the accepting
 * side with [by_accepter]. */
void wf_net_stream_keys(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                        const struct wf_net_challenge *challenge, uint8_t by_dialler[WF_NET_KEY],
                        uint8_t by_accepter[WF_NET_KEY]);

/* An AEAD record consists of 4 bytes for the length of the rest, 1 to WF_AEAD_RECORD encrypted
 * bytes, and a tag of WF_AEAD_TAG bytes. The record's number is its nonce. The length is
 * authenticated, but not encrypted. */
#define WF_AEAD_RECORD 16384u
#define WF_AEAD_TAG 16u
#define WF_AEAD_RECORD_MAX (4u + WF_AEAD_RECORD + WF_AEAD_TAG)

/* The state of one direction of one connection. The sender and the receiver each have one. */
struct wf_aead {
    uint8_t key[WF_NET_KEY];
    uint64_t number; /* of the next record */
};

/* Encrypt [len] bytes, 1 to WF_AEAD_RECORD, into one record at [out], which has room for
 * WF_AEAD_RECORD_MAX bytes. Returns the record's length. */
size_t wf_aead_seal(struct wf_aead *s, const void *bytes, size_t len, uint8_t *out);
/* Decrypt the record at [in] into [out], which has room for WF_AEAD_RECORD bytes. [have] bytes have
 * arrived at [in]. Returns:
 *   the record's length   *len is set to the number of decrypted bytes
 *   0                     the whole record has not arrived yet
 *   -1                    the peer did not send these bytes as its record number s->number */
long wf_aead_open(struct wf_aead *s, const uint8_t *in, size_t have, void *out, size_t *len);

#endif
