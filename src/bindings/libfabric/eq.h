/* SPDX-License-Identifier: BSD-3-Clause */
/* Event queues of other objects: binding them, and reports of calls that end in them. */
#ifndef WFI_EQ_H
#define WFI_EQ_H

#include "binding.h"

/* Bind the event queue [fid], which must be of [fabric]. It is in use until wfi_eq_release, also by
 * endpoints of FI_EP_RDM, which have no events: fi_eq(3), "fi_close".
 *   bound  the queue bound before, or NULL
 * Returns 0 | -FI_EINVAL */
int wfi_eq_hold(struct wfi_eq **bound, struct fid *fid, const struct wfi_fabric *fabric);
void wfi_eq_release(struct wfi_eq **bound);

/* Errors, then one event. A call allocates its report before it changes anything, so that what it
 * did is reported, whatever memory is left. */
struct wfi_report {
    struct wfi_eq *eq;
    struct fid *fid;
    void *context;
    struct event *end;
    struct fault *faults, **faults_last;
};

/* Returns 0 | -FI_ENOMEM (logged) | -FI_EOPBADSTATE (the queue is the parent's), after which there
 * is nothing to free. Else the caller frees or posts the report. */
int wfi_report_init(struct wfi_report *r, struct wfi_eq *eq, struct fid *fid, void *context);
/* Add an error with the data [data]. Returns 0 | -FI_ENOMEM (logged) */
int wfi_report_error(struct wfi_report *r, uint64_t data, int err);
/* Append the errors to the queue, and [event] with the data [data]. */
void wfi_report_post(struct wfi_report *r, uint32_t event, uint64_t data);
void wfi_report_free(struct wfi_report *r);

#endif
