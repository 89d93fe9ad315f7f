/* SPDX-License-Identifier: BSD-3-Clause */
/* The model of fabric_model: model.c has what must hold, ops.c the calls and their completions. */
#ifndef STRESS_FABRIC_MODEL_H
#define STRESS_FABRIC_MODEL_H

#include <stdatomic.h>

#include "contract/support.h"
#include "end.h"

enum {
    ENDS = 4,
    WINDOW = 64, /* numbers a sender may be ahead of the oldest untaken one */
    RING = 256,  /* messages of a source that are remembered: more than twice that */
    SENDS = 48,
    RECVS = 48,
    MANYS = 3,
    ACCESSES = 8,
    OPS = SENDS + RECVS + MANYS + ACCESSES,
    HEADER = 16, /* bytes that name a message: the least length */
    LENGTH = 20000,
    BIG = 300000,
    ROOM_OF_MANY = 30000,
    GUARD = 32,
    KEYS = 64
};
enum { UNTAGGED, TAGGED };
enum {
    DID_SEND,
    DID_RECEIVE,
    DID_CUT,
    DID_MANY,
    DID_FIND,
    DID_CLAIM,
    DID_DROP,
    DID_NONE,
    DID_CANCEL,
    DID_ACCESS,
    DIDS
};
#define NEVER UINT64_MAX

/* A message, as its receiver knows it, by the numbers of calls. */
struct known {
    uint64_t taker;  /* NEVER: not yet */
    uint64_t before; /* its taker was called earlier */
    uint64_t after;  /* its taker was called later, or by the same call; 0: nothing is known */
};

enum kind { FREE, SEND, RECEIVE, MANY, PEEK, CLAIMED, CLAIM, DROP, WRITE, READ, ADD, FETCH };

/* An operation: the context of its call. */
struct op {
    enum kind kind;
    /* of receives: what they match; [call] is the number */
    uint64_t call, key, mask;
    int source; /* -1: any */
    unsigned space;
    size_t room;
    unsigned char *buf;
    bool cancels; /* fi_cancel has returned 0 */
    bool met;     /* it has a message */
    /* of sends and accesses: the other side; of claimed messages: the sender */
    int peer;
    uint32_t number;
    size_t len;
    uint64_t flags; /* of a peek */
    uint64_t value; /* of a write */
};

/* What the processes share. */
struct board {
    uint64_t seed;
    uint8_t names[ENDS][END_NAME];
    atomic_int opened, finished, checked;
    _Atomic uint32_t taken[ENDS][ENDS]; /* [to][from]: all below are taken */
    _Atomic uint32_t total[ENDS][ENDS]; /* [to][from]: once over[from] is set */
    atomic_bool over[ENDS];
    _Atomic uint64_t added[ENDS]; /* to the sum of each */
    _Atomic uint64_t did[DIDS];
};

struct proc {
    int rank;
    struct end e;
    enum fi_cq_format format;
    bool sources, waits; /* it has FI_SOURCE, and a wait object */
    fi_addr_t addr[ENDS];
    _Atomic uint64_t region[ENDS + 1]; /* a word that each process writes, and a sum */
    uint64_t rand, calls, operations;
    uint64_t busy;        /* for so many operations with other things than polling */
    uint32_t sent[ENDS];  /* to */
    uint32_t first[ENDS]; /* from: the oldest untaken one */
    struct known known[ENDS][RING];
    struct op ops[OPS];
    struct op *sends, *recvs, *manys, *accesses; /* in ops */
    uint64_t value, written[ENDS], fetched[ENDS], added[ENDS];
    bool word_busy[ENDS], sum_busy[ENDS];
    uint64_t done[END_CNTRS], errors;
    uint64_t did[DIDS];
};

extern struct board *board;
extern struct proc me;

#define CHECK(condition, what, a, b)                                                               \
    do {                                                                                           \
        if (!(condition))                                                                          \
            broken(__LINE__, #condition, what, a, b);                                              \
    } while (0)
void broken(int line, const char *condition, const char *what, int64_t a, int64_t b);

static inline uint64_t below(uint64_t n)
{
    return test_rand(&me.rand) % n;
}

/* ---- what a message is, by sender, receiver and number ---- */

static inline uint64_t hash_of(int from, int to, uint32_t number)
{
    return test_mix(board->seed ^ (uint64_t)(from * ENDS + to) << 40 ^ number);
}

static inline unsigned space_of(int from, int to, uint32_t number)
{
    return hash_of(from, to, number) & 1 ? TAGGED : UNTAGGED;
}

static inline uint64_t key_of(int from, int to, uint32_t number)
{
    return hash_of(from, to, number) >> 1 & (KEYS - 1);
}

static inline bool has_data(int from, int to, uint32_t number)
{
    return hash_of(from, to, number) >> 7 & 1;
}

static inline uint64_t data_of(int from, int to, uint32_t number)
{
    return has_data(from, to, number) ? hash_of(from, to, number) : 0;
}

/* The number and the sender, above the key that receives choose by. */
static inline uint64_t tag_of(int from, int to, uint32_t number)
{
    return (uint64_t)number << 16 | (uint64_t)from << 8 | key_of(from, to, number);
}

static inline size_t len_of(int from, int to, uint32_t number)
{
    uint64_t h = hash_of(from, to, number) >> 8, r = h >> 8;
    switch (h & 63) {
    case 0: return HEADER + r % (r >> 32 & 15 ? LENGTH : BIG - HEADER);
    case 1: return HEADER + r % 5000;
    default: return HEADER + r % 180;
    }
}

/* model.c */
void named(const struct op *f, uint64_t call, int from, uint32_t number, bool takes);
void named_none(const struct op *f, uint64_t call);

/* ops.c. Those that return a bool return whether they have done something. */
void ops_open(void);
void ops_close(void);
bool send_one(void);
bool recv_one(void);
void recv_any(void);
bool many_start(void);
bool peek_one(void);
bool cancel_or_claim(struct op *o);
bool access_one(void);
/* Take some entries. [wait]: for a short time, if the queue can. */
void poll_one(bool wait);

#endif
