/* SPDX-License-Identifier: BSD-3-Clause */
/* Vector, indexed and strided put and get of GASNet 1; included by gasnet.h.
 *
 * Both sides of a transfer are lists of pieces, and as long in all. Overlapping pieces of a target
 * are written in no order. Addresses, lengths and lists stay as they are until the transfer is
 * complete at the side that they belong to (lists: until the call returns). */
#ifndef GASNETW_GASNET_VIS_H
#define GASNETW_GASNET_VIS_H

#include <gasnet.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    void *addr;
    size_t len;
} gasnet_memvec_t;

/* ---- vector: any pieces ---- */

GASNETW_API void gasnet_putv_bulk(gasnet_node_t dstnode, size_t dstcount,
                                  gasnet_memvec_t const dstlist[], size_t srccount,
                                  gasnet_memvec_t const srclist[]);
GASNETW_API void gasnet_getv_bulk(size_t dstcount, gasnet_memvec_t const dstlist[],
                                  gasnet_node_t srcnode, size_t srccount,
                                  gasnet_memvec_t const srclist[]);
GASNETW_API gasnet_handle_t gasnet_putv_nb_bulk(gasnet_node_t dstnode, size_t dstcount,
                                                gasnet_memvec_t const dstlist[], size_t srccount,
                                                gasnet_memvec_t const srclist[]);
GASNETW_API gasnet_handle_t gasnet_getv_nb_bulk(size_t dstcount, gasnet_memvec_t const dstlist[],
                                                gasnet_node_t srcnode, size_t srccount,
                                                gasnet_memvec_t const srclist[]);
GASNETW_API void gasnet_putv_nbi_bulk(gasnet_node_t dstnode, size_t dstcount,
                                      gasnet_memvec_t const dstlist[], size_t srccount,
                                      gasnet_memvec_t const srclist[]);
GASNETW_API void gasnet_getv_nbi_bulk(size_t dstcount, gasnet_memvec_t const dstlist[],
                                      gasnet_node_t srcnode, size_t srccount,
                                      gasnet_memvec_t const srclist[]);

/* ---- indexed: pieces of one length on each side ---- */

GASNETW_API void gasnet_puti_bulk(gasnet_node_t dstnode, size_t dstcount, void *const dstlist[],
                                  size_t dstlen, size_t srccount, void *const srclist[],
                                  size_t srclen);
GASNETW_API void gasnet_geti_bulk(size_t dstcount, void *const dstlist[], size_t dstlen,
                                  gasnet_node_t srcnode, size_t srccount, void *const srclist[],
                                  size_t srclen);
GASNETW_API gasnet_handle_t gasnet_puti_nb_bulk(gasnet_node_t dstnode, size_t dstcount,
                                                void *const dstlist[], size_t dstlen,
                                                size_t srccount, void *const srclist[],
                                                size_t srclen);
GASNETW_API gasnet_handle_t gasnet_geti_nb_bulk(size_t dstcount, void *const dstlist[],
                                                size_t dstlen, gasnet_node_t srcnode,
                                                size_t srccount, void *const srclist[],
                                                size_t srclen);
GASNETW_API void gasnet_puti_nbi_bulk(gasnet_node_t dstnode, size_t dstcount, void *const dstlist[],
                                      size_t dstlen, size_t srccount, void *const srclist[],
                                      size_t srclen);
GASNETW_API void gasnet_geti_nbi_bulk(size_t dstcount, void *const dstlist[], size_t dstlen,
                                      gasnet_node_t srcnode, size_t srccount, void *const srclist[],
                                      size_t srclen);

/* ---- strided: count[0] contiguous bytes, count[i] of level i-1 at strides[i-1] bytes from each
 * other, for i up to stridelevels ---- */

GASNETW_API void gasnet_puts_bulk(gasnet_node_t dstnode, void *dstaddr, const size_t dststrides[],
                                  void *srcaddr, const size_t srcstrides[], const size_t count[],
                                  size_t stridelevels);
GASNETW_API void gasnet_gets_bulk(void *dstaddr, const size_t dststrides[], gasnet_node_t srcnode,
                                  void *srcaddr, const size_t srcstrides[], const size_t count[],
                                  size_t stridelevels);
GASNETW_API gasnet_handle_t gasnet_puts_nb_bulk(gasnet_node_t dstnode, void *dstaddr,
                                                const size_t dststrides[], void *srcaddr,
                                                const size_t srcstrides[], const size_t count[],
                                                size_t stridelevels);
GASNETW_API gasnet_handle_t gasnet_gets_nb_bulk(void *dstaddr, const size_t dststrides[],
                                                gasnet_node_t srcnode, void *srcaddr,
                                                const size_t srcstrides[], const size_t count[],
                                                size_t stridelevels);
GASNETW_API void gasnet_puts_nbi_bulk(gasnet_node_t dstnode, void *dstaddr,
                                      const size_t dststrides[], void *srcaddr,
                                      const size_t srcstrides[], const size_t count[],
                                      size_t stridelevels);
GASNETW_API void gasnet_gets_nbi_bulk(void *dstaddr, const size_t dststrides[],
                                      gasnet_node_t srcnode, void *srcaddr,
                                      const size_t srcstrides[], const size_t count[],
                                      size_t stridelevels);

#ifdef __cplusplus
}
#endif

#endif
