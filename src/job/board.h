/* SPDX-License-Identifier: BSD-3-Clause */
/* The job's board: one small region that holds the barriers of a node's ranks, the bytes they
 * gather, and which of them have left.
 *
 * The node's lowest rank hosts it, and every other rank of the node opens one remote to it. Ranks
 * load and store in the mapped memory; they do not put and get. These fail once the host has closed
 * the region, and the first rank out of a barrier may close the job while others are still in that
 * barrier. The mapping stays until the rank that mapped it drops it (the region is a slab of its
 * own, and closing it does not punch it), so the last ranks still read the arrivals, and which rank
 * left when.
 *
 * A rank is numbered here by its place among the n of the node, except in the outboxes: these have
 * room for all ranks of the job, and the node's leader fills in those of other nodes (across.h).
 *
 * Layout, lines of WF_BOARD_LINE; n ranks, k rounds of dissemination:
 *   line 0          magic, ranks of the job: checked by every rank that opens it
 *   line 1          arrivals: grows by n in each barrier; then two calls (below)
 *   line 2          departures: how many ranks have left; then trouble (below); then the
 *                   last call in which a rank waited long
 *   line 3          of the split-phase barrier of three ranks and more: notices,
 *                   growing by n in each barrier; then two votes (split.c)
 *   line 4          of a job on several nodes: the last barrier that has ended on all
 *                   nodes; then two verdicts (across.c)
 *   then            left[n], 8 bytes each, rounded up to a line: 0, or 1 + the barriers
 *                   that the rank had passed when it left, with the top bit set if it left
 *                   because another had died
 *   then            flag[sets][n][k], a line each: two calls, the last ones in which the
 *                   round's partner signalled; one set is in use (barrier.c).
 *                   With two ranks also, in the line of round 0: the last split-phase
 *                   barrier that the partner notified, then two votes
 *   then            outboxes[2], WEFT_JOB_ALLGATHER_MAX for each rank of the job
 *
 * A call is a collective's number, kind and length in one word, by which ranks find that their
 * calls differ. Where there are two words, even numbers use the first and odd ones the second:
 * a rank can be one collective ahead of another that has not read its word yet, but not two.
 *
 * Counters only grow, so nothing is reset, and a rank may be one barrier ahead. A process of the
 * node that writes garbage here can end or stall collectives; no value read here is an index or a
 * length.
 *
 * Acquire/release pairs
 *   "arrive"   barrier.c: a signal or the arrivals (release) with the wait for them (acquire):
 *              a rank that has passed a barrier sees what the others did before it; in a
 *              split-phase barrier also the vote before the notice; on several nodes also what
 *              the leader received
 *   "depart"   wf_board_depart (release) with wf_board_left and
 *              wf_board_missing (acquire) */
#ifndef WF_JOB_BOARD_H
#define WF_JOB_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/job.h>

/* Two cache lines: with one, the adjacent-line prefetcher of x86 fetches another rank's flag along
 * with the own one (2 ranks: barrier over bare exchange up to 1.5, with two lines up to 1.2). */
#define WF_BOARD_LINE 128

struct wf_board {
    unsigned char *base; /* null: not open */
    unsigned me, n, rounds;
    uint64_t *arrivals; /* followed by two calls */
    uint64_t *notices;  /* followed by two votes */
    unsigned sets;
    unsigned total; /* ranks of the job */
    unsigned char *all_flags;
    unsigned char *flags; /* of the set in use: flag[rank][round] */
    unsigned char *outboxes;
    uint64_t *released; /* followed by two verdicts */
    uint64_t *trouble;
    uint64_t *waits; /* the call in which a rank waits long */
};

/* A call: number in the bits above WF_CALL_BITS, kind, length (at most
 * WEFT_JOB_ALLGATHER_MAX). 49 bits of number last 600 days at 100 ns for each collective. */
enum wf_call_kind {
    WF_CALL_BARRIER,
    WF_CALL_GATHER,
    WF_CALL_MEMORY, /* one of the gathers of weft_job_mem_alloc */
    WF_CALL_SPLIT,  /* a barrier in two steps; length 0 */
};
#define WF_CALL_LEN_BITS 13
#define WF_CALL_BITS 15
/* Replaces kind and length when two ranks' calls differ. */
#define WF_CALL_MISMATCH (((uint64_t)1 << WF_CALL_BITS) - 1)
_Static_assert(WEFT_JOB_ALLGATHER_MAX < (1 << WF_CALL_LEN_BITS) - 1, "no length is a mismatch");

static inline uint32_t wf_call_of(enum wf_call_kind kind, size_t len)
{
    return (uint32_t)kind << WF_CALL_LEN_BITS | (uint32_t)len;
}

static inline uint64_t wf_call_number(uint64_t call)
{
    return call >> WF_CALL_BITS;
}

static inline bool wf_call_is_mismatch(uint64_t call)
{
    return (call & WF_CALL_MISMATCH) == WF_CALL_MISMATCH;
}

#define WF_CALL_NAME 40
/* For the log. */
void wf_call_name(uint64_t call, char name[WF_CALL_NAME]);

/* Merge [call] into the word [place]. Sets *old to the word before and returns the word after:
 * [call], a mismatch of the same number, or a call of a higher number, which stays. */
uint64_t wf_call_add(uint64_t *place, uint64_t call, uint64_t *old);

/* Bytes of the board of a node with any number of a job's [total] ranks, and with [n]. */
size_t wf_board_room(unsigned total);
size_t wf_board_size(unsigned n, unsigned total);

/* Mark [base], wf_board_room(total) zeroed bytes, as a board, before other ranks can open it. */
void wf_board_make(void *base, unsigned total);

/* Use [base] as rank [me] of [n]. Returns OK | EPROTO (it is not marked) */
enum weft_status wf_board_open(struct wf_board *b, void *base, unsigned me, unsigned n,
                               unsigned total);

/* Use flag set [set] from the next barrier on; all ranks change together. */
static inline void wf_board_use(struct wf_board *b, unsigned set)
{
    b->flags = b->all_flags + (size_t)set * b->n * b->rounds * WF_BOARD_LINE;
}

/* In round [k] of a dissemination barrier rank r signals rank r + 2^k. */
static inline uint64_t *wf_board_flag(const struct wf_board *b, unsigned rank, unsigned k)
{
    return (uint64_t *)(void *)(b->flags + ((size_t)rank * b->rounds + k) * WF_BOARD_LINE);
}

/* The outbox of rank [rank] of the job for [len] bytes, <= WEFT_JOB_ALLGATHER_MAX. Outboxes share
 * no line, and lie as close together as [len] allows, to touch few pages. */
static inline unsigned char *wf_board_outbox(const struct wf_board *b, unsigned rank, unsigned half,
                                             size_t len)
{
    size_t stride = (len + WF_BOARD_LINE - 1) / WF_BOARD_LINE * WF_BOARD_LINE;
    return b->outboxes + (size_t)half * b->total * WEFT_JOB_ALLGATHER_MAX + rank * stride;
}

/* Record that this rank leaves, having passed so many barriers, and whether a rank has died. */
void wf_board_depart(struct wf_board *b, uint64_t passed, bool death);
bool wf_board_left(const struct wf_board *b, unsigned rank);
/* Has any rank left without passing barrier number [barrier]?
 * OK (none) | ECLOSED | EPEER (because another died) */
enum weft_status wf_board_missing(const struct wf_board *b, uint64_t barrier);

/* Trouble: why collectives of a job on several nodes cannot end any more. 0: none. Bits:
 *   WF_TROUBLE_DEATH     a rank died: no collective ends
 *   WF_TROUBLE_MISMATCH  ranks made different calls, or a rank broke the protocol
 *   WF_TROUBLE_NUMBER    the first collective in which they did; without MISMATCH the first one
 *                        before which a rank left */
#define WF_TROUBLE_DEATH ((uint64_t)1 << 63)
#define WF_TROUBLE_MISMATCH ((uint64_t)1 << 62)
#define WF_TROUBLE_NUMBER (WF_TROUBLE_MISMATCH - 1)

/* Both combined. A mismatch hides a departure, which may follow from it. */
static inline uint64_t wf_trouble_worse(uint64_t a, uint64_t b)
{
    uint64_t death = (a | b) & WF_TROUBLE_DEATH, first;
    a &= ~WF_TROUBLE_DEATH;
    b &= ~WF_TROUBLE_DEATH;
    if ((a ^ b) & WF_TROUBLE_MISMATCH)
        return death | (a > b ? a : b);
    first = !a || (b && b < a) ? b : a;
    return death && !(first & WF_TROUBLE_MISMATCH) ? death : death | first;
}

/* Combine [trouble] with the board's. Returns the result. */
uint64_t wf_board_trouble(struct wf_board *b, uint64_t trouble);

#endif
