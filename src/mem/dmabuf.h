/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that a program passes to Weft as a file descriptor. The descriptor is that of a file, or
 * of a dma-buf, which is a device's memory in most cases. Processors access the memory through a
 * mapping, after wf_dmabuf_begin and before wf_dmabuf_end. */
#ifndef WF_MEM_DMABUF_H
#define WF_MEM_DMABUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

struct wf_dmabuf {
    int fd;           /* a duplicate of the program's descriptor; -1: none */
    bool is_real;     /* true: a dma-buf; false: a file, such as a memfd */
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

/* Duplicate [fd], and map the bytes [offset, offset + len) of the duplicate. [len] must be above 0.
 *
 * Returns OK | EINVAL ([fd] is no dma-buf or file, is too short, or does not permit the access;
 * logged at level info) | EMEMTYPE (the memory cannot be mapped; logged) | ELIMIT (no descriptor is
 * left) | ENOMEM */
enum weft_status wf_dmabuf_open(int fd, uint64_t offset, size_t len, bool write,
                                struct wf_dmabuf *out);
void wf_dmabuf_close(struct wf_dmabuf *d);

/* Begin access by processors. Blocks while the device that owns the memory is writing to it, if
 * the device's driver reports these writes to the kernel. Returns false if processors may not
 * access the memory; the first such failure of the process is logged. */
bool wf_dmabuf_begin(const struct wf_dmabuf *d);
/* End access by processors. */
void wf_dmabuf_end(const struct wf_dmabuf *d);

#endif
