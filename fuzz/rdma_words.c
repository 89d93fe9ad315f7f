/* SPDX-License-Identifier: BSD-3-Clause */
/* What comes on the socket beside an RDMA queue session, word for word; what a connection manager's
 * request carries. */
#include "fuzz.h"

#include "transport/rdma/qp_msg.h"

size_t fuzz_seed(unsigned i, uint8_t *buf, size_t room)
{
    struct qp_msg word = {.acked = {7, 0x123456},
                          .end = {.gid = {0xfe, 0x80, [15] = 1},
                                  .qp = 17,
                                  .psn = 0xffffff,
                                  .mtu = 1024,
                                  .reads = 16,
                                  .link = WF_HCA_ETHERNET},
                          .device = WF_KEY_NICS - 1,
                          .window = 34,
                          .name = 0x10000,
                          .credit_key = 5,
                          .credit_at = 4096,
                          .cm_port = 7777,
                          .cm_address = {0xfe, 0x80, [15] = 2},
                          .ticket = 0x0123456789abcdef};
    size_t n = 0;
    if (room < 2 * QP_MSG_SIZE)
        return 0;
    switch (i) {
    case 0:
        word.kind = QP_MSG_ENDS;
        n = wf_qp_msg_write(&word, buf);
        word.kind = QP_MSG_READY;
        return n + wf_qp_msg_write(&word, buf + n);
    case 1:
        word.kind = QP_MSG_ENDS;
        word.acked.psn = PSN_NONE;
        word.cm_port = 0;
        word.ticket = 0;
        memset(word.cm_address, 0, sizeof word.cm_address);
        n = wf_qp_msg_write(&word, buf);
        word.kind = QP_MSG_PLAIN;
        return n + wf_qp_msg_write(&word, buf + n);
    case 2: word.kind = QP_MSG_PLAIN; return wf_qp_msg_write(&word, buf);
    case 3:
        wf_cm_data_write(&(struct cm_data){word.name, word.ticket}, buf);
        memset(buf + CM_DATA_SIZE, 0, WF_HCA_CM_DATA - CM_DATA_SIZE);
        return WF_HCA_CM_DATA;
    default: return 0;
    }
}

static void call_check(const uint8_t *data, size_t size)
{
    struct cm_data call;
    uint8_t again[CM_DATA_SIZE];
    if (!wf_cm_data_read(data, size, &call))
        return;
    wf_cm_data_write(&call, again);
    FUZZ_CHECK(!memcmp(again, data, CM_DATA_SIZE));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    call_check(data, size);
    while (size) {
        struct qp_msg word;
        uint8_t again[QP_MSG_SIZE];
        size_t n = wf_qp_msg_size(data, size);
        FUZZ_CHECK(n <= QP_MSG_SIZE);
        if (!n || n > size)
            return 0;
        if (wf_qp_msg_size(data, n) == n && wf_qp_msg_read(data, &word)) {
            FUZZ_CHECK(wf_qp_msg_write(&word, again) == n && !memcmp(again, data, n));
            FUZZ_CHECK(word.acked.psn == PSN_NONE || word.acked.psn <= 0xffffff);
            FUZZ_CHECK(word.cm_port || !word.ticket);
            FUZZ_CHECK(word.device < WF_KEY_NICS);
        }
        data += n;
        size -= n;
    }
    return 0;
}
