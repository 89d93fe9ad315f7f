/* SPDX-License-Identifier: BSD-3-Clause */
/* The side of the shared-memory transport that the service thread runs: processes to which this
 * process connects (proc.c, proc_slab.c), processes that connect to it (client.c), and their events
 * (service.c). shm.h has the objects and says which thread may access them. */
#ifndef WF_SHM_SERVICE_H
#define WF_SHM_SERVICE_H

#include "transport/shm/shm.h"

/* proc.c; the caller holds ctx->lock, except where noted */
UNDER_LOCK struct shm_proc *wf_shm_proc_ref(struct shm_ctx *ctx, const struct wf_process_id *id,
                                            enum weft_status *why);
void wf_shm_proc_unref(struct shm_ctx *ctx, struct shm_proc *proc);
void wf_shm_proc_free(struct shm_ctx *ctx, struct shm_proc *proc);
UNDER_LOCK enum weft_status wf_shm_proc_connect(struct shm_ctx *ctx, struct shm_proc *proc);
UNDER_LOCK void wf_shm_proc_event(struct shm_ctx *ctx, struct shm_proc *proc,
                                  enum shm_watch_kind kind);
void wf_shm_proc_down(struct shm_ctx *ctx, struct shm_proc *proc, enum weft_status why);
void wf_shm_proc_wipe(struct shm_proc *proc); /* in a forked child */
UNDER_LOCK void wf_shm_procs_connect_due(struct shm_ctx *ctx);
UNDER_LOCK void wf_shm_endpoints_recheck(struct shm_ctx *ctx);
enum weft_status wf_shm_heed(struct wf_tpeer *tpeer); /* by the owner; takes the lock */
/* Store [mark] and [tid] from the greeting of process [id]. At address [mark] that process keeps a
 * copy of its token, by which pull.c proves whose memory it reads. */
void wf_shm_proc_set_mark(struct shm_ctx *ctx, const struct wf_process_id *id, uint64_t mark,
                          uint32_t tid);

/* proc_slab.c; the caller holds ctx->lock, except where noted */
void wf_shm_slab_answer(struct shm_ctx *ctx, struct shm_proc *proc, const struct wf_packet *p,
                        int fd);
void wf_shm_slabs_free(struct shm_proc *proc);
void wf_shm_maps_changed(struct shm_ctx *ctx);
enum weft_status wf_shm_remote_map(struct wf_tpeer *tpeer, const struct wf_key *key,
                                   struct weft_remote *remote, void **cookie); /* takes the lock */
enum weft_status wf_shm_remote_wait(struct wf_tpeer *tpeer, void *cookie, uint64_t until_ns);
void wf_shm_remote_unmap(struct wf_tpeer *tpeer, void *cookie); /* takes the lock */

/* client.c; the caller holds ctx->lock */
UNDER_LOCK bool wf_shm_client_accept(struct shm_ctx *ctx);
UNDER_LOCK void wf_shm_clients_down(struct shm_ctx *ctx, const struct wf_process_id *id,
                                    enum weft_status why);
UNDER_LOCK bool wf_shm_clients_read(struct shm_ctx *ctx, const struct wf_process_id *id);
UNDER_LOCK void wf_shm_client_tick(struct shm_ctx *ctx, struct shm_client *client);
UNDER_LOCK void wf_shm_client_event(struct shm_ctx *ctx, struct shm_client *client,
                                    enum shm_watch_kind kind, uint32_t events);
void wf_shm_client_down(struct shm_ctx *ctx, struct shm_client *client, enum weft_status why);
void wf_shm_client_free(struct shm_ctx *ctx, struct shm_client *client);
UNDER_LOCK void wf_shm_client_send_left(struct shm_ctx *ctx,
                                        struct shm_client *client); /* any thread */

/* service.c */
enum weft_status wf_shm_service_start(struct shm_ctx *ctx);
void wf_shm_service_stop(struct shm_ctx *ctx);
int wf_shm_watch_add(struct shm_ctx *ctx, struct shm_watch *w, uint32_t events);
void wf_shm_watch_close(struct shm_ctx *ctx, struct shm_watch *w);
void wf_shm_watch_stop(struct shm_ctx *ctx, const struct shm_watch *w);
/* Process [id] is lost: close its connections to this process (clients), then mark the shm_procs of
 * that process as down. */
UNDER_LOCK void wf_shm_process_down(struct shm_ctx *ctx, const struct wf_process_id *id,
                                    enum weft_status why);
UNDER_LOCK void wf_shm_tick(struct shm_ctx *ctx); /* the service thread will retry in 100 ms */
void wf_shm_kick(struct shm_ctx *ctx);
void wf_shm_bye_send(const struct shm_watch *sock);
/* Wake the owner of [tep]. The owner then checks the inbox and, after notify_lost, also its peers.
 */
void wf_shm_notify(struct shm_tep *tep);
void wf_shm_notify_lost(struct shm_tep *tep);
void wf_shm_socket_name(const uint64_t token[2], char name[static 64]);

#endif
