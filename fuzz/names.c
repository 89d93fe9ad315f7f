/* SPDX-License-Identifier: BSD-3-Clause */
/* wf_names_question_parse and wf_names_answer_parse, as bytes arrive: at each length. And
 * wf_name_parse, bytes that applications pass on. */
#include "fuzz.h"

#include "transport/names/question.h"

size_t fuzz_seed(unsigned i, uint8_t *buf, size_t room)
{
    const struct wf_address a = {
        .version = WF_ADDRESS_VERSION, .size = sizeof a, .process = {.pid = 7}};
    const struct wf_contact c = {
        .port = 4000, .count = 1, .ip = {{[10] = 0xff, [11] = 0xff, [12] = 10}}};
    const struct wf_name name = {.port = 80, .ip = {[10] = 0xff, [11] = 0xff, [12] = 10}};
    struct wf_names_answer answer;
    struct wf_names_question question;
    if (i > 2 || room < sizeof answer)
        return 0;
    if (i == 2) {
        wf_name_pack(&name, buf);
        return WF_ADDRESS_BYTES;
    }
    if (i == 1) {
        wf_names_question_make(&question);
        memcpy(buf, &question, sizeof question);
        return sizeof question;
    }
    wf_names_answer_make(&answer);
    (void)wf_address_pack(&a, &c, answer.address);
    memcpy(buf, &answer, sizeof answer);
    return sizeof answer;
}

/* With one more byte, a message that was refused is refused for the same reason, and a whole
 * message is whole. */
static void in_order(enum weft_status before, enum weft_status now)
{
    FUZZ_CHECK(before == WEFT_PENDING || now == before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum weft_status question = WEFT_PENDING, answer = WEFT_PENDING;
    struct wf_address a;
    struct wf_contact c;
    struct wf_name name;
    uint8_t again[WF_ADDRESS_BYTES];
    for (size_t n = 0; n <= size && n <= sizeof(struct wf_names_answer); n++) {
        enum weft_status q = wf_names_question_parse(data, n);
        enum weft_status s = wf_names_answer_parse(data, n, &a, &c);
        in_order(question, q);
        in_order(answer, s);
        FUZZ_CHECK(s != WEFT_OK || n == sizeof(struct wf_names_answer));
        FUZZ_CHECK(q != WEFT_OK || n >= sizeof(struct wf_names_question));
        question = q;
        answer = s;
    }
    if (answer == WEFT_OK) {
        fuzz_touch(&a, sizeof a);
        fuzz_touch(&c, sizeof c);
        FUZZ_CHECK(wf_address_is_valid(&a) && wf_contact_is_valid(&c));
    }
    if (wf_name_parse(data, size, &name) == WEFT_OK) {
        FUZZ_CHECK(name.port);
        wf_name_pack(&name, again);
        FUZZ_CHECK(!memcmp(again, data, sizeof again));
        FUZZ_CHECK(wf_address_parse(data, size, &a, &c) == WEFT_EINVAL);
    }
    return 0;
}
