/* SPDX-License-Identifier: BSD-3-Clause */
/* What a flush of Open MPI's waits for (src/bindings/ompi/rma.c): accesses are counted by the epoch
 * in which they begin, and a flush returns when those of its epoch, and of earlier ones, are over.
 * Threads begin accesses, others end them, and others flush. All loads and changes of the words are
 * sequentially consistent, as in the code. README.md names the modelled parts.
 *
 *   BEGINS=<n>   threads that begin accesses
 *   ACCESSES=<n> of each
 *   FLUSHES=<n>  threads that flush
 *   ROUNDS=<n>   flushes of each
 *   BUG=<n>      plant one bug, the list below
 *   WITNESS=1    claim that no flush waits for an access (must be refuted) */
#ifndef BEGINS
#define BEGINS 1
#endif
#ifndef ACCESSES
#define ACCESSES 1
#endif
#ifndef FLUSHES
#define FLUSHES 3
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef BUG
#define BUG 0
#endif
#ifndef WITNESS
#define WITNESS 0
#endif

#define NO_LOOK 1  /* an access is counted in the epoch seen before, without another look */
#define NO_EMPTY 2 /* an epoch ends although accesses of the one before it are under way */

#define MOST (BEGINS * ACCESSES)
byte now;       /* few flushes: it does not wrap */
byte counts[2]; /* by an epoch's lowest bit */
bool begun[MOST], over[MOST];

/* epoch_enter_counted, then the access, which another thread may end at any time. */
proctype begin(byte first)
{
    byte n, seen, then;
    do
    :: n < ACCESSES ->
        seen = now;
again:
        then = seen;
        counts[then & 1]++;
#if BUG != NO_LOOK
        seen = now;
        if
        :: seen != then -> counts[then & 1]--; goto again
        :: else
        fi;
#endif
        begun[first + n] = true;
        if
        :: over[first + n] = true; counts[then & 1]--
        :: run end(first + n, then & 1)
        fi;
        n++
    :: else -> break
    od
}

proctype end(byte at, side)
{
    over[at] = true;
    counts[side]--
}

/* wbtl_flush. Each remembers what had begun. */
proctype flush()
{
    byte rounds, epoch, seen, i;
    bool wanted[MOST], waits;
    do
    :: rounds < ROUNDS ->
        atomic {
            i = 0; waits = false;
            do
            :: i < MOST -> wanted[i] = begun[i] && !over[i]; waits = waits || wanted[i]; i++
            :: else -> break
            od
        }
        assert(!WITNESS || !waits);
        epoch = now;
look: /* epoch_is_over */
        seen = now;
        if
        :: seen == epoch ->
            if
            :: BUG == NO_EMPTY || !counts[(epoch + 1) & 1] ->
                atomic {
                    if
                    :: now == epoch -> now = epoch + 1; seen = epoch + 1
                    :: else -> seen = now
                    fi
                }
            :: else
            fi
        :: else
        fi;
        if
        :: seen > epoch + 1
        :: seen == epoch + 1 && !counts[epoch & 1]
        :: else -> (now != seen || !counts[0] || !counts[1]); goto look /* a turn of progress */
        fi;
        atomic {
            i = 0;
            do
            :: i < MOST -> assert(!wanted[i] || over[i]); i++
            :: else -> i = 0; break
            od
        }
        rounds++
    :: else -> break
    od
}

init
{
    atomic {
        byte i;
        do
        :: i < BEGINS -> run begin(i * ACCESSES); i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < FLUSHES -> run flush(); i++
        :: else -> break
        od
    }
}
