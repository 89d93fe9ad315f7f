/* SPDX-License-Identifier: BSD-3-Clause */
/* gasnet_attach: the handler table, and the segments.
 *
 * FAST and LARGE: the segment is memory from Weft that other processes of the machine map.
 * EVERYTHING: the segment is one region of all addresses, addressed virtually and without backing
 * (weft/mr.h). An access to an unmapped address fails in the kernel. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include "domain.h"
#include "binding.h"
#include "trace.h"

#define LOWEST ((uintptr_t)4096)
#define HIGHEST ((uintptr_t)1 << 47) /* end of user space on x86-64 with four table levels */
#define EVERYTHING_KEY 1

/* The kernel may release memory late after an unmap (GASNet's bug 3480). So a failed allocation is
 * tried again up to RETRIES times. The pause before each try is 50 ms longer than the pause before;
 * the sum is 1.4 s. */
#define RETRIES 7
#define RETRY_MS 50

const struct weft_remote gasnetw_unmapped;
static struct gasnetw_segment *segments;
static size_t page;

/* ---- how large ---- */

uint64_t gasnetw_memory_of_node(void)
{
    struct sysinfo info;
    return sysinfo(&info) ? UINT64_C(1) << 30 : (uint64_t)info.totalram * info.mem_unit;
}

/* Get the limit of segments for all processes of this machine together (GASNET_PHYSMEM_MAX), and
 * for each process (GASNET_MAX_SEGSIZE). A segment uses only address space until it is touched. */
void gasnetw_segment_limits(uint64_t *together, uint64_t *each)
{
    uint64_t all = gasnetw_memory_of_node();
    page = (size_t)sysconf(_SC_PAGESIZE);
    *together = gasnetw_env_size("GASNET_PHYSMEM_MAX", all);
    *each = gasnetw_env_size("GASNET_MAX_SEGSIZE", all);
    if (!*together)
        *together = all / 5 * 4;
    if (!*each)
        *each = UINT64_MAX;
}

uintptr_t gasnetw_segment_share(uint64_t together, uint64_t each, unsigned processes)
{
    uint64_t share = together / processes;
    if (gasnetw_binding.segment == SEGMENT_EVERYTHING)
        return UINTPTR_MAX;
    if (each < share)
        share = each;
    return share / page * page;
}

/* Weft's own buffers are pinned, too: those of the job's endpoint by now, and later as many for the
 * endpoint of each further domain. */
uint64_t gasnetw_segment_pinnable(void)
{
    const struct weft_ctx *ctx = weft_job_ctx(gasnetw_binding.job);
    uint64_t pinned, left = weft_pinnable(ctx, 0, &pinned);
    if (left == UINT64_MAX)
        return left;
    left = weft_pinnable(ctx, (gasnetw_domains - 1) * pinned, NULL);
    return left / page * page;
}

/* Returns the offset that turns an address of [node] into an address here; 0 if the segment of
 * [node] is not mapped. */
uintptr_t gasnetw_segment_offset(gasnet_node_t node)
{
    const struct gasnetw_segment *s = segments ? &segments[node] : NULL;
    return s && s->remote && s->remote->base ? (uintptr_t)s->remote->base - s->addr : 0;
}

/* ---- finding addresses ---- */

struct weft_remote *gasnetw_segment_at(gasnet_node_t node, const void *addr, size_t nbytes,
                                       const char *what, uint64_t *offset)
{
    const struct gasnetw_segment *s = &segments[node];
    if (WEFT_UNLIKELY(!gasnetw_segment_has(node, (uintptr_t)addr, nbytes) || !s->remote))
        gasnetw_fatal("%s of %zu bytes at %p of node %u: its segment is %zu bytes at %p", what,
                      nbytes, addr, node, (size_t)s->size, (void *)s->addr);
    *offset =
        gasnetw_binding.segment == SEGMENT_EVERYTHING ? (uintptr_t)addr : (uintptr_t)addr - s->addr;
    return s->remote;
}

/* ---- making them ---- */

/* What a node publishes about its segment to all nodes. */
struct segment_card {
    uint64_t addr, size;
    uint32_t failed; /* -enum weft_status */
    uint32_t key_len;
    unsigned char key[WEFT_KEY_MAX];
};

static void nap(unsigned ms)
{
    struct timespec t = {0, (long)ms * 1000000};
    (void)nanosleep(&t, NULL);
}

/* Allocate until every node has its memory, or the tries are used up. All nodes decide together
 * whether to try again, since another process may still hold the memory that is missing. */
static enum weft_status alloc_together(size_t size)
{
    const unsigned access = WEFT_REMOTE_READ | WEFT_REMOTE_WRITE;
    unsigned tries = gasnetw_env_yes("GASNET_SEGMENT_RETRY", true) ? RETRIES : 0;
    uint8_t again, *all = calloc(gasnetw_job.nodes, sizeof *all);
    enum weft_status s = WEFT_OK;
    for (unsigned i = 0; all; i++) {
        enum weft_status met;
        if (size && !gasnetw_binding.mr)
            s = weft_mem_alloc(weft_job_ctx(gasnetw_binding.job), size, access,
                               &gasnetw_binding.mr);
        again = i < tries && (s == WEFT_ENOMEM || s == WEFT_ESYSTEM);
        met = weft_job_allgather(gasnetw_binding.job, &again, sizeof again, all);
        if (met || !memchr(all, 1, gasnetw_job.nodes)) {
            free(all);
            return met ? met : s;
        }
        nap((i + 1) * RETRY_MS);
    }
    return WEFT_ENOMEM;
}

static enum weft_status make_own(size_t size, struct segment_card *card)
{
    size_t room = sizeof card->key;
    uint64_t base;
    enum weft_status s;
    if (gasnetw_binding.segment == SEGMENT_EVERYTHING) {
        s = weft_mr_reg(weft_job_ctx(gasnetw_binding.job), (void *)LOWEST,
                        HIGHEST - LOWEST - LOWEST, WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, 0,
                        EVERYTHING_KEY, 0, &gasnetw_binding.mr, NULL);
        card->addr = LOWEST;
        card->size = HIGHEST - LOWEST - LOWEST;
        if (!s)
            s = weft_mr_raw(gasnetw_binding.mr, &base, card->key, &room, 0);
    } else {
        s = alloc_together(size);
        if (s || !size)
            return s;
        card->addr = (uintptr_t)weft_mr_base(gasnetw_binding.mr);
        card->size = size;
        s = weft_mr_key(gasnetw_binding.mr, card->key, &room);
    }
    card->key_len = (uint32_t)room;
    return s;
}

static enum weft_status open_remote(struct weft_peer *peer, gasnet_node_t node, const void *all,
                                    struct weft_remote **out)
{
    const struct segment_card *card = (const struct segment_card *)all + node;
    struct weft_ctx *ctx = weft_job_ctx(gasnetw_binding.job);
    uint64_t key;
    enum weft_status s;
    if (!card->size)
        return WEFT_OK;
    if (gasnetw_binding.segment != SEGMENT_EVERYTHING)
        return weft_remote_open(peer, card->key, card->key_len, out);
    s = weft_key_map(ctx, card->addr, card->key, card->key_len, &key, 0);
    if (s)
        return s;
    s = weft_remote_open_key(peer, key, out);
    (void)weft_key_unmap(ctx, key); /* the remote stays */
    return s;
}

/* Open the segments in all domains except domain 0. Their endpoints open peers by each node's
 * address. */
static enum weft_status open_domains(const struct segment_card *cards)
{
    struct ep_address mine = {0}, *all;
    size_t room = sizeof mine.bytes;
    enum weft_status s;
    if (gasnetw_domains == 1)
        return WEFT_OK;
    all = calloc(gasnetw_job.nodes, sizeof *all);
    s = all ? weft_ep_address(gasnetw_binding.ep, mine.bytes, &room) : WEFT_ENOMEM;
    mine.len = (uint32_t)room;
    if (!s)
        s = weft_job_allgather(gasnetw_binding.job, &mine, sizeof mine, all);
    if (!s)
        s = gasnetw_domains_open(all, open_remote, cards);
    free(all);
    return s;
}

static enum weft_status open_others(const struct segment_card *cards)
{
    enum weft_status s = WEFT_OK;
    for (gasnet_node_t r = 0; r < gasnetw_job.nodes; r++)
        if (cards[r].failed) {
            fprintf(stderr, "gasnet_attach: node %u has no segment: %s\n", r,
                    weft_status_text((enum weft_status) - (int)cards[r].failed));
            return WEFT_ELIMIT;
        }
    for (gasnet_node_t r = 0; !s && r < gasnetw_job.nodes; r++) {
        segments[r].addr = cards[r].addr;
        segments[r].size = cards[r].size;
        s = open_remote(gasnetw_binding.peers[r], r, cards, &segments[r].remote);
        if (s)
            fprintf(stderr, "gasnet_attach: node %u: the segment of node %u cannot be opened: %s\n",
                    gasnetw_job.mynode, r, weft_status_text(s));
        else if (segments[r].remote) /* traced operations are counted out of line */
            segments[r].inlined =
                gasnetw_tracing || gasnetw_binding.debug ? &gasnetw_unmapped : segments[r].remote;
    }
    return s;
}

static void close_segments(void)
{
    for (gasnet_node_t r = 0; segments && r < gasnetw_job.nodes; r++)
        if (segments[r].remote)
            (void)weft_remote_close(segments[r].remote);
    if (gasnetw_binding.mr)
        (void)weft_mr_close(gasnetw_binding.mr);
    gasnetw_binding.mr = NULL;
}

/* Undo an attach that failed, since the client may try again with a smaller segment. */
static void give_back(void)
{
    close_segments();
    free(segments);
    segments = NULL;
    memset(gasnetw_binding.handlers + CLIENT_HANDLERS, 0,
           (256 - CLIENT_HANDLERS) * sizeof *gasnetw_binding.handlers);
}

static enum weft_status make_segments(size_t size)
{
    struct segment_card mine = {0}, *cards = calloc(gasnetw_job.nodes, sizeof *cards);
    enum weft_status s;
    segments = calloc((size_t)gasnetw_job.nodes + 1,
                      sizeof *segments); /* one more, not mapped: for a node out of range */
    for (gasnet_node_t r = 0; segments && r <= gasnetw_job.nodes; r++)
        segments[r].inlined = &gasnetw_unmapped;
    if (!cards || !segments)
        mine.failed = (uint32_t)-WEFT_ENOMEM;
    else
        mine.failed = (uint32_t) - (int)make_own(size, &mine);
    if (!cards)
        gasnetw_fatal("gasnet_attach: out of memory for %u nodes", gasnetw_job.nodes);
    s = weft_job_allgather(gasnetw_binding.job, &mine, sizeof mine, cards);
    if (!s)
        s = open_others(cards);
    if (s == WEFT_ELIMIT) { /* on all nodes alike */
        give_back();
        free(cards);
        return s;
    }
    if (!s)
        s = open_domains(cards);
    free(cards);
    gasnetw_job.segments = segments;
    return s;
}

/* ---- attach ---- */

static void set_handler(unsigned index, gasnetw_fn_t fn)
{
    if (index < CLIENT_HANDLERS)
        gasnetw_fatal("gasnet_attach: handler index %u: the client's are 128 to 255, or 0 for any",
                      index);
    if (gasnetw_binding.handlers[index])
        gasnetw_fatal("gasnet_attach: handler index %u is twice in the table", index);
    if (!fn)
        gasnetw_fatal("gasnet_attach: handler index %u has a null function", index);
    gasnetw_binding.handlers[index] = fn;
}

/* Enter the handlers. Handlers with a given index come first. Then the other handlers get the free
 * indices from 128 on, in the table's order. */
static void set_handlers(gasnet_handlerentry_t *table, int n)
{
    unsigned next = CLIENT_HANDLERS;
    if (n < 0 || n > 256 - CLIENT_HANDLERS || (n && !table))
        gasnetw_fatal("gasnet_attach: a table of %d handlers: 0 to %d are possible", n,
                      256 - CLIENT_HANDLERS);
    for (int i = 0; i < n; i++)
        if (table[i].index)
            set_handler(table[i].index, (gasnetw_fn_t)table[i].fnptr);
    for (int i = 0; i < n; i++) {
        if (table[i].index)
            continue;
        while (gasnetw_binding.handlers[next])
            next++;
        table[i].index = (gasnet_handler_t)next;
        set_handler(next, (gasnetw_fn_t)table[i].fnptr);
    }
}

static void check_size(uintptr_t segsize)
{
    if (gasnetw_binding.segment == SEGMENT_EVERYTHING)
        return;
    if (segsize % page)
        gasnetw_fatal("gasnet_attach: a segment of %zu bytes: it must be a multiple of "
                      "GASNET_PAGESIZE, %zu",
                      (size_t)segsize, page);
    if (segsize > gasnetw_binding.max_local)
        gasnetw_fatal(
            "gasnet_attach: a segment of %zu bytes: gasnet_getMaxLocalSegmentSize() is %zu",
            (size_t)segsize, (size_t)gasnetw_binding.max_local);
}

int gasnet_attach(gasnet_handlerentry_t *table, int numentries, uintptr_t segsize,
                  uintptr_t minheapoffset)
{
    enum weft_status s;
    (void)minheapoffset; /* the segment is not near the end of the heap */
    if (!gasnetw_binding.job)
        gasnetw_fatal("gasnet_attach before gasnet_init");
    if (gasnetw_binding.attached)
        gasnetw_fatal("gasnet_attach has been called before: once is all");
    check_size(segsize);
    set_handlers(table, numentries);
    gasnetw_op_open();
    gasnetw_vis_open();
    s = make_segments(segsize);
    if (s == WEFT_ELIMIT)
        return GASNET_ERR_RESOURCE;
    if (s)
        gasnetw_fatal("gasnet_attach: %s", weft_status_text(s));
    gasnetw_binding.attached = true;
    gasnetw_coll_open();
    s = weft_job_barrier(gasnetw_binding.job); /* all nodes have their handlers */
    if (s)
        gasnetw_fatal("gasnet_attach: %s", weft_status_text(s));
    gasnetw_am_attached();
    return GASNET_OK;
}

int gasnet_getSegmentInfo(gasnet_seginfo_t *table, int numentries)
{
    if (!gasnetw_binding.attached)
        return GASNET_ERR_NOT_INIT;
    if (numentries < 0 || (numentries && !table))
        return GASNET_ERR_BAD_ARG;
    for (int i = 0; i < numentries && (gasnet_node_t)i < gasnetw_job.nodes; i++) {
        bool all = gasnetw_binding.segment == SEGMENT_EVERYTHING;
        table[i].addr = all ? NULL : (void *)segments[i].addr;
        table[i].size = all ? UINTPTR_MAX : segments[i].size;
    }
    return GASNET_OK;
}
