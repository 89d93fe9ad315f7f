/* SPDX-License-Identifier: BSD-3-Clause */
/* What the RDMA transport chooses, on devices that move nothing. */
#include "unit.h"

#include <string.h>

#include "base/util.h"
#include "transport/rdma/hca.h"

static const struct wf_hca_gid link_v1 = {{0xfe, 0x80, [15] = 1}, 0, WF_HCA_GID_ROCE_V1};
static const struct wf_hca_gid link_v2 = {{0xfe, 0x80, [15] = 1}, 1, WF_HCA_GID_ROCE_V2};
static const struct wf_hca_gid global = {{0x20, 0x01, [15] = 1}, 5, WF_HCA_GID_ROCE_V2};
static const struct wf_hca_gid mapped = {
    {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1}, 7, WF_HCA_GID_ROCE_V2};

/* ---- addresses ---- */

/* Fails when: what was chosen automatically is not chosen anew as the table changes, by rank. */
static void test_best_gid_follows_the_table(void **state)
{
    const struct wf_hca hca = {.wish = {.gid_index = -1}};
    const struct wf_hca_gid gids[] = {link_v1, link_v2, mapped, global};
    struct wf_hca_port port = {.number = 1};
    (void)state;
    wf_hca_port_set(&hca, &port, gids, 4, 1024);
    assert_true(port.has_gid && port.gid.index == 7);
    wf_hca_port_set(&hca, &port, gids, 2, 1024);
    assert_true(port.has_gid && port.gid.index == 1);
    wf_hca_port_set(&hca, &port, gids, -1, 1024); /* not known: as it was */
    assert_true(port.has_gid && port.gid.index == 1);
    wf_hca_port_set(&hca, &port, gids, 0, 1024);
    assert_false(port.has_gid);
    wf_hca_port_set(&hca, &port, &gids[3], 1, 1024);
    assert_true(port.has_gid && port.gid.index == 5);
    assert_memory_equal(port.gid.raw, global.raw, 16);
}

/* Fails when: a named index is given up for a better one, or for any when it is gone for a while.
 */
static void test_named_gid_stays(void **state)
{
    const struct wf_hca hca = {.wish = {.gid_index = 1}};
    const struct wf_hca_gid gids[] = {link_v1, mapped, link_v2};
    struct wf_hca_port port = {.number = 1};
    (void)state;
    wf_hca_port_set(&hca, &port, gids, 3, 1024);
    assert_true(port.has_gid && port.gid.index == 1);
    wf_hca_port_set(&hca, &port, gids, 2, 1024);
    assert_true(!port.has_gid && port.gid.index == 1);
    wf_hca_port_set(&hca, &port, gids, 3, 1024);
    assert_true(port.has_gid && port.gid.index == 1);
}

/* Fails when: the wish raises the port's MTU, or does not lower it after an event. */
static void test_mtu_is_lowered_only(void **state)
{
    const struct wf_hca low = {.wish = {.gid_index = -1, .mtu = 512}}, none = {.ops = NULL};
    struct wf_hca_port port = {.number = 1};
    (void)state;
    wf_hca_port_set(&low, &port, NULL, 0, 4096);
    assert_int_equal(port.mtu, 512);
    wf_hca_port_set(&low, &port, NULL, 0, 256);
    assert_int_equal(port.mtu, 256);
    wf_hca_port_set(&none, &port, NULL, 0, 4096);
    assert_int_equal(port.mtu, 4096);
}

static void test_gid_text(void **state)
{
    char text[WF_HCA_GID_TEXT];
    struct wf_hca_gid longest = {.index = 255, .type = WF_HCA_GID_INFINIBAND};
    (void)state;
    assert_string_equal(wf_hca_gid_text(&mapped, text), "7 ::ffff:10.0.0.1 (RoCE v2)");
    memset(longest.raw, 0xab, sizeof longest.raw);
    assert_string_equal(wf_hca_gid_text(&longest, text),
                        "255 abab:abab:abab:abab:abab:abab:abab:abab (InfiniBand)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_gid_follows_the_table),
        cmocka_unit_test(test_named_gid_stays),
        cmocka_unit_test(test_mtu_is_lowered_only),
        cmocka_unit_test(test_gid_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
