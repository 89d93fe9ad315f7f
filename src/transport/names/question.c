/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/names/question.h"

#include "base/util.h"

static struct wf_names_head head(unsigned kind, size_t size)
{
    return (struct wf_names_head){.magic = WF_NAMES_MAGIC,
                                  .version = WF_NAMES_VERSION,
                                  .kind = (uint8_t)kind,
                                  .size = (uint16_t)size};
}

void wf_names_question_make(struct wf_names_question *out)
{
    out->head = head(WF_NAMES_QUESTION, sizeof *out);
}

void wf_names_answer_make(struct wf_names_answer *out)
{
    *out = (struct wf_names_answer){.head = head(WF_NAMES_ANSWER, sizeof *out)};
}

/* Compare the [len] bytes that have arrived with the head of a message of [kind] and [size].
 * Another version may define all that follows the version's byte differently. */
static enum weft_status head_parse(const void *bytes, size_t len, unsigned kind, size_t size)
{
    const struct wf_names_head right = head(kind, size);
    const size_t version = offsetof(struct wf_names_head, version);
    if (memcmp(bytes, &right, WF_MIN(len, version)))
        return WEFT_EPROTO;
    if (len <= version)
        return WEFT_PENDING;
    if (((const uint8_t *)bytes)[version] != WF_NAMES_VERSION)
        return WEFT_EVERSION;
    if (memcmp(bytes, &right, WF_MIN(len, sizeof right)))
        return WEFT_EPROTO;
    return len < size ? WEFT_PENDING : WEFT_OK;
}

enum weft_status wf_names_question_parse(const void *bytes, size_t len)
{
    return head_parse(bytes, len, WF_NAMES_QUESTION, sizeof(struct wf_names_question));
}

enum weft_status wf_names_answer_parse(const void *bytes, size_t len, struct wf_address *out,
                                       struct wf_contact *contact)
{
    const size_t at = offsetof(struct wf_names_answer, address);
    enum weft_status status =
        head_parse(bytes, len, WF_NAMES_ANSWER, sizeof(struct wf_names_answer));
    if (status != WEFT_OK)
        return status;
    status = wf_address_parse((const uint8_t *)bytes + at, WF_ADDRESS_BYTES, out, contact);
    return status == WEFT_EINVAL ? WEFT_EPROTO : status;
}
