/* SPDX-License-Identifier: BSD-3-Clause */
/* The ring of one sender and one receiver, with replies, with a store buffer for each of the two.
 * README.md names the modelled parts.
 *
 *   WEAK=1     buffered stores leave out of order (not past a release, not past
 *              a store to the same word)
 *   DIE=1      either side stops for good at any step; its buffered stores
 *              still leave
 *   LEN=<0..2> longest payload, in cells
 *   MSGS=<n>   messages sent
 *   CHANGE=1   the request's handler changes its payload after it has read it
 *   BUG=<n>    plant one bug, the list below
 *   WITNESS=1  claim that it never ends with all delivered and replied to (must
 *              be refuted) */
#ifndef WEAK
#define WEAK 0
#endif
#ifndef DIE
#define DIE 0
#endif
#ifndef LEN
#define LEN 2
#endif
#ifndef MSGS
#define MSGS 5
#endif
#ifndef CHANGE
#define CHANGE 0
#endif
#ifndef BUG
#define BUG 0
#endif
#ifndef WITNESS
#define WITNESS 0
#endif

#define SEQ_FIRST 1       /* seq stored before data */
#define HEAD_EARLY 2      /* head published before the handler returns */
#define REUSE_EARLY 3     /* slot reused before its reply was consumed */
#define SEQ_FLAG 4        /* seq is a flag, the same on every lap */
#define REPLY_FREES 5     /* a consumed reply frees the request's payload */
#define SEQ_RELAXED 6     /* WEAK=1: seq is no release store */
#define RSEQ_RELAXED 7    /* WEAK=1: the reply's seq is no release store */
#define SEQ_NO_ACQUIRE 8  /* WEAK=1: the header is loaded before seq */
#define RSEQ_NO_ACQUIRE 9 /* WEAK=1: the reply is loaded before its seq */
#define RSEQ_FIRST 10     /* reply's seq stored before its data */
#define STALE_REPLY 11    /* an old reply's seq is not cleared when the counters come round to it */
#define HEAD_LAZY 12      /* an empty ring does not publish the head */
#define NO_HIDDEN 13      /* a request for a reply whose handler sends none gets no hidden one */
#define OVERRUN 14        /* the sender believes in one slot too many */
#define AREA_SMALL 15     /* a payload area of the longest payload only */
#define CLEAR_LATE 16     /* the old reply's seq is cleared after the request is published */
#define TAIL_UNREAD 17    /* a sender's death ends the receiver's polling */
#define HEAD_RELAXED 18   /* WEAK=1 CHANGE=1: the head is no release store */

#define N 2    /* slots */
#define WRAP 8 /* counters are modulo this; the real ones modulo 2^32 */
#if BUG == AREA_SMALL
#define P 2
#else
#define P 3    /* payload cells: 2 * (longest payload) - 1, the least that always has room */
#endif
#define K 2    /* head is published at least every K messages */

/* Words of shared memory. The sender writes those before HEAD, the receiver HEAD
 * and the rest. The receiver's handlers also write PAY, and the sender clears an
 * RSEQ, each while that word is its own. */
#define SEQ(i) (i)
#define HDR(i) (2 + (i))
#define PAY(i) (4 + (i))
#define HEAD 7
#define RSEQ(i) (8 + (i))
#define RDATA(i) (10 + (i))
byte mem[12];

#define D 4 /* stores a buffer holds: a message of the longest payload */
typedef buffer { byte n; byte a[D]; byte v[D] };
buffer sb[2];
#define S 0
#define R 1
#define REL 16 /* on an address: a release store */

/* A header is one byte here: message number, payload's cell and length, whether a reply is due. */
#define HEADER(id, off, cells, want) ((id) << 5 | (off) << 3 | (cells) << 1 | (want))
#define H_ID(h) ((h) >> 5)
#define H_OFF(h) ((h) >> 3 & 3)
#define H_LEN(h) ((h) >> 1 & 3)
#define H_WANT(h) ((h) & 1)
#define MARK(id) (((id) % WRAP) + 1) /* what payload cells and replies of a message hold */

/* Ghosts: what really happened, for the assertions. */
byte sent;
byte waiting;       /* published, not delivered */
bool all_answered;  /* the sender has sent all, and had every reply */
bool line_busy[N]; /* a reply lies in the line and was not consumed */
bool s_gone, r_gone;

inline st(t, addr, val)
{
    sb[t].n < D;
    d_step { sb[t].a[sb[t].n] = addr; sb[t].v[sb[t].n] = val; sb[t].n++ }
}
inline take(t, j)
{
    mem[sb[t].a[j] % REL] = sb[t].v[j];
    sb[t].n--;
    k = j;
    do
    :: k < sb[t].n -> sb[t].a[k] = sb[t].a[k + 1]; sb[t].v[k] = sb[t].v[k + 1]; k++
    :: else -> break
    od;
    sb[t].a[k] = 0; sb[t].v[k] = 0;
    k = 0
}
#define OVER(t, i, j) (sb[t].a[i] % REL != sb[t].a[j]) /* j may leave before i */
#define FREE1(t) (sb[t].n > 1 && sb[t].a[1] < REL && OVER(t, 0, 1))
#define FREE2(t) (sb[t].n > 2 && sb[t].a[2] < REL && OVER(t, 0, 2) && OVER(t, 1, 2))
#define FREE3(t) (sb[t].n > 3 && sb[t].a[3] < REL && OVER(t, 0, 3) && OVER(t, 1, 3) && OVER(t, 2, 3))

active proctype hw()
{
    byte k;
end_hw:
    do
    :: d_step { sb[S].n > 0 -> take(S, 0) }
    :: d_step { sb[R].n > 0 -> take(R, 0) }
#if WEAK
    :: d_step { FREE1(S) -> take(S, 1) }
    :: d_step { FREE2(S) -> take(S, 2) }
    :: d_step { FREE3(S) -> take(S, 3) }
    :: d_step { FREE1(R) -> take(R, 1) }
    :: d_step { FREE2(R) -> take(R, 2) }
    :: d_step { FREE3(R) -> take(R, 3) }
#endif
    od
}

#define BEHIND(a, b) (((a) + WRAP - (b)) % WRAP) /* a - b */
/* Slots in use by the sender's knowledge: head has not passed, or reply not consumed. */
#define USED (BEHIND(tail, hc) > BEHIND(tail, rc) -> BEHIND(tail, hc) : BEHIND(tail, rc))
#define ROOM ((BUG == REUSE_EARLY -> BEHIND(tail, hc) : USED) < N + (BUG == OVERRUN))
/* The tail lies at cell at; a payload of [cells] cells that would reach past the end skips to 0. */
#define SKIP(cells) (at + (cells) > P -> P - at : 0)
#define FITS(cells) (used + SKIP(cells) + (cells) <= P)
/* A store to RSEQ(i) that is still in the sender's own buffer: its loads see
 * that one. It clears, so it never matches. */
#define IN_BUFFER(i, j) (sb[S].n > j && sb[S].a[j] == RSEQ(i))
#define CLEARING(i) (IN_BUFFER(i, 0) || IN_BUFFER(i, 1) || IN_BUFFER(i, 2) || IN_BUFFER(i, 3))
#define REPLY_AT(c) (mem[RSEQ((c) % N)] == ((c) + 1) % WRAP && !CLEARING((c) % N))
#define MAY_GO(flag) if :: DIE -> flag = true; goto gone :: true fi

active proctype sender()
{
    byte tail, hc, rc; /* next to send; head as last loaded; next reply to consume */
    byte at, used;     /* payload: cell of the tail, cells not yet free */
    byte held[N];      /* cells that a slot's message holds, with those it skipped */
    bool want[N];
    byte cells;        /* payload of the next message */
    byte off, v, i, early;
    bool stale;

    if :: cells = 0 :: LEN >= 1 -> cells = 1 :: LEN >= 2 -> cells = 2 fi;
end_again:
    do
    :: sent < MSGS && ROOM && FITS(cells) ->
        atomic {
            MAY_GO(s_gone);
            i = tail % N;
            if :: want[i] = true :: want[i] = false fi;
            held[i] = cells + SKIP(cells);
            used = used + held[i];
            off = (SKIP(cells) || cells == 0 -> 0 : at);
            at = (cells -> (off + cells) % P : at);
            /* Many one-way messages ago this line had a reply of the same number. */
            stale = want[i] && REPLY_AT(tail) && BUG != STALE_REPLY;
            if
            :: stale && BUG != CLEAR_LATE -> st(S, RSEQ(i), tail); stale = false
            :: else
            fi;
            if :: BUG == SEQ_FIRST -> waiting++; st(S, SEQ(i) + REL, (tail + 1) % WRAP) :: else fi
        }
        atomic { MAY_GO(s_gone); st(S, HDR(i), HEADER(tail, off, cells, want[i])) }
        if :: cells > 0 -> atomic { MAY_GO(s_gone); st(S, PAY(off), MARK(tail)) } :: else fi;
        if :: cells > 1 -> atomic { MAY_GO(s_gone); st(S, PAY(off + 1), MARK(tail)) } :: else fi;
        atomic {
            MAY_GO(s_gone);
            if
            :: BUG == SEQ_FIRST
            :: BUG == SEQ_FLAG -> waiting++; st(S, SEQ(i) + REL, 1)
            :: BUG == SEQ_RELAXED -> waiting++; st(S, SEQ(i), (tail + 1) % WRAP)
            :: else -> waiting++; st(S, SEQ(i) + REL, (tail + 1) % WRAP)
            fi;
            if :: stale -> st(S, RSEQ(i), tail); stale = false :: else fi;
            tail = (tail + 1) % WRAP; sent++;
            off = 0; i = 0;
            if :: cells = 0 :: LEN >= 1 -> cells = 1 :: LEN >= 2 -> cells = 2 fi
        }
    :: atomic {
        mem[HEAD] != hc -> /* full or not, the head may be loaded */
        v = mem[HEAD];
        assert(BEHIND(v, hc) <= BEHIND(tail, hc));
        do
        :: hc != v -> used = used - held[hc % N]; held[hc % N] = 0; hc = (hc + 1) % WRAP
        :: else -> break
        od;
        v = 0 }
    :: atomic { rc != tail && !want[rc % N] -> rc = (rc + 1) % WRAP }
    :: atomic {
        BUG == RSEQ_NO_ACQUIRE && rc != tail && want[rc % N] && !early ->
        early = 1 + mem[RDATA(rc % N)] }
    :: rc != tail && want[rc % N] && REPLY_AT(rc) ->
        atomic {
            MAY_GO(s_gone);
            v = (early -> early - 1 : mem[RDATA(rc % N)]);
            assert(v == MARK(rc));
            v = 0; early = 0
        }
        atomic {
            /* the reply's handler reads it in place, and returns */
            assert(mem[RDATA(rc % N)] == MARK(rc));
            line_busy[rc % N] = false;
            if
            :: BUG == REPLY_FREES -> used = used - held[rc % N]; held[rc % N] = 0
            :: else
            fi;
            rc = (rc + 1) % WRAP
        }
    :: atomic { sent == MSGS && rc == tail -> all_answered = true; break }
    od;
gone:
    skip
}

active proctype receiver()
{
    byte head, unpub, h, j, early;
    bool replied_first;

#define EXPECTED (BUG == SEQ_FLAG -> 1 : (head + 1) % WRAP)
#define READY (mem[SEQ(head % N)] == EXPECTED)
end_poll:
    do
    :: atomic { BUG == SEQ_NO_ACQUIRE && !early && !READY -> early = 1; h = mem[HDR(head % N)] }
    :: READY && !(BUG == TAIL_UNREAD && s_gone) ->
        atomic {
            if :: early -> early = 0 :: else -> h = mem[HDR(head % N)] fi;
            assert(H_ID(h) == head && waiting > 0);
            MAY_GO(r_gone)
        }
        if :: BUG == HEAD_EARLY -> st(R, HEAD + REL, (head + 1) % WRAP) :: else fi;
        /* The handler replies before or after it reads its payload in place. */
        if :: H_WANT(h) -> replied_first = true; goto reply :: true fi;
    payload:
        do
        :: atomic {
            j < H_LEN(h) ->
            MAY_GO(r_gone);
            assert(mem[PAY(H_OFF(h) + j)] == MARK(head));
            if :: CHANGE -> st(R, PAY(H_OFF(h) + j), 0) :: else fi;
            j++ }
        :: atomic { j == H_LEN(h) -> j = 0; break }
        od;
        if
        :: replied_first || !H_WANT(h) -> replied_first = false; goto returned
        :: else
        fi;
    reply:
        if
        :: BUG == NO_HIDDEN -> goto answered
        :: true
        fi;
        atomic {
            MAY_GO(r_gone);
            assert(!line_busy[head % N]); /* the place is free */
            line_busy[head % N] = true;
            if :: BUG == RSEQ_FIRST -> st(R, RSEQ(head % N) + REL, (head + 1) % WRAP) :: else fi
        }
        st(R, RDATA(head % N), MARK(head));
        atomic {
            MAY_GO(r_gone);
            if
            :: BUG == RSEQ_FIRST
            :: BUG == RSEQ_RELAXED -> st(R, RSEQ(head % N), (head + 1) % WRAP)
            :: else -> st(R, RSEQ(head % N) + REL, (head + 1) % WRAP)
            fi
        }
    answered:
        if :: replied_first -> goto payload :: else fi;
    returned:
        atomic {
            replied_first = false;
            MAY_GO(r_gone);
            h = 0; waiting--;
            head = (head + 1) % WRAP; unpub++
        }
        if
        :: true -> st(R, HEAD + (BUG == HEAD_RELAXED -> 0 : REL), head); unpub = 0
        :: unpub < K
        fi
    :: atomic { unpub > 0 && !READY && BUG != HEAD_LAZY -> st(R, HEAD + REL, head); unpub = 0 }
    od;
gone:
    skip
}

/* Nothing can move any more. */
active proctype judge()
{
    timeout ->
    atomic {
        assert(sb[S].n == 0 && sb[R].n == 0);
        /* Every published message was delivered, also if a side stopped. */
        assert(r_gone || waiting == 0);
        assert(s_gone || r_gone || (all_answered && !line_busy[0] && !line_busy[1]));
        assert(!WITNESS || s_gone || r_gone)
    }
}
