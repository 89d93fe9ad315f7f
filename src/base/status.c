/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/status.h"

#include <weft/weft.h>

const char *weft_status_text(enum weft_status status)
{
    switch ((int)status) {
#define WEFT_STATUS(name, value, text)                                                             \
    case value:                                                                                    \
        return text;
#include <weft/status.def>
#undef WEFT_STATUS
    default: return "unknown status";
    }
}

const char *weft_status_name(enum weft_status status)
{
    switch ((int)status) {
#define WEFT_STATUS(name, value, text)                                                             \
    case value:                                                                                    \
        return "WEFT_" #name;
#include <weft/status.def>
#undef WEFT_STATUS
    default: return "WEFT_?";
    }
}

bool wf_status_is_failure(int32_t status)
{
    switch (status) {
#define WEFT_STATUS(name, value, text) case value:
#include <weft/status.def>
#undef WEFT_STATUS
        return status < 0;
    default: return false;
    }
}

const char *weft_version(void)
{
    return WEFT_VERSION_STRING;
}
