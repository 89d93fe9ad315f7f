/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's business card (the term is MPICH's): what it publishes through the launcher when the job
 * opens, so that the others can reach it. Little-endian:
 *
 *   0  u32  magic "WFJC"
 *   4  u16  version, 2
 *   6  u16  bytes of endpoint address, 1..WEFT_ADDR_MAX
 *   8  u16  bytes of key of the board that this rank would host
 *  10  u16  bytes of cpu mask, 0..WF_CARD_MASK_MAX
 *  12  u16  enum wf_card_flags
 *  14  u16  bytes of the job's secret: 0, or WF_SECRET (only rank 0)
 *  16       address; key; mask, where bit i % 8 of byte i / 8 is set if the rank may run on cpu i;
 *           secret
 *
 * The reader decides what it makes of a mask of another length, or of an address that this build
 * cannot read. Bytes after the secret are an error.
 *
 * By the secret, ranks on different nodes prove to each other that they belong to this job. Rank 0
 * draws it and publishes it here unless the launcher gave one (launch.h). It is as private as the
 * launcher's own channel. */
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
    WF_CARD_SHARES = 1, /* this rank uses shared memory with the others of its node */
    WF_CARD_MAPS = 2,   /* and maps their memory, as they may map its own */
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

/* Fill in the calling thread's affinity mask. */
void wf_card_set_mask(struct wf_card *card);

/* Write [card] to [bytes] (WF_CARD_MAX of room). Returns the bytes used. */
size_t wf_card_pack(const struct wf_card *card, unsigned char *bytes);

/* Returns OK | EVERSION | EPROTO; *card is set on OK only. */
enum weft_status wf_card_parse(const void *bytes, size_t len, struct wf_card *card);

/* How many bits are set. */
unsigned wf_card_mask_count(const unsigned char *mask, size_t len);

#endif
