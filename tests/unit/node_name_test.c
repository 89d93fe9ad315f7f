/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of a node's service, its incarnations, and the tags of endpoints. */
#define _GNU_SOURCE
#include "unit.h"

#include "node/name.h"

static const uint8_t key[WF_NODE_KEY] = "node_name_test", other_key[WF_NODE_KEY] = "another";

static void name_is(const uint8_t with[WF_NODE_KEY], const struct wf_node_scope *place,
                    const char *name, const char *as, int same)
{
    char out[WF_NODE_SOCKET_ROOM];
    wf_node_socket_name(with, place, name, out);
    assert_int_equal(!strcmp(out, as), same);
}

/* Fails when: processes share a service that differ in key, user, namespaces, boot or name; or the
 * name of one service changes. */
static void test_socket_name(void **state)
{
    struct wf_node_scope here, there;
    char name[WF_NODE_SOCKET_ROOM];
    struct sockaddr_un sa;
    (void)state;
    OK(wf_node_mac_init());
    wf_node_scope_here(&here);
    assert_true(here.host && here.user && here.timens);
    wf_node_socket_name(key, &here, "a", name);
    assert_int_equal(strlen(name), strlen(WF_NODE_SOCKET) + 16);
    name_is(key, &here, "a", name, 1);
    name_is(other_key, &here, "a", name, 0);
    name_is(key, &here, "b", name, 0);
    name_is(key, &here, "", name, 0);
    for (size_t i = 0; i < sizeof here; i++) {
        there = here;
        ((uint8_t *)&there)[i] ^= 1;
        name_is(key, &there, "a", name, 0);
    }
    assert_int_equal(wf_node_sockaddr(name, &sa),
                     offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    assert_int_equal(sa.sun_path[0], 0);
}

/* Fails when: "%n" stays, another character is lost, or a name that is too long is cut. */
static void test_expand(void **state)
{
    char out[WF_NODE_NAME_ROOM], sixty[61];
    (void)state;
    memset(sixty, 'x', 60);
    sixty[60] = 0;
    assert_int_equal(wf_node_name_expand("", 7, out), 0);
    assert_string_equal(out, "");
    assert_int_equal(wf_node_name_expand("a%n-%n%", 17, out), 0);
    assert_string_equal(out, "a17-17%");
    assert_int_equal(wf_node_name_expand(sixty, 7, out), 0);
    assert_string_equal(out, sixty);
    memcpy(sixty + 58, "%n", 3);
    assert_int_equal(wf_node_name_expand(sixty, 12345, out), 0);
    assert_int_equal(strlen(out), 63);
    assert_int_equal(wf_node_name_expand(sixty, 123456, out), -1);
    assert_int_equal(strlen(out), 63);
}

/* Fails when: the address of a service depends on more than it may, or on less. */
static void test_address(void **state)
{
    struct wf_node_scope here;
    struct wf_address a, b;
    (void)state;
    wf_node_scope_here(&here);
    wf_node_service_address(key, &here, 4711, 5, &a);
    assert_true(a.version == WF_ADDRESS_VERSION && a.size == sizeof a && !a.ep && a.ep_gen == 5);
    assert_true(a.process.pid == 1 && !a.process.start && a.process.user == here.user);
    wf_node_service_address(key, &here, 4711, 6, &b);
    assert_memory_equal(&a.process, &b.process, sizeof a.process); /* its successor's */
    wf_node_service_address(key, &here, 4712, 5, &b);
    assert_memory_not_equal(a.process.token, b.process.token, 16);
    wf_node_service_address(other_key, &here, 4711, 5, &b);
    assert_memory_not_equal(a.process.token, b.process.token, 16);
    here.user++;
    wf_node_service_address(key, &here, 4711, 5, &b);
    assert_memory_not_equal(a.process.token, b.process.token, 16);
}

/* Fails when: a byte of an endpoint's address does not count in its tag. */
static void test_tag(void **state)
{
    struct wf_address a = {.version = WF_ADDRESS_VERSION, .size = sizeof a, .process = {.pid = 1}};
    uint64_t tag = wf_node_tag(key, &a);
    (void)state;
    assert_true(tag == wf_node_tag(key, &a) && tag != wf_node_tag(other_key, &a));
    for (size_t i = 0; i < sizeof a; i++) {
        ((uint8_t *)&a)[i] ^= 1;
        assert_true(wf_node_tag(key, &a) != tag);
        ((uint8_t *)&a)[i] ^= 1;
    }
}

/* Fails when: two services of one name may have one number, or one waits for long. */
static void test_incarnation(void **state)
{
    uint32_t last = wf_node_incarnation();
    uint64_t begin = test_now_ns();
    (void)state;
    for (int i = 0; i < 16; i++) {
        uint32_t next = wf_node_incarnation();
        assert_true(next && (int32_t)(next - last) > 0);
        last = next;
    }
    assert_true(test_now_ns() - begin < 5000000000u); /* 0.25 s, on a quiet machine */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_socket_name), cmocka_unit_test(test_expand),
        cmocka_unit_test(test_address),     cmocka_unit_test(test_tag),
        cmocka_unit_test(test_incarnation),
    };
    return cmocka_run_group_tests_name("node_name", tests, NULL, NULL);
}
