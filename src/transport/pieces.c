/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/transport.h"

void wf_am_pieces_copy_any(uint8_t *dst, const struct iovec *iov, unsigned count)
{
    for (unsigned i = 0; i < count; dst += iov[i++].iov_len) {
        if (iov[i].iov_len <= WF_AM_SHORT_PIECE)
            wf_copy_small(dst, iov[i].iov_base, iov[i].iov_len);
        else
            memcpy(dst, iov[i].iov_base, iov[i].iov_len);
    }
}
