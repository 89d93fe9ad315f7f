/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of weft_key_map. It gives a 64-bit name to a raw key (bytes that describe a region).
 * The name holds the key's index in this table, 39 random bits above the index, and a one as the
 * highest bit. Any thread may call these functions. */
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
    uint64_t mapped; /* the item's 64-bit name; 0: the item is free */
    bool is_raw;     /* true: the key is in [raw]; false: it is the 64-bit key [plain] */
    uint32_t next;   /* next in the list of free items: its index + 1; 0: none */
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
/* Store in *out the key that the 64-bit name [key] stands for. Returns false if [key] does not come
 * from weft_key_map. */
bool wf_keymap_find(struct wf_keymap *m, uint64_t key, struct wf_keymap_item *out);

#endif
