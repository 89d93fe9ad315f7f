/* SPDX-License-Identifier: BSD-3-Clause */
/* match_model [SEED [OPERATIONS [FAILURES]]]: random operations on a matcher and
 * on the plainest model of one, two arrays searched from the front; every answer
 * is compared. SEED 0: another one each time, printed. FAILURES: of 1000
 * allocations so many fail. The short ways (wf_match_recv_push, _first and _pop) are taken at
 * random wherever they may be.
 *
 * Fails when: the matcher names another entry than the model, or none, or one; a short way is open
 * while there are messages, or is never open. */
#include <stdbool.h>

#include "contract/support.h"
#include "core/match.h"

enum { ROOM = 4096, SOURCES = 24, MASKS = 48, ROUND = 2000 };

/* Receives or messages, in order. */
struct model {
    union entry {
        struct wf_match_recv *recv;
        struct wf_match_msg *msg;
    } at[ROOM];
    size_t count;
};

static struct wf_match *m;
static struct model recvs, msgs;
static uint64_t state, operation, answers, failures, pushed, popped;
static char sources[SOURCES]; /* only their addresses matter */
static uint64_t masks[MASKS];

/* This round's ways. */
static struct {
    size_t sources, masks, target; /* how many; entries aimed at */
    uint64_t tags, shift;          /* different tags, and where their bits are */
    unsigned any;                  /* percent of receives that take any source */
    bool drops;                    /* no message is kept, so that the short ways are open */
} way;

void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size)
{
    static uint64_t chance = 1;
    if (failures && m && test_rand(&chance) % 1000 < failures)
        return NULL;
    return __real_aligned_alloc(align, size);
}

static uint64_t below(uint64_t n)
{
    return test_rand(&state) % n;
}

static void same(const void *got, const void *want, const char *what)
{
    answers += want != NULL;
    if (got == want)
        return;
    printf("operation %llu, %s: %s (%zu receives, %zu messages)\n", (unsigned long long)operation,
           what,
           !got   ? "none, but there is one"
           : want ? "not the oldest"
                  : "one that does not match",
           recvs.count, msgs.count);
    exit(1);
}

/* ---- the model ---- */

static bool meet(const struct wf_match_msg *msg, const void *source, uint64_t tag, uint64_t mask)
{
    return (msg->tag & mask) == (tag & mask) && (!source || source == msg->source);
}

static void take_out(struct model *l, size_t i)
{
    memmove(&l->at[i], &l->at[i + 1], (--l->count - i) * sizeof l->at[0]);
}

static size_t model_recv(const struct wf_match_msg *msg)
{
    size_t i = 0;
    while (i < recvs.count &&
           !meet(msg, recvs.at[i].recv->source, recvs.at[i].recv->tag, recvs.at[i].recv->mask))
        i++;
    return i;
}

static size_t model_msg(const struct wf_match_recv *r)
{
    size_t i = 0;
    while (i < msgs.count && !meet(msgs.at[i].msg, r->source, r->tag, r->mask))
        i++;
    return i;
}

/* ---- both ---- */

static uint64_t any_tag(void)
{
    return below(way.tags) << way.shift;
}

static struct wf_match_recv any_recv(void)
{
    struct wf_match_recv r = {.tag = any_tag(), .mask = masks[below(way.masks)]};
    r.source = below(100) < way.any ? NULL : &sources[below(way.sources)];
    return r;
}

static struct wf_match_msg any_msg(void)
{
    return (struct wf_match_msg){.tag = any_tag(), .source = &sources[below(way.sources)]};
}

static void add_recv(struct wf_match_recv like)
{
    struct wf_match_recv *r = malloc(sizeof *r);
    if (!r || recvs.count == ROOM)
        exit(2);
    *r = like;
    recvs.at[recvs.count++].recv = r;
    if (wf_match_is_plain(m) && below(8)) {
        same(wf_match_msg_any(m, NULL), NULL, "message beside a short way");
        wf_match_recv_push(m, r);
        pushed++;
    } else {
        wf_match_recv_add(m, r);
    }
}

static void add_msg(struct wf_match_msg like)
{
    struct wf_match_msg *msg = malloc(sizeof *msg);
    if (!msg || msgs.count == ROOM)
        exit(2);
    *msg = like;
    msgs.at[msgs.count++].msg = msg;
    wf_match_msg_add(m, msg);
}

/* Remove receive [i]; [pops]: it is the result of wf_match_recv_first. */
static void take_recv(size_t i, bool pops)
{
    struct wf_match_recv *r = recvs.at[i].recv;
    if (pops)
        wf_match_recv_pop(m, r);
    else
        wf_match_recv_remove(m, r);
    popped += pops;
    memset(r, 0xdb, sizeof *r); /* a later reader of it fails */
    free(r);
    take_out(&recvs, i);
}

static void remove_recv(size_t i)
{
    take_recv(i, false);
}

static void remove_msg(size_t i)
{
    struct wf_match_msg *msg = msgs.at[i].msg;
    wf_match_msg_remove(m, msg);
    memset(msg, 0xdb, sizeof *msg);
    free(msg);
    take_out(&msgs, i);
}

/* The index of the receive that [msg] meets, or the number of receives. */
static size_t ask_recv(const struct wf_match_msg *msg)
{
    size_t i = model_recv(msg);
    same(wf_match_recv_find(m, msg->source, msg->tag), i < recvs.count ? recvs.at[i].recv : NULL,
         "receive for a message");
    return i;
}

static size_t ask_msg(const struct wf_match_recv *r)
{
    size_t i = model_msg(r);
    same(wf_match_msg_find(m, r->source, r->tag, r->mask), i < msgs.count ? msgs.at[i].msg : NULL,
         "message for a receive");
    return i;
}

/* ---- operations ---- */

static void arrive(void)
{
    struct wf_match_msg msg = any_msg();
    const struct wf_match_recv *first = wf_match_recv_first(m, msg.source, msg.tag);
    size_t i;
    if (first && below(8)) {
        i = model_recv(&msg);
        same(first, i < recvs.count ? recvs.at[i].recv : NULL, "first receive");
        take_recv(i, true);
        return;
    }
    i = ask_recv(&msg);
    if (i < recvs.count)
        remove_recv(i);
    else if (msgs.count < ROOM && !way.drops)
        add_msg(msg);
}

static void post(void)
{
    struct wf_match_recv r = any_recv();
    size_t i = ask_msg(&r);
    if (i < msgs.count)
        remove_msg(i);
    else if (recvs.count < ROOM)
        add_recv(r);
}

static void probe(void)
{
    struct wf_match_recv r = any_recv();
    struct wf_match_msg msg = any_msg();
    (void)ask_msg(&r);
    (void)ask_recv(&msg);
}

static void claim(void)
{
    struct wf_match_recv r = any_recv();
    size_t i = ask_msg(&r);
    if (i < msgs.count)
        remove_msg(i);
}

static void cancel(void)
{
    if (recvs.count)
        remove_recv(below(recvs.count));
    if (msgs.count)
        remove_msg(below(msgs.count));
}

/* What no endpoint does: an entry beside one that it would meet. */
static void add_unasked(void)
{
    for (uint64_t i = below(way.target / 50 + 2); i--;) {
        if (recvs.count < way.target)
            add_recv(any_recv());
        if (msgs.count < way.target && !way.drops)
            add_msg(any_msg());
    }
}

static size_t first_of(const struct model *l, bool are_msgs, const void *source)
{
    size_t i = 0;
    while (i < l->count && source &&
           (are_msgs ? l->at[i].msg->source : l->at[i].recv->source) != source)
        i++;
    return i;
}

/* A source that is lost, or is only asked about; null: all of them. */
static void lose(const void *source, uint64_t at_most)
{
    size_t i, k;
    do {
        i = first_of(&recvs, false, source);
        k = first_of(&msgs, true, source);
        same(wf_match_recv_any(m, source), i < recvs.count ? recvs.at[i].recv : NULL,
             "any receive");
        same(wf_match_msg_any(m, source), k < msgs.count ? msgs.at[k].msg : NULL, "any message");
        if (at_most && i < recvs.count)
            remove_recv(i);
        if (at_most && k < msgs.count)
            remove_msg(k);
    } while (at_most-- && (i < recvs.count || k < msgs.count));
}

static void step(void)
{
    uint64_t r = below(100);
    bool full = recvs.count + msgs.count > 2 * way.target;
    if (r < 30)
        arrive();
    else if (r < 60)
        post();
    else if (r < 70)
        probe();
    else if (r < 75 || full)
        r & 1 ? claim() : cancel();
    else if (r < 92)
        add_unasked();
    else if (r < 97)
        lose(&sources[below(way.sources)], below(3));
    else if (!below(20))
        lose(&sources[below(way.sources)], ROOM);
}

static void choose_way(void)
{
    static const size_t targets[] = {3, 9, 20, 60, 400, 1500};
    static const uint64_t tags[] = {1, 2, 5, 40, 1000000};
    static const size_t some[] = {1, 2, 5, MASKS};
    way.target = targets[below(WF_ARRAY_LEN(targets))];
    way.tags = tags[below(WF_ARRAY_LEN(tags))];
    way.shift = below(2) ? 0 : below(44);
    way.sources = below(2) ? 1 + below(3) : SOURCES;
    way.masks = some[below(WF_ARRAY_LEN(some))];
    way.any = (unsigned)below(3) * 50;
    way.drops = !below(3);
    if (way.drops || !below(4))
        lose(NULL, ROOM);
}

static void choose_masks(void)
{
    static const uint64_t known[] = {~UINT64_C(0), 0, 0xff, 0xffff0000, ~UINT64_C(1)};
    for (size_t i = 0; i < MASKS; i++)
        masks[i] = i < WF_ARRAY_LEN(known) ? known[i] : test_rand(&state) & test_rand(&state);
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 0) : 200000, begin = test_now_ns(), seed;
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
    state = seed = seed ? seed : test_seed();
    failures = argc > 3 ? strtoull(argv[3], NULL, 0) : 0;
    m = wf_match_new();
    if (!m)
        return 2;
    choose_masks();
    for (operation = 0; operation < count; operation++) {
        if (operation % ROUND == 0)
            choose_way();
        step();
    }
    lose(NULL, 2 * ROOM);
    printf(
        "seed %llu: %llu operations, %llu entries found, all as in the model; %.1f s, %.1f steps "
        "per operation, %llu pushed, %llu popped\n",
        (unsigned long long)seed, (unsigned long long)count, (unsigned long long)answers,
        (double)(test_now_ns() - begin) / 1e9, (double)wf_match_steps(m) / (double)count,
        (unsigned long long)pushed, (unsigned long long)popped);
    if (recvs.count || msgs.count || answers < count / 4 || pushed < count / 1000 ||
        popped < count / 1000)
        return 1;
    wf_match_free(m);
    return 0;
}
