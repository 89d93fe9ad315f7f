/* SPDX-License-Identifier: BSD-3-Clause */
/* A network between hosts that are network namespaces, with delay, loss and order
 * as asked: each host gets a TUN device, and this process passes their packets on.
 *
 *     forwarder [--delay MS,MS,...] [--jitter MS] [--loss PERCENT] [--reorder PERCENT]
 *               [--seed S] PID=ADDRESS PID=ADDRESS ...
 *
 *   PID        a process in the host's network namespace
 *   ADDRESS    the host's IPv4 address on this network
 *   --delay    of each packet. With several, the first TCP connection seen has the first,
 *              the next one the next, and so round; both directions alike. What is not
 *              TCP has the first.
 *   --jitter   up to so much more, drawn for each packet; order within a connection stays
 *   --loss     packets dropped, of a hundred
 *   --reorder  packets, of a hundred, that wait another delay (or 1 ms, if that is more), so
 *              that later ones overtake them
 *
 * The device is called weft0. This program neither gives it its address nor takes it up: it says
 * "ready" when the devices are there. Commands on standard input, one a line:
 *
 *     delay MS,MS,...    jitter MS    loss PERCENT    reorder PERCENT
 *     cut N    heal N    nothing passes to or from the Nth host, from 1 on
 *
 * Each is answered by "ok". At the end of standard input it prints what it has
 * counted, a line a counter, and ends. */
#define _GNU_SOURCE /* setns, ppoll */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum {
    HOSTS_MAX = 16,
    DELAYS_MAX = 16,
    FLOWS = 4096,         /* a power of two: connections remembered */
    PACKET_MAX = 2048,    /* above the device's MTU of 1500 */
    QUEUE_MAX = 1 << 16,  /* packets on their way, at most 128 MiB; one more is dropped */
    BURST = 64,           /* packets of one host before another's turn */
    DEVICE_QUEUE = 10000, /* packets that a device holds for this program */
};

#define MS UINT64_C(1000000) /* in nanoseconds */

struct packet {
    uint64_t due;    /* CLOCK_MONOTONIC, ns */
    uint64_t number; /* of two that are due at once the earlier goes first */
    uint32_t to;     /* host */
    uint32_t len;
    uint8_t bytes[PACKET_MAX];
};

struct flow {
    uint64_t key;     /* addresses and ports, the same for both directions; 0: free */
    uint32_t order;   /* which connection it is, from 0 on */
    uint64_t last[2]; /* when the last packet of each direction is due */
};

struct host {
    int fd;
    uint32_t ip; /* network byte order */
    bool cut;
};

static struct {
    struct host hosts[HOSTS_MAX];
    unsigned hosts_count;
    uint64_t delays[DELAYS_MAX]; /* ns */
    unsigned delays_count;
    uint64_t jitter; /* ns */
    double loss, reorder;
    uint64_t seed;
    uint64_t now;
    uint64_t number;
    struct flow flows[FLOWS];
    uint32_t flows_count;
    struct packet *queue[QUEUE_MAX + 1]; /* a heap; [1] is due first */
    unsigned queued;
    struct packet *spare[QUEUE_MAX];
    unsigned spares;
    uint64_t passed, passed_bytes, lost, cut, late, overflown, foreign, refused;
} self = {.delays_count = 1, .seed = 1};

static void die(const char *what)
{
    fprintf(stderr, "forwarder: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void wrong(const char *what, const char *word)
{
    fprintf(stderr, "forwarder: %s: '%s'\n", what, word);
    exit(2);
}

static uint64_t clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 * MS + (uint64_t)t.tv_nsec;
}

/* xorshift64*: of 2^53, so that a double holds it. */
static double draw(void)
{
    self.seed ^= self.seed >> 12;
    self.seed ^= self.seed << 25;
    self.seed ^= self.seed >> 27;
    return (double)((self.seed * UINT64_C(2685821657736338717)) >> 11) / 9007199254740992.0;
}

static bool happens(double percent)
{
    return percent > 0 && draw() * 100 < percent;
}

/* ---- the packets on their way ---- */

static bool is_before(const struct packet *a, const struct packet *b)
{
    return a->due < b->due || (a->due == b->due && a->number < b->number);
}

static void queue_push(struct packet *p)
{
    unsigned at = ++self.queued;
    for (; at > 1 && is_before(p, self.queue[at / 2]); at /= 2)
        self.queue[at] = self.queue[at / 2];
    self.queue[at] = p;
}

static struct packet *queue_pop(void)
{
    struct packet *first = self.queue[1], *last = self.queue[self.queued--];
    unsigned at = 1, child;
    for (; (child = 2 * at) <= self.queued; at = child) {
        if (child < self.queued && is_before(self.queue[child + 1], self.queue[child]))
            child++;
        if (!is_before(self.queue[child], last))
            break;
        self.queue[at] = self.queue[child];
    }
    self.queue[at] = last;
    return first;
}

static struct packet *packet_new(void)
{
    struct packet *p = self.spares ? self.spare[--self.spares] : malloc(sizeof *p);
    if (!p)
        die("memory");
    return p;
}

static void packet_free(struct packet *p)
{
    self.spare[self.spares++] = p;
}

/* ---- which connection a packet is of ---- */

struct ends {
    uint32_t from, to; /* addresses, network byte order */
    uint16_t from_port, to_port;
    bool is_tcp;
};

/* False: not IPv4. */
static bool ends_of(const struct packet *p, struct ends *out)
{
    const uint8_t *b = p->bytes;
    const size_t head = (size_t)(b[0] & 15) * 4;
    memset(out, 0, sizeof *out);
    if (p->len < 20 || b[0] >> 4 != 4 || head < 20)
        return false;
    memcpy(&out->from, b + 12, 4);
    memcpy(&out->to, b + 16, 4);
    out->is_tcp = b[9] == IPPROTO_TCP && p->len >= head + 20 && !(b[7] | (b[6] & 31));
    if (out->is_tcp) {
        memcpy(&out->from_port, b + head, 2);
        memcpy(&out->to_port, b + head + 2, 2);
    }
    return true;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    return x ^ x >> 29;
}

static uint64_t flow_key(const struct ends *e)
{
    uint64_t a = mix((uint64_t)e->from << 16 | e->from_port),
             b = mix((uint64_t)e->to << 16 | e->to_port);
    return (a + b) | 1;
}

/* When the table is full, connections share entries: only their delays would mix. */
static struct flow *flow_of(const struct ends *e)
{
    const uint64_t key = flow_key(e);
    uint32_t at = (uint32_t)mix(key) % FLOWS, tries = 0;
    while (self.flows[at].key && self.flows[at].key != key && tries++ < FLOWS)
        at = (at + 1) % FLOWS;
    if (!self.flows[at].key)
        self.flows[at] = (struct flow){.key = key, .order = self.flows_count++};
    return &self.flows[at];
}

/* When [p] is to arrive. */
static uint64_t due_of(const struct ends *e)
{
    struct flow *f = e->is_tcp ? flow_of(e) : NULL;
    const uint64_t delay = self.delays[f ? f->order % self.delays_count : 0];
    uint64_t due = self.now + delay, *last;
    if (self.jitter)
        due += (uint64_t)(draw() * (double)self.jitter);
    if (happens(self.reorder)) {
        self.late++;
        return due + (delay > MS ? delay : MS);
    }
    if (f) {
        last = &f->last[ntohl(e->from) < ntohl(e->to)];
        *last = due = due > *last ? due : *last;
    }
    return due;
}

/* ---- in and out ---- */

static int host_of(uint32_t ip)
{
    for (unsigned i = 0; i < self.hosts_count; i++)
        if (self.hosts[i].ip == ip)
            return (int)i;
    return -1;
}

/* Takes [p] over. */
static void packet_accept(struct packet *p, const struct host *from)
{
    struct ends e;
    const int to = ends_of(p, &e) ? host_of(e.to) : -1;
    uint64_t *why = NULL;
    if (to < 0)
        why = &self.foreign;
    else if (from->cut || self.hosts[to].cut)
        why = &self.cut;
    else if (happens(self.loss))
        why = &self.lost;
    else if (self.queued >= QUEUE_MAX - 1)
        why = &self.overflown;
    if (why) {
        ++*why;
        packet_free(p);
        return;
    }
    p->to = (uint32_t)to;
    p->due = due_of(&e);
    p->number = self.number++;
    queue_push(p);
}

static void host_read(const struct host *h)
{
    for (int i = 0; i < BURST; i++) {
        struct packet *p = packet_new();
        ssize_t n = read(h->fd, p->bytes, sizeof p->bytes);
        if (n <= 0) {
            packet_free(p);
            return;
        }
        p->len = (uint32_t)n;
        packet_accept(p, h);
    }
}

static void deliver(void)
{
    while (self.queued && self.queue[1]->due <= self.now) {
        struct packet *p = queue_pop();
        if (self.hosts[p->to].cut) {
            self.cut++;
        } else if (write(self.hosts[p->to].fd, p->bytes, p->len) == (ssize_t)p->len) {
            self.passed++;
            self.passed_bytes += p->len;
        } else {
            self.refused++; /* the device is down */
        }
        packet_free(p);
    }
}

/* ---- settings ---- */

static double number_of(const char *word, const char **rest)
{
    char *end;
    const double v = strtod(word, &end);
    if (end == word || v < 0 || v > 1e6)
        wrong("not a number from 0 to 1000000", word);
    *rest = end;
    return v;
}

static double only_number(const char *word)
{
    const char *rest;
    const double v = number_of(word, &rest);
    if (*rest)
        wrong("more than a number", word);
    return v;
}

static void set_delays(const char *word)
{
    unsigned n = 0;
    do {
        if (n == DELAYS_MAX)
            wrong("too many delays", word);
        self.delays[n++] = (uint64_t)(number_of(word, &word) * (double)MS);
    } while (*word++ == ',');
    if (word[-1])
        wrong("expected numbers with commas between them", word - 1);
    self.delays_count = n;
}

static void set_cut(const char *word, bool cut)
{
    const double n = only_number(word);
    if (n < 1 || n > self.hosts_count)
        wrong("no such host", word);
    self.hosts[(unsigned)n - 1].cut = cut;
}

static void set(const char *name, const char *value)
{
    if (!strcmp(name, "delay"))
        set_delays(value);
    else if (!strcmp(name, "jitter"))
        self.jitter = (uint64_t)(only_number(value) * (double)MS);
    else if (!strcmp(name, "loss"))
        self.loss = only_number(value);
    else if (!strcmp(name, "reorder"))
        self.reorder = only_number(value);
    else if (!strcmp(name, "seed"))
        self.seed = (uint64_t)only_number(value) * 2 + 1; /* xorshift needs a bit */
    else if (!strcmp(name, "cut") || !strcmp(name, "heal"))
        set_cut(value, name[0] == 'c');
    else
        wrong("no such setting", name);
}

/* False: standard input has ended. */
static bool command_read(void)
{
    static char line[512];
    static size_t have;
    char *end, *value;
    ssize_t n = read(0, line + have, sizeof line - 1 - have);
    if (n <= 0)
        return n < 0 && errno == EINTR;
    have += (size_t)n;
    line[have] = 0;
    while ((end = strchr(line, '\n'))) {
        *end = 0;
        if (!(value = strchr(line, ' ')))
            wrong("a command without a value", line);
        *value = 0;
        set(line, value + 1);
        puts("ok");
        have -= (size_t)(end + 1 - line);
        memmove(line, end + 1, have + 1);
    }
    if (have == sizeof line - 1)
        wrong("a command too long", line);
    return true;
}

/* ---- devices ---- */

static int tun_open(const char *pid)
{
    char path[64];
    struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    int fd, space;
    snprintf(path, sizeof path, "/proc/%s/ns/net", pid);
    if ((space = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        die(path);
    if (setns(space, CLONE_NEWNET))
        die("entering a network namespace");
    close(space);
    if ((fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC)) < 0)
        die("/dev/net/tun");
    strcpy(r.ifr_name, "weft0");
    if (ioctl(fd, TUNSETIFF, &r))
        die("TUNSETIFF");
    space = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    r.ifr_qlen = DEVICE_QUEUE;
    if (space < 0 || ioctl(space, SIOCSIFTXQLEN, &r))
        die("SIOCSIFTXQLEN");
    close(space);
    return fd;
}

static void host_add(char *word)
{
    struct in_addr ip;
    char *address = strchr(word, '=');
    if (!address || self.hosts_count == HOSTS_MAX)
        wrong(address ? "too many hosts" : "expected PID=ADDRESS", word);
    *address++ = 0;
    if (inet_pton(AF_INET, address, &ip) != 1)
        wrong("not an IPv4 address", address);
    self.hosts[self.hosts_count].ip = ip.s_addr;
    self.hosts[self.hosts_count++].fd = tun_open(word);
}

static void arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2))
            host_add(argv[i]);
        else if (i + 1 < argc)
            set(argv[i] + 2, argv[i + 1]), i++;
        else
            wrong("needs a value", argv[i]);
    }
    if (self.hosts_count < 2)
        wrong("at least two hosts, as PID=ADDRESS", "");
}

static void wait_for(struct pollfd *fds)
{
    struct timespec t = {.tv_sec = 1};
    uint64_t left;
    if (self.queued) {
        left = self.queue[1]->due > self.now ? self.queue[1]->due - self.now : 0;
        if (left < 1000 * MS)
            t = (struct timespec){.tv_nsec = (long)left};
    }
    if (ppoll(fds, self.hosts_count + 1, &t, NULL) < 0 && errno != EINTR)
        die("ppoll");
    self.now = clock_now();
}

static void report(void)
{
    printf("passed %llu\npassed_bytes %llu\nlost %llu\ncut %llu\nlate %llu\noverflown %llu\n"
           "foreign %llu\nrefused %llu\nconnections %u\n",
           (unsigned long long)self.passed, (unsigned long long)self.passed_bytes,
           (unsigned long long)self.lost, (unsigned long long)self.cut,
           (unsigned long long)self.late, (unsigned long long)self.overflown,
           (unsigned long long)self.foreign, (unsigned long long)self.refused, self.flows_count);
}

int main(int argc, char **argv)
{
    struct pollfd fds[HOSTS_MAX + 1] = {{.fd = 0, .events = POLLIN}};
    setvbuf(stdout, NULL, _IOLBF, 0);
    arguments(argc, argv);
    for (unsigned i = 0; i < self.hosts_count; i++)
        fds[i + 1] = (struct pollfd){.fd = self.hosts[i].fd, .events = POLLIN};
    puts("ready");
    for (;;) {
        wait_for(fds);
        for (unsigned i = 0; i < self.hosts_count; i++)
            if (fds[i + 1].revents & POLLIN)
                host_read(&self.hosts[i]);
        deliver();
        if (fds[0].revents && !command_read())
            break;
    }
    report();
    return 0;
}
