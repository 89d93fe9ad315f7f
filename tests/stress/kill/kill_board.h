/* SPDX-License-Identifier: BSD-3-Clause */
/* What kill_soak and the ranks it starts share: a memfd of the test's own, so
 * that nothing here depends on what is being tested. */
#ifndef KILL_BOARD_H
#define KILL_BOARD_H

#include <stdatomic.h>
#include <stdint.h>

#define KILL_RANKS 4
#define KILL_SECOND UINT64_C(1000000000)

/* The labelled points at which a rank is killed: those of the library that a
 * message, a reply, a connection or a closing passes, and those of the inlined
 * calls. */
#define KILL_LABELS                                                                                \
    "send.payload", "send.header", "send.data", "send.published", "send.wake", "reply.header",     \
        "reply.data", "reply.published", "reply.wake", "head.store", "connect.ring", "arm.said",   \
        "region.closed", "put.copy", "get.copy", "signal.store", "msg.offered", "pull.begin",      \
        "pull.end"

/* How a survivor learns of the death: every way there is. */
enum kill_seen {
    KILL_SEEN_DOWN,    /* the callback */
    KILL_SEEN_REQUEST, /* what weft_am_request returns, and so on */
    KILL_SEEN_PUT,
    KILL_SEEN_GET,
    KILL_SEEN_SIGNAL,
    KILL_SEEN_FLUSH,
    KILL_SEEN_BARRIER,
    KILL_SEEN_MSG, /* a tagged message to it ended */
    KILL_SEEN
};
#define KILL_SEEN_NAMES                                                                            \
    "peer_down", "weft_am_request", "weft_put", "weft_get", "weft_put_signal", "weft_flush",       \
        "weft_job_barrier", "weft_msg_send"

enum kill_phase {
    KILL_ABSENT,
    KILL_JOINING,
    KILL_TRAFFIC,
    KILL_CHECKING,
    KILL_TALKING,
    KILL_TALKED,
    KILL_LEFT,
};

/* Each written by that rank alone. */
struct kill_rank {
    _Atomic int pid, phase;
    _Atomic uint64_t seen_ns[KILL_SEEN]; /* when; 0: not yet */
    _Atomic uint64_t ops, hits;
    uint64_t token[2]; /* names its socket; valid from KILL_TRAFFIC on */
    char fail[256];    /* what did not hold first; empty: nothing */
};

struct kill_board {
    /* Set before the ranks start. */
    uint64_t seed;
    int victim;
    uint64_t hit;       /* the victim kills itself at this hit of [label] */
    char label[32];     /* empty: it is killed from outside */
    int stubborn;       /* ranks ignore SIGTERM, and stay */
    uint64_t notice_ns; /* so soon after the death a survivor has to know of it */
    /* Ranks in traffic. */
    _Atomic int started;
    /* Written by the killer, just before. */
    _Atomic uint64_t killed_ns;
    struct kill_rank rank[KILL_RANKS];
};

#endif
