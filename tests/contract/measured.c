/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice between parts and one copy for tagged messages within a node, by what they cost. */
#include <stdbool.h>
#include <string.h>

#include "contract.h"

#define LEN 100000u
#define SHORT 16384u /* at most WEFT_AM_MAX in some variants */
#define MESSAGES 300 /* of the first 1,024, 8 of 128 go the other way */

static struct weft_path path_now(const struct pair *p, size_t len)
{
    struct weft_path path = {0};
    OK(weft_path_of(p->peer[0], WEFT_OP_MSG, NULL, len, &path));
    return path;
}

/* Are messages of [len] bytes measured? Not if the receiver can never copy: messages that are too
 * long to be measured show it. */
static bool is_measured(const struct pair *p, size_t len)
{
    size_t eager = config_value("WEFT_MSG_EAGER");
    return eager >= 8192 && eager >= weft_am_max(p->ep[0]) &&
           !strcmp(path_now(p, 1 << 20).protocol, "pull") &&
           strcmp(path_now(p, len).protocol, "eager") != 0;
}

/* Send message [i] to a receive that is posted before it, or, if [late], after it has come. */
static void send_one(struct pair *p, unsigned i, bool late, size_t len, unsigned char *out,
                     unsigned char *in)
{
    struct weft_op s = {0}, r = {0};
    enum weft_status sent, status = WEFT_PENDING;
    memset(out, (int)(i + 1), len);
    memset(in, 0, len);
    if (!late)
        status = weft_msg_recv(p->ep[1], NULL, i, WEFT_TAG_FULL, in, len, &r);
    sent = weft_msg_send(p->peer[0], i, out, len, &s);
    if (late) {
        pair_poll(p);
        status = weft_msg_recv(p->ep[1], NULL, i, WEFT_TAG_FULL, in, len, &r);
    }
    GIVES(WEFT_OK, op_end(p, &r, status));
    GIVES(WEFT_OK, op_end(p, &s, sent));
    assert_memory_equal(in, out, len);
}

/* Fails when: one of the two ways is never tried or never measured; the costs are exchanged, so
 * that the dearer way is taken; a message that goes the other way is lost, or arrives wrong; or
 * messages that fit into one part are measured, which then never arrive. */
void test_measured_ways(void **state)
{
    struct pair *p = *state;
    unsigned char *out = test_malloc(LEN), *in = test_malloc(LEN);
    for (unsigned turn = 0; turn < 2; turn++) {
        size_t len = turn ? SHORT : LEN;
        bool measured = is_measured(p, len);
        uint64_t parts = pair_stat(p, "MSG_PARTS"), pulls = pair_stat(p, "MSG_PULL");
        struct weft_path path;
        for (unsigned i = 0; i < MESSAGES; i++)
            send_one(p, i, i % 7 == 6, len, out, in);
        parts = pair_stat(p, "MSG_PARTS") - parts;
        pulls = pair_stat(p, "MSG_PULL") - pulls;
        path = path_now(p, len);
        if (!measured) {
            assert_int_equal(path.parts_ps + path.pull_ps, 0);
            continue;
        }
        assert_int_equal(parts + pulls, MESSAGES);
        assert_in_range(parts, 8, MESSAGES - 8);
        assert_in_range(path.parts_ps, 1, UINT16_MAX - 1);
        assert_in_range(path.pull_ps, 1, UINT16_MAX - 1);
        if (path.pull_ps * 5 < path.parts_ps * 4)
            assert_string_equal(path.protocol, "pull");
        if (path.parts_ps * 5 < path.pull_ps * 4)
            assert_string_equal(path.protocol, "parts");
    }
    test_free(out);
    test_free(in);
}
