/* SPDX-License-Identifier: BSD-3-Clause */
/* Configure scripts look for this file to find out that a conduit is installed. */
#include <gasnet.h>
