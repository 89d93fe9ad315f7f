/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's business card (the term is MPICH's): the bytes that a rank publishes through the
 * launcher when the job opens, so that other ranks can reach it. Little-endian, lengths in bytes:
 *
 *   0  u32  magic "WFJC"
 *   4  u16  version, 3
 *   6  u16  length of the endpoint's address, 1..WEFT_ADDR_MAX
 *   8  u16  length of the key of the shared memory that this rank offers to its node (board.h)
 *  10  u16  length of the CPU mask, 0..WF_CARD_MASK_MAX
 *  12  u16  enum wf_card_flags
 *  14  u16  length of the job's secret: WF_SECRET, or 0. Only the card of rank 0 can have a secret
 *  16  u64  wf_boot_id: which machine the rank runs on
 *  24       address; key; mask, where bit i % 8 of byte i / 8 is set if the rank may run on CPU i;
 *           secret
 *
 * The parser accepts a mask of any allowed length, and does not parse the address. Bytes after the
 * secret are an error.
 *
 * With the secret, ranks on different nodes prove to each other that they belong to this job. If
 * the launcher gave no secret (launch.h), rank 0 draws one and publishes it in its card, or by
 * itself, before the ranks have endpoints (wf_launch_share_secret). The secret is as private as the
 * launcher's own channel. */
#ifndef WF_JOB_CARD_H
#define WF_JOB_CARD_H

#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

#define WF_CARD_MAGIC 0x434a4657u
#define WF_CARD_VERSION 3
#define WF_CARD_HEAD 24
#define WF_CARD_MASK_MAX 1024 /* 8192 cpus: the kernel's largest CONFIG_NR_CPUS on x86 */
#define WF_SECRET 32          /* bytes */
#define WF_CARD_MAX (WF_CARD_HEAD + WEFT_ADDR_MAX + WEFT_KEY_MAX + WF_CARD_MASK_MAX + WF_SECRET)

enum wf_card_flags {
    WF_CARD_SHARES = 1, /* this rank uses shared memory with the other ranks of its node */
    /* This rank maps memory of other ranks of its node, and lets them map its memory. */
    WF_CARD_MAPS = 2,
};

struct wf_card {
    uint16_t addr_len;
    uint16_t key_len;
    uint16_t mask_len;
    uint16_t flags;
    uint16_t secret_len;
    uint64_t boot;
    unsigned char addr[WEFT_ADDR_MAX];
    unsigned char key[WEFT_KEY_MAX];
    unsigned char mask[WF_CARD_MASK_MAX];
    unsigned char secret[WF_SECRET];
};

/* Draw a job's secret. Returns OK | ESYSTEM, logged */
enum weft_status wf_card_draw_secret(unsigned char secret[WF_SECRET]);

/* Fill in the mask of [card] from the calling thread's CPU affinity. */
void wf_card_set_mask(struct wf_card *card);

/* Write [card] to [bytes], which has room for WF_CARD_MAX. Returns the number of bytes written. */
size_t wf_card_pack(const struct wf_card *card, unsigned char *bytes);

/* Parse [len] bytes. Sets *card only on OK. Returns OK | EVERSION | EPROTO (not a valid card) */
enum weft_status wf_card_parse(const void *bytes, size_t len, struct wf_card *card);

/* Returns how many bits are set in [mask]. */
unsigned wf_card_mask_count(const unsigned char *mask, size_t len);

#endif
