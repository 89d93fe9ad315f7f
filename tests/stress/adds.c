/* SPDX-License-Identifier: BSD-3-Clause */
/* adds [COUNT], started by `weft run -n N`: all ranks add to one word of rank 0,
 * COUNT times together. Even ranks have it mapped and add in their own code; odd
 * ranks reach the same memory as a region that is not mapped, so that rank 0 adds
 * for them; rank 0 itself uses its own instructions. A second word counts what
 * fetching adds returned: each old value exactly once.
 *
 * Fails when: the sum is not exact, or two adds fetched the same value. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/job.h>

#define RW (WEFT_REMOTE_READ | WEFT_REMOTE_WRITE)
#define FETCHES 2000 /* per rank */

static struct weft_job *job;
static unsigned me, ranks;

static void must(enum weft_status s, const char *what)
{
    if (s == WEFT_OK)
        return;
    fprintf(stderr, "adds: rank %u: %s: %s\n", me, what, weft_status_name(s));
    exit(1);
}

static struct weft_remote *reach(const unsigned char *keys, size_t len)
{
    struct weft_remote *r;
    must(weft_remote_open(weft_job_peer(job, 0), keys, len, &r), "weft_remote_open");
    return r;
}

/* What this rank waits for may need the core that it runs on. */
static void poll_or_yield(void)
{
    if (!weft_ep_poll(weft_job_ep(job)))
        sched_yield();
}

static void flush(void)
{
    enum weft_status s;
    while ((s = weft_flush(weft_job_peer(job, 0), NULL)) == WEFT_PENDING)
        poll_or_yield();
    must(s, "weft_flush");
}

static void add(struct weft_remote *r, uint64_t offset, uint64_t *old, struct weft_op *op)
{
    enum weft_status s;
    while ((s = weft_atomic(r, offset, WEFT_ATOMIC_ADD, WEFT_U64, 1, 0, old, op)) == WEFT_AGAIN)
        poll_or_yield();
    if (s == WEFT_PENDING && op)
        s = weft_op_wait(weft_job_ep(job), op, -1);
    if (s != WEFT_PENDING)
        must(s, "weft_atomic");
}

static void add_all(struct weft_remote *r, uint64_t *word, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (word)
            __atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
        else
            add(r, 0, NULL, NULL);
        if (!(i & 63))
            (void)weft_ep_poll(weft_job_ep(job));
    }
    flush();
}

/* Counts, beside the two words, how often each value was fetched. */
static void fetch_all(struct weft_remote *counter, struct weft_remote *marks)
{
    for (int i = 0; i < FETCHES; i++) {
        struct weft_op op = {0};
        uint64_t old = UINT64_MAX;
        add(counter, 8, &old, &op);
        add(marks, 16 + 8 * old, NULL, NULL);
    }
    flush();
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 0) : 200000, share, last;
    unsigned char mine[2 * WEFT_KEY_MAX] = {0}, *keys;
    size_t lens[2] = {WEFT_KEY_MAX, WEFT_KEY_MAX};
    struct weft_mr *words, *alias;
    struct weft_remote *mapped, *unmapped, *r;
    uint64_t *base;
    must(weft_job_open(NULL, &job), "weft_job_open");
    me = weft_job_rank(job);
    ranks = weft_job_size(job);
    must(weft_mem_alloc(weft_job_ctx(job), 16 + 8 * (size_t)FETCHES * ranks, RW, &words),
         "weft_mem_alloc");
    base = weft_mr_base(words);
    must(
        weft_mr_register(weft_job_ctx(job), base, weft_mr_length(words), WEFT_MEM_HOST, RW, &alias),
        "weft_mr_register");
    must(weft_mr_key(words, mine, &lens[0]), "weft_mr_key");
    must(weft_mr_key(alias, mine + WEFT_KEY_MAX, &lens[1]), "weft_mr_key");
    keys = malloc(sizeof mine * ranks);
    if (!keys)
        must(WEFT_ENOMEM, "malloc");
    must(weft_job_allgather(job, mine, sizeof mine, keys), "weft_job_allgather");
    mapped = reach(keys, lens[0]);
    unmapped = reach(keys + WEFT_KEY_MAX, lens[1]);
    r = me % 2 ? unmapped : mapped;
    if (me % 2 ? r->base != NULL : r->base == NULL)
        must(WEFT_EPROTO, "who has it mapped");
    share = count / ranks;
    last = count - share * (ranks - 1);
    add_all(r, me ? NULL : base, me ? share : last);
    must(weft_job_barrier(job), "weft_job_barrier");
    fetch_all(r, r);
    must(weft_job_barrier(job), "weft_job_barrier");
    if (!me) {
        const uint64_t fetches = (uint64_t)FETCHES * ranks;
        for (uint64_t i = 0; i < fetches; i++)
            if (base[2 + i] != 1) {
                fprintf(stderr, "adds: value %llu was fetched %llu times\n", (unsigned long long)i,
                        (unsigned long long)base[2 + i]);
                return 1;
            }
        if (base[0] != count || base[1] != fetches) {
            fprintf(stderr, "adds: sums %llu of %llu, %llu of %llu\n", (unsigned long long)base[0],
                    (unsigned long long)count, (unsigned long long)base[1],
                    (unsigned long long)fetches);
            return 1;
        }
        printf("adds: %llu adds by %u ranks, half of them by message: the sum is exact; %u "
               "fetched values, each once\n",
               (unsigned long long)count, ranks, FETCHES * ranks);
    }
    must(weft_job_barrier(job), "weft_job_barrier");
    must(weft_remote_close(mapped), "weft_remote_close");
    must(weft_remote_close(unmapped), "weft_remote_close");
    must(weft_mr_close(alias), "weft_mr_close");
    must(weft_mr_close(words), "weft_mr_close");
    must(weft_job_close(job), "weft_job_close");
    free(keys);
    return 0;
}
