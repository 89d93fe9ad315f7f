/* SPDX-License-Identifier: BSD-3-Clause */
/* A server that adds up numbers of its clients. No launcher starts them: clients find its address
 * in a file, and over a network all use a key (WEFT_KEY_FILE). Clients come and go, or are killed.
 *
 *     server FILE              serve until SIGTERM
 *     server FILE N [TIMES]    add N to the sum, TIMES times, and print the sum */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

enum { ADD, SUM };

static volatile sig_atomic_t stop;

static void on_term(int sig)
{
    (void)sig;
    stop = 1;
}

static int complain(const char *what, enum weft_status s)
{
    fprintf(stderr, "server: %s: %s\n", what, weft_status_text(s));
    return 1;
}

/* At the server. It checks a request like any input from outside. It opens no peer for a client: a
 * reply needs none, and a reply to a client that has died is dropped. */
static void on_add(const struct weft_am *am)
{
    uint64_t *sum = am->arg, n;
    if (am->len != sizeof n || am->reply_max <= sizeof *sum)
        return;
    memcpy(&n, am->data, sizeof n);
    *sum += n;
    (void)!weft_am_reply(am, SUM, NULL, 0, sum, sizeof *sum);
}

/* At a client. */
struct answers {
    uint64_t sum, count;
};

static void on_sum(const struct weft_am *am)
{
    struct answers *a = am->arg;
    if (am->len == sizeof a->sum) {
        memcpy(&a->sum, am->data, sizeof a->sum);
        a->count++;
    }
}

static int serve(struct weft_ep *ep, const char *file)
{
    unsigned char address[WEFT_ADDR_MAX];
    char other[4096];
    size_t len = sizeof address;
    uint64_t sum = 0;
    enum weft_status s = weft_am_register(ep, ADD, on_add, &sum);
    if (s != WEFT_OK || (s = weft_ep_address(ep, address, &len)) != WEFT_OK)
        return complain("cannot serve", s);
    snprintf(other, sizeof other, "%s.new", file);
    FILE *f = fopen(other, "w"); /* a process that finds [file] finds all of it */
    if (!f || fwrite(address, 1, len, f) != len || fclose(f) || rename(other, file))
        return perror(file), 1;
    while (!stop && weft_ep_wait(ep, 1000000000) >= 0) /* runs on_add */
        ;
    printf("%" PRIu64 "\n", sum);
    return 0;
}

static int ask(struct weft_ep *ep, const char *file, uint64_t n, uint64_t times)
{
    unsigned char address[WEFT_ADDR_MAX];
    struct answers a = {0, 0};
    struct weft_peer *server;
    FILE *f = fopen(file, "r");
    size_t len = f ? fread(address, 1, sizeof address, f) : 0;
    if (!f || fclose(f))
        return perror(file), 1;
    enum weft_status s = weft_am_register(ep, SUM, on_sum, &a);
    if (s != WEFT_OK || (s = weft_peer_open(ep, address, len, &server)) != WEFT_OK)
        return complain("cannot reach the server", s);
    for (uint64_t i = 0; i < times && s == WEFT_OK; i++) {
        while ((s = weft_am_request(server, ADD, NULL, 0, &n, sizeof n, sizeof a.sum + 1)) ==
               WEFT_AGAIN)
            weft_ep_wait(ep, 1000000000); /* no room yet */
        while (s == WEFT_OK && a.count == i && (s = weft_peer_status(server)) == WEFT_OK)
            weft_ep_wait(ep, 1000000000); /* runs on_sum */
    }
    if (s == WEFT_OK)
        printf("%" PRIu64 "\n", a.sum);
    weft_peer_close(server);
    return s == WEFT_OK ? 0 : complain("asking", s);
}

int main(int argc, char **argv)
{
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    if (argc < 2 || argc > 4)
        return fprintf(stderr, "usage: server FILE [N [TIMES]]\n"), 2;
    signal(SIGTERM, on_term);
    enum weft_status s = weft_ctx_open(NULL, &ctx);
    if (s != WEFT_OK || (s = weft_ep_open(ctx, NULL, &ep)) != WEFT_OK)
        return complain("cannot start", s);
    int code = argc == 2 ? serve(ep, argv[1])
                         : ask(ep, argv[1], strtoull(argv[2], NULL, 0),
                               argc > 3 ? strtoull(argv[3], NULL, 0) : 1);
    if ((s = weft_ep_close(ep)) != WEFT_OK || (s = weft_ctx_close(ctx)) != WEFT_OK)
        return complain("leaving", s);
    return code;
}
