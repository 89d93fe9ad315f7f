/* SPDX-License-Identifier: BSD-3-Clause */
/* What once broke: where `ulimit -f` was less than Weft's shared memory, the process was ended by
 * SIGXFSZ in weft_ctx_open or weft_mem_alloc, without a word.
 *
 * Fails when: a call that needs more than the limit ends the process, says OK, or does not name the
 * limit in the log. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <weft/weft.h>

static int limit(rlim_t bytes)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_FSIZE, &l))
        return -1;
    l.rlim_cur = bytes;
    return setrlimit(RLIMIT_FSIZE, &l);
}

/* Does the log name the limit? It is begun anew. */
static int is_named(int log)
{
    char text[4096];
    ssize_t n = pread(log, text, sizeof text - 1, 0);
    text[n < 0 ? 0 : n] = 0;
    return lseek(log, 0, SEEK_SET) == 0 && ftruncate(log, 0) == 0 && strstr(text, "ulimit -f");
}

int main(void)
{
    int log = memfd_create("log", 0);
    struct weft_ctx *ctx = NULL;
    struct weft_mr *mr = NULL;
    enum weft_status s;
    if (log < 0 || dup2(log, 2) != 2 || weft_ctx_open(NULL, &ctx))
        return printf("no context\n"), 1;
    if (limit(1 << 20))
        return printf("setrlimit\n"), 77;
    s = weft_mem_alloc(ctx, 64 << 20, WEFT_REMOTE_WRITE, &mr);
    if (s != WEFT_ELIMIT || mr)
        return printf("weft_mem_alloc: %s\n", weft_status_name(s)), 1;
    if (!is_named(log))
        return printf("weft_mem_alloc: the log does not name the limit\n"), 1;
    if (weft_ctx_close(ctx) || limit(4096))
        return printf("weft_ctx_close or setrlimit\n"), 1;
    ctx = NULL;
    s = weft_ctx_open(NULL, &ctx);
    if (s != WEFT_ESYSTEM || ctx)
        return printf("weft_ctx_open: %s\n", weft_status_name(s)), 1;
    if (!is_named(log))
        return printf("weft_ctx_open: the log does not name the limit\n"), 1;
    return 0;
}
