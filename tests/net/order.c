/* SPDX-License-Identifier: BSD-3-Clause */
/* Fragments over lanes of different delay: those that have to follow others do, and the rest is
 * not held up.
 *
 *     order --me 0|1 --size 2 --count N [--heedless 1]
 *
 * Member 0 sends to member 1, for each number below N, one fragment that follows nothing,
 * and a chain of two or three, by turns:
 *
 *     message, message            the second one's handler runs after the first one's
 *     put, message                the handler finds the bytes
 *     put, put, message           both to the same place: it finds the second one's
 *     message, put, message       it finds the bytes; the first handler has run, and did not
 *                                 find them
 *
 * --heedless: the chains are sent alike, but without an order: then what
 * "broken" counts shows that the test would see it.
 * Started as traffic.c is. Member 1 prints at the end "did unordered N", "did overtaken N" (of
 * those that follow nothing: came after a later one), "did chains N", "did broken N" (came before
 * what they follow), and both "done". */
#include <inttypes.h>
#include <weft/frag.h>

#include "member.h"

enum {
    WINDOW = 1024,   /* chains in flight: places for what is put */
    PLACE = 4096,    /* bytes of a place */
    LONGEST = 512,   /* message payload */
    CREDIT_EACH = 64 /* chains */
};
enum handler { ON_FREE, ON_FIRST, ON_LAST, ON_CREDIT, ON_END };
enum chain { MESSAGES, PUT_MESSAGE, PUTS, MESSAGE_PUT, CHAINS };

#define MEMBER self.me

/* A chain on its way; sender. */
struct item {
    uint64_t number;
    bool busy;
    unsigned at, parts; /* the next part to be sent */
    struct weft_frag *frags[3];
    struct weft_op ops[3];
    unsigned char bytes[3][PLACE];
};

static struct {
    unsigned me;
    uint64_t count, heedless;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_mr *mr;
    struct weft_peer *peer;
    struct weft_remote *remote;
    struct item *items;
    struct weft_frag *free_frag;
    uint64_t started, unordered, finished; /* sender: chains begun, frags sent, chains credited */
    bool all;                              /* the receiver has everything, and has reported it */
    bool end; /* receiver: nothing of the sender's is in flight any more */
    /* receiver */
    uint64_t free_seen, free_last, overtaken, broken, base, announced;
    uint64_t first[WINDOW], last[WINDOW]; /* number + 1 of the chain whose part has come */
} self;

static uint64_t bytes_of(uint64_t number, unsigned part)
{
    return mix(number * 4 + part + 1);
}

static size_t put_len(uint64_t number)
{
    return 8 + mix(number) % (PLACE - 7);
}

static size_t message_len(uint64_t number)
{
    return mix(number + 77) % LONGEST;
}

/* ---- receiver ---- */

static uint64_t number_of(const struct weft_am *am)
{
    const uint64_t number = am->nargs == 2 ? am->args[0] | (uint64_t)am->args[1] << 32 : UINT64_MAX;
    const size_t len = message_len(number);
    if (number >= self.count)
        FAIL("a message with %u arguments", am->nargs);
    if (am->len != len || differs(am->data, len, bytes_of(number, 3)) < len)
        FAIL("message %" PRIu64 " has wrong bytes", number);
    return number;
}

static void on_free(const struct weft_am *am)
{
    const uint64_t number = number_of(am);
    self.free_seen++;
    self.overtaken += number < self.free_last;
    if (number > self.free_last)
        self.free_last = number;
}

static bool is_there(uint64_t number, unsigned part)
{
    const unsigned char *place = (unsigned char *)weft_mr_base(self.mr) + number % WINDOW * PLACE;
    return differs(place, put_len(number), bytes_of(number, part)) == put_len(number);
}

static void on_first(const struct weft_am *am)
{
    const uint64_t number = number_of(am);
    self.first[number % WINDOW] = number + 1;
    if (number % CHAINS == MESSAGE_PUT)
        self.broken += is_there(number, 1);
}

static void on_last(const struct weft_am *am)
{
    const uint64_t number = number_of(am);
    const bool ran = self.first[number % WINDOW] == number + 1;
    bool right = true;
    switch (number % CHAINS) {
    case MESSAGES: right = ran; break;
    case PUT_MESSAGE: right = is_there(number, 0); break;
    case PUTS: right = is_there(number, 1); break;
    default: right = ran && is_there(number, 1);
    }
    self.broken += !right;
    if (self.last[number % WINDOW] == number + 1)
        FAIL("chain %" PRIu64 " ended twice", number);
    self.last[number % WINDOW] = number + 1;
    while (self.last[self.base % WINDOW] == self.base + 1)
        self.base++;
}

static void on_end(const struct weft_am *am)
{
    (void)am;
    self.end = true;
}

static void credit_say(void)
{
    const bool all = self.base == self.count && self.free_seen == self.count;
    const uint32_t args[3] = {(uint32_t)self.base, (uint32_t)(self.base >> 32), all};
    if (self.all || (self.base < self.announced + CREDIT_EACH && !all))
        return;
    const enum weft_status s = weft_am_request(self.peer, ON_CREDIT, args, 3, NULL, 0, 0);
    if (s == WEFT_AGAIN)
        return;
    MUST(s, "sending credit");
    self.announced = self.base;
    self.all = all;
}

static void receive(void)
{
    while (!self.end) {
        if (weft_ep_wait(self.ep, 20 * SECOND) <= 0)
            FAIL("nothing has come for 20 s; %" PRIu64 " chains and %" PRIu64 " others are here",
                 self.base, self.free_seen);
        credit_say();
    }
    printf("did unordered %" PRIu64 "\ndid overtaken %" PRIu64 "\ndid chains %" PRIu64
           "\ndid broken %" PRIu64 "\n",
           self.free_seen, self.overtaken, self.base, self.broken);
}

/* ---- sender ---- */

static void on_credit(const struct weft_am *am)
{
    if (am->nargs != 3)
        FAIL("credit with %u arguments", am->nargs);
    const uint64_t n = am->args[0] | (uint64_t)am->args[1] << 32;
    self.finished = n > self.finished ? n : self.finished;
    self.all |= am->args[2];
}

/* Is part [part] a put? */
static bool is_put(const struct item *i, unsigned part)
{
    switch (i->number % CHAINS) {
    case PUT_MESSAGE: return part == 0;
    case PUTS: return part < 2;
    case MESSAGE_PUT: return part == 1;
    default: return false;
    }
}

static void item_begin(struct item *i, uint64_t number)
{
    i->number = number;
    i->busy = true;
    i->at = 0;
    i->parts = number % CHAINS >= PUTS ? 3 : 2;
    memset(i->frags, 0, sizeof i->frags);
}

static void part_make(struct item *i)
{
    const void *order = i->at && !self.heedless ? weft_frag_order(i->frags[i->at - 1]) : NULL;
    struct weft_frag **f = &i->frags[i->at];
    if (is_put(i, i->at)) {
        fill(i->bytes[i->at], put_len(i->number), bytes_of(i->number, i->at));
        MUST(weft_frag_prepare(self.remote, i->number % WINDOW * PLACE, i->bytes[i->at],
                               put_len(i->number), order, f),
             "preparing a put");
    } else {
        MUST(weft_frag_alloc(self.peer, message_len(i->number), order, f), "a message's fragment");
        fill(weft_frag_data(*f), message_len(i->number), bytes_of(i->number, 3));
    }
}

/* False: there is no room now. */
static bool part_send(struct item *i)
{
    const uint32_t args[2] = {(uint32_t)i->number, (uint32_t)(i->number >> 32)};
    enum weft_status s;
    if (!i->frags[i->at])
        part_make(i);
    if (is_put(i, i->at))
        s = weft_frag_put(i->frags[i->at], &i->ops[i->at]);
    else
        s = weft_frag_send(i->frags[i->at], i->at + 1 == i->parts ? ON_LAST : ON_FIRST, args, 2);
    if (s == WEFT_AGAIN)
        return false;
    if (s != WEFT_PENDING)
        MUST(s, "sending a fragment");
    i->at++;
    return true;
}

static void item_end(struct item *i)
{
    for (unsigned k = 0; k < i->parts; k++) {
        if (is_put(i, k) && i->ops[k].status == WEFT_PENDING)
            return;
        MUST((enum weft_status)i->ops[k].status, "a put");
    }
    for (unsigned k = 0; k < i->parts; k++)
        MUST(weft_frag_free(i->frags[k]), "freeing a fragment");
    i->busy = false;
}

static void item_move(struct item *i)
{
    const struct weft_op none = {0};
    if (!i->busy) {
        if (self.started == self.count || self.started >= self.finished + WINDOW)
            return;
        if (&self.items[self.started % WINDOW] != i)
            return;
        for (unsigned k = 0; k < 3; k++)
            i->ops[k] = none;
        item_begin(i, self.started++);
    }
    while (i->at < i->parts && part_send(i))
        ;
    if (i->at == i->parts)
        item_end(i);
}

static void free_move(void)
{
    const uint64_t number = self.unordered;
    const uint32_t args[2] = {(uint32_t)number, (uint32_t)(number >> 32)};
    enum weft_status s;
    if (number == self.count || number > self.started)
        return;
    MUST(weft_frag_alloc(self.peer, message_len(number), NULL, &self.free_frag), "a fragment");
    fill(weft_frag_data(self.free_frag), message_len(number), bytes_of(number, 3));
    s = weft_frag_send(self.free_frag, ON_FREE, args, 2);
    if (s != WEFT_AGAIN) {
        MUST(s, "sending a fragment");
        self.unordered++;
    }
    MUST(weft_frag_free(self.free_frag), "freeing a fragment");
}

static bool is_sent(void)
{
    for (unsigned i = 0; i < WINDOW; i++)
        if (self.items[i].busy)
            return false;
    return self.started == self.count && self.unordered == self.count;
}

static void send_all(void)
{
    int64_t moved = now();
    self.items = calloc(WINDOW, sizeof *self.items);
    if (!self.items)
        FAIL("out of memory");
    while (!self.all || !is_sent()) {
        const uint64_t before = self.started + self.unordered;
        for (unsigned i = 0; i < WINDOW; i++) {
            item_move(&self.items[(self.finished + i) % WINDOW]);
            free_move();
        }
        const int events = before == self.started + self.unordered
                               ? weft_ep_wait(self.ep, SECOND / 1000)
                               : weft_ep_poll(self.ep);
        if (events || before != self.started + self.unordered)
            moved = now();
        if (events < 0 || now() - moved > 20 * SECOND)
            FAIL("stalled with %" PRIu64 " chains begun, %" PRIu64 " credited", self.started,
                 self.finished);
        MUST(weft_peer_status(self.peer), "the receiver");
    }
    enum weft_status s;
    while ((s = weft_am_request(self.peer, ON_END, NULL, 0, NULL, 0, 0)) == WEFT_AGAIN)
        (void)weft_ep_wait(self.ep, SECOND);
    MUST(s, "saying that all is over");
}

/* ---- start and end ---- */

static void open_all(void)
{
    static char lines[2][LINE_LONGEST];
    struct weft_path path;
    MUST(weft_ctx_open(NULL, &self.ctx), "opening a context");
    MUST(weft_ep_open(self.ctx, NULL, &self.ep), "opening an endpoint");
    MUST(weft_mem_alloc(self.ctx, (size_t)WINDOW * PLACE, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE,
                        &self.mr),
         "allocating memory");
    MUST(weft_am_register(self.ep, ON_FREE, on_free, NULL), "a handler");
    MUST(weft_am_register(self.ep, ON_FIRST, on_first, NULL), "a handler");
    MUST(weft_am_register(self.ep, ON_LAST, on_last, NULL), "a handler");
    MUST(weft_am_register(self.ep, ON_CREDIT, on_credit, NULL), "a handler");
    MUST(weft_am_register(self.ep, ON_END, on_end, NULL), "a handler");
    MUST(print_address(self.ep, self.mr), "the address");
    if (!line_read(lines[0]) || !line_read(lines[1]))
        FAIL("no addresses");
    MUST(line_open(lines[!self.me], self.ep, &self.peer, &self.remote), "the other member");
    MUST(weft_path_of(self.peer, WEFT_OP_MSG, NULL, 8, &path), "a path");
    printf("peer %u %s\nstarted\n", !self.me, path.transport);
}

static void close_all(void)
{
    enum weft_status s;
    MUST(weft_remote_close(self.remote), "closing a remote region");
    for (int64_t end = now() + 10 * SECOND; (s = weft_peer_close(self.peer)) == WEFT_EBUSY;)
        if (weft_ep_wait(self.ep, SECOND / 100) < 0 || now() > end)
            FAIL("a peer stays busy");
    MUST(s, "closing a peer");
    MUST(weft_mr_close(self.mr), "closing memory");
    MUST(weft_ep_close(self.ep), "closing the endpoint");
    MUST(weft_ctx_close(self.ctx), "closing the context");
}

static void option(const char *name, const char *value)
{
    const uint64_t v = strtoull(value, NULL, 10);
    if (!strcmp(name, "--me"))
        self.me = (unsigned)v;
    else if (!strcmp(name, "--count"))
        self.count = v;
    else if (!strcmp(name, "--heedless"))
        self.heedless = v;
    else if (strcmp(name, "--size") || v != 2)
        FAIL("no such option: %s %s", name, value);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i + 1 < argc; i += 2)
        option(argv[i], argv[i + 1]);
    if (!(argc & 1) || self.me > 1 || !self.count)
        FAIL("usage: order --me 0|1 --size 2 --count N [--heedless 1]");
    open_all();
    if (self.me)
        receive();
    else
        send_all();
    close_all();
    puts("done");
    return 0;
}
