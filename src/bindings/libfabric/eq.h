/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports of calls that end in an event queue: errors, then one event. A call allocates its report
 * before it changes anything, so that what it did is reported, whatever memory is left. */
#ifndef WFI_EQ_H
#define WFI_EQ_H

#include "binding.h"

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
