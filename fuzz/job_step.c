/* SPDX-License-Identifier: BSD-3-Clause */
/* What the leaders of a job's nodes may tell each other, and what one of them may claim
 * instead: messages to the handler of src/job/across.c while this rank is in one collective
 * after the other. The other ranks are this file: their peers are of a transport that sends
 * nowhere, the node's board is a heap block of exactly its size.
 *
 * What every rank gives is a function of the rank and the collective, and messages carry that,
 * whatever their arguments say; so a collective that ends well has it, lies or not.
 *
 * Input: how many ranks, which one this is, what the first collective is; 8 bytes, one for each
 * rank: its node; then steps. A step is a byte that says what happens, and what that takes. */
#include "fuzz.h"

#include "base/log.h"
#include "core/am.h"
#include "core/ctl.h"
#include "job/job.h"

#define RANKS 8
#define AM_MAX 512
#define STEP_ARGS 9
#define TROUBLE_ARGS 5
#define VOTE_ARGS 7
#define NO_LIMIT UINT32_MAX
#define NAME 7 /* of every rank's split-phase barriers */

enum { STEP = 1, TROUBLE = 2, VOTE = 3 }; /* as across.h describes them */

enum what {
    BEGIN,   /* this rank enters the next collective */
    TRY,     /* and looks whether it has ended */
    MATE,    /* one of the node arrives */
    TRUTH,   /* byte: round, one ahead; the message that is due in it */
    CHANGED, /* the same; byte: which argument; 4 bytes: added to it */
    RAW,     /* bytes: sender, arguments; 2 bytes: payload; the arguments */
    NEWS,    /* bytes: node, kind; TROUBLE of its leader */
    ROOM,    /* byte: how many messages may be sent, and what comes then */
    DEPART,  /* byte: a mate leaves the job */
    WHATS
};

/* Of collective n: bytes of each rank; SPLIT: a split-phase barrier. */
#define SPLIT UINT32_MAX
static const uint32_t plan[] = {0, SPLIT, 8, 600, 1, 128, SPLIT, WEFT_JOB_ALLGATHER_MAX};
#define PLANS (sizeof plan / sizeof plan[0])

struct fake_peer {
    struct wf_tpeer base;
    struct wf_address address;
};

static struct scene {
    struct weft_job job;
    unsigned first_plan;
    unsigned mates; /* that have arrived */
    bool inside;    /* a collective */
    bool lied;      /* something was not as an honest leader would have it */
    bool failed;    /* something happened that ends collectives, or sending */
    uint32_t room;
    enum weft_status full; /* what sending returns without room */
    uint64_t trouble;
    uint64_t checked;                /* the collective whose bytes were */
    const struct wf_address *sender; /* of the message being delivered */
} s;

static struct weft_ep *ep;
static struct weft_peer *peers[RANKS];

static struct fake_peer *fake(unsigned rank)
{
    return (struct fake_peer *)(void *)wf_peer_tpeer(peers[rank]);
}

/* ---- what is true ---- */

FUZZ_UNTRACED static uint8_t given(unsigned rank, uint64_t number, uint64_t at)
{
    return (uint8_t)(1 + rank * 29 + number * 101 + at * 7 + at / 256);
}

static uint32_t plan_of(uint64_t number)
{
    return plan[(s.first_plan + number) % PLANS];
}

static uint32_t len_of(uint64_t number)
{
    return plan_of(number) == SPLIT ? 0 : plan_of(number);
}

static uint32_t call_of(uint64_t number)
{
    return wf_call_of(len_of(number) ? WF_CALL_GATHER : WF_CALL_BARRIER, len_of(number));
}

/* As split.c makes it: the barrier's number among its kind, a name. */
FUZZ_UNTRACED static uint64_t vote_of(uint64_t number)
{
    uint64_t count = 0;
    for (uint64_t n = 1; n <= number; n++)
        count += plan_of(n) == SPLIT;
    return count << 34 | (uint64_t)1 << 32 | NAME;
}

static unsigned node_after(uint64_t steps)
{
    return (unsigned)((s.job.nodes.me + steps) % s.job.nodes.count);
}

/* How many ranks' bytes node [from] tells in round [k]. */
FUZZ_UNTRACED static uint64_t ranks_told(unsigned from, unsigned k)
{
    unsigned count = s.job.nodes.count, step = 1u << k, nodes = WF_MIN(step, count - step);
    uint64_t ranks = 0;
    for (unsigned i = 0; i < nodes; i++)
        ranks += wf_nodes_ranks(&s.job.nodes, (from + i) % count);
    return ranks;
}

FUZZ_UNTRACED static uint8_t told_byte(unsigned from, uint64_t number, uint32_t len, uint64_t at)
{
    const struct wf_nodes *n = &s.job.nodes;
    return given(n->order[(n->first[from] + at / len) % n->size], number, at % len);
}

/* Have others told only what is due, so far as it is used in collective [number]? */
static bool is_clean(uint64_t number)
{
    const struct wf_across *a = s.job.across;
    for (unsigned k = 0; k < a->rounds; k++) {
        const struct wf_across_slot *slot = &a->slots[k][number & 1];
        if (slot->number == number && slot->len != a->len)
            return false;
    }
    return true;
}

FUZZ_UNTRACED static void check_gathered(void)
{
    uint64_t number = s.job.barriers;
    uint32_t len = s.job.across->len;
    for (unsigned r = 0; len && r < s.job.size; r++) {
        const uint8_t *box = wf_board_outbox(&s.job.board, r, number & 1, len);
        for (uint32_t i = 0; i < len; i++)
            FUZZ_CHECK(box[i] == given(r, number, i));
    }
}

/* ---- the transport that sends nowhere ---- */

FUZZ_UNTRACED static void check_step(const struct wf_tpeer *to, const uint32_t *args,
                                     const uint8_t *data, size_t n)
{
    const struct wf_across *a = s.job.across;
    uint64_t number = wf_word64(args + 2), at = wf_word64(args + 7), total;
    uint32_t k = args[1], len = args[6];
    unsigned node, me = s.job.nodes.me;
    FUZZ_CHECK(a->leads && k < a->rounds && number == s.job.barriers && len == a->len);
    node = node_after(s.job.nodes.count - (1u << k));
    FUZZ_CHECK(to == &fake(wf_nodes_leader(&s.job.nodes, node))->base);
    total = ranks_told(me, k) * len;
    FUZZ_CHECK(at + n == total || (at + n < total && n == AM_MAX));
    for (size_t i = 0; i < n && is_clean(number); i++)
        FUZZ_CHECK(data[i] == told_byte(me, number, len, at + i));
}

/* A node sends its vote to the leader or the helper of the next node. The vote is right unless this
 * rank received a lie. */
static void check_vote(const struct wf_tpeer *to, const uint32_t *args)
{
    const struct wf_nodes *n = &s.job.nodes;
    unsigned node, is_one = 0;
    FUZZ_CHECK(args[1] < s.job.across->rounds && args[2] == s.job.rank);
    FUZZ_CHECK(wf_word64(args + 3) == s.job.barriers && plan_of(s.job.barriers) == SPLIT);
    FUZZ_CHECK(s.lied || wf_word64(args + 5) == vote_of(s.job.barriers));
    node = node_after(n->count - (1u << args[1]));
    for (unsigned i = 0; i < wf_nodes_ranks(n, node) && i < WF_ACROSS_COPIES; i++)
        is_one += to == &fake(n->order[n->first[node] + i])->base;
    FUZZ_CHECK(is_one == 1);
}

static enum weft_status fake_request(struct wf_tpeer *to, unsigned what, const uint32_t *args,
                                     const void *data, size_t len, size_t reply_max)
{
    unsigned handler = WF_AM_HANDLER(what), nargs = WF_AM_NARGS(what);
    FUZZ_CHECK(handler == WF_CTL_JOB && nargs && len <= AM_MAX && !reply_max);
    FUZZ_CHECK(to != &fake(s.job.rank)->base);
    fuzz_touch(args, 4u * nargs);
    fuzz_touch(data, len);
    if (args[0] == STEP) {
        FUZZ_CHECK(nargs == STEP_ARGS);
        check_step(to, args, data, len);
    } else if (args[0] == VOTE) {
        FUZZ_CHECK(nargs == VOTE_ARGS && !len);
        check_vote(to, args);
    } else {
        FUZZ_CHECK(args[0] == TROUBLE && nargs == TROUBLE_ARGS && args[1] <= 1 && !len);
        FUZZ_CHECK(args[2] == s.job.rank && wf_word64(args + 3));
    }
    if (!s.room)
        return s.full;
    s.room -= s.room != NO_LIMIT;
    return WEFT_OK;
}

static bool fake_is_away(struct wf_tpeer *to, struct wf_order *order)
{
    (void)to, (void)order;
    return s.room; /* a message leaves once there is room for another one */
}

static void fake_source(const struct wf_token *token, struct wf_address *out,
                        struct wf_contact *contact)
{
    (void)token, (void)contact;
    *out = *s.sender;
}

static void fake_address(const struct wf_tpeer *tpeer, struct wf_address *out)
{
    *out = wf_container_of(tpeer, struct fake_peer, base)->address;
}

static const struct wf_transport fake_transport = {.name = "fake",
                                                   .request_ordered = fake_request,
                                                   .is_away = fake_is_away,
                                                   .source = fake_source,
                                                   .address = fake_address};
static struct wf_tep fake_tep = {.transport = &fake_transport};

/* ---- a job ---- */

static void open_once(void)
{
    struct weft_ctx *ctx;
    if (ep)
        return;
    setenv("WEFT_TRANSPORTS", "loop", 1);
    setenv("WEFT_AM_MAX", "512", 1);
    FUZZ_CHECK(weft_ctx_open(NULL, &ctx) == WEFT_OK && weft_ep_open(ctx, NULL, &ep) == WEFT_OK);
    FUZZ_CHECK(weft_am_max(ep) == AM_MAX);
    for (unsigned r = 0; r < RANKS; r++) {
        FUZZ_CHECK(peers[r] = calloc(1, sizeof(struct weft_peer) + sizeof(struct fake_peer)));
        peers[r]->transport = &fake_transport;
        fake(r)->base.tep = &fake_tep;
    }
    wf_log_set_level((enum wf_log_level) - 1); /* each lie would be logged */
}

static void members_make(struct wf_member *members, struct fuzz_input *in)
{
    for (unsigned r = 0; r < RANKS; r++) {
        uint8_t node;
        fuzz_take(in, &node, 1);
        members[r] = (struct wf_member){r, WF_CARD_SHARES | WF_CARD_MAPS, {.pid = r + 1}};
        members[r].process.host = node % RANKS;
        fake(r)->address = (struct wf_address){.version = WF_ADDRESS_VERSION,
                                               .size = sizeof(struct wf_address),
                                               .process = members[r].process};
    }
}

static void board_open(void)
{
    struct weft_job *job = &s.job;
    size_t n = wf_board_size(job->local_size, job->size);
    void *base = aligned_alloc(WF_BOARD_LINE, n);
    FUZZ_CHECK(base && n % WF_BOARD_LINE == 0);
    memset(base, 0, n);
    wf_board_make(base, job->size);
    FUZZ_CHECK(wf_board_open(&job->board, base, job->local_rank, job->local_size, job->size) ==
               WEFT_OK);
}

/* False: all ranks would be on one node. */
static bool scene_open(struct fuzz_input *in)
{
    struct wf_member members[RANKS];
    struct weft_job *job = &s.job;
    uint8_t head[3];
    memset(&s, 0, sizeof s);
    fuzz_take(in, head, sizeof head);
    members_make(members, in);
    s.room = NO_LIMIT;
    s.first_plan = head[2];
    job->size = 2 + head[0] % (RANKS - 1);
    job->rank = head[1] % job->size;
    job->ep = ep;
    job->peers = peers;
    job->meet = WF_MEET_ACROSS;
    FUZZ_CHECK(wf_nodes_make(&job->nodes, members, job->size, job->rank) == WEFT_OK);
    job->local_rank = job->nodes.place[job->rank];
    job->local_size = wf_nodes_ranks(&job->nodes, job->nodes.me);
    if (job->nodes.count > 1) {
        FUZZ_CHECK(wf_across_open(job) == WEFT_OK);
        board_open();
        return true;
    }
    wf_nodes_free(&job->nodes);
    return false;
}

static void scene_close(void)
{
    struct weft_job *job = &s.job;
    for (unsigned r = 0; r < job->size; r++) {
        (void)wf_across_needs(job, r);
        (void)wf_job_left(job, r);
    }
    s.room = NO_LIMIT; /* else it tries again for a while */
    wf_board_depart(&job->board, job->passed, false);
    wf_across_leave(job, job->passed);
    wf_across_close(job);
    wf_nodes_free(&job->nodes);
    free(job->board.base);
}

/* ---- this node's part ---- */

static void begin(void)
{
    struct weft_job *job = &s.job;
    const struct wf_nodes *n = &job->nodes;
    uint64_t number = job->barriers + 1;
    uint32_t len = len_of(number);
    if (s.inside || job->broken)
        return;
    s.inside = true;
    s.mates = 0;
    for (unsigned r = n->first[n->me]; r < n->first[n->me + 1]; r++) {
        uint8_t *box = wf_board_outbox(&job->board, n->order[r], number & 1, len);
        for (uint32_t i = 0; i < len; i++)
            box[i] = given(n->order[r], number, i);
    }
    job->across->len = len;
    if (plan_of(number) == SPLIT) {
        FUZZ_CHECK(weft_job_barrier_notify(job, NAME, 0) == WEFT_OK);
        FUZZ_CHECK(job->split.mine == vote_of(number));
    } else {
        job->barriers++;
        job->call = job->barriers << WF_CALL_BITS | call_of(number);
        wf_across_arrive(job);
    }
}

static void mate_arrives(void)
{
    if (!s.inside || s.mates == s.job.local_size - 1)
        return;
    s.mates++;
    __atomic_fetch_add(s.job.board.arrivals, 1, __ATOMIC_ACQ_REL);
}

static void end_well(enum weft_status status)
{
    struct weft_job *job = &s.job;
    FUZZ_CHECK(status == WEFT_OK || (plan_of(job->barriers) == SPLIT && s.lied));
    FUZZ_CHECK(job->across->leads || plan_of(job->barriers) == SPLIT);
    FUZZ_CHECK(s.mates == job->local_size - 1);
    for (unsigned k = 0; k < job->across->rounds && plan_of(job->barriers) == SPLIT; k++)
        FUZZ_CHECK(*wf_board_copies(&job->board, k) & 1); /* other nodes have the vote */
    check_gathered();
    job->passed = job->barriers;
    s.inside = false;
    job->across->len = 0;
}

static void end_badly(enum weft_status status)
{
    struct weft_job *job = &s.job;
    FUZZ_CHECK(s.lied || s.failed);
    FUZZ_CHECK(status == WEFT_EPROTO || status == WEFT_ECLOSED || status == WEFT_EPEER);
    if (!job->broken)
        job->broken = status;
    (void)wf_across_check(job, job->broken);
    s.inside = false;
    job->across->len = 0;
}

static void try(void)
{
    struct weft_job *job = &s.job;
    enum weft_status status;
    if (!s.inside)
        return;
    if (plan_of(job->barriers) == SPLIT)
        status = weft_job_barrier_try(job, NAME, 0);
    else if (!job->across->leads || s.mates < job->local_size - 1)
        status = wf_job_check(job) ? wf_job_check(job) : WEFT_AGAIN;
    else
        status = wf_across_wait(job, 1); /* a time that is past: it looks once */
    if (status == WEFT_ETIMEDOUT)
        return;
    if (status == WEFT_OK || status == WEFT_EMISMATCH)
        end_well(status);
    else if (status != WEFT_AGAIN)
        end_badly(status);
}

static void depart(struct fuzz_input *in)
{
    struct wf_board b = s.job.board;
    uint8_t how;
    fuzz_take(in, &how, 1);
    if (s.job.local_size < 2)
        return;
    b.me = (s.job.local_rank + 1 + how % (s.job.local_size - 1)) % s.job.local_size;
    s.failed = true;
    wf_board_depart(&b, s.job.passed, how & 128);
}

/* ---- the others' ---- */

/* What belongs where the arguments say. */
FUZZ_UNTRACED static void payload_fill(uint8_t *data, size_t n, const uint32_t *args,
                                       unsigned nargs)
{
    memset(data, 0, n);
    if (nargs != STEP_ARGS || args[0] != STEP || args[1] > 30 || !args[6])
        return;
    for (size_t i = 0; i < n; i++)
        data[i] = told_byte(node_after((uint64_t)1 << args[1]), wf_word64(args + 2), args[6],
                            wf_word64(args + 7) + i);
}

/* Is it for [sender] to say this, right or wrong? */
static bool may_say(unsigned sender, const uint32_t *args, unsigned nargs)
{
    const struct wf_nodes *n = &s.job.nodes;
    if (nargs == VOTE_ARGS && args[0] == VOTE)
        return args[2] == sender && sender < n->size && n->place[sender] < WF_ACROSS_COPIES &&
               args[1] < s.job.across->rounds &&
               n->of[sender] == node_after((uint64_t)1 << args[1]);
    if (!s.job.across->leads || !nargs)
        return false;
    if (args[0] == TROUBLE)
        return nargs == TROUBLE_ARGS && args[2] == sender && sender < n->size &&
               !wf_nodes_is_mine(n, sender) && wf_nodes_leader(n, n->of[sender]) == sender;
    return args[0] == STEP && nargs == STEP_ARGS && args[1] < s.job.across->rounds &&
           sender == wf_nodes_leader(n, node_after((uint64_t)1 << args[1]));
}

/* All that messages change, in 64 bits. */
FUZZ_UNTRACED static uint64_t digest(void)
{
    const struct wf_across *a = s.job.across;
    const uint8_t *bytes = (const uint8_t *)a->slots;
    uint64_t sum = wf_board_trouble(&s.job.board, 0);
    for (size_t i = 0; i < a->rounds * sizeof *a->slots; i++)
        sum = sum * 0x100000001b3u + bytes[i];
    for (unsigned i = 0; i < s.job.nodes.count; i++)
        sum = sum * 0x100000001b3u + a->left[i];
    for (unsigned i = 0; i < 2 * a->rounds; i++) {
        sum = sum * 0x100000001b3u + wf_board_votes(&s.job.board, i / 2)[i & 1];
        sum = sum * 0x100000001b3u + a->voted[i / 2][i & 1];
    }
    return sum;
}

static void deliver(unsigned sender, const uint32_t *args, unsigned nargs, size_t len)
{
    struct wf_token token = {.tep = &fake_tep};
    uint32_t *copy = malloc(4u * nargs + !nargs);
    uint8_t *data = malloc(len + !len);
    struct weft_am am = {.ep = ep,
                         .handler = WF_CTL_JOB,
                         .data = data,
                         .len = (uint32_t)len,
                         .args = copy,
                         .nargs = (uint16_t)nargs,
                         .token = &token};
    uint64_t before = digest();
    FUZZ_CHECK(copy && data);
    memcpy(copy, args, 4u * nargs);
    payload_fill(data, len, args, nargs);
    s.sender = &fake(sender)->address;
    wf_am_deliver(ep, &am);
    FUZZ_CHECK(may_say(sender, args, nargs) || (s.job.broken == WEFT_EPROTO && digest() == before));
    free(copy);
    free(data);
}

struct due {
    uint32_t args[STEP_ARGS];
    unsigned nargs, sender;
    size_t n;
};

/* The vote of the node that tells in round [k], from one of its first ranks. */
static bool due_vote(uint8_t how, unsigned k, uint64_t number, struct due *due)
{
    const struct wf_nodes *n = &s.job.nodes;
    unsigned from = node_after((uint64_t)1 << k), there = wf_nodes_ranks(n, from);
    uint64_t vote = vote_of(number);
    due->sender = n->order[n->first[from] + (how >> 4) % WF_MIN(there, WF_ACROSS_COPIES)];
    *due =
        (struct due){{VOTE, k, due->sender, WF_LO(number), WF_HI(number), WF_LO(vote), WF_HI(vote)},
                     VOTE_ARGS,
                     due->sender,
                     0};
    return true;
}

static bool due_step(unsigned k, uint64_t number, struct due *due)
{
    const struct wf_across *a = s.job.across;
    unsigned from = node_after((uint64_t)1 << k);
    const struct wf_across_slot *slot = &a->slots[k][number & 1];
    uint32_t len = len_of(number);
    uint64_t at = slot->number == number ? slot->got : 0, total = ranks_told(from, k) * len;
    if (!a->leads || (slot->number == number && slot->complete))
        return false;
    *due = (struct due){
        {STEP, k, WF_LO(number), WF_HI(number), call_of(number), 0, len, WF_LO(at), WF_HI(at)},
        STEP_ARGS,
        wf_nodes_leader(&s.job.nodes, from),
        WF_MIN(total - at, (uint64_t)AM_MAX)};
    return at < total || !total;
}

/* Make the next message that an honest node sends to this rank in a round. No node is ahead of this
 * rank by more than one collective. Returns false if no message is due. */
static bool due_make(uint8_t how, struct due *due)
{
    const struct wf_across *a = s.job.across;
    unsigned k = how % a->rounds;
    uint64_t number;
    if (!a->leads) /* it receives only votes, and [begun] and [done] are for leaders */
        number = s.job.passed + 1 + (how >> 7);
    else
        number = WF_MIN(a->done + 1 + (how >> 7), a->begun + 1);
    if ((how & 8) && number > 1 && plan_of(number - 1) == SPLIT)
        number--; /* a copy that comes late */
    if (plan_of(number) != SPLIT)
        return due_step(k, number, due);
    return number <= s.job.barriers + 1 && due_vote(how, k, number, due);
}

static void tell_truth(struct fuzz_input *in)
{
    struct due due;
    uint8_t how;
    fuzz_take(in, &how, 1);
    if (due_make(how, &due))
        deliver(due.sender, due.args, due.nargs, due.n);
}

static void tell_changed(struct fuzz_input *in)
{
    struct due due;
    uint32_t by;
    uint8_t how[2];
    fuzz_take(in, how, 2);
    by = fuzz_u32(in);
    if (!due_make(how[0], &due))
        return;
    s.lied = true;
    how[1] %= due.nargs + 2;
    if (how[1] < due.nargs)
        due.args[how[1]] += by;
    else if (how[1] == due.nargs)
        due.sender = by % RANKS;
    else
        due.n = by % (AM_MAX + 1);
    deliver(due.sender, due.args, due.nargs, due.n);
}

static void tell_raw(struct fuzz_input *in)
{
    uint32_t args[WEFT_AM_MAX_ARGS];
    uint8_t head[2];
    uint16_t n;
    fuzz_take(in, head, 2);
    fuzz_take(in, &n, 2);
    head[1] %= WEFT_AM_MAX_ARGS + 1;
    fuzz_take(in, args, 4u * head[1]);
    s.lied = s.failed = true;
    deliver(head[0] % RANKS, args, head[1], n % (AM_MAX + 1u));
}

/* Of the worst kind, of a collective, or that a leader leaves. */
static void tell_news(struct fuzz_input *in)
{
    uint32_t args[TROUBLE_ARGS] = {TROUBLE};
    uint64_t trouble = s.job.barriers + 1;
    uint8_t how[2];
    unsigned node;
    fuzz_take(in, how, 2);
    node = node_after(1 + how[0] % (s.job.nodes.count - 1));
    if (how[1] & 128)
        trouble = WF_TROUBLE_DEATH;
    args[1] = how[1] & 1;
    args[2] = wf_nodes_leader(&s.job.nodes, node);
    args[3] = WF_LO(trouble);
    args[4] = WF_HI(trouble);
    s.failed = true;
    s.lied |= !s.job.across->leads;
    deliver(args[2], args, TROUBLE_ARGS, 0);
}

static void set_room(struct fuzz_input *in)
{
    static const enum weft_status kinds[] = {WEFT_AGAIN, WEFT_AGAIN, WEFT_ECLOSED, WEFT_EPEER};
    uint8_t how;
    fuzz_take(in, &how, 1);
    s.room = how & 128 ? NO_LIMIT : how & 15;
    s.full = kinds[how >> 4 & 3];
    s.failed |= s.full != WEFT_AGAIN;
}

/* ---- the run ---- */

FUZZ_UNTRACED static void check_all(void)
{
    const struct wf_across *a = s.job.across;
    uint64_t trouble = wf_board_trouble(&s.job.board, 0);
    for (unsigned k = 0; k < a->rounds; k++)
        for (unsigned i = 0; i < 2; i++) {
            const struct wf_across_slot *slot = &a->slots[k][i];
            uint64_t total = ranks_told(node_after((uint64_t)1 << k), k) * slot->len;
            FUZZ_CHECK(slot->got <= total && slot->len <= WEFT_JOB_ALLGATHER_MAX);
            FUZZ_CHECK(!slot->complete || slot->got == total);
        }
    FUZZ_CHECK(a->done <= a->begun && a->begun <= s.job.barriers && a->begun - a->done <= 1);
    FUZZ_CHECK(s.lied || s.failed || (!s.job.broken && !trouble));
    FUZZ_CHECK(s.lied || s.job.broken != WEFT_EPROTO);
    FUZZ_CHECK(wf_trouble_worse(s.trouble, trouble) == trouble);
    s.trouble = trouble;
}

static void step(struct fuzz_input *in)
{
    uint8_t what;
    fuzz_take(in, &what, 1);
    switch (what % WHATS) {
    case BEGIN: begin(); break;
    case TRY: try(); break;
    case MATE: mate_arrives(); break;
    case TRUTH: tell_truth(in); break;
    case CHANGED: tell_changed(in); break;
    case RAW: tell_raw(in); break;
    case NEWS: tell_news(in); break;
    case ROOM: set_room(in); break;
    default: depart(in);
    }
    check_all();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, data + size};
    open_once();
    if (!scene_open(&in))
        return 0;
    while (in.at < in.end)
        step(&in);
    scene_close();
    return 0;
}

/* ---- seeds ---- */

/* The node of each rank, this one's, and what happens. The first collective is plan[from + 1]. */
static const struct seed {
    uint8_t size, rank, from;
    uint8_t nodes[RANKS];
    uint8_t len;
    uint8_t steps[48];
} seeds[] = {
    /* A barrier, a split-phase one, a gather, each of one message. */
    {2, 0, 7, {0, 1}, 12, {BEGIN, TRUTH, 0, TRY, BEGIN, TRUTH, 0, TRY, BEGIN, TRUTH, 0, TRY}},
    /* A gather in pieces; the last one ahead of this rank. */
    {3, 1, 2, {0, 1, 1}, 12, {TRUTH, 0, TRUTH, 0, BEGIN, MATE, TRY, TRUTH, 128, TRY, BEGIN, TRY}},
    /* Three rounds, mates among other nodes' ranks. */
    {8, 0, 1, {0, 1, 2, 3, 4, 0, 1, 2}, 10, {BEGIN, MATE, TRY, TRUTH, 0, TRUTH, 1, TRUTH, 2, TRY}},
    /* The longest gather. */
    {2, 1, 6, {0, 1}, 20, {BEGIN, TRUTH, 0, TRUTH, 0, TRUTH, 0, TRUTH, 0, TRUTH,
                           0,     TRUTH, 0, TRUTH, 0, TRUTH, 0, TRY,   0, TRY}},
    /* Lies: another round's, of another length, from another rank, of more bytes. */
    {4, 2, 1, {0, 1, 2, 3}, 8, {BEGIN, CHANGED, 0, 1, 1, 0, 0, 0}},
    {4, 2, 1, {0, 1, 2, 3}, 11, {BEGIN, CHANGED, 1, 6, 248, 3, 0, 0, TRUTH, 0, TRY}},
    {4, 2, 1, {0, 1, 2, 3}, 9, {BEGIN, CHANGED, 0, 9, 1, 0, 0, 0, TRY}},
    {4, 2, 1, {0, 1, 2, 3}, 9, {BEGIN, CHANGED, 0, 10, 255, 0, 0, 0, TRY}},
    /* Another name than this rank's. */
    {2, 0, 0, {0, 1}, 9, {BEGIN, CHANGED, 0, 4, 1, 0, 0, 0, TRY}},
    /* Bytes as they come. */
    {2, 0, 1, {0, 1}, 43, {BEGIN, RAW, 1, STEP_ARGS, 8, 0, STEP, 0, 0, 0, 0, 0, 0,  0, 1,
                           0,     0,   0, 0,         0, 0, 0,    0, 0, 0, 0, 0, 0,  0, 0,
                           8,     0,   0, 0,         0, 0, 0,    0, 0, 0, 0, 0, TRY}},
    {2,
     0,
     1,
     {0, 1},
     27,
     {BEGIN, RAW, 1, TROUBLE_ARGS, 0, 0, TROUBLE, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0,
      0,     0,   0, TRY}},
    /* A leader leaves; one knows of a death. */
    {3, 0, 1, {0, 1, 2}, 7, {NEWS, 1, 1, BEGIN, TRUTH, 0, TRY}},
    {3, 0, 1, {0, 1, 2}, 8, {BEGIN, TRUTH, 0, NEWS, 0, 128, TRUTH, TRY}},
    /* No room at times; then a neighbour is gone. */
    {4,
     3,
     2,
     {0, 1, 2, 3},
     16,
     {ROOM, 1, BEGIN, TRY, TRUTH, 0, ROOM, 0, TRY, ROOM, 128, TRY, ROOM, 32, TRY, TRY}},
    /* A mate leaves before the barrier. */
    {4, 0, 7, {0, 0, 1, 1}, 7, {BEGIN, TRY, TRUTH, 0, DEPART, 0, TRY}},
    /* Messages for a rank that does not lead. */
    {4, 1, 7, {0, 0, 1, 1}, 6, {BEGIN, NEWS, 1, 0, TRY, TRY}},
};

size_t fuzz_seed(unsigned i, uint8_t *buf, size_t room)
{
    const struct seed *seed;
    if (i >= sizeof seeds / sizeof seeds[0] || room < 3 + RANKS + sizeof seed->steps)
        return 0;
    seed = &seeds[i];
    buf[0] = (uint8_t)(seed->size - 2);
    buf[1] = seed->rank;
    buf[2] = seed->from;
    memcpy(buf + 3, seed->nodes, RANKS);
    memcpy(buf + 3 + RANKS, seed->steps, seed->len);
    return 3 + RANKS + (size_t)seed->len;
}
