/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters. Each is one of Weft's, so that regions can count in it, too. Reading a counter, and
 * waiting for it, polls the endpoints that count in it. */
#include <stdlib.h>

#include "binding.h"

/* How long a wait keeps the list of its endpoints, in nanoseconds. */
#define SLICE_NS INT64_C(1000000)

static struct wfi_cntr *cntr_of(struct fid_cntr *fid)
{
    return container_of(fid, struct wfi_cntr, fid);
}

void wfi_cntr_of_region(struct wfi_cntr *c)
{
    __atomic_store_n(&c->of_region, true, __ATOMIC_RELAXED);
}

/* Returns the endpoints whose polls let [c] count. */
static struct wfi_eps *eps_of(struct wfi_cntr *c)
{
    return __atomic_load_n(&c->of_region, __ATOMIC_RELAXED) ? &c->domain->counting : &c->eps;
}

static uint64_t cntr_read(struct fid_cntr *fid)
{
    struct wfi_cntr *c = cntr_of(fid);
    (void)wfi_eps_poll(eps_of(c));
    return weft_counter_read(c->counter);
}

static uint64_t cntr_readerr(struct fid_cntr *fid)
{
    struct wfi_cntr *c = cntr_of(fid);
    (void)wfi_eps_poll(eps_of(c));
    return weft_counter_read_errors(c->counter);
}

static int cntr_add(struct fid_cntr *fid, uint64_t value)
{
    return (int)wfi_result(weft_counter_add(cntr_of(fid)->counter, value));
}

static int cntr_adderr(struct fid_cntr *fid, uint64_t value)
{
    return (int)wfi_result(weft_counter_add_errors(cntr_of(fid)->counter, value));
}

static int cntr_set(struct fid_cntr *fid, uint64_t value)
{
    return (int)wfi_result(weft_counter_set(cntr_of(fid)->counter, value));
}

static int cntr_seterr(struct fid_cntr *fid, uint64_t value)
{
    return (int)wfi_result(weft_counter_set_errors(cntr_of(fid)->counter, value));
}

/* In slices, if there are other threads: after each of them an endpoint can be bound or closed. */
static int cntr_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
    struct wfi_cntr *c = cntr_of(fid);
    const int64_t slice = c->eps.on ? SLICE_NS : INT64_MAX;
    int64_t end = wfi_now_ns() + timeout * INT64_C(1000000), left = 0;
    uint64_t errors = weft_counter_read_errors(c->counter);
    for (;;) {
        enum weft_status s = wfi_eps_wait(eps_of(c), c->counter, threshold, left);
        if (weft_counter_read(c->counter) >= threshold)
            return 0;
        if (s == WEFT_EAVAIL || weft_counter_read_errors(c->counter) != errors)
            return -FI_EAVAIL;
        if (s != WEFT_OK && s != WEFT_ETIMEDOUT)
            return -wfi_errno(s);
        left = timeout < 0 ? slice : end - wfi_now_ns();
        if (left <= 0)
            return -FI_ETIMEDOUT;
        left = left < slice ? left : slice;
    }
}

static int cntr_close(struct fid *fid)
{
    struct wfi_cntr *c = container_of(fid, struct wfi_cntr, fid.fid);
    if (atomic_load(&c->users)) {
        WFI_WARN(CNTR, "fi_close: %u endpoints count in the counter: close them first\n",
                 atomic_load(&c->users));
        return -FI_EBUSY;
    }
    (void)weft_counter_close(c->counter);
    atomic_fetch_sub(&c->domain->users, 1);
    wfi_eps_fini(&c->eps);
    free(c);
    return 0;
}

static struct fi_ops cntr_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = cntr_close,
    .bind = wfi_no_bind,
    .control = wfi_no_control,
    .ops_open = wfi_no_ops_open,
};

static struct fi_ops_cntr cntr_ops = {
    .size = sizeof(struct fi_ops_cntr),
    .read = cntr_read,
    .readerr = cntr_readerr,
    .add = cntr_add,
    .set = cntr_set,
    .wait = cntr_wait,
    .adderr = cntr_adderr,
    .seterr = cntr_seterr,
};

int wfi_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **out,
                  void *context)
{
    const struct fi_cntr_attr dflt = {0}, *a = attr ? attr : &dflt;
    struct wfi_domain *d = wfi_domain_of(domain);
    struct wfi_cntr *c;
    enum weft_status s;
    if (a->events != FI_CNTR_EVENTS_COMP)
        return -FI_EINVAL;
    if (a->flags)
        return -FI_EBADFLAGS;
    if (a->wait_obj != FI_WAIT_NONE && a->wait_obj != FI_WAIT_UNSPEC &&
        a->wait_obj != FI_WAIT_YIELD) {
        WFI_WARN(CNTR, "fi_cntr_open: wait objects are FI_WAIT_NONE, _UNSPEC and _YIELD\n");
        return -FI_ENOSYS;
    }
    if (wfi_domain_refuses(d))
        return -FI_EOPBADSTATE;
    c = calloc(1, sizeof *c);
    if (!c)
        return -FI_ENOMEM;
    s = weft_counter_open(&c->counter);
    if (s != WEFT_OK) {
        free(c);
        return -wfi_errno(s);
    }
    wfi_eps_init(&c->eps, d->locked);
    c->domain = d;
    c->fid.fid.fclass = FI_CLASS_CNTR;
    c->fid.fid.context = context;
    c->fid.fid.ops = &cntr_fid_ops;
    c->fid.ops = &cntr_ops;
    atomic_fetch_add(&d->users, 1);
    *out = &c->fid;
    return 0;
}
