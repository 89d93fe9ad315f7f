/* SPDX-License-Identifier: BSD-3-Clause */
/* The node service: two clients of service A each send numbered messages, a flow, through A and
 * service B to an endpoint of node B. Both services may die between any two steps, and be replaced
 * by successors. README.md names the modelled parts; docs/design/node.md describes the protocol.
 *
 *   N0, N1      messages of each flow
 *   SAME=1      both flows go to one endpoint; else each to an endpoint of its own
 *   STOP=1      SAME=0: endpoint 0 may stop consuming for good
 *   LATE=1      the lane's queue pair reads a message from its client's block when the message is
 *               taken at node B; else A copies the message into the lane
 *   DIES=<n>    how many times a service dies
 *   EVICT=<n>   how many times B forgets which number of a flow it expects
 *   AFULL=1     A refuses entries while its lane is full, instead of leaving them in the ring
 *   BACK=1      B's answers wait in the lane; else A has them at once
 *   ENDS=1      SAME=0: endpoint 0 may close
 *   Q, L, R     entries of a submit ring, frames of a lane, entries of an endpoint's ring
 *   LIVE=1      look for endless work in which no endpoint reads a message, instead
 *   BUG=<n>     plant one bug, the list below
 *   WITNESS=1   claim that not everything is delivered (must be refuted) */
#ifndef N0
#define N0 2
#endif
#ifndef N1
#define N1 1
#endif
#ifndef SAME
#define SAME 0
#endif
#ifndef STOP
#define STOP 0
#endif
#ifndef LATE
#define LATE 0
#endif
#ifndef DIES
#define DIES 1
#endif
#ifndef EVICT
#define EVICT 0
#endif
#ifndef AFULL
#define AFULL 0
#endif
#ifndef BACK
#define BACK 0
#endif
#ifndef ENDS
#define ENDS 0
#endif
#ifndef Q
#define Q 1
#endif
#ifndef L
#define L 1
#endif
#ifndef R
#define R 1
#endif
#ifndef LIVE
#define LIVE 0
#endif
#ifndef BUG
#define BUG 0
#endif
#ifndef WITNESS
#define WITNESS 0
#endif

#define NO_FENCE 1     /* LATE=1: a client posts again while the dead A's lane reads its blocks */
#define NO_DROP 2      /* the receiving library delivers a number that it has */
#define ACK_EARLY 3    /* B acknowledges before the message is in the endpoint's ring */
#define NOT_STICKY 4   /* B takes the next number of a flow, though it has refused an earlier one */
#define LANE_STICKY 5  /* B refuses all for an endpoint until any sender begins again; no numbers */
#define ONE_WORD 6     /* AFULL=1: A's own answers and B's share a word */
#define UNKNOWN_DROPS 7 /* B drops messages for an endpoint that has not attached to it yet */
#define NO_ROOM 8      /* B forgets which flows wait for room */
#define NO_SESSION 9   /* A does not show its clients that B was lost */
#define FREE_AT_READ 10 /* a client forgets a message when A has read its entry */
#define STALE_RING 11  /* holds: a client attaches with entries that the dead A has not read */
#define BEHIND 12      /* a client resumes behind what it last posted, not at the oldest message */
#define ROOM_EARLY 14  /* AFULL=1 LIVE=1: A's room counts before B has answered what was sent */
#define EVICT_UNACKED 15 /* EVICT=1: B forgets a flow before it has acknowledged its messages */
#define FORWARD_ALL 16 /* AFULL=1 LIVE=1: A forwards what is behind an entry that it refused */
#define OLD_SESSION 13 /* LATE=1: A forwards entries that were meant for an earlier session */
#define NO_LEFT 17     /* ENDS=1: a dead B's page does not show which endpoints were closed */
#define NO_HEED 18     /* ENDS=1: a flow with nothing to send does not begin again after a death */
#define REFUSED_ONLY 19 /* ENDS=1: a refused flow looks for room alone */
#define PAST_ATTEMPT 20 /* ENDS=1: A stores an answer about an earlier attempt over a present one */

#define F 2 /* flows, one of each client */
#define W 2 /* messages of a flow in flight: blocks */
#if N0 > N1
#define LONGEST N0
#else
#define LONGEST N1
#endif
#if ENDS /* a death makes a flow with nothing to send send one message without a handler, HEED */
#define MOST (LONGEST + DIES)
byte heeds[F], why[F]; /* CLOSED or DEAD: the client has lost its peer */
#define N(f) (((f) == 0 -> N0 : N1) + heeds[f])
#define OVER(x) (why[x])
#else
#define MOST LONGEST
#define N(f) ((f) == 0 -> N0 : N1)
#define OVER(x) false
#endif
#define TO(f) (SAME -> 0 : (f))
/* Attempts are numbered modulo 2^16. Only equality matters here, so a new attempt gets the least
 * number that nobody holds. */
#if ENDS
#define HELD_ACK(x, v) (tried[x] == (v))
#define TRIED(x) tried[x]
#else
#define HELD_ACK(x, v) false
#define TRIED(x) 0
#endif
#define HELD(x, v)                                                                                 \
    ((v) == att[x] || HELD_ACK(x, v) || submit[x]??[_, _, eval(v), _, _] ||                        \
     lane??[eval(x), _, _, eval(v), _, _] || back??[_, eval(x), _, eval(v)] ||        \
     waits[x] == (v) + 1 || a_waits[x] == (v) + 1)
#define NONE 15

mtype { ACK, REFUSED, ROOM, CLOSED, DEAD };

/* ---- memory of the clients of node A: it outlives A ---- */

/* number, begin, attempt, block, session */
chan submit[F] = [Q] of { byte, bool, byte, byte, byte };
byte slot_upto[F];      /* numbers below are in the endpoint's ring */
#define FAR(f) (2 * (f))      /* B's word in the slot of flow f, and */
#define NEAR(f) (2 * (f) + 1) /* A's */
#define AT(x) (BUG == ONE_WORD -> FAR((x) / 2) : (x))
mtype slot_kind[2 * F]; /* 0, or an answer but ACK, of attempt slot_att */
byte slot_att[2 * F];
byte slot_num[F];       /* the first number that A refused in this attempt */
typedef blocks { byte has[W] }; /* number in the block */
blocks block[F];

byte low[F];            /* oldest number that is not acknowledged */
byte next[F];           /* next number to post in this attempt */
byte att[F];
bool begin[F] = true;    /* the next entry begins an attempt */
bool refused[F];        /* sends return AGAIN */
bool attached[F] = true; /* to the present A */
byte seen[F] = 1;       /* session of A and B by which this attempt goes */
typedef places { byte in[MOST] = NONE };
places place[F];        /* block of a number, or NONE */

/* ---- A: only its session, and the flows that wait for its lane ---- */

byte session = 1;       /* in the page that A shows to its clients */
bool lost;              /* the session is broken, and A has not made another yet */
byte a_waits[F];        /* attempt + 1 */
/* flow, number, begin, attempt, block, content */
chan lane = [L] of { byte, byte, bool, byte, byte, byte };
chan under_way = [L] of { byte, byte, bool, byte, byte, byte }; /* what a dead A has left there */
chan back = [L] of { mtype, byte, byte, byte }; /* kind, flow, upto, attempt */

/* ---- B: a cache, which may be lost ---- */

byte expect[F] = NONE;  /* next number; NONE: not known */
byte acked[F];           /* acknowledged so far */
byte waits[F];          /* attempt + 1 of a flow that was refused */
bool sticky[F];         /* LANE_STICKY, by endpoint */
byte hold = NONE;       /* ACK_EARLY: flow of a message that is acknowledged, not in the ring */
#if ENDS
bool end_due;           /* END of endpoint 0 is to be sent */
byte tried[F];          /* the attempt of the flow's last message, which acknowledgements name */
#endif

/* ---- memory of the clients of node B: it outlives B ---- */

chan ring[F] = [R] of { byte, byte, byte }; /* flow, number, content */
bool present[F] = true; /* the endpoint has attached to the present B */
byte got[F];            /* each endpoint's word of senders: how many messages were delivered */
bool stopped;
#if ENDS
bool gone;              /* endpoint 0 has closed */
bool left;              /* B's page shows that to B's successor */
#endif

byte dies, evicts;
bool any_died[2];

hidden byte n, k, b, c, f, u, a, v;
hidden byte g, cut;
hidden mtype kind;

/* Begin a flow again, from the oldest number that is not acknowledged. */
inline again(x)
{
    if
    :: BUG == BEHIND && refused[x]
    :: else -> next[x] = low[x]
    fi;
#if ENDS
    if :: low[x] && low[x] == N(x) && BUG != NO_HEED -> heeds[x]++ :: else fi;
#endif
    v = 0;
    do
    :: HELD(x, v) -> v++
    :: !HELD(x, v) -> break
    od;
    att[x] = v;
    begin[x] = true;
    refused[x] = false;
    /* Else a word might stay until the numbers of attempts come round again. */
    slot_kind[FAR(x)] = 0; slot_att[FAR(x)] = 0;
    slot_kind[NEAR(x)] = 0; slot_att[NEAR(x)] = 0;
    slot_num[x] = 0
}
/* Take the messages from their blocks into the client's own memory. */
inline park(x)
{
    k = 0;
    do
    :: k < MOST -> place[x].in[k] = NONE; k++
    :: else -> break
    od
}
inline ack(x, upto)
{
    do
    :: low[x] < upto -> place[x].in[low[x]] = NONE; low[x] = low[x] + 1
    :: else -> break
    od;
    if :: next[x] < low[x] -> next[x] = low[x] :: else fi
}
#define IS_AT(x, i, b) (place[x].in[i] == (b))
#define IS_FREE(x, b) (!IS_AT(x, 0, b) && !IS_AT(x, 1, b) && !IS_AT(x, MOST - 1, b))
/* Is word [w] about the present attempt of its flow, and news? A's room is of use only when B has
 * answered all that A had sent before. */
#define IS_MINE(w) (slot_kind[w] && slot_att[w] == att[(w) / 2])
#define IS_EARLY(w)                                                                                \
    ((w) % 2 && BUG != ROOM_EARLY &&                                                               \
     (low[(w) / 2] < slot_num[(w) / 2] || (IS_MINE((w) - 1) && slot_kind[(w) - 1] == REFUSED)))
#define IS_END(w) ((slot_kind[w] == CLOSED || slot_kind[w] == DEAD) && BUG != REFUSED_ONLY)
#define MINE(w)                                                                                    \
    (IS_MINE(w) && (slot_kind[w] == ROOM -> !IS_EARLY(w) : (!refused[(w) / 2] || IS_END(w))))
inline look(w)
{
    if
    :: MINE(w) && slot_kind[w] == REFUSED -> park((w) / 2); refused[(w) / 2] = true
    :: MINE(w) && slot_kind[w] == ROOM -> park((w) / 2); again((w) / 2)
#if ENDS
    :: MINE(w) && slot_kind[w] != REFUSED && slot_kind[w] != ROOM ->
        park((w) / 2); why[(w) / 2] = slot_kind[w]
#endif
    :: else
    fi
}

active [F] proctype client()
{
#define me _pid
end_client:
    do
    :: atomic { /* send */
        !OVER(me) && attached[me] && !refused[me] && next[me] < N(me) &&
        next[me] < low[me] + W && nfull(submit[me]) ->
        b = 0;
        if
        :: !LATE
        :: LATE && IS_FREE(me, 0) -> b = 0
        :: LATE && IS_FREE(me, 1) -> b = 1
        fi;
        if
        :: LATE -> place[me].in[next[me]] = b; block[me].has[b] = next[me]
        :: else
        fi;
        submit[me]!next[me], begin[me], att[me], b, seen[me];
        begin[me] = false;
        next[me] = next[me] + 1 }
    :: atomic { /* look at the slot */
        !OVER(me) && attached[me] &&
        (slot_upto[me] > low[me] || MINE(FAR(me)) || MINE(NEAR(me))) ->
        ack(me, slot_upto[me]);
        look(FAR(me)); look(NEAR(me)) }
    :: atomic { /* the page shows another session: the old one is lost, with what was under way */
        !OVER(me) && attached[me] && seen[me] != session && BUG != NO_SESSION ->
        ack(me, slot_upto[me]); park(me); again(me);
        seen[me] = session }
    :: atomic { /* A has died: fence, then attach to its successor */
        !OVER(me) && !attached[me] ->
        ack(me, slot_upto[me]); park(me); again(me);
        do
        :: nempty(submit[me]) && BUG != STALE_RING -> submit[me]?n, g, a, b, u
        :: empty(submit[me]) || BUG == STALE_RING -> break
        od;
        /* The dead A's queue pair cannot read this memory any more. It breaks where it has to. */
        k = len(under_way); cut = false;
        do
        :: LATE && BUG != NO_FENCE && k > 0 ->
            under_way?f, n, g, u, b, c;
            cut = cut || f == me;
            if :: !cut -> under_way!f, n, g, u, b, c :: else fi;
            k--
        :: else -> break
        od;
        seen[me] = session; attached[me] = true }
    od
#undef me
}

inline post(w, k3, num)
{
    slot_kind[AT(w)] = k3; slot_att[AT(w)] = num
}
/* A has an answer of B for flow [x]. */
inline pass(k2, y, below, try)
{
    if
    :: !attached[y]
    :: attached[y] && ENDS && try != att[y] && (BUG != PAST_ATTEMPT || k2 == ACK)
    :: else ->
        if :: slot_upto[y] < below -> slot_upto[y] = below :: else fi;
        if :: k2 != ACK -> post(FAR(y), k2, try) :: else fi
    fi
}
/* Is the entry behind one that A refused, of an earlier attempt, or for an earlier session? */
#define IS_BEHIND(x) (slot_kind[NEAR(x)] && slot_att[NEAR(x)] == a)
#define IS_PAST(x)                                                                                 \
    (((IS_BEHIND(x) || a != att[x]) && BUG != FORWARD_ALL) || (u != session && BUG != OLD_SESSION))
/* A has an entry of [x] before it: it goes into the lane, or is refused. */
inline forward(x)
{
    submit[x]?n, g, a, b, u;
    if :: BUG == FREE_AT_READ && low[x] <= n -> ack(x, n + 1) :: else fi;
    if
    :: IS_PAST(x) /* dropped: its client begins again, or has begun */
    :: !IS_PAST(x) && nfull(lane) -> lane!x, n, g, a, b, (LATE -> 0 : n)
    :: !IS_PAST(x) && full(lane) ->
        slot_num[x] = n; post(NEAR(x), REFUSED, a); a_waits[x] = a + 1
    fi
}
#define MAY_READ(x) (attached[x] && nempty(submit[x]) && (nfull(lane) || AFULL))

active proctype service_a()
{
end_a:
    do
    :: atomic { MAY_READ(0) -> forward(0) }
    :: atomic { MAY_READ(1) -> forward(1) }
    :: atomic { a_waits[0] && nfull(lane) ->
        post(NEAR(0), ROOM, a_waits[0] - 1); a_waits[0] = 0 }
    :: atomic { a_waits[1] && nfull(lane) ->
        post(NEAR(1), ROOM, a_waits[1] - 1); a_waits[1] = 0 }
    :: atomic { nempty(back) -> /* what B sent before it died is read, or not: see below */
        back?kind, f, u, a;
        if
        :: a == NONE -> pass(kind, f, u, att[f]) /* END */
        :: else -> pass(kind, f, u, a)
        fi }
    :: atomic { lost -> /* another session, by which nothing of the old one comes */
        do :: nempty(back) -> back?kind, f, u, a :: empty(back) -> break od;
        do :: nempty(lane) -> lane?f, n, g, a, b, c :: empty(lane) -> break od;
        waits[0] = 0; waits[1] = 0;
        session++; lost = false }
    od
}

/* ---- B ---- */

#define KNOWN(x) (expect[x] != NONE)
#define UPTO(x) (KNOWN(x) -> expect[x] : 0)
#define ROOM_AT(x) (len(ring[TO(x)]) < R && present[TO(x)])
inline answer(k_, x, at)
{
    u = UPTO(x);
    if
    :: BACK -> back!k_, x, u, at
    :: !BACK -> pass(k_, x, u, at)
    fi;
    if :: KNOWN(x) -> acked[x] = expect[x] :: else fi
}
inline take_in(x) /* message n, with content c */
{
    if
    :: BUG == ACK_EARLY && hold == NONE -> hold = x
    :: else -> ring[TO(x)]!x, n, c
    fi;
    expect[x] = n + 1
}
/* A frame is before B. [live]: it came by the present session, which gets answers. */
inline take(from, live)
{
    from?f, n, g, a, b, c;
#if ENDS
    if :: live -> tried[f] = a :: else fi;
#endif
    if :: LATE -> c = block[f].has[b] :: else fi;
    if
    :: BUG == UNKNOWN_DROPS && !present[TO(f)]
#if ENDS
    :: gone && f == 0 && live -> answer((left -> CLOSED : DEAD), f, a)
    :: gone && f == 0 && !live
#endif
    :: BUG == LANE_STICKY ->
        if :: g -> sticky[TO(f)] = false :: else fi;
        if
        :: ROOM_AT(f) && !sticky[TO(f)] -> take_in(f)
        :: else ->
            sticky[TO(f)] = true;
            if :: live -> answer(REFUSED, f, a); waits[f] = a + 1 :: else fi
        fi
    :: else ->
        if
        :: KNOWN(f) && n < expect[f] -> acked[f] = n /* the ring had it: acknowledge again */
        :: else ->
            if
            :: g && !KNOWN(f) -> expect[f] = n; acked[f] = n
            :: else
            fi;
            if
            :: KNOWN(f) && (n == expect[f] || BUG == NOT_STICKY) && ROOM_AT(f) -> take_in(f)
            :: else ->
                if
                :: live -> answer(REFUSED, f, a); waits[f] = (BUG == NO_ROOM -> 0 : a + 1)
                :: else
                fi
            fi
        fi
    fi
}
#define ACK_DUE(x) (!lost && KNOWN(x) && acked[x] < expect[x] && nfull(back))
#define CALL(x) (!lost && waits[x] && ROOM_AT(x) && nfull(back))

active proctype service_b()
{
end_b:
    do
    :: atomic { !lost && nempty(lane) && nfull(back) && hold == NONE -> take(lane, true) }
    :: atomic { nempty(under_way) && hold == NONE -> take(under_way, false) }
    :: atomic { nempty(under_way) -> /* the old connection's end is seen: it is closed */
        do :: nempty(under_way) -> under_way?f, n, g, a, b, c :: empty(under_way) -> break od }
    :: atomic { ACK_DUE(0) -> answer(ACK, 0, TRIED(0)) }
    :: atomic { ACK_DUE(1) -> answer(ACK, 1, TRIED(1)) }
#if ENDS
    :: atomic { end_due && !lost && nfull(back) -> /* to all slots of flows to it */
        end_due = false;
        if
        :: BACK -> back!CLOSED, 0, 0, NONE
        :: !BACK -> pass(CLOSED, 0, 0, att[0])
        fi }
    :: atomic { !lost && gone && waits[0] && nfull(back) -> /* its client will not come */
        answer((left -> CLOSED : DEAD), 0, waits[0] - 1); waits[0] = 0 }
#endif
    :: atomic { CALL(0) -> answer(ROOM, 0, waits[0] - 1); waits[0] = 0 }
    :: atomic { CALL(1) -> answer(ROOM, 1, waits[1] - 1); waits[1] = 0 }
    :: atomic { BUG == ACK_EARLY && hold != NONE && acked[hold] == expect[hold] && ROOM_AT(hold) ->
        ring[TO(hold)]!hold, expect[hold] - 1, expect[hold] - 1; hold = NONE }
    :: atomic { evicts < EVICT && KNOWN(0) && (acked[0] == expect[0] || BUG == EVICT_UNACKED) ->
        expect[0] = NONE; acked[0] = 0; evicts++ }
    od
}

/* An endpoint of node B, and the library that reads its ring. */
inline deliver()
{
    if
    :: n < got[f] && BUG != NO_DROP
    :: else ->
        assert(n == got[f]); /* nothing twice, nothing left out, in order */
        assert(c == n);
        got[f] = got[f] + 1
    fi
}

active [F] proctype endpoint()
{
#define me (_pid - F - 2)
end_endpoint:
    do
    :: atomic { nempty(ring[me]) -> ring[me]?f, n, c; deliver() };
#if LIVE
progress_read:
        skip
#endif
    :: atomic { !present[me] -> present[me] = true } /* attaches to B's successor */
    :: atomic { STOP && me == 0 -> stopped = true; break }
#if ENDS
    :: atomic { me == 0 && present[0] -> /* B lets it go, and reports that by its session if that is up */
        gone = true; left = true; end_due = !lost; present[0] = false;
        do :: nempty(ring[0]) -> ring[0]?f, n, c :: empty(ring[0]) -> break od;
        break }
#endif
    od
#undef me
}

/* ---- deaths ---- */

active proctype fate()
{
    do
    :: atomic { dies < DIES -> /* A dies; a successor is there. What A sent may arrive. */
        dies++; any_died[0] = true;
        do
        :: nempty(lane) && nfull(under_way) && !lost ->
            lane?f, n, g, a, b, c; under_way!f, n, g, 0, b, c
        :: nempty(lane) && (full(under_way) || lost) -> lane?f, n, g, a, b, c
        :: empty(lane) -> break
        od;
        do :: nempty(back) -> back?kind, f, u, a :: empty(back) -> break od;
        a_waits[0] = 0; a_waits[1] = 0; waits[0] = 0; waits[1] = 0;
        attached[0] = false; attached[1] = false;
        lost = false }
    :: atomic { dies < DIES -> /* B dies; a successor is there */
        dies++; any_died[1] = true;
        do :: nempty(under_way) -> under_way?f, n, g, a, b, c :: empty(under_way) -> break od;
        expect[0] = NONE; expect[1] = NONE; acked[0] = 0; acked[1] = 0; waits[0] = 0; waits[1] = 0;
        sticky[0] = false; sticky[1] = false; hold = NONE;
#if ENDS
        end_due = false; left = left && BUG != NO_LEFT;
#endif
        present[0] = false; present[1] = false;
        lost = true }
    :: break
    od
}

/* Nothing can move any more. */
#define ALL(x) (got[x] == N(x) && low[x] == N(x))
active proctype judge()
{
    timeout ->
    atomic {
        assert(ALL(1));
#if ENDS
        assert((gone -> why[0] == CLOSED : (ALL(0) || stopped) && !why[0]));
        assert(!why[1]);
        assert(!WITNESS || !any_died[0] || !any_died[1] || !gone || !heeds[0])
#else
        assert(ALL(0) || stopped);
        assert(!WITNESS || !any_died[0] || !any_died[1])
#endif
    }
}
