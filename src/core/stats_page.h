/* SPDX-License-Identifier: BSD-3-Clause */
/* Layout of the segment in which a context keeps the counters of its endpoints. The segment is a
 * memfd named WF_STATS_NAME. It is sealed: only the process that made it can write it, and nobody
 * can truncate it. Another process of the same user finds it in /proc/PID/fd. `weft info --stats`
 * maps it read-only; the owner does not notice.
 *
 * The head holds the names of the counters one after the other, each ended by a zero byte. Behind
 * the head are [slots] slots of [slot_size] bytes. Slot 0 has the sums for closed endpoints. Each
 * other slot has the counters of one endpoint. A slot is a struct wf_stats_slot with the counters
 * behind it.
 *
 * The tool `weft` includes this file, so this file includes no other header of Weft. */
#ifndef WF_CORE_STATS_PAGE_H
#define WF_CORE_STATS_PAGE_H

#include <stddef.h>
#include <stdint.h>

#define WF_STATS_NAME "weft-stats"
#define WF_STATS_MAGIC UINT64_C(0x3153544154465457) /* "WTFTATS1" */
#define WF_STATS_LAYOUT 1u
#define WF_STATS_HEAD 4096u
#define WF_STATS_NAMES (WF_STATS_HEAD - 128u)
#define WF_STATS_SLOTS 65536u /* slot 0, and one for each of the 65,535 endpoint ids */

struct wf_stats_head {
    uint64_t magic;
    uint32_t layout;
    uint32_t counters;  /* number of counters in each slot */
    uint32_t slot_size; /* bytes */
    uint32_t slots;
    char version[24]; /* of the library, ended by a zero byte */
    uint64_t pid; /* the process that made the segment; a forked child has its descriptor, too */
    uint64_t reserved[7];
    uint64_t changes; /* odd while the counters of a closed endpoint are added to slot 0 */
    uint64_t used;    /* slots with this index or a higher one were never used */
    char names[WF_STATS_NAMES];
};
_Static_assert(sizeof(struct wf_stats_head) == WF_STATS_HEAD, "read by other processes");
_Static_assert(offsetof(struct wf_stats_head, changes) == 112, "read by other processes");
_Static_assert(offsetof(struct wf_stats_head, names) == 128, "read by other processes");

struct wf_stats_slot {
    uint64_t endpoint; /* 0 if the slot is free; else 1 + endpoint id + (its generation << 32) */
    uint64_t counters[];
};

#endif
