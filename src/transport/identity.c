/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/identity.h"

#include <errno.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "base/process.h"

enum weft_status wf_process_identify(struct wf_process_id *self)
{
    self->host = wf_host_id();
    self->user = wf_user_id();
    self->pid = (uint32_t)getpid();
    self->start = wf_process_start((int)self->pid);
    if (!self->start && errno == EXDEV) {
        wf_error("cannot tell when this process started: the time namespace of its children is not "
                 "its own (fork after unshare(CLONE_NEWTIME), and use Weft in the child)");
        return WEFT_ESYSTEM;
    }
    if (!self->host || !self->user || !self->start) {
        wf_error("cannot read /proc/%d, /proc/thread-self and /proc/sys/kernel/random/boot_id: is "
                 "/proc mounted?",
                 (int)self->pid);
        return WEFT_ESYSTEM;
    }
    if (getrandom(self->token, sizeof self->token, 0) != sizeof self->token) {
        wf_error("getrandom: %m");
        return WEFT_ESYSTEM;
    }
    return WEFT_OK;
}
