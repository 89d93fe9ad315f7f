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
    if (OPAL_UNLIKELY(!peer))
        return OPAL_ERR_UNREACH;
    frag->item.peer = peer;
    frag->tag = tag;
    if (OPAL_LIKELY(!(wbtl_slow(peer) & ~WBTL_PASSES))) {
        s = wbtl_frag_post(frag, !wbtl.threads);
        if (OPAL_LIKELY(s == WEFT_OK)) {
            wbtl_sent(peer, &frag->item);
            return OPAL_SUCCESS;
        }
    }
    return wbtl_begin_slowly(peer, &frag->item, s);
}

/* ---- at once or not at all ---- */

/* May a message to [peer] by sendi go to Weft now? */
static bool is_free(wbtl_peer *peer)
{
    const unsigned slow = peer ? wbtl_slow(peer) : WBTL_LOST;
    return !(slow & ~WBTL_PASSES) && (!(slow & WBTL_FAR) || wbtl_sendi_may(peer));
}

/* Weft has a message to [peer] by sendi. */
static int sent_at_once(wbtl_peer *peer)
{
    if (wbtl_slow(peer) & WBTL_FAR)
        wbtl_leave_wait(peer);
    return OPAL_SUCCESS;
}

/* Pack the whole payload and send it, with [header] before it, from the stack: a descriptor and its
 * order would take longer than the message. Returns OK (sent) | a failure: nothing was sent */
static enum weft_status small_sendi(wbtl_peer *peer, opal_convertor_t *convertor,
                                    const void *header, size_t header_size, size_t size,
                                    uint32_t tag)
{
    unsigned char data[WBTL_SMALL];
    struct iovec iov = {data + header_size, size};
    size_t len = size;
    uint32_t count = 1;
    memcpy(data, header, header_size);
    if (opal_convertor_pack(convertor, &iov, &count, &len) < 0 || len != size)
        return WEFT_AGAIN;
    return weft_am_request(peer->weft, WBTL_HANDLER, &tag, 1, data, header_size + size, 0);
}

/* As wbtl_sendi, whose arguments it has, for a payload that has to be packed. */
__attribute__((noinline)) static int packed_sendi(mca_btl_base_module_t *btl, wbtl_peer *peer,
                                                  opal_convertor_t *convertor, const void *header,
                                                  size_t header_size, size_t size, uint8_t order,
                                                  uint32_t flags, mca_btl_base_tag_t tag,
                                                  mca_btl_base_descriptor_t **descriptor)
{
    size_t len = size, at = convertor->bConverted;
    mca_btl_base_descriptor_t *des;
    struct wbtl_frag *frag;
    if (header_size + size <= WBTL_SMALL && peer && !wbtl_slow(peer) && !wbtl_is_order(order)) {
        if (small_sendi(peer, convertor, header, header_size, size, tag) == WEFT_OK)
            return OPAL_SUCCESS;
        (void)opal_convertor_set_position(convertor, &at);
    }
    des = wbtl_prepare_src(btl, peer, convertor, order, header_size, &len, flags);
    if (descriptor)
        *descriptor = NULL;
    if (!des)
        return OPAL_ERR_RESOURCE_BUSY;
    frag = wbtl_frag_of(des);
    memcpy(frag->segments[0].seg_addr.pval, header, header_size);
    frag->item.peer = peer;
    frag->tag = tag;
    if (len == size && is_free(peer) && wbtl_frag_post(frag, !wbtl.threads) == WEFT_OK) {
        (void)wbtl_free(btl, des);
        return sent_at_once(peer);
    }
    (void)opal_convertor_set_position(convertor, &at); /* nothing was sent */
    if (descriptor && len == size)
        *descriptor = des;
    else
        (void)wbtl_free(btl, des);
    return OPAL_ERR_RESOURCE_BUSY;
}

/* A message by sendi that is not sent by the shortest way. */
__attribute__((noinline)) static int slow_sendi(wbtl_peer *peer, struct iovec header,
                                                struct iovec payload, uint8_t order, uint32_t flags,
                                                uint32_t tag,
                                                mca_btl_base_descriptor_t **descriptor)
{
    const struct iovec iov[2] = {header, payload};
    const unsigned count = payload.iov_len ? 2 : 1;
    struct weft_order after;
    if (descriptor)
        *descriptor = NULL;
    if (is_free(peer) && wbtl_order_first(peer, wbtl_order_of(peer, order), &after) == WEFT_OK &&
        weft_order_send(peer->weft, WBTL_HANDLER, &tag, 1, iov, count, after, NULL) == WEFT_OK)
        return sent_at_once(peer);
    if (descriptor)
        *descriptor = wbtl_alloc(&wbtl.super, peer, order, iov[0].iov_len + iov[1].iov_len, flags);
    return OPAL_ERR_RESOURCE_BUSY;
}

/* The shortest way has 50 instructions. Its parts are as they are for that reason: ob1 asks for no
 * order by MCA_BTL_NO_ORDER here, and [word] is no constant, so that no register keeps it during
 * the call. */
int wbtl_sendi(mca_btl_base_module_t *btl, wbtl_peer *peer, opal_convertor_t *convertor,
               void *header, size_t header_size, size_t payload_size, uint8_t order, uint32_t flags,
               mca_btl_base_tag_t tag, mca_btl_base_descriptor_t **descriptor)
{
    uint32_t word = tag;
    struct iovec iov[2];
    iov[0].iov_base = header;
    iov[0].iov_len = header_size;
    iov[1].iov_len = payload_size;
    if (OPAL_LIKELY(payload_size)) {
        if (OPAL_UNLIKELY(opal_convertor_need_buffers(convertor)))
            return packed_sendi(btl, peer, convertor, header, header_size, payload_size, order,
                                flags, tag, descriptor);
        opal_convertor_get_current_pointer(convertor, &iov[1].iov_base);
    } else
        iov[1].iov_base = NULL;
    if (OPAL_LIKELY(peer && !wbtl_slow(peer) && order == MCA_BTL_NO_ORDER)) {
        if (OPAL_LIKELY(weft_am_requestv(peer->weft, WBTL_HANDLER, &word, 1, iov,
                                         payload_size ? 2 : 1, 0) == WEFT_OK))
            return OPAL_SUCCESS;
        order = MCA_BTL_NO_ORDER;
    }
    return slow_sendi(peer, iov[0], iov[1], order, flags, word, descriptor);
}
