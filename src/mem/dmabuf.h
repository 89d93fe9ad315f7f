/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that a program names by a descriptor: a dma-buf, in most cases a device's memory, or a
 * file. Processors access it through a mapping, between wf_dmabuf_begin and wf_dmabuf_end. */
#ifndef WF_MEM_DMABUF_H
#define WF_MEM_DMABUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

struct wf_dmabuf {
    int fd;           /* a duplicate of the program's; -1: none */
    bool is_real;     /* a dma-buf; else a file, such as a memfd */
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

/* Map the bytes [offset, offset + len) of a duplicate of [fd]; [len] > 0.
 * Returns OK | EINVAL (no dma-buf or file, or too short; or only to be read: logged at info) |
 * EMEMTYPE (it cannot be mapped: logged) | ELIMIT (descriptors) | ENOMEM */
enum weft_status wf_dmabuf_open(int fd, uint64_t offset, size_t len, bool write,
                                struct wf_dmabuf *out);
void wf_dmabuf_close(struct wf_dmabuf *d);

/* Begin access by processors. Blocks while the exporting device writes, if its driver reports
 * that. False: no access (logged once). */
bool wf_dmabuf_begin(const struct wf_dmabuf *d);
/* End access by processors. */
void wf_dmabuf_end(const struct wf_dmabuf *d);

#endif
