/* SPDX-License-Identifier: BSD-3-Clause */
/* Access to the bytes of a region in use (mem.h). The region may have several pieces, pages may be
 * missing, and written bytes may have to be made durable. No lock is needed, because
 * wf_mem_region_close waits for the end of the use. */
#define _GNU_SOURCE
#include <string.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "mem/lent.h"
#include "mem/mem.h"

#define COPY_MAX ((size_t)1 << 30)

bool wf_region_covers(const struct wf_region *r, const struct iovec *v)
{
    uintptr_t at = (uintptr_t)v->iov_base;
    for (unsigned i = 0; i < r->iov_count; i++) {
        uintptr_t start = (uintptr_t)r->iov[i].iov_base;
        size_t len = r->iov[i].iov_len;
        if (at >= start && v->iov_len <= len && at - start <= len - v->iov_len)
            return true;
    }
    return false;
}

void *wf_region_at(const struct wf_region *r, uint64_t at, size_t *n)
{
    at -= r->first;
    for (unsigned i = 0; i < r->iov_count; i++) {
        const struct iovec *v = &r->iov[i];
        if (at < v->iov_len) {
            *n = WF_MIN(*n, v->iov_len - (size_t)at);
            return (void *)((uintptr_t)v->iov_base + (size_t)at); /* the base may be NULL */
        }
        at -= v->iov_len;
    }
    *n = 0; /* [at] is the end of the region */
    return r->base;
}

/* Let the kernel copy, because pages may be missing: the kernel returns an error for a missing
 * page, but memcpy would end the process. */
static enum weft_status copy_unbacked(void *to, const void *from, size_t n, bool into)
{
    uintptr_t mine = (uintptr_t)(into ? from : to), there = (uintptr_t)(into ? to : from);
    for (size_t done = 0; done < n;) { /* the kernel copies less than 2 GiB in one call */
        size_t k = WF_MIN(n - done, COPY_MAX);
        struct iovec a = {(void *)(mine + done), k};
        struct iovec b = {(void *)(there + done), k};
        ssize_t got = into ? process_vm_writev(gettid(), &a, 1, &b, 1, 0)
                           : process_vm_readv(gettid(), &a, 1, &b, 1, 0);
        if (got < 0 || (size_t)got != k)
            return WEFT_EFAULT;
        done += k;
    }
    return WEFT_OK;
}

/* The same where the system may forbid that: then memcpy, after a look at the pages. */
static enum weft_status copy_kept(void *to, const void *from, size_t n, bool into)
{
    for (size_t done = 0; done < n;) {
        size_t k = WF_MIN(n - done, COPY_MAX);
        void *at = (char *)to + done;
        const void *of = (const char *)from + done;
        if (!(into ? wf_lent_write(at, of, k) : wf_lent_read(at, of, k)))
            return WEFT_EFAULT;
        done += k;
    }
    return WEFT_OK;
}

static enum weft_status copy(const struct wf_region *r, void *to, const void *from, size_t n,
                             bool into)
{
    if (r->flags & WF_REGION_UNBACKED)
        return copy_unbacked(to, from, n, into);
    if (r->flags & WF_REGION_KEPT)
        return copy_kept(to, from, n, into);
    memcpy(to, from, n);
    return WEFT_OK;
}

enum weft_status wf_region_write(const struct wf_region *r, uint64_t at, const void *src, size_t n)
{
    for (const unsigned char *s = src; n;) {
        size_t k = n;
        void *to = wf_region_at(r, at, &k);
        enum weft_status status = copy(r, to, s, k, true);
        if (status != WEFT_OK)
            return status;
        s += k;
        at += k;
        n -= k;
    }
    return WEFT_OK;
}

enum weft_status wf_region_read(const struct wf_region *r, uint64_t at, void *dst, size_t n)
{
    for (unsigned char *d = dst; n;) {
        size_t k = n;
        const void *from = wf_region_at(r, at, &k);
        enum weft_status status = copy(r, d, from, k, false);
        if (status != WEFT_OK)
            return status;
        d += k;
        at += k;
        n -= k;
    }
    return WEFT_OK;
}

/* Let the kernel add 0 to the 4 aligned bytes where the word begins, which it refuses where it may
 * not write. (A word may have 1 or 2 bytes; the kernel takes no other addresses.) Where these bytes
 * are waited for, a thread may wake for nothing, which users of futexes expect. */
static bool is_writable(const void *word)
{
    uint32_t none = 0;
    return syscall(SYS_futex, &none, FUTEX_WAKE_OP_PRIVATE, 0, NULL, (uintptr_t)word & ~3ul,
                   FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0)) >= 0;
}

/* Make the page of the aligned word present and, if [writes] is true, writable. Returns false if
 * the page is missing or does not permit that. */
static bool is_backed(const struct wf_region *r, const void *word, size_t size, bool writes)
{
    enum wf_pages pages;
    uint64_t mine;
    if (!writes)
        return copy(r, &mine, word, size, false) == WEFT_OK;
    pages = wf_pages_populate(word, size, true);
    return pages == WF_PAGES_THERE || (pages == WF_PAGES_UNKNOWN && is_writable(word));
}

bool wf_region_is_there(const struct wf_region *r, const void *at, size_t n)
{
    return !wf_region_may_miss(r) || wf_pages_populate(at, n, true) != WF_PAGES_MISSING;
}

bool wf_region_is_readable(const struct wf_region *r, const void *at, size_t n)
{
    return !wf_region_may_miss(r) || wf_pages_populate(at, n, false) != WF_PAGES_MISSING;
}

void *wf_region_word(const struct wf_region *r, uint64_t at, size_t size, bool writes,
                     enum weft_status *why)
{
    size_t n = size;
    void *word = wf_region_at(r, at, &n);
    *why = WEFT_ENOSYS;
    if (r->flags & WF_REGION_ONLY_NIC)
        return NULL;
    *why = WEFT_EINVAL;
    if (n < size || (uintptr_t)word & (size - 1))
        return NULL;
    *why = WEFT_EFAULT;
    if (!word || (wf_region_may_miss(r) && !is_backed(r, word, size, writes)))
        return NULL;
    *why = WEFT_OK;
    return word;
}

enum weft_status wf_region_settle(const struct wf_region *r, uint64_t at, size_t n)
{
    while (n && r->persist != WF_PERSIST_NONE) {
        size_t k = n;
        const void *from = wf_region_at(r, at, &k);
        enum weft_status status = wf_persist(r->persist, from, k);
        if (status != WEFT_OK)
            return status;
        at += k;
        n -= k;
    }
    return WEFT_OK;
}
