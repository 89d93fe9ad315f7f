/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/debug.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/util.h"

struct item {
    const char *name;
    bool is_number;
    enum wf_unit unit;
    size_t offset;
    uint64_t dflt, min, max; /* a flag sets its field to [max] */
    const char *doc;
};

static const struct item items[] = {
#define WF_DEBUG_FLAG(field, item, dflt, with, doc)                                                \
    {item, false, WF_UNIT_NONE, offsetof(struct wf_config, field), dflt, 0, with, doc},
#define WF_DEBUG_NUMBER(field, item, unit, dflt, min, max, doc)                                    \
    {item, true, WF_UNIT_##unit, offsetof(struct wf_config, field), dflt, min, max, doc},
#include "config/debug.def"
#undef WF_DEBUG_FLAG
#undef WF_DEBUG_NUMBER
};

const char wf_debug_doc[] = "switches of tests and bug reports, comma-separated; weft(3) has them:"
#define WF_DEBUG_FLAG(field, item, dflt, with, doc) " " item
#define WF_DEBUG_NUMBER(field, item, unit, dflt, min, max, doc) " " item "=N"
#include "config/debug.def"
#undef WF_DEBUG_FLAG
#undef WF_DEBUG_NUMBER
    ;

static uint64_t *field_of(struct wf_config *c, const struct item *i)
{
    return (uint64_t *)(void *)((char *)c + i->offset);
}

void wf_debug_defaults(struct wf_config *c)
{
    for (size_t i = 0; i < WF_ARRAY_LEN(items); i++)
        *field_of(c, &items[i]) = items[i].dflt;
}

/* Returns the item with this name, or NULL. If [is_number], returns the item that takes a number
 * ("name=N"), otherwise the flag ("name"). Some names have both items. */
static const struct item *item_find(const char *name, bool is_number)
{
    for (size_t i = 0; i < WF_ARRAY_LEN(items); i++)
        if (items[i].is_number == is_number && !strcasecmp(items[i].name, name))
            return &items[i];
    return NULL;
}

static enum weft_status item_set(struct wf_config *c, char *text)
{
    char *value = strchr(text, '=');
    const struct item *i;
    uint64_t v;
    if (value)
        *value++ = 0;
    i = item_find(text, value != NULL);
    v = i ? i->max : 0;
    if (!i) {
        wf_error("WEFT_DEBUG: no item %s%s: %s", text, value ? "=" : "", wf_debug_doc);
        return WEFT_EINVAL;
    }
    if (value && (wf_value_number(value, i->unit, &v) || v < i->min || v > i->max)) {
        wf_error("WEFT_DEBUG: %s=%s: must be a number from %" PRIu64 " to %" PRIu64 ": %s", i->name,
                 value, i->min, i->max, i->doc);
        return WEFT_EINVAL;
    }
    *field_of(c, i) = v;
    return WEFT_OK;
}

enum weft_status wf_debug_set(struct wf_config *c, const char *text)
{
    enum weft_status status = WEFT_OK;
    for (size_t n; *text; text += n + (text[n] == ',')) {
        char item[64];
        n = strcspn(text, ",");
        snprintf(item, sizeof item, "%.*s", (int)n, text);
        if (n && item_set(c, item) != WEFT_OK)
            status = WEFT_EINVAL;
    }
    c->shuffle |= c->shuffle_seed != 0;
    return status;
}
