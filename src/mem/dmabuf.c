/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "mem/dmabuf.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

/* Returns whether [fd] is a dma-buf. Since Linux 5.3, dma-bufs are in a file system of their
 * own. */
static bool is_dmabuf(int fd)
{
    struct statfs s;
    return !fstatfs(fd, &s) && (uint32_t)s.f_type == DMA_BUF_MAGIC;
}

static bool is_long_enough(int fd, uint64_t offset, size_t len)
{
    struct stat s;
    return !fstat(fd, &s) && (S_ISREG(s.st_mode) || is_dmabuf(fd)) && s.st_size > 0 &&
           len <= (uint64_t)s.st_size && offset <= (uint64_t)s.st_size - len;
}

static enum weft_status map(struct wf_dmabuf *d)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), in_page = d->offset & (page - 1);
    int protection = PROT_READ | (d->is_writable ? PROT_WRITE : 0);
    void *at =
        mmap(NULL, d->len + in_page, protection, MAP_SHARED, d->fd, (off_t)(d->offset - in_page));
    if (at != MAP_FAILED) {
        d->map = at;
        d->map_len = d->len + in_page;
        d->base = (unsigned char *)at + in_page;
        return WEFT_OK;
    }
    if (errno == ENOMEM)
        return WEFT_ENOMEM;
    if (errno == EACCES || errno == EPERM) {
        wf_info("descriptor %d does not allow what peers shall do: mmap: %m", d->fd);
        return WEFT_EINVAL;
    }
    wf_error("memory of descriptor %d cannot be registered: who does not come by a NIC needs a "
             "mapping, and its driver gives none: mmap: %m",
             d->fd);
    return WEFT_EMEMTYPE;
}

enum weft_status wf_dmabuf_open(int fd, uint64_t offset, size_t len, bool write,
                                struct wf_dmabuf *out)
{
    struct wf_dmabuf d = {.is_writable = write, .offset = offset, .len = len};
    enum weft_status status;
    if (fd < 0 || !is_long_enough(fd, offset, len)) {
        wf_info("descriptor %d: no dma-buf or file of %llu and %zu bytes", fd,
                (unsigned long long)offset, len);
        return WEFT_EINVAL;
    }
    d.is_real = is_dmabuf(fd);
    d.fd = wf_fd_dup(fd);
    if (d.fd < 0)
        return WEFT_ELIMIT;
    status = map(&d);
    if (status == WEFT_OK)
        *out = d;
    else
        close(d.fd);
    return status;
}

void wf_dmabuf_close(struct wf_dmabuf *d)
{
    if (d->fd < 0)
        return;
    (void)munmap(d->map, d->map_len);
    close(d->fd);
    d->fd = -1;
}

static bool sync_it(const struct wf_dmabuf *d, uint64_t which)
{
    static atomic_bool told;
    struct dma_buf_sync s = {.flags =
                                 which | (d->is_writable ? DMA_BUF_SYNC_RW : DMA_BUF_SYNC_READ)};
    int failed;
    if (!d->is_real)
        return true;
    do
        failed = ioctl(d->fd, DMA_BUF_IOCTL_SYNC, &s);
    while (failed && (errno == EINTR || errno == EAGAIN));
    if (failed && !atomic_exchange(&told, true))
        wf_error("a dma-buf cannot be touched by processors: DMA_BUF_IOCTL_SYNC: %m");
    return !failed;
}

bool wf_dmabuf_begin(const struct wf_dmabuf *d)
{
    return sync_it(d, DMA_BUF_SYNC_START);
}

void wf_dmabuf_end(const struct wf_dmabuf *d)
{
    (void)sync_it(d, DMA_BUF_SYNC_END);
}
