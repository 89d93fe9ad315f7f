/* SPDX-License-Identifier: BSD-3-Clause */
/* GASNET_TRACEFILE gets a line for each event. GASNET_STATSFILE gets the counters when the job
 * ends. If neither variable is set, an event costs one load. If one is set, put and get are not
 * inlined, so that they are counted. */
#ifndef GASNETW_TRACE_H
#define GASNETW_TRACE_H

#include "binding.h"

extern bool gasnetw_tracing; /* constant after gasnet_init */
extern _Atomic uint64_t gasnetw_events[8];

enum {
    EVENT_REQUEST,
    EVENT_REPLY,
    EVENT_HANDLER,
    EVENT_PUT,
    EVENT_GET,
    EVENT_BARRIER,
    EVENT_BYTES
};

void gasnetw_trace_open(void);
void gasnetw_trace_close(void);
/* Count [event]. If there is a trace file and GASNET_TRACEMASK has [letter], also write a line. */
void gasnetw_trace(unsigned event, uint64_t bytes, char letter, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));

static inline void gasnetw_trace_request(char kind, gasnet_node_t dest, unsigned handler, int nargs,
                                         size_t nbytes)
{
    if (WEFT_UNLIKELY(gasnetw_tracing))
        gasnetw_trace(EVENT_REQUEST, nbytes, 'A',
                      "request %s: node=%u handler=%u args=%d nbytes=%zu",
                      kind == 'S'   ? "Short"
                      : kind == 'M' ? "Medium"
                      : kind == 'L' ? "Long"
                                    : "LongAsync",
                      dest, handler, nargs, nbytes);
}

static inline void gasnetw_trace_reply(unsigned kind, uint32_t to, unsigned handler, int nargs,
                                       size_t nbytes)
{
    if (WEFT_UNLIKELY(gasnetw_tracing))
        gasnetw_trace(EVENT_REPLY, nbytes, 'A', "reply %s: node=%u handler=%u args=%d nbytes=%zu",
                      kind == AM_SHORT    ? "Short"
                      : kind == AM_MEDIUM ? "Medium"
                                          : "Long",
                      to >> 8, handler, nargs, nbytes);
}

static inline void gasnetw_trace_handler(unsigned kind, uint32_t origin, unsigned nargs, size_t len)
{
    if (WEFT_UNLIKELY(gasnetw_tracing))
        gasnetw_trace(EVENT_HANDLER, 0, 'A', "handler %u: of node=%u kind=%u args=%u payload=%zu",
                      origin & 0xff, origin >> 8, kind, nargs, len);
}

static inline void gasnetw_trace_put(gasnet_node_t node, size_t nbytes)
{
    if (WEFT_UNLIKELY(gasnetw_tracing))
        gasnetw_trace(EVENT_PUT, nbytes, 'P', "put: node=%u nbytes=%zu", node, nbytes);
}

static inline void gasnetw_trace_get(gasnet_node_t node, size_t nbytes)
{
    if (WEFT_UNLIKELY(gasnetw_tracing))
        gasnetw_trace(EVENT_GET, nbytes, 'G', "get: node=%u nbytes=%zu", node, nbytes);
}

static inline void gasnetw_trace_barrier(const char *step, int id, int flags)
{
    if (WEFT_UNLIKELY(gasnetw_tracing))
        gasnetw_trace(EVENT_BARRIER, 0, 'B', "barrier %s: id=%d flags=0x%x", step, id,
                      (unsigned)flags);
}

#endif
