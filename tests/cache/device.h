/* SPDX-License-Identifier: BSD-3-Clause */
/* A device that pins memory as a NIC does, on any Linux: io_uring's fixed buffers. What is sent
 * from a registration is what the pages held that were there when it was made: if they are not
 * those of the address any more, other bytes come out. */
#ifndef TEST_CACHE_DEVICE_H
#define TEST_CACHE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mem/cache/cache.h"

struct device;

/* [slots] registrations at a time. Null: there is no io_uring here (errno). */
struct device *device_open(unsigned slots);
void device_close(struct device *d);

/* To be handed to a cache. ELIMIT: no slot, or RLIMIT_MEMLOCK, or no memory. */
struct wf_reg_ops device_reg_ops(struct device *d);

/* What a thread transfers through. */
struct line;
struct line *line_open(struct device *d);
void line_close(struct line *l);

/* The [len] <= 4096 bytes that the registration [handle] has for [addr]. */
bool line_send(struct line *l, void *handle, const void *addr, size_t len, void *out);
/* Write [len] <= 4096 bytes through the registration. */
bool line_receive(struct line *l, void *handle, void *addr, size_t len, const void *in);

struct device_counts {
    uint64_t regs, deregs, refused;
    unsigned now, most; /* registered */
};
void device_count(struct device *d, struct device_counts *out);

#endif
