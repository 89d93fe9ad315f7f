/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/params.h"

#include "base/log.h"

enum weft_status wf_params_check(const char *type, uint32_t version, uint32_t flags, uint32_t known,
                                 const uint64_t *reserved, size_t count)
{
    if (!version) {
        wf_error("parameters of version 0: initialise them with %s_INIT", type);
        return WEFT_EINVAL;
    }
    if (version >> 16 != WEFT_VERSION_MAJOR || (version & 0xffff) > WEFT_VERSION_MINOR) {
        wf_error("%s: the program was built for Weft %u.%u, this library is %s", type,
                 version >> 16, version & 0xffff, WEFT_VERSION_STRING);
        return WEFT_EVERSION;
    }
    for (size_t i = 0; i < count; i++)
        if (reserved[i])
            return WEFT_EINVAL;
    return flags & ~known ? WEFT_EINVAL : WEFT_OK;
}
