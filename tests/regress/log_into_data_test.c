/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: descriptor 2 was closed when Weft made a memfd, which got that number; or the
 * program's own next file did. Weft's next log line was then written into a region or into that
 * file.
 *
 * Fails when: a descriptor of Weft's is below 3, or a line goes to a descriptor 2 that is not the
 * one which was there when the context was opened. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weft/weft.h>

static int out; /* a copy of standard output */

#define OK(call)                                                                                   \
    do {                                                                                           \
        enum weft_status s_ = (call);                                                              \
        if (s_ != WEFT_OK) {                                                                       \
            dprintf(out, "line %d: %s: %s\n", __LINE__, #call, weft_status_name(s_));              \
            return false;                                                                          \
        }                                                                                          \
    } while (0)
#define TRUE(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            dprintf(out, "line %d: not true: %s\n", __LINE__, #cond);                              \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

enum { SIZE = 4 << 20 };

static off_t length(int fd)
{
    struct stat st;
    return fstat(fd, &st) ? -1 : st.st_size;
}

/* Makes Weft log an error: the address of an endpoint on another node. */
static bool complain(struct weft_ep *ep)
{
    unsigned char addr[WEFT_ADDR_MAX];
    struct weft_peer *peer = NULL;
    size_t len = sizeof addr;
    OK(weft_ep_address(ep, addr, &len));
    addr[8] ^= 1;
    TRUE(weft_peer_open(ep, addr, len, &peer) == WEFT_EUNREACH);
    return true;
}

/* Closed before the context is opened, or after that. */
static bool closed(bool before)
{
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    struct weft_mr *mr;
    unsigned char *base;
    if (before)
        for (int fd = 0; fd < 3; fd++)
            close(fd);
    OK(weft_ctx_open(NULL, &ctx));
    OK(weft_ep_open(ctx, NULL, &ep));
    for (int fd = 0; fd < 3; fd++) {
        TRUE(!before || fcntl(fd, F_GETFD) < 0);
        close(fd);
    }
    OK(weft_mem_alloc(ctx, SIZE, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &mr));
    base = weft_mr_base(mr);
    memset(base, 'U', SIZE);
    TRUE(complain(ep));
    for (int i = 0; i < SIZE; i++)
        TRUE(base[i] == 'U');
    for (int fd = 0; fd < 3; fd++)
        TRUE(fcntl(fd, F_GETFD) < 0);
    OK(weft_mr_close(mr));
    OK(weft_ep_close(ep));
    OK(weft_ctx_close(ctx));
    return true;
}

/* A program's file gets the number; the context was opened with 2 as standard error. */
static bool reused(void)
{
    struct weft_ctx *ctx;
    struct weft_ep *ep;
    int log = memfd_create("log", 0), data = memfd_create("data", 0);
    off_t said;
    TRUE(log >= 0 && data >= 0 && dup2(log, 2) == 2);
    OK(weft_ctx_open(NULL, &ctx));
    OK(weft_ep_open(ctx, NULL, &ep));
    TRUE(complain(ep));
    said = length(log);
    TRUE(said > 0); /* it does log */
    TRUE(dup2(data, 2) == 2);
    TRUE(complain(ep));
    TRUE(length(data) == 0 && length(log) == said);
    TRUE(dup2(log, 2) == 2);
    TRUE(complain(ep));
    TRUE(length(log) > said);
    OK(weft_ep_close(ep));
    OK(weft_ctx_close(ctx));
    return true;
}

int main(void)
{
    out = fcntl(1, F_DUPFD_CLOEXEC, 100);
    if (!reused() || !closed(false) || !closed(true))
        return 1;
    return 0;
}
