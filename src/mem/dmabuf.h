/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that a program names by a descriptor: a dma-buf, mostly a device's. Processors reach it by
 * a mapping, and what they do there lies between begin and end. */
#ifndef WF_MEM_DMABUF_H
#define WF_MEM_DMABUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

struct wf_dmabuf {
    int fd;           /* an own one; -1: none */
    bool is_real;     /* else a file, as a memfd is */
    bool is_writable; /* by processors */
    uint64_t offset;
    unsigned char *base; /* of [len] bytes */
    size_t len;
    void *map;
    size_t map_len;
};
#define WF_DMABUF_NONE                                                                             \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* The bytes [offset, offset + len) of [fd], which is duplicated; [len] > 0.
 * Returns OK | EINVAL (no dma-buf or file, or not so long; or only to be read: logged at info)
 * | EMEMTYPE (it cannot be mapped: logged) | ELIMIT (descriptors) | ENOMEM */
enum weft_status wf_dmabuf_open(int fd, uint64_t offset, size_t len, bool write,
                                struct wf_dmabuf *out);
void wf_dmabuf_close(struct wf_dmabuf *d);

/* Processors are about to touch it. Blocks while the device that it is of writes it, as far as its
 * driver says so. False: they may not (logged once) */
bool wf_dmabuf_begin(const struct wf_dmabuf *d);
/* They have. */
void wf_dmabuf_end(const struct wf_dmabuf *d);

#endif
