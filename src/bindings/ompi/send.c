/* SPDX-License-Identifier: BSD-3-Clause */
/* A message of Open MPI's is one active message, whose argument is the BTL tag. */
#include <string.h>
#include <sys/uio.h>

#include "binding.h"

_Static_assert(sizeof(mca_btl_base_segment_t) == sizeof(struct iovec) &&
                   offsetof(mca_btl_base_segment_t, seg_len) == offsetof(struct iovec, iov_len),
               "segments are copied as pieces");

enum weft_status wbtl_frag_post(struct wbtl_frag *frag, bool is_alone)
{
    const uint32_t tag = frag->tag;
    struct iovec iov[2];
    memcpy(iov, frag->segments, sizeof iov);
    return wbtl_order_send(frag, &tag, iov, (unsigned)frag->base.des_segment_count, is_alone);
}

int wbtl_send(mca_btl_base_module_t *btl, wbtl_peer *peer, mca_btl_base_descriptor_t *des,
              mca_btl_base_tag_t tag)
{
    struct wbtl_frag *frag = wbtl_frag_of(des);
    enum weft_status s = WEFT_OK;
    (void)btl;
    frag->item.peer = peer;
    frag->tag = tag;
    if (OPAL_LIKELY(!(wbtl_slow(peer) & ~WBTL_PUTS))) {
        s = wbtl_frag_post(frag, !wbtl.threads);
        if (OPAL_LIKELY(s == WEFT_OK)) {
            wbtl_ended(&frag->item, OPAL_SUCCESS);
            return OPAL_SUCCESS;
        }
    }
    return wbtl_begin_slowly(peer, &frag->item, s);
}

/* ---- at once or not at all ---- */

/* Send a message whose payload has to be packed. Returns OPAL_SUCCESS | OPAL_ERR_RESOURCE_BUSY
 * (*descriptor holds the message, if [descriptor] is not NULL and there was a descriptor) */
__attribute__((noinline)) static int packed_sendi(wbtl_peer *peer, opal_convertor_t *convertor,
                                                  const void *header, size_t header_size,
                                                  size_t size, uint8_t order, uint32_t flags,
                                                  mca_btl_base_tag_t tag,
                                                  mca_btl_base_descriptor_t **descriptor)
{
    size_t len = size, at = convertor->bConverted;
    mca_btl_base_descriptor_t *des =
        wbtl_prepare_src(&wbtl.super, peer, convertor, order, header_size, &len, flags);
    struct wbtl_frag *frag;
    if (!des)
        return OPAL_ERR_RESOURCE_BUSY;
    frag = wbtl_frag_of(des);
    memcpy(frag->segments[0].seg_addr.pval, header, header_size);
    frag->item.peer = peer;
    frag->tag = tag;
    if (len == size && !(wbtl_slow(peer) & ~WBTL_PUTS) &&
        wbtl_frag_post(frag, !wbtl.threads) == WEFT_OK) {
        (void)wbtl_free(&wbtl.super, des);
        return OPAL_SUCCESS;
    }
    (void)opal_convertor_set_position(convertor, &at); /* nothing was sent */
    if (descriptor && len == size)
        *descriptor = des;
    else
        (void)wbtl_free(&wbtl.super, des);
    return OPAL_ERR_RESOURCE_BUSY;
}

/* A message by sendi that is not sent by the shortest way. */
__attribute__((noinline)) static int slow_sendi(wbtl_peer *peer, const struct iovec *iov,
                                                unsigned count, uint8_t order, uint32_t flags,
                                                uint32_t tag,
                                                mca_btl_base_descriptor_t **descriptor)
{
    struct weft_order after;
    if (!(wbtl_slow(peer) & ~WBTL_PUTS) &&
        wbtl_order_first(peer, wbtl_order_of(peer, order), &after) == WEFT_OK &&
        weft_order_send(peer->weft, WBTL_HANDLER, &tag, 1, iov, count, after, NULL) == WEFT_OK)
        return OPAL_SUCCESS;
    if (descriptor)
        *descriptor = wbtl_alloc(&wbtl.super, peer, order,
                                 iov[0].iov_len + (count > 1 ? iov[1].iov_len : 0), flags);
    return OPAL_ERR_RESOURCE_BUSY;
}

int wbtl_sendi(mca_btl_base_module_t *btl, wbtl_peer *peer, opal_convertor_t *convertor,
               void *header, size_t header_size, size_t payload_size, uint8_t order, uint32_t flags,
               mca_btl_base_tag_t tag, mca_btl_base_descriptor_t **descriptor)
{
    const uint32_t word = tag;
    const unsigned count = payload_size ? 2 : 1;
    struct iovec iov[2] = {{header, header_size}, {NULL, payload_size}};
    (void)btl;
    if (descriptor)
        *descriptor = NULL;
    if (payload_size) {
        if (OPAL_UNLIKELY(opal_convertor_need_buffers(convertor)))
            return packed_sendi(peer, convertor, header, header_size, payload_size, order, flags,
                                tag, descriptor);
        opal_convertor_get_current_pointer(convertor, &iov[1].iov_base);
    }
    if (OPAL_LIKELY(!wbtl_slow(peer) && !wbtl_is_order(order)) &&
        OPAL_LIKELY(weft_am_requestv(peer->weft, WBTL_HANDLER, &word, 1, iov, count, 0) == WEFT_OK))
        return OPAL_SUCCESS;
    return slow_sendi(peer, iov, count, order, flags, word, descriptor);
}
