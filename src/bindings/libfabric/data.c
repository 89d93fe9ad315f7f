/* SPDX-License-Identifier: BSD-3-Clause */
/* Data that accompany a write (FI_REMOTE_CQ_DATA): an active message that the writer sends when the
 * write is complete. They are reported from when the target's endpoint has a queue for them, since
 * its address is known, and its regions are open, before it is enabled. */
#include "access.h"

#define DATA_ARGS 4

static uint64_t word(const uint32_t *args)
{
    return args[0] | (uint64_t)args[1] << 32;
}

static void on_data(const struct weft_am *am)
{
    struct wfi_ep *ep = am->arg;
    fi_addr_t source = FI_ADDR_NOTAVAIL;
    uint8_t bytes[WFI_ADDR_SIZE];
    size_t len = sizeof bytes;
    uint64_t version;
    /* Until the endpoint is enabled, objects may be bound meanwhile: "bound". */
    struct wfi_cq *cq = __atomic_load_n(&ep->rx_cq, __ATOMIC_ACQUIRE);
    struct wfi_av *av = ep->source ? __atomic_load_n(&ep->av, __ATOMIC_ACQUIRE) : NULL;
    if (am->nargs != DATA_ARGS || am->len || am->is_reply || !cq || !(ep->caps & FI_REMOTE_WRITE) ||
        !(ep->caps & FI_RMA)) {
        WFI_INFO(EP_DATA, "data of a write are dropped: the endpoint has no completion queue of "
                          "receives, or no FI_RMA and FI_REMOTE_WRITE\n");
        return;
    }
    if (av && weft_am_source(am, bytes, &len) == WEFT_OK)
        source = wfi_av_find(av, bytes, &version);
    if (source == FI_ADDR_NOTAVAIL && av && wfi_av_has_names(av))
        source = wfi_av_of_peer(av, weft_am_peer(am));
    wfi_cq_push(cq, NULL, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, word(am->args + 2), NULL,
                word(am->args), 0, source);
}

int wfi_data_register(struct wfi_ep *ep)
{
    enum weft_status s = weft_am_register(ep->wep, WFI_AM_DATA, on_data, ep);
    return s == WEFT_OK ? 0 : -wfi_errno(s);
}

static void set_args(uint32_t args[DATA_ARGS], uint64_t data, uint64_t len)
{
    args[0] = (uint32_t)data;
    args[1] = (uint32_t)(data >> 32);
    args[2] = (uint32_t)len;
    args[3] = (uint32_t)(len >> 32);
}

enum weft_status wfi_data_send(struct weft_peer *peer, uint64_t data, uint64_t len)
{
    uint32_t args[DATA_ARGS];
    set_args(args, data, len);
    return weft_am_request(peer, WFI_AM_DATA, args, DATA_ARGS, NULL, 0, 0);
}

enum weft_status wfi_data_deliver(struct weft_remote *r, uint64_t offset, uint64_t data,
                                  uint64_t len, struct weft_op *op)
{
    uint32_t args[DATA_ARGS];
    set_args(args, data, len);
    op->flags = WEFT_OP_DELIVERED;
    return weft_am_long(r, offset, NULL, 0, WFI_AM_DATA, args, DATA_ARGS, 0, op);
}
