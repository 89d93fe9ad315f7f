/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges whose pages the program dropped (madvise). The monitor cannot tell when the kernel removed
 * the pages, so a cache keeps no registration there, before the program has unmapped the range. */
#ifndef WF_MEM_CACHE_TAINT_H
#define WF_MEM_CACHE_TAINT_H

#include <stdbool.h>
#include <stdint.h>

/* The most ranges of a set. Beyond it, the two nearest ranges are joined. */
#define WF_TAINTS 1024

struct wf_taint {
    uintptr_t start, end;
    uint64_t last; /* number in the log of the latest change that dropped pages here */
};

/* All zero: empty. */
struct wf_taints {
    unsigned n;
    /* From the latest probe that found no change under way: all changes numbered below probe_begin
     * were in the log before the probe, and each change numbered probe_end or higher began after
     * the probe. */
    uint64_t probe_begin, probe_end;
    struct wf_taint taint[WF_TAINTS];
};

void wf_taint_add(struct wf_taints *t, uintptr_t start, uintptr_t end, uint64_t number);
/* Called when the change numbered [number] in the log unmapped [start, end). Removes this range
 * from the tainted ranges. The range stays tainted if its pages may have been dropped after the
 * unmapping. */
void wf_taint_cut(struct wf_taints *t, uintptr_t start, uintptr_t end, uint64_t number);
/* A probe found no change under way. All changes numbered below [before] were in the log before the
 * probe, and those below [next] were in it when it was read after the probe. */
void wf_taint_probed(struct wf_taints *t, uint64_t before, uint64_t next);
bool wf_is_tainted(const struct wf_taints *t, uintptr_t start, uintptr_t end);

#endif
