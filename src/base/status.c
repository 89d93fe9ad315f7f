/* SPDX-License-Identifier: BSD-3-Clause */
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

const char *weft_version(void)
{
    return WEFT_VERSION_STRING;
}
