/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "perf_launch.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "perf.h"

#define SECONDS 120u     /* one run; far more than any needs */
#define LISTEN_MS 10000u /* until a server listens */

/* ---- one program ---- */

const char *wf_launch_self(void)
{
    static char path[PATH_MAX];
    ssize_t n = path[0] ? 1 : readlink("/proc/self/exe", path, sizeof path - 1);
    return n > 0 ? path : "weft";
}

void wf_words_add(struct wf_words *w, const char *text)
{
    size_t n = strlen(text) + 1;
    w->full |= w->used + n > sizeof w->text || w->count + 1 >= sizeof w->argv / sizeof *w->argv;
    if (w->full)
        return;
    memcpy(w->text + w->used, text, n);
    w->argv[w->count++] = w->text + w->used;
    w->argv[w->count] = NULL;
    w->used += n;
}

void wf_words_number(struct wf_words *w, uint64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, v);
    wf_words_add(w, text);
}

void wf_words_split(struct wf_words *w, const char *text)
{
    char word[64];
    while (*text) {
        size_t n = strcspn(text, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, text);
        wf_words_add(w, word);
        text += n + strspn(text + n, " ");
    }
}

void wf_words_list(struct wf_words *w, const char *const *list)
{
    for (; *list; list++)
        wf_words_add(w, *list);
}

static int ended(struct wf_child *c, const char *program, char *why, size_t room)
{
    int code = wf_child_finish(c, SECONDS);
    if (code == 0)
        return 0;
    if (code < 0 && wf_child_stopped())
        snprintf(why, room, "interrupted");
    else if (code < 0)
        snprintf(why, room, "%s did not end within %u s", program, SECONDS);
    else
        snprintf(why, room, "%s ended with %d: %s", program, code, wf_child_last_line(c));
    return -1;
}

/* As wf_child_start, with the reason of a failure in why[]. */
static int begin(struct wf_child *c, const struct wf_words *w, int cpu, const char *const *env,
                 char *why, size_t room)
{
    if (!w->full && wf_child_start(c, w->argv, cpu, env) == 0)
        return 0;
    snprintf(why, room, w->full ? "the command line of %s is too long" : "cannot start %s",
             w->count ? w->argv[0] : "weft");
    return -1;
}

int wf_launch(struct wf_words *w, struct wf_child *c, char *why, size_t room)
{
    return begin(c, w, -1, NULL, why, room) || ended(c, w->argv[0], why, room) ? -1 : 0;
}

/* ---- a server and its client ---- */

unsigned wf_launch_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at.sin_addr.s_addr = htonl(INADDR_ANY); /* as the listener: a connection that has just ended may
                                             * hold the port at another address */
    if (fd < 0)
        return 0;
    if (bind(fd, (struct sockaddr *)&at, len) || getsockname(fd, (struct sockaddr *)&at, &len))
        at.sin_port = 0;
    close(fd);
    return ntohs(at.sin_port);
}

/* Is there a listening socket on [port]? State 0A of proc_net_tcp. */
static bool listens(const char *table, unsigned port)
{
    char line[512];
    unsigned local, state;
    bool found = false;
    FILE *f = fopen(table, "re");
    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x", &local, &state) == 2 &&
                local == port && state == 0x0a;
    if (f)
        fclose(f);
    return found;
}

static bool await_server(const struct wf_child *server, unsigned port)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    for (unsigned ms = 0; ms < LISTEN_MS; ms += 2) {
        if (listens("/proc/net/tcp", port) || listens("/proc/net/tcp6", port))
            return true;
        if (wf_child_ended(server) || wf_child_stopped())
            return false;
        nanosleep(&pause, NULL);
    }
    return false;
}

int wf_launch_duel(struct wf_duel *d, char *why, size_t room)
{
    int cpu[2], bad;
    if (wf_perf_two_cores(cpu)) {
        snprintf(why, room, "two cores are needed");
        return -1;
    }
    if (begin(&d->s, &d->server, cpu[0], d->env, why, room))
        return -1;
    if (!await_server(&d->s, d->port)) {
        wf_child_finish(&d->s, 0);
        snprintf(why, room, "%s does not listen: %s", d->server.argv[0], wf_child_last_line(&d->s));
        return -1;
    }
    if (begin(&d->c, &d->client, cpu[1], d->env, why, room)) {
        wf_child_finish(&d->s, 0);
        return -1;
    }
    bad = ended(&d->c, d->client.argv[0], why, room);
    wf_child_finish(&d->s, bad ? 0 : 5);
    return bad;
}
