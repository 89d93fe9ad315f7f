/* SPDX-License-Identifier: BSD-3-Clause */
/* The release of GASNet whose behaviour this library has. Configure scripts of programs read this
 * file. Programs include gasnet.h. */
#ifndef GASNETW_CONFIG_H
#define GASNETW_CONFIG_H

#define GASNET_RELEASE_VERSION_MAJOR 1
#define GASNET_RELEASE_VERSION_MINOR 32
#define GASNET_RELEASE_VERSION_PATCH 0

#endif
