/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank tells the others about itself when the job opens, as bytes that
 * travel through the launcher. Little-endian:
 *
 *   0  u32  magic "WFJC"
 *   4  u16  version, 1
 *   6  u16  bytes of endpoint address, 1..WEFT_ADDR_MAX
 *   8  u16  bytes of key of the job's board; 0: this rank does not host it
 *  10  u16  bytes of cpu mask, 0..WF_CARD_MASK_MAX
 *  12       address, key, mask: bit i % 8 of byte i / 8 is cpu i, which the
 *           rank may run on
 *
 * A mask of another length or an address this build cannot read is the
 * reader's to judge; anything after the mask is an error. */
#ifndef WF_JOB_CARD_H
#define WF_JOB_CARD_H

#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#define WF_CARD_MAGIC 0x434a4657u
#define WF_CARD_VERSION 1
#define WF_CARD_HEAD 12
#define WF_CARD_MASK_MAX 1024 /* 8192 cpus: the kernel's largest CONFIG_NR_CPUS on x86 */
#define WF_CARD_MAX (WF_CARD_HEAD + WEFT_ADDR_MAX + WEFT_KEY_MAX + WF_CARD_MASK_MAX)

struct wf_card {
    uint16_t addr_len;
    uint16_t key_len;
    uint16_t mask_len;
    unsigned char addr[WEFT_ADDR_MAX];
    unsigned char key[WEFT_KEY_MAX];
    unsigned char mask[WF_CARD_MASK_MAX];
};

/* Fill in the mask of this thread. */
void wf_card_set_mask(struct wf_card *card);

/* Write [card] to [bytes] (WF_CARD_MAX of room). Returns the bytes used. */
size_t wf_card_pack(const struct wf_card *card, unsigned char *bytes);

/* Returns OK | EVERSION | EPROTO; *card is set on OK only. */
enum weft_status wf_card_parse(const void *bytes, size_t len, struct wf_card *card);

/* How many bits are set. */
unsigned wf_card_mask_count(const unsigned char *mask, size_t len);

#endif
