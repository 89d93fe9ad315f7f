/* SPDX-License-Identifier: BSD-3-Clause */
/* Fewer rings than peers: E endpoints, each with RINGS rings of one slot, send a long message to
 * each other. It goes as an offer, which its receiver answers when it polls; when a receive has
 * matched it, the receiver sends DONE back by a ring of its own. README.md names the modelled
 * parts.
 *
 *   E=<2..4>     endpoints
 *   RINGS=<1,2>  rings of each
 *   SENDERS=<n>  endpoints that send; the others only receive
 *   ORDER=<0..2> applications receive in any order; each from the next endpoint first and from the
 *                others only after that; from the one before it first
 *   STREAM=1     instead: endpoint 0 sends short messages to endpoint 1 without a pause, and an
 *                offer to 2; it looks for a drained ring when it polls, between them
 *   PARTS=1      with STREAM: two short messages may be the parts of one message, and the ring is not
 *                lent between them
 *   BUG=<n>      plant one bug, the list below
 *   WITNESS=1    claim that not everything is received in the end (must be refuted) */
#ifndef E
#define E 3
#endif
#ifndef RINGS
#define RINGS 1
#endif
#ifndef SENDERS
#define SENDERS E
#endif
#ifndef ORDER
#define ORDER 0
#endif
#ifndef STREAM
#define STREAM 0
#endif
#ifndef PARTS
#define PARTS 0
#endif
#ifndef BUG
#define BUG 0
#endif
#ifndef WITNESS
#define WITNESS 0
#endif

#define OFFER_KEEPS 1 /* a ring is not lent before the offer to its peer is done */
#define UNANSWERED 2  /* a ring is lent before its last request was answered */
#define DONE_WAITS 3  /* an endpoint sends DONE only when its own offers are done */
#define NO_RECLAIM 4  /* STREAM: short messages go on although an offer waits for a ring */
#define LENT_PART 5   /* PARTS: the ring is lent between two parts */
#define HELD_PART 6   /* PARTS: while an offer waits for a ring, a second part does not go on */

#define PATIENCE 2 /* looks for a drained ring before those there are get no more */
#define MOST (PATIENCE + PARTS) /* short messages while the offer waits */

#define NONE 255
mtype { EMPTY, OFFER, DONE, SHORT, ANSWERED }; /* ANSWERED: consumed; its sender has yet to look */

typedef ring { byte to = NONE; byte holds = EMPTY };
ring rings[E * RINGS]; /* of endpoint i: from i * RINGS */
typedef row { bool b[E] };
row offered[E], arrived[E], taken[E], done[E]; /* by sender, receiver */
byte received[E];                              /* messages that its application has received */
byte finished, looks, shorts;
bool unfinished; /* one part was sent by ring 0, the other not yet */

#if BUG == OFFER_KEEPS
#define IS_KEPT(q) (rings[q].to != NONE && offered[(q) / RINGS].b[rings[q].to] && \
    !done[(q) / RINGS].b[rings[q].to])
#else
#define IS_KEPT(q) false
#endif
#if BUG == UNANSWERED
#define IS_DRAINED(q) (rings[q].holds == EMPTY || rings[q].holds == ANSWERED)
#else
#define IS_DRAINED(q) (rings[q].holds == EMPTY)
#endif
#define IS_UNFINISHED(q) (unfinished && (q) == 0 && BUG != LENT_PART)
#define MAY_LEND(q) (IS_DRAINED(q) && !(IS_KEPT(q)) && !(IS_UNFINISHED(q)))
#define GOES_TO(q, j) (rings[q].to == (j))

/* Can i send to j now? By the ring that it has for j, if there is room, else by one that it lends. */
#if RINGS == 1
#define HAS(i, j) GOES_TO(i, j)
#define CAN(i, j) ((HAS(i, j) && rings[i].holds == EMPTY) || (!HAS(i, j) && MAY_LEND(i)))
#else
#define HAS(i, j) (GOES_TO(2 * (i), j) || GOES_TO(2 * (i) + 1, j))
#define CAN(i, j) ((GOES_TO(2 * (i), j) && rings[2 * (i)].holds == EMPTY) || \
    (GOES_TO(2 * (i) + 1, j) && rings[2 * (i) + 1].holds == EMPTY) || \
    (!HAS(i, j) && (MAY_LEND(2 * (i)) || MAY_LEND(2 * (i) + 1))))
#endif

inline put(from, dest, what) /* CAN(from, dest) */
{
    if
    :: GOES_TO((from) * RINGS, dest) -> q = (from) * RINGS
    :: RINGS == 2 && GOES_TO((from) * RINGS + RINGS - 1, dest) -> q = (from) * RINGS + RINGS - 1
    :: !(HAS(from, dest)) && MAY_LEND((from) * RINGS) -> q = (from) * RINGS
    :: RINGS == 2 && !(HAS(from, dest)) && MAY_LEND((from) * RINGS + RINGS - 1) -> q = (from) * RINGS + RINGS - 1
    fi;
    assert(rings[q].holds == EMPTY); /* an answer would be lost with its ring */
    assert(!unfinished || q != 0 || rings[q].to == (dest)); /* the receiver would miss the second part */
    rings[q].to = dest;
    rings[q].holds = what;
    q = 0
}

/* The poll of the receiver, and of the sender for the answer. */
proctype way(byte q)
{
    byte i, j;
end_way:
    do
    :: atomic { rings[q].holds == OFFER ->
        i = q / RINGS; j = rings[q].to;
        assert(!arrived[i].b[j]);
        arrived[i].b[j] = true;
        rings[q].holds = ANSWERED; i = 0; j = 0 }
    :: atomic { rings[q].holds == DONE ->
        i = q / RINGS; j = rings[q].to;
        assert(taken[j].b[i] && !done[j].b[i]);
        done[j].b[i] = true; finished++;
        rings[q].holds = EMPTY; i = 0; j = 0 }
    :: atomic { rings[q].holds == SHORT -> rings[q].holds = EMPTY }
    :: atomic { rings[q].holds == ANSWERED -> rings[q].holds = EMPTY }
    od
}

#if ORDER == 1
#define TURN(i, j) ((i) == ((j) + 1 + received[j]) % E)
#elif ORDER == 2
#define TURN(i, j) ((i) == ((j) + E - 1 - received[j]) % E)
#else
#define TURN(i, j) true
#endif

#define finished_of(j) ((j == 0 || done[j].b[0]) && (j == 1 || done[j].b[1]) && \
    (E < 3 || j == E - 1 || done[j].b[E - 1]))

/* One long message, from i to j. */
proctype message(byte i; byte j)
{
    byte q;
    atomic { CAN(i, j) -> put(i, j, OFFER); offered[i].b[j] = true };
    atomic { arrived[i].b[j] && TURN(i, j) -> taken[i].b[j] = true; received[j]++ };
    atomic { CAN(j, i) && (BUG != DONE_WAITS || finished_of(j)) -> put(j, i, DONE) }
}
#if STREAM
#define MESSAGES 1
proctype stream()
{
    byte q;
    bool sent;
    do
    :: atomic { !sent && !offered[0].b[2] && CAN(0, 1) &&
            (BUG == NO_RECLAIM || looks < PATIENCE || (unfinished && BUG != HELD_PART)) ->
        put(0, 1, SHORT);
        shorts++; sent = true;
        if
        :: unfinished = PARTS && !unfinished
        :: unfinished = false /* or a message of one part, or the last part */
        fi;
        assert(shorts <= MOST) }
    /* it polls: the ring is drained, or not at this moment */
    :: atomic { sent && !offered[0].b[2] && !(CAN(0, 2)) && looks < PATIENCE -> looks++; sent = false }
    :: atomic { sent && unfinished && !offered[0].b[2] && !(CAN(0, 2)) && looks == PATIENCE -> sent = false }
    :: atomic { sent && BUG == NO_RECLAIM && !(CAN(0, 2)) && looks == PATIENCE -> sent = false }
    :: atomic { !offered[0].b[2] && CAN(0, 2) && sent ->
        put(0, 2, OFFER);
        offered[0].b[2] = true }
    :: atomic { !offered[0].b[2] && CAN(0, 2) && looks == PATIENCE ->
        put(0, 2, OFFER);
        offered[0].b[2] = true }
    :: offered[0].b[2] -> break
    od;
    atomic { arrived[0].b[2] -> taken[0].b[2] = true };
    atomic { CAN(2, 0) -> put(2, 0, DONE) }
}
#else
#define MESSAGES (SENDERS * (E - 1))
#endif

init
{
    byte i, j;
    atomic {
        for (i : 0 .. E * RINGS - 1) { run way(i) }
#if STREAM
        run stream();
#else
        for (i : 0 .. E - 1) {
            for (j : 0 .. E - 1) {
                if
                :: i != j && i < SENDERS -> run message(i, j)
                :: else
                fi
            }
        }
#endif
    };
    timeout -> assert(finished == MESSAGES);
    assert(!WITNESS)
}
