/* SPDX-License-Identifier: BSD-3-Clause */
/* GASNet's rules about threads. In PAR threads call at the same time; in PARSYNC they take turns
 * under a lock of the client's, and handlers run in the thread that calls. */
#include <pthread.h>
#include <sched.h>

#include "check.h"

enum {
    AREA = 2 * MIB,
    THREADS_MOST = 4,
    ASK = 200,
    ANSWER,
    COUNT_UP,
    ENTER,
    TOKEN,
    BIG,
    R_BIG,
};

#ifdef GASNET_PARSYNC
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
#define CALL(statement)                                                                            \
    do {                                                                                           \
        pthread_mutex_lock(&turn);                                                                 \
        statement;                                                                                 \
        pthread_mutex_unlock(&turn);                                                               \
    } while (0)
#else
#define CALL(statement)                                                                            \
    do {                                                                                           \
        statement;                                                                                 \
    } while (0)
#endif

static unsigned threads(void)
{
    return ranks > 4 ? 2 : THREADS_MOST;
}

struct start {
    void (*fn)(unsigned);
    unsigned number;
};

static void *started(void *arg)
{
    const struct start *s = arg;
    s->fn(s->number);
    return NULL;
}

/* Runs [fn] in threads() threads, numbered, and waits for them. */
static void in_threads(void (*fn)(unsigned))
{
    pthread_t thread[THREADS_MOST];
    struct start start[THREADS_MOST];
    for (unsigned i = 0; i < threads(); i++) {
        start[i] = (struct start){fn, i};
        EQ(pthread_create(&thread[i], NULL, started, &start[i]), 0);
    }
    for (unsigned i = 0; i < threads(); i++)
        EQ(pthread_join(thread[i], NULL), 0);
}

/* ---- requests of many threads ---- */

static _Atomic unsigned answers[THREADS_MOST];
static _Thread_local int in_request, in_reply, replying;

static void on_ask(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t thread,
                   gasnet_handlerarg_t number)
{
    gasnet_node_t from;
    char back[600];
    EQ(in_request + in_reply, 0); /* a thread runs one at a time */
    in_request = 1;
    EQ(gasnet_AMGetMsgSource(token, &from), GASNET_OK);
    FILLED(buf, nbytes, seed3(from, (uint64_t)thread, (uint64_t)number));
    fill(back, nbytes, seed3(me + 1000, (uint64_t)thread, (uint64_t)number));
    replying = 1;
    EQ(gasnet_AMReplyMedium2(token, ANSWER, back, nbytes, thread, number), GASNET_OK);
    replying = 0;
    FILLED(buf, nbytes, seed3(from, (uint64_t)thread, (uint64_t)number));
    in_request = 0;
}

static void on_answer(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t thread,
                      gasnet_handlerarg_t number)
{
    gasnet_node_t from;
    EQ(in_reply, 0);
    EQ(in_request, replying);
    in_reply = 1;
    EQ(gasnet_AMGetMsgSource(token, &from), GASNET_OK);
    FILLED(buf, nbytes, seed3(from + 1000, (uint64_t)thread, (uint64_t)number));
    in_reply = 0;
    atomic_fetch_add(&answers[thread], 1);
}

static void send_ask(gasnet_node_t to, unsigned thread, unsigned number)
{
    char data[600];
    size_t len = mix(number) % sizeof data;
    fill(data, len, seed3(me, thread, number));
    CALL(EQ(gasnet_AMRequestMedium2(to, ASK, data, len, (gasnet_handlerarg_t)thread,
                                    (gasnet_handlerarg_t)number),
            GASNET_OK));
}

static void one_by_one(unsigned thread)
{
    unsigned turns = rounds(200);
    atomic_store(&answers[thread], 0);
    for (unsigned i = 0; i < turns; i++) {
        send_ask(next_rank(i + thread), thread, i);
        CALL(GASNET_BLOCKUNTIL(atomic_load(&answers[thread]) == i + 1));
    }
}

static void requests_one_by_one(void)
{
    in_threads(one_by_one);
}

static void all_then_wait(unsigned thread)
{
    unsigned each = rounds(1200) / ranks + 1;
    atomic_store(&answers[thread], 0);
    for (unsigned i = 0; i < each; i++)
        for (gasnet_node_t r = 0; r < ranks; r++)
            send_ask(next_rank(r + thread), thread, i);
    CALL(GASNET_BLOCKUNTIL(atomic_load(&answers[thread]) == each * ranks));
}

static void requests_of_all(void)
{
    in_threads(all_then_wait);
}

/* ---- Longs: put and message ---- */

static _Atomic unsigned big_answers[THREADS_MOST];

static void on_big(gasnet_token_t token, void *buf, size_t nbytes, gasnet_handlerarg_t thread,
                   gasnet_handlerarg_t number)
{
    gasnet_node_t from;
    EQ(gasnet_AMGetMsgSource(token, &from), GASNET_OK);
    FILLED(buf, nbytes, seed3(from, (uint64_t)thread + 50, (uint64_t)number));
    EQ(gasnet_AMReplyShort1(token, R_BIG, thread), GASNET_OK);
}

static void on_reply_big(gasnet_token_t token, gasnet_handlerarg_t thread)
{
    (void)token;
    atomic_fetch_add(&big_answers[thread], 1);
}

static void longs(unsigned thread)
{
    enum { LEN = 40001, SPACE = 40960 };
    char *data = malloc(LEN);
    gasnet_node_t to = next_rank(1);
    CHECK(data);
    atomic_store(&big_answers[thread], 0);
    for (unsigned i = 0; i < 12; i++) {
        char *at = area[to].addr + ((size_t)thread * 12 + i) * SPACE;
        fill(data, LEN, seed3(me, thread + 50, i));
        if (i % 3 == 2) {
            CALL(EQ(gasnet_AMRequestLongAsync2(to, BIG, data, LEN, at, (gasnet_handlerarg_t)thread,
                                               (gasnet_handlerarg_t)i),
                    GASNET_OK));
            CALL(GASNET_BLOCKUNTIL(atomic_load(&big_answers[thread]) == i + 1));
        } else {
            CALL(EQ(gasnet_AMRequestLong2(to, BIG, data, LEN, at, (gasnet_handlerarg_t)thread,
                                          (gasnet_handlerarg_t)i),
                    GASNET_OK));
        }
    }
    CALL(GASNET_BLOCKUNTIL(atomic_load(&big_answers[thread]) == 12));
    free(data);
}

static void longs_of_all(void)
{
    in_threads(longs);
}

/* ---- put and get ---- */

/* Each thread has its own handles and its own set of implicit operations: a wait covers its own
 * ones, whatever the others have in flight. */
static void transfers(unsigned thread)
{
    enum { N = 32, LEN = 4000, PER_THREAD = N * LEN };
    char *src = malloc(PER_THREAD), *dst = malloc(PER_THREAD);
    gasnet_node_t to = next_rank(1);
    char *there = area[to].addr + (size_t)thread * PER_THREAD;
    gasnet_handle_t h[N], region;
    CHECK(src && dst);
    for (unsigned turn_of = 0; turn_of < rounds(12); turn_of++) {
        fill(src, PER_THREAD, seed3(me, thread, turn_of));
        memset(dst, 0, PER_THREAD);
        if (turn_of % 3 == 0) {
            for (unsigned i = 0; i < N; i++)
                CALL(h[i] = gasnet_put_nb_bulk(to, there + i * LEN, src + i * LEN, LEN));
            CALL(gasnet_wait_syncnb_all(h, N));
        } else if (turn_of % 3 == 1) {
            for (unsigned i = 0; i < N; i++)
                CALL(gasnet_put_nbi_bulk(to, there + i * LEN, src + i * LEN, LEN));
            CALL(gasnet_wait_syncnbi_puts());
        } else {
            CALL(gasnet_begin_nbi_accessregion()); /* threads' own: others may be in theirs */
            for (unsigned i = 0; i < N; i++)
                CALL(gasnet_put_nbi_bulk(to, there + i * LEN, src + i * LEN, LEN));
            CALL(region = gasnet_end_nbi_accessregion());
            CALL(gasnet_wait_syncnb(region));
        }
        memset(src, 0x12, PER_THREAD);
        for (unsigned i = 0; i < N; i++)
            CALL(gasnet_get_nbi_bulk(dst + i * LEN, to, there + i * LEN, LEN));
        CALL(gasnet_wait_syncnbi_gets());
        FILLED(dst, PER_THREAD, seed3(me, thread, turn_of));
        CALL(gasnet_put_bulk(to, there, dst, PER_THREAD));
        CALL(EQ(gasnet_get_val(to, there + 8, 8), mix(seed3(me, thread, turn_of) + 1)));
    }
    free(src);
    free(dst);
}

static void transfers_of_all(void)
{
    in_threads(transfers);
}

/* A region that another thread has open is not this one's. */
static _Atomic int region_open, region_seen;

static void regions(unsigned thread)
{
    uint64_t got = 0, word = seed3(me, thread, 77);
    gasnet_node_t to = next_rank(1);
    char *there = area[to].addr + thread * 8;
    if (thread == 0) {
        gasnet_handle_t h;
        CALL(gasnet_begin_nbi_accessregion());
        CALL(gasnet_put_nbi_bulk(to, there, &word, 8));
        atomic_store(&region_open, 1);
        while (atomic_load(&region_seen) != (int)threads() - 1)
            sched_yield();
        CALL(h = gasnet_end_nbi_accessregion());
        CALL(gasnet_wait_syncnb(h));
    } else {
        while (!atomic_load(&region_open))
            sched_yield();
        CALL(gasnet_put_nbi_bulk(to, there, &word, 8));
        CALL(gasnet_wait_syncnbi_all()); /* would be refused inside a region */
        atomic_fetch_add(&region_seen, 1);
    }
    CALL(gasnet_get(&got, to, there, 8));
    EQ(got, word);
}

static void regions_are_threads_own(void)
{
    atomic_store(&region_open, 0);
    atomic_store(&region_seen, 0);
    in_threads(regions);
}

/* ---- handlers in other threads ---- */

static _Atomic unsigned tokens;

static void on_token(gasnet_token_t token, gasnet_handlerarg_t a)
{
    (void)token, (void)a;
    atomic_fetch_add(&tokens, 1);
}

#ifdef GASNET_PAR
static _Atomic int done;

static void *poller(void *arg)
{
    (void)arg;
    while (!atomic_load(&done))
        EQ(gasnet_AMPoll(), GASNET_OK);
    return NULL;
}

/* One thread polls all the time and so runs most handlers; the others wait for what they change. */
static void until(unsigned thread)
{
    unsigned turns = rounds(100);
    for (unsigned i = 1; i <= turns; i++) {
        if (thread == 0)
            EQ(gasnet_AMRequestShort1(next_rank(1), TOKEN, 0), GASNET_OK);
        GASNET_BLOCKUNTIL(atomic_load(&tokens) >= i);
    }
}

static void until_another_runs_it(void)
{
    pthread_t thread;
    atomic_store(&tokens, 0);
    atomic_store(&done, 0);
    barrier();
    EQ(pthread_create(&thread, NULL, poller, NULL), 0);
    in_threads(until);
    atomic_store(&done, 1);
    EQ(pthread_join(thread, NULL), 0);
    GASNET_BLOCKUNTIL(atomic_load(&tokens) == rounds(100));
}

/* All threads block in it, and none polls besides. */
static void until_all_block(void)
{
    atomic_store(&tokens, 0);
    barrier();
    in_threads(until);
    GASNET_BLOCKUNTIL(atomic_load(&tokens) == rounds(100));
}
#endif

/* ---- locks ---- */

static gasnet_hsl_t entry = GASNET_HSL_INITIALIZER;
static _Atomic unsigned entering, entered;

static void on_enter(gasnet_token_t token, gasnet_handlerarg_t a)
{
    (void)token, (void)a;
    atomic_fetch_add(&entering, 1);
    gasnet_hsl_lock(&entry);
    atomic_fetch_add(&entered, 1);
    gasnet_hsl_unlock(&entry);
}

static void *asks_and_polls(void *arg)
{
    (void)arg;
    CALL(EQ(gasnet_AMRequestShort1(next_rank(1), ENTER, 0), GASNET_OK));
    while (!atomic_load(&entered))
        CALL(EQ(gasnet_AMPoll(), GASNET_OK));
    return NULL;
}

/* A handler on another thread waits for a lock that this one holds, and gets it. */
static void handler_waits_for_lock(void)
{
    pthread_t thread;
    for (unsigned i = 0; i < 3; i++) {
        atomic_store(&entering, 0);
        atomic_store(&entered, 0);
        barrier();
        gasnet_hsl_lock(&entry);
        unsigned before = atomic_load(&entered);
        EQ(pthread_create(&thread, NULL, asks_and_polls, NULL), 0);
        while (!atomic_load(&entering))
            sched_yield();
        EQ(atomic_load(&entered), before);
        gasnet_hsl_unlock(&entry);
        EQ(pthread_join(thread, NULL), 0);
        barrier();
    }
}

/* Handlers and all threads count under one lock. */
static gasnet_hsl_t counting;
static unsigned counted; /* under it */

static void on_count_up(gasnet_token_t token, gasnet_handlerarg_t a)
{
    (void)token;
    gasnet_hsl_lock(&counting);
    unsigned was = counted;
    __asm__ volatile("" ::: "memory");
    counted = was + (unsigned)a;
    gasnet_hsl_unlock(&counting);
}

enum { LOCAL_COUNTS = 20000, REMOTE_COUNTS = 200 };

static void count(unsigned thread)
{
    for (unsigned i = 0; i < rounds(LOCAL_COUNTS); i++) {
        if (i % 7 == thread) {
            while (gasnet_hsl_trylock(&counting) != GASNET_OK)
                sched_yield();
        } else {
            gasnet_hsl_lock(&counting);
        }
        unsigned was = counted;
        __asm__ volatile("" ::: "memory");
        counted = was + 1;
        gasnet_hsl_unlock(&counting);
        if (i % (rounds(LOCAL_COUNTS) / REMOTE_COUNTS) == 0)
            CALL(EQ(gasnet_AMRequestShort1(next_rank(1), COUNT_UP, 3), GASNET_OK));
    }
}

static void locks_exclude(void)
{
    unsigned want = threads() * (rounds(LOCAL_COUNTS) + 3 * REMOTE_COUNTS), now = 0;
    gasnet_hsl_init(&counting);
    counted = 0;
    barrier();
    in_threads(count);
    while (now != want) {
        EQ(gasnet_AMPoll(), GASNET_OK);
        gasnet_hsl_lock(&counting);
        now = counted;
        gasnet_hsl_unlock(&counting);
        CHECK(now <= want);
    }
    barrier();
    gasnet_hsl_destroy(&counting);
}

/* trylock fails while another thread has it, and succeeds afterwards. */
static gasnet_hsl_t tried = GASNET_HSL_INITIALIZER;
static _Atomic int stage;

static void hold_or_try(unsigned thread)
{
    if (thread == 0) {
        gasnet_hsl_lock(&tried);
        atomic_store(&stage, 1);
        while (atomic_load(&stage) != 2)
            sched_yield();
        gasnet_hsl_unlock(&tried);
        atomic_store(&stage, 3);
    } else if (thread == 1) {
        while (atomic_load(&stage) != 1)
            sched_yield();
        for (int i = 0; i < 3; i++)
            EQ(gasnet_hsl_trylock(&tried), GASNET_ERR_NOT_READY);
        atomic_store(&stage, 2);
        while (atomic_load(&stage) != 3)
            sched_yield();
        EQ(gasnet_hsl_trylock(&tried), GASNET_OK);
        gasnet_hsl_unlock(&tried);
    }
}

static void trylock_says_no(void)
{
    atomic_store(&stage, 0);
    in_threads(hold_or_try);
}

/* ---- barrier ---- */

static void *waits(void *arg)
{
    int *id = arg;
    CALL(EQ(gasnet_barrier_wait(*id, 0), GASNET_OK));
    return NULL;
}

static void *notifies(void *arg)
{
    int *id = arg;
    CALL(gasnet_barrier_notify(*id, 0));
    return NULL;
}

static void other_thread_waits(void)
{
    for (int i = 0; i < 6; i++) {
        pthread_t thread;
        int name = ~i;
        EQ(pthread_create(&thread, NULL, notifies, &i), 0);
        EQ(pthread_join(thread, NULL), 0);
        EQ(pthread_create(&thread, NULL, waits, &i), 0);
        EQ(pthread_join(thread, NULL), 0);
        EQ(gasnet_barrier_result(&name), 0);
        EQ(name, i);
    }
}

#ifdef GASNET_PAR
/* One thread is in the barrier while others send and transfer: it does not delay them. */
static void work_beside(unsigned thread)
{
    one_by_one(thread);
    transfers(thread);
}

static void barrier_beside_work(void)
{
    pthread_t thread;
    int id = 5;
    gasnet_barrier_notify(id, 0);
    EQ(pthread_create(&thread, NULL, waits, &id), 0);
    in_threads(work_beside);
    EQ(pthread_join(thread, NULL), 0);
}
#endif

/* Threads end with everything synced, and others begin: nothing of the former is lost. */
static void brief(unsigned thread)
{
    uint64_t word = seed3(me, thread, 78), back = 0;
    gasnet_node_t to = next_rank(1);
    char *there = area[to].addr + thread * 8;
    gasnet_handle_t h;
    unsigned before = atomic_load(&answers[thread]);
    CALL(h = gasnet_put_nb(to, there, &word, 8));
    send_ask(to, thread, 1);
    CALL(gasnet_wait_syncnb(h));
    CALL(gasnet_get_nbi(&back, to, there, 8));
    CALL(gasnet_wait_syncnbi_all());
    EQ(back, word);
    CALL(GASNET_BLOCKUNTIL(atomic_load(&answers[thread]) == before + 1));
}

static void many_threads(void)
{
    for (unsigned i = 0; i < rounds(40); i++)
        in_threads(brief);
}

static const struct check_test tests[] = {
    {11, "requests_one_by_one", requests_one_by_one, 1},
    {11, "requests_of_all", requests_of_all, 1},
    {11, "longs_of_all", longs_of_all, 1},
    {11, "many_threads", many_threads, 1},
    {22, "requests_of_all", requests_of_all, 1},
    {23, "handler_waits_for_lock", handler_waits_for_lock, 1},
#ifdef GASNET_PAR
    {27, "until_another_runs_it", until_another_runs_it, 1},
    {27, "until_all_block", until_all_block, 1},
    {40, "barrier_beside_work", barrier_beside_work, 1},
#endif
    {29, "locks_exclude", locks_exclude, 1},
    {29, "trylock_says_no", trylock_says_no, 1},
    {35, "transfers_of_all", transfers_of_all, 1},
    {37, "transfers_of_all", transfers_of_all, 1},
    {38, "regions_are_threads_own", regions_are_threads_own, 1},
    {40, "other_thread_waits", other_thread_waits, 1},
};

int main(int argc, char **argv)
{
    gasnet_handlerentry_t table[] = {
        {ASK, (gasnetw_fn_t)on_ask},           {ANSWER, (gasnetw_fn_t)on_answer},
        {COUNT_UP, (gasnetw_fn_t)on_count_up}, {ENTER, (gasnetw_fn_t)on_enter},
        {TOKEN, (gasnetw_fn_t)on_token},       {BIG, (gasnetw_fn_t)on_big},
        {R_BIG, (gasnetw_fn_t)on_reply_big},
    };
    check_init(&argc, &argv);
    check_attach(table, COUNT_OF(table), AREA);
    check_tests(argc, argv, tests, COUNT_OF(tests));
}
