/* SPDX-License-Identifier: BSD-3-Clause */
/* Which calls make progress for other nodes. GASNet's rule: a node that keeps calling GASNet
 * answers the others, whatever it calls, and nothing runs handlers inside a handler, with a
 * handler-safe lock held or in a no-interrupt section.
 *
 * The table below names calls that poll. For each of them, rank 0 makes only this call, again and
 * again. Meanwhile rank 1 sends a request and waits for its answer, or puts and waits for the put's
 * end. The two ranks arrange this through a file that both map, since a call of GASNet might poll.
 */
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include "check.h"

enum {
    LONG = MIB,
    AREA = LONG + 2 * PAGE,
    DEADLINE = 20, /* seconds for one call of the tables */
    NAGS = 5000,   /* how often a call that must not poll is made: ten budgets of the library */
    MARK = 200,
    ANSWER,
    INSIDE,
};

static struct side {
    _Atomic unsigned go;       /* rank 0: number of the turn that begins */
    _Atomic unsigned sent;     /* rank 1: its request has left */
    _Atomic unsigned answered; /* rank 1: the answer, or the end of its put, has come */
    _Atomic unsigned over;     /* rank 0: the turn ends */
} * side;

static gasnet_node_t other; /* rank 1; rank 0 if there is no other */
static unsigned turn_now;
static _Atomic unsigned marks;

/* What the calls use. */
static char *there; /* at [other] */
static uint64_t word;
static char data[LONG];
static gasnet_hsl_t lock = GASNET_HSL_INITIALIZER, lock2 = GASNET_HSL_INITIALIZER;

/* ---- puts, gets and memsets: complete at once between processes that share memory ---- */

#define VEC(p)                                                                                     \
    1, (gasnet_memvec_t[])                                                                         \
    {                                                                                              \
        {                                                                                          \
            (p), 8                                                                                 \
        }                                                                                          \
    }
#define LIST(p)                                                                                    \
    1, (void *[])                                                                                  \
    {                                                                                              \
        (p)                                                                                        \
    }
#define ROW                                                                                        \
    (size_t[])                                                                                     \
    {                                                                                              \
        8                                                                                          \
    }

#define TRANSFERS(POLLS)                                                                           \
    POLLS(gasnet_put, gasnet_put(other, there, &word, 8))                                          \
    POLLS(gasnet_put_bulk, gasnet_put_bulk(other, there, data, 100))                               \
    POLLS(put_nothing, gasnet_put_bulk(other, there, data, 0))                                     \
    POLLS(put_long, gasnet_put_bulk(other, there, data, LONG))                                     \
    POLLS(gasnet_put_val, gasnet_put_val(other, there, 1, 8))                                      \
    POLLS(gasnet_get, gasnet_get(&word, other, there, 8))                                          \
    POLLS(gasnet_get_bulk, gasnet_get_bulk(data, other, there, 100))                               \
    POLLS(get_long, gasnet_get_bulk(data, other, there, LONG))                                     \
    POLLS(gasnet_get_val, (void)gasnet_get_val(other, there, 8))                                   \
    POLLS(gasnet_memset, gasnet_memset(other, there, 1, 100))                                      \
    POLLS(gasnet_put_nb, finish(gasnet_put_nb(other, there, &word, 8)))                            \
    POLLS(gasnet_put_nb_bulk, finish(gasnet_put_nb_bulk(other, there, data, 100)))                 \
    POLLS(gasnet_put_nb_val, finish(gasnet_put_nb_val(other, there, 1, 8)))                        \
    POLLS(gasnet_get_nb, finish(gasnet_get_nb(&word, other, there, 8)))                            \
    POLLS(gasnet_get_nb_bulk, finish(gasnet_get_nb_bulk(data, other, there, 100)))                 \
    POLLS(gasnet_get_nb_val, (void)gasnet_wait_syncnb_valget(gasnet_get_nb_val(other, there, 8)))  \
    POLLS(gasnet_memset_nb, finish(gasnet_memset_nb(other, there, 1, 100)))                        \
    POLLS(gasnet_put_nbi, gasnet_put_nbi(other, there, &word, 8))                                  \
    POLLS(gasnet_put_nbi_bulk, gasnet_put_nbi_bulk(other, there, data, 100))                       \
    POLLS(gasnet_put_nbi_val, gasnet_put_nbi_val(other, there, 1, 8))                              \
    POLLS(gasnet_get_nbi, gasnet_get_nbi(&word, other, there, 8))                                  \
    POLLS(gasnet_get_nbi_bulk, gasnet_get_nbi_bulk(data, other, there, 100))                       \
    POLLS(gasnet_memset_nbi, gasnet_memset_nbi(other, there, 1, 100))                              \
    POLLS(gasnet_putv_bulk, gasnet_putv_bulk(other, VEC(there), VEC(data)))                        \
    POLLS(gasnet_getv_bulk, gasnet_getv_bulk(VEC(data), other, VEC(there)))                        \
    POLLS(gasnet_putv_nb_bulk, finish(gasnet_putv_nb_bulk(other, VEC(there), VEC(data))))          \
    POLLS(gasnet_getv_nb_bulk, finish(gasnet_getv_nb_bulk(VEC(data), other, VEC(there))))          \
    POLLS(gasnet_putv_nbi_bulk, gasnet_putv_nbi_bulk(other, VEC(there), VEC(data)))                \
    POLLS(gasnet_getv_nbi_bulk, gasnet_getv_nbi_bulk(VEC(data), other, VEC(there)))                \
    POLLS(gasnet_puti_bulk, gasnet_puti_bulk(other, LIST(there), 8, LIST(data), 8))                \
    POLLS(gasnet_geti_bulk, gasnet_geti_bulk(LIST(data), 8, other, LIST(there), 8))                \
    POLLS(gasnet_puti_nb_bulk, finish(gasnet_puti_nb_bulk(other, LIST(there), 8, LIST(data), 8)))  \
    POLLS(gasnet_geti_nb_bulk, finish(gasnet_geti_nb_bulk(LIST(data), 8, other, LIST(there), 8)))  \
    POLLS(gasnet_puti_nbi_bulk, gasnet_puti_nbi_bulk(other, LIST(there), 8, LIST(data), 8))        \
    POLLS(gasnet_geti_nbi_bulk, gasnet_geti_nbi_bulk(LIST(data), 8, other, LIST(there), 8))        \
    POLLS(gasnet_puts_bulk, gasnet_puts_bulk(other, there, ROW, data, ROW, ROW, 0))                \
    POLLS(gasnet_gets_bulk, gasnet_gets_bulk(data, ROW, other, there, ROW, ROW, 0))                \
    POLLS(gasnet_puts_nb_bulk, finish(gasnet_puts_nb_bulk(other, there, ROW, data, ROW, ROW, 0)))  \
    POLLS(gasnet_gets_nb_bulk, finish(gasnet_gets_nb_bulk(data, ROW, other, there, ROW, ROW, 0)))  \
    POLLS(gasnet_puts_nbi_bulk, gasnet_puts_nbi_bulk(other, there, ROW, data, ROW, ROW, 0))        \
    POLLS(gasnet_gets_nbi_bulk, gasnet_gets_nbi_bulk(data, ROW, other, there, ROW, ROW, 0))

/* ---- as functions ---- */

/* Wait for an operation that is under way. No wait is made for one that is complete, since that
 * wait would poll instead of the call. */
static void finish(gasnet_handle_t handle)
{
    if (handle != GASNET_INVALID_HANDLE)
        gasnet_wait_syncnb(handle);
}

struct call {
    const char *name;
    void (*make)(void);
};
#define AS_FUNCTION(name, ...)                                                                     \
    static void do_##name(void)                                                                    \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }
#define AS_ROW(name, ...) {#name, do_##name},

TRANSFERS(AS_FUNCTION)
static const struct call transfers[] = {TRANSFERS(AS_ROW)};

/* ---- handlers ---- */

static void on_mark(gasnet_token_t token, gasnet_handlerarg_t turn)
{
    atomic_fetch_add(&marks, 1);
    EQ(gasnet_AMReplyShort1(token, ANSWER, turn), GASNET_OK);
}

static void on_answer(gasnet_token_t token, gasnet_handlerarg_t turn)
{
    (void)token;
    atomic_store(&side->answered, (unsigned)turn);
}

/* ---- turns ---- */

/* What rank 1 has put to rank 0's area. */
static uint64_t put_there(void)
{
    return __atomic_load_n((uint64_t *)(void *)area[0].addr, __ATOMIC_ACQUIRE);
}

static void poll_until(const _Atomic unsigned *at, unsigned value)
{
    while (atomic_load(at) != value) {
        EQ(gasnet_AMPoll(), GASNET_OK);
        sched_yield();
    }
}

static void send_mark(void)
{
    EQ(gasnet_AMRequestShort1(0, MARK, (gasnet_handlerarg_t)turn_now), GASNET_OK);
}

static void put_mark(void)
{
    uint64_t value = turn_now;
    gasnet_put(0, area[0].addr, &value, sizeof value);
    atomic_store(&side->answered, turn_now);
}

/* Rank 0 makes the call until rank 1 has its answer. */
static void spin(const struct call *c)
{
    double end = seconds() + DEADLINE;
    unsigned made = 0;
    atomic_store(&side->go, turn_now);
    for (; atomic_load(&side->answered) != turn_now; made++) {
        if (made % 64 == 0 && seconds() > end)
            check_failed(__FILE__, __LINE__, "%u times %s, and a request was not answered", made,
                         c->name);
        c->make();
    }
    atomic_store(&side->over, turn_now);
    gasnet_wait_syncnbi_all();
}

static void take_turn(const struct call *c, void (*mark)(void))
{
    turn_now++;
    barrier();
    if (me == 0 && ranks == 1)
        mark();
    if (me == 0) {
        spin(c);
        if (mark == put_mark)
            EQ(put_there(), turn_now);
    } else if (me == 1) {
        poll_until(&side->go, turn_now);
        mark();
        poll_until(&side->over, turn_now);
    }
    barrier();
}

static void take_turns(const struct call *calls, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        take_turn(&calls[i], send_mark);
        take_turn(&calls[i], put_mark);
    }
}

static void transfers_poll(void)
{
    take_turns(transfers, COUNT_OF(transfers));
}

/* ---- where nothing polls ---- */

/* Calls that a client may make, or makes all the same, where handlers must not run. */
static void nag(unsigned before)
{
    for (unsigned i = 0; i < NAGS; i++) {
#if GASNETW_INLINED
        gasnet_put(me, area[me].addr + PAGE, &word, 8);
        gasnet_get(&word, me, area[me].addr + PAGE, 8);
        (void)gasnet_put_nb(me, area[me].addr + PAGE, &word, 8);
#endif
        EQ(gasnet_hsl_trylock(&lock2), GASNET_OK);
        gasnet_hsl_unlock(&lock2);
        EQ(atomic_load(&marks), before);
    }
}

/* With a request under way to this rank. */
static void be_nagged(void)
{
    unsigned before = atomic_load(&marks);
    atomic_store(&side->go, turn_now);
    while (atomic_load(&side->sent) != turn_now)
        ;
    nag(before);
}

static void with_lock(void)
{
    gasnet_hsl_lock(&lock);
    be_nagged();
    gasnet_hsl_unlock(&lock);
}

static void in_section(void)
{
    gasnet_hold_interrupts();
    gasnet_hsl_lock(&lock);
    gasnet_resume_interrupts(); /* ignored while the lock is held */
    gasnet_hsl_unlock(&lock);
    be_nagged();
    gasnet_resume_interrupts();
}

static _Atomic unsigned inside;

static void on_inside(gasnet_token_t token)
{
    (void)token;
    gasnet_resume_interrupts();
    be_nagged();
    atomic_fetch_add(&inside, 1);
}

static void in_handler(void)
{
    unsigned before = atomic_load(&inside);
    EQ(gasnet_AMRequestShort0(me, INSIDE), GASNET_OK);
    GASNET_BLOCKUNTIL(atomic_load(&inside) == before + 1);
}

/* Rank 1's request waits until rank 0 is out of [where], and is then answered by the first call. */
static void not_meanwhile(void (*where)(void))
{
    turn_now++;
    barrier();
    if (me == 0) {
        where();
        spin(&transfers[0]);
    } else if (me == 1) {
        poll_until(&side->go, turn_now);
        send_mark();
        for (unsigned i = 0; i < 10; i++)
            EQ(gasnet_AMPoll(), GASNET_OK);
        atomic_store(&side->sent, turn_now);
        poll_until(&side->over, turn_now);
    }
    barrier();
}

static void not_in_handler(void)
{
    not_meanwhile(in_handler);
}

static void not_with_lock(void)
{
    not_meanwhile(with_lock);
}

static void not_in_section(void)
{
    not_meanwhile(in_section);
}

/* ---- the program ---- */

/* Map a file of zeros in every rank. */
static void share(void)
{
    char name[64] = "/tmp/weft-rules-polls-XXXXXX";
    int fd = me == 0 ? mkstemp(name) : -1;
    char(*names)[GATHER_MAX] = gather(name, sizeof name);
    if (me == 0)
        EQ(ftruncate(fd, PAGE), 0);
    barrier();
    if (me != 0)
        fd = open(names[0], O_RDWR);
    CHECK(fd >= 0);
    side = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(side != MAP_FAILED);
    close(fd);
    barrier();
    if (me == 0)
        EQ(unlink(name), 0);
}

static const struct check_test tests[] = {
    {26, "transfers_poll", transfers_poll, 1},
    {21, "not_in_handler", not_in_handler, 2},
    {28, "not_in_section", not_in_section, 2},
    {29, "not_with_lock", not_with_lock, 2},
};

int main(int argc, char **argv)
{
    gasnet_handlerentry_t table[] = {
        {MARK, (gasnetw_fn_t)on_mark},
        {ANSWER, (gasnetw_fn_t)on_answer},
        {INSIDE, (gasnetw_fn_t)on_inside},
    };
    check_init(&argc, &argv);
    check_attach(table, COUNT_OF(table), AREA);
    other = ranks > 1 ? 1 : 0;
    there = area[other].addr + PAGE;
    share();
    check_tests(argc, argv, tests, COUNT_OF(tests));
}
