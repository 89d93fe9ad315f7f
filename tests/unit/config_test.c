/* SPDX-License-Identifier: BSD-3-Clause */
/* The environment, as a program sees it: this one runs itself with variables
 * set, and reads what it then says. */
#include "unit.h"

#include <sys/wait.h>

static const char *self;

static void print_row(void *arg, const char *name, const char *value, const char *dflt,
                      const char *doc)
{
    (void)arg;
    printf("%s=%s (%s) %s\n", name, value, dflt, doc);
}

static int probe(void)
{
    struct weft_ctx *ctx = NULL;
    enum weft_status status = weft_ctx_open(NULL, &ctx);
    printf("open %s\n", weft_status_name(status));
    weft_config_rows(print_row, NULL);
    return ctx && weft_ctx_close(ctx) != WEFT_OK;
}

/* What the probe says with [env], e.g. "WEFT_SPIN=7 WEFT_LOG=error". */
static char *said(const char *env)
{
    static char text[65536];
    char command[4096];
    size_t n;
    FILE *f;
    snprintf(command, sizeof command, "env -u WEFT_LOG %s %s --probe 2>&1", env, self);
    f = popen(command, "r");
    assert_non_null(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    assert_int_equal(pclose(f), 0);
    return text;
}

static void says(const char *env, const char *want)
{
    const char *text = said(env);
    if (!strstr(text, want))
        fail_msg("with %s: no \"%s\" in:\n%s", env, want, text);
}

static void is_quiet(const char *env)
{
    const char *text = said(env);
    if (strncmp(text, "open WEFT_OK\n", 13))
        fail_msg("with %s: something else first:\n%s", env, text);
}

/* Fails when: a value is not taken, a suffix or base is misread. */
static void test_values(void **state)
{
    (void)state;
    is_quiet("");
    says("WEFT_SPIN=7", "WEFT_SPIN=7 (20000)");
    says("WEFT_SPIN=0x10", "WEFT_SPIN=16 ");
    says("WEFT_SHM_MEMORY=4M", "WEFT_SHM_MEMORY=4M (64M) ");
    says("WEFT_SHM_MEMORY=128k", "WEFT_SHM_MEMORY=128K ");
    says("WEFT_SHM_MEMORY=1024M", "WEFT_SHM_MEMORY=1G ");
    says("WEFT_SHM_MEMORY=0", "WEFT_SHM_MEMORY=0 ");
    says("WEFT_SHM_RINGS=1K", "WEFT_SHM_RINGS=1024 (64) ");
    says("WEFT_SHUFFLE=on", "WEFT_SHUFFLE=1 ");
    says("WEFT_SHUFFLE=No", "WEFT_SHUFFLE=0 ");
    says("WEFT_SHUFFLE=true", "WEFT_SHUFFLE=1 ");
    says("WEFT_LOG=DEBUG", "WEFT_LOG=debug ");
    says("WEFT_TCP_INTERFACES=eth0,10.0.0.0/8", "WEFT_TCP_INTERFACES=eth0,10.0.0.0/8 () ");
    says("WEFT_KEY_FILE=", "WEFT_KEY_FILE= () ");
    says("WEFT_SHUFFLE_SEED=18446744073709551615", "WEFT_SHUFFLE_SEED=18446744073709551615 ");
}

/* Fails when: a value's unit is misread, left out, or cannot be typed as it is printed. */
static void test_units(void **state)
{
    (void)state;
    says("WEFT_AM_MAX=4096B", "WEFT_AM_MAX=4K (4032B) ");
    says("WEFT_AM_MAX=4032b", "WEFT_AM_MAX=4032B ");
    says("WEFT_SHM_PAYLOAD=128KB", "WEFT_SHM_PAYLOAD=128K ");
    says("WEFT_SHM_PAYLOAD=1MiB", "WEFT_SHM_PAYLOAD=1M ");
    says("WEFT_PINNED=16GiB", "WEFT_PINNED=16G (0.8) ");
    says("WEFT_MR_CACHE_SIZE=1T", "WEFT_MR_CACHE_SIZE=1T (asked) ");
    says("WEFT_MR_CACHE_SIZE=asked", "WEFT_MR_CACHE_SIZE=asked ");
    says("WEFT_PEER_TIMEOUT=2000", "WEFT_PEER_TIMEOUT=2s (10s) "); /* milliseconds without a unit */
    says("WEFT_PEER_TIMEOUT=500ms", "WEFT_PEER_TIMEOUT=500ms ");
    says("WEFT_PEER_TIMEOUT=2.5s", "WEFT_PEER_TIMEOUT=2500ms ");
    says("WEFT_PEER_TIMEOUT=2M", "WEFT_PEER_TIMEOUT=120s ");
    says("WEFT_PEER_TIMEOUT=1h", "WEFT_PEER_TIMEOUT=3600s ");
    says("WEFT_PEER_TIMEOUT=0.1s", "WEFT_PEER_TIMEOUT=100ms ");
}

/* Fails when: a default is not typed as a value is printed, so that it looks like another one. */
static void test_defaults(void **state)
{
    char *row = strchr(said(""), '\n');
    (void)state;
    for (int n = 0; row && row[1]; n++) {
        char *name = row + 1, *value = strchr(name, '='), *dflt = strstr(name, " (");
        if (!value || !dflt || dflt < value)
            fail_msg("row %d: %s", n, name);
        row = strchr(name, '\n');
        if (strncmp(value + 1, dflt + 2, (size_t)(dflt - value - 1)) ||
            dflt[dflt - value + 1] != ')')
            fail_msg("not the default: %s", name);
    }
}

/* Fails when: what must be a power of two or fit another value is not made so. */
static void test_rounded(void **state)
{
    (void)state;
    says("WEFT_AM_MAX=513", "WEFT_AM_MAX=576B ");
    says("WEFT_SHM_SLOTS=17", "WEFT_SHM_SLOTS=32 ");
    says("WEFT_SHM_SLOTS=65535", "WEFT_SHM_SLOTS=65536 ");
    says("WEFT_SHM_PAYLOAD=5000", "WEFT_SHM_PAYLOAD=16K ");
    says("WEFT_SHM_PAYLOAD=4096", "WEFT_SHM_PAYLOAD=16K "); /* four of WEFT_AM_MAX */
    says("WEFT_AM_MAX=32704", "WEFT_SHM_PAYLOAD=128K ");
    says("WEFT_SLAB=65537", "WEFT_SLAB=128K ");
}

/* Fails when: a value that cannot be used is taken for another in silence. */
static void test_refused(void **state)
{
    static const char *const bad[] = {
        "WEFT_AM_MAX=511",
        "WEFT_AM_MAX=32705",
        "WEFT_AM_MAX=-1",
        "WEFT_AM_MAX=",
        "WEFT_AM_MAX=4032x",
        "WEFT_AM_MAX=0x",
        "WEFT_AM_MAX=' 4032'",
        "WEFT_AM_MAX=4kk",
        "WEFT_AM_MAX=+600",
        "WEFT_AM_MAX=4032s",
        "WEFT_AM_MAX=2KBB",
        "WEFT_SHM_RINGS=64B",
        "WEFT_PEER_TIMEOUT=10k",
        "WEFT_PEER_TIMEOUT=10.0",
        "WEFT_PEER_TIMEOUT=s",
        "WEFT_PEER_TIMEOUT=.5s",
        "WEFT_PEER_TIMEOUT=-1s",
        "WEFT_PEER_TIMEOUT=1000us",
        "WEFT_PEER_TIMEOUT=2h",
        "WEFT_PEER_TIMEOUT=0.0995s",
        "WEFT_PEER_TIMEOUT=0.1001s",
        "WEFT_PEER_TIMEOUT=99999999999999999999999h",
        "WEFT_SLAB=99999999999999999999",
        "WEFT_SLAB=18014398509481985k",
        "WEFT_SHUFFLE=2",
        "WEFT_SHUFFLE=",
        "WEFT_SHUFFLE=maybe",
        "WEFT_LOG=loud",
        "WEFT_LOG=",
        "WEFT_LOG='warn|info'",
        "WEFT_SHM_RINGS=0",
        "WEFT_SHM_PLACES=65",
        "WEFT_SHM_SLOTS=8",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        says(bad[i], "open WEFT_EINVAL");
        says(bad[i], " error: WEFT_");
        says(bad[i], ": must be ");
    }
    says("WEFT_AM_MAX=511", "WEFT_AM_MAX=511: must be a number from 512 to 32704 bytes");
    says("WEFT_PEER_TIMEOUT=2h", "must be a number from 100 to 3600000 milliseconds, or a time");
    says("WEFT_LOG=loud", "must be one of error|warn|info|debug");
    says("WEFT_AM_MAX=511", "WEFT_AM_MAX=4032B (4032B)"); /* the default stays */
}

/* Fails when: text longer than it may be is cut off, or taken. */
static void test_too_long(void **state)
{
    char env[1200] = "WEFT_TCP_INTERFACES=";
    (void)state;
    memset(env + strlen(env), 'x', 1023);
    is_quiet(env);
    env[strlen(env)] = 'x';
    says(env, "open WEFT_EINVAL");
    says(env, ": must be at most 1023 characters");
    says(env, "WEFT_TCP_INTERFACES= () ");
}

/* Fails when: a misspelt variable goes unnoticed, or is an error. */
static void test_unknown(void **state)
{
    (void)state;
    says("WEFT_SHM_SLOT=64", "WEFT_SHM_SLOT is not a variable of Weft; the nearest is "
                             "WEFT_SHM_SLOTS");
    says("WEFT_SHUFLE=1", "the nearest is WEFT_SHUFFLE (");
    says("WEFT_SHM_SLOT=64", "open WEFT_OK");
    says("WEFT_=1", "WEFT_ is not a variable");
    is_quiet("WEFT_TEST_ANYTHING=1");
    is_quiet("WEFT_LOG=error WEFT_SHUFLE=1"); /* a warning */
    is_quiet("WEFTY=1");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),   cmocka_unit_test(test_units),
        cmocka_unit_test(test_defaults), cmocka_unit_test(test_rounded),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_unknown)};
    self = argv[0];
    if (argc > 1 && !strcmp(argv[1], "--probe"))
        return probe();
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
