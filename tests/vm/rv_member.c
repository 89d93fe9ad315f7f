/* SPDX-License-Identifier: BSD-3-Clause */
/* A member of oracle.py: a process that makes the calls of weft/node.h.
 *
 *     rv_member NODE NAME TAG
 *
 * Requests, answers and arguments are those of oracle.py. The node's name is TAG-NODE. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weft/cache.h>
#include <weft/node.h>

#define PAGE ((size_t)4096)
#define NODES 16
#define BUFFERS 64
#define WORDS 32
#define PEERS 16
#define MRS 64

static struct weft_node *nodes[NODES]; /* the last one is used */
static unsigned nnodes, nbuffers;
static struct buffer {
    char name[32];
    char *addr;
    size_t len;
} buffers[BUFFERS];
static struct {
    struct weft_node *node;
    struct weft_node_peer *peer;
    uint64_t handle;
} peers[PEERS];
static struct weft_node_mr mrs[MRS]; /* in use */
static unsigned npeers, nmrs;
static char node_name[64];
static FILE *to_child, *from_child;
static pid_t child;
static FILE *out; /* where answers go */

/* ---- requests and answers ---- */

static struct {
    char *key, *value;
} words[WORDS];
static unsigned nwords;

static void answer(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vfprintf(out, fmt, ap);
    va_end(ap);
    fputc('\n', out);
    fflush(out);
}

static const char *name_of(enum weft_status status)
{
    return status == WEFT_OK      ? "ok"
           : status == WEFT_AGAIN ? "EAGAIN"
                                  : weft_status_name(status) + strlen("WEFT_");
}

static const char *word(const char *key, const char *absent)
{
    for (unsigned i = 0; i < nwords; i++)
        if (!strcmp(words[i].key, key))
            return words[i].value;
    return absent;
}

static uint64_t number(const char *key)
{
    return strtoull(word(key, "0"), NULL, 10);
}

static bool is(const char *key, const char *value)
{
    return !strcmp(word(key, value), value);
}

static unsigned access_word(void)
{
    const char *set = word("access", "");
    return (strstr(set, "lw") ? WEFT_NODE_LOCAL_WRITE : 0) |
           (strstr(set, "rw") ? WEFT_NODE_REMOTE_WRITE : 0) |
           (strstr(set, "rr") ? WEFT_NODE_REMOTE_READ : 0);
}

/* ---- memory ---- */

static struct buffer *buffer(const char *name)
{
    for (unsigned i = 0; i < nbuffers; i++)
        if (!strcmp(buffers[i].name, name))
            return &buffers[i];
    return NULL;
}

static struct buffer *buffer_add(const char *name, char *addr, size_t len)
{
    struct buffer *b = buffer(name);
    if (!b && nbuffers == BUFFERS)
        return NULL;
    if (!b)
        b = &buffers[nbuffers++];
    snprintf(b->name, sizeof b->name, "%s", name);
    b->addr = addr;
    b->len = len;
    return b;
}

/* The memory that a request names. */
static char *memory(void)
{
    const struct buffer *b = buffer(word("buf", ""));
    const char *address = word("address", "");
    if (!strcmp(address, "last,page"))
        return (char *)-PAGE;
    if (!strcmp(address, "nowhere")) {
        char *at = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(at, PAGE);
        return at;
    }
    return b ? b->addr + number("at") : NULL;
}

static int prot_word(void)
{
    const char *set = word("prot", "rw");
    return (strchr(set, 'r') ? PROT_READ : 0) | (strchr(set, 'w') ? PROT_WRITE : 0);
}

static void on_mmap(void)
{
    const struct buffer *place = buffer(word("at_address_of", ""));
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (place ? MAP_FIXED_NOREPLACE : 0);
    size_t len = number("len");
    char *addr = mmap(place ? place->addr : NULL, len, prot_word(), flags, -1, 0);
    answer(addr != MAP_FAILED && buffer_add(word("buf", ""), addr, len) ? "ok" : "ENOMEM");
}

static void on_munmap(void)
{
    answer(munmap(memory(), number("len")) ? "EINVAL" : "ok");
}

static void on_dontneed(void)
{
    answer(madvise(memory(), number("len"), MADV_DONTNEED) ? "EINVAL" : "ok");
}

static void on_mprotect(void)
{
    answer(mprotect(memory(), number("len"), prot_word()) ? "EINVAL" : "ok");
}

/* To another address. */
static void on_mremap(void)
{
    const struct buffer *b = buffer(word("buf", ""));
    char *at, *moved = MAP_FAILED;
    if (b) {
        at = mmap(NULL, b->len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        moved = mremap(b->addr, b->len, b->len, MREMAP_MAYMOVE | MREMAP_FIXED, at);
    }
    answer(moved != MAP_FAILED && buffer_add(word("to", ""), moved, b->len) ? "ok" : "EINVAL");
}

static void on_fill(void)
{
    memset(memory(), (int)number("byte"), number("len"));
    answer("ok");
}

static void on_look(void)
{
    const unsigned char *at = (const unsigned char *)memory();
    bool seen[256] = {false};
    char text[1100] = "", *end = text;
    for (size_t i = 0; i < number("len"); i++)
        seen[at[i]] = true;
    for (unsigned i = 0; i < 256; i++)
        if (seen[i])
            end += sprintf(end, "%s%u", end == text ? "" : ",", i);
    answer("ok bytes=%s", text);
}

/* ---- calls ---- */

static struct weft_node *node(void)
{
    return nnodes ? nodes[nnodes - 1] : NULL;
}

/* The service opens the device, and each connection is to a node: there are no such parameters. */
static bool is_known(void)
{
    return is("dev", "own") && is("mode", "kernel") && is("port", "1") && is("gid", "own") &&
           is("gid_index", "0") && is("service", "0") && is("address", "0") && is("depth", "64") &&
           is("reconnect_s", "30") && is("heartbeat_ms", "1000");
}

/* The address of the last node, in hexadecimal. */
static const char *contact(void)
{
    static char text[2 * WEFT_ADDR_MAX + 1];
    unsigned char bytes[WEFT_ADDR_MAX];
    size_t len = sizeof bytes;
    if (weft_node_address(node(), bytes, &len) != WEFT_OK)
        return "none";
    for (size_t i = 0; i < len; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return text;
}

static void on_attach(void)
{
    struct weft_node_params params = WEFT_NODE_PARAMS_INIT;
    char key[64];
    struct weft_node_info info;
    enum weft_status status;
    if (strcmp(weft_monitor_name(NULL), "userfaultfd") != 0) { /* it keeps nothing */
        answer("cannot");
        return;
    }
    if (!is_known() || nnodes == NODES) {
        answer("none");
        return;
    }
    memset(key, '.', sizeof key);
    memcpy(key, word("job", ""), strlen(word("job", "")));
    memcpy(key, word("key", ""), strlen(word("key", "")));
    params.key = key;
    params.key_len = number("key_len");
    params.connections = (uint32_t)number("connections");
    params.index_bits = (uint32_t)number("index_bits");
    params.cache_bytes = number("cache_mb") << 20;
    params.name = node_name;
    params.events = (uint32_t)number("ring"); /* of which rv uses one less */
    params.events -= params.events != 0;
    status = weft_node_open(&params, &nodes[nnodes]);
    if (status != WEFT_OK) {
        answer("%s", name_of(status));
        return;
    }
    (void)weft_node_query(nodes[nnodes++], &info);
    answer("ok index=%u cache_mb=%" PRIu64 " contact=%s", info.index, info.cache_bytes >> 20,
           contact());
}

static void on_close(void)
{
    struct weft_node *last = node();
    enum weft_status status = weft_node_close(last);
    if (status == WEFT_OK)
        nnodes--;
    while (status == WEFT_OK && npeers && peers[npeers - 1].node == last)
        npeers--;
    answer("%s", name_of(status));
}

static void on_reg(void)
{
    struct weft_node_mr mr;
    enum weft_status status;
    if (!is("pd", "")) { /* weft/cache.h has those of a domain of one's own */
        answer("none");
        return;
    }
    status = weft_node_mr_open(node(), memory(), number("len"), access_word(), &mr);
    if (status == WEFT_OK && nmrs < MRS)
        mrs[nmrs++] = mr;
    if (status == WEFT_OK)
        answer("ok handle=%" PRIu64 " lkey=%u rkey=%u io=%" PRIu64 " addr=%" PRIu64 " hit=%u",
               mr.handle, mr.lkey, mr.rkey, mr.at, (uint64_t)(uintptr_t)mr.addr, mr.is_hit);
    else
        answer("%s", name_of(status));
}

static void on_dereg(void)
{
    struct weft_node_mr mr = {.handle = number("handle"),
                              .addr = memory(),
                              .len = number("len"),
                              .access = access_word()};
    answer("%s", name_of(weft_node_mr_close(node(), &mr)));
}

static void on_evict(void)
{
    struct weft_node_evicted gone = {0, 0};
    enum weft_status status;
    if (is("how", "exact"))
        status = weft_node_evict(node(), memory(), number("len"), access_word(), &gone);
    else if (is("how", "range"))
        status = weft_node_evict_range(node(), memory(), number("len"), &gone);
    else if (is("how", "amount"))
        status = weft_node_evict_amount(node(), number("bytes"), number("count"), &gone);
    else {
        answer("none");
        return;
    }
    if (status == WEFT_OK)
        answer("ok bytes=%" PRIu64 " count=%" PRIu64, gone.bytes, gone.count);
    else
        answer("%s", name_of(status));
}

/* Registers, closes and evicts again and again, and looks for keys that come again. Without "at"
 * each time another range, of as many bytes. */
static void on_churn(void)
{
    uint64_t times = number("times"), again = 0;
    uint32_t *keys = calloc(times, sizeof *keys);
    enum weft_status status = keys ? WEFT_OK : WEFT_ENOMEM;
    size_t step = is("at", "") ? number("len") : 0;
    for (uint64_t i = 0; i < times && status == WEFT_OK; i++) {
        struct weft_node_evicted gone;
        struct weft_node_mr mr;
        char *at = memory() + i * step;
        status = weft_node_mr_open(node(), at, number("len"),
                                   WEFT_NODE_LOCAL_WRITE | WEFT_NODE_REMOTE_WRITE, &mr);
        if (status == WEFT_OK)
            status = weft_node_mr_close(node(), &mr);
        if (status == WEFT_OK)
            status = weft_node_evict(node(), at, number("len"), mr.access, &gone);
        keys[i] = mr.rkey;
        if (!again && i && keys[i] == keys[0])
            again = i;
    }
    free(keys);
    if (status == WEFT_OK)
        answer("ok key_again_after=%" PRIu64, again);
    else
        answer("%s", name_of(status));
}

/* ---- peers and writes ---- */

/* The peer that a request names. */
static struct weft_node_peer *peer(void)
{
    for (unsigned i = npeers; i-- > 0;)
        if (peers[i].handle == number("handle"))
            return peers[i].peer;
    return NULL;
}

/* All members of a node give one handle to the connection with another node. */
static void on_create(void)
{
    unsigned char bytes[WEFT_ADDR_MAX];
    const char *text = word("contact", "none");
    size_t len = strlen(text) / 2;
    struct weft_node_peer *made;
    enum weft_status status = WEFT_EINVAL;
    if (is("contact", "none") || len > sizeof bytes || npeers == PEERS || !is("sl", "0") ||
        !is("port", "1") || !is("gid_index", "0")) {
        answer("none");
        return;
    }
    for (size_t i = 0; i < len; i++)
        if (sscanf(text + 2 * i, "%2hhx", &bytes[i]) != 1)
            len = 0;
    if (len)
        status = weft_node_peer_open(node(), bytes, len, &made);
    if (status != WEFT_OK) {
        answer("%s", name_of(status));
        return;
    }
    peers[npeers].node = node();
    peers[npeers].peer = made;
    peers[npeers++].handle = (unsigned char)*word("to", "");
    answer("ok handle=%u", (unsigned char)*word("to", ""));
}

/* The path to the other node is the service's own concern. */
static void on_connect(void)
{
    if (nwords > 1)
        answer("none");
    else
        answer("%s", name_of(weft_node_connect(peer())));
}

static void on_connected(void)
{
    enum weft_status status = weft_node_connected(peer());
    if (status == WEFT_OK || status == WEFT_PENDING)
        answer("ok value=%d", status == WEFT_OK);
    else
        answer("%s", name_of(status));
}

static void on_count(void)
{
    uint32_t count;
    enum weft_status status = weft_node_connects(peer(), (uint32_t)number("sub"), &count);
    if (status == WEFT_OK)
        answer("ok count=%u", count);
    else
        answer("%s", name_of(status));
}

static void on_post(void)
{
    struct weft_node_post post = {.addr = (void *)(uintptr_t)number("addr"),
                                  .len = number("len"),
                                  .remote = number("remote"),
                                  .remote_key = (uint32_t)number("rkey"),
                                  .immediate = (uint32_t)number("imm"),
                                  .id = number("wr")};
    struct weft_node_sent sent;
    enum weft_status status;
    for (unsigned i = nmrs; i-- > 0 && !post.mr;)
        if (mrs[i].handle == number("mr"))
            post.mr = &mrs[i];
    status = weft_node_write(peer(), &post, &sent);
    if (status == WEFT_OK)
        answer("ok sub=%u count=%u", sent.connection, sent.count);
    else
        answer("%s", name_of(status));
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* As verbs number them: access at the peer, retries, flushed. */
static int status_number(int status)
{
    return status == WEFT_OK ? 0 : status == WEFT_EKEY ? 10 : status == WEFT_EUNREACH ? 12 : 5;
}

static void on_events(void)
{
    uint64_t n = number("n"), until = now_ms() + number("ms");
    struct weft_node_event_entry e;
    bool any = false;
    fprintf(out, "ok events=");
    while (n) {
        enum weft_status status = weft_node_event(node(), &e);
        uint64_t handle = 0;
        if (status == WEFT_AGAIN && now_ms() < until) {
            (void)poll(NULL, 0, 1); /* there is nothing to wait at */
            continue;
        }
        if (status != WEFT_OK)
            break;
        for (unsigned i = 0; i < npeers; i++)
            if (peers[i].peer == e.peer)
                handle = peers[i].handle;
        fprintf(out, "%s%s/%d/%" PRIu64 "/%u/%" PRIu64, any ? "," : "",
                e.kind == WEFT_NODE_SENT ? "sent" : "recv", status_number(e.status),
                e.kind == WEFT_NODE_SENT ? e.id : e.immediate, e.bytes, handle);
        any = true;
        n--;
    }
    answer("");
}

static void on_connection_stats(void)
{
    struct weft_node_peer_counts n;
    struct weft_node_info info;
    if (!peer() || number("sub") != 255 || weft_node_query(node(), &info) != WEFT_OK ||
        weft_node_peer_stats(node(), peer(), &n) != WEFT_OK) {
        answer("none");
        return;
    }
    answer("ok num_conn=%u conn_recovery=%" PRIu64 " post_write=%" PRIu64
           " post_write_fail=0 post_write_bytes=%" PRIu64 " outstand_send_write=%" PRIu64
           " send_write_cqe=%" PRIu64 " send_write_cqe_fail=%" PRIu64 " recv_write_cqe=%" PRIu64
           " recv_write_bytes=%" PRIu64 " recv_cqe_fail=0",
           info.connections, n.connects ? n.connects - 1 : 0, n.posted, n.posted_bytes, n.under_way,
           n.done, n.failed, n.received, n.received_bytes);
}

/* Of rv's ring the sender's events are a part. */
static void on_event_stats(bool ring)
{
    struct weft_node_event_counts n;
    enum weft_status status = weft_node_event_stats(node(), &n);
    if (status != WEFT_OK)
        answer("%s", name_of(status));
    else if (ring)
        answer("ok head=%" PRIu64 " tail=%" PRIu64 " dropped=%" PRIu64,
               (n.head + n.sent) % (n.room + 1), (n.tail + n.sent) % (n.room + 1), n.overflow);
    else
        answer("ok send_write_cqe=%" PRIu64 " send_write_cqe_fail=%" PRIu64
               " send_write_bytes=%" PRIu64 " recv_write_cqe=%" PRIu64
               " recv_write_cqe_fail=0 recv_write_bytes=%" PRIu64,
               n.sent - n.failed, n.failed, n.sent_bytes, n.tail, n.received_bytes);
}

static void on_stats(void)
{
    struct weft_node_cache_counts n;
    enum weft_status status;
    if (is("of", "connection")) {
        on_connection_stats();
        return;
    }
    if (!is("of", "cache")) {
        on_event_stats(is("of", "ring"));
        return;
    }
    status = weft_node_cache_count(node(), &n);
    if (status != WEFT_OK) {
        answer("%s", name_of(status));
        return;
    }
    answer("ok cache_size=%" PRIu64 " max_cache_size=%" PRIu64 " limit_cache_size=%" PRIu64
           " count=%" PRIu64 " max_count=%" PRIu64 " inuse=%" PRIu64 " max_inuse=%" PRIu64
           " inuse_bytes=%" PRIu64 " max_inuse_bytes=%" PRIu64 " max_refcount=%" PRIu64
           " hit=%" PRIu64 " miss=%" PRIu64 " full=%" PRIu64 " failed=%" PRIu64 " remove=%" PRIu64
           " evict=%" PRIu64,
           n.bytes, n.most_bytes, n.max_bytes >> 20, n.count, n.most_count, n.used, n.most_used,
           n.used_bytes, n.most_used_bytes, n.most_uses, n.hits, n.misses, n.full, n.failed,
           n.removed, n.evicted);
}

/* weft_node_open answers what these ask for. */
static void on_none(void)
{
    answer("none");
}

/* ---- a forked child ---- */

static int serve(FILE *in);

static void on_fork(void)
{
    int down[2], up[2];
    if (pipe(down) || pipe(up)) {
        answer("EMFILE");
        return;
    }
    child = fork();
    if (!child) {
        close(down[1]);
        close(up[0]);
        out = fdopen(up[1], "w");
        _exit(serve(fdopen(down[0], "r")));
    }
    close(down[0]);
    close(up[1]);
    to_child = fdopen(down[1], "w");
    from_child = fdopen(up[0], "r");
    answer("ok");
}

static void child_ask(const char *request)
{
    char line[4096];
    if (!to_child) { /* of the parent only */
        answer("none");
        return;
    }
    fputs(request, to_child);
    fflush(to_child);
    if (!fgets(line, sizeof line, from_child))
        snprintf(line, sizeof line, "ended\n");
    fputs(line, out);
    fflush(out);
}

static void child_end(void)
{
    if (!to_child)
        return;
    fclose(to_child);
    fclose(from_child);
    (void)waitpid(child, NULL, 0); /* the service may be a child, too, and waits for this process */
}

/* ---- running ---- */

static const struct {
    const char *name;
    void (*run)(void);
} calls[] = {{"query", on_none},        {"query_old", on_none},
             {"map_ring", on_none},     {"unmap_ring", on_none},
             {"attach", on_attach},     {"close", on_close},
             {"reg", on_reg},           {"dereg", on_dereg},
             {"evict", on_evict},       {"churn", on_churn},
             {"stats", on_stats},       {"mmap", on_mmap},
             {"munmap", on_munmap},     {"dontneed", on_dontneed},
             {"mprotect", on_mprotect}, {"mremap", on_mremap},
             {"fill", on_fill},         {"look", on_look},
             {"fork", on_fork},         {"create", on_create},
             {"connect", on_connect},   {"connected", on_connected},
             {"count", on_count},       {"post", on_post},
             {"events", on_events}};

static void request(char *line)
{
    char *save, *call = strtok_r(line, " \n", &save);
    nwords = 0;
    for (char *at; nwords < WORDS && (at = strtok_r(NULL, " \n", &save));) {
        words[nwords].key = at;
        words[nwords].value = strchr(at, '=');
        if (words[nwords].value)
            *words[nwords++].value++ = '\0';
    }
    for (size_t i = 0; call && i < sizeof calls / sizeof *calls; i++)
        if (!strcmp(calls[i].name, call)) {
            calls[i].run();
            return;
        }
    answer("unbuilt");
}

static int serve(FILE *in)
{
    char line[4096];
    if (!in || !out)
        return 1;
    while (fgets(line, sizeof line, in)) {
        if (!strncmp(line, "child ", 6))
            child_ask(line + 6);
        else
            request(line);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: rv_member NODE NAME TAG\n");
        return 2;
    }
    out = stdout;
    snprintf(node_name, sizeof node_name, "%s-%s", argv[3], argv[1]);
    serve(stdin);
    child_end();
    return 0; /* without weft_node_close, as a process that ends */
}
