/* SPDX-License-Identifier: BSD-3-Clause */
/* Raw keys that were mapped to keys of 64 bits (weft_key_map). A mapped key holds its index in the
 * table, 39 random bits above it, and a one as the highest bit. Any thread. */
#ifndef WF_CORE_KEYMAP_H
#define WF_CORE_KEYMAP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <weft/weft.h>

#include "base/lock.h"
#include "base/util.h"
#include "transport/address.h"

struct wf_keymap_item {
    uint64_t mapped; /* 0: free */
    bool is_raw;     /* [raw]; else [plain], a key of 64 bits */
    uint32_t next;   /* in the list of free items: index + 1 */
    uint64_t plain;
    uint8_t raw[WEFT_KEY_MAX];
    uint32_t raw_len;
};

WF_LOCK_CLASS(wf_keymap_lock_class); /* struct wf_keymap.lock */

struct wf_keymap {
    pthread_mutex_t lock;
    struct wf_keymap_item *items WF_UNDER(wf_keymap_lock_class); /* [room] */
    uint32_t room WF_UNDER(wf_keymap_lock_class), free WF_UNDER(wf_keymap_lock_class),
        used WF_UNDER(wf_keymap_lock_class);
    uint64_t random WF_UNDER(wf_keymap_lock_class);
};

void wf_keymap_init(struct wf_keymap *m, uint64_t seed);
void wf_keymap_fini(struct wf_keymap *m);
/* Is any key mapped? */
bool wf_keymap_busy(struct wf_keymap *m);
/* *out: the key that [key] was mapped from. False: [key] is not a mapped key. */
bool wf_keymap_find(struct wf_keymap *m, uint64_t key, struct wf_keymap_item *out);

#endif
