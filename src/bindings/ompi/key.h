/* SPDX-License-Identifier: BSD-3-Clause */
/* The key by which this process and ranks on other nodes authenticate each other: key.c. */
#ifndef WBTL_KEY_H
#define WBTL_KEY_H

#include "binding.h"

/* The context is open, and no endpoint is. If WEFT_KEY_FILE has no key: rank 0 draws the key, sets
 * it and writes it to its card; with WEFT_NODE=1 it also publishes the key at once, and the other
 * ranks wait for it, at most 30 s, and set it. A rank that gets none sets the key later, from the
 * card. Returns OK | a failure of weft_ctx_set_key */
enum weft_status wbtl_key_open(struct wbtl_card *card);
/* Ask the launcher for rank 0's card, and set its key. Only a thread that drains calls this. */
void wbtl_key_get(void);
/* Find the key by which this process and [peer] authenticate each other over a network. Only a
 * thread that drains calls this. Returns OK | EUNREACH (there is none, which is reported) | a
 * failure of weft_ctx_set_key */
enum weft_status wbtl_key_find(const wbtl_peer *peer);

#endif
