/* SPDX-License-Identifier: BSD-3-Clause */
/* The parsers of bytes from a TCP peer that is not authenticated: of the handshake's messages; and
 * of AEAD records, which are decrypted before frames are parsed. */
#include "fuzz.h"

#include "transport/net/connect/auth.h"
#include "transport/net/connect/hello.h"

static const uint8_t key[WF_NET_KEY] = "a key";

static size_t seed_record(uint8_t *buf)
{
    struct wf_aead s = {.number = 0};
    memcpy(s.key, key, sizeof s.key);
    return wf_aead_seal(&s, "sixteen bytes...", 16, buf);
}

size_t fuzz_seed(unsigned i, uint8_t *buf, size_t room)
{
    struct wf_dial dial = {.lane = 1, .gen = 1};
    union {
        struct wf_net_hello hello;
        struct wf_net_challenge challenge;
        struct wf_net_proof proof;
        struct wf_net_refusal refusal;
    } m;
    if (room < sizeof m || wf_net_auth_init() != WEFT_OK)
        return 0;
    dial.from = (struct wf_address){
        .version = WF_ADDRESS_VERSION, .size = sizeof dial.from, .process = {.pid = 1}};
    dial.from_contact = (struct wf_contact){.port = 1, .count = 1};
    switch (i) {
    case 0:
        wf_net_hello_make(&dial, 0, &m.hello);
        memset(m.hello.nonce, 7, sizeof m.hello.nonce); /* the same seed in each run */
        break;
    case 1:
        wf_net_challenge_make(WF_NET_ENCRYPT, &m.challenge);
        memset(m.challenge.nonce, 7, sizeof m.challenge.nonce);
        break;
    case 2: wf_net_proof_make(0, &m.proof); break;
    case 3: wf_net_refusal_make(0, WF_NET_REFUSED_GONE, 77, &m.refusal); break;
    case 4:
        wf_net_refusal_make(0, WF_NET_REFUSED_VERSION, 0, &m.refusal);
        m.refusal.greeting.version = 9;
        break;
    case 5: return seed_record(buf);
    default: return 0;
    }
    memcpy(buf, &m, m.hello.greeting.size);
    return m.hello.greeting.size;
}

static void check_hello(const uint8_t *data, size_t size)
{
    struct wf_net_hello h;
    if (size < sizeof h || wf_net_hello_parse(data, &h) != WEFT_OK)
        return;
    FUZZ_CHECK(!memcmp(&h, data, sizeof h));
    FUZZ_CHECK(h.greeting.version == WF_NET_VERSION && h.greeting.size == sizeof h);
    FUZZ_CHECK(h.lane < WF_NET_LANES_MAX && h.gen && h.greeting.flags <= WF_NET_ENCRYPT);
    FUZZ_CHECK(h.from.size == sizeof h.from && (int32_t)h.from.process.pid > 0);
    FUZZ_CHECK(h.contact.port && h.contact.count && h.contact.count <= WF_CONTACT_IPS);
}

static void check_answers(const uint8_t *data, size_t size)
{
    struct wf_net_challenge c;
    struct wf_net_proof p;
    struct wf_net_refusal r;
    if (size >= sizeof c && wf_net_challenge_parse(data, &c) == WEFT_OK)
        FUZZ_CHECK(!memcmp(&c, data, sizeof c) && c.greeting.role == WF_NET_CHALLENGE);
    if (size >= sizeof p && wf_net_proof_parse(data, &p) == WEFT_OK)
        FUZZ_CHECK(!memcmp(&p, data, sizeof p) && p.greeting.role == WF_NET_PROOF);
    if (size >= sizeof r && wf_net_refusal_parse(data, &r) == WEFT_OK) {
        FUZZ_CHECK(r.reason >= WF_NET_REFUSED_GONE && r.reason <= WF_NET_REFUSED_BUSY);
        FUZZ_CHECK(!r.now_gen || r.reason == WF_NET_REFUSED_GONE);
        FUZZ_CHECK(r.greeting.version == WF_NET_VERSION || r.reason == WF_NET_REFUSED_VERSION);
    }
}

/* The size in an accepted greeting is never greater than the room of its receiver. */
static void check_greeting(const uint8_t *data, size_t size)
{
    struct wf_net_greeting g;
    if (size < sizeof g)
        return;
    if (wf_net_greeting_parse(data, WF_NET_CHALLENGE, WF_NET_REFUSAL, &g) == WEFT_OK)
        FUZZ_CHECK(g.size == (g.role == WF_NET_REFUSAL ? sizeof(struct wf_net_refusal)
                                                       : sizeof(struct wf_net_challenge)));
    if (wf_net_greeting_parse(data, WF_NET_HELLO, 0, &g) == WEFT_OK)
        FUZZ_CHECK(g.role == WF_NET_HELLO && g.size == sizeof(struct wf_net_hello));
}

/* The only record that decrypts is the seed, whatever bytes follow it. */
static void check_record(const uint8_t *data, size_t size)
{
    static uint8_t out[WF_AEAD_RECORD];
    struct wf_aead s = {.number = 0};
    uint8_t seed[64];
    size_t len, n = seed_record(seed);
    long used;
    memcpy(s.key, key, sizeof s.key);
    used = wf_aead_open(&s, data, size, out, &len);
    FUZZ_CHECK(used <= (long)size);
    if (used > 0)
        FUZZ_CHECK(used == (long)n && !memcmp(data, seed, n) && len == 16);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (wf_net_auth_init() != WEFT_OK)
        return 0;
    check_greeting(data, size);
    check_hello(data, size);
    check_answers(data, size);
    check_record(data, size);
    return 0;
}
