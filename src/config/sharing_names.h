/* SPDX-License-Identifier: BSD-3-Clause */
/* The categories of enum weft_sharing, by the names of WEFT_SHARING. */
#ifndef WF_CONFIG_SHARING_NAMES_H
#define WF_CONFIG_SHARING_NAMES_H

#include <string.h>
#include <weft/weft.h>

#define WF_SHARING_VALUES "auto, everywhere, 2xdynamic, dynamic, shared, static, threads, split"

static inline const char *wf_sharing_text(enum weft_sharing sharing)
{
    static const char *const names[] = {"asked",  "auto",   "everywhere", "2xdynamic", "dynamic",
                                        "shared", "static", "threads",    "split"};
    return sharing <= WEFT_SHARING_SPLIT ? names[sharing] : "unknown";
}

/* Returns the category, or -1. */
static inline int wf_sharing_parse(const char *name)
{
    for (int i = WEFT_SHARING_AUTO; i <= WEFT_SHARING_SPLIT; i++)
        if (!strcmp(name, wf_sharing_text((enum weft_sharing)i)))
            return i;
    return -1;
}

#endif
