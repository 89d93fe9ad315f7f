/* SPDX-License-Identifier: BSD-3-Clause */
/* By a key of 64 bits NICs do what fi_write and fi_read ask for, where the sides are connected by
 * RDMA; elsewhere none does. The program is exported to the libraries that it loads, so its
 * weft_ctx_open is in place of theirs.
 *
 * With two arguments, the commands that cut the link between the devices rxe0 and rxe1 and that
 * heal it (tests/vm/jobs): each side has a device of its own, and NICs work again afterwards. */
#define _GNU_SOURCE
#include "sides.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define LEN 70000
#define KEY UINT64_C(0xfedcba9876543210)
#define TURNS 20
#define HEAL_MS 60000

static const char *cut, *heal; /* commands; NULL: none */
static struct fid_mr *mr;
static uint8_t *target, *local;

/* ---- Weft's counters ---- */

struct weft_ctx;
static struct weft_ctx *opened[2];
static unsigned nopened;

static void *weft_symbol(const char *name)
{
    void *weft = dlopen("libweft.so.0", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = weft ? dlsym(weft, name) : NULL;
    assert_non_null(symbol);
    return symbol;
}

int weft_ctx_open(const void *params, struct weft_ctx **out);
int weft_ctx_open(const void *params, struct weft_ctx **out)
{
    int (*real)(const void *, struct weft_ctx **);
    int status;
    *(void **)&real = weft_symbol("weft_ctx_open");
    status = real(params, out);
    if (!status && nopened < 2)
        opened[nopened++] = *out;
    return status;
}

/* What the NICs did for both sides. */
struct done {
    uint64_t writes, reads;
};

static void done_add(void *arg, const char *name, uint64_t value, const char *doc)
{
    struct done *sum = arg;
    (void)doc;
    sum->writes += strcmp(name, "PUT_NIC") ? 0 : value;
    sum->reads += strcmp(name, "GET_NIC") ? 0 : value;
}

static struct done done_now(void)
{
    void (*rows)(const struct weft_ctx *, void (*)(void *, const char *, uint64_t, const char *),
                 void *);
    struct done sum = {0, 0};
    *(void **)&rows = weft_symbol("weft_stat_rows");
    turn(); /* polls store the counts */
    for (unsigned i = 0; i < nopened; i++)
        rows(opened[i], done_add, &sum);
    return sum;
}

/* ---- accesses ---- */

static bool over_rdma(void)
{
    return strstr(getenv("WEFT_TRANSPORTS"), "rdma") != NULL;
}

static void begin(void)
{
    const struct how how = {.mr_mode = FI_MR_ALLOCATED};
    nopened = 0;
    if (cut)
        assert_int_equal(setenv("WEFT_RDMA_DEVICE", "rxe0", 1), 0);
    side_open(&a, &how);
    if (cut)
        assert_int_equal(setenv("WEFT_RDMA_DEVICE", "rxe1", 1), 0);
    side_open(&b, &how);
    assert_int_equal(nopened, 2);
    sides_meet();
    assert_true(b.info->domain_attr->mr_mode & FI_MR_ALLOCATED);
    target = malloc(LEN);
    local = malloc(LEN);
    assert_true(target && local);
    memset(target, 0, LEN);
    assert_int_equal(
        fi_mr_reg(b.domain, target, LEN, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL),
        0);
    assert_true(fi_mr_key(mr) == KEY);
}

static void end(void)
{
    assert_int_equal(fi_close(&mr->fid), 0);
    close_both();
    free(target);
    free(local);
}

static void write_read(size_t len, unsigned seed)
{
    fill(local, len, seed);
    RETRY(fi_write(a.ep, local, len, NULL, a.other, 3, KEY, &local));
    assert_ptr_equal(take(&a).op_context, &local);
    check(target + 3, len, seed);
    memset(local, 0, len);
    RETRY(fi_read(a.ep, local, len, NULL, a.other, 3, KEY, &target));
    assert_ptr_equal(take(&a).op_context, &target);
    check(local, len, seed);
}

/* Access the region until NICs do it: the first access asks for the raw key, and the devices are
 * connected by and by. */
static void await_nics(void)
{
    const uint64_t deadline = now_ms() + HEAL_MS;
    const struct done before = done_now();
    struct done now = before;
    for (unsigned i = 0; now.writes == before.writes || now.reads == before.reads; i++) {
        assert_true(now_ms() < deadline);
        write_read(8, i);
        now = done_now();
    }
}

/* Each of the accesses is counted, once. */
static void count_all(void)
{
    static const size_t lengths[] = {1, 8, 600, 4096, LEN - 3};
    const size_t n = sizeof lengths / sizeof *lengths;
    const uint64_t each = over_rdma() ? TURNS * n : 0;
    const struct done before = done_now();
    struct done now;
    for (unsigned i = 0; i < TURNS; i++)
        for (unsigned k = 0; k < n; k++)
            write_read(lengths[k], i + k);
    now = done_now();
    assert_int_equal(now.writes - before.writes, each);
    assert_int_equal(now.reads - before.reads, each);
}

static void counted_test(void **state)
{
    (void)state;
    begin();
    if (over_rdma())
        await_nics();
    count_all();
    end();
}

static void run(const char *command)
{
    assert_int_equal(system(command), 0);
}

static void healed_test(void **state)
{
    (void)state;
    if (!cut)
        return;
    begin();
    for (unsigned i = 0; i < 2; i++) {
        await_nics();
        run(cut);
        for (unsigned k = 0; k < TURNS; k++)
            write_read(k % 2 ? LEN - 3 : 8, k);
        run(heal);
        await_nics();
        count_all();
    }
    end();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counted_test),
        cmocka_unit_test(healed_test),
    };
    cut = argc > 2 ? argv[1] : NULL;
    heal = argc > 2 ? argv[2] : NULL;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
