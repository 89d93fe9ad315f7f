/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands in the middle of a host's outgoing TCP connections and aborts them at chosen bytes.
 *
 *     proxy --port PORT [--how rst,close,half] [--bytes LOW:HIGH | --frames MOST]
 *           [--aborts COUNT] [--seed S]
 *
 * The host's packet filter leads connections here (netlib.py, Proxy); each goes on to where it
 * was meant to go, until it is aborted:
 *
 *   --how     which ways in turn
 *               rst    both ends get an RST
 *               close  both get a FIN, or an RST if they had sent more
 *               half   the receiver of the direction gets a FIN; its sender learns nothing, what
 *                      it sends on is thrown away, and the other direction goes on
 *   --bytes   the Nth connection after LOW + N / 2 * 131 modulo (HIGH - LOW) bytes of a direction
 *   --frames  the Nth after N / 2 modulo 16 bytes of a header: one of the first MOST frames behind
 *             the handshake; the earlier ones more often. Encrypted connections have no such
 * places.
 *   --aborts  how many; later connections are left alone, as they are without --bytes and --frames
 *
 * Directions take turns: even connections are aborted in what the calling side sends. What
 * comes before the place does arrive: it is acknowledged before the abort.
 * "stop" on standard input: no further aborts. At its end: counters, one a line, and exit. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter_ipv4.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "transport/net/proto.h"

enum {
    PAIRS_MAX = 256,
    ROOM = 65536,
    MARK = 77, /* of packets that the filter lets pass; netlib.py has the same */
    CALLER = 0,
    CALLED = 1,
};

enum how { RST, CLOSE, HALF, HOWS };
static const char *const how_names[HOWS] = {"rst", "close", "half"};

/* What one end sends. */
struct direction {
    unsigned char bytes[ROOM];
    size_t at, have;
    uint64_t passed;        /* taken from the sender, without what was thrown away */
    uint64_t skip;          /* bytes before the next header */
    unsigned char head[16]; /* of the header that is passing */
    unsigned head_have;
    uint64_t frames; /* whose header has begun */
    int eof, eof_passed, throw_away;
};

struct session {
    int fd[2]; /* [CALLER] < 0: free */
    struct direction from[2];
    uint64_t number;
    enum how how;
    int fated, aborting; /* has a place; has reached it */
    unsigned side;       /* CALLER: what that end sends is cut */
    uint64_t after;      /* bytes; UINT64_MAX: by frame */
    uint64_t frame;      /* from 1 on */
    unsigned offset;     /* into its header */
};

static struct {
    int port, listener;
    enum how hows[8];
    unsigned hows_count;
    uint64_t low, high, frames, aborts, seed;
    struct session pairs[PAIRS_MAX];
    uint64_t connections, unreached, done[HOWS], offsets[16], passed;
} self = {.aborts = UINT64_MAX};

static void die(const char *what)
{
    fprintf(stderr, "proxy: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void usage(const char *what)
{
    fprintf(stderr, "proxy: %s; see the first comment of proxy.c\n", what);
    exit(2);
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* ---- where a connection is aborted ---- */

static void fate_choose(struct session *p)
{
    const uint64_t n = p->number, r = mix(self.seed * 1000003 + n);
    p->fated = self.aborts && (self.frames || self.high);
    p->how = self.hows[n / 32 % self.hows_count];
    p->side = (unsigned)(n & 1);
    p->after = UINT64_MAX;
    p->frame = 0;
    if (self.high) {
        p->after = self.low + n / 2 * 131 % (self.high - self.low);
    } else if (self.frames) {
        p->frame = 1 + mix(r) % (1 + r % self.frames);
        p->offset = (unsigned)(n / 2 % sizeof(struct wf_net_frame));
    }
}

static uint64_t handshake_size(unsigned side)
{
    return side == CALLER ? sizeof(struct wf_net_hello) + sizeof(struct wf_net_proof)
                          : sizeof(struct wf_net_challenge);
}

static void frame_enter(struct direction *d)
{
    struct wf_net_frame f;
    memcpy(&f, d->head, sizeof f);
    d->head_have = 0;
    d->skip = wf_net_head_size(f.nargs) - sizeof f + wf_net_padded(f.len);
}

/* How many of [n] bytes pass before the place; *reached: it is there. */
static size_t passes(struct session *p, unsigned side, const unsigned char *bytes, size_t n,
                     int *reached)
{
    struct direction *d = &p->from[side];
    const int here = p->fated && side == p->side;
    size_t i = 0;
    *reached = 0;
    if (here && p->after != UINT64_MAX) {
        *reached = p->after <= d->passed + n;
        return *reached ? (size_t)(p->after - d->passed) : n;
    }
    while (i < n) {
        if (d->skip) {
            const size_t part = d->skip < n - i ? (size_t)d->skip : n - i;
            d->skip -= part;
            i += part;
            continue;
        }
        d->frames += !d->head_have;
        if (here && d->frames == p->frame && d->head_have == p->offset) {
            *reached = 1;
            return i;
        }
        d->head[d->head_have++] = bytes[i++];
        if (d->head_have == sizeof d->head)
            frame_enter(d);
    }
    return n;
}

/* ---- connections ---- */

static void pair_close(struct session *p, int with_rst)
{
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    for (unsigned side = 0; side < 2; side++) {
        if (with_rst)
            (void)setsockopt(p->fd[side], SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(p->fd[side]);
    }
    p->fd[CALLER] = -1;
    self.unreached += (uint64_t)(p->fated && !p->aborting);
    self.passed += p->from[0].passed + p->from[1].passed;
}

static struct session *pair_free(void)
{
    for (unsigned i = 0; i < PAIRS_MAX; i++)
        if (self.pairs[i].fd[CALLER] < 0)
            return &self.pairs[i];
    return NULL;
}

/* A connection to where [fd] was meant to go, or -1. */
static int call(int fd)
{
    const int mark = MARK;
    struct sockaddr_in to;
    socklen_t len = sizeof to;
    int out;
    if (getsockopt(fd, IPPROTO_IP, SO_ORIGINAL_DST, &to, &len))
        die("SO_ORIGINAL_DST");
    out = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (out < 0 || setsockopt(out, SOL_SOCKET, SO_MARK, &mark, sizeof mark))
        die("a marked socket");
    if (connect(out, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS) {
        close(out);
        return -1;
    }
    return out;
}

static void accept_one(void)
{
    const int one = 1, fd = accept4(self.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct session *p = pair_free();
    int out;
    if (fd < 0)
        return;
    if (!p || (out = call(fd)) < 0) {
        close(fd);
        return;
    }
    memset(p, 0, sizeof *p);
    p->fd[CALLER] = fd;
    p->fd[CALLED] = out;
    p->number = self.connections++;
    for (unsigned side = 0; side < 2; side++) {
        p->from[side].skip = handshake_size(side);
        (void)setsockopt(p->fd[side], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    fate_choose(p);
}

/* ---- moving bytes ---- */

static void reached(struct session *p)
{
    if (!self.aborts) {
        p->fated = 0;
        return;
    }
    self.aborts--;
    self.done[p->how]++;
    if (p->frame)
        self.offsets[p->offset]++;
    p->aborting = 1;
}

/* False: the connection broke. */
static int take_in(struct session *p, unsigned side)
{
    struct direction *d = &p->from[side];
    ssize_t n;
    int there;
    if (d->at < d->have || d->eof || (p->aborting && p->side == side && !d->throw_away))
        return 1;
    n = read(p->fd[side], d->bytes, sizeof d->bytes);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    d->at = d->have = 0;
    d->eof = !n;
    if (d->throw_away || !n)
        return 1;
    d->have = passes(p, side, d->bytes, (size_t)n, &there);
    d->passed += d->have;
    if (there) {
        reached(p);
        if (!p->fated) { /* not after all: the rest passes, too */
            p->after = UINT64_MAX;
            (void)passes(p, side, d->bytes + d->have, (size_t)n - d->have, &there);
            d->passed += (size_t)n - d->have;
            d->have = (size_t)n;
        }
    }
    return 1;
}

static int give_out(struct session *p, unsigned side)
{
    struct direction *d = &p->from[side];
    const int to = p->fd[!side];
    ssize_t n;
    if (d->at < d->have) {
        n = send(to, d->bytes + d->at, d->have - d->at, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR || errno == ENOTCONN;
        d->at += (size_t)n;
    }
    if (d->at == d->have && d->eof && !d->eof_passed && !d->throw_away) {
        d->eof_passed = 1;
        (void)shutdown(to, SHUT_WR);
    }
    return 1;
}

/* What passed before the place is acknowledged. */
static int is_delivered(const struct session *p)
{
    const struct direction *d = &p->from[p->side];
    int left = 0;
    return d->at == d->have && (ioctl(p->fd[!p->side], SIOCOUTQ, &left) || !left);
}

static void abort_now(struct session *p)
{
    struct direction *d = &p->from[p->side];
    if (p->how != HALF) {
        pair_close(p, p->how == RST);
    } else if (!d->throw_away) {
        d->throw_away = 1;
        d->at = d->have = 0;
        (void)shutdown(p->fd[!p->side], SHUT_WR);
    }
}

static void pair_move(struct session *p)
{
    for (unsigned side = 0; side < 2; side++)
        if (!take_in(p, side) || !give_out(p, side)) {
            pair_close(p, 1);
            return;
        }
    if (p->aborting && is_delivered(p))
        abort_now(p);
    if (p->fd[CALLER] >= 0 && p->from[0].eof && p->from[1].eof &&
        p->from[0].at == p->from[0].have && p->from[1].at == p->from[1].have)
        pair_close(p, 0);
}

static short wanted(const struct session *p, unsigned side)
{
    const struct direction *in = &p->from[side], *out = &p->from[!side];
    const int reads =
        in->at == in->have && !in->eof && (!p->aborting || p->side != side || in->throw_away);
    return (short)((reads ? POLLIN : 0) | (out->at < out->have ? POLLOUT : 0));
}

/* ---- the rest ---- */

static int command_read(void)
{
    char text[64];
    const ssize_t n = read(0, text, sizeof text);
    if (n > 0)
        self.aborts = 0; /* there is one command only */
    return n > 0;
}

static void turn(struct pollfd *fds, unsigned *count, int *waits)
{
    *count = 2;
    *waits = 0;
    for (unsigned i = 0; i < PAIRS_MAX; i++) {
        struct session *p = &self.pairs[i];
        if (p->fd[CALLER] < 0)
            continue;
        *waits |= p->aborting && !p->from[p->side].throw_away;
        for (unsigned side = 0; side < 2; side++)
            fds[(*count)++] = (struct pollfd){.fd = p->fd[side], .events = wanted(p, side)};
    }
}

static void run(void)
{
    static struct pollfd fds[2 + 2 * PAIRS_MAX];
    unsigned count;
    int waits;
    for (;;) {
        turn(fds, &count, &waits);
        fds[0] = (struct pollfd){.fd = 0, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = self.listener, .events = POLLIN};
        /* Acknowledgements make nothing ready: look again. */
        if (poll(fds, count, waits ? 1 : 1000) < 0 && errno != EINTR)
            die("poll");
        for (unsigned i = 0; i < PAIRS_MAX; i++)
            if (self.pairs[i].fd[CALLER] >= 0)
                pair_move(&self.pairs[i]);
        if (fds[1].revents)
            accept_one();
        if (fds[0].revents && !command_read())
            return;
    }
}

static void report(void)
{
    printf("connections %llu\nunreached %llu\npassed %llu\n", (unsigned long long)self.connections,
           (unsigned long long)self.unreached, (unsigned long long)self.passed);
    for (unsigned i = 0; i < HOWS; i++)
        printf("%s %llu\n", how_names[i], (unsigned long long)self.done[i]);
    for (unsigned i = 0; i < 16; i++)
        printf("offset%u %llu\n", i, (unsigned long long)self.offsets[i]);
}

static void set_hows(char *words)
{
    for (char *w = strtok(words, ","); w; w = strtok(NULL, ",")) {
        unsigned h = 0;
        while (h < HOWS && strcmp(w, how_names[h]))
            h++;
        if (h == HOWS || self.hows_count == 8)
            usage("--how");
        self.hows[self.hows_count++] = (enum how)h;
    }
}

static void option(const char *name, char *value)
{
    char *rest = value;
    const uint64_t v = strtoull(value, &rest, 10);
    if (!strcmp(name, "--port"))
        self.port = (int)v;
    else if (!strcmp(name, "--how"))
        set_hows(value);
    else if (!strcmp(name, "--bytes") && *rest == ':')
        self.low = v, self.high = strtoull(rest + 1, NULL, 10);
    else if (!strcmp(name, "--frames"))
        self.frames = v;
    else if (!strcmp(name, "--aborts"))
        self.aborts = v;
    else if (!strcmp(name, "--seed"))
        self.seed = v;
    else
        usage(name);
}

static void listen_here(void)
{
    const int one = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)self.port)};
    self.listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (self.listener < 0 ||
        setsockopt(self.listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
        bind(self.listener, (struct sockaddr *)&a, sizeof a) || listen(self.listener, 128))
        die("listening");
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i + 1 < argc; i += 2)
        option(argv[i], argv[i + 1]);
    if (!(argc & 1) || !self.port || (self.high && self.low >= self.high))
        usage("its arguments");
    if (!self.hows_count)
        self.hows[self.hows_count++] = RST;
    for (unsigned i = 0; i < PAIRS_MAX; i++)
        self.pairs[i].fd[CALLER] = -1;
    listen_here();
    puts("ready");
    run();
    report();
    return 0;
}
