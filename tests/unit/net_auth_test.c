/* SPDX-License-Identifier: BSD-3-Clause */
/* The handshake's messages, their MACs, the keys of connections, and AEAD records. */
#define _GNU_SOURCE
#include "unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transport/net/connect/auth.h"
#include "transport/net/connect/hello.h"

static uint8_t key[WF_NET_KEY], other_key[WF_NET_KEY];

static struct wf_dial a_dial(void)
{
    struct wf_address a = {.version = WF_ADDRESS_VERSION,
                           .size = sizeof a,
                           .ep = 3,
                           .ep_gen = 7,
                           .process = {.pid = 9}};
    struct wf_contact c = {
        .port = 4711, .count = 1, .ip = {{[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1}}};
    struct wf_dial dial = {
        .from = a, .to = a, .from_contact = c, .to_contact = c, .lane = 1, .gen = 2};
    dial.to.process.token[0] = 77;
    return dial;
}

struct transcript {
    struct wf_net_hello hello;
    struct wf_net_challenge challenge;
    struct wf_net_proof proof;
};

static struct transcript a_transcript(uint32_t flags)
{
    struct wf_dial dial = a_dial();
    struct transcript t;
    wf_net_hello_make(&dial, flags, &t.hello);
    wf_net_challenge_make(flags, &t.challenge);
    wf_net_challenge_sign(key, &t.hello, &t.challenge);
    wf_net_proof_make(flags, &t.proof);
    wf_net_proof_sign(key, &t.hello, &t.challenge, &t.proof);
    return t;
}

static bool transcript_verifies(const struct transcript *t, const uint8_t with[WF_NET_KEY])
{
    bool challenge = wf_net_challenge_verify(with, &t->hello, &t->challenge);
    bool proof = wf_net_proof_verify(with, &t->hello, &t->challenge, &t->proof);
    return challenge && proof;
}

/* Fails when: a MAC verifies although a bit of hello, challenge or proof (role, version, flags,
 * nonces, endpoints) has changed, or with another key. */
static void test_covered(void **state)
{
    struct transcript good = a_transcript(WF_NET_ENCRYPT), t;
    (void)state;
    assert_true(transcript_verifies(&good, key));
    assert_false(wf_net_challenge_verify(other_key, &good.hello, &good.challenge));
    assert_false(wf_net_proof_verify(other_key, &good.hello, &good.challenge, &good.proof));
    for (size_t bit = 0; bit < 8 * sizeof good; bit++) {
        size_t byte = bit / 8;
        if (byte >= offsetof(struct transcript, proof.greeting) &&
            byte < offsetof(struct transcript, proof.mac))
            continue; /* constant; the parser compares it */
        t = good;
        ((uint8_t *)&t)[byte] ^= (uint8_t)(1u << bit % 8);
        if (transcript_verifies(&t, key))
            fail_msg("byte %zu can change", byte);
    }
}

/* Fails when: the MAC of a challenge verifies in a proof. */
static void test_labels(void **state)
{
    struct transcript t = a_transcript(0);
    (void)state;
    assert_memory_not_equal(t.challenge.mac, t.proof.mac, WF_NET_MAC);
    memcpy(t.proof.mac, t.challenge.mac, WF_NET_MAC);
    assert_false(wf_net_proof_verify(key, &t.hello, &t.challenge, &t.proof));
}

/* Fails when: the bytes that the MACs cover change, so that two versions of the library cannot
 * connect. The values are from Python's hashlib.blake2b. */
static void test_known(void **state)
{
    static const char want_challenge[] =
        "5aa82e7e1064021ad45fc2b93d415699cff0397d21550cd47f8cd3d30ed5e0ac";
    static const char want_proof[] =
        "171a0f64d3ab7989709c8650fe33ccbcd18b3036644ce9a524ae445f0982082a";
    static const char want_dial[] =
        "fdd5703f44b789914114d0be0d21b3c0e14ab15957a6db26b3ff6f5e46c626ab";
    static const char want_accept[] =
        "b2e85c7c55c662c109204f9302c07e10a1b2f8db127a7e7409fcd828c24b0434";
    uint8_t dial[WF_NET_KEY], accept[WF_NET_KEY];
    char hex[2 * WF_NET_MAC + 1];
    const uint8_t *made[4];
    const char *const want[4] = {want_challenge, want_proof, want_dial, want_accept};
    struct transcript t;
    (void)state;
    for (size_t i = 0; i < sizeof t; i++)
        ((uint8_t *)&t)[i] = (uint8_t)i;
    wf_net_challenge_sign(key, &t.hello, &t.challenge);
    wf_net_proof_sign(key, &t.hello, &t.challenge, &t.proof);
    wf_net_stream_keys(key, &t.hello, &t.challenge, dial, accept);
    made[0] = t.challenge.mac, made[1] = t.proof.mac, made[2] = dial, made[3] = accept;
    for (int k = 0; k < 4; k++) {
        for (size_t i = 0; i < WF_NET_MAC; i++)
            snprintf(hex + 2 * i, 3, "%02x", made[k][i]);
        assert_string_equal(hex, want[k]);
    }
}

/* Fails when: two directions or two connections have the same key, or a nonce repeats. */
static void test_stream_keys(void **state)
{
    struct transcript a = a_transcript(1), b = a;
    uint8_t k[4][WF_NET_KEY], again[2][WF_NET_KEY];
    (void)state;
    wf_net_challenge_make(1, &b.challenge);
    assert_memory_not_equal(a.challenge.nonce, b.challenge.nonce, WF_NET_NONCE);
    wf_net_stream_keys(key, &a.hello, &a.challenge, k[0], k[1]);
    wf_net_stream_keys(key, &b.hello, &b.challenge, k[2], k[3]);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(k[i], k[j], WF_NET_KEY);
    wf_net_stream_keys(key, &a.hello, &a.challenge, again[0], again[1]);
    assert_memory_equal(k, again, sizeof again);
    wf_net_stream_keys(other_key, &a.hello, &a.challenge, again[0], again[1]);
    assert_memory_not_equal(k[0], again[0], WF_NET_KEY);
}

/* ---- records ---- */

static uint8_t plain[WF_AEAD_RECORD], record[2][WF_AEAD_RECORD_MAX], opened[WF_AEAD_RECORD];

static struct wf_aead an_aead(void)
{
    struct wf_aead s = {.number = 0};
    memcpy(s.key, key, sizeof s.key);
    return s;
}

/* Fails when: a record decrypts to other bytes than were encrypted, or before it is complete. */
static void test_records(void **state)
{
    static const size_t lens[] = {1, 15, 16, 17, 4096, WF_AEAD_RECORD - 1, WF_AEAD_RECORD};
    struct wf_aead in = an_aead(), out = an_aead();
    (void)state;
    for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
        size_t n = wf_aead_seal(&out, plain, lens[i], record[0]), len = 12345;
        assert_int_equal(n, 4 + lens[i] + WF_AEAD_TAG);
        for (size_t have = 0; have < n; have += have < 32 || have > n - 8 ? 1 : 97)
            assert_int_equal(wf_aead_open(&in, record[0], have, opened, &len), 0);
        assert_int_equal(len, 12345);
        assert_int_equal(wf_aead_open(&in, record[0], sizeof record[0], opened, &len), (long)n);
        assert_int_equal(len, lens[i]);
        assert_memory_equal(opened, plain, len);
    }
}

/* Fails when: a record decrypts that was changed, repeated or reordered, or that follows a gap. */
static void test_tampered(void **state)
{
    struct wf_aead in = an_aead(), out = an_aead();
    size_t n = wf_aead_seal(&out, plain, 100, record[0]), len;
    size_t m = wf_aead_seal(&out, plain, 100, record[1]);
    (void)state;
    for (size_t bit = 0; bit < 8 * n; bit++) {
        record[0][bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (wf_aead_open(&in, record[0], n, opened, &len) > 0)
            fail_msg("byte %zu can change", bit / 8);
        record[0][bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(wf_aead_open(&in, record[1], m, opened, &len), -1); /* before the first */
    assert_true(wf_aead_open(&in, record[0], n, opened, &len) > 0);
    assert_int_equal(wf_aead_open(&in, record[0], n, opened, &len), -1); /* once more */
    assert_true(wf_aead_open(&in, record[1], m, opened, &len) > 0);
}

/* Fails when: the parser waits for more bytes after a length that no record has. */
static void test_lengths(void **state)
{
    static const uint32_t bad[] = {
        0, 1, WF_AEAD_TAG, WF_AEAD_RECORD + WF_AEAD_TAG + 1, 1u << 31, UINT32_MAX};
    struct wf_aead in = an_aead();
    size_t len;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        memcpy(record[0], &bad[i], 4);
        assert_int_equal(wf_aead_open(&in, record[0], 4, opened, &len), -1);
    }
}

/* ---- parsers ---- */

static bool hello_ok(const struct wf_net_hello *h)
{
    struct wf_net_hello out;
    return wf_net_hello_parse(h, &out) == WEFT_OK && !memcmp(&out, h, sizeof out);
}

#define BAD_HELLO(change)                                                                          \
    do {                                                                                           \
        struct transcript bad = a_transcript(0);                                                   \
        struct wf_net_hello *h = &bad.hello;                                                       \
        h->change;                                                                                 \
        if (hello_ok(h))                                                                           \
            fail_msg("line %d: accepted with %s", __LINE__, #change);                              \
    } while (0)

/* Fails when: a field of a hello is not checked. */
static void test_hello(void **state)
{
    struct transcript t = a_transcript(0);
    struct wf_net_greeting g;
    (void)state;
    assert_true(hello_ok(&t.hello));
    BAD_HELLO(greeting.magic ^= 1);
    BAD_HELLO(greeting.version = 0);
    BAD_HELLO(greeting.version++);
    BAD_HELLO(greeting.role = WF_NET_CHALLENGE);
    BAD_HELLO(greeting.role = WF_NET_REFUSAL);
    BAD_HELLO(greeting.role = 0);
    BAD_HELLO(greeting.role = 200);
    BAD_HELLO(greeting.zero = 1);
    BAD_HELLO(greeting.size++);
    BAD_HELLO(greeting.flags = 2);
    BAD_HELLO(lane = WF_NET_LANES_MAX);
    BAD_HELLO(gen = 0);
    BAD_HELLO(zero = 1);
    BAD_HELLO(from.version++);
    BAD_HELLO(from.size = WF_ADDRESS_BYTES);
    BAD_HELLO(from.process.host = UINT64_C(1) << 56);
    BAD_HELLO(from.process.start = UINT64_C(1) << 40);
    BAD_HELLO(from.process.pid = 0);
    BAD_HELLO(from.process.pid = 1u << 24);
    BAD_HELLO(contact.port = 0);
    BAD_HELLO(contact.count = 0);
    BAD_HELLO(contact.count = WF_CONTACT_IPS + 1);
    BAD_HELLO(contact.count = 255);
    BAD_HELLO(contact.index = 1);
    BAD_HELLO(contact.ip[1][0] = 1); /* beyond count */
    t.hello.greeting.version = WF_NET_VERSION + 1;
    assert_int_equal(wf_net_greeting_parse(&t.hello, WF_NET_HELLO, 0, &g), WEFT_EVERSION);
    assert_int_equal(g.version, WF_NET_VERSION + 1);
    t.hello.greeting.magic = 0x20544547; /* "GET " */
    assert_int_equal(wf_net_greeting_parse(&t.hello, WF_NET_HELLO, 0, &g), WEFT_EPROTO);
}

static enum weft_status refusal(uint16_t version, uint32_t reason, uint32_t zero, uint32_t now_gen)
{
    struct wf_net_refusal r, out;
    wf_net_refusal_make(0, WF_NET_REFUSED_GONE, 0, &r);
    r.greeting.version = version;
    r.greeting.flags = version == WF_NET_VERSION ? 0 : UINT32_MAX;
    r.reason = reason;
    r.zero[1] = zero;
    r.now_gen = now_gen;
    return wf_net_refusal_parse(&r, &out);
}

/* Fails when: a refusal of another version is rejected, or an inconsistent one is accepted. */
static void test_refusal(void **state)
{
    struct transcript t = a_transcript(0);
    struct wf_net_proof p;
    struct wf_net_challenge c;
    (void)state;
    for (uint32_t reason = 0; reason < 8; reason++)
        assert_int_equal(refusal(WF_NET_VERSION, reason, 0, 0) == WEFT_OK,
                         reason == WF_NET_REFUSED_GONE || reason == WF_NET_REFUSED_FLAGS ||
                             reason == WF_NET_REFUSED_BUSY);
    assert_int_equal(refusal(WF_NET_VERSION + 1, WF_NET_REFUSED_VERSION, 0, 0), WEFT_OK);
    assert_int_equal(refusal(WF_NET_VERSION + 1, WF_NET_REFUSED_GONE, 0, 0), WEFT_EPROTO);
    assert_int_equal(refusal(WF_NET_VERSION, WF_NET_REFUSED_GONE, 1, 0), WEFT_EPROTO);
    assert_int_equal(refusal(WF_NET_VERSION, WF_NET_REFUSED_GONE, 0, 7), WEFT_OK);
    assert_int_equal(refusal(WF_NET_VERSION, WF_NET_REFUSED_BUSY, 0, 7), WEFT_EPROTO);
    assert_int_equal(wf_net_proof_parse(&t.proof, &p), WEFT_OK);
    assert_int_equal(wf_net_challenge_parse(&t.challenge, &c), WEFT_OK);
    assert_int_equal(wf_net_proof_parse(&t.challenge, &p), WEFT_EPROTO);
    assert_int_equal(wf_net_challenge_parse(&t.proof, &c), WEFT_EPROTO);
    assert_int_equal(wf_net_challenge_parse(&t.hello, &c), WEFT_EPROTO);
}

/* ---- the key's file ---- */

static char dir[] = "/tmp/weft-key-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static enum weft_status file_read(size_t len, mode_t mode)
{
    const char *path = path_of("key");
    uint8_t got[WF_NET_KEY] = {0};
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    enum weft_status status;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, plain, len), (ssize_t)len);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    status = wf_net_key_read(path, got);
    if (status == WEFT_OK)
        assert_memory_equal(got, plain, sizeof got);
    else
        assert_true(got[0] == 0 && got[31] == 0);
    unlink(path);
    return status;
}

/* Fails when: a key file is accepted that other users can access, or that is no regular file, or
 * too short. */
static void test_key_file(void **state)
{
    uint8_t got[WF_NET_KEY];
    (void)state;
    assert_non_null(mkdtemp(dir));
    OK(file_read(32, 0600));
    OK(file_read(33, 0400));
    assert_int_equal(file_read(31, 0600), WEFT_EINVAL);
    assert_int_equal(file_read(32, 0640), WEFT_EINVAL);
    assert_int_equal(file_read(32, 0604), WEFT_EINVAL);
    assert_int_equal(file_read(32, 0620), WEFT_EINVAL);
    assert_int_equal(file_read(32, 0601), WEFT_EINVAL);
    assert_int_equal(wf_net_key_read(path_of("none"), got), WEFT_EINVAL);
    assert_int_equal(wf_net_key_read(dir, got), WEFT_EINVAL);
    assert_int_equal(mkfifo(path_of("fifo"), 0600), 0);
    assert_int_equal(wf_net_key_read(path_of("fifo"), got), WEFT_EINVAL); /* does not block */
    unlink(path_of("fifo"));
    if (!geteuid()) {
        int fd = open(path_of("foreign"), O_CREAT | O_WRONLY, 0600);
        assert_int_equal(write(fd, plain, 32), 32);
        assert_int_equal(fchown(fd, 12345, 12345), 0);
        close(fd);
        assert_int_equal(wf_net_key_read(path_of("foreign"), got), WEFT_EINVAL);
        unlink(path_of("foreign"));
    }
    rmdir(dir);
}

/* Fails when: a secret of WF_NET_KEY bytes is not the key, or the key derived from another secret
 * differs from other processes' (computed by Python's hashlib.blake2b). */
static void test_secret(void **state)
{
    static const struct {
        size_t len;
        uint8_t key[WF_NET_KEY];
    } made[] = {{16, {0x3c, 0xea, 0x0b, 0x11, 0x7d, 0x37, 0x88, 0x11, 0xa4, 0xe1, 0x65,
                      0xa9, 0xc1, 0x25, 0x66, 0x36, 0x7b, 0xd0, 0x8d, 0x01, 0x28, 0xe2,
                      0xb3, 0x2e, 0xcf, 0xfb, 0x82, 0xf7, 0xcd, 0x70, 0x90, 0xf0}},
                {33, {0x1f, 0xdc, 0xd2, 0xe4, 0xc4, 0xfa, 0x43, 0x7a, 0xb7, 0x83, 0x99,
                      0xbc, 0xa9, 0x50, 0x47, 0xec, 0x41, 0xed, 0xab, 0xf4, 0xe4, 0xf1,
                      0xdf, 0xb0, 0xce, 0x7d, 0xda, 0x51, 0x69, 0xdc, 0x47, 0x72}}};
    uint8_t secret[64], got[WF_NET_KEY];
    (void)state;
    for (unsigned i = 0; i < sizeof secret; i++)
        secret[i] = (uint8_t)i;
    wf_net_key_derive(secret, WF_NET_KEY, got);
    assert_memory_equal(got, secret, sizeof got);
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        wf_net_key_derive(secret, made[i].len, got);
        assert_memory_equal(got, made[i].key, sizeof got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_covered), cmocka_unit_test(test_labels),
        cmocka_unit_test(test_known),   cmocka_unit_test(test_stream_keys),
        cmocka_unit_test(test_records), cmocka_unit_test(test_tampered),
        cmocka_unit_test(test_lengths), cmocka_unit_test(test_hello),
        cmocka_unit_test(test_refusal), cmocka_unit_test(test_key_file),
        cmocka_unit_test(test_secret),
    };
    for (size_t i = 0; i < sizeof plain; i++)
        plain[i] = (uint8_t)test_mix(i);
    memset(key, 0x11, sizeof key);
    memset(other_key, 0x12, sizeof other_key);
    if (wf_net_auth_init() != WEFT_OK)
        return 1;
    return cmocka_run_group_tests_name("net_auth", tests, NULL, NULL);
}
