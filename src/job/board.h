/* SPDX-License-Identifier: BSD-3-Clause */
/* The job's board: one small region in which the ranks of a node keep their
 * barriers, what they gather, and who has left.
 *
 * The node's lowest rank hosts it and every mate opens a remote to it: one remote
 * per rank, however many ranks there are. It is used as what it is, memory
 * mapped by all, not by put and get: these stop working when the host closes
 * the region, and a rank that is the first out of a barrier may close the job
 * while others are still inside that barrier. The mapping itself stays until
 * its own mapper drops it (a slab of its own: closing it does not punch it),
 * so the last ones still find the arrivals there, and who left when.
 *
 * Ranks are called here by their place among the n of the node, but for the outboxes: they
 * have room for all the ranks of the job, and those of other nodes are filled in by the node's
 * leader (across.h).
 *
 * Layout, lines of WF_BOARD_LINE; n ranks, k rounds of dissemination:
 *   line 0          magic, ranks of the job: a mate compares them
 *   line 1          arrivals: counts up by n per barrier; then two calls (below)
 *   line 2          departures: how many ranks have left; then trouble (below); then the
 *                   last call in which a rank waited long
 *   line 3          of the split-phase barrier of three ranks and more: notices,
 *                   counting up by n per barrier, then two votes (split.c)
 *   line 4          of a job on several nodes: the last barrier that has ended
 *                   everywhere, then two verdicts (across.c)
 *   then            left[n], 8 bytes each, rounded up to a line: 0, or one more
 *                   than the barriers that rank had passed when it left, with the
 *                   top bit set if it left because another had died
 *   then            flag[sets][n][k], a line each: two calls, the last ones in which the
 *                   round's partner signalled; one set is in use (barrier.c).
 *                   In the same line of round 0, between two ranks: the last
 *                   split-phase barrier the partner notified, then two votes
 *   then            outboxes[2], WEFT_JOB_ALLGATHER_MAX for each rank of the job
 *
 * A call is a collective's number, kind and length in one word, so that ranks find out when
 * theirs differ. Where there are two, an even number uses the first and an odd one the second:
 * a rank can be one collective ahead of another that has not read its call yet, but not two.
 *
 * All counters only grow, so nothing is ever reset and a rank that runs ahead
 * by one barrier harms nobody. A mate that scribbles here can end or stall
 * collectives, but no value read here is used as an index or a length.
 *
 * Acquire/release pairs
 *   "arrive"   barrier.c: a signal or the arrivals (release) with the wait for
 *              them (acquire): what a rank did before a barrier is seen by who
 *              passed it; of the split-phase barrier, the vote that lies before
 *              the notice, too; of several nodes, what their leader was sent
 *   "depart"   wf_board_depart (release) with wf_board_left and
 *              wf_board_missing (acquire) */
#ifndef WF_JOB_BOARD_H
#define WF_JOB_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/job.h>

/* Two cache lines: with one, the adjacent-line prefetcher of x86 takes a mate's
 * flag along with the own one (2 ranks: barrier over bare exchange up to 1.5,
 * with two lines up to 1.2). */
#define WF_BOARD_LINE 128

struct wf_board {
    unsigned char *base; /* null: not open */
    unsigned me, n, rounds;
    uint64_t *arrivals; /* and behind it two calls */
    uint64_t *notices;  /* and behind it two votes */
    unsigned sets;
    unsigned total; /* ranks of the job */
    unsigned char *all_flags;
    unsigned char *flags; /* of the set in use: flag[rank][round] */
    unsigned char *outboxes;
    uint64_t *released; /* and behind it two verdicts */
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
/* In place of kind and length: two ranks' differ. */
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
/* In words, for the log. */
void wf_call_name(uint64_t call, char name[WF_CALL_NAME]);

/* Add [call] to the word [place]. *old: what was there. Returns what is there now: [call], a
 * mismatch of the same number, or what has a higher number, which is left alone. */
uint64_t wf_call_add(uint64_t *place, uint64_t call, uint64_t *old);

/* Bytes for the board of any number of a job's [total] ranks, and for that of [n]. */
size_t wf_board_room(unsigned total);
size_t wf_board_size(unsigned n, unsigned total);

/* Mark [base], wf_board_room(total) zeroed bytes, as a board: before others can open it. */
void wf_board_make(void *base, unsigned total);

/* Use [base] as rank [me] of [n]. Returns OK | EPROTO (it is not marked so) */
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

/* Where rank [rank] of the job leaves its [len] bytes, <= WEFT_JOB_ALLGATHER_MAX. No line is
 * shared, and no more pages are touched than the length asks for. */
static inline unsigned char *wf_board_outbox(const struct wf_board *b, unsigned rank, unsigned half,
                                             size_t len)
{
    size_t stride = (len + WF_BOARD_LINE - 1) / WF_BOARD_LINE * WF_BOARD_LINE;
    return b->outboxes + (size_t)half * b->total * WEFT_JOB_ALLGATHER_MAX + rank * stride;
}

/* Say that this rank leaves, having passed so many barriers, and whether it
 * knows of a death. */
void wf_board_depart(struct wf_board *b, uint64_t passed, bool death);
bool wf_board_left(const struct wf_board *b, unsigned rank);
/* Has any rank left that has not passed barrier number [barrier]?
 * OK (none) | ECLOSED | EPEER (because another died) */
enum weft_status wf_board_missing(const struct wf_board *b, uint64_t barrier);

/* Trouble: why collectives of a job on several nodes cannot end any more. 0: none. Bits:
 *   WF_TROUBLE_DEATH     a rank died: no collective ends
 *   WF_TROUBLE_MISMATCH  the number is that of the first collective in which ranks made different
 *                        calls, or a rank broke the protocol
 *   the rest             else it is that of the first collective that a rank left before */
#define WF_TROUBLE_DEATH ((uint64_t)1 << 63)
#define WF_TROUBLE_MISMATCH ((uint64_t)1 << 62)
#define WF_TROUBLE_NUMBER (WF_TROUBLE_MISMATCH - 1)

/* Both together. A mismatch hides a leaving, which may follow from it. */
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

/* Add [trouble] to what is known. Returns all that is. */
uint64_t wf_board_trouble(struct wf_board *b, uint64_t trouble);

#endif
