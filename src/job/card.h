/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank tells the others about itself when the job opens, as bytes that
 * travel through the launcher. Little-endian:
 *
 *   0  u32  magic "WFJC"
 *   4  u16  version, 2
 *   6  u16  bytes of endpoint address, 1..WEFT_ADDR_MAX
 *   8  u16  bytes of key of the board that this rank would host
 *  10  u16  bytes of cpu mask, 0..WF_CARD_MASK_MAX
 *  12  u16  enum wf_card_flags
 *  14  u16  bytes of the job's secret: 0, or of rank 0 WF_SECRET
 *  16       address, key, mask: bit i % 8 of byte i / 8 is cpu i, which the
 *           rank may run on; secret
 *
 * A mask of another length or an address this build cannot read is the
 * reader's to judge; anything after the secret is an error.
 *
 * The secret is what ranks on several nodes prove to each other that they are of
 * this job. Rank 0 draws it and gives it here unless the launcher gave one
 * (launch.h): it is as private as the launcher's own channel. */
#ifndef WF_JOB_CARD_H
#define WF_JOB_CARD_H

#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#define WF_CARD_MAGIC 0x434a4657u
#define WF_CARD_VERSION 2
#define WF_CARD_HEAD 16
#define WF_CARD_MASK_MAX 1024 /* 8192 cpus: the kernel's largest CONFIG_NR_CPUS on x86 */
#define WF_SECRET 32          /* bytes */
#define WF_CARD_MAX (WF_CARD_HEAD + WEFT_ADDR_MAX + WEFT_KEY_MAX + WF_CARD_MASK_MAX + WF_SECRET)

enum wf_card_flags {
    WF_CARD_SHARES = 1, /* this rank speaks with node-mates through shared memory */
    WF_CARD_MAPS = 2,   /* and maps theirs, as they may map its own */
};

struct wf_card {
    uint16_t addr_len;
    uint16_t key_len;
    uint16_t mask_len;
    uint16_t flags;
    uint16_t secret_len;
    unsigned char addr[WEFT_ADDR_MAX];
    unsigned char key[WEFT_KEY_MAX];
    unsigned char mask[WF_CARD_MASK_MAX];
    unsigned char secret[WF_SECRET];
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
