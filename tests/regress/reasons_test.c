/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: a peer that no transport reaches was logged with the last transport's reason
 * alone, so that a process without a key read "it is another endpoint"; and a peer whose only
 * address cannot be called from here was opened, and lost at its first message. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weft/weft.h>

enum { NODE = 8 }; /* docs/protocol.md, "Addresses" */

struct side {
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    unsigned char address[WEFT_ADDR_MAX];
    size_t len;
};

static bool side_open(struct side *s, bool network)
{
    struct weft_ctx_params params = WEFT_CTX_PARAMS_INIT;
    params.flags = network ? WEFT_CTX_NETWORK : 0;
    s->len = sizeof s->address;
    if (weft_ctx_open(&params, &s->ctx) || weft_ep_open(s->ctx, NULL, &s->ep) ||
        weft_ep_address(s->ep, s->address, &s->len))
        return false;
    s->address[NODE] ^= 1; /* as if it were on another node */
    return true;
}

/* Does opening [to] from [from] fail, and do lines say [why] and [why_too]? */
static int check(const struct side *from, const struct side *to, int log, const char *why,
                 const char *why_too)
{
    struct weft_peer *peer = NULL;
    char text[8192];
    off_t at = lseek(log, 0, SEEK_END);
    enum weft_status status = weft_peer_open(from->ep, to->address, to->len, &peer);
    ssize_t n = pread(log, text, sizeof text - 1, at);
    text[n > 0 ? n : 0] = 0;
    if (status == WEFT_EUNREACH && !peer && strstr(text, why) && strstr(text, why_too))
        return 0;
    printf("%s instead of WEFT_EUNREACH, or \"%s\" or \"%s\" is not in:\n%s\n",
           weft_status_name(status), why, why_too, text);
    return 1;
}

int main(void)
{
    struct side plain, one, other;
    int log = memfd_create("log", MFD_CLOEXEC), bad = 0;
    setvbuf(stdout, NULL, _IONBF, 0);
    setenv("WEFT_TRANSPORTS", "loop,shm,tcp", 1);
    setenv("WEFT_TCP_INTERFACES", "lo", 1);
    unsetenv("WEFT_KEY_FILE");
    if (log < 0 || dup2(log, STDERR_FILENO) != STDERR_FILENO || !side_open(&plain, false) ||
        !side_open(&one, true) || !side_open(&other, true))
        return 2;
    bad |= check(&plain, &one, log, "shm: it is on another node",
                 "tcp: this process has no key: set WEFT_KEY_FILE");
    bad |= check(&one, &plain, log, "shm: it is on another node",
                 "tcp: its address names no place on the network: its process has no key");
    bad |= check(&one, &other, log, "shm: it is on another node",
                 "tcp: its only network address is loopback");
    return bad;
}
