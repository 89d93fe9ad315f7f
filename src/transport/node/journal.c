/* SPDX-License-Identifier: BSD-3-Clause */
/* The journal: each message is kept until it is acknowledged. */
#include "transport/node/engine.h"

#include <stdlib.h>

bool wf_node_journal_open(struct node_client *c, struct node_flow *flow)
{
    if (flow->journal)
        return true;
    flow->journal = c->spare_journals;
    if (flow->journal)
        memcpy(&c->spare_journals, flow->journal, sizeof(void *));
    else
        flow->journal = wf_lines_new(WF_NODE_WINDOW * sizeof(struct node_record));
    return flow->journal;
}

void wf_node_journal_keep(struct node_client *c, struct node_flow *flow)
{
    if (!flow->journal)
        return;
    memcpy(flow->journal, &c->spare_journals, sizeof(void *));
    c->spare_journals = flow->journal;
    flow->journal = NULL;
}

static uint32_t body_of(const struct node_record *r)
{
    return wf_node_body(r->len, r->nargs);
}

static void block_free(struct node_client *c, struct node_record *r)
{
    if (r->where == WF_NODE_NO_BLOCK)
        return;
    wf_node_blocks_give(&c->blocks, r->where, (body_of(r) + WF_NODE_BLOCK - 1) / WF_NODE_BLOCK);
    r->where = WF_NODE_NO_BLOCK;
}

static void record_free(struct node_client *c, struct node_flow *flow, struct node_record *r)
{
    uint32_t body = body_of(r);
    block_free(c, r);
    if (r->own) {
        c->own_bytes -= body;
        free(r->own);
        r->own = NULL;
    }
    flow->bytes -= body;
    c->sent_bytes -= body;
    if (flow->is_reply) {
        c->replies--;
        c->reply_bytes -= body;
    }
}

void wf_node_journal_ack(struct node_client *c, struct node_flow *flow, uint32_t upto)
{
    for (; flow->low != upto; flow->low++)
        record_free(c, flow, wf_node_record_at(flow, flow->low));
    if ((int32_t)(flow->posted - flow->low) < 0)
        flow->posted = flow->low;
}

void wf_node_journal_park(struct node_client *c, struct node_flow *flow)
{
    for (uint32_t n = flow->low; n != flow->next; n++) {
        struct node_record *r = wf_node_record_at(flow, n);
        uint32_t body = body_of(r);
        if (r->where == WF_NODE_NO_BLOCK)
            continue;
        r->own = malloc(body);
        if (!r->own)
            continue;
        memcpy(r->own,
               (uint8_t *)c->submit + wf_node_submit_blocks_at(c->size) +
                   (size_t)r->where * WF_NODE_BLOCK,
               body);
        c->own_bytes += body;
        block_free(c, r);
    }
}
