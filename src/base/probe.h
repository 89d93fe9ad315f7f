/* SPDX-License-Identifier: BSD-3-Clause */
/* Static probes (USDT) for bpftrace, perf and systemtap. In the program code a probe is one nop
 * instruction; an ELF note in the library contains its address. docs/man/weft.1 "PROBES" lists
 * the probes. The inline functions of the public headers contain none. Without <sys/sdt.h> (package
 * systemtap-sdt-dev) probes compile to nothing. */
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
