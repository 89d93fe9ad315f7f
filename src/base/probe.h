/* SPDX-License-Identifier: BSD-3-Clause */
/* Static probes (USDT): each is a nop, and a note in the library with its address, for bpftrace,
 * perf and systemtap; docs/man/weft.1 "PROBES" lists them. Only on out-of-line paths. Without
 * <sys/sdt.h> (package systemtap-sdt-dev) they compile to nothing. */
#ifndef WF_BASE_PROBE_H
#define WF_BASE_PROBE_H

#ifdef WF_HAVE_SDT
#include <sys/sdt.h>
#define WF_PROBE2(name, a, b) DTRACE_PROBE2(weft, name, a, b)
#define WF_PROBE3(name, a, b, c) DTRACE_PROBE3(weft, name, a, b, c)
#else
#define WF_PROBE2(name, a, b) ((void)(a), (void)(b))
#define WF_PROBE3(name, a, b, c) ((void)(a), (void)(b), (void)(c))
#endif

#endif
