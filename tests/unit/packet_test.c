/* SPDX-License-Identifier: BSD-3-Clause */
/* Service packets, addresses and keys: the parsers of bytes from other processes. */
#define _GNU_SOURCE
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/shm/packet.h"

static const int fds_of_type[WF_PACKET_TYPES] = {[WF_PACKET_WELCOME] = 2,
                                                 [WF_PACKET_RING] = 3,
                                                 [WF_PACKET_RING_OK] = 1,
                                                 [WF_PACKET_SLAB_OK] = 1};

/* A packet of [type] that is right in all its fields. */
static struct wf_packet good(unsigned type)
{
    struct wf_packet p = {.magic = WF_PACKET_MAGIC,
                          .version = WF_PACKET_VERSION,
                          .type = (uint8_t)type,
                          .size = sizeof p};
    if (type == WF_PACKET_HELLO)
        p.u.hello.pid = 1;
    if (type == WF_PACKET_RING) {
        p.u.ring.from =
            (struct wf_address){.version = WF_ADDRESS_VERSION, .size = sizeof p.u.ring.from};
        p.u.ring.from.process.pid = 1;
        p.u.ring.geometry = (struct wf_shm_geometry){512, 65536, 4032, 16};
    }
    if (type == WF_PACKET_RING_NO)
        p.u.ring_no.status = WEFT_ECLOSED;
    if (type == WF_PACKET_SLAB_OK)
        p.u.slab.size = 4096;
    if (type == WF_PACKET_SLAB_NO)
        p.u.slab.status = WEFT_EKEY;
    return p;
}

static int parse(const struct wf_packet *p, int nfds)
{
    struct wf_packet out;
    memset(&out, 0x5a, sizeof out);
    if (!wf_packet_parse(p, sizeof *p, nfds, &out)) {
        assert_memory_equal(&out, p, sizeof out);
        return 1;
    }
    for (size_t i = 0; i < sizeof out; i++) /* a refused packet yields nothing */
        assert_int_equal(((unsigned char *)&out)[i], 0x5a);
    return 0;
}

/* Fails when: a packet with a wrong number of descriptors passes. */
static void test_types(void **state)
{
    (void)state;
    for (unsigned type = 0; type < 256; type++)
        for (int nfds = -2; nfds < 8; nfds++) {
            struct wf_packet p = good(type);
            int known = type && type < WF_PACKET_TYPES;
            int want = known &&
                       (nfds == fds_of_type[type] || (nfds == WF_PACKET_LOST && fds_of_type[type]));
            assert_int_equal(parse(&p, nfds), want);
        }
}

/* Fails when: the frame of a packet is not checked. */
static void test_frame(void **state)
{
    (void)state;
    for (unsigned type = 1; type < WF_PACKET_TYPES; type++) {
        struct wf_packet p = good(type), out;
        unsigned char raw[2 * sizeof p] = {0};
        memcpy(raw, &p, sizeof p);
        for (size_t len = 0; len < sizeof raw; len++)
            if (len != sizeof p)
                assert_int_not_equal(wf_packet_parse(raw, len, fds_of_type[type], &out), 0);
        p.magic ^= 1;
        assert_false(parse(&p, fds_of_type[type]));
        p = good(type);
        p.version++;
        assert_false(parse(&p, fds_of_type[type]));
        p = good(type);
        p.size--;
        assert_false(parse(&p, fds_of_type[type]));
    }
}

#define BAD(type, change)                                                                          \
    do {                                                                                           \
        struct wf_packet p = good(type);                                                           \
        p.change;                                                                                  \
        if (parse(&p, fds_of_type[type]))                                                          \
            fail_msg("line %d: taken with %s", __LINE__, #change);                                 \
    } while (0)

/* Fails when: a field of a packet is used without a check of its range. */
static void test_fields(void **state)
{
    (void)state;
    BAD(WF_PACKET_RING_OK, u.ring_ok.bell = WF_SHM_BELLS);
    BAD(WF_PACKET_RING_OK, u.ring_ok.bit = WF_SHM_BELL_BITS);
    BAD(WF_PACKET_HELLO, u.hello.pid = 0);
    BAD(WF_PACKET_HELLO, u.hello.pid = 0x80000000u);
    for (unsigned type = WF_PACKET_HELLO; type <= WF_PACKET_WELCOME; type++) {
        BAD(type, u.greeting.mark = 4096);
        BAD(type, u.greeting.tid = 1);
        BAD(type, u.greeting = ((struct wf_packet_greeting){{.pid = 1}, 4096, 0x80000000u, 0}));
        BAD(type, u.greeting.zero = 1);
    }
    BAD(WF_PACKET_RING_NO, u.ring_no.status = 0);
    BAD(WF_PACKET_RING_NO, u.ring_no.status = WEFT_AGAIN);
    BAD(WF_PACKET_RING_NO, u.ring_no.status = INT32_MIN);
    BAD(WF_PACKET_SLAB_NO, u.slab.status = 0);
    BAD(WF_PACKET_SLAB_NO, u.slab.status = WEFT_PENDING);
    BAD(WF_PACKET_SLAB_NO, u.slab.status = INT32_MIN);
    BAD(WF_PACKET_SLAB_OK, u.slab.size = 0);
    BAD(WF_PACKET_SLAB_OK, u.slab.size = UINT64_MAX);
    BAD(WF_PACKET_RING, u.ring.from.version = WF_ADDRESS_VERSION + 1);
    BAD(WF_PACKET_RING, u.ring.from.size = 63);
    BAD(WF_PACKET_RING, u.ring.from.process.pid = 0);
    BAD(WF_PACKET_RING, u.ring.geometry.slots = 0);
    BAD(WF_PACKET_RING, u.ring.geometry.slots = 500);
    BAD(WF_PACKET_RING, u.ring.geometry.slots = 131072);
    BAD(WF_PACKET_RING, u.ring.geometry.payload = 0);
    BAD(WF_PACKET_RING, u.ring.geometry.payload = 65537);
    BAD(WF_PACKET_RING, u.ring.geometry.payload = 1u << 31);
    BAD(WF_PACKET_RING, u.ring.geometry.am_max = 4033);
    BAD(WF_PACKET_RING, u.ring.geometry.am_max = 0);
    BAD(WF_PACKET_RING, u.ring.geometry.am_max = 65536);
    BAD(WF_PACKET_RING, u.ring.geometry.am_max = UINT32_MAX - 63);
    BAD(WF_PACKET_RING, u.ring.geometry.places = 0);
    BAD(WF_PACKET_RING, u.ring.geometry.places = 65);
}

/* Fails when: a failure that weft.h names is refused, or another status passes. */
static void test_statuses(void **state)
{
    (void)state;
    for (int32_t status = -64; status <= WEFT_AGAIN; status++) {
        struct wf_packet ring = good(WF_PACKET_RING_NO), slab = good(WF_PACKET_SLAB_NO);
        int known = status < 0 && status >= WEFT_ELOST;
        ring.u.ring_no.status = status;
        slab.u.slab.status = status;
        assert_int_equal(parse(&ring, 0), known);
        assert_int_equal(parse(&slab, 0), known);
    }
}

/* Fails when: sizes computed from an accepted geometry overflow, or the parts
 * of a segment overlap or are misaligned. */
static void test_geometry(void **state)
{
    const uint32_t slots[] = {16, 512, 65536}, payloads[] = {4096, 65536, 1u << 24},
                   maxima[] = {512, 4032, 32704};
    unsigned accepted = 0;
    (void)state;
    for (int s = 0; s < 3; s++)
        for (int b = 0; b < 3; b++)
            for (int m = 0; m < 3; m++)
                for (uint32_t places = 1; places <= 64; places += 63) {
                    struct wf_shm_geometry g = {slots[s], payloads[b], maxima[m], places};
                    size_t fwd = wf_shm_fwd_size(&g), back = wf_shm_back_size(&g);
                    if (!wf_shm_geometry_ok(&g))
                        continue;
                    accepted++;
                    assert_true(fwd >= 64 + (size_t)g.slots * 64);
                    assert_true(back >= 128 + (size_t)g.slots * 128 + g.payload +
                                            (size_t)places * g.am_max);
                    assert_int_equal(wf_shm_payload_at(&g) % 64, 0);
                    assert_int_equal(wf_shm_places_at(&g) % 64, 0);
                    assert_true(!(fwd & 4095) && !(back & 4095) && fwd < 1u << 30);
                }
    assert_int_equal(accepted, 2 * 3 * 7); /* the smallest payload area holds only 512 */
    assert_int_equal(offsetof(struct wf_shm_fwd, lines) % 64, 0);
    assert_int_equal(offsetof(struct wf_shm_back, replies) % 64, 0);
}

/* Fails when: the small copy reads or writes a byte beside its range. */
static void test_copy_small(void **state)
{
    _Alignas(16) unsigned char dst[96];
    (void)state;
    for (size_t n = 0; n <= 64; n++)
        for (size_t shift = 0; shift < 16; shift++) {
            unsigned char *src = malloc(n + shift + 1); /* exact: a sanitizer sees more */
            memset(dst, 0x77, sizeof dst);
            test_fill(src + shift, n, n);
            wf_copy_small(dst + 16, src + shift, n);
            assert_true(test_same(dst + 16, n, n));
            for (size_t i = 0; i < 16; i++)
                assert_int_equal(dst[i], 0x77);
            for (size_t i = 16 + ((n + 15) & ~(size_t)15); i < sizeof dst; i++)
                assert_int_equal(dst[i], 0x77);
            free(src);
        }
}

static void sock_pair(int s[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
}

/* Raw bytes with [nfds] copies of descriptor 0. */
static void send_raw(int sock, const void *bytes, size_t len, int nfds)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(32 * sizeof(int))];
    } control;
    struct iovec iov = {(void *)(uintptr_t)bytes, len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    memset(&control, 0, sizeof control);
    if (nfds) {
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
        control.align.cmsg_level = SOL_SOCKET;
        control.align.cmsg_type = SCM_RIGHTS;
        control.align.cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
        memset(CMSG_DATA(&control.align), 0, (size_t)nfds * sizeof(int));
    }
    assert_int_equal(sendmsg(sock, &msg, 0), (ssize_t)len);
}

/* Fails when: a packet or its descriptors change in transit, or exec inherits them. */
static void test_round_trip(void **state)
{
    int s[2], fds[WF_PACKET_FDS], nfds, files;
    (void)state;
    sock_pair(s);
    files = test_open_files();
    for (unsigned type = 1; type < WF_PACKET_TYPES; type++) {
        struct wf_packet p = good(type), out;
        int give[3] = {0, 1, 2};
        p.cookie = type * 77;
        assert_int_equal(wf_packet_send(s[0], &p, type, give, fds_of_type[type]), 0);
        assert_int_equal(wf_packet_recv(s[1], &out, fds, &nfds), 1);
        assert_memory_equal(&p, &out, sizeof p);
        assert_int_equal(nfds, fds_of_type[type]);
        for (int i = 0; i < nfds; i++) {
            assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
            close(fds[i]);
        }
    }
    assert_int_equal(test_open_files(), files);
    assert_int_equal(wf_packet_recv(s[1], &(struct wf_packet){0}, fds, &nfds), -1);
    assert_true(errno == EAGAIN || errno == EWOULDBLOCK);
    close(s[0]);
    assert_int_equal(wf_packet_recv(s[1], &(struct wf_packet){0}, fds, &nfds), 0);
    close(s[1]);
}

/* Fails when: descriptors of a refused packet stay open. */
static void test_no_descriptor_leaks(void **state)
{
    const size_t lens[] = {0, 1, 127, 128, 129, 4096};
    unsigned char raw[4096];
    int s[2], fds[WF_PACKET_FDS], nfds, files;
    (void)state;
    sock_pair(s);
    files = test_open_files();
    memset(raw, 0xff, sizeof raw);
    for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++)
        for (int n = 0; n <= 20; n++) {
            struct wf_packet p = good(1 + (unsigned)n % (WF_PACKET_TYPES - 1)), out;
            if (lens[i] >= sizeof p && n & 1)
                memcpy(raw, &p, sizeof p);
            if (!wf_packet_parse(raw, lens[i], n, &out))
                continue; /* that one is right */
            send_raw(s[0], raw, lens[i], n);
            assert_true(wf_packet_recv(s[1], &out, fds, &nfds) <= 0);
            if (test_open_files() != files)
                fail_msg("%zu bytes with %d descriptors: %d stay open", lens[i], n,
                         test_open_files() - files);
        }
    close(s[0]);
    close(s[1]);
}

/* Fails when: a packet whose descriptors find no room in this process is refused, accepted as if
 * they were there, or leaves some open. */
static void test_out_of_descriptors(void **state)
{
    struct rlimit old, few;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    for (unsigned type = 1; type < WF_PACKET_TYPES; type++)
        for (int room = 0; room < fds_of_type[type]; room++) {
            int s[2], fds[WF_PACKET_FDS], nfds = 0, files, got;
            struct wf_packet p = good(type), out;
            sock_pair(s);
            files = test_open_files();
            assert_int_equal(wf_packet_send(s[0], &p, type, (int[]){0, 1, 2}, fds_of_type[type]),
                             0);
            few = old;
            few.rlim_cur = (rlim_t)s[1] + 1 + (rlim_t)room;
            assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
            got = wf_packet_recv(s[1], &out, fds, &nfds);
            assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
            assert_int_equal(got, 1);
            assert_int_equal(nfds, WF_PACKET_LOST);
            assert_int_equal(test_open_files(), files);
            close(s[0]);
            close(s[1]);
        }
}

static enum weft_status key_parse(struct wf_key *k)
{
    struct wf_key out;
    k->check = wf_key_check(k);
    return wf_key_parse(k, sizeof *k, &out);
}

static const struct wf_address an_address = {.version = WF_ADDRESS_VERSION,
                                             .size = sizeof an_address,
                                             .ep = 0x1234,
                                             .ep_gen = 0x56789abc,
                                             .process = {.host = 0xfedcba98765432,
                                                         .start = 0xabcdef0123,
                                                         .token = {UINT64_MAX - 1, 77},
                                                         .user = 0x87654321,
                                                         .pid = 0x3fffff}};

/* Contacts that address bytes can hold. */
static const struct wf_contact contacts[] = {
    {0},
    {.port = 1, .count = 1, .ip = {{0xfd, [15] = 1}}},
    {.rdma = 65535, .count = 1, .ip = {{[10] = 0xff, 0xff, 10, 1, 2, 3}}},
    {.port = 65535,
     .rdma = 1,
     .count = 2,
     .ip = {{[10] = 0xff, 0xff, 10, 1, 2, 3}, {[10] = 0xff, 0xff, 127, 0, 0, 1}}},
    {.port = 7, .rdma = 8, .count = 1, .node = 1, .index = 4095, .ip = {{[15] = 1}}},
    {.rdma = 8, .count = 1, .node = 1, .index = 256, .ip = {{[10] = 0xff, 0xff, 10}}},
};

/* Fails when: a field of an address or its contact changes in its conversion to bytes; unused bits
 * are accepted, or an address is written with other bytes than were read. */
static void test_address(void **state)
{
    unsigned char bytes[WF_ADDRESS_BYTES], again[WF_ADDRESS_BYTES];
    struct wf_address a;
    struct wf_contact c;
    (void)state;
    for (size_t i = 0; i < WF_ARRAY_LEN(contacts); i++) {
        assert_int_equal(wf_address_pack(&an_address, &contacts[i], bytes), 64);
        OK(wf_address_parse(bytes, sizeof bytes, &a, &c));
        assert_memory_equal(&a, &an_address, sizeof a);
        assert_memory_equal(&c, &contacts[i], sizeof c);
        for (size_t n = 0; n < sizeof bytes; n++)
            assert_int_equal(wf_address_parse(bytes, n, &a, &c), WEFT_EINVAL);
        for (size_t bit = 8; bit < 8 * sizeof bytes; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
            if (wf_address_parse(bytes, sizeof bytes, &a, &c) == WEFT_OK) {
                wf_address_pack(&a, &c, again);
                assert_memory_equal(again, bytes, sizeof bytes);
            }
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        for (unsigned version = 0; version < 256; version++) {
            bytes[0] = (unsigned char)version;
            assert_int_equal(wf_address_parse(bytes, sizeof bytes, &a, &c),
                             version == WF_ADDRESS_VERSION ? WEFT_OK : WEFT_EVERSION);
        }
    }
    assert_int_equal(wf_address_parse(NULL, sizeof bytes, &a, &c), WEFT_EINVAL);
    memset(bytes + 1, 0, sizeof bytes - 1);
    bytes[0] = WF_ADDRESS_VERSION;
    assert_int_equal(wf_address_parse(bytes, sizeof bytes, &a, &c), WEFT_EINVAL);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(wf_address_parse(bytes, sizeof bytes, &a, &c), WEFT_EVERSION);
}

/* Fails when: other bytes are addresses, or mean other contacts, than in this version. Count up the
 * versions of addresses and of what contains one (packets within a node and of its service, the
 * handshake of connections), then write the new number and hash here, and the bytes into
 * docs/protocol.md. The corpora of fuzz have these versions, too. */
static void test_version_of_addresses(void **state)
{
    static const struct wf_contact most = {
        .port = 1, .count = 2, .rdma = 2, .ip = {{[10] = 0xff, 0xff}, {[10] = 0xff, 0xff}}};
    uint8_t bytes[WF_ADDRESS_BYTES];
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    (void)state;
    for (unsigned form = 0; form < 256; form++) {
        struct wf_address a = an_address;
        struct wf_contact c = most;
        wf_address_pack(&a, &c, bytes);
        memset(bytes + offsetof(struct wf_address_bytes, ip), 0, 16);
        bytes[offsetof(struct wf_address_bytes, form)] = (uint8_t)form;
        bytes[offsetof(struct wf_address_bytes, ip)] = (form & 3) == WF_FORM_IP6 ? 0x20 : 0;
        memset(&c, 0, sizeof c);
        if (wf_address_parse(bytes, sizeof bytes, &a, &c) == WEFT_OK)
            h = (h ^ form ^ (uint64_t)c.node << 8 ^ (uint64_t)c.index << 16) * 0x100000001b3u;
    }
    if (WF_ADDRESS_VERSION != 6 || h != UINT64_C(0xd3c3dc11f709922b))
        fail_msg("addresses of version %d have the hash 0x%llx", WF_ADDRESS_VERSION,
                 (unsigned long long)h);
}

/* Fails when: bytes that are no key pass. */
static void test_key(void **state)
{
    struct wf_key k = {.version = WF_KEY_VERSION, .size = sizeof k, .length = 1, .gen = 1}, k2;
    (void)state;
    OK(key_parse(&k));
    for (size_t bit = 0; bit < 8 * sizeof k; bit++) { /* a version is another matter */
        unsigned char bytes[sizeof k];
        memcpy(bytes, &k, sizeof k);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_equal(wf_key_parse(bytes, sizeof bytes, &k2),
                         bit < 8 ? WEFT_EVERSION : WEFT_EINVAL);
    }
    assert_int_equal(wf_key_parse(NULL, sizeof k, &k2), WEFT_EINVAL);
    for (size_t n = 0; n < sizeof k; n++)
        assert_int_equal(wf_key_parse(&k, n, &k2), WEFT_EINVAL);
    k.offset = UINT64_MAX;
    assert_int_equal(key_parse(&k), WEFT_EINVAL);
    k.offset = k.length = 0;
    assert_int_equal(key_parse(&k), WEFT_EINVAL);
    k.length = 1;
    k.first = 1; /* peers count bytes of what is mapped from 0, and its owner need not help */
    assert_int_equal(key_parse(&k), WEFT_EINVAL);
    k.slab = WF_KEY_PRIVATE;
    OK(key_parse(&k));
    k.first = UINT64_MAX;
    assert_int_equal(key_parse(&k), WEFT_EINVAL);
    k.first = 0;
    k.flags = WF_KEY_FLAGS + 1;
    assert_int_equal(key_parse(&k), WEFT_EINVAL);
    k.flags = WF_KEY_ATOMIC; /* a NIC's, but of none */
    assert_int_equal(key_parse(&k), WEFT_EINVAL);
    k.nic_key[WF_KEY_NICS - 1] = 1;
    OK(key_parse(&k));
    k.slab = 1; /* others map it */
    assert_int_equal(key_parse(&k), WEFT_EINVAL);
    k.slab = WF_KEY_PRIVATE;
    k.flags = WF_KEY_FLAGS;
    k.gen = 2; /* of no region: even */
    assert_int_equal(key_parse(&k), WEFT_EINVAL);
    k.gen = 1;
    k.version++;
    assert_int_equal(key_parse(&k), WEFT_EVERSION);
}

/* Fails when: a process that cannot share memory is accepted as a local process. */
static void test_reach(void **state)
{
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer = NULL;
    struct wf_address a, other;
    struct wf_contact none;
    unsigned char bytes[WF_ADDRESS_BYTES];
    size_t len = sizeof bytes;
    (void)state;
    OK(weft_ctx_open(NULL, &ctx));
    OK(weft_ep_open(ctx, NULL, &ep));
    OK(weft_ep_address(ep, bytes, &len));
    OK(wf_address_parse(bytes, len, &a, &none));
    for (int i = 0; i < 2; i++) {
        other = a;
        other.process.host ^= i == 0;
        other.process.user ^= i == 1;
        wf_address_pack(&other, &none, bytes);
        assert_int_equal(weft_peer_open(ep, bytes, len, &peer), WEFT_EUNREACH);
    }
    other = a;
    other.process.token[0] ^= 1; /* a process that ended long ago */
    other.process.start ^= 1;
    wf_address_pack(&other, &none, bytes);
    OK(weft_peer_open(ep, bytes, len, &peer));
    assert_int_equal(weft_am_request(peer, 1, NULL, 0, NULL, 0, 0), WEFT_EPEER);
    OK(weft_peer_close(peer));
    other = a;
    other.ep_gen++; /* an endpoint that is not there */
    wf_address_pack(&other, &none, bytes);
    OK(weft_peer_open(ep, bytes, len, &peer));
    assert_int_equal(weft_am_request(peer, 1, NULL, 0, NULL, 0, 0), WEFT_ECLOSED);
    OK(weft_peer_close(peer));
    OK(weft_ep_close(ep));
    OK(weft_ctx_close(ctx));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_frame),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_statuses),
        cmocka_unit_test(test_geometry),
        cmocka_unit_test(test_copy_small),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_address),
        cmocka_unit_test(test_version_of_addresses),
        cmocka_unit_test(test_key),
        cmocka_unit_test(test_reach),
        cmocka_unit_test(test_no_descriptor_leaks),
        cmocka_unit_test(test_out_of_descriptors),
    };
    return cmocka_run_group_tests_name("packet", tests, NULL, NULL);
}
