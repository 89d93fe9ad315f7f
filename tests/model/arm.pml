/* SPDX-License-Identifier: BSD-3-Clause */
/* Going to sleep without losing a message, with a store buffer per thread.
 *
 * Two senders publish messages, each in its own ring; one receiver polls, arms, rechecks, sleeps on
 * its eventfd. README.md names the modelled parts.
 *
 *   MB=0       no membarrier(2): senders fence at every message for ever
 *   LATE=1     sender 0 does not know the receiver's eventfd at first; its
 *              service thread learns it while all run
 *   DIE=1      sender 0 may be killed, sender 1 stopped for ever, at any step
 *   ATTACH=1   the receiver's service thread adds ring 0 while all run
 *   COLD=1     the receiver may stop polling ring 0, so that sender 0 must ring
 *   SHARED=1   COLD=1: sender 1's announcements ring the same bit
 *   SYSNF=1    write(2) to an eventfd is no fence for its caller
 *   NM0, NM1   messages of each sender
 *   BUG=<n>    plant one bug, the list below
 *   OTHER=<n>  another order of steps that is right as well, the list below
 *   WITNESS=1  claim that nobody sleeps three times (must be refuted) */
#ifndef MB
#define MB 1
#endif
#ifndef LATE
#define LATE 0
#endif
#ifndef DIE
#define DIE 0
#endif
#ifndef ATTACH
#define ATTACH 0
#endif
#ifndef COLD
#define COLD 0
#endif
#ifndef SHARED
#define SHARED 0
#endif
#ifndef SYSNF
#define SYSNF 0
#endif
#ifndef NM0
#define NM0 2
#endif
#ifndef NM1
#define NM1 2
#endif
#ifndef BUG
#define BUG 0
#endif
#ifndef OTHER
#define OTHER 0
#endif
#ifndef WITNESS
#define WITNESS 0
#endif

#define NO_BARRIER 1       /* the receiver rechecks without membarrier or fence */
#define NO_SENDER_FENCE 2  /* MB=0: the sender looks at the epoch without a fence */
#define RECHECK_FIRST 3    /* recheck, then set the epochs odd */
#define DRAIN_ODD 4        /* eventfd drained after the epochs are odd, before the barrier */
#define DRAIN_BARRIER 5    /* eventfd drained after the barrier, before the recheck */
#define DRAIN_LAST 6       /* eventfd drained after the recheck */
#define SEEN_BOOL 7        /* the sender remembers "woken" until it sees an even epoch */
#define NO_FIRST_WRITE 8   /* LATE=1: descriptor stored, nothing written to it */
#define WRITE_FIRST 9      /* LATE=1: written to, then stored */
#define CLOSED_NO_WRITE 10 /* LATE=1: the sender has closed meanwhile: nothing written */
#define FENCE_UNASKED 11   /* LATE=1 MB=0: fence cleared though the receiver cannot membarrier */
#define SAME_EPOCH_WAKE 12 /* a wake for nothing goes back to sleep in the same epoch */
#define SAME_EPOCH_ARM 13  /* a recheck that found something leaves the epochs odd */
#define NO_DEATH_WRITE 14  /* DIE=1: the service thread sees a death, does not wake */
#define NO_ATTACH_WRITE 15 /* ATTACH=1: ring added, receiver not woken */
#define BARRIER_FIRST 16   /* the barrier comes before the epochs are set */
#define UNREGISTERED 17    /* sender 0 does not fence and membarrier does not reach it */
#define FD_FIRST 18        /* LATE=1: the sender loads the descriptor before the epoch */
#define ARM_TWICE 19       /* armed again while armed: drained, but no new epoch */
#define COOL_NO_BARRIER 20 /* COLD=1: going cold looks without a barrier */
#define COOL_NO_LOOK 21    /* COLD=1: going cold has its barrier, but does not look */
#define BELL_STAYS 22      /* COLD=1: rung, nothing there: it stays cold in the same epoch */
#define BELL_LAST 23       /* COLD=1: the eventfd is written, then the bell is rung */
#define BELL_ALONE 24      /* COLD=1: a cold connection rings and does not write */
#define ARM_DEAF 25        /* COLD=1: the recheck does not look at the bell */
#define NO_FIRST_BELL 26   /* COLD=1 LATE=1: descriptor stored and written to, not rung */
#define CHILL_EARLY 27     /* COLD=1: after an arming that found something the rest go cold */

#define WAKE_DRAIN_LATE 1 /* on waking: poll, then drain */
#define WAKE_NO_DRAIN 2   /* on waking: no drain, arming drains */
#define FENCE_FIRST 3     /* LATE=1: fence cleared, then the descriptor stored */
#define EVEN_LATE 4       /* on waking: poll, then set the epochs even */
#define NEVER_FENCE 5     /* LATE=1 MB=1: fences not needed even before the descriptor came */
#define SEEN_IF_KNOWN 6   /* LATE=1: remembers an odd epoch only if it knew the descriptor; loads in any order */

#define MAY_DIE(s) (DIE && s == 0)
#define MAY_STOP(s) (DIE && s == 1)
#define NM(s) (s == 0 -> NM0 : NM1)

/* Words of shared memory. */
#define EPOCH(s) (s)      /* of ring s; odd: the receiver sleeps */
#define PUB(s) (2 + (s))  /* messages that are in ring s */
#define FD 4              /* sender 0: tx->wake_fd >= 0 */
#define FREE 5            /* sender 0: !tx->fence */
#define ATT 6             /* ring 0 is on the receiver's list */
#define BELL 7            /* ring 0's bit */
byte mem[8];

/* Threads: the senders 0 and 1, sender 0's service thread, the receiver, its service thread. */
#define SVC 2
#define RCV 3
#define RSVC 4
#define NT 5
#define D 2 /* stores a buffer holds: no thread writes more than two words between barriers */
byte ba[10], bv[10], bn[NT]; /* address and value, D per thread, oldest first; depth */

bit efd;        /* the receiver's eventfd: a read takes all, so only zero or not matters */
bool died;      /* sender 0, killed; its service thread with it */
bool stopped;   /* sender 1 */
bool done;      /* sender 0 has closed */
bool cold;      /* ring 0 is not polled */
bool down;      /* the receiver knows of sender 0's death */
byte del[2];    /* delivered */
byte e[2];      /* sender: the epoch it loaded */
byte seen[2];   /* sender: the last epoch it saw, and woke if it was odd */
#if WITNESS
byte sleeps;
#endif

/* Store; waits while the buffer is full, as the processor does. */
inline st(t, a, v)
{
    bn[t] < D;
    d_step { ba[(t) * D + bn[t]] = a; bv[(t) * D + bn[t]] = v; bn[t]++ }
}
/* The oldest store of thread t leaves. */
inline pop(t)
{
    mem[ba[(t) * D]] = bv[(t) * D];
    ba[(t) * D] = ba[(t) * D + 1]; bv[(t) * D] = bv[(t) * D + 1];
    ba[(t) * D + 1] = 0; bv[(t) * D + 1] = 0;
    bn[t]--
}
inline flush(t)
{
    d_step { if :: bn[t] == 2 -> pop(t); pop(t) :: bn[t] == 1 -> pop(t) :: else fi }
}

/* The buffers empty themselves, at any time. No thread loads a word that it
 * writes, so no load has to look into its own buffer. */
active proctype hw()
{
end_hw:
    do
    :: d_step { bn[0] > 0 -> pop(0) }
    :: d_step { bn[1] > 0 -> pop(1) }
    :: d_step { bn[SVC] > 0 -> pop(SVC) }
    :: d_step { bn[RCV] > 0 -> pop(RCV) }
    :: d_step { bn[RSVC] > 0 -> pop(RSVC) }
    od
}

/* write(2) to the eventfd: the kernel takes a lock, which is a fence on x86. */
#define CAN_WRITE(t) (SYSNF || bn[t] == 0)
#define MAY_GO(s) if :: MAY_DIE(s) -> died = true; goto gone \
                  :: MAY_STOP(s) -> stopped = true; goto gone :: true fi
#define KNOWN(s) (s == 1 || mem[FD])
#define FENCES(s) (BUG != NO_SENDER_FENCE && OTHER != NEVER_FENCE && \
                   !(BUG == UNREGISTERED && s == 0) && !(s == 1 -> MB : mem[FREE]))

proctype sender(byte s)
{
    byte n;
    bool known;
#if COLD
    bool tell;
#endif

    do
    :: atomic { n < NM(s) -> MAY_GO(s); n++; st(s, PUB(s), n) }
        atomic { if :: FENCES(s) -> bn[s] == 0 :: else fi }
        if /* in this order: an acquire load of the epoch */
        :: BUG != FD_FIRST -> e[s] = mem[EPOCH(s)]; known = KNOWN(s)
        :: BUG == FD_FIRST || OTHER == SEEN_IF_KNOWN -> known = KNOWN(s); e[s] = mem[EPOCH(s)]
        fi;
        atomic {
            if
            :: BUG == SEEN_BOOL && seen[s] && e[s] -> e[s] = 0; known = 0
            :: BUG != SEEN_BOOL && e[s] == seen[s] -> e[s] = 0; known = 0
            :: OTHER == SEEN_IF_KNOWN && e[s] != seen[s] && !known -> e[s] = 0
            :: else ->
                seen[s] = e[s]; e[s] = 0;
                if
#if COLD
                :: seen[s] && known -> known = 0; tell = 1; MAY_GO(s)
#else
                :: seen[s] && known -> known = 0; MAY_GO(s); CAN_WRITE(s) -> efd = 1
#endif
                :: else -> known = 0
                fi
            fi
        }
#if COLD
        atomic { /* a locked instruction: the buffer is empty */
            if
            :: tell && (s == 0 || SHARED) && BUG != BELL_LAST -> bn[s] == 0; mem[BELL] = 1; MAY_GO(s)
            :: else
            fi
        }
        atomic {
            if
            :: tell && !(BUG == BELL_ALONE && cold && s == 0) -> CAN_WRITE(s) -> efd = 1
            :: else
            fi
        }
        atomic { if :: tell && BUG == BELL_LAST && (s == 0 || SHARED) -> mem[BELL] = 1 :: else fi }
        tell = 0
#endif
    :: atomic { n == NM(s) -> MAY_GO(s); break }
    od;
    if :: s == 0 && LATE -> done = true :: else fi;
gone:
    seen[s] = 0
}

/* Sender 0's service thread learns the wake descriptor at some time. */
proctype service()
{
end_1:
    atomic { !died -> if :: BUG == WRITE_FIRST -> CAN_WRITE(SVC) -> efd = 1 :: else fi }
end_2:
    atomic {
        !died -> if :: OTHER == FENCE_FIRST -> st(SVC, FREE, MB) :: else -> st(SVC, FD, 1) fi
    }
end_3:
    atomic {
        !died ->
        if
        :: OTHER == FENCE_FIRST -> st(SVC, FD, 1)
        :: OTHER != FENCE_FIRST && (MB || BUG == FENCE_UNASKED) -> st(SVC, FREE, 1)
        :: else
        fi
    }
#if COLD
end_bell:
    atomic {
        !died && bn[SVC] == 0 -> if :: BUG != NO_FIRST_BELL -> mem[BELL] = 1 :: else fi
    }
#endif
end_4:
    atomic {
        !died && CAN_WRITE(SVC) ->
        if
        :: BUG == NO_FIRST_WRITE || BUG == WRITE_FIRST
        :: BUG == CLOSED_NO_WRITE && done
        :: else -> efd = 1
        fi
    }
}

/* The receiver's service thread: adds ring 0, sees sender 0 die (the kernel reports it after the
 * stores of the dead are out). */
proctype rservice()
{
    if
    :: ATTACH ->
        st(RSVC, ATT, 1);
        atomic { if :: BUG != NO_ATTACH_WRITE -> CAN_WRITE(RSVC) -> efd = 1 :: else fi }
    :: else
    fi;
end_watch:
    atomic {
        died && bn[0] == 0 && bn[SVC] == 0 ->
        down = true;
        if :: BUG != NO_DEATH_WRITE -> efd = 1 :: else fi
    }
}

#define NEW(s) ((s == 1 || !ATTACH || mem[ATT]) && mem[PUB(s)] != del[s])
/* Of a ring that is looked at; that of a dead sender is drained, cold or not. */
#define SEEN_NEW(s) (NEW(s) && !(s == 0 && cold && !down))

/* membarrier: at some moment inside the call each running thread has a fence. */
inline barrier()
{
    flush(RCV);
    if
    :: MB ->
        if :: BUG == UNREGISTERED :: else -> flush(0) fi;
        flush(1); flush(SVC); flush(RSVC)
    :: else
    fi
}
inline look()
{
    if :: SEEN_NEW(0) -> found = true :: else fi;
#if COLD
    if :: !found && BUG != ARM_DEAF && mem[BELL] -> found = true :: else fi;
#endif
    if :: !found && NEW(1) -> found = true :: else fi
}
inline poll()
{
    d_step {
        if :: SEEN_NEW(0) -> del[0]++; got = true :: else fi;
        if :: NEW(1) -> del[1]++; got = true :: else fi
    }
}

/* Of epochs only this matters: odd or even, and are two odd ones the same. So an
 * even one is 0 here, and the next odd one is the least value that nobody holds:
 * the counter (64 bits, it never comes round), renamed. */
#define BUFFERED(s, v, j) (bn[RCV] > j && ba[RCV * D + j] == EPOCH(s) && bv[RCV * D + j] == v)
#define HELD(s, v) (seen[s] == v || e[s] == v || mem[EPOCH(s)] == v || BUFFERED(s, v, 0) || \
                    BUFFERED(s, v, 1))
inline say_odd(s)
{
    atomic {
        epoch = 1;
        do :: HELD(s, epoch) -> epoch++ :: else -> break od;
        st(RCV, EPOCH(s), epoch);
        epoch = 0
    }
}
inline say_even() { if :: !cold -> st(RCV, EPOCH(0), 0) :: else fi; st(RCV, EPOCH(1), 0) }

/* Takes the bit and makes its ring hot, whether a message is there or not. */
inline answer()
{
    atomic {
        if
        :: mem[BELL] && !cold -> mem[BELL] = 0
        :: mem[BELL] && cold ->
            mem[BELL] = 0;
            if
            :: BUG == BELL_STAYS && !NEW(0)
            :: !(BUG == BELL_STAYS && !NEW(0)) -> cold = false; st(RCV, EPOCH(0), 0)
            fi
        :: else
        fi
    }
}

/* Awake, and ring 0 was silent for a while. */
inline cool()
{
    say_odd(0);
    if :: BUG == COOL_NO_BARRIER :: else -> barrier() fi;
    atomic {
        if
        :: BUG != COOL_NO_LOOK && NEW(0) -> st(RCV, EPOCH(0), 0)
        :: BUG == COOL_NO_LOOK || !NEW(0) -> cold = true
        fi
    }
}

proctype receiver()
{
    byte epoch;
    bool found, got, odd;

    do
    ::
#if COLD
       answer();
       poll();
       if :: !cold && !down -> cool() :: true fi;
       got = false;
#else
       poll();
       got = false;
#endif
    arm:
       if
       :: BUG == DRAIN_ODD || BUG == DRAIN_BARRIER || BUG == DRAIN_LAST
       :: else -> efd = 0
       fi;
       if :: BUG == RECHECK_FIRST -> barrier(); look() :: else fi;
       if :: BUG == BARRIER_FIRST -> barrier() :: else fi;
       if :: !odd -> if :: !cold -> say_odd(0) :: else fi; say_odd(1) :: else fi;
       odd = true;
       if :: BUG == DRAIN_ODD -> efd = 0 :: else fi;
       if :: BUG == NO_BARRIER || BUG == BARRIER_FIRST :: else -> barrier() fi;
       if :: BUG == DRAIN_BARRIER -> efd = 0 :: else fi;
       if :: BUG == RECHECK_FIRST :: else -> look() fi;
       if :: BUG == DRAIN_LAST -> efd = 0 :: else fi;
       if
       :: found ->
           found = false; odd = (BUG == SAME_EPOCH_ARM);
           if :: COLD && BUG == CHILL_EARLY && !cold -> cold = true :: else fi
       :: else ->
#if WITNESS
           sleeps++;
#endif
           if :: BUG == ARM_TWICE -> goto arm :: true fi;
    again:
    end_asleep:
           atomic {
               efd > 0;
               if :: OTHER == WAKE_DRAIN_LATE || OTHER == WAKE_NO_DRAIN :: else -> efd = 0 fi
           }
           if :: BUG == SAME_EPOCH_WAKE || OTHER == WAKE_DRAIN_LATE || OTHER == EVEN_LATE -> poll()
           :: else
           fi;
           if :: BUG == SAME_EPOCH_WAKE && !got -> goto again :: else fi;
           got = false;
           if :: OTHER == WAKE_DRAIN_LATE -> efd = 0 :: else fi;
#if COLD
           if :: cold = true :: true fi; /* its word is odd, the recheck found nothing */
#endif
           odd = false
       fi;
       if :: !odd -> say_even() :: else fi
    od
}

/* Nothing can move any more: the receiver sleeps, so nothing may be waiting. A
 * sender that was stopped before its wake holds up its own messages only. */
active proctype judge()
{
    timeout ->
    atomic {
        assert(bn[0] + bn[1] + bn[SVC] + bn[RCV] + bn[RSVC] == 0);
        assert(mem[PUB(0)] == del[0]);
        assert(stopped || mem[PUB(1)] == del[1]);
#if WITNESS
        assert(sleeps < 3)
#endif
    }
}

init {
    atomic {
        mem[FD] = !LATE;
        mem[FREE] = !LATE && MB;
        run sender(0); run sender(1);
#if LATE
        run service();
#endif
#if ATTACH || DIE
        run rservice();
#endif
        run receiver()
    }
}
