/* SPDX-License-Identifier: BSD-3-Clause */
/* The board: a small region of memory that the ranks of one node share. It holds their barriers,
 * the bytes that they gather, and which of them have left the job.
 *
 * The lowest rank of the node hosts the region. Every other rank of the node opens one remote to
 * it, and then loads and stores in the mapped memory. Ranks do not put or get, because put and get
 * fail once the host has closed the region. The first rank that leaves a barrier may close the job
 * while other ranks are still in that barrier. A rank's mapping stays until the rank closes its
 * remote: the region has a slab (a memfd) of its own, and closing the region punches no hole in its
 * pages. So the last ranks can still read the arrivals, and which rank left when.
 *
 * The board numbers the ranks of the node from 0 to n - 1, in the order of their ranks in the job.
 * Only the outboxes are numbered by the ranks of the whole job. The lowest rank of a node fills in
 * the outboxes of ranks on other nodes (across.h).
 *
 * Layout in lines of WF_BOARD_LINE bytes, for n ranks and k rounds of dissemination:
 *   line 0  magic number, number of ranks of the job. Every rank that opens the board checks them
 *   line 1  arrivals, which grow by n in each barrier; then two calls (see below)
 *   line 2  departures: how many ranks have left; then trouble (see below); then the last call in
 *           which a rank waited long
 *   line 3  for split-phase barriers of three or more ranks: notices, which grow by n in each
 *           barrier; then two votes (split.c)
 *   line 4  for jobs on several nodes: the number of the last barrier that has ended on all nodes;
 *           then two verdicts, the combined votes of all ranks (across_split.c)
 *   then    steps[r], one line each, for jobs on several nodes, r = ceil(log2 of the job's ranks):
 *           two votes that another node sent in that round of a split-phase barrier; in the second
 *           half of the line, which copies of this node's own vote were sent (across_split.c)
 *   then    left[n], 8 bytes each, rounded up to a line: 0 while the rank takes part. Then 1 + the
 *           number of barriers that the rank had passed when it left. The top bit is set if the
 *           rank left because another rank had died
 *   then    flag[sets][n][k], one line each: two calls, the last ones in which the partner of that
 *           round signalled. One set is in use (barrier.c). With two ranks, the line of round 0
 *           also holds the number of the last split-phase barrier that the partner notified, then
 *           two votes
 *   then    outboxes[2], each with WEFT_JOB_ALLGATHER_MAX bytes for each rank of the job
 *
 * A call is a word with the number, kind and length of a collective. Ranks compare these words to
 * find out whether they made different calls. Where there are two words, collectives with even
 * numbers use the first word and collectives with odd numbers the second. A rank can be one
 * collective ahead of a rank that has not read its word yet, but not two.
 *
 * Counters only grow, so nothing is reset, and a rank may be one barrier ahead. A process of the
 * node that writes garbage to the board can end or stall collectives. It can do no more, since no
 * value read from the board is used as an index or a length.
 *
 * Acquire and release pairs
 *   "arrive"  barrier.c: a rank stores a signal or adds to the arrivals (release), and other ranks
 *             wait for that (acquire). A rank that has passed a barrier sees what other ranks did
 *             before it. In a split-phase barrier it also sees the votes. On several nodes it also
 *             sees what any rank of its node received
 *   "depart"  wf_board_depart (release) with wf_board_left and wf_board_missing (acquire) */
#ifndef WF_JOB_BOARD_H
#define WF_JOB_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/job.h>

/* Bytes for each flag: two cache lines. If a flag had one line, the adjacent-line prefetcher of x86
 * would fetch another rank's flag together with a rank's own flag. (Measured with 2 ranks, relative
 * to a bare exchange of a line: a barrier took up to 1.5 times as long with one line for each flag,
 * and up to 1.2 times as long with two lines.) */
#define WF_BOARD_LINE 128

struct wf_board {
    unsigned char *base; /* NULL: not open */
    unsigned me, n, rounds;
    uint64_t *arrivals; /* followed by two calls */
    uint64_t *notices;  /* followed by two votes */
    unsigned sets;
    unsigned total; /* ranks of the job */
    unsigned char *all_flags;
    unsigned char *flags; /* flag[rank][round] of the set in use */
    unsigned char *outboxes;
    uint64_t *released; /* followed by two verdicts */
    unsigned char *steps;
    uint64_t *trouble;
    uint64_t *waits; /* the call in which a rank waits long */
};

/* A call in one word: the collective's number in the bits above WF_CALL_BITS, then its kind, then
 * its length (at most WEFT_JOB_ALLGATHER_MAX). 49 bits of number last 600 days at 100 ns per
 * collective. */
enum wf_call_kind {
    WF_CALL_BARRIER,
    WF_CALL_GATHER,
    WF_CALL_MEMORY, /* a gather inside weft_job_mem_alloc */
    WF_CALL_SPLIT,  /* a barrier in two steps; length 0 */
};
#define WF_CALL_LEN_BITS 13
#define WF_CALL_BITS 15
/* Replaces the kind and length in a call word when two ranks' calls differ. */
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
/* Write the text of [call] for the log. */
void wf_call_name(uint64_t call, char name[WF_CALL_NAME]);

/* Merge [call] into the word at [place], atomically. Sets *old to the previous word. Returns the
 * new word:
 *   [call], if *old has a lower number or is equal to [call];
 *   WF_CALL_MISMATCH with the same number, if *old is a different call of the same number;
 *   *old, if it has a higher number. */
uint64_t wf_call_add(uint64_t *place, uint64_t call, uint64_t *old);

/* wf_board_size returns the bytes of the board of a node with [n] of a job's [total] ranks.
 * wf_board_room returns enough bytes for a node with any number of these ranks. */
size_t wf_board_room(unsigned total);
size_t wf_board_size(unsigned n, unsigned total);

/* Mark [base] as a board before other ranks can open it. [base] has wf_board_room(total) zeroed
 * bytes. */
void wf_board_make(void *base, unsigned total);

/* Fill in [b] for the board at [base]. [me] is the index of this rank among the [n] ranks of the
 * node. Returns OK | EPROTO (wf_board_make has not marked [base] for [total] ranks) */
enum weft_status wf_board_open(struct wf_board *b, void *base, unsigned me, unsigned n,
                               unsigned total);

/* From the next barrier on, use the flags of set number [set]. All ranks of the node must change
 * the set between the same two barriers. */
static inline void wf_board_use(struct wf_board *b, unsigned set)
{
    b->flags = b->all_flags + (size_t)set * b->n * b->rounds * WF_BOARD_LINE;
}

/* Returns the flag that [rank] waits for in round [k] of a dissemination barrier. Rank [rank] -
 * 2^k, modulo n, sets this flag. */
static inline uint64_t *wf_board_flag(const struct wf_board *b, unsigned rank, unsigned k)
{
    return (uint64_t *)(void *)(b->flags + ((size_t)rank * b->rounds + k) * WF_BOARD_LINE);
}

/* Returns the two votes that this node received in round [k] of split-phase barriers, the first for
 * barriers with even numbers. */
static inline uint64_t *wf_board_votes(const struct wf_board *b, unsigned k)
{
    return (uint64_t *)(void *)(b->steps + (size_t)k * WF_BOARD_LINE);
}

/* Returns the word that records which copies of this node's vote were sent in round [k]. */
static inline uint64_t *wf_board_copies(const struct wf_board *b, unsigned k)
{
    return wf_board_votes(b, k) + WF_BOARD_LINE / 2 / sizeof(uint64_t);
}

/* Returns the outbox, the place for the [len] bytes that rank [rank] of the job contributes to a
 * gather. [len] is at most WEFT_JOB_ALLGATHER_MAX. Consecutive collectives use half 0 and half 1 in
 * turn. No two outboxes share a line. They lie as close together as [len] allows, so that a short
 * gather touches few pages. */
static inline unsigned char *wf_board_outbox(const struct wf_board *b, unsigned rank, unsigned half,
                                             size_t len)
{
    size_t stride = (len + WF_BOARD_LINE - 1) / WF_BOARD_LINE * WF_BOARD_LINE;
    return b->outboxes + (size_t)half * b->total * WEFT_JOB_ALLGATHER_MAX + rank * stride;
}

/* Record that this rank leaves the job after it has passed [passed] barriers. [death] is true if
 * this rank leaves because another rank died. */
void wf_board_depart(struct wf_board *b, uint64_t passed, bool death);
bool wf_board_left(const struct wf_board *b, unsigned rank);
/* Has a rank of this node left the job without passing barrier number [barrier]?
 * Returns OK (no) | ECLOSED (yes) | EPEER (a rank left because another rank had died) */
enum weft_status wf_board_missing(const struct wf_board *b, uint64_t barrier);

/* Trouble: a word that states why collectives of a job on several nodes cannot end. 0 means that
 * nothing prevents them. Bits:
 *   WF_TROUBLE_DEATH     a rank died, so no collective ends
 *   WF_TROUBLE_MISMATCH  ranks made different calls, or a rank broke the protocol
 *   WF_TROUBLE_NUMBER    a collective's number. With MISMATCH: the first collective in which the
 *                        calls differed. Without: the first collective in which a rank that left is
 *                        missing */
#define WF_TROUBLE_DEATH ((uint64_t)1 << 63)
#define WF_TROUBLE_MISMATCH ((uint64_t)1 << 62)
#define WF_TROUBLE_NUMBER (WF_TROUBLE_MISMATCH - 1)

/* Combine two trouble words into the more serious one. A mismatch replaces a departure, because a
 * rank may have left as a consequence of the mismatch. */
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

/* Combine [trouble] with the trouble word on the board, and store the result there. Returns the
 * result. */
uint64_t wf_board_trouble(struct wf_board *b, uint64_t trouble);

#endif
