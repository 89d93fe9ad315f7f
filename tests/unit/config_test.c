/* SPDX-License-Identifier: BSD-3-Clause */
/* Configuration variables. The test runs itself as a probe with variables set, and reads what the
 * probe prints. */
#include "unit.h"
#include "config/config.h"

#include <sys/wait.h>

static const char *self;

static void print_row(void *arg, const char *name, const char *value, const char *dflt,
                      const char *doc)
{
    (void)arg;
    printf("%s=%s (%s) %s\n", name, value, dflt, doc);
}

static void print_field(const char *name, uint64_t value, uint64_t dflt)
{
    printf("%s=%llu (%llu)\n", name, (unsigned long long)value, (unsigned long long)dflt);
}

static int probe(void)
{
    struct weft_ctx *ctx = NULL;
    const char *defaults = getenv("WEFT_TEST_DEFAULTS");
    enum weft_status status;
    if (defaults)
        wf_config_built = defaults;
    status = weft_ctx_open(NULL, &ctx);
    printf("open %s\n", weft_status_name(status));
    weft_config_rows(print_row, NULL);
#define WF_DEBUG_FLAG(field, item, dflt, with, doc) print_field(#field, wf_config()->field, dflt);
#define WF_DEBUG_NUMBER(field, item, unit, dflt, min, max, doc)                                    \
    print_field(#field, wf_config()->field, dflt);
#include "config/debug.def"
    return ctx && weft_ctx_close(ctx) != WEFT_OK;
}

/* Returns the output of the probe with [env], e.g. "WEFT_SPIN=7 WEFT_LOG=error". The last one is
 * kept. */
static char *output_of(const char *env)
{
    static char text[65536], last[2048] = "?";
    char command[4096];
    size_t n;
    FILE *f;
    if (!strcmp(env, last))
        return text;
    snprintf(last, sizeof last, "%s", env);
    snprintf(command, sizeof command, "env -u WEFT_LOG -u WEFT_DEBUG %s %s --probe 2>&1", env,
             self);
    f = popen(command, "r");
    assert_non_null(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    assert_int_equal(pclose(f), 0);
    return text;
}

static void prints(const char *env, const char *want)
{
    const char *text = output_of(env);
    if (!strstr(text, want))
        fail_msg("with %s: no \"%s\" in:\n%s", env, want, text);
}

static void is_quiet(const char *env)
{
    const char *text = output_of(env);
    if (strncmp(text, "open WEFT_OK\n", 13))
        fail_msg("with %s: something else first:\n%s", env, text);
}

/* Fails when: a default of the build is not taken, is not shown as such, or wins over the
 * environment; a wrong one is ignored. */
static void test_built_defaults(void **state)
{
    (void)state;
    prints("WEFT_TEST_DEFAULTS='WEFT_SPIN=7 GASNET_X=1 WEFT_TRANSPORTS=loop,shm'",
           "WEFT_SPIN=7 (7)");
    prints("WEFT_TEST_DEFAULTS='WEFT_SPIN=7 GASNET_X=1 WEFT_TRANSPORTS=loop,shm'",
           "WEFT_TRANSPORTS=loop,shm (loop,shm)");
    prints("WEFT_TEST_DEFAULTS='WEFT_SPIN=7' WEFT_SPIN=8", "WEFT_SPIN=8 (7)");
    prints("WEFT_TEST_DEFAULTS='WEFT_MR_CACHE_COUNT=9'", "WEFT_MR_CACHE_COUNT=9 (9)");
    prints("WEFT_TEST_DEFAULTS='WEFT_MR_CACHE_COUNT=9' WEFT_MR_CACHE_COUNT=asked",
           "WEFT_MR_CACHE_COUNT=asked (9)");
    prints("WEFT_TEST_DEFAULTS=WEFT_SPIN=many", "open WEFT_EINVAL");
    prints("WEFT_TEST_DEFAULTS=WEFT_SPINS=7", "WEFT_SPINS, which is not a variable");
    prints("WEFT_TEST_DEFAULTS=WEFT_SPIN", "open WEFT_EINVAL");
}

/* Fails when: a value is not taken, a suffix or base is misread. */
static void test_values(void **state)
{
    (void)state;
    is_quiet("");
    prints("WEFT_SPIN=7", "WEFT_SPIN=7 (20000)");
    prints("WEFT_SPIN=0x10", "WEFT_SPIN=16 ");
    prints("WEFT_SHM_MEMORY=4M", "WEFT_SHM_MEMORY=4M (64M) ");
    prints("WEFT_SHM_MEMORY=128k", "WEFT_SHM_MEMORY=128K ");
    prints("WEFT_SHM_MEMORY=1024M", "WEFT_SHM_MEMORY=1G ");
    prints("WEFT_SHM_MEMORY=0", "WEFT_SHM_MEMORY=0 ");
    prints("WEFT_SHM_RINGS=1K", "WEFT_SHM_RINGS=1024 (64) ");
    prints("WEFT_RDMA_CM=on", "WEFT_RDMA_CM=1 ");
    prints("WEFT_RDMA_CM=No", "WEFT_RDMA_CM=0 ");
    prints("WEFT_RDMA_CM=true", "WEFT_RDMA_CM=1 ");
    prints("WEFT_LOG=DEBUG", "WEFT_LOG=debug ");
    prints("WEFT_TCP_INTERFACES=eth0,10.0.0.0/8", "WEFT_TCP_INTERFACES=eth0,10.0.0.0/8 () ");
    prints("WEFT_KEY_FILE=", "WEFT_KEY_FILE= () ");
    prints("WEFT_MR_CACHE_SIZE=18446744073709551614", "WEFT_MR_CACHE_SIZE=18446744073709551614B ");
}

/* Fails when: a value's unit is misread, left out, or cannot be typed as it is printed. */
static void test_units(void **state)
{
    (void)state;
    prints("WEFT_AM_MAX=8192B", "WEFT_AM_MAX=8K (4K) ");
    prints("WEFT_AM_MAX=4032b", "WEFT_AM_MAX=4032B ");
    prints("WEFT_SHM_PAYLOAD=128KB", "WEFT_SHM_PAYLOAD=128K ");
    prints("WEFT_SHM_PAYLOAD=1MiB", "WEFT_SHM_PAYLOAD=1M ");
    prints("WEFT_PINNED=16GiB", "WEFT_PINNED=16G (0.8) ");
    prints("WEFT_MR_CACHE_SIZE=1T", "WEFT_MR_CACHE_SIZE=1T (asked) ");
    prints("WEFT_MR_CACHE_SIZE=asked", "WEFT_MR_CACHE_SIZE=asked ");
    prints("WEFT_PEER_TIMEOUT=2000",
           "WEFT_PEER_TIMEOUT=2s (10s) "); /* milliseconds without a unit */
    prints("WEFT_PEER_TIMEOUT=500ms", "WEFT_PEER_TIMEOUT=500ms ");
    prints("WEFT_PEER_TIMEOUT=2.5s", "WEFT_PEER_TIMEOUT=2500ms ");
    prints("WEFT_PEER_TIMEOUT=2M", "WEFT_PEER_TIMEOUT=120s ");
    prints("WEFT_PEER_TIMEOUT=1h", "WEFT_PEER_TIMEOUT=3600s ");
    prints("WEFT_PEER_TIMEOUT=0.1s", "WEFT_PEER_TIMEOUT=100ms ");
}

/* Fails when: a default is printed in another form than a value, so that they seem to differ. */
static void test_defaults(void **state)
{
    char *row = strchr(output_of(""), '\n');
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

/* Fails when: a value is not rounded to a power of two, or to a value that it depends on. */
static void test_rounded(void **state)
{
    (void)state;
    prints("WEFT_AM_MAX=513", "WEFT_AM_MAX=576B ");
    prints("WEFT_SHM_SLOTS=17", "WEFT_SHM_SLOTS=32 ");
    prints("WEFT_SHM_SLOTS=65535", "WEFT_SHM_SLOTS=65536 ");
    prints("WEFT_SHM_PAYLOAD=5000", "WEFT_SHM_PAYLOAD=16K ");
    prints("WEFT_SHM_PAYLOAD=4096", "WEFT_SHM_PAYLOAD=16K "); /* four of WEFT_AM_MAX */
    prints("WEFT_AM_MAX=32704 WEFT_SHM_PAYLOAD=64K", "WEFT_SHM_PAYLOAD=128K ");
    prints("WEFT_DEBUG=slab=65537", "slab=131072 ");
}

/* Fails when: an unusable value is replaced by another one without a warning. */
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
        "WEFT_SHM_MEMORY=99999999999999999999",
        "WEFT_SHM_MEMORY=18014398509481985k",
        "WEFT_RDMA_CM=2",
        "WEFT_RDMA_CM=",
        "WEFT_RDMA_CM=maybe",
        "WEFT_LOG=loud",
        "WEFT_LOG=",
        "WEFT_LOG='warn|info'",
        "WEFT_SHM_RINGS=0",
        "WEFT_SHM_RINGS=4097",
        "WEFT_SHM_SLOTS=8",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        prints(bad[i], "open WEFT_EINVAL");
        prints(bad[i], " error: WEFT_");
        prints(bad[i], ": must be ");
    }
    prints("WEFT_AM_MAX=511", "WEFT_AM_MAX=511: must be a number from 512 to 32704 bytes");
    prints("WEFT_PEER_TIMEOUT=2h", "must be a number from 100 to 3600000 milliseconds, or a time");
    prints("WEFT_LOG=loud", "must be one of error|warn|info|debug");
    prints("WEFT_AM_MAX=511", "WEFT_AM_MAX=4K (4K)"); /* the default stays */
}

/* Fails when: an item of WEFT_DEBUG does not set its field, or sets another one. */
static void test_debug_items(void **state)
{
    (void)state;
    prints("WEFT_DEBUG=nomap,nopull,nomembarrier",
           "shm_map=0 (1)\nshm_pull=0 (1)\nmembarrier=0 (1)\n");
    prints("WEFT_DEBUG=nosrq,noinline,nosignal,nopostlist",
           "rdma_srq=0 (1)\nrdma_inline=0 (512)\nrdma_signal=1 (16)\nrdma_post_list=1 (32)\n");
    prints("WEFT_DEBUG=ops=64,slab=64K,places=1,yield=0",
           "ops=64 (1048575)\nslab=65536 (2097152)\nshm_places=1 (16)\nyield=0 (100)\n");
    prints("WEFT_DEBUG=nullnic,nosrq", "rdma_null=1 (0)\n");
    prints("WEFT_DEBUG=handles,Verify,merge,",
           "handles=1 (0)\nmr_cache_verify=1 (0)\nmr_cache_merge=1 (0)\nshuffle=0 (0)\n");
    prints("WEFT_DEBUG=shuffle", "\nshuffle=1 (0)\nshuffle_seed=0 (0)\n");
    prints("WEFT_DEBUG=shuffle=18446744073709551615",
           "\nshuffle=1 (0)\nshuffle_seed=18446744073709551615 (0)\n");
    prints("WEFT_DEBUG=,places=2,,places=3", "shm_places=3 ");
    prints("WEFT_DEBUG=nomap,places=2", "\nWEFT_DEBUG=nomap,places=2 () ");
    prints("FI_MR_CACHE_MERGE_REGIONS=1", "mr_cache_merge=1 ");
    is_quiet("WEFT_DEBUG= FI_MR_CACHE_MERGE_REGIONS=no");
}

/* Fails when: an unknown item is skipped without a warning. */
static void test_debug_refused(void **state)
{
    static const char *const bad[] = {"nomaps",   "no",          "places",  "nomap=1", "places=0",
                                      "places=x", "=",           "places=", "ops=63",  "shuffle=0",
                                      "slab=1K",  "ops=1048576", "none"};
    char env[64];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(env, sizeof env, "WEFT_DEBUG=yield=1,%s,ops=64", bad[i]);
        prints(env, "open WEFT_EINVAL");
        prints(env, " error: WEFT_DEBUG: ");
    }
    prints("WEFT_DEBUG=nomaps", "no item nomaps: ");
    prints("WEFT_DEBUG=nomaps", " nomap ");
    prints("WEFT_DEBUG=places=65", "places=65: must be a number from 1 to 64: ");
}

/* Fails when: a variable of an earlier version is ignored without a warning, or a current one is
 * reported as such. */
static void test_renamed(void **state)
{
    static const char *const old[] = {
#define WF_RENAMED(name, instead) name,
#include "config/renamed.def"
    };
    char env[64], want[128];
    (void)state;
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++) {
        snprintf(env, sizeof env, "%s=1", old[i]);
        snprintf(want, sizeof want, "error: %s is not read any more: use WEFT_", old[i]);
        prints(env, "open WEFT_EINVAL");
        prints(env, want);
    }
    prints("WEFT_SHUFFLE=1", "WEFT_SHUFFLE is not read any more: use WEFT_DEBUG=shuffle for 1");
    prints("WEFT_SHUFFLE_SEED=7", "use WEFT_DEBUG=shuffle=SEED");
    prints("WEFT_SHM_MAPS=1", "open WEFT_OK"); /* unknown: a warning */
}

/* Fails when: a text that is too long is truncated, or accepted. */
static void test_too_long(void **state)
{
    char env[1200] = "WEFT_TCP_INTERFACES=";
    (void)state;
    memset(env + strlen(env), 'x', 1023);
    is_quiet(env);
    env[strlen(env)] = 'x';
    prints(env, "open WEFT_EINVAL");
    prints(env, ": must be at most 1023 characters");
    prints(env, "WEFT_TCP_INTERFACES= () ");
}

/* Fails when: a misspelt variable causes no warning, or an error. */
static void test_unknown(void **state)
{
    (void)state;
    prints("WEFT_SHM_SLOT=64", "WEFT_SHM_SLOT is not a variable of Weft; the nearest is "
                               "WEFT_SHM_SLOTS");
    prints("WEFT_PINED=1G", "the nearest is WEFT_PINNED (");
    prints("WEFT_SHM_SLOT=64", "open WEFT_OK");
    prints("WEFT_=1", "WEFT_ is not a variable");
    is_quiet("WEFT_TEST_ANYTHING=1");
    is_quiet("WEFT_LOG=error WEFT_PINED=1G"); /* a warning */
    is_quiet("WEFTY=1");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_built_defaults), cmocka_unit_test(test_values),
        cmocka_unit_test(test_units),          cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_rounded),        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_debug_items),    cmocka_unit_test(test_debug_refused),
        cmocka_unit_test(test_renamed),        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_unknown)};
    self = argv[0];
    if (argc > 1 && !strcmp(argv[1], "--probe"))
        return probe();
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
