/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: connections to an endpoint that was not polled were kept without a bound, until
 * the process had no descriptor left for anything else. The argument is the transport. Those for
 * which there is no place come again (tcp) or are told so (shm), and all that has a place arrives.
 */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

/* The receiver's descriptors; the places that they make; senders. Each sender takes two
 * descriptors more (its socket, its pidfd). */
enum { ASK = 1, FILES = 256, PLACES = FILES / 4 + 1, SENDERS = PLACES + 7 };

#define LIMIT_NS 20000000000ll
#define LIMIT_MS 20000

static unsigned arrived;

static void on_ask(const struct weft_am *am)
{
    (void)am;
    arrived++;
}

static void on_down(struct weft_ep *ep, struct weft_peer *peer, enum weft_status why, void *arg)
{
    (void)ep;
    (void)peer;
    *(enum weft_status *)arg = why;
}

static int endpoint_open(struct weft_ctx **ctx, struct weft_ep **ep, enum weft_status *down)
{
    static const unsigned char key[WEFT_KEY_SIZE] = "arrivals";
    struct weft_ctx_params c = WEFT_CTX_PARAMS_INIT;
    struct weft_ep_params e = WEFT_EP_PARAMS_INIT;
    c.flags = WEFT_CTX_NETWORK;
    e.peer_down = on_down;
    e.arg = down;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    return weft_ctx_open(&c, ctx) || weft_ctx_set_key(*ctx, key, sizeof key) ||
           weft_ep_open(*ctx, &e, ep);
}

/* Does not poll until it is told how many messages there are to come. */
static int receiver(int in, int out)
{
    const struct rlimit files = {FILES, FILES};
    unsigned char address[WEFT_ADDR_MAX];
    size_t len = sizeof address;
    enum weft_status down = WEFT_OK;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    unsigned want;
    if (setrlimit(RLIMIT_NOFILE, &files) || endpoint_open(&ctx, &ep, &down) ||
        weft_am_register(ep, ASK, on_ask, NULL) || weft_ep_address(ep, address, &len) ||
        write(out, address, len) != (ssize_t)len || read(in, &want, sizeof want) != sizeof want)
        return 1;
    while (arrived < want && weft_ep_wait(ep, LIMIT_NS) > 0)
        ;
    return write(out, &arrived, sizeof arrived) != sizeof arrived;
}

/* Sends one message, then stays; reports if there was no place for it. */
static int sender(const unsigned char *address, size_t len, int report)
{
    enum weft_status down = WEFT_OK;
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_peer *peer;
    enum weft_status status;
    if (endpoint_open(&ctx, &ep, &down) || weft_peer_open(ep, address, len, &peer))
        return 1;
    status = weft_am_request(peer, ASK, NULL, 0, NULL, 0, 0);
    if (status == WEFT_ELIMIT) /* the refusal came first */
        down = status;
    else if (status != WEFT_OK)
        return 1;
    while (down == WEFT_OK && weft_ep_wait(ep, LIMIT_NS) >= 0)
        ;
    if (write(report, &down, sizeof down) != sizeof down)
        return 1;
    for (;;)
        pause();
}

/* As many reports of ELIMIT as there should be; false: another, or none for long. */
static bool reports_take(int report, unsigned want)
{
    struct pollfd p = {.fd = report, .events = POLLIN};
    enum weft_status down;
    while (want) {
        if (poll(&p, 1, LIMIT_MS) != 1 || read(report, &down, sizeof down) != sizeof down) {
            printf("%u senders too few were told that there is no place\n", want);
            return false;
        }
        if (down != WEFT_ELIMIT) {
            printf("a sender was told %s\n", weft_status_name(down));
            return false;
        }
        want--;
    }
    return true;
}

int main(int argc, char **argv)
{
    bool shm = argc > 1 && !strcmp(argv[1], "shm");
    int in[2], out[2], report[2], bad = 1;
    unsigned char address[WEFT_ADDR_MAX];
    unsigned told = shm ? SENDERS - PLACES : 0, want = SENDERS - told, got = 0;
    pid_t pid[SENDERS + 1];
    ssize_t len;
    setenv("WEFT_TRANSPORTS", shm ? "loop,shm" : "loop,tcp", 1);
    setenv("WEFT_TCP_INTERFACES", "lo", 1);
    if (pipe(in) || pipe(out) || pipe(report) || (pid[SENDERS] = fork()) < 0)
        return 2;
    if (!pid[SENDERS])
        _exit(receiver(in[0], out[1]));
    len = read(out[0], address, sizeof address);
    if (len <= 0)
        return 2;
    for (int i = 0; i < SENDERS; i++) {
        pid[i] = fork();
        if (pid[i] < 0)
            return 2;
        if (!pid[i])
            _exit(sender(address, (size_t)len, report[1]));
    }
    if (reports_take(report[0], told) && write(in[1], &want, sizeof want) == sizeof want &&
        read(out[0], &got, sizeof got) == sizeof got) {
        bad = got != want;
        if (bad)
            printf("%u of %u messages arrived\n", got, want);
    }
    for (int i = 0; i <= SENDERS; i++) {
        (void)kill(pid[i], SIGKILL);
        (void)waitpid(pid[i], NULL, 0);
    }
    return bad;
}
