/* SPDX-License-Identifier: BSD-3-Clause */
/* The packets between a node's service and its clients, and their MACs. */
#define _GNU_SOURCE
#include "unit.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "node/packet.h"

static const int fds_of_type[WF_NODE_TYPES] = {
    [WF_NODE_WELCOME] = 3, [WF_NODE_RING] = 2, [WF_NODE_RING_OK] = 1, [WF_NODE_SLAB] = 1};
#ifdef WF_HAVE_VERBS
#define LANES_HERE WF_NODE_RDMA
#else
#define LANES_HERE WF_NODE_TCP
#endif

static const uint8_t key[WF_NODE_KEY] = "node_packet_test", other_key[WF_NODE_KEY] = "another";

/* A packet of [type] that is right in all its fields. */
static struct wf_node_packet good(unsigned type)
{
    struct wf_node_packet p;
    wf_node_packet_init(&p, (enum wf_node_type)type);
    if (type == WF_NODE_HELLO) {
        p.u.hello.role = WF_NODE_ATTACH;
        p.u.hello.self.pid = 1;
    }
    if (type == WF_NODE_WELCOME)
        p.u.welcome = (struct wf_node_welcome){.incarnation = 1, .line = 1, .contact = {7, 1}};
    if (type == WF_NODE_REFUSAL)
        p.u.refused.reason = WF_NODE_REFUSED_BUSY;
    if (type == WF_NODE_RING)
        p.u.ring = (struct wf_node_ring){{.version = WF_ADDRESS_VERSION,
                                          .size = sizeof(struct wf_address),
                                          .process = {.pid = 1}},
                                         {.count = 1, .node = 1, .rdma = 7},
                                         262144,
                                         4096};
    if (type == WF_NODE_RING_NO)
        p.u.ring_no.status = WEFT_ELIMIT;
    if (type == WF_NODE_NODE)
        p.u.node.contact = (struct wf_contact){.port = 1, .count = 1};
    if (type == WF_NODE_ROW)
        p.u.row.pid = 1;
    if (type == WF_NODE_RESOURCE)
        p.u.resource = (struct wf_node_resource){396, 1, "queue pairs"};
    if (type == WF_NODE_SLAB)
        p.u.slab = (struct wf_node_slab){.id = 1, .size = 4096};
    if (type == WF_NODE_UNSLAB)
        p.u.slab.id = 1;
    return p;
}

static int parse(const struct wf_node_packet *p, int nfds)
{
    struct wf_node_packet out;
    memset(&out, 0x5a, sizeof out);
    if (wf_node_packet_parse(p, sizeof *p, nfds, &out) == WEFT_OK) {
        assert_memory_equal(&out, p, sizeof out);
        return 1;
    }
    for (size_t i = 0; i < sizeof out; i++) /* nothing is handed out of a refused one */
        assert_int_equal(((unsigned char *)&out)[i], 0x5a);
    return 0;
}

/* Fails when: a packet with a wrong number of descriptors passes. */
static void test_types(void **state)
{
    (void)state;
    for (unsigned type = 0; type < 256; type++)
        for (int nfds = -2; nfds < 8; nfds++) {
            struct wf_node_packet p = good(type);
            int fds = type < WF_NODE_TYPES ? fds_of_type[type] : 0;
            int known = type && type < WF_NODE_TYPES;
            int most = type == WF_NODE_WELCOME ? WF_NODE_FDS : fds; /* one or two addresses */
            assert_int_equal(parse(&p, nfds),
                             known && ((nfds >= fds && nfds <= most) || (nfds == -1 && fds)));
        }
}

/* Fails when: the frame of a packet, or a byte that its type does not use, is not checked; or a
 * packet of another version is reported as garbage. */
static void test_frame(void **state)
{
    (void)state;
    for (unsigned type = 1; type < WF_NODE_TYPES; type++) {
        struct wf_node_packet p = good(type), out;
        uint8_t raw[2 * sizeof p] = {0};
        int fds = fds_of_type[type];
        memcpy(raw, &p, sizeof p);
        for (size_t len = 0; len < sizeof raw; len++)
            if (len != sizeof p)
                assert_int_equal(wf_node_packet_parse(raw, len, fds, &out), WEFT_EPROTO);
        p.magic ^= 1;
        assert_false(parse(&p, fds));
        p = good(type);
        p.size--;
        assert_false(parse(&p, fds));
        p = good(type);
        p.flags = 2;
        assert_false(parse(&p, fds));
        p.flags = WF_NODE_MEMBARRIER;
        assert_true(parse(&p, fds));
        p = good(type);
        p.u.room[sizeof p.u.room - 1] = 1;
        assert_false(parse(&p, fds));
        p = good(type);
        p.version++;
        assert_int_equal(wf_node_packet_parse(&p, sizeof p, fds, &out), WEFT_EVERSION);
        assert_int_equal(out.version, WF_NODE_VERSION + 1);
        assert_int_equal(wf_node_packet_parse(&p, 8, 0, &out), WEFT_EVERSION); /* a shorter one */
    }
}

#define BAD(type, change)                                                                          \
    do {                                                                                           \
        struct wf_node_packet p = good(type);                                                      \
        p.change;                                                                                  \
        if (parse(&p, fds_of_type[type]))                                                          \
            fail_msg("line %d: taken with %s", __LINE__, #change);                                 \
    } while (0)
#define GOOD(type, change)                                                                         \
    do {                                                                                           \
        struct wf_node_packet p = good(type);                                                      \
        p.change;                                                                                  \
        if (!parse(&p, fds_of_type[type]))                                                         \
            fail_msg("line %d: refused with %s", __LINE__, #change);                               \
    } while (0)

/* Fails when: a field of a packet is used without a check of its range. */
static void test_fields(void **state)
{
    (void)state;
    BAD(WF_NODE_HELLO, u.hello.role = 0);
    BAD(WF_NODE_HELLO, u.hello.role = WF_NODE_ROLES);
    BAD(WF_NODE_HELLO, u.hello.held = 1); /* of no incarnation */
    BAD(WF_NODE_HELLO, u.hello.last = 1); /* but no index */
    BAD(WF_NODE_HELLO, u.hello.line = 1);
    BAD(WF_NODE_HELLO, u.hello.held = p.u.hello.last = 1); /* of no line */
    BAD(WF_NODE_HELLO, u.hello.self.pid = 0);
    BAD(WF_NODE_HELLO, u.hello.self.pid = 0x80000000u);
    GOOD(WF_NODE_HELLO, u.hello.held = p.u.hello.last = p.u.hello.line = 4096);
    BAD(WF_NODE_HELLO, u.hello.held = p.u.hello.last = p.u.hello.line = 4097);
    BAD(WF_NODE_HELLO,
        u.hello.held = p.u.hello.last = p.u.hello.line = p.u.hello.role = WF_NODE_LIST);
    GOOD(WF_NODE_HELLO, u.hello.role = WF_NODE_STOP);
    BAD(WF_NODE_PROOF, u.proof.parameters.zero[3] = 1);
    BAD(WF_NODE_WELCOME, u.welcome.incarnation = 0);
    BAD(WF_NODE_WELCOME, u.welcome.line = 0);
    GOOD(WF_NODE_WELCOME, u.welcome.window = wf_node_window(4095, WF_NODE_WINDOW_ROUNDS));
    BAD(WF_NODE_WELCOME, u.welcome.window = wf_node_window(4095, WF_NODE_WINDOW_ROUNDS) + 1);
    BAD(WF_NODE_WELCOME, u.welcome.share.name[0] = 'x'); /* of no window */
    GOOD(WF_NODE_WELCOME, u.welcome.share.name[0] = 'x'; p.u.welcome.window = 4097);
    GOOD(WF_NODE_WELCOME, u.welcome.index = 4095);
    BAD(WF_NODE_WELCOME, u.welcome.index = 4096);
    BAD(WF_NODE_WELCOME, u.welcome.contact.port = 0);
    BAD(WF_NODE_WELCOME, u.welcome.contact.rdma = 1);
    GOOD(WF_NODE_WELCOME, u.welcome.contact = ((struct wf_contact){.rdma = 1, .count = 1}));
    BAD(WF_NODE_WELCOME, u.welcome.contact.node = 1);
    BAD(WF_NODE_REFUSAL, u.refused.reason = 0);
    BAD(WF_NODE_REFUSAL, u.refused.reason = WF_NODE_REASONS);
    BAD(WF_NODE_REFUSAL, u.refused.ends = 2);
    BAD(WF_NODE_REFUSAL, u.refused.parameters.zero[0] = 1);
    GOOD(WF_NODE_RING, u.ring.bytes = WF_NODE_RING_MAX);
    BAD(WF_NODE_RING, u.ring.bytes = WF_NODE_RING_MIN / 2);
    BAD(WF_NODE_RING, u.ring.bytes = 2 * WF_NODE_RING_MAX);
    BAD(WF_NODE_RING, u.ring.bytes = 262143);
    BAD(WF_NODE_RING, u.ring.am_max = 448);
    BAD(WF_NODE_RING, u.ring.am_max = 513);
    BAD(WF_NODE_RING, u.ring.am_max = 32768);
    BAD(WF_NODE_RING, u.ring.from.version++);
    GOOD(WF_NODE_RING, u.ring.contact.index = 4095);
    BAD(WF_NODE_RING, u.ring.contact.index = 4096);
    GOOD(WF_NODE_RING, u.ring.contact.node = WF_NODE_RDMA);
    BAD(WF_NODE_RING, u.ring.contact.node = 3);
    BAD(WF_NODE_RING, u.ring.contact.node = 0);
    BAD(WF_NODE_RING, u.ring.contact.rdma = 0);
    BAD(WF_NODE_RING, u.ring.from.process.pid = 0);
    BAD(WF_NODE_RING_NO, u.ring_no.status = 0);
    BAD(WF_NODE_RING_NO, u.ring_no.status = WEFT_AGAIN);
    GOOD(WF_NODE_RING_NO, u.ring_no.status = WEFT_ELOST);
    BAD(WF_NODE_RING_NO, u.ring_no.status = WEFT_ELOST - 1); /* no status */
    BAD(WF_NODE_RING_NO, u.ring_no.status = INT32_MIN);
    BAD(WF_NODE_UNRING, u.unring.zero = 1);
    BAD(WF_NODE_UNRING_OK, u.unring.zero = 1);
    BAD(WF_NODE_NODE, u.node.contact.port = 0);
    BAD(WF_NODE_NODE, u.node.contact.count = 3);
    BAD(WF_NODE_NODE, u.node.contact.rdma = 1);
    GOOD(WF_NODE_NODE, u.node.contact = ((struct wf_contact){.rdma = 1, .count = 1}));
    BAD(WF_NODE_NODE, u.node.zero = 1);
    BAD(WF_NODE_NODE_OK, u.node_ok.word = WF_NODE_NO_WORD);
    BAD(WF_NODE_NODE_OK, u.node_ok.status = 1);
    BAD(WF_NODE_NODE_OK, u.node_ok.status = -1000);
    GOOD(WF_NODE_NODE_OK, u.node_ok.status = WEFT_ELIMIT);
    BAD(WF_NODE_NODE_OK, u.node_ok = ((struct wf_node_other_ok){1, WEFT_ELIMIT}));
    GOOD(WF_NODE_LOG, u.log.text[0] = 'x');
    BAD(WF_NODE_LOG, u.log.text[1] = 'x'); /* behind its end */
    BAD(WF_NODE_LOG, u.log.text[0] = '\n');
    BAD(WF_NODE_RESOURCE, u.resource.name[0] = 0);
    BAD(WF_NODE_RESOURCE, u.resource.name[0] = '"');
    BAD(WF_NODE_RESOURCE, u.resource.name[0] = '\\');
    BAD(WF_NODE_RESOURCE, u.resource.name[20] = 'x'); /* behind its end */
    BAD(WF_NODE_RESOURCE,
        u.resource = *(struct wf_node_resource *)memset(&p.u.log, 'x', sizeof p.u.resource));
    BAD(WF_NODE_LOG, u.log.text[0] = 0x7f);
    BAD(WF_NODE_LOG, u.log.level = WF_LOG_DEBUG + 1);
    BAD(WF_NODE_LOG, u.log = *(struct wf_node_line *)memset(&p.u.log, 'x', sizeof p.u.log));
    BAD(WF_NODE_ROW, u.row.pid = 0);
    BAD(WF_NODE_ROW, u.row.index = 4096);
    GOOD(WF_NODE_ROW, u.row.index = WF_NODE_NO_INDEX);
    BAD(WF_NODE_ROW, u.row.clients = 1); /* in the service's own row only */
    GOOD(WF_NODE_ROW,
         u.row = ((struct wf_node_row){.index = WF_NODE_NO_INDEX, .pid = 1, .clients = 1}));
    GOOD(WF_NODE_SLAB, u.slab.read_only = 1);
    BAD(WF_NODE_SLAB, u.slab.read_only = 2);
    GOOD(WF_NODE_SLAB, u.slab.size = SIZE_MAX / 2);
    BAD(WF_NODE_SLAB, u.slab.size = SIZE_MAX / 2 + 1);
    BAD(WF_NODE_SLAB, u.slab.size = 0);
    BAD(WF_NODE_SLAB, u.slab.zero = 1);
    BAD(WF_NODE_SLAB, u.slab.id = 0); /* the region table has a size */
    GOOD(WF_NODE_SLAB, u.slab = ((struct wf_node_slab){.size = sizeof(struct wf_node_regions)}));
    BAD(WF_NODE_SLAB, u.slab = ((struct wf_node_slab){0, sizeof(struct wf_node_regions), 1, 0}));
    BAD(WF_NODE_SLAB, u.slab = ((struct wf_node_slab){0, sizeof(struct wf_node_regions), 0, 1}));
    BAD(WF_NODE_SLAB,
        u.slab = ((struct wf_node_slab){0, sizeof(struct wf_node_regions) - 1, 0, 0}));
    BAD(WF_NODE_UNSLAB, u.slab.id = 0); /* the region table stays */
    BAD(WF_NODE_UNSLAB, u.slab.size = 1);
    BAD(WF_NODE_UNSLAB, u.slab.read_only = 1);
    BAD(WF_NODE_UNSLAB, u.slab.zero = 1);
}

/* Fails when: a packet changes in transit, or the receiver keeps more than its descriptors. */
static void test_round_trip(void **state)
{
    int s[2], fds[WF_NODE_FDS], nfds, files, give[6] = {0, 1, 2, 0, 1, 2};
    struct wf_node_packet p, out;
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
    files = test_open_files();
    for (unsigned type = 1; type < WF_NODE_TYPES; type++) {
        p = good(type);
        assert_int_equal(wf_node_packet_send(s[0], &p, give, fds_of_type[type]), 0);
        OK(wf_node_packet_recv(s[1], &out, fds, &nfds));
        assert_memory_equal(&p, &out, sizeof p);
        assert_int_equal(nfds, fds_of_type[type]);
        wf_seqpacket_drop(fds, WF_NODE_FDS, nfds);
        assert_int_equal(wf_node_packet_send(s[0], &p, give, 6), 0);
        assert_int_equal(wf_node_packet_recv(s[1], &out, fds, &nfds), WEFT_EPROTO);
    }
    assert_int_equal(wf_node_packet_recv(s[1], &out, fds, &nfds), WEFT_AGAIN);
    assert_int_equal(test_open_files(), files);
    close(s[0]);
    assert_int_equal(wf_node_packet_recv(s[1], &out, fds, &nfds), WEFT_ECLOSED);
    close(s[1]);
}

/* Fails when: a MAC verifies with a changed byte or another key, or as a MAC of the other kind. */
static void test_macs(void **state)
{
    struct wf_node_packet hello = good(WF_NODE_HELLO), challenge = good(WF_NODE_CHALLENGE),
                          proof = good(WF_NODE_PROOF);
    uint8_t *const bytes[] = {(uint8_t *)&hello, (uint8_t *)&challenge,
                              (uint8_t *)&proof.u.proof.parameters};
    const size_t sizes[] = {sizeof hello, 16 + WF_NODE_NONCE + WF_NODE_MAC, 48};
    (void)state;
    OK(wf_node_mac_init());
    wf_node_nonce(hello.u.hello.nonce);
    wf_node_nonce(challenge.u.challenge.nonce);
    wf_node_parameters_here(&proof.u.proof.parameters);
    wf_node_challenge_sign(key, &hello, &challenge);
    wf_node_proof_sign(key, &hello, &challenge, &proof);
    assert_true(wf_node_challenge_verify(key, &hello, &challenge));
    assert_true(wf_node_proof_verify(key, &hello, &challenge, &proof));
    assert_false(wf_node_challenge_verify(other_key, &hello, &challenge));
    assert_false(wf_node_proof_verify(other_key, &hello, &challenge, &proof));
    for (int part = 0; part < 3; part++)
        for (size_t i = 0; i < sizes[part]; i++) {
            int in_mac = part == 1 && i >= 16 + WF_NODE_NONCE;
            bytes[part][i] ^= 1;
            if (part < 2)
                assert_false(wf_node_challenge_verify(key, &hello, &challenge));
            if (!in_mac) /* the proof covers the challenge up to its MAC */
                assert_false(wf_node_proof_verify(key, &hello, &challenge, &proof));
            bytes[part][i] ^= 1;
        }
    memcpy(proof.u.proof.mac, challenge.u.challenge.mac, WF_NODE_MAC);
    assert_false(wf_node_proof_verify(key, &hello, &challenge, &proof));
}

/* Fails when: a parameter is not compared, or is reported by another one's name. */
static void test_parameters(void **state)
{
    static const char *const names[] = {
        "WEFT_NODE_CONNECTIONS", "WEFT_NODE_INDEX_BITS", "longest payload", "WEFT_NODE_RING",
        "WEFT_NODE_RECEIVES",    "WEFT_TCP_ENCRYPT",     "lanes ",          "version "};
    struct wf_node_parameters a, b;
    uint32_t mine, theirs;
    (void)state;
    wf_node_parameters_here(&a);
    assert_null(wf_node_parameters_differ(&a, &a, &mine, &theirs));
    assert_true(a.connections == 4 && a.index_bits == 9 && a.am_max == 32704 && a.ring == 262144);
    assert_true(a.receives == 2048 && !a.encrypt && a.lanes == LANES_HERE);
    for (size_t i = 0; i < 8; i++) {
        const char *name;
        b = a;
        ((uint32_t *)&b)[i]++;
        name = wf_node_parameters_differ(&a, &b, &mine, &theirs);
        assert_non_null(name);
        assert_int_equal(strncmp(name, names[i], strlen(names[i])), 0);
        assert_true(mine == ((uint32_t *)&a)[i] && theirs == mine + 1);
    }
}

/* ---- versions ---- */

static uint64_t layout_hash(const uint32_t *values, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        h = (h ^ values[i]) * 0x100000001b3u;
    return h;
}

#define AT(type, field) offsetof(struct type, field), sizeof(((struct type *)0)->field)

/* Fails when: a packet, or the memory that service and client share, has another layout and the
 * same version (packet.h compares the statuses). Count the version up, then write the new number
 * and hash here, and the bytes into docs/protocol.md or layout.h. The corpus of fuzz/node_packet
 * has the version, too. */
static void test_versions(void **state)
{
    const uint32_t packets[] = {WF_ADDRESS_VERSION,
                                WF_NODE_RDMA,
                                WF_LOG_DEBUG,
                                WF_NODE_TYPES,
                                WF_NODE_ROLES,
                                WF_NODE_REASONS,
                                WF_NODE_MEMBARRIER,
                                (uint32_t)fds_of_type[WF_NODE_WELCOME],
                                (uint32_t)fds_of_type[WF_NODE_RING],
                                (uint32_t)fds_of_type[WF_NODE_RING_OK],
                                AT(wf_node_packet, cookie),
                                AT(wf_node_packet, u),
                                AT(wf_node_parameters, shared_version),
                                AT(wf_node_hello, line),
                                AT(wf_node_hello, self),
                                AT(wf_node_challenge, mac),
                                AT(wf_node_proof, parameters),
                                AT(wf_node_welcome, line),
                                AT(wf_node_welcome, contact),
                                AT(wf_node_welcome, share),
                                AT(wf_node_refused, ends),
                                AT(wf_node_ring, am_max),
                                AT(wf_node_unring, ep_gen),
                                AT(wf_node_other, user),
                                AT(wf_node_other_ok, word),
                                AT(wf_node_line, text),
                                AT(wf_node_row, most_descriptors),
                                AT(wf_node_resource, name),
                                AT(wf_node_slab, read_only),
                                sizeof(struct wf_address),
                                sizeof(struct wf_contact)};
    const uint64_t word = wf_node_session_word(1, WF_NODE_UP, wf_node_word_name(2, 3));
    const uint32_t shared[] = {WF_NODE_SLOTS,
                               WF_NODE_PLACES,
                               WF_NODE_WORDS,
                               WF_NODE_BLOCK,
                               WF_NODE_SENDER,
                               WF_NODE_FLAGS,
                               WF_NODE_END,
                               WF_NODE_MOVE,
                               WF_NODE_WRITTEN,
                               WF_NODE_MOVES,
                               WF_NODE_MOVE_ENDS,
                               WF_NODE_MOVE_KINDS,
                               WF_NODE_STATES,
                               wf_node_word(1, WF_NODE_ROOM),
                               wf_node_word_name(2, 3),
                               (uint32_t)word,
                               (uint32_t)(word >> 32),
                               wf_node_submit_blocks_at(1 << 20),
                               wf_node_payload_at(1 << 20),
                               wf_node_reply_blocks_at(1 << 20),
                               AT(wf_node_entry, session),
                               AT(wf_node_entry, use),
                               AT(wf_node_entry, move),
                               AT(wf_node_move, incarnation),
                               AT(wf_node_region, access),
                               (uint32_t)(wf_node_region_at(1) >> 32),
                               wf_node_submit_bytes(1 << 20),
                               wf_node_event_bytes(1 << 20),
                               WF_NODE_BUFFER,
                               AT(wf_node_record, attempt),
                               AT(wf_node_submit, events),
                               AT(wf_node_submit, records),
                               AT(wf_node_slot, near),
                               AT(wf_node_slot, far),
                               AT(wf_node_slot, moved),
                               AT(wf_node_place, room),
                               AT(wf_node_event, overflow),
                               AT(wf_node_event, slots),
                               AT(wf_node_event, places),
                               AT(wf_node_page, sleep_epoch),
                               AT(wf_node_page, words),
                               AT(wf_node_page, pids),
                               AT(wf_node_page, left)};
    uint64_t h = layout_hash(packets, WF_ARRAY_LEN(packets));
    (void)state;
    if (WF_NODE_VERSION != 10 || h != UINT64_C(0xed5ec9d3d44edc46))
        fail_msg("packets of version %d have the hash 0x%llx", WF_NODE_VERSION,
                 (unsigned long long)h);
    h = layout_hash(shared, WF_ARRAY_LEN(shared));
    if (WF_NODE_SHARED_VERSION != 8 || h != UINT64_C(0x89eadd9a21ddecfa))
        fail_msg("shared memory of version %d has the hash 0x%llx", WF_NODE_SHARED_VERSION,
                 (unsigned long long)h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),    cmocka_unit_test(test_frame),
        cmocka_unit_test(test_fields),   cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_macs),     cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_versions),
    };
    return cmocka_run_group_tests_name("node_packet", tests, NULL, NULL);
}
