/* SPDX-License-Identifier: BSD-3-Clause */
/* weft/node.h where Weft is built without libibverbs or libsodium: no weft_node can be opened, so
 * none can be given to the other calls. */
#include <weft/node.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define ABSENT(name, arguments, status)                                                            \
    enum weft_status name arguments                                                                \
    {                                                                                              \
        return status;                                                                             \
    }

#define NODE struct weft_node *node
#define RANGE const void *addr, size_t len
#define EVICTED struct weft_node_evicted *out
#define PEER struct weft_node_peer *peer

ABSENT(weft_node_open, (const struct weft_node_params *params, struct weft_node **out), WEFT_ENOSYS)
ABSENT(weft_node_close, (NODE), WEFT_EINVAL)
ABSENT(weft_node_query, (NODE, struct weft_node_info *out), WEFT_EINVAL)
ABSENT(weft_node_mr_open, (NODE, void *addr, size_t len, unsigned access, struct weft_node_mr *out),
       WEFT_EINVAL)
ABSENT(weft_node_mr_close, (NODE, const struct weft_node_mr *mr), WEFT_EINVAL)
ABSENT(weft_node_evict, (NODE, RANGE, unsigned access, EVICTED), WEFT_EINVAL)
ABSENT(weft_node_evict_range, (NODE, RANGE, EVICTED), WEFT_EINVAL)
ABSENT(weft_node_evict_amount, (NODE, uint64_t bytes, uint64_t count, EVICTED), WEFT_EINVAL)
ABSENT(weft_node_cache_count, (NODE, struct weft_node_cache_counts *out), WEFT_EINVAL)
ABSENT(weft_node_address, (NODE, void *addr, size_t *len), WEFT_EINVAL)
ABSENT(weft_node_peer_open, (NODE, RANGE, struct weft_node_peer **out), WEFT_EINVAL)
ABSENT(weft_node_peer_close, (PEER), WEFT_EINVAL)
ABSENT(weft_node_connect, (PEER), WEFT_EINVAL)
ABSENT(weft_node_connected, (PEER), WEFT_EINVAL)
ABSENT(weft_node_connects, (PEER, uint32_t connection, uint32_t *count), WEFT_EINVAL)
ABSENT(weft_node_peer_stats, (NODE, PEER, struct weft_node_peer_counts *out), WEFT_EINVAL)
ABSENT(weft_node_write, (PEER, const struct weft_node_post *post, struct weft_node_sent *out),
       WEFT_EINVAL)
ABSENT(weft_node_event, (NODE, struct weft_node_event_entry *out), WEFT_EINVAL)
ABSENT(weft_node_event_stats, (NODE, struct weft_node_event_counts *out), WEFT_EINVAL)
