/* SPDX-License-Identifier: BSD-3-Clause */
/* A job: ranks over peers. Optional: a program can use addresses of peers without ranks. Ranks come
 * from the launcher through PMIx (weft run, mpirun, prterun, srun --mpi=pmix). Without a launcher a
 * program is a job of one rank.
 *
 * Ranks may be on several nodes: those of one node use shared memory, others the network, with no
 * option given. They authenticate each other by a secret that the launcher (weft run) or rank 0
 * draws. From rank 0 it travels through the launcher, and is as private as the launcher's own
 * channel.
 *
 * The job has one endpoint of its own, weft_job_ep. The thread that opened the job owns it and
 * makes the job's collective calls. In a job opened with WEFT_EP_LOCKED any thread may use it, and
 * collective calls are made by one thread at a time. With WEFT_PROGRESS=thread its handlers run on
 * another thread, too ("progress" in weft.h): register them before a barrier, as without it. */
#ifndef WEFT_JOB_H
#define WEFT_JOB_H

#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_job;

struct weft_job_params {
    uint32_t version;
    uint32_t flags; /* of the job's endpoint: enum weft_ep_flags */
    /* For the job's endpoint; may be null. Not called with WEFT_ECLOSED for a rank of the job: a
     * rank that leaves in order is no loss. Its weft_peer_status, and calls that need it, return
     * ECLOSED.
     */
    weft_peer_down_fn peer_down;
    void *arg;
    const struct weft_mr_domain *mr; /* mode of the job's context (weft/mr.h); null: no mode bits */
    uint64_t reserved[11];
};
#define WEFT_JOB_PARAMS_INIT                                                                       \
    {                                                                                              \
        (WEFT_VERSION_MAJOR << 16) | WEFT_VERSION_MINOR, 0, NULL, NULL, NULL,                      \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* Join the job that this process was started in. Collective: every rank calls it.
 *   params  null for defaults
 * Returns  OK | EINVAL | EVERSION | ENOJOB (under a launcher, but this library was built without
 *          libpmix) | EPEER (a member died meanwhile) | ETIMEDOUT (WEFT_JOB_TIMEOUT) | ESYSTEM
 *          | ENOMEM | EUNREACH (no transport reaches some rank; logged) | EPROTO (what a rank gave
 *          to the launcher is damaged; logged) | EFORKED | EBUSY (already open, or an earlier call
 *          of this process gave up while the launcher's library still waits) */
WEFT_API WEFT_MUST_USE enum weft_status weft_job_open(const struct weft_job_params *params,
                                                      struct weft_job **out);

/* Leave the job. An exit with code 0 after this is a departure, not a failure. Not collective:
 * waits for no other rank's call; call weft_job_barrier before it if others may still need this
 * rank. Closes the job's peers, endpoint and context; other objects opened on them must have been
 * closed, and operations have ended. Polls, so handlers may run.
 * Blocks   for the launcher, at most 5 s. On several nodes also to inform the others, at most 0.1
 *          s, and as long as weft_ep_close and weft_ctx_close, at most WEFT_PEER_TIMEOUT each.
 *          Between the two steps of a barrier 1 s more; if the lowest rank of a node leaves there
 *          before its local ranks have notified, the barrier ends with ECLOSED. After a failure (a
 *          collective call failed, or a member was lost) at most about 3 s in all. An operation
 *          that begins meanwhile, such as a posted receive that a message matches, gets 0.1 s; if
 *          it has not ended then, endpoint and context stay open until the process ends (logged).
 * Returns  OK | EBUSY (an object of the caller is still open, or an operation still under way after
 *          0.5 s; nothing changed) | EINVAL | ECONTEXT | EFORKED */
WEFT_API enum weft_status weft_job_close(struct weft_job *job);

/* Leave the job because the process ends: as weft_job_close towards the launcher and the other
 * ranks, but nothing is closed here. So it does not matter what is open or under way, nor what
 * other threads do: their calls on the job's endpoint do not return any more. Messages that their
 * receivers have not taken may be lost. No call of this library may follow.
 * Blocks   for the launcher, at most 5 s.
 * Returns  OK | EINVAL | ECONTEXT | EFORKED */
WEFT_API enum weft_status weft_job_leave(struct weft_job *job);

WEFT_API unsigned weft_job_rank(const struct weft_job *job);
WEFT_API unsigned weft_job_size(const struct weft_job *job);
/* The number of ranks that share memory on this node, this one included, and this rank's index
 * among them. */
WEFT_API unsigned weft_job_local_size(const struct weft_job *job);
WEFT_API unsigned weft_job_local_rank(const struct weft_job *job);

/* The job owns and closes these two: weft_ctx_close and weft_ep_close refuse them with EINVAL
 * (logged). */
WEFT_API struct weft_ctx *weft_job_ctx(const struct weft_job *job);
WEFT_API struct weft_ep *weft_job_ep(const struct weft_job *job);

/* Rank [rank]'s endpoint as a peer of weft_job_ep; also for the own rank. Null if there is no such
 * rank. The job owns it: weft_peer_close refuses it with EINVAL (logged). */
WEFT_API struct weft_peer *weft_job_peer(struct weft_job *job, unsigned rank);

/* The rank of [peer], a peer of weft_job_ep; -1 if it is none of the job's. */
WEFT_API int weft_job_peer_rank(const struct weft_job *job, const struct weft_peer *peer);

/* Wait until every rank has called it. Collective; polls the job's endpoint, so handlers run.
 * Orders: inlined puts before it, and others that were complete (weft_flush), are visible after it.
 * Returns  OK | EPEER (a member died: at every survivor, also at those that never talked to it)
 *          | ECLOSED (a member left) | EPROTO (see "different calls"; logged) | ECONTEXT | EINVAL
 *          | EFORKED | why another node's rank became unreachable: EUNREACH | EVERSION | ELIMIT
 *          | ENOMEM | ESYSTEM. After a failure no collective call of this job succeeds any more:
 *          they return the same. */
WEFT_API WEFT_MUST_USE enum weft_status weft_job_barrier(struct weft_job *job);

/* Different calls. All ranks make the same collective calls in the same order: barriers, barriers
 * in two steps, allgathers of the same length, weft_job_mem_alloc. (An allgather of 0 bytes is a
 * barrier.) If they differ, the call in which they differ ends with EPROTO at every rank and sets
 * no output, and so does every later collective call of this job; the log names the calls.
 * Messages, put and get go on, and weft_job_close works. A rank that has notified gets EPROTO in
 * try or wait. */

enum weft_barrier_flags {
    WEFT_BARRIER_ANONYMOUS = 1, /* matches any name */
    WEFT_BARRIER_MISMATCH = 2,  /* every rank gets WEFT_EMISMATCH */
};

/* A barrier in two steps, with a name on which all ranks must agree. Between the steps a rank may
 * do anything but another collective call.
 *   name   compared with the others' unless ANONYMOUS; try and wait take the name and flags of the
 *          own notify
 *   flags  enum weft_barrier_flags
 * notify announces this rank to the others; it never blocks. try and wait end the barrier: OK, or
 * EMISMATCH if two ranks gave different names or one gave MISMATCH; the barrier has ended then,
 * too, at every rank alike.
 * On several nodes the lowest rank of each node forwards the votes of its local ranks, in its own
 * calls of this header: a rank that waits also waits for these ranks to call try or wait. It waits
 * for no other rank that has notified, nor for one that has left the barrier.
 * Returns  notify: OK | EBUSY (notified already) | EINVAL | ...
 *          try: as wait, or AGAIN (not all are here; polls once. Every eighth try looks for what
 *               ends the barrier early)
 *          wait: OK | EMISMATCH | EINVAL (not notified; unknown flags) | as weft_job_barrier */
WEFT_API WEFT_MUST_USE enum weft_status weft_job_barrier_notify(struct weft_job *job, uint32_t name,
                                                                unsigned flags);
WEFT_API WEFT_MUST_USE enum weft_status weft_job_barrier_try(struct weft_job *job, uint32_t name,
                                                             unsigned flags);
WEFT_API WEFT_MUST_USE enum weft_status weft_job_barrier_wait(struct weft_job *job, uint32_t name,
                                                              unsigned flags);

/* The name of the last barrier in two steps, after it ended with OK.
 *   name  set on OK
 * Returns  OK | ENOTAVAIL (no rank named one; it ended otherwise; there was none) | EINVAL |
 * EFORKED
 */
WEFT_API WEFT_MUST_USE enum weft_status weft_job_barrier_name(const struct weft_job *job,
                                                              uint32_t *name);

#define WEFT_JOB_ALLGATHER_MAX 4096

/* Gather [len] bytes from every rank at every rank, in rank order. Collective.
 *   mine  [len] bytes, len <= WEFT_JOB_ALLGATHER_MAX, the same len everywhere
 *   all   len * size bytes; set on success only
 * Returns  as weft_job_barrier, or EMSGSIZE */
WEFT_API WEFT_MUST_USE enum weft_status weft_job_allgather(struct weft_job *job, const void *mine,
                                                           size_t len, void *all);

/* Allocate a region of [len] bytes on every rank, and open those of all ranks. Collective; len may
 * differ.
 *   mr       this rank's own; close with weft_mr_close after the remotes
 *   remotes  [size] entries, by rank, the own rank's included; close each with weft_remote_close
 * Returns  as weft_job_allgather, weft_mem_alloc, weft_remote_open. On failure nothing stays open
 *          here. */
WEFT_API WEFT_MUST_USE enum weft_status weft_job_mem_alloc(struct weft_job *job, size_t len,
                                                           unsigned access, struct weft_mr **mr,
                                                           struct weft_remote **remotes);

/* End the whole job with exit code [code]; does not return. Without a launcher it ends this
 * process.
 */
WEFT_API __attribute__((noreturn)) void weft_job_abort(struct weft_job *job, int code,
                                                       const char *why);

#ifdef __cplusplus
}
#endif

#endif
