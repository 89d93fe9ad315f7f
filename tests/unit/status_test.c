/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit.h"

static const enum weft_status all[] = {
#define WEFT_STATUS(name, value, text) WEFT_##name,
#include <weft/status.def>
#undef WEFT_STATUS
};
#define COUNT (sizeof all / sizeof all[0])

/* Fails when: two statuses share a value, a name or a text, or one has none. */
static void test_all_differ(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(strncmp(weft_status_name(all[i]), "WEFT_", 5), 0);
        assert_true(strlen(weft_status_text(all[i])) > 4);
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(all[i], all[j]);
            assert_string_not_equal(weft_status_name(all[i]), weft_status_name(all[j]));
            assert_string_not_equal(weft_status_text(all[i]), weft_status_text(all[j]));
        }
    }
}

/* Fails when: a value that is no status gives null. */
static void test_unknown(void **state)
{
    (void)state;
    for (int v = -100; v < 100; v++) {
        assert_non_null(weft_status_name((enum weft_status)v));
        assert_non_null(weft_status_text((enum weft_status)v));
    }
    assert_string_equal(weft_status_text((enum weft_status) - 99), "unknown status");
}

/* Fails when: a value that programs were compiled with moves. */
static void test_values(void **state)
{
    (void)state;
    assert_int_equal(WEFT_OK, 0);
    assert_int_equal(WEFT_PENDING, 1);
    assert_int_equal(WEFT_AGAIN, 2);
    assert_int_equal(WEFT_EINVAL, -1);
    assert_int_equal(WEFT_EPEER, -8);
    assert_int_equal(WEFT_EVERSION, -19);
    assert_string_equal(weft_version(), WEFT_VERSION_STRING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_differ),
                                       cmocka_unit_test(test_unknown),
                                       cmocka_unit_test(test_values)};
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
