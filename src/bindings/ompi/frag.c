/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors. Each has a buffer of one of three sizes, and may name memory of the program besides.
 * Open MPI tries again later if there is none. */
#include "rma.h"

OBJ_CLASS_DECLARATION(wbtl_frag);
typedef struct wbtl_frag wbtl_frag;
OBJ_CLASS_INSTANCE(wbtl_frag, mca_btl_base_descriptor_t, NULL, NULL);

static int frag_init(opal_free_list_item_t *item, void *list)
{
    struct wbtl_frag *frag = (struct wbtl_frag *)item;
    frag->list = list;
    frag->item.kind = WBTL_MESSAGE;
    frag->orders = NULL;
    frag->number = 0;
    frag->base.des_segments = frag->segments;
    frag->segments[0].seg_addr.pval = item->ptr;
    WBTL_LISTED(item);
    return OPAL_SUCCESS;
}

static bool list_init(opal_free_list_t *list, size_t room)
{
    OBJ_CONSTRUCT(list, opal_free_list_t);
    return opal_free_list_init(list, sizeof(struct wbtl_frag), 64, OBJ_CLASS(wbtl_frag), room, 64,
                               wbtl.vars.list_first, wbtl.vars.list_most, wbtl.vars.list_more, NULL,
                               0, NULL, frag_init, list) == OPAL_SUCCESS;
}

static size_t eager_room(void)
{
    const mca_btl_base_module_t *m = &wbtl.super;
    return m->btl_eager_limit > m->btl_rndv_eager_limit ? m->btl_eager_limit
                                                        : m->btl_rndv_eager_limit;
}

bool wbtl_lists_init(void)
{
    bool good = list_init(&wbtl.small, WBTL_SMALL);
    good = list_init(&wbtl.eager, eager_room()) && good;
    good = list_init(&wbtl.most, wbtl.super.btl_max_send_size) && good;
    good = wbtl_accesses_init(&wbtl.access_list) && good;
    wbtl.lists_made = true;
    return good;
}

void wbtl_lists_fini(void)
{
    if (!wbtl.lists_made)
        return;
    OBJ_DESTRUCT(&wbtl.small);
    OBJ_DESTRUCT(&wbtl.eager);
    OBJ_DESTRUCT(&wbtl.most);
    OBJ_DESTRUCT(&wbtl.access_list);
    wbtl.lists_made = false;
}

/* The list whose buffers are the shortest that hold [size] bytes; NULL: there is none. Either limit
 * may be the greater one. */
static opal_free_list_t *list_for(size_t size)
{
    const size_t eager = eager_room(), most = wbtl.super.btl_max_send_size;
    if (size <= WBTL_SMALL)
        return &wbtl.small;
    if (size <= eager && size <= most)
        return eager < most ? &wbtl.eager : &wbtl.most;
    return size <= eager ? &wbtl.eager : size <= most ? &wbtl.most : NULL;
}

/* Returns a descriptor with a buffer of [size] bytes, whose message follows [order]; NULL: there is
 * none, or none is so long. */
static struct wbtl_frag *frag_take(const wbtl_peer *peer, uint8_t order, size_t size,
                                   uint32_t flags)
{
    opal_free_list_t *list = list_for(size);
    struct wbtl_frag *frag = list ? (struct wbtl_frag *)wbtl_list_get(list) : NULL;
    if (!frag)
        return NULL;
    frag->segments[0].seg_len = size;
    frag->base.des_segment_count = 1;
    frag->base.des_cbfunc = NULL;
    frag->base.des_flags = flags;
    frag->base.order = MCA_BTL_NO_ORDER;
    frag->after = wbtl_order_of(peer, order);
    return frag;
}

mca_btl_base_descriptor_t *wbtl_alloc(mca_btl_base_module_t *btl, wbtl_peer *peer, uint8_t order,
                                      size_t size, uint32_t flags)
{
    struct wbtl_frag *frag = frag_take(peer, order, size, flags);
    (void)btl;
    return frag ? &frag->base : NULL;
}

int wbtl_free(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *des)
{
    struct wbtl_frag *frag = wbtl_frag_of(des);
    (void)btl;
    wbtl_number_return(frag);
    wbtl_list_return(frag->list, &frag->base.super);
    return OPAL_SUCCESS;
}

/* Contiguous data stay where they are: Weft copies them when the message is sent. */
mca_btl_base_descriptor_t *wbtl_prepare_src(mca_btl_base_module_t *btl, wbtl_peer *peer,
                                            opal_convertor_t *convertor, uint8_t order,
                                            size_t reserve, size_t *size, uint32_t flags)
{
    const bool in_place = !opal_convertor_need_buffers(convertor);
    const size_t eager = eager_room(), pieces = wbtl.super.btl_max_send_size;
    const size_t most = eager < pieces ? pieces : eager;
    size_t len = *size, room;
    struct iovec iov = {NULL, 0};
    uint32_t count = 1;
    struct wbtl_frag *frag;
    (void)btl;
    if (reserve > most)
        return NULL;
    room = len > most - reserve ? most - reserve : len;
    frag = frag_take(peer, order, in_place ? reserve : reserve + room, flags);
    if (!frag)
        return NULL;
    iov.iov_len = len = room;
    if (!in_place)
        iov.iov_base = (char *)frag->segments[0].seg_addr.pval + reserve;
    if (opal_convertor_pack(convertor, &iov, &count, &len) < 0) {
        wbtl_free(btl, &frag->base);
        return NULL;
    }
    *size = len;
    if (in_place) {
        frag->segments[1].seg_addr.pval = iov.iov_base;
        frag->segments[1].seg_len = len;
        frag->base.des_segment_count = len ? 2 : 1;
    } else
        frag->segments[0].seg_len = reserve + len;
    return &frag->base;
}
