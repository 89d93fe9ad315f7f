/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WF_TRANSPORT_IDENTITY_H
#define WF_TRANSPORT_IDENTITY_H

#include "transport/address.h"

/* Describe this process, with a new token. Returns OK | ESYSTEM (logged) */
enum weft_status wf_process_identify(struct wf_process_id *self);

#endif
