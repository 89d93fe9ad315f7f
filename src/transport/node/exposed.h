/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of this process that a service without a NIC accesses (exposed.c), and puts and gets
 * that such services carry (bounce.c). docs/design/node.md "Puts and gets by services without a
 * NIC".
 *
 * Regions in Weft's own memory are *exposed*: each has an entry in the region table, which the
 * service maps as it maps their slabs. This process gives both by packets, again to each successor;
 * keys do not change with that. A region is closed by its entry alone, without the service: space
 * in a slab is never handed out twice (mem/mem.h), so bytes that come late hurt nobody.
 *
 * | slab   | event                          | action        | next   |
 * | ------ | ------------------------------ | ------------- | ------ |
 * | -      | its first region is exposed    | -             | DUE    |
 * | DUE    | the socket has room            | SLAB          | GIVEN  |
 * | DUE    | its last region is closed      | -             | -      |
 * | GIVEN  | its last region is closed      | -             | LEAVES |
 * | LEAVES | a region is exposed in it      | -             | GIVEN  |
 * | LEAVES | the socket has room            | UNSLAB        | -      |
 * | GIVEN  | the service has ended          | -             | DUE    |
 * | LEAVES | the service has ended          | -             | -      |
 *
 * Any thread may call these functions, but those of bounce.c, which only an endpoint's owner calls.
 * via_exposed.lock is a leaf: but for wf_mem.lock, no lock is taken while it is held. */
#ifndef WF_TRANSPORT_NODE_EXPOSED_H
#define WF_TRANSPORT_NODE_EXPOSED_H

#include "transport/node/via.h"

/* Returns NULL, and logs the reason, if no memory can be exposed. */
struct via_exposed *wf_via_exposed_open(struct wf_mem *mem);
/* All regions are closed. */
void wf_via_exposed_close(struct via_exposed *exposed);
/* Send the packets that are due. Returns false if the socket has no room. Sets *later if some
 * cannot be sent now for want of a descriptor or memory: call again after a pause. */
bool wf_via_exposed_send(struct via_exposed *exposed, int sock, bool *later);
/* The service has ended: its successor is given all of it. */
void wf_via_exposed_stale(struct via_exposed *exposed);

/* As the functions of the transport's table. */
enum weft_status wf_via_exposed_region_open(struct via_ctx *ctx, const struct wf_nic_memory *memory,
                                            unsigned access, void **handle);
void wf_via_exposed_region_keys(const void *handle, uint64_t *at, uint32_t keys[WF_KEY_NICS]);
void wf_via_exposed_region_close(struct via_ctx *ctx, void *handle);

/* ---- bounce.c ---- */

enum weft_status wf_via_bounce_op(struct wf_tpeer *tpeer, const struct wf_nic_op *op,
                                  size_t *taken);
/* As node_client_ops.moved. */
void wf_via_bounce_moved(struct via_ep *ep, const struct node_move_use *move,
                         enum weft_status status);
/* As nic_stop of the transport's table. */
void wf_via_bounce_stop(struct wf_tpeer *tpeer);

#endif
