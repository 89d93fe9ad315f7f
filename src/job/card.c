/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "job/card.h"

#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"

_Static_assert(WF_CARD_MAX == 1272, "the card's size is the protocol's");

static void put_le(unsigned char *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get_le(const unsigned char *at, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

enum weft_status wf_card_draw_secret(unsigned char secret[WF_SECRET])
{
    if (getrandom(secret, WF_SECRET, 0) == WF_SECRET)
        return WEFT_OK;
    wf_error("getrandom: %m");
    return WEFT_ESYSTEM;
}

void wf_card_set_mask(struct wf_card *card)
{
    cpu_set_t *set = CPU_ALLOC(8 * WF_CARD_MASK_MAX);
    card->mask_len = 0;
    memset(card->mask, 0, sizeof card->mask);
    if (!set)
        return;
    if (!sched_getaffinity(0, WF_CARD_MASK_MAX, set))
        for (unsigned cpu = 0; cpu < 8 * WF_CARD_MASK_MAX; cpu++)
            if (CPU_ISSET_S(cpu, WF_CARD_MASK_MAX, set)) {
                card->mask[cpu / 8] |= (unsigned char)(1u << cpu % 8);
                card->mask_len = (uint16_t)(cpu / 8 + 1);
            }
    CPU_FREE(set);
}

size_t wf_card_pack(const struct wf_card *card, unsigned char *bytes)
{
    unsigned char *at = bytes + WF_CARD_HEAD;
    put_le(bytes, WF_CARD_MAGIC, 4);
    put_le(bytes + 4, WF_CARD_VERSION, 2);
    put_le(bytes + 6, card->addr_len, 2);
    put_le(bytes + 8, card->key_len, 2);
    put_le(bytes + 10, card->mask_len, 2);
    put_le(bytes + 12, card->flags, 2);
    put_le(bytes + 14, card->secret_len, 2);
    put_le(bytes + 16, card->boot, 8);
    memcpy(at, card->addr, card->addr_len);
    at += card->addr_len;
    memcpy(at, card->key, card->key_len);
    at += card->key_len;
    memcpy(at, card->mask, card->mask_len);
    at += card->mask_len;
    memcpy(at, card->secret, card->secret_len);
    return (size_t)(at - bytes) + card->secret_len;
}

static bool has_good_lengths(const struct wf_card *c, size_t len)
{
    return c->addr_len && c->addr_len <= WEFT_ADDR_MAX && c->key_len <= WEFT_KEY_MAX &&
           c->mask_len <= WF_CARD_MASK_MAX && (!c->secret_len || c->secret_len == WF_SECRET) &&
           len == (size_t)WF_CARD_HEAD + c->addr_len + c->key_len + c->mask_len + c->secret_len;
}

enum weft_status wf_card_parse(const void *bytes, size_t len, struct wf_card *card)
{
    const unsigned char *at = bytes;
    struct wf_card c = {0};
    if (len < WF_CARD_HEAD || get_le(at, 4) != WF_CARD_MAGIC)
        return WEFT_EPROTO;
    if (get_le(at + 4, 2) != WF_CARD_VERSION)
        return WEFT_EVERSION;
    c.addr_len = (uint16_t)get_le(at + 6, 2);
    c.key_len = (uint16_t)get_le(at + 8, 2);
    c.mask_len = (uint16_t)get_le(at + 10, 2);
    c.flags = (uint16_t)get_le(at + 12, 2);
    c.secret_len = (uint16_t)get_le(at + 14, 2);
    c.boot = get_le(at + 16, 8);
    if (!has_good_lengths(&c, len))
        return WEFT_EPROTO;
    at += WF_CARD_HEAD;
    memcpy(c.addr, at, c.addr_len);
    at += c.addr_len;
    memcpy(c.key, at, c.key_len);
    at += c.key_len;
    memcpy(c.mask, at, c.mask_len);
    at += c.mask_len;
    memcpy(c.secret, at, c.secret_len);
    *card = c;
    return WEFT_OK;
}

unsigned wf_card_mask_count(const unsigned char *mask, size_t len)
{
    unsigned count = 0;
    for (size_t i = 0; i < len; i++)
        count += (unsigned)__builtin_popcount(mask[i]);
    return count;
}
