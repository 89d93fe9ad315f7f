/* SPDX-License-Identifier: BSD-3-Clause */
/* What gasnet.h and gasnet_tools.h have in common. Programs include one of these two.
 *
 * GASNet-1's headers bring these system headers, and its programs rely on that: many include
 * gasnet.h alone. */
#ifndef GASNETW_BASIC_H
#define GASNETW_BASIC_H

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h> /* MIN and MAX, too */
#include <sys/types.h>
#include <unistd.h>

/* Some programs take the address of internal functions of GASNet's headers, or cast them to void,
 * so that no compiler warns that they are unused: this one, and one in gasnet_tools.h. */
static __attribute__((__unused__)) void _gasneti_threadkey_init(void)
{
}

/* Programs use this name without gasnet_tools.h, since GASNet's gasnet.h brings it. */
#define gasneti_gethostname gasnett_gethostname
#ifdef __cplusplus
extern "C"
#endif
    __attribute__((__visibility__("default"))) const char *
    gasnett_gethostname(void);

#endif
