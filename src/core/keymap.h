/* SPDX-License-Identifier: BSD-3-Clause */
/* Raw keys that were mapped to keys of 64 bits (weft_key_map). A mapped key names its place in
 * the table, and has 39 random bits and a one above. Any thread. */
#ifndef WF_CORE_KEYMAP_H
#define WF_CORE_KEYMAP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <weft/weft.h>

#include "base/util.h"
#include "transport/address.h"

struct wf_keymap_item {
    uint64_t mapped; /* 0: free */
    bool is_raw;     /* else a key of 64 bits */
    uint32_t next;   /* free ones: index + 1 */
    uint64_t plain;
    uint8_t raw[WEFT_KEY_MAX];
    uint32_t raw_len;
};

struct wf_keymap {
    pthread_mutex_t lock;
    struct wf_keymap_item *items WF_GUARDED_BY(lock); /* [room] */
    uint32_t room WF_GUARDED_BY(lock), free WF_GUARDED_BY(lock), used WF_GUARDED_BY(lock);
    uint64_t random WF_GUARDED_BY(lock);
};

void wf_keymap_init(struct wf_keymap *m, uint64_t seed);
void wf_keymap_fini(struct wf_keymap *m);
/* Is any key mapped? */
bool wf_keymap_busy(struct wf_keymap *m);
/* Find what [key] was mapped from; false: it is not a mapped key. */
bool wf_keymap_find(struct wf_keymap *m, uint64_t key, struct wf_keymap_item *out);

#endif
