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
 *   line 1          arrivals: counts up by n per barrier
 *   line 2          departures: how many ranks have left; then trouble (below)
 *   line 3          of the split-phase barrier of three ranks and more: notices,
 *                   counting up by n per barrier, then two votes (split.c)
 *   line 4          of a job on several nodes: the last barrier that has ended
 *                   everywhere, then two verdicts (across.c)
 *   then            left[n], 8 bytes each, rounded up to a line: 0, or one more
 *                   than the barriers that rank had passed when it left, with the
 *                   top bit set if it left because another had died
 *   then            flag[sets][n][k], a line each: the last barrier in which the
 *                   round's partner signalled; one set is in use (barrier.c).
 *                   In the same line of round 0, between two ranks: the last
 *                   split-phase barrier the partner notified, then two votes
 *   then            outboxes[2], WEFT_JOB_ALLGATHER_MAX for each rank of the job
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
    uint64_t *arrivals;
    uint64_t *notices; /* and behind it two votes */
    unsigned sets;
    unsigned total; /* ranks of the job */
    unsigned char *all_flags;
    unsigned char *flags; /* of the set in use: flag[rank][round] */
    unsigned char *outboxes;
    uint64_t *released; /* and behind it two verdicts */
    uint64_t *trouble;
};

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

/* Trouble: why collectives of a job on several nodes cannot end any more. WF_TROUBLE_DEATH, or
 * the number of the first barrier that somebody left before; 0: none. */
#define WF_TROUBLE_DEATH ((uint64_t)1 << 63)

static inline uint64_t wf_trouble_worse(uint64_t a, uint64_t b)
{
    if ((a | b) & WF_TROUBLE_DEATH)
        return WF_TROUBLE_DEATH;
    return !a || (b && b < a) ? b : a;
}

/* Add [trouble] to what is known. Returns all that is. */
uint64_t wf_board_trouble(struct wf_board *b, uint64_t trouble);

#endif
