/* SPDX-License-Identifier: BSD-3-Clause */
/* What programs of this folder that use no test library share. */
#ifndef TEST_REGRESS_H
#define TEST_REGRESS_H

#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

#define OK(call)                                                                                   \
    do {                                                                                           \
        enum weft_status ok_ = (call);                                                             \
        if (ok_ != WEFT_OK) {                                                                      \
            fprintf(stderr, "%s:%d: %s gives %s\n", __FILE__, __LINE__, #call,                     \
                    weft_status_name(ok_));                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* As it goes through a pipe. */
struct address {
    size_t len;
    unsigned char bytes[WEFT_ADDR_MAX];
};

#endif
