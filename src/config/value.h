/* SPDX-License-Identifier: BSD-3-Clause */
/* The values of variables: the forms that a user may type, and the form that `weft info --config`
 * prints. */
#ifndef WF_CONFIG_VALUE_H
#define WF_CONFIG_VALUE_H

#include <stddef.h>
#include <stdint.h>

/* The unit of a number. The suffixes K, M, G and T stand for 2^10, 2^20, 2^30 and 2^40.
 *
 *   WF_UNIT_NONE   "4096", "4K"
 *   WF_UNIT_BYTES  all forms of WF_UNIT_NONE, and "64KB", "64KiB", "4032B"
 *   WF_UNIT_MS     "500ms", "2.5s", "10m", "1h"; a number without a unit is in milliseconds */
enum wf_unit { WF_UNIT_NONE, WF_UNIT_BYTES, WF_UNIT_MS };

enum { WF_VALUE_TEXT = 32 }; /* size of the longest text of a number, with the 0 at its end */

/* A part of an amount. If [fraction] is above 0, the part is this fraction; otherwise the part is
 * [bytes]. */
struct wf_share {
    double fraction;
    uint64_t bytes;
};

/* Parsers. Each returns 0 and sets *out, or returns -1 if [text] is not a valid value. */
int wf_value_number(const char *text, enum wf_unit unit, uint64_t *out);
int wf_value_share(const char *text, struct wf_share *out); /* "5/8" or "0.8"; else bytes */
int wf_value_bool(const char *text, int *out);
int wf_value_enum(const char *values, const char *text, int *out); /* index in "a|b|c" */

/* Print [v] in a form that a user may type: "64K", "4032B", "10s". */
void wf_value_print(char text[WF_VALUE_TEXT], uint64_t v, enum wf_unit unit);

#endif
