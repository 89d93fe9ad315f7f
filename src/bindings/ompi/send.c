/* SPDX-License-Identifier: BSD-3-Clause */
/* A message of Open MPI's is one active message, whose argument is the BTL tag. */
#include <string.h>
#include <sys/uio.h>

#include "binding.h"

_Static_assert(sizeof(mca_btl_base_segment_t) == sizeof(struct iovec) &&
                   offsetof(mca_btl_base_segment_t, seg_len) == offsetof(struct iovec, iov_len),
               "segments are copied as pieces");

enum weft_status wbtl_frag_post(struct wbtl_frag *frag)
{
    const uint32_t tag = frag->tag;
    struct iovec iov[2];
    memcpy(iov, frag->segments, sizeof iov);
    return weft_am_requestv(frag->item.peer->weft, WBTL_HANDLER, &tag, 1, iov,
                            (unsigned)frag->base.des_segment_count, 0);
}

int wbtl_send(mca_btl_base_module_t *btl, wbtl_peer *peer, mca_btl_base_descriptor_t *des,
              mca_btl_base_tag_t tag)
{
    struct wbtl_frag *frag = wbtl_frag_of(des);
    enum weft_status s = WEFT_OK;
    (void)btl;
    frag->item.peer = peer;
    frag->tag = tag;
    if (OPAL_LIKELY(!wbtl_slow(peer))) {
        s = wbtl_frag_post(frag);
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
static int packed_sendi(wbtl_peer *peer, opal_convertor_t *convertor, const void *header,
                        size_t header_size, size_t size, uint32_t flags, mca_btl_base_tag_t tag,
                        mca_btl_base_descriptor_t **descriptor)
{
    size_t len = size;
    mca_btl_base_descriptor_t *des =
        wbtl_prepare_src(&wbtl.super, peer, convertor, MCA_BTL_NO_ORDER, header_size, &len, flags);
    struct wbtl_frag *frag;
    if (!des)
        return OPAL_ERR_RESOURCE_BUSY;
    frag = wbtl_frag_of(des);
    memcpy(frag->segments[0].seg_addr.pval, header, header_size);
    frag->item.peer = peer;
    frag->tag = tag;
    if (len == size && !wbtl_slow(peer) && wbtl_frag_post(frag) == WEFT_OK) {
        (void)wbtl_free(&wbtl.super, des);
        return OPAL_SUCCESS;
    }
    if (descriptor && len == size)
        *descriptor = des;
    else
        (void)wbtl_free(&wbtl.super, des);
    return OPAL_ERR_RESOURCE_BUSY;
}

static int not_sent(wbtl_peer *peer, size_t size, uint32_t flags,
                    mca_btl_base_descriptor_t **descriptor)
{
    if (descriptor)
        *descriptor = wbtl_alloc(&wbtl.super, peer, MCA_BTL_NO_ORDER, size, flags);
    return OPAL_ERR_RESOURCE_BUSY;
}

int wbtl_sendi(mca_btl_base_module_t *btl, wbtl_peer *peer, opal_convertor_t *convertor,
               void *header, size_t header_size, size_t payload_size, uint8_t order, uint32_t flags,
               mca_btl_base_tag_t tag, mca_btl_base_descriptor_t **descriptor)
{
    const uint32_t word = tag;
    struct iovec iov[2] = {{header, header_size}, {NULL, payload_size}};
    (void)btl, (void)order;
    if (descriptor)
        *descriptor = NULL;
    if (OPAL_UNLIKELY(wbtl_slow(peer)))
        return not_sent(peer, header_size + payload_size, flags, descriptor);
    if (payload_size) {
        if (OPAL_UNLIKELY(opal_convertor_need_buffers(convertor)))
            return packed_sendi(peer, convertor, header, header_size, payload_size, flags, tag,
                                descriptor);
        opal_convertor_get_current_pointer(convertor, &iov[1].iov_base);
    }
    if (OPAL_LIKELY(weft_am_requestv(peer->weft, WBTL_HANDLER, &word, 1, iov, payload_size ? 2 : 1,
                                     0) == WEFT_OK))
        return OPAL_SUCCESS;
    return not_sent(peer, header_size + payload_size, flags, descriptor);
}
