/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "cache/device.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct device {
    struct io_uring ring;
    pthread_mutex_t ring_lock; /* submission and completion */
    pthread_mutex_t lock;
    unsigned slots, nfree;
    unsigned *free_slots;
    struct device_counts counts;
};

struct line {
    struct device *device;
    int pipe[2];
};

struct device *device_open(unsigned slots)
{
    struct device *d = calloc(1, sizeof *d);
    int error;
    if (!d)
        return NULL;
    d->free_slots = malloc(slots * sizeof *d->free_slots);
    error = io_uring_queue_init(8, &d->ring, 0);
    if (!error && (error = io_uring_register_buffers_sparse(&d->ring, slots)))
        io_uring_queue_exit(&d->ring);
    if (error || !d->free_slots) {
        free(d->free_slots);
        free(d);
        errno = -error;
        return NULL;
    }
    d->slots = d->nfree = slots;
    for (unsigned i = 0; i < slots; i++)
        d->free_slots[i] = slots - 1 - i;
    pthread_mutex_init(&d->ring_lock, NULL);
    pthread_mutex_init(&d->lock, NULL);
    return d;
}

void device_close(struct device *d)
{
    io_uring_queue_exit(&d->ring);
    pthread_mutex_destroy(&d->ring_lock);
    pthread_mutex_destroy(&d->lock);
    free(d->free_slots);
    free(d);
}

static int slot_take(struct device *d)
{
    int slot = -1;
    pthread_mutex_lock(&d->lock);
    if (d->nfree)
        slot = (int)d->free_slots[--d->nfree];
    pthread_mutex_unlock(&d->lock);
    return slot;
}

static void slot_give(struct device *d, unsigned slot)
{
    pthread_mutex_lock(&d->lock);
    d->free_slots[d->nfree++] = slot;
    pthread_mutex_unlock(&d->lock);
}

static int slot_set(struct device *d, unsigned slot, void *addr, size_t len)
{
    struct iovec iov = {.iov_base = addr, .iov_len = len};
    uint64_t tag = 0;
    return io_uring_register_buffers_update_tag(&d->ring, slot, &iov, (void *)&tag, 1);
}

static void counts_add(struct device *d, bool reg, int error)
{
    struct device_counts *c = &d->counts;
    pthread_mutex_lock(&d->lock);
    if (error) {
        c->refused++;
    } else if (reg) {
        c->regs++;
        c->now++;
        c->most = c->now > c->most ? c->now : c->most;
    } else {
        c->deregs++;
        c->now--;
    }
    pthread_mutex_unlock(&d->lock);
}

static enum weft_status device_reg(void *owner, void *addr, size_t len, void **handle)
{
    struct device *d = owner;
    int slot = slot_take(d), done;
    if (slot < 0) {
        counts_add(d, true, 1);
        return WEFT_ELIMIT;
    }
    done = slot_set(d, (unsigned)slot, addr, len);
    counts_add(d, true, done != 1);
    if (done == 1) {
        *handle = (void *)(uintptr_t)(slot + 1); // NOLINT
        return WEFT_OK;
    }
    slot_give(d, (unsigned)slot);
    return done == -ENOMEM ? WEFT_ELIMIT : done == -EFAULT ? WEFT_EINVAL : WEFT_ESYSTEM;
}

static void device_dereg(void *owner, void *handle)
{
    struct device *d = owner;
    unsigned slot = (unsigned)(uintptr_t)handle - 1;
    int done = slot_set(d, slot, NULL, 0);
    if (done != 1) {
        fprintf(stderr, "device: cannot deregister slot %u: %s\n", slot, strerror(-done));
        abort();
    }
    counts_add(d, false, 0);
    slot_give(d, slot);
}

struct wf_reg_ops device_reg_ops(struct device *d)
{
    return (struct wf_reg_ops){.owner = d, .reg = device_reg, .dereg = device_dereg};
}

void device_count(struct device *d, struct device_counts *out)
{
    pthread_mutex_lock(&d->lock);
    *out = d->counts;
    pthread_mutex_unlock(&d->lock);
}

struct line *line_open(struct device *d)
{
    struct line *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->device = d;
    if (pipe2(l->pipe, O_CLOEXEC)) {
        free(l);
        return NULL;
    }
    return l;
}

void line_close(struct line *l)
{
    close(l->pipe[0]);
    close(l->pipe[1]);
    free(l);
}

static bool transfer(struct line *l, bool send, void *handle, void *addr, size_t len)
{
    struct io_uring *ring = &l->device->ring;
    int slot = (int)(uintptr_t)handle - 1, result = -1;
    struct io_uring_cqe *cqe;
    struct io_uring_sqe *sqe;
    pthread_mutex_lock(&l->device->ring_lock);
    sqe = io_uring_get_sqe(ring);
    if (send)
        io_uring_prep_write_fixed(sqe, l->pipe[1], addr, (unsigned)len, 0, slot);
    else
        io_uring_prep_read_fixed(sqe, l->pipe[0], addr, (unsigned)len, 0, slot);
    while (io_uring_submit_and_wait(ring, 1) == -EINTR)
        ;
    if (!io_uring_peek_cqe(ring, &cqe)) {
        result = cqe->res;
        io_uring_cqe_seen(ring, cqe);
    }
    pthread_mutex_unlock(&l->device->ring_lock);
    if (result != (int)len)
        fprintf(stderr, "device: %d of %zu bytes at %p through slot %d\n", result, len, addr, slot);
    return result == (int)len;
}

bool line_send(struct line *l, void *handle, const void *addr, size_t len, void *out)
{
    return transfer(l, true, handle, (void *)(uintptr_t)addr, len) && // NOLINT
           read(l->pipe[0], out, len) == (ssize_t)len;
}

bool line_receive(struct line *l, void *handle, void *addr, size_t len, const void *in)
{
    return write(l->pipe[1], in, len) == (ssize_t)len && transfer(l, false, handle, addr, len);
}
