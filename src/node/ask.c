/* SPDX-License-Identifier: BSD-3-Clause */
/* Listing and stopping the services of this user. They are found by the names of their sockets, and
 * asked without the job's key. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/process.h"
#include "node/node.h"

#define ANSWER_MS 5000 /* for one packet, or for the end of a service */
#define DIGITS 16      /* of a name behind WF_NODE_SOCKET */

/* ---- names ---- */

struct names {
    char (*of)[DIGITS + 1];
    size_t count, room;
};

static bool names_add(struct names *names, const char *digits)
{
    if (names->count == names->room) {
        size_t room = names->room ? 2 * names->room : 16;
        void *more = realloc(names->of, room * sizeof *names->of);
        if (!more)
            return false;
        names->of = more;
        names->room = room;
    }
    snprintf(names->of[names->count++], sizeof *names->of, "%s", digits);
    return true;
}

static int names_compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The last word of a line of /proc/net/unix is the name; "@" stands for the 0 of an abstract one. A
 * listening socket has the flag __SO_ACCEPTCON, 00010000 (proc_net_unix in the kernel's sources).
 */
static const char *name_in(const char *line, char digits[DIGITS + 1])
{
    const char *at = strstr(line, " @" WF_NODE_SOCKET);
    unsigned flags;
    if (!at || sscanf(line, "%*s %*s %*s %x", &flags) != 1 || !(flags & 0x10000))
        return NULL;
    at += strlen(" @" WF_NODE_SOCKET);
    if (strspn(at, "0123456789abcdef") != DIGITS || strcspn(at, " \n") != DIGITS)
        return NULL;
    memcpy(digits, at, DIGITS);
    digits[DIGITS] = 0;
    return digits;
}

/* Find the sockets of this network namespace that are named as services are. */
static bool names_find(struct names *names)
{
    char line[512], digits[DIGITS + 1];
    int fd = wf_fd_high(open("/proc/thread-self/net/unix", O_RDONLY | O_CLOEXEC));
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    bool done = f != NULL;
    *names = (struct names){0};
    while (done && fgets(line, sizeof line, f))
        if (name_in(line, digits))
            done = names_add(names, digits);
    if (!done)
        fprintf(stderr, "weft node: cannot read /proc/net/unix: %s\n", strerror(errno));
    if (f)
        fclose(f);
    else if (fd >= 0)
        close(fd);
    if (done && names->count)
        qsort(names->of, names->count, sizeof *names->of, names_compare);
    return done;
}

/* ---- asking ---- */

/* Send HELLO to the service of the name. Returns a socket, or -1 with *why set to NULL (no service,
 * or another user's) or to a sentence. [creds] get the process that listens. */
static int ask(const char *digits, enum wf_node_role role, struct ucred *creds, const char **why)
{
    char name[WF_NODE_SOCKET_ROOM];
    struct wf_node_packet hello;
    struct sockaddr_un sa;
    socklen_t len, creds_len = sizeof *creds;
    int fd = wf_fd_high(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    *why = NULL;
    snprintf(name, sizeof name, WF_NODE_SOCKET "%s", digits);
    len = wf_node_sockaddr(name, &sa);
    wf_node_packet_init(&hello, WF_NODE_HELLO);
    hello.u.hello.role = role;
    hello.u.hello.self.pid = (uint32_t)getpid();
    if (fd < 0) {
        *why = strerror(errno);
        return -1;
    }
    if (connect(fd, (struct sockaddr *)&sa, len)) {
        if (errno == EAGAIN)
            *why = "it does not accept connections: its queue is full";
    } else if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, creds, &creds_len) &&
               creds->uid == geteuid()) {
        if (!wf_node_packet_send(fd, &hello, NULL, 0))
            return fd;
        *why = strerror(errno);
    }
    close(fd);
    return -1;
}

/* Wait for a packet. Returns its type, or 0 with *why set. */
static unsigned answer(int sock, struct wf_node_packet *packet, const char **why)
{
    uint64_t until = wf_now_ns() + ANSWER_MS * 1000000ull;
    enum weft_status status = WEFT_AGAIN;
    int fds[WF_NODE_FDS], nfds = 0;
    while (status == WEFT_AGAIN) {
        struct pollfd p = {.fd = sock, .events = POLLIN};
        uint64_t now = wf_now_ns();
        if (now >= until || poll(&p, 1, (int)((until - now) / 1000000 + 1)) < 0)
            break;
        status = wf_node_packet_recv(sock, packet, fds, &nfds);
    }
    if (status == WEFT_OK) {
        wf_seqpacket_drop(fds, WF_NODE_FDS, nfds);
        return packet->type;
    }
    *why = status == WEFT_AGAIN      ? "it does not answer: is it stopped, or no service of Weft?"
           : status == WEFT_EVERSION ? "it is of another version of Weft: use that version's weft"
           : status == WEFT_ECLOSED  ? "it has just ended"
                                     : "its answer is no packet of Weft's";
    return 0;
}

/* ---- listing ---- */

/* Those of which there are none are left out. */
static void resource_print(bool json, bool first, const struct wf_node_resource *r)
{
    if (json)
        printf("%s\"%s\":{\"count\":%" PRIu64 ",\"bytes\":%" PRIu64 "}", first ? "" : ",", r->name,
               r->count, r->bytes);
    else if (r->count)
        printf("  %-22s %8" PRIu64 " %14" PRIu64 " bytes\n", r->name, r->count, r->bytes);
}

static void row_print(bool json, bool first, const struct wf_node_row *row)
{
    double age = (double)row->age_ms / 1000;
    if (json)
        printf("%s{\"index\":%" PRIu32 ",\"pid\":%" PRIu32 ",\"seconds\":%.3f}", first ? "" : ",",
               row->index, row->pid, age);
    else
        printf("  client %4" PRIu32 "  process %-8" PRIu32 " attached for %.1f s\n", row->index,
               row->pid, age);
}

static void service_print(const char *digits, const struct wf_node_row *row)
{
    const struct wf_node_parameters *p = &row->parameters;
    bool is_rdma = p->lanes == WF_NODE_RDMA;
    printf("job %s  process %" PRIu32 ", started %.1f s ago\n", digits, row->pid,
           (double)row->age_ms / 1000);
    printf("  clients %" PRIu32 " of at most %u, endpoints %" PRIu32 " (at most %" PRIu32
           " of a client)\n",
           row->clients, 1u << p->index_bits, row->endpoints, row->most_endpoints);
    printf("  other services at most %" PRIu32 ", %" PRIu32 " %s%s to each, %s\n",
           row->most_services, p->connections, is_rdma ? "queue pair" : "connection",
           p->connections == 1 ? "" : "s", p->encrypt ? "encrypted" : "not encrypted");
    printf("  messages of at most %" PRIu32 " bytes, rings of %" PRIu32 " bytes, at most %" PRIu64
           " descriptors\n",
           p->am_max, p->ring, row->most_descriptors);
}

static void service_print_json(const char *digits, const struct wf_node_row *row)
{
    const struct wf_node_parameters *p = &row->parameters;
    printf("{\"job\":\"%s\",\"pid\":%" PRIu32 ",\"seconds\":%.3f,\"endpoints\":%" PRIu32
           ",\"limits\":{\"clients\":%u,\"endpoints\":%" PRIu32 ",\"services\":%" PRIu32
           ",\"message\":%" PRIu32 ",\"descriptors\":%" PRIu64 "}",
           digits, row->pid, (double)row->age_ms / 1000, row->endpoints, 1u << p->index_bits,
           row->most_endpoints, row->most_services, p->am_max, row->most_descriptors);
    printf(",\"transport\":\"%s\",\"connections\":%" PRIu32 ",\"ring\":%" PRIu32
           ",\"receives\":%" PRIu32 ",\"encrypted\":%s,\"resources\":{",
           p->lanes == WF_NODE_RDMA ? "rdma" : "tcp", p->connections, p->ring, p->receives,
           p->encrypt ? "true" : "false");
}

/* The first row is the service's own. Its resources follow, then its clients. */
static const char *rows_print(int sock, const char *digits, bool json, bool first_of_all)
{
    struct wf_node_packet p;
    const char *why = NULL;
    unsigned type = answer(sock, &p, &why), clients = 0, resources = 0;
    if (type != WF_NODE_ROW || p.u.row.index != WF_NODE_NO_INDEX)
        return why ? why : "its answer is no list";
    if (json && !first_of_all)
        putchar(',');
    (json ? service_print_json : service_print)(digits, &p.u.row);
    while ((type = answer(sock, &p, &why)) == WF_NODE_RESOURCE)
        resource_print(json, !resources++, &p.u.resource);
    if (json)
        printf("},\"clients\":[");
    for (; type == WF_NODE_ROW && p.u.row.index != WF_NODE_NO_INDEX; type = answer(sock, &p, &why))
        row_print(json, !clients++, &p.u.row);
    if (json)
        printf("]}");
    return type == WF_NODE_BYE ? NULL : why ? why : "its answer is no list";
}

int wf_node_list(bool json)
{
    struct names names;
    bool first = true;
    int code = 0;
    if (!names_find(&names))
        return 1;
    if (json)
        putchar('[');
    for (size_t i = 0; i < names.count; i++) {
        const char *why;
        struct ucred creds;
        int sock = ask(names.of[i], WF_NODE_LIST, &creds, &why);
        if (sock >= 0) {
            why = rows_print(sock, names.of[i], json, first);
            first = false;
            close(sock);
        }
        if (why) {
            fprintf(stderr, "weft node: job %s: %s\n", names.of[i], why);
            code = 1;
        }
    }
    if (json)
        puts("]");
    else if (first && !code)
        puts("no service of this user runs here");
    free(names.of);
    return code;
}

/* ---- stopping ---- */

/* The digits of the one service whose name begins with [job]; NULL, after a message, if there is
 * none or more than one. */
static const char *name_chosen(const struct names *names, const char *job)
{
    const char *found = NULL;
    for (size_t i = 0; i < names->count; i++) {
        if (strncmp(names->of[i], job, strlen(job)) != 0)
            continue;
        if (found) {
            fprintf(stderr, "weft node: more than one job begins with %s: give more digits\n", job);
            return NULL;
        }
        found = names->of[i];
    }
    if (!found)
        fprintf(stderr, "weft node: no job is %s: weft node --list lists them\n", job);
    return found;
}

static const char *stop(const char *digits)
{
    struct wf_node_packet p;
    struct pollfd ended = {.events = POLLIN};
    const char *why;
    struct ucred creds;
    int sock = ask(digits, WF_NODE_STOP, &creds, &why);
    if (sock < 0)
        return why ? why : "it has just ended, or is another user's";
    ended.fd = wf_pidfd_open(creds.pid);
    if (ended.fd >= 0 && answer(sock, &p, &why) == WF_NODE_BYE && poll(&ended, 1, ANSWER_MS) != 1)
        why = "it has not ended: is it stopped?";
    if (ended.fd >= 0)
        close(ended.fd);
    else if (errno != ESRCH)
        why = strerror(errno);
    close(sock);
    return why;
}

int wf_node_stop(const char *job)
{
    struct names names;
    const char *digits, *why = NULL;
    if (!*job || strlen(job) > DIGITS || strspn(job, "0123456789abcdef") != strlen(job)) {
        fprintf(stderr,
                "weft node: %s is no job: --stop takes 1 to %d hexadecimal digits of "
                "weft node --list\n",
                job, DIGITS);
        return 2;
    }
    if (!names_find(&names))
        return 1;
    digits = name_chosen(&names, job);
    if (digits && (why = stop(digits)))
        fprintf(stderr, "weft node: job %s: %s\n", digits, why);
    free(names.of);
    return digits && !why ? 0 : 1;
}
