/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "core/stats.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/util.h"
#include "mem/mem.h"

/* Alignment of slots in bytes: two cache lines. x86 processors prefetch lines in pairs, and
 * different threads write neighbouring slots. */
#define SLOT_ALIGN 128u
#define SLOT_SIZE                                                                                  \
    ((sizeof(struct wf_stats_slot) + WF_STATS * sizeof(uint64_t) + SLOT_ALIGN - 1) / SLOT_ALIGN *  \
     SLOT_ALIGN)

static const char names[] =
#define WF_STAT(name, doc) #name "\0"
#include "config/stats.def"
#undef WF_STAT
    ;
_Static_assert(sizeof names <= WF_STATS_NAMES, "the counters' names fit the head");

static struct wf_stats_slot *slot_at(const struct wf_stats *stats, size_t i)
{
    return (struct wf_stats_slot *)(void *)(stats->slots + i * SLOT_SIZE);
}

/* Other processes read these words at any time, so each word is stored atomically. */
static void set(uint64_t *word, uint64_t v)
{
    __atomic_store_n(word, v, __ATOMIC_RELAXED);
}

static void publish(uint64_t *word, uint64_t v)
{
    __atomic_store_n(word, v, __ATOMIC_RELEASE);
}

static uint64_t get(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

enum weft_status wf_stats_open(struct wf_stats *stats)
{
    size_t size = WF_STATS_HEAD + WF_STATS_SLOTS * SLOT_SIZE;
    void *base;
    int fd = wf_shared_create(WF_STATS_NAME, size, 1, &base);
    if (fd < 0)
        return WEFT_ESYSTEM;
    *stats = (struct wf_stats){.head = base,
                               .slots = (unsigned char *)base + WF_STATS_HEAD,
                               .size = size,
                               .first = 1,
                               .fd = fd};
    stats->head->layout = WF_STATS_LAYOUT;
    stats->head->counters = WF_STATS;
    stats->head->slot_size = SLOT_SIZE;
    stats->head->slots = WF_STATS_SLOTS;
    stats->head->pid = (uint64_t)getpid();
    strncpy(stats->head->version, WEFT_VERSION_STRING, sizeof stats->head->version - 1);
    memcpy(stats->head->names, names, sizeof names);
    set(&stats->head->used, 1);
    /* Release of the pair "stats page": a reader (tools/weft/stats_read.c) that sees the magic
     * number sees the whole head. */
    publish(&stats->head->magic, WF_STATS_MAGIC);
    return WEFT_OK;
}

void wf_stats_close(struct wf_stats *stats)
{
    if (!stats->head)
        return;
    munmap(stats->head, stats->size);
    close(stats->fd);
    stats->head = NULL;
}

uint64_t *wf_stats_take(struct wf_stats *stats, uint16_t id, uint32_t generation)
{
    struct wf_stats_slot *slot;
    uint32_t i = stats->first;
    while (i < WF_STATS_SLOTS && get(&slot_at(stats, i)->endpoint))
        i++;
    stats->first = i;
    if (i == WF_STATS_SLOTS)
        return NULL;
    slot = slot_at(stats, i);
    memset(slot->counters, 0, WF_STATS * sizeof(uint64_t));
    /* Release of the pair "stats slot": a reader that sees the endpoint's name in the slot sees the
     * counters of this endpoint, not those of an earlier endpoint. */
    publish(&slot->endpoint, 1u + id + ((uint64_t)generation << 32));
    stats->first++;
    if (stats->first > get(&stats->head->used))
        publish(&stats->head->used, stats->first);
    return slot->counters;
}

/* [changes] is a sequence counter. A reader that finds it odd, or changed after reading, reads
 * again. So counters that move to slot 0 are neither missed nor counted twice. */
void wf_stats_give(struct wf_stats *stats, uint64_t *counters)
{
    struct wf_stats_slot *past = slot_at(stats, 0);
    struct wf_stats_slot *slot = wf_container_of(counters, struct wf_stats_slot, counters);
    uint32_t i = (uint32_t)((size_t)((unsigned char *)slot - stats->slots) / SLOT_SIZE);
    uint64_t changes = get(&stats->head->changes);
    set(&stats->head->changes, changes + 1);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    for (int k = 0; k < WF_STATS; k++)
        set(&past->counters[k], get(&past->counters[k]) + get(&counters[k]));
    set(&slot->endpoint, 0);
    publish(&stats->head->changes, changes + 2);
    stats->first = WF_MIN(stats->first, i);
}

void wf_stats_sum(const struct wf_stats *stats, uint64_t sum[WF_STATS])
{
    uint64_t used = get(&stats->head->used);
    memset(sum, 0, WF_STATS * sizeof *sum);
    for (size_t i = 0; i < used; i++) {
        const struct wf_stats_slot *slot = slot_at(stats, i);
        for (int k = 0; (i == 0 || get(&slot->endpoint)) && k < WF_STATS; k++)
            sum[k] += get(&slot->counters[k]);
    }
}
