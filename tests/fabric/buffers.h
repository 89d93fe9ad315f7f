/* SPDX-License-Identifier: BSD-3-Clause */
/* Two sides (sides.h), and a long buffer to send and one to receive. */
#ifndef BUFFERS_H
#define BUFFERS_H

#include <stdlib.h>

#include "sides.h"

#define LONG (2u << 20)

static uint8_t *out, *in;

static void begin(const struct how *how)
{
    open_both(how);
    out = calloc(1, LONG);
    in = calloc(1, LONG);
    assert_true(out && in);
}

static void end(void)
{
    close_both();
    free(out);
    free(in);
}

static const struct how plain = {.counters = true};

#endif
