/* SPDX-License-Identifier: BSD-3-Clause */
/* What comes on the socket beside an RDMA queue session, word for word; what a connection manager's
 * request carries. */
#include "fuzz.h"

#include "transport/rdma/words.h"

size_t fuzz_seed(unsigned i, uint8_t *buf, size_t room)
{
    struct rdma_word word = {.past = {7, 0x123456},
                             .end = {.gid = {0xfe, 0x80, [15] = 1},
                                     .qp = 17,
                                     .psn = 0xffffff,
                                     .mtu = 1024,
                                     .reads = 16,
                                     .link = WF_HCA_ETHERNET},
                             .device = WF_KEY_NICS - 1,
                             .window = 34,
                             .name = 0x10000,
                             .cell_key = 5,
                             .cell_at = 4096,
                             .cm_port = 7777,
                             .cm_address = {0xfe, 0x80, [15] = 2},
                             .ticket = 0x0123456789abcdef};
    size_t n = 0;
    if (room < 2 * WORD_SIZE)
        return 0;
    switch (i) {
    case 0:
        word.kind = SAYS_ENDS;
        n = wf_rdma_word_write(&word, buf);
        word.kind = SAYS_READY;
        return n + wf_rdma_word_write(&word, buf + n);
    case 1:
        word.kind = SAYS_ENDS;
        word.past.psn = PAST_NONE;
        word.cm_port = 0;
        word.ticket = 0;
        memset(word.cm_address, 0, sizeof word.cm_address);
        n = wf_rdma_word_write(&word, buf);
        word.kind = SAYS_PLAIN;
        return n + wf_rdma_word_write(&word, buf + n);
    case 2: word.kind = SAYS_PLAIN; return wf_rdma_word_write(&word, buf);
    case 3:
        wf_rdma_call_write(&(struct rdma_call){word.name, word.ticket}, buf);
        memset(buf + CALL_SIZE, 0, WF_HCA_CM_DATA - CALL_SIZE);
        return WF_HCA_CM_DATA;
    default: return 0;
    }
}

static void call_check(const uint8_t *data, size_t size)
{
    struct rdma_call call;
    uint8_t again[CALL_SIZE];
    if (!wf_rdma_call_read(data, size, &call))
        return;
    wf_rdma_call_write(&call, again);
    FUZZ_CHECK(!memcmp(again, data, CALL_SIZE));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    call_check(data, size);
    while (size) {
        struct rdma_word word;
        uint8_t again[WORD_SIZE];
        size_t n = wf_rdma_word_size(data, size);
        FUZZ_CHECK(n <= WORD_SIZE);
        if (!n || n > size)
            return 0;
        if (wf_rdma_word_size(data, n) == n && wf_rdma_word_read(data, &word)) {
            FUZZ_CHECK(wf_rdma_word_write(&word, again) == n && !memcmp(again, data, n));
            FUZZ_CHECK(word.past.psn == PAST_NONE || word.past.psn <= 0xffffff);
            FUZZ_CHECK(word.cm_port || !word.ticket);
            FUZZ_CHECK(word.device < WF_KEY_NICS);
        }
        data += n;
        size -= n;
    }
    return 0;
}
