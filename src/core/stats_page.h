/* SPDX-License-Identifier: BSD-3-Clause */
/* The segment in which a context keeps its endpoints' counters, as another
 * process of the same user finds it: a memfd named WF_STATS_NAME among
 * /proc/PID/fd, sealed so that only its owner can write and nobody can truncate
 * it. `weft info --stats` maps it read-only, without the owner's knowledge.
 *
 * The head holds the counters' names one after the other, each ended by a zero
 * byte. [slots] slots of [slot_size] bytes follow it: slot 0 has the sums of
 * closed endpoints, each other slot the counters of one endpoint. A slot is a
 * struct wf_stats_slot with the counters behind it.
 *
 * The tool includes this file, so it includes no other of Weft's. */
#ifndef WF_CORE_STATS_PAGE_H
#define WF_CORE_STATS_PAGE_H

#include <stddef.h>
#include <stdint.h>

#define WF_STATS_NAME "weft-stats"
#define WF_STATS_MAGIC UINT64_C(0x3153544154465457) /* "WTFTATS1" */
#define WF_STATS_LAYOUT 1u
#define WF_STATS_HEAD 4096u
#define WF_STATS_NAMES (WF_STATS_HEAD - 128u)
#define WF_STATS_SLOTS 65536u /* as many as there are endpoint ids, slot 0 apart */

struct wf_stats_head {
    uint64_t magic;
    uint32_t layout;
    uint32_t counters;  /* in each slot */
    uint32_t slot_size; /* bytes */
    uint32_t slots;
    char version[24]; /* of the library, ended by a zero byte */
    uint64_t pid;     /* the owner's; a forked child holds the descriptor, too */
    uint64_t reserved[7];
    uint64_t changes; /* odd while a slot's counters move to slot 0 */
    uint64_t used;    /* slots from here on were never used */
    char names[WF_STATS_NAMES];
};
_Static_assert(sizeof(struct wf_stats_head) == WF_STATS_HEAD, "read by other processes");
_Static_assert(offsetof(struct wf_stats_head, changes) == 112, "read by other processes");
_Static_assert(offsetof(struct wf_stats_head, names) == 128, "read by other processes");

struct wf_stats_slot {
    uint64_t endpoint; /* 0: free; else 1 + id + (generation << 32) */
    uint64_t counters[];
};

#endif
