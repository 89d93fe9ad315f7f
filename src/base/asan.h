/* SPDX-License-Identifier: BSD-3-Clause */
/* WF_ASAN is defined in a build with AddressSanitizer. */
#ifndef WF_BASE_ASAN_H
#define WF_BASE_ASAN_H

#if defined(__SANITIZE_ADDRESS__)
#define WF_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WF_ASAN
#endif
#endif

#endif
