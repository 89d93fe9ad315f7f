/* SPDX-License-Identifier: BSD-3-Clause */
/* Moves of the node service: puts, or gets, of registered memory that a service's NIC executes in
 * parts. A client of service A moves N times between its own memory and one region of a client of
 * service B. Both services may die between any two steps, and be replaced by successors, while
 * their queue pairs live on. docs/design/node.md, "Registered memory", describes the protocol;
 * README.md names the modelled parts.
 *
 *   N, PARTS    moves, and parts of each
 *   GET=1       the moves are gets; else puts, all to one place of the region
 *   DIES=<n>    how many times a service dies
 *   CUTS=<n>    how many times the queue pairs of two living services break
 *   HOLD=0      no other client has the command descriptors: the queue pairs of a dead service end
 *               when its client closes its descriptor
 *   CLOSE=0     the region stays open; else its owner may close it at any step
 *   TCP=1       the services have no NIC: a part is a frame PUT, its end a frame ENDED, and the
 *               region's key is its owner's own, so nothing is fenced; with GET=0, CUTS=0
 *   CANCEL=1    the program may end the last move at any step (nic_stop)
 *   BUG=<n>     plant one bug, the list below
 *   WITNESS=1   claim that not everything happens (must be refuted) */
#ifndef N
#define N 2
#endif
#ifndef PARTS
#define PARTS 2
#endif
#ifndef GET
#define GET 0
#endif
#ifndef DIES
#define DIES 1
#endif
#ifndef CUTS
#define CUTS 0
#endif
#ifndef HOLD
#define HOLD 1
#endif
#ifndef CLOSE
#define CLOSE 1
#endif
#ifndef TCP
#define TCP 0
#endif
#ifndef CANCEL
#define CANCEL 0
#endif
#ifndef BUG
#define BUG 0
#endif
#ifndef WITNESS
#define WITNESS 0
#endif

#define NO_FENCE 1        /* A's client goes on with A's successor before it drops registrations */
#define NO_DROP 2         /* it closes its descriptor, and drops no registration */
#define NO_DROP_REGION 3  /* B's client does that */
#define OLD_OPEN 4        /* B takes messages of A's successor before it closes A's queue pair */
#define REPORT_EARLY 5    /* a part is LOST when its queue pair breaks, before B's report */
#define REPORT_ALL 6      /* B reports all parts as done that A has posted */
#define AT_POST 7         /* A ends a move when all its parts are posted */
#define ENTRY_STAYS 8     /* A's successor reads an entry that A has not read */
#define CUT_OPEN 9        /* A ends the parts of an earlier session, whose queue pair stays open */
#define CLOSE_KEEPS 10    /* the region stays registered when it is closed */
#define NO_STOP 11        /* CANCEL=1: the memory of a move that is ended stays registered */
#define NO_REPEAT 12      /* a client forgets the move that A had when A died */
#define KEY_UNCHECKED 13  /* holds: A posts moves with a key of an earlier B; the NIC refuses it */
#define WORD_UNREAD 14    /* holds: a client does not look whether the dead A has ended its move */

#define NO_SLAB_REFUSED 15 /* holds: TCP: B reports REFUSED until its client has given the slab */
#define ENDED_FIRST 16    /* TCP: B sends ENDED, then stores the bytes */

#define C 3 /* connections that have something under way */

/* How a move, or a part, ends; the worst is the greatest. */
#define DONE 1
#define LOST 2
#define REFUSED 3

/* ---- A's client ---- */

#define IDLE 0
#define BEGIN 1
#define MOVE 2    /* the entry is posted */
#define MESSAGE 3 /* the move goes by message, which is repeated until it is answered */
byte op;                /* the present move, or the last one */
byte state = IDLE;
byte ended;             /* moves that have ended */
byte source;            /* PUT: the move whose bytes the local memory has; 0: it is reused */
byte mine[PARTS];       /* GET: which move's bytes are there */
byte key = 1;           /* of the region: the incarnation of B with which it was registered */
byte lkey, ldomain;     /* the registration of the local memory, and its A; 0: none */
byte left_lkey, left_ldomain; /* a registration that a bug has left */
byte lkeys;             /* that were given */
byte registrar = 1;     /* the A with which memory can be registered; 0: none */
bool fenced;            /* the registrations are dropped, and the descriptor is closed */
byte heir = 1;          /* the A that the reader has attached to, and */
byte with = 1;          /* the one that has the rings: they are the same but for the owner's poll */
byte page;              /* the session that it shows; 0: none */
chan ring = [1] of { byte, byte, byte, byte }; /* move, session, key, lkey */
byte moved, moved_end;  /* the completion */

/* ---- A ---- */

byte a = 1;             /* its incarnation */
bool a_up = true;
byte session, session_b; /* the session's number, and its B */
byte cur = C;           /* its connection */
byte v_op, v_session, v_key, v_lkey, v_posted, v_under_way, v_end; /* the move that it has */

/* ---- connections: a queue pair on each side, and lanes for messages ---- */

typedef conn {
    byte a, b;          /* incarnations */
    bool a_open, b_open; /* the queue pairs are there, and have not failed */
    bool lanes;         /* B has the session */
    byte frame          /* a message: the move's number */
};
conn link[C];
chan posted[C] = [PARTS] of { byte, byte, byte, byte };  /* move, part, lkey, key */
chan there[C] = [PARTS] of { byte, byte, byte, byte };   /* move, part, lkey, key */
#if TCP
#define HOW byte
#define HOW_ENDS(x) ((x) == 1 -> DONE : ((x) -> LOST : REFUSED))
#else
#define HOW bool
#define HOW_ENDS(x) ((x) -> DONE : REFUSED)
#endif
chan back[C] = [PARTS] of { byte, byte, byte, HOW };     /* move, part, lkey, it was executed */
chan done[C] = [PARTS] of { HOW };                       /* completions that A has not read */

/* ---- B, and its client ---- */

byte b = 1;
bool b_up = true;
byte session_a;         /* B has a session with this A */
byte region = 1;        /* the B with which the region is registered; 0: none */
byte left_region;       /* a registration that a bug has left */
byte b_registrar = 1, b_with = 1;
bool b_fenced;
bool closed;            /* the call that closes the region has returned: its memory is reused */
byte memory[PARTS];     /* PUT: the number of the move that wrote it */
byte b_ring;            /* a message that B has delivered */
byte got;               /* messages up to this one were handled */
byte reply;             /* the answer to it */
bool reply_failed;      /* the region is closed */
byte reply_key;

#if TCP
byte late[PARTS];       /* ENDED_FIRST: bytes that are to be stored */
#endif
byte dies, cuts;
bool died_a, died_b, by_nic, cancelled;

hidden byte n, c, p, l, r, i;
hidden byte ok;

#define SERVED (a_up && with == a)
#define JOINED (a_up && b_up && session && session_b == b && session_a == a)
#define FREE(x)                                                                                    \
    ((x) != cur && len(posted[x]) + len(there[x]) + len(back[x]) == 0 &&                           \
     !(link[x].lanes && link[x].frame && link[x].b == b))

/* ---- A's client: the owner's thread ---- */

inline op_end(failed)
{
    i = 0;
    do
    :: i < PARTS ->
        if
        :: failed || closed
        :: else ->
            /* complete only when all bytes are there */
#if GET
            assert(mine[i] == op)
#else
            assert(memory[i] == op)
#endif
        fi;
        mine[i] = 0; i++
    :: else -> break
    od;
    assert(state != IDLE);
    state = IDLE; source = 0; ended++
}

active proctype owner()
{
end_owner:
    do
    :: atomic { state == IDLE && op < N -> op++; source = op; state = BEGIN }
    :: atomic { state == BEGIN ->
        if :: !lkey && registrar -> lkeys++; lkey = lkeys; ldomain = registrar :: else fi;
        if
        :: lkey && page && key && nfull(ring) -> ring!op, page, key, lkey; state = MOVE
        :: state = MESSAGE
        fi }
    :: atomic { state == MOVE && moved == op ->
        if
        :: moved_end == DONE -> by_nic = died_a && died_b; op_end(false)
        :: else -> if :: moved_end == REFUSED -> key = 0 :: else fi; state = MESSAGE
        fi }
    :: atomic { state == MESSAGE && JOINED && SERVED && b_with == b && reply == op ->
#if GET
        i = 0;
        do
        :: i < PARTS -> mine[i] = op; i++
        :: else -> break
        od;
#endif
        if :: reply_key -> key = reply_key :: else fi;
        op_end(reply_failed) }
    :: atomic { with != heir -> /* its poll: the successor gets the rings */
        if
        :: state == MOVE && moved == op && moved_end == DONE && BUG != WORD_UNREAD ->
            op_end(false)
        :: state == MOVE && !(moved == op && moved_end == DONE && BUG != WORD_UNREAD) ->
            state = (BUG == NO_REPEAT -> IDLE : MESSAGE)
        :: state != MOVE
        fi;
        if
        :: nempty(ring) && BUG != ENTRY_STAYS -> ring?_, _, _, _
        :: empty(ring) || BUG == ENTRY_STAYS
        fi;
        with = heir;
        page = (a_up && a == heir -> session : 0) }
#if CANCEL
    :: atomic { op == N && (state == MOVE || state == MESSAGE) -> /* the program ends it */
        if :: BUG == NO_STOP -> left_lkey = lkey; left_ldomain = ldomain :: else fi;
        lkey = 0; cancelled = true;
        op_end(true) }
#endif
    od
}

/* ---- A's client: the reader's thread, which finds A's successor ---- */

/* The last descriptor of a service that has ended is closed: its queue pairs end. */
#define A_PAIRS_END(x)                                                                             \
    if :: link[0].a == (x) -> link[0].a_open = false :: else fi;                                   \
    if :: link[1].a == (x) -> link[1].a_open = false :: else fi;                                   \
    if :: link[2].a == (x) -> link[2].a_open = false :: else fi
#define B_PAIRS_END(x)                                                                             \
    if :: link[0].b == (x) -> link[0].b_open = false :: else fi;                                   \
    if :: link[1].b == (x) -> link[1].b_open = false :: else fi;                                   \
    if :: link[2].b == (x) -> link[2].b_open = false :: else fi
#define A_DEAD (!a_up || a != heir)
active proctype reader()
{
end_reader:
    do
    :: atomic { A_DEAD && !fenced -> /* no thread registers memory meanwhile */
        if
        :: BUG == NO_FENCE || BUG == NO_DROP -> left_lkey = lkey; left_ldomain = ldomain
        :: else
        fi;
        if :: TCP :: !TCP -> lkey = 0; registrar = 0 fi;
        fenced = true;
        if :: !HOLD -> A_PAIRS_END(heir) :: else fi }
    :: atomic { fenced && a_up && a != heir -> heir = a; registrar = a; fenced = false }
    :: atomic { BUG == NO_FENCE && left_lkey -> left_lkey = 0 }
    od
}

/* ---- A ---- */

inline part_ends(how)
{
    v_under_way--;
    v_end = (how > v_end -> how : v_end)
}
/* The queue pair of connection x is closed. [report]: B reports which parts came by it. */
inline parts_cut(x, report)
{
    do
    :: nempty(done[x]) ->
        done[x]?ok;
        if :: v_under_way -> part_ends(HOW_ENDS(ok)) :: else fi
    :: empty(done[x]) -> break
    od;
    do
    :: nempty(back[x]) -> back[x]?n, p, l, ok;
        if
        :: v_under_way && (report) && !GET -> part_ends(HOW_ENDS(ok))
        :: else
        fi
    :: empty(back[x]) -> break
    od;
    do
    :: v_under_way -> part_ends((BUG == REPORT_ALL && (report) -> DONE : LOST))
    :: !v_under_way -> break
    od
}
inline close_a_side(x)
{
    link[x].a_open = false;
    do :: nempty(posted[x]) -> posted[x]?_, _, _, _ :: empty(posted[x]) -> break od
}
/* Packets that arrive by the connection from now on are dropped. */
inline close_b_side(x)
{
    link[x].b_open = false; link[x].lanes = false; link[x].frame = 0;
    do :: nempty(there[x]) -> there[x]?_, _, _, _ :: empty(there[x]) -> break od
}
inline link_open()
{
    c = 0;
    do
    :: c < C && !FREE(c) -> c++
    :: c < C && FREE(c) -> break
    od;
    link[c].a = a; link[c].b = b; link[c].frame = 0;
    link[c].a_open = true; link[c].b_open = true; link[c].lanes = true;
    do :: nempty(done[c]) -> done[c]?_ :: empty(done[c]) -> break od;
    cur = c
}
#define ANY_FREE (FREE(0) || FREE(1) || FREE(2))
#define CAN_POST (session && v_session == session && cur < C && link[cur].a_open)

active proctype service_a()
{
end_a:
    do
    :: atomic { SERVED && nempty(ring) && !v_op ->
        ring?v_op, v_session, v_key, v_lkey; v_posted = 0; v_under_way = 0; v_end = DONE }
    :: atomic { SERVED && v_op && v_posted < PARTS && v_end == DONE ->
        if
        :: !CAN_POST -> v_end = LOST
        :: CAN_POST && v_key != session_b && BUG != KEY_UNCHECKED && !TCP -> v_end = REFUSED
        :: CAN_POST && (v_key == session_b || BUG == KEY_UNCHECKED || TCP) && nfull(posted[cur]) ->
            posted[cur]!v_op, v_posted, v_lkey, v_key; v_posted++; v_under_way++
        fi }
    :: atomic { SERVED && v_op && (v_posted == PARTS || v_end != DONE) &&
                (!v_under_way || BUG == AT_POST) ->
        moved = v_op; moved_end = v_end; v_op = 0; v_under_way = 0 }
    :: atomic { a_up && cur < C && nempty(done[cur]) -> done[cur]?ok;
        if :: v_under_way -> part_ends(HOW_ENDS(ok)) :: else fi }
    :: atomic { BUG == REPORT_EARLY && a_up && cur < C && !link[cur].a_open && v_under_way ->
        part_ends(LOST) }
    /* A new connection of the session: B has closed the one before, and reports what came by it. */
    :: atomic { JOINED && cur < C && !link[cur].a_open && ANY_FREE ->
        close_a_side(cur); close_b_side(cur);
        parts_cut(cur, true);
        link_open() }
    /* A new session. A and B close what they have of the one before. */
    :: atomic { a_up && b_up && !JOINED && ANY_FREE ->
        c = 0;
        do
        :: c < C ->
            if :: link[c].b == b && BUG != OLD_OPEN -> close_b_side(c) :: else fi;
            if
            :: link[c].a == a ->
                if :: BUG != CUT_OPEN -> close_a_side(c) :: else fi
            :: else
            fi;
            c++
        :: else -> break
        od;
        if
        :: BUG == CUT_OPEN -> if :: v_under_way -> v_under_way = 0; v_end = LOST :: else fi
        :: BUG != CUT_OPEN && cur < C -> parts_cut(cur, false)
        :: BUG != CUT_OPEN && cur == C
        fi;
        cur = C;
        link_open();
        session++; session_b = b; session_a = a;
        if :: with == a -> page = session :: else fi }
    :: atomic { SERVED && JOINED && state == MESSAGE && got < op && cur < C && !link[cur].frame ->
        link[cur].frame = op }
    od
}

/* ---- NICs ---- */

/* Without a NIC, A reads its client's buffer, and B a region whose key is not the service's. */
#define LOCAL(x, y)                                                                                \
    (TCP || ((y) == lkey && link[x].a == ldomain) ||                                               \
     ((y) == left_lkey && link[x].a == left_ldomain))
#define REGION(x, y)                                                                               \
    (((y) == region || (y) == left_region) && (TCP || (y) == link[x].b) && (y))
#define HAS_SLAB (!TCP || b_with == b)

inline execute(x) /* a request leaves A's queue pair */
{
    posted[x]?n, p, l, r;
    if
    :: LOCAL(x, l) ->
#if !GET
        assert(source == n); /* the memory is the move's */
#endif
        there[x]!n, p, l, r
    :: else -> close_a_side(x)
    fi
}
inline arrive(x) /* at B's queue pair */
{
    there[x]?n, p, l, r;
    if
    :: !HAS_SLAB -> back[x]!n, p, l, (BUG == NO_SLAB_REFUSED -> 0 : 2)
    :: HAS_SLAB && REGION(x, r) ->
        assert(!closed);
#if TCP
        if :: BUG == ENDED_FIRST -> back[x]!n, p, l, true; late[p] = n :: else fi;
#endif
#if !GET
        /* The move has not ended, and B's client has not handled its repetition. */
        assert(n == op && ((state != IDLE && got < n) || cancelled));
        if :: BUG != ENDED_FIRST -> memory[p] = n :: else fi;
#endif
        if :: BUG != ENDED_FIRST -> back[x]!n, p, l, true :: else fi
    :: HAS_SLAB && !REGION(x, r) ->
        if :: TCP :: !TCP -> link[x].b_open = false fi;
        back[x]!n, p, l, false
    fi
}
inline return_to(x) /* A's queue pair gets bytes, or an acknowledgement */
{
    back[x]?n, p, l, ok;
    if
    :: GET && ok && !LOCAL(x, l) -> close_a_side(x)
    :: else ->
#if GET
        if
        :: ok ->
            assert(n == op && state == MOVE); /* it has not ended, and is not repeated */
            mine[p] = n
        :: else
        fi;
#endif
        if :: a_up && x == cur -> done[x]!ok :: else fi;
        if :: !ok && !TCP -> close_a_side(x) :: else fi
    fi
}
#define EXECUTES(x) (nempty(posted[x]) && link[x].a_open && nfull(there[x]))
#define ARRIVES(x) (nempty(there[x]) && link[x].b_open && nfull(back[x]))
#define RETURNS(x) (nempty(back[x]) && link[x].a_open && (nfull(done[x]) || !a_up || (x) != cur))
/* No queue pair takes it. Those of a connection that may be reported stay. */
#define DROPS(x) ((nempty(there[x]) && !link[x].b_open) ||                                         \
                  (nempty(back[x]) && !link[x].a_open && !(a_up && x == cur)) ||                   \
                  (nempty(posted[x]) && !link[x].a_open))
inline drop(x)
{
    if
    :: nempty(posted[x]) && !link[x].a_open -> posted[x]?_, _, _, _
    :: nempty(there[x]) && !link[x].b_open -> there[x]?_, _, _, _
    :: nempty(back[x]) && !link[x].a_open && !(a_up && x == cur) -> back[x]?_, _, _, _
    fi
}
/* B sees that A's sockets have ended. */
#define ENDED(x) (b_up && link[x].b == b && (link[x].a != a || !a_up) && link[x].lanes)
active [C] proctype nic()
{
#define me (_pid - 3)
end_nic:
    do
#if TCP
    :: atomic { b_up && late[0] -> memory[0] = late[0]; late[0] = 0 }
#endif
    :: atomic { EXECUTES(me) -> execute(me) }
    :: atomic { ARRIVES(me) -> arrive(me) }
    :: atomic { RETURNS(me) -> return_to(me) }
    :: atomic { DROPS(me) -> drop(me) }
    :: atomic { ENDED(me) -> close_b_side(me) }
    od
#undef me
}

/* ---- B, and its client ---- */

#define B_DEAD (!b_up || b != b_with)
#define FRAME(x)                                                                                   \
    (link[x].frame && link[x].lanes && link[x].b == b && b_up && b_with == b && !b_ring)
active proctype client_b()
{
end_b:
    do
    :: atomic { FRAME(0) -> b_ring = link[0].frame; link[0].frame = 0 }
    :: atomic { FRAME(1) -> b_ring = link[1].frame; link[1].frame = 0 }
    :: atomic { FRAME(2) -> b_ring = link[2].frame; link[2].frame = 0 }
    :: atomic { b_ring ->
        if
        :: b_ring > got ->
            got = b_ring;
            reply_failed = closed;
            if :: !closed && !region && b_registrar -> region = b_registrar :: else fi;
            reply_key = region;
            i = 0;
            do
            :: i < PARTS -> if :: !closed -> memory[i] = got :: else fi; i++
            :: else -> break
            od;
            reply = got
        :: else
        fi;
        b_ring = 0 }
#if CLOSE
    :: atomic { !closed ->
        if :: BUG == CLOSE_KEEPS -> left_region = region :: else fi;
        region = 0; closed = true }
#endif
    :: atomic { B_DEAD && !b_fenced ->
        if :: BUG == NO_DROP_REGION && region -> left_region = region :: else fi;
        if :: TCP :: !TCP -> region = 0; b_registrar = 0 fi;
        b_fenced = true;
        if :: !HOLD -> B_PAIRS_END(b_with) :: else fi }
    :: atomic { b_fenced && b_up && b != b_with -> b_with = b; b_registrar = b; b_fenced = false }
    od
}

/* ---- deaths ---- */

active proctype fate()
{
end_fate:
    do
    :: atomic { a_up && dies < DIES -> /* its queue pairs, and the requests posted to them, live on */
        dies++; died_a = true; a_up = false;
        session = 0; session_b = 0; cur = C;
        v_op = 0; v_session = 0; v_key = 0; v_lkey = 0; v_posted = 0; v_under_way = 0; v_end = 0;
        if :: TCP || (!HOLD && heir != a) -> A_PAIRS_END(a) :: else fi }
    :: atomic { !a_up -> a++; a_up = true }
    :: atomic { b_up && dies < DIES -> dies++; died_b = true; b_up = false; session_a = 0;
        if :: TCP || (!HOLD && b_with != b) -> B_PAIRS_END(b) :: else fi }
    :: atomic { !b_up -> b++; b_up = true }
    :: atomic { cuts < CUTS && a_up && cur < C && link[cur].a_open ->
        cuts++; link[cur].a_open = false }
    od
}

/* Nothing can move any more. */
active proctype judge()
{
    timeout ->
    atomic {
        assert(ended == N);
        assert(!WITNESS || !by_nic)
    }
}
