/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters and event queues. They belong to no context, and any thread may use them.
 *
 * A counter holds how often an event happened, and how often it failed. A region can be bound to a
 * counter, which then counts the writes of peers to the region (weft/mr.h). An event queue holds
 * reports until the program reads them. */
#ifndef WEFT_EVENT_H
#define WEFT_EVENT_H

#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- counters ---- */

struct weft_counter;

/* Open a counter whose value and number of errors are 0. Returns  OK | EINVAL | ENOMEM */
WEFT_API WEFT_MUST_USE enum weft_status weft_counter_open(struct weft_counter **out);

/* Close [counter]. Writes to a region that is bound to [counter] are not counted any more, and do
 * not need WEFT_EP_RMA_EVENT any more. No thread may wait on [counter].
 * Returns  OK | EINVAL | EFORKED */
WEFT_API enum weft_status weft_counter_close(struct weft_counter *counter);

/* Return the counter's value (weft_counter_read) or its number of errors; 0 for NULL. Never block.
 */
WEFT_API uint64_t weft_counter_read(const struct weft_counter *counter);
WEFT_API uint64_t weft_counter_read_errors(const struct weft_counter *counter);

/* Add [n] to the value or to the number of errors, or set one of them. Values wrap at 2^64. The
 * calls take a lock only if a thread waits.
 * Returns  OK | EINVAL | EFORKED */
WEFT_API enum weft_status weft_counter_add(struct weft_counter *counter, uint64_t n);
WEFT_API enum weft_status weft_counter_add_errors(struct weft_counter *counter, uint64_t n);
WEFT_API enum weft_status weft_counter_set(struct weft_counter *counter, uint64_t value);
WEFT_API enum weft_status weft_counter_set_errors(struct weft_counter *counter, uint64_t value);

/* Wait until the value is >= [at_least].
 *   ep          NULL: sleep, while another thread polls. Otherwise an endpoint of the calling
 *               thread, which this call polls
 *   timeout_ns  negative: no limit
 * Returns  OK | ETIMEDOUT | EAVAIL (the number of errors changed since the call began) | EINVAL |
 *          ECONTEXT | EFORKED
 * Order    acquire: after OK the caller sees the data whose arrival was counted. */
WEFT_API WEFT_MUST_USE enum weft_status weft_counter_wait(struct weft_counter *counter,
                                                          struct weft_ep *ep, uint64_t at_least,
                                                          int64_t timeout_ns);

/* ---- event queues ---- */

struct weft_eq;

enum weft_event_type {
    WEFT_EVENT_MR = 1,     /* a registration is complete (status OK) or failed */
    WEFT_EVENT_USER = 256, /* the program's own types begin here */
};

struct weft_event {
    uint32_t type;      /* enum weft_event_type */
    int32_t status;     /* enum weft_status: OK, or the reason of the failure */
    void *context;      /* given with the request that this event reports */
    struct weft_mr *mr; /* of WEFT_EVENT_MR: the region */
    uint64_t data;      /* given to weft_eq_write */
    uint64_t reserved[4];
};

/* Open an event queue. Returns  OK | EINVAL | ENOMEM | ESYSTEM (no descriptor left) */
WEFT_API WEFT_MUST_USE enum weft_status weft_eq_open(struct weft_eq **out);

/* Close [eq]. Unread events are lost. No thread may wait on [eq].
 * Returns  OK | EBUSY (a context that reports to [eq] is open) | EINVAL | EFORKED */
WEFT_API enum weft_status weft_eq_close(struct weft_eq *eq);

/* Take the oldest event from [eq].
 * Returns  OK | AGAIN (there is none) | EINVAL | EFORKED. Never blocks. */
WEFT_API WEFT_MUST_USE enum weft_status weft_eq_read(struct weft_eq *eq, struct weft_event *event);

/* Take the oldest event from [eq], and wait for an event if there is none. A negative [timeout_ns]
 * means no limit.
 * Returns  as weft_eq_read | ETIMEDOUT | ESYSTEM */
WEFT_API WEFT_MUST_USE enum weft_status weft_eq_wait(struct weft_eq *eq, struct weft_event *event,
                                                     int64_t timeout_ns);

/* Append a copy of [event], an event of the program. Its reserved fields must be 0.
 * Returns  OK | EINVAL (also: a type below WEFT_EVENT_USER) | ENOMEM | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_eq_write(struct weft_eq *eq,
                                                      const struct weft_event *event);

/* Returns a descriptor that is readable (poll(2)) while [eq] has events. The descriptor belongs to
 * [eq].
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
