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

void wf_words_mpirun(struct wf_words *w, const char *name, const char *const *options,
                     const struct wf_hosts *hosts)
{
    char list[256];
    wf_words_add(w, name);
    if (geteuid() == 0)
        wf_words_add(w, "--allow-run-as-root");
    wf_words_list(w, options);
    if (!hosts)
        return;
    snprintf(list, sizeof list, "%s:1,%s:1", hosts->name[0], hosts->name[1]);
    wf_words_list(w, (const char *const[]){"--mca", "plm_rsh_agent", hosts->agent, "--mca",
                                           "orte_keep_fqdn_hostnames", "1", "--host", list,
                                           "--bind-to", "none", "-n", "2", NULL});
    /* "Hosts" may share a machine, where mpirun would bind both ranks to the first core. */
    wf_words_list(w, (const char *const[]){"sh", "-c",
                                           "exec taskset -c \"$OMPI_COMM_WORLD_RANK\" \"$@\"", "sh",
                                           NULL});
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

/* ---- on another host ---- */

/* A word for the shell that reads an agent's command. */
static void add_quoted(struct wf_words *w, const char *text)
{
    char quoted[1024];
    size_t n = 0;
    if (!strpbrk(text, " \t\n'\"\\$`;&|<>()*?[]#~!{}")) {
        wf_words_add(w, text);
        return;
    }
    quoted[n++] = '\'';
    for (; *text && n + 6 < sizeof quoted; text++)
        if (*text == '\'')
            n += (size_t)snprintf(quoted + n, sizeof quoted - n, "'\\''");
        else
            quoted[n++] = *text;
    w->full |= *text != 0;
    quoted[n++] = '\'';
    quoted[n] = 0;
    wf_words_add(w, quoted);
}

/* The command [w] with [env] on host [side], bound to the core of that number. It ends in time even
 * if the agent leaves it behind. */
static void remote(struct wf_words *to, const struct wf_hosts *hosts, unsigned side,
                   const struct wf_words *w, const char *const *env)
{
    memset(to, 0, sizeof *to);
    wf_words_list(to, (const char *const[]){hosts->agent, hosts->name[side], "timeout", NULL});
    wf_words_number(to, SECONDS + 5);
    wf_words_list(to, (const char *const[]){"taskset", "-c", NULL});
    wf_words_number(to, side);
    wf_words_add(to, "env");
    for (; env && *env; env++)
        add_quoted(to, *env);
    for (unsigned i = 0; i < w->count; i++)
        add_quoted(to, w->argv[i]);
    to->full |= w->full;
}

/* Wait on the server's host until [port] listens. */
static bool await_remote(const struct wf_hosts *hosts, unsigned port)
{
    static struct wf_child c;
    struct wf_words w = {.used = 0};
    char script[256], why[256];
    snprintf(script, sizeof script,
             "'for i in $(seq 500); do grep -qs \": [0-9A-F]*:%04X [0-9A-F]*:0000 0A\" "
             "/proc/net/tcp /proc/net/tcp6 && exit 0; sleep 0.02; done; exit 1'",
             port);
    wf_words_list(&w,
                  (const char *const[]){hosts->agent, hosts->name[0], "sh", "-c", script, NULL});
    return wf_launch(&w, &c, why, sizeof why) == 0;
}

/* ---- a server and its client ---- */

const char *wf_launch_address(const struct wf_hosts *hosts)
{
    return hosts ? hosts->name[0] : "127.0.0.1";
}

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

static bool await_server(const struct wf_child *server, const struct wf_hosts *hosts, unsigned port)
{
    if (hosts)
        return await_remote(hosts, port);
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

/* Start one of the two. */
static int duel_begin(struct wf_duel *d, unsigned side, int cpu, char *why, size_t room)
{
    static struct wf_words far;
    struct wf_child *child = side ? &d->c : &d->s;
    const struct wf_words *w = side ? &d->client : &d->server;
    if (!d->hosts)
        return begin(child, w, cpu, d->env, why, room);
    remote(&far, d->hosts, side, w, d->env);
    return begin(child, &far, -1, NULL, why, room);
}

int wf_launch_duel(struct wf_duel *d, char *why, size_t room)
{
    int cpu[2] = {-1, -1}, bad;
    if (!d->hosts && wf_perf_two_cores(cpu)) {
        snprintf(why, room, "two cores are needed");
        return -1;
    }
    if (duel_begin(d, 0, cpu[0], why, room))
        return -1;
    if (!await_server(&d->s, d->hosts, d->port)) {
        wf_child_finish(&d->s, 0);
        snprintf(why, room, "%s does not listen: %s", d->server.argv[0], wf_child_last_line(&d->s));
        return -1;
    }
    if (duel_begin(d, 1, cpu[1], why, room)) {
        wf_child_finish(&d->s, 0);
        return -1;
    }
    bad = ended(&d->c, d->client.argv[0], why, room);
    wf_child_finish(&d->s, bad ? 0 : 5);
    return bad;
}
