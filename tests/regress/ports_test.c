/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: a process whose host had no local port free took its peer for dead, though the
 * peer was well. The host is a network namespace of this test's with two or three local ports. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <weft/weft.h>

enum { ASK = 1, PEER_MS = 600, SHORT_MS = 1500, LIMIT_MS = 20000, PORT = 40000 };

static const char *const range = "/proc/sys/net/ipv4/ip_local_port_range";

struct side {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer;
    unsigned char address[WEFT_ADDR_MAX];
    size_t len;
    unsigned asked, downs;
};

static _Noreturn void end(int code, const char *why)
{
    printf("%s: %s\n", why, strerror(errno));
    exit(code);
}

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    printf("failed: %s\n", what);
    exit(1);
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static bool ports_set(unsigned first, unsigned last)
{
    FILE *f = fopen(range, "w");
    bool ok = f && fprintf(f, "%u %u\n", first, last) > 0;
    return (f && !fclose(f)) && ok;
}

/* A network of its own with loopback alone. */
static void network_make(void)
{
    struct ifreq req = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd;
    if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
        end(77, "a network namespace cannot be made here");
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &req))
        end(77, "loopback cannot be brought up here");
    close(fd);
    if (!ports_set(PORT, PORT + 1))
        end(77, range);
}

static void on_ask(const struct weft_am *am)
{
    ((struct side *)am->arg)->asked++;
}

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    (void)ep;
    (void)peer;
    printf("a peer is down: %s\n", weft_status_name(why));
    ((struct side *)arg)->downs++;
}

static void side_open(struct side *s)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "ports";
    struct weft_ctx_params ctx = WEFT_CTX_PARAMS_INIT;
    struct weft_ep_params ep = WEFT_EP_PARAMS_INIT;
    memset(s, 0, sizeof *s);
    ctx.flags = WEFT_CTX_NETWORK;
    ep.peer_down = on_down;
    ep.arg = s;
    s->len = sizeof s->address;
    check(!weft_ctx_open(&ctx, &s->ctx) && !weft_ctx_set_key(s->ctx, key, sizeof key) &&
              !weft_ep_open(s->ctx, &ep, &s->ep) && !weft_am_register(s->ep, ASK, on_ask, s) &&
              !weft_ep_address(s->ep, s->address, &s->len),
          "opening an endpoint");
}

static void side_close(struct side *s)
{
    check(!weft_peer_close(s->peer) && !weft_ep_close(s->ep) && !weft_ctx_close(s->ctx),
          "closing an endpoint");
}

/* Until [to] was asked, for at most [ms]. */
static void poll_both(struct side *from, struct side *to, uint64_t ms)
{
    uint64_t until = now_ms() + ms;
    while (!to->asked && now_ms() < until) {
        (void)weft_ep_poll(from->ep);
        (void)weft_ep_wait(to->ep, 1000000);
    }
}

static uint16_t port_of(const struct side *s)
{
    uint16_t port; /* docs/protocol.md, "Addresses" */
    memcpy(&port, s->address + 44, sizeof port);
    return port;
}

/* Take a port that is left, for connections to [s] alone. */
static int port_take(const struct side *s)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port_of(s))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    check(fd >= 0 && !connect(fd, (void *)&to, sizeof to), "taking a port that is left");
    return fd;
}

/* How often is the range of ports named in what was logged since the last time? */
static unsigned named(int log)
{
    static off_t at;
    char text[16384], *p = text;
    ssize_t n = pread(log, text, sizeof text - 1, at);
    unsigned count = 0;
    at += n > 0 ? n : 0;
    text[n > 0 ? n : 0] = 0;
    while ((p = strstr(p, "ip_local_port_range")))
        count++, p++;
    return count;
}

/* Only one of [from] and [to] lacks ports: the one that makes connections. */
static void test_lacking(bool greater_sends, bool one_lacks, int log)
{
    static unsigned first = PORT; /* other ports each time: those of before are in TIME_WAIT */
    struct side a, b, *from = &a, *to = &b;
    int hog[2] = {-1, -1};
    unsigned lines;
    /* Two for the listeners, and two more: the kernel looks at an even number of them. */
    check(ports_set(first, first + (one_lacks ? 3 : 1)), "setting the range of ports");
    side_open(&a);
    side_open(&b);
    if ((memcmp(a.address, b.address, 64) > 0) != greater_sends)
        from = &b, to = &a;
    check(!weft_peer_open(from->ep, to->address, to->len, &from->peer) &&
              !weft_peer_open(to->ep, from->address, from->len, &to->peer),
          "opening a peer");
    for (int i = 0; i < 2 && one_lacks; i++) /* connections are the greater side's to make */
        hog[i] = port_take(greater_sends ? to : from);
    check(!weft_am_request(from->peer, ASK, NULL, 0, "?", 1, 0), "sending a request");
    poll_both(from, to, SHORT_MS);
    check(!to->asked, "the test: there was a port");
    check(!from->downs && !to->downs && weft_peer_status(from->peer) == WEFT_OK &&
              weft_peer_status(to->peer) == WEFT_OK,
          "no peer is lost for want of a local port");
    lines = named(log);
    check(lines >= 1 && lines <= 1u + one_lacks, "one line of each side says what to change");
    check(ports_set(first, first + 999), "widening the range of ports");
    poll_both(from, to, LIMIT_MS);
    check(to->asked == 1, "the message arrives when there are ports");
    for (int i = 0; i < 2 && one_lacks; i++)
        close(hog[i]);
    side_close(&a);
    side_close(&b);
    (void)named(log);
    first += 1000;
}

int main(void)
{
    char ms[16];
    int log;
    setvbuf(stdout, NULL, _IONBF, 0);
    snprintf(ms, sizeof ms, "%d", PEER_MS);
    setenv("WEFT_TRANSPORTS", "loop,tcp", 1);
    setenv("WEFT_TCP_INTERFACES", "127.0.0.1", 1); /* not ::1, too */
    setenv("WEFT_PEER_TIMEOUT", ms, 1);
    network_make();
    log = open("/tmp", O_TMPFILE | O_RDWR | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0)
        log = memfd_create("log", MFD_CLOEXEC);
    check(log >= 0 && dup2(log, STDERR_FILENO) == STDERR_FILENO, "a file for the log");
    test_lacking(true, false, log);
    test_lacking(false, false, log);
    test_lacking(false, true, log);
    return 0;
}
