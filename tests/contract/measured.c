/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice between parts and one copy for tagged messages within a node, by what they cost. */
#include <stdbool.h>
#include <string.h>

#include "contract.h"

#define LEN 100000u
#define MESSAGES 300 /* of the first 1,024, 8 of 128 go the other way */

static struct weft_path path_now(const struct pair *p)
{
    struct weft_path path = {0};
    OK(weft_path_of(p->peer[0], WEFT_OP_MSG, NULL, LEN, &path));
    return path;
}

static bool is_measured(const struct pair *p)
{
    const char *protocol = path_now(p).protocol;
    return config_value("WEFT_MSG_EAGER") >= 8192 &&
           (!strcmp(protocol, "pull") || !strcmp(protocol, "parts"));
}

/* Send message [i] to a receive that is posted before it, or, if [late], after it has come. */
static void send_one(struct pair *p, unsigned i, bool late, unsigned char *out, unsigned char *in)
{
    struct weft_op s = {0}, r = {0};
    enum weft_status sent, status = WEFT_PENDING;
    memset(out, (int)(i + 1), LEN);
    memset(in, 0, LEN);
    if (!late)
        status = weft_msg_recv(p->ep[1], NULL, i, WEFT_TAG_FULL, in, LEN, &r);
    sent = weft_msg_send(p->peer[0], i, out, LEN, &s);
    if (late) {
        pair_poll(p);
        status = weft_msg_recv(p->ep[1], NULL, i, WEFT_TAG_FULL, in, LEN, &r);
    }
    GIVES(WEFT_OK, op_end(p, &r, status));
    GIVES(WEFT_OK, op_end(p, &s, sent));
    assert_memory_equal(in, out, LEN);
}

/* Fails when: one of the two ways is never tried or never measured; the costs are exchanged, so
 * that the dearer way is taken; or a message that goes the other way is lost, or arrives wrong. */
void test_measured_ways(void **state)
{
    struct pair *p = *state;
    unsigned char *out = test_malloc(LEN), *in = test_malloc(LEN);
    struct weft_path path;
    bool measured = is_measured(p);
    uint64_t parts = pair_stat(p, "MSG_PARTS"), pulls = pair_stat(p, "MSG_PULL");
    for (unsigned i = 0; i < MESSAGES; i++)
        send_one(p, i, i % 7 == 6, out, in);
    parts = pair_stat(p, "MSG_PARTS") - parts;
    pulls = pair_stat(p, "MSG_PULL") - pulls;
    path = path_now(p);
    if (measured) {
        assert_int_equal(parts + pulls, MESSAGES);
        assert_in_range(parts, 8, MESSAGES - 8);
        assert_in_range(path.parts_ps, 1, UINT16_MAX - 1);
        assert_in_range(path.pull_ps, 1, UINT16_MAX - 1);
        if (path.pull_ps * 5 < path.parts_ps * 4)
            assert_string_equal(path.protocol, "pull");
        if (path.parts_ps * 5 < path.pull_ps * 4)
            assert_string_equal(path.protocol, "parts");
    } else {
        assert_int_equal(path.parts_ps + path.pull_ps, 0);
    }
    test_free(out);
    test_free(in);
}
