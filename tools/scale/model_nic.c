/* SPDX-License-Identifier: BSD-3-Clause */
#include "model_nic.h"

#include <math.h>
#include <stdlib.h>

struct model_nic model_nic;

/* ---- the heap of queue pairs ---- */

static bool is_before(const struct model_qp *a, const struct model_qp *b)
{
    if (a->next != b->next)
        return a->next < b->next;
    return a->sim.base.number < b->sim.base.number;
}

static void heap_set(unsigned i, struct model_qp *qp)
{
    model_nic.heap[i] = qp;
    qp->at = i + 1;
}

static void heap_up(unsigned i, struct model_qp *qp)
{
    for (; i && is_before(qp, model_nic.heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap_set(i, model_nic.heap[(i - 1) / 2]);
    heap_set(i, qp);
}

static void heap_down(unsigned i, struct model_qp *qp)
{
    for (unsigned child; (child = 2 * i + 1) < model_nic.nheap; i = child) {
        if (child + 1 < model_nic.nheap &&
            is_before(model_nic.heap[child + 1], model_nic.heap[child]))
            child++;
        if (!is_before(model_nic.heap[child], qp))
            break;
        heap_set(i, model_nic.heap[child]);
    }
    heap_set(i, qp);
}

static void heap_pop(void)
{
    struct model_qp *last = model_nic.heap[--model_nic.nheap];
    model_nic.heap[0]->at = 0;
    if (model_nic.nheap)
        heap_down(0, last);
}

bool model_heap_reserve(unsigned n)
{
    struct model_qp **grown;
    if (n <= model_nic.room)
        return true;
    grown = realloc(model_nic.heap, 2 * n * sizeof(struct model_qp *));
    if (!grown)
        return false;
    model_nic.heap = grown;
    model_nic.room = 2 * n;
    return true;
}

/* ---- messages ---- */

static struct model_message *first_of(const struct model_qp *qp)
{
    return &qp->ring[qp->head & (qp->sim.base.sq_depth - 1)];
}

void model_send(struct model_qp *qp, const struct model_message *m)
{
    qp->ring[qp->tail++ & (qp->sim.base.sq_depth - 1)] = *m;
    model_nic.counts.messages++;
    if (qp->at)
        return;
    qp->next = fmax(m->arrival, qp->engine_free);
    heap_up(model_nic.nheap++, qp);
}

/* A completion queue's entries are in the order of their times. */
static void completion_add(struct model_cq *cq, const struct model_done *done)
{
    uint32_t mask = cq->base.depth - 1, i = cq->tail++;
    if (cq->tail - cq->head > cq->base.depth) {
        cq->base.failed = true;
        cq->tail--;
        return;
    }
    for (; i != cq->head && cq->ring[(i - 1) & mask].time > done->time; i--)
        cq->ring[i & mask] = cq->ring[(i - 1) & mask];
    cq->ring[i & mask] = *done;
    model_nic.counts.completions++;
}

/* Reads the payload of a message that leaves the shared part at [time]. */
static double payload_read(const struct model_message *m, double time)
{
    double *rail = &model_nic.rail_free[m->line % (unsigned)model_cost(WF_P_RAILS)];
    *rail = fmax(time, *rail) + model_cost(WF_P_RAIL);
    return *rail + model_cost(WF_P_PCIE_READ);
}

/* Takes the first message of the queue pair through the NIC. */
static void message_do(struct model_qp *qp)
{
    const struct model_message *m = first_of(qp);
    double start = fmax(qp->next, model_nic.free_from), done;
    model_nic.free_from = done = start + m->service;
    qp->engine_free = start + model_cost(WF_P_ENGINE);
    if (m->has_payload)
        done = payload_read(m, done);
    done = fmax(done + model_cost(WF_P_ROUND_TRIP), qp->last_done);
    qp->last_done = done;
    if (m->is_signaled)
        completion_add(qp->cq, &(struct model_done){done, m->id, qp, m->core, m->ended});
    qp->head++;
}

static void first_do(void)
{
    struct model_qp *qp = model_nic.heap[0];
    message_do(qp);
    if (qp->head == qp->tail) {
        heap_pop();
        return;
    }
    qp->next = fmax(first_of(qp)->arrival, qp->engine_free);
    heap_down(0, qp);
}

void model_advance(double now)
{
    while (model_nic.nheap && model_nic.heap[0]->next <= now)
        first_do();
}

void model_drain(void)
{
    while (model_nic.nheap)
        first_do();
}
