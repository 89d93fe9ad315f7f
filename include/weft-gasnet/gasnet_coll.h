/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives and teams of GASNet 1; included by gasnet.h.
 *
 * Members of a collective are images: threads that take part. Every node has one, unless
 * gasnet_coll_init gives other numbers. Images are numbered consecutively, node by node.
 *
 * All images of a team make the same calls in the same order. Those of a node may call at different
 * times; calls that do not block do not wait for the others. A call takes the image's own address,
 * or (the calls with M) a list of addresses: of all images in the team's order with
 * GASNET_COLL_SINGLE, of this node's with GASNET_COLL_LOCAL; all images of a node pass the same
 * list. With GASNET_COLL_NO_IMAGES one thread of each node calls, and members are nodes: roots,
 * lists and blocks count nodes. */
#ifndef GASNETW_GASNET_COLL_H
#define GASNETW_GASNET_COLL_H

#include <gasnet.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every call needs one IN, one OUT, and SINGLE or LOCAL. */
#define GASNET_COLL_IN_NOSYNC (1 << 0)  /* data may move before other nodes have called */
#define GASNET_COLL_IN_MYSYNC (1 << 1)  /* only when the nodes of source and target have */
#define GASNET_COLL_IN_ALLSYNC (1 << 2) /* only when all nodes have */
#define GASNET_COLL_OUT_NOSYNC                                                                     \
    (1 << 3) /* this node's completion says nothing of its memory until all are complete */
#define GASNET_COLL_OUT_MYSYNC (1 << 4)  /* on completion this node's memory may be used */
#define GASNET_COLL_OUT_ALLSYNC (1 << 5) /* on completion every node's may */
#define GASNET_COLL_SYNC_FLAG_MASK 0x3f
#define GASNET_COLL_SINGLE (1 << 6) /* all nodes pass the same addresses, of all nodes */
#define GASNET_COLL_LOCAL (1 << 7)  /* each node passes its own */
/* No handle: that of the thread's next call without this flag covers the call. */
#define GASNET_COLL_AGGREGATE (1 << 8)
/* Hints, which have no effect. */
#define GASNET_COLL_FIXED_THREADS_PER_NODE (1 << 9)
#define GASNET_COLL_DST_IN_SEGMENT (1 << 10)
#define GASNET_COLL_SRC_IN_SEGMENT (1 << 11)
#define GASNET_COLL_DISABLE_AUTOTUNE (1 << 18)
/* Scans: one of the two. */
#define GASNET_COLL_INCLUSIVE_SCAN (1 << 16)
#define GASNET_COLL_EXCLUSIVE_SCAN (1 << 17)
/* One call for each node, whatever its images. */
#define GASNET_COLL_NO_IMAGES (1 << 19)

/* Flags of functions for reduce and scan. */
#define GASNET_COLL_AMSAFE (1 << 0)
#define GASNET_COLL_NONCOMM (1 << 1)

typedef uint32_t gasnet_image_t;
typedef struct gasnetw_team *gasnet_team_handle_t;
typedef struct gasnetw_coll *gasnet_coll_handle_t;
#define GASNET_COLL_INVALID_HANDLE ((gasnet_coll_handle_t)0)

typedef gasnet_handlerarg_t gasnet_coll_fn_handle_t; /* an index of fn_tbl */
/* results[i] = all of left_operands, then right_operands[0..i]: [result_count] of them. */
typedef void (*gasnet_coll_reduce_fn_t)(void *results, size_t result_count,
                                        const void *left_operands, size_t left_count,
                                        const void *right_operands, size_t elem_size, int flags,
                                        int arg);
typedef struct {
    gasnet_coll_reduce_fn_t fnptr;
    unsigned int flags; /* GASNET_COLL_AMSAFE, GASNET_COLL_NONCOMM */
} gasnet_coll_fn_entry_t;

/* Once by every image, before any other call here.
 *   images    how many each node has, [gasnet_nodes()], the same everywhere; null: one
 *   my_image  the calling thread's, if [images] is given */
GASNETW_API void gasnet_coll_init(const gasnet_image_t images[], gasnet_image_t my_image,
                                  gasnet_coll_fn_entry_t fn_tbl[], size_t fn_count, int init_flags);

/* ---- teams ---- */

GASNETW_API extern gasnet_team_handle_t gasnetw_team_all;
#define GASNET_TEAM_ALL gasnetw_team_all

/* Collective over [parent]: images with the same [color] become a team, in the order of [relrank]
 * (each value once in a color). [clientdata] is for scratch space, of which none is needed. */
GASNETW_API gasnet_team_handle_t gasnet_coll_team_split(gasnet_team_handle_t parent,
                                                        gasnet_node_t color, gasnet_node_t relrank,
                                                        void *clientdata);
/* By every node of the team, when no call of it is under way. */
GASNETW_API void gasnet_coll_team_free(gasnet_team_handle_t team);
/* The number of nodes; this node's rank in the team; conversions between ranks and nodes. */
GASNETW_API gasnet_node_t gasnet_coll_team_size(gasnet_team_handle_t team);
GASNETW_API gasnet_node_t gasnet_coll_team_rank(gasnet_team_handle_t team);
GASNETW_API gasnet_node_t gasnet_coll_team_rank2node(gasnet_team_handle_t team, int rank);
GASNETW_API gasnet_node_t gasnet_coll_team_node2rank(gasnet_team_handle_t team, gasnet_node_t node);

/* As gasnet_barrier_notify and so on, of a team's nodes. GASNET_BARRIERFLAG_IMAGES: by every image.
 */
GASNETW_API void gasnet_coll_barrier_notify(gasnet_team_handle_t team, int id, int flags);
GASNETW_API int gasnet_coll_barrier_try(gasnet_team_handle_t team, int id, int flags);
GASNETW_API int gasnet_coll_barrier_wait(gasnet_team_handle_t team, int id, int flags);
GASNETW_API int gasnet_coll_barrier(gasnet_team_handle_t team, int id, int flags);

/* ---- handles: any thread, each once ---- */

GASNETW_API int gasnet_coll_try_sync(gasnet_coll_handle_t handle);
GASNETW_API void gasnet_coll_wait_sync(gasnet_coll_handle_t handle);
GASNETW_API int gasnet_coll_try_sync_some(gasnet_coll_handle_t *phandle, size_t numhandles);
GASNETW_API void gasnet_coll_wait_sync_some(gasnet_coll_handle_t *phandle, size_t numhandles);
GASNETW_API int gasnet_coll_try_sync_all(gasnet_coll_handle_t *phandle, size_t numhandles);
GASNETW_API void gasnet_coll_wait_sync_all(gasnet_coll_handle_t *phandle, size_t numhandles);

/* ---- data ---- */

/* [nbytes] from image [srcimage] to all. */
GASNETW_API void gasnet_coll_broadcast(gasnet_team_handle_t team, void *dst,
                                       gasnet_image_t srcimage, void *src, size_t nbytes,
                                       int flags);
GASNETW_API gasnet_coll_handle_t gasnet_coll_broadcast_nb(gasnet_team_handle_t team, void *dst,
                                                          gasnet_image_t srcimage, void *src,
                                                          size_t nbytes, int flags);
GASNETW_API void gasnet_coll_broadcastM(gasnet_team_handle_t team, void *const dstlist[],
                                        gasnet_image_t srcimage, void *src, size_t nbytes,
                                        int flags);
GASNETW_API gasnet_coll_handle_t gasnet_coll_broadcastM_nb(gasnet_team_handle_t team,
                                                           void *const dstlist[],
                                                           gasnet_image_t srcimage, void *src,
                                                           size_t nbytes, int flags);

/* [nbytes] to each image from [srcimage], where they lie in image order. */
GASNETW_API void gasnet_coll_scatter(gasnet_team_handle_t team, void *dst, gasnet_image_t srcimage,
                                     void *src, size_t nbytes, int flags);
GASNETW_API gasnet_coll_handle_t gasnet_coll_scatter_nb(gasnet_team_handle_t team, void *dst,
                                                        gasnet_image_t srcimage, void *src,
                                                        size_t nbytes, int flags);
GASNETW_API void gasnet_coll_scatterM(gasnet_team_handle_t team, void *const dstlist[],
                                      gasnet_image_t srcimage, void *src, size_t nbytes, int flags);
GASNETW_API gasnet_coll_handle_t gasnet_coll_scatterM_nb(gasnet_team_handle_t team,
                                                         void *const dstlist[],
                                                         gasnet_image_t srcimage, void *src,
                                                         size_t nbytes, int flags);

/* [nbytes] of each to [dstimage], in image order. */
GASNETW_API void gasnet_coll_gather(gasnet_team_handle_t team, gasnet_image_t dstimage, void *dst,
                                    void *src, size_t nbytes, int flags);
GASNETW_API gasnet_coll_handle_t gasnet_coll_gather_nb(gasnet_team_handle_t team,
                                                       gasnet_image_t dstimage, void *dst,
                                                       void *src, size_t nbytes, int flags);
GASNETW_API void gasnet_coll_gatherM(gasnet_team_handle_t team, gasnet_image_t dstimage, void *dst,
                                     void *const srclist[], size_t nbytes, int flags);
GASNETW_API gasnet_coll_handle_t gasnet_coll_gatherM_nb(gasnet_team_handle_t team,
                                                        gasnet_image_t dstimage, void *dst,
                                                        void *const srclist[], size_t nbytes,
                                                        int flags);

/* [nbytes] of each to all, in image order. */
GASNETW_API void gasnet_coll_gather_all(gasnet_team_handle_t team, void *dst, void *src,
                                        size_t nbytes, int flags);
GASNETW_API gasnet_coll_handle_t gasnet_coll_gather_all_nb(gasnet_team_handle_t team, void *dst,
                                                           void *src, size_t nbytes, int flags);
GASNETW_API void gasnet_coll_gather_allM(gasnet_team_handle_t team, void *const dstlist[],
                                         void *const srclist[], size_t nbytes, int flags);
GASNETW_API gasnet_coll_handle_t gasnet_coll_gather_allM_nb(gasnet_team_handle_t team,
                                                            void *const dstlist[],
                                                            void *const srclist[], size_t nbytes,
                                                            int flags);

/* [nbytes] from each to each: block j of image i goes to block i of image j. */
GASNETW_API void gasnet_coll_exchange(gasnet_team_handle_t team, void *dst, void *src,
                                      size_t nbytes, int flags);
GASNETW_API gasnet_coll_handle_t gasnet_coll_exchange_nb(gasnet_team_handle_t team, void *dst,
                                                         void *src, size_t nbytes, int flags);
GASNETW_API void gasnet_coll_exchangeM(gasnet_team_handle_t team, void *const dstlist[],
                                       void *const srclist[], size_t nbytes, int flags);
GASNETW_API gasnet_coll_handle_t gasnet_coll_exchangeM_nb(gasnet_team_handle_t team,
                                                          void *const dstlist[],
                                                          void *const srclist[], size_t nbytes,
                                                          int flags);

/* ---- with a function ---- */

/* Element by element over the images, lower images left. Each contributes [elem_count] elements
 * from the [src_offset]th at [src] on; [src_blksz] is ignored. func      index of fn_tbl; func_arg
 * is passed to it */
GASNETW_API void gasnet_coll_reduce(gasnet_team_handle_t team, gasnet_image_t dstimage, void *dst,
                                    void *src, size_t src_blksz, size_t src_offset,
                                    size_t elem_size, size_t elem_count,
                                    gasnet_coll_fn_handle_t func, int func_arg, int flags);
GASNETW_API gasnet_coll_handle_t
gasnet_coll_reduce_nb(gasnet_team_handle_t team, gasnet_image_t dstimage, void *dst, void *src,
                      size_t src_blksz, size_t src_offset, size_t elem_size, size_t elem_count,
                      gasnet_coll_fn_handle_t func, int func_arg, int flags);
GASNETW_API void gasnet_coll_reduceM(gasnet_team_handle_t team, gasnet_image_t dstimage, void *dst,
                                     void *const srclist[], size_t src_blksz, size_t src_offset,
                                     size_t elem_size, size_t elem_count,
                                     gasnet_coll_fn_handle_t func, int func_arg, int flags);
GASNETW_API gasnet_coll_handle_t
gasnet_coll_reduceM_nb(gasnet_team_handle_t team, gasnet_image_t dstimage, void *dst,
                       void *const srclist[], size_t src_blksz, size_t src_offset, size_t elem_size,
                       size_t elem_count, gasnet_coll_fn_handle_t func, int func_arg, int flags);

/* Each image gets the reduction of the images up to itself (exclusive: without itself; the first
 * image's [dst] is not changed). */
GASNETW_API void gasnet_coll_scan(gasnet_team_handle_t team, void *dst, size_t dst_blksz,
                                  size_t dst_offset, void *src, size_t src_blksz, size_t src_offset,
                                  size_t elem_size, size_t elem_count, gasnet_coll_fn_handle_t func,
                                  int func_arg, int flags);
GASNETW_API gasnet_coll_handle_t gasnet_coll_scan_nb(gasnet_team_handle_t team, void *dst,
                                                     size_t dst_blksz, size_t dst_offset, void *src,
                                                     size_t src_blksz, size_t src_offset,
                                                     size_t elem_size, size_t elem_count,
                                                     gasnet_coll_fn_handle_t func, int func_arg,
                                                     int flags);
GASNETW_API void gasnet_coll_scanM(gasnet_team_handle_t team, void *const dstlist[],
                                   size_t dst_blksz, size_t dst_offset, void *const srclist[],
                                   size_t src_blksz, size_t src_offset, size_t elem_size,
                                   size_t elem_count, gasnet_coll_fn_handle_t func, int func_arg,
                                   int flags);
GASNETW_API gasnet_coll_handle_t gasnet_coll_scanM_nb(
    gasnet_team_handle_t team, void *const dstlist[], size_t dst_blksz, size_t dst_offset,
    void *const srclist[], size_t src_blksz, size_t src_offset, size_t elem_size, size_t elem_count,
    gasnet_coll_fn_handle_t func, int func_arg, int flags);

/* ---- tuning ---- */

/* The thresholds in force (load: by every node, between calls, the same ones), and how often each
 * kind was called. To the file, or to stderr if that is null. */
GASNETW_API void gasnet_coll_dumpTuningState(char *filename, gasnet_team_handle_t team);
GASNETW_API void gasnet_coll_loadTuningState(char *filename, gasnet_team_handle_t team);
GASNETW_API void gasnet_coll_dumpProfile(char *filename, gasnet_team_handle_t team);

#ifdef __cplusplus
}
#endif

#endif
