/* SPDX-License-Identifier: BSD-3-Clause */
/* Each MAC and each derived key is a hash of a label and a message. All labels have the same
 * length, so two different pairs of label and message never have the same bytes. */
#define _GNU_SOURCE
#include "transport/net/connect/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

static const uint8_t label_challenge[WF_NET_LABEL] = "weft1 challenge";
static const uint8_t label_secret[WF_NET_LABEL] = "weft1 secret";
static const uint8_t label_proof[WF_NET_LABEL] = "weft1 proof";
static const uint8_t label_by_dialler[WF_NET_LABEL] = "weft1 key dial";
static const uint8_t label_by_accepter[WF_NET_LABEL] = "weft1 key accept";

_Static_assert(WF_NET_KEY >= crypto_generichash_KEYBYTES_MIN &&
                   WF_NET_KEY <= crypto_generichash_KEYBYTES_MAX,
               "BLAKE2b key");
_Static_assert(WF_NET_MAC == 32 && WF_NET_KEY == 32, "crypto_verify_32, and a MAC as a key");
_Static_assert(WF_NET_KEY == crypto_aead_xchacha20poly1305_ietf_KEYBYTES, "key of records");
_Static_assert(WF_AEAD_TAG == crypto_aead_xchacha20poly1305_ietf_ABYTES, "tag of records");

enum weft_status wf_net_auth_init(void)
{
    if (sodium_init() >= 0) /* sodium_init returns 1 if it ran before */
        return WEFT_OK;
    wf_error("libsodium cannot be initialised: does this host have a source of random numbers "
             "(getrandom)?");
    return WEFT_ESYSTEM;
}

static const char *key_file_fault(const struct stat *st)
{
    if (!S_ISREG(st->st_mode))
        return "is not a regular file";
    if (st->st_uid != geteuid())
        return "belongs to another user";
    if (st->st_mode & 077)
        return "can be accessed by other users: chmod 600 it";
    if (st->st_size < WF_NET_KEY)
        return "is too short: 32 random bytes are needed (head -c 32 /dev/urandom > FILE)";
    return NULL;
}

static enum weft_status key_read_from(int fd, const char *path, uint8_t key[WF_NET_KEY])
{
    uint8_t bytes[WF_NET_KEY];
    const char *fault;
    struct stat st;
    ssize_t n;
    if (fstat(fd, &st)) {
        wf_error("WEFT_KEY_FILE %s: %m", path);
        return WEFT_ESYSTEM;
    }
    if ((fault = key_file_fault(&st))) {
        wf_error("WEFT_KEY_FILE %s %s", path, fault);
        return WEFT_EINVAL;
    }
    n = read(fd, bytes, sizeof bytes);
    if (n == sizeof bytes)
        memcpy(key, bytes, sizeof bytes);
    else
        wf_error("WEFT_KEY_FILE %s: %s", path, n < 0 ? strerror(errno) : "the file was truncated");
    sodium_memzero(bytes, sizeof bytes);
    return n == sizeof bytes ? WEFT_OK : WEFT_ESYSTEM;
}

enum weft_status wf_net_key_read(const char *path, uint8_t key[WF_NET_KEY])
{
    /* With O_NONBLOCK, open(2) of a FIFO does not wait for a writer. */
    int fd = wf_fd_high(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    enum weft_status status;
    if (fd < 0) {
        wf_error("WEFT_KEY_FILE %s: %m", path);
        return WEFT_EINVAL;
    }
    status = key_read_from(fd, path, key);
    close(fd);
    return status;
}

void wf_net_key_derive(const void *secret, size_t len, uint8_t key[WF_NET_KEY])
{
    crypto_generichash_state s;
    if (len == WF_NET_KEY) {
        memcpy(key, secret, WF_NET_KEY);
        return;
    }
    crypto_generichash_init(&s, NULL, 0, WF_NET_KEY);
    crypto_generichash_update(&s, label_secret, WF_NET_LABEL);
    crypto_generichash_update(&s, secret, len);
    crypto_generichash_final(&s, key, WF_NET_KEY);
    sodium_memzero(&s, sizeof s);
}

void wf_net_mac(const uint8_t key[WF_NET_KEY], const uint8_t label[WF_NET_LABEL],
                const struct wf_net_part *parts, size_t count, uint8_t mac[WF_NET_MAC])
{
    crypto_generichash_state s;
    crypto_generichash_init(&s, key, WF_NET_KEY, WF_NET_MAC);
    crypto_generichash_update(&s, label, WF_NET_LABEL);
    for (size_t i = 0; i < count; i++)
        crypto_generichash_update(&s, parts[i].bytes, parts[i].len);
    crypto_generichash_final(&s, mac, WF_NET_MAC);
    sodium_memzero(&s, sizeof s);
}

bool wf_net_mac_verify(const uint8_t key[WF_NET_KEY], const uint8_t label[WF_NET_LABEL],
                       const struct wf_net_part *parts, size_t count, const uint8_t mac[WF_NET_MAC])
{
    uint8_t want[WF_NET_MAC];
    bool same;
    wf_net_mac(key, label, parts, count, want);
    same = !crypto_verify_32(want, mac); /* in constant time */
    sodium_memzero(want, sizeof want);
    return same;
}

/* Each MAC covers the hello, and the part of the challenge before its MAC. */
static void transcript_mac(const uint8_t key[WF_NET_KEY], const uint8_t label[WF_NET_LABEL],
                           const struct wf_net_hello *hello,
                           const struct wf_net_challenge *challenge, uint8_t mac[WF_NET_MAC])
{
    const struct wf_net_part parts[] = {{hello, sizeof *hello},
                                        {challenge, offsetof(struct wf_net_challenge, mac)}};
    wf_net_mac(key, label, parts, 2, mac);
}

static bool transcript_verify(const uint8_t key[WF_NET_KEY], const uint8_t label[WF_NET_LABEL],
                              const struct wf_net_hello *hello,
                              const struct wf_net_challenge *challenge,
                              const uint8_t mac[WF_NET_MAC])
{
    const struct wf_net_part parts[] = {{hello, sizeof *hello},
                                        {challenge, offsetof(struct wf_net_challenge, mac)}};
    return wf_net_mac_verify(key, label, parts, 2, mac);
}

void wf_net_challenge_sign(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                           struct wf_net_challenge *challenge)
{
    transcript_mac(key, label_challenge, hello, challenge, challenge->mac);
}

bool wf_net_challenge_verify(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                             const struct wf_net_challenge *challenge)
{
    return transcript_verify(key, label_challenge, hello, challenge, challenge->mac);
}

void wf_net_proof_sign(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                       const struct wf_net_challenge *challenge, struct wf_net_proof *proof)
{
    transcript_mac(key, label_proof, hello, challenge, proof->mac);
}

bool wf_net_proof_verify(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                         const struct wf_net_challenge *challenge, const struct wf_net_proof *proof)
{
    return transcript_verify(key, label_proof, hello, challenge, proof->mac);
}

void wf_net_stream_keys(const uint8_t key[WF_NET_KEY], const struct wf_net_hello *hello,
                        const struct wf_net_challenge *challenge, uint8_t by_dialler[WF_NET_KEY],
                        uint8_t by_accepter[WF_NET_KEY])
{
    transcript_mac(key, label_by_dialler, hello, challenge, by_dialler);
    transcript_mac(key, label_by_accepter, hello, challenge, by_accepter);
}

/* The nonce is the record's number. No number repeats under one key, since each direction of each
 * connection has a key of its own. */
static void record_nonce(uint64_t number,
                         uint8_t nonce[crypto_aead_xchacha20poly1305_ietf_NPUBBYTES])
{
    memset(nonce, 0, crypto_aead_xchacha20poly1305_ietf_NPUBBYTES);
    memcpy(nonce, &number, sizeof number);
}

size_t wf_aead_seal(struct wf_aead *s, const void *bytes, size_t len, uint8_t *out)
{
    uint8_t nonce[crypto_aead_xchacha20poly1305_ietf_NPUBBYTES];
    uint32_t rest = (uint32_t)len + WF_AEAD_TAG;
    record_nonce(s->number++, nonce);
    memcpy(out, &rest, sizeof rest);
    crypto_aead_xchacha20poly1305_ietf_encrypt(out + sizeof rest, NULL, bytes, len, out,
                                               sizeof rest, NULL, nonce, s->key);
    return sizeof rest + rest;
}

long wf_aead_open(struct wf_aead *s, const uint8_t *in, size_t have, void *out, size_t *len)
{
    uint8_t nonce[crypto_aead_xchacha20poly1305_ietf_NPUBBYTES];
    unsigned long long n;
    uint32_t rest;
    if (have < sizeof rest)
        return 0;
    memcpy(&rest, in, sizeof rest);
    if (rest <= WF_AEAD_TAG || rest > WF_AEAD_RECORD + WF_AEAD_TAG)
        return -1;
    if (have - sizeof rest < rest)
        return 0;
    record_nonce(s->number, nonce);
    if (crypto_aead_xchacha20poly1305_ietf_decrypt(out, &n, NULL, in + sizeof rest, rest, in,
                                                   sizeof rest, nonce, s->key))
        return -1;
    s->number++;
    *len = (size_t)n;
    return (long)(sizeof rest + rest);
}
