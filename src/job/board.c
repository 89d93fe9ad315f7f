/* SPDX-License-Identifier: BSD-3-Clause */
#include "job/board.h"

#include <stdio.h>

#define MAGIC 0x0500445241424657u /* "WFBARD", version 5 */
#define LINE WF_BOARD_LINE
#define PAGE 4096u
#define SETS_MAX 16
#define FLAGS_MAX 65536u
#define DEATH ((uint64_t)1 << 63)

struct offsets {
    size_t arrivals, departures, notices, released, steps, left, flags, outboxes, end;
};

static unsigned rounds_for(unsigned n)
{
    unsigned k = 0;
    while (k < 31 && 1u << k < n)
        k++;
    return k;
}

static size_t flags_for(unsigned n)
{
    return (size_t)n * rounds_for(n) * LINE;
}

/* Returns how many sets of flags (the words by which ranks signal each other in a barrier) fit in
 * 64 KiB, but at least 1 and at most SETS_MAX. */
static unsigned sets_for(unsigned n)
{
    size_t one = flags_for(n), fit = one ? FLAGS_MAX / one : 1;
    return fit > SETS_MAX ? SETS_MAX : fit ? (unsigned)fit : 1;
}

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static struct offsets layout(unsigned n, unsigned total)
{
    struct offsets o = {.arrivals = LINE,
                        .departures = 2 * LINE,
                        .notices = 3 * LINE,
                        .released = 4 * LINE,
                        .steps = 5 * LINE};
    o.left = o.steps + (size_t)rounds_for(total) * LINE;
    o.flags = o.left + round_up((size_t)n * sizeof(uint64_t), LINE);
    o.outboxes = round_up(o.flags + sets_for(n) * flags_for(n), PAGE);
    o.end = o.outboxes + (size_t)total * 2 * WEFT_JOB_ALLGATHER_MAX;
    return o;
}

size_t wf_board_size(unsigned n, unsigned total)
{
    return layout(n, total).end;
}

/* Returns enough bytes for the board of a node with any n <= [total] ranks. Fewer ranks may use
 * more sets of flags than [total] ranks do, but these sets need at most FLAGS_MAX bytes. */
size_t wf_board_room(unsigned total)
{
    return wf_board_size(total, total) + round_up(FLAGS_MAX, PAGE);
}

static uint64_t *word(const struct wf_board *b, size_t offset)
{
    return (uint64_t *)(void *)(b->base + offset);
}

void wf_board_make(void *base, unsigned total)
{
    struct wf_board b = {.base = base};
    word(&b, 0)[1] = total;
    word(&b, 0)[0] = MAGIC; /* other ranks read it after the launcher's fence */
}

enum weft_status wf_board_open(struct wf_board *b, void *base, unsigned me, unsigned n,
                               unsigned total)
{
    struct offsets o = layout(n, total);
    struct wf_board opened = {
        .base = base, .me = me, .n = n, .rounds = rounds_for(n), .total = total};
    if (word(&opened, 0)[0] != MAGIC || word(&opened, 0)[1] != total)
        return WEFT_EPROTO;
    *b = opened;
    b->arrivals = word(b, o.arrivals);
    b->notices = word(b, o.notices);
    b->released = word(b, o.released);
    b->steps = b->base + o.steps;
    b->trouble = word(b, o.departures) + 1;
    b->waits = word(b, o.departures) + 2;
    b->all_flags = b->base + o.flags;
    b->sets = sets_for(n);
    wf_board_use(b, 0);
    b->outboxes = b->base + o.outboxes;
    return WEFT_OK;
}

static uint64_t left_word(const struct wf_board *b, unsigned rank)
{
    struct offsets o = layout(b->n, b->total);
    return __atomic_load_n(word(b, o.left) + rank, __ATOMIC_ACQUIRE); /* "depart" */
}

void wf_board_depart(struct wf_board *b, uint64_t passed, bool death)
{
    struct offsets o = layout(b->n, b->total);
    uint64_t left = (passed + 1) | (death ? DEATH : 0);
    /* Pair "depart": a rank that sees the increased number of departures also sees which rank left.
     */
    __atomic_store_n(word(b, o.left) + b->me, left, __ATOMIC_RELEASE);
    __atomic_fetch_add(word(b, o.departures), 1, __ATOMIC_RELEASE);
}

bool wf_board_left(const struct wf_board *b, unsigned rank)
{
    return b->base && rank < b->n && left_word(b, rank);
}

enum weft_status wf_board_missing(const struct wf_board *b, uint64_t barrier)
{
    struct offsets o = layout(b->n, b->total);
    enum weft_status s = WEFT_OK;
    if (!__atomic_load_n(word(b, o.departures), __ATOMIC_ACQUIRE)) /* "depart" */
        return WEFT_OK;
    for (unsigned r = 0; r < b->n; r++) {
        uint64_t left = left_word(b, r);
        if (left & DEATH)
            return WEFT_EPEER;
        if (left && left <= barrier)
            s = WEFT_ECLOSED;
    }
    return s;
}

void wf_call_name(uint64_t call, char name[WF_CALL_NAME])
{
    static const char *const kinds[] = {"a barrier", "an allgather", "weft_job_mem_alloc",
                                        "a barrier in two steps"};
    unsigned kind = (unsigned)(call >> WF_CALL_LEN_BITS) & 3;
    if (kind == WF_CALL_GATHER)
        snprintf(name, WF_CALL_NAME, "%s of %u bytes", kinds[kind],
                 (unsigned)call & ((1u << WF_CALL_LEN_BITS) - 1));
    else
        snprintf(name, WF_CALL_NAME, "%s", kinds[kind]);
}

uint64_t wf_call_add(uint64_t *place, uint64_t call, uint64_t *old)
{
    uint64_t new;
    *old = __atomic_load_n(place, __ATOMIC_RELAXED);
    do {
        if (wf_call_number(*old) > wf_call_number(call))
            return *old;
        new = wf_call_number(*old) < wf_call_number(call) || *old == call ? call
                                                                          : call | WF_CALL_MISMATCH;
    } while (new != *old && !__atomic_compare_exchange_n(place, old, new, true, __ATOMIC_RELAXED,
                                                         __ATOMIC_RELAXED));
    return new;
}

uint64_t wf_board_trouble(struct wf_board *b, uint64_t trouble)
{
    uint64_t old = __atomic_load_n(b->trouble, __ATOMIC_RELAXED), worse;
    do
        worse = wf_trouble_worse(old, trouble);
    while (worse != old && !__atomic_compare_exchange_n(b->trouble, &old, worse, true,
                                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return worse;
}
