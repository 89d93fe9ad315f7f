/* SPDX-License-Identifier: BSD-3-Clause */
/* How a receiver learns that an endpoint of another process was closed, with no connection between
 * the two: a word in memory that it maps, and a packet that says "look". README.md names the
 * modelled parts.
 *
 *   BUG=<n>     plant one bug, the list below
 *   WITNESS=1   claim that it is not learned (must be refuted) */
#ifndef BUG
#define BUG 0
#endif
#ifndef WITNESS
#define WITNESS 0
#endif

#define WORD_LAST 1    /* the word is cleared after LEFT was sent */
#define NO_LOOK 2      /* WELCOME does not make the receiver look */
#define NO_RETRY 3     /* a LEFT for which the socket had no room is not sent again */
#define HEED_SENDS 4   /* a receive connects, but does not look where that was done before */
#define HELLO_LATE 5   /* the link counts as a client's only once WELCOME was sent: not one lock */
#define CLEAR_LATE 6   /* the owner looks, then clears the flag that it is to look */

mtype { HELLO, WELCOME, LEFT };
chan up = [1] of { mtype };   /* client to server */
chan down = [1] of { mtype }; /* server to client: LEFT may find no room */
bool lock, word = true;       /* the endpoint is open */
bool is_client, left;         /* the server's: HELLO came; LEFT is still to be sent */
bool connected, mapped, look; /* the client's */
bool opened, reported;        /* the peer, in the client */
bool filled;                  /* another packet for this client took the room */

inline left_send()
{
    if
    :: !is_client -> left = false
    :: is_client && nfull(down) -> down!LEFT; left = false
    :: is_client && full(down) -> left = (BUG != NO_RETRY)
    fi
}

active proctype closer()
{
    atomic { !lock -> lock = true };
#if BUG == WORD_LAST
    left_send();
    word = false;
#else
    word = false;
    left_send();
#endif
    lock = false
}

active proctype server()
{
end_server:
    do
    :: atomic { nempty(up) && !lock -> lock = true };
        up?HELLO;
#if BUG == HELLO_LATE
        lock = false;
        down!WELCOME;
        atomic { !lock -> lock = true };
        is_client = true;
#else
        is_client = true;
        down!WELCOME;
#endif
        lock = false
    :: atomic { left && !lock -> lock = true }; /* a tick */
        left_send();
        lock = false
    :: atomic { is_client && !filled && !lock && nfull(down) -> down!WELCOME; filled = true }
    od
}

active proctype client_service()
{
end_client:
    do
    :: down?WELCOME ->
        if
        :: !mapped -> mapped = true; look = (BUG != NO_LOOK)
        :: else
        fi
    :: down?LEFT -> look = true
    od
}

inline gone_look()
{
    if
    :: opened && mapped && !word -> reported = true
    :: else
    fi
}

active proctype owner()
{
    /* another endpoint of this process may have connected before */
    if
    :: connected = true; up!HELLO
    :: true
    fi;
    do
    :: look -> look = false; gone_look()
    :: break
    od;
    opened = true; /* and a receive names it */
    if
    :: !connected -> connected = true; up!HELLO
    :: else
    fi;
#if BUG != HEED_SENDS
    gone_look();
#endif
end_owner:
    do
    :: look && !reported ->
#if BUG == CLEAR_LATE
        gone_look();
        look = false
#else
        look = false;
        gone_look()
#endif
    :: look && reported -> look = false
    od
}

init
{
    timeout -> assert(opened && reported);
    assert(!WITNESS)
}
