/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters and event queues: objects of their own, of no context. Any thread.
 *
 * A counter holds how often something happened, and how often it failed; a region can be bound to
 * one (weft/mr.h). An event queue holds reports until the program reads them. */
#ifndef WEFT_EVENT_H
#define WEFT_EVENT_H

#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- counters ---- */

struct weft_counter;

/* Both values are 0. Returns  OK | EINVAL | ENOMEM */
WEFT_API WEFT_MUST_USE enum weft_status weft_counter_open(struct weft_counter **out);

/* Regions that are bound to [counter] count no more, and allow writes as before the binding. No
 * thread may wait on it. Returns  OK | EINVAL | EFORKED */
WEFT_API enum weft_status weft_counter_close(struct weft_counter *counter);

/* The value, or the number of errors; 0 for null. Never block. */
WEFT_API uint64_t weft_counter_read(const struct weft_counter *counter);
WEFT_API uint64_t weft_counter_read_errors(const struct weft_counter *counter);

/* Add to one of the two, or set it; modulo 2^64. Lock-free unless a thread waits.
 * Returns  OK | EINVAL | EFORKED */
WEFT_API enum weft_status weft_counter_add(struct weft_counter *counter, uint64_t n);
WEFT_API enum weft_status weft_counter_add_errors(struct weft_counter *counter, uint64_t n);
WEFT_API enum weft_status weft_counter_set(struct weft_counter *counter, uint64_t value);
WEFT_API enum weft_status weft_counter_set_errors(struct weft_counter *counter, uint64_t value);

/* Wait until the value is >= [at_least].
 *   ep          null: sleep; another thread polls. Else an endpoint of the calling thread, which
 *               is polled meanwhile
 *   timeout_ns  negative: no limit
 * Returns  OK | ETIMEDOUT | EAVAIL (the number of errors changed since the call began)
 *          | EINVAL | ECONTEXT | EFORKED
 * Order    acquire: what was counted is visible on OK. */
WEFT_API WEFT_MUST_USE enum weft_status weft_counter_wait(struct weft_counter *counter,
                                                          struct weft_ep *ep, uint64_t at_least,
                                                          int64_t timeout_ns);

/* ---- event queues ---- */

struct weft_eq;

enum weft_event_type {
    WEFT_EVENT_MR = 1,     /* a registration is complete (status OK) or failed */
    WEFT_EVENT_USER = 256, /* the program's types begin here */
};

struct weft_event {
    uint32_t type;      /* enum weft_event_type */
    int32_t status;     /* enum weft_status: OK, or the reason of the failure */
    void *context;      /* given with the request that this reports */
    struct weft_mr *mr; /* MR: the region */
    uint64_t data;      /* of weft_eq_write */
    uint64_t reserved[4];
};

/* Returns  OK | EINVAL | ENOMEM | ESYSTEM (no descriptor left) */
WEFT_API WEFT_MUST_USE enum weft_status weft_eq_open(struct weft_eq **out);

/* Unread events are lost. No thread may wait on it.
 * Returns  OK | EBUSY (a context that reports to it is open) | EINVAL | EFORKED */
WEFT_API enum weft_status weft_eq_close(struct weft_eq *eq);

/* Take the oldest event.
 * Returns  OK | AGAIN (none) | EINVAL | EFORKED. Never blocks. */
WEFT_API WEFT_MUST_USE enum weft_status weft_eq_read(struct weft_eq *eq, struct weft_event *event);

/* The same, but wait for one; a negative limit is none. Returns  also ETIMEDOUT | ESYSTEM */
WEFT_API WEFT_MUST_USE enum weft_status weft_eq_wait(struct weft_eq *eq, struct weft_event *event,
                                                     int64_t timeout_ns);

/* Append an event of the program; copied. reserved must be 0.
 * Returns  OK | EINVAL (also: a type below WEFT_EVENT_USER) | ENOMEM | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_eq_write(struct weft_eq *eq,
                                                      const struct weft_event *event);

/* A descriptor that polls readable while there are events. Belongs to [eq].
 * Returns  a descriptor; a negative weft_status: EINVAL | EFORKED */
WEFT_API int weft_eq_fd(const struct weft_eq *eq);

#if defined(__cplusplus)
static_assert(sizeof(struct weft_event) == 64, "layout");
#else
_Static_assert(sizeof(struct weft_event) == 64, "layout");
#endif

#ifdef __cplusplus
}
#endif

#endif
