/* SPDX-License-Identifier: BSD-3-Clause */
/* A job: ranks over peers. Optional: peers are addresses, and a program can do
 * without ranks. Ranks come from the launcher through PMIx (weft run, mpirun,
 * prterun, srun --mpi=pmix). Started without a launcher, a program is a job of
 * one rank.
 *
 * Ranks may be on several nodes: those on one reach each other by shared memory, others by
 * the network, with no option given. They know each other by a secret that the launcher
 * (weft run) or rank 0 draws; from rank 0 it goes to the others through the launcher, and
 * is as private as the launcher's own channel.
 *
 * The job has one endpoint of its own, weft_job_ep, owned by the thread that
 * opened the job; the job's collective calls are made by that thread. A job opened with
 * WEFT_EP_LOCKED is any thread's, its collective calls one thread's at a time. With
 * WEFT_PROGRESS=thread its handlers run on another one, too ("progress" in weft.h): register
 * them before a barrier, as without. */
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
     * rank that leaves in order is no loss. Its weft_peer_status says so, and calls that need it.
     */
    weft_peer_down_fn peer_down;
    void *arg;
    const struct weft_mr_domain *mr; /* of the job's context (weft/mr.h); null: no mode bits */
    uint64_t reserved[11];
};
#define WEFT_JOB_PARAMS_INIT                                                                       \
    {                                                                                              \
        (WEFT_VERSION_MAJOR << 16) | WEFT_VERSION_MINOR, 0, NULL, NULL, NULL,                      \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* Join the job this process was started in. Collective: every rank calls it.
 *   params  null for defaults
 * Returns  OK | EINVAL | EVERSION | ENOJOB (under a launcher, but this library was built
 *          without libpmix) | EPEER (a member died meanwhile) | ETIMEDOUT
 *          (WEFT_JOB_TIMEOUT) | ESYSTEM | ENOMEM | EUNREACH (no transport reaches some
 *          rank; logged) | EPROTO (what a rank handed to the launcher is damaged; logged)
 *          | EFORKED | EBUSY (already open, or an earlier call of this process gave up while the
 *          launcher's library still waits) */
WEFT_API WEFT_MUST_USE enum weft_status weft_job_open(const struct weft_job_params *params,
                                                      struct weft_job **out);

/* Leave the job. An exit with code 0 after this is a departure, not a failure.
 * Not collective, waits for no other rank's call: call weft_job_barrier before it if others
 * may still need this rank. Closes the job's peers, endpoint and context;
 * what else was opened on them must have been closed, and operations have ended. Polls: handlers
 * may run.
 * Blocks   for the launcher, at most 5 s. On several nodes also to tell the others, at most
 *          0.1 s, and as long as weft_ep_close and weft_ctx_close, at most WEFT_PEER_TIMEOUT
 *          each. Between the two steps of a barrier 1 s more; if the lowest rank of a node
 *          leaves there before its mates have notified, the barrier ends with ECLOSED. After a
 *          failure (a collective call failed, or a member was lost) at most about 3 s
 *          in all. An operation that begins meanwhile, such as a posted receive that a message
 *          matches, gets 0.1 s; if it has not ended then, endpoint and context stay open until
 *          the process ends (logged).
 * Returns  OK | EBUSY (something of the caller's is still open, or an operation still under way
 *          after 0.5 s; nothing changed) | EINVAL | ECONTEXT | EFORKED
 */
WEFT_API enum weft_status weft_job_close(struct weft_job *job);

/* Leave the job because the process ends: as weft_job_close towards the launcher and the other
 * ranks, but nothing is closed here, so it does not matter what is open or under way, nor what
 * other threads do: calls of theirs on the job's endpoint do not return any more. What was sent and
 * has not been taken by its receiver may be lost. Nothing of this library's is to be called after
 * it.
 * Blocks   for the launcher, at most 5 s.
 * Returns  OK | EINVAL | ECONTEXT | EFORKED */
WEFT_API enum weft_status weft_job_leave(struct weft_job *job);

WEFT_API unsigned weft_job_rank(const struct weft_job *job);
WEFT_API unsigned weft_job_size(const struct weft_job *job);
/* Ranks on this node, this one included, and this rank's place among them: those that share
 * memory. */
WEFT_API unsigned weft_job_local_size(const struct weft_job *job);
WEFT_API unsigned weft_job_local_rank(const struct weft_job *job);

/* The job owns these two and closes them: weft_ctx_close and weft_ep_close refuse them with
 * EINVAL (logged). */
WEFT_API struct weft_ctx *weft_job_ctx(const struct weft_job *job);
WEFT_API struct weft_ep *weft_job_ep(const struct weft_job *job);

/* Rank [rank]'s endpoint as a peer of weft_job_ep. The job owns it: weft_peer_close
 * refuses it with EINVAL (logged). Null if there is no such rank. The own rank works too. */
WEFT_API struct weft_peer *weft_job_peer(struct weft_job *job, unsigned rank);

/* Which rank [peer] of weft_job_ep is; -1 if it is none of the job's. */
WEFT_API int weft_job_peer_rank(const struct weft_job *job, const struct weft_peer *peer);

/* Wait until every rank has called it. Collective; polls the job's endpoint,
 * so handlers run. Orders: inlined puts made before it, and others that were complete
 * (weft_flush), are visible after it.
 * Returns  OK | EPEER (a member died: at every survivor, also at those that
 *          never talked to it) | ECLOSED (a member left) | EPROTO (see "different calls";
 *          logged) | ECONTEXT | EINVAL | EFORKED | what another node's rank
 *          became unreachable with: EUNREACH | EVERSION | ELIMIT | ENOMEM | ESYSTEM. The same from
 *          then on: no collective call of this job succeeds any more. */
WEFT_API WEFT_MUST_USE enum weft_status weft_job_barrier(struct weft_job *job);

/* Different calls. All ranks make the same collective calls in the same order: barriers, barriers
 * in two steps, allgathers of the same length, weft_job_mem_alloc. (An allgather of 0 bytes is a
 * barrier.) Where they differ, the call in which they differ ends with EPROTO at every
 * rank, and sets no output; the log names the calls. So does every later collective call of this
 * job. Messages, put and get go on, and weft_job_close works. A rank that has notified learns of it
 * in try or wait. */

enum weft_barrier_flags {
    WEFT_BARRIER_ANONYMOUS = 1, /* meets any name */
    WEFT_BARRIER_MISMATCH = 2,  /* have every rank get WEFT_EMISMATCH */
};

/* The same in two steps, with a name that all ranks must agree on. Between the
 * steps the rank may do anything but another collective call.
 *   name   compared with the others' unless ANONYMOUS; at try and wait it must
 *          be that of the own notify (and so must flags)
 *   flags  enum weft_barrier_flags
 * On several nodes the lowest rank of each passes on what its mates say, in its own calls of
 * this header: who waits also waits for these ranks to call try or wait. Nobody waits for any
 * other that has notified, nor for one that the barrier has let go.
 * notify tells the others that this rank is here; it never blocks. try and wait
 * end the barrier: OK, or EMISMATCH if two ranks named different ones or one
 * gave MISMATCH; then the barrier has ended all the same, at every rank alike.
 * Returns  notify: OK | EBUSY (notified already) | EINVAL | ...
 *          try: as wait, or AGAIN (not all are here; polls once. What ends the barrier early is
 *               looked for by every eighth try)
 *          wait: OK | EMISMATCH | EINVAL (not notified; unknown flags) | as weft_job_barrier */
WEFT_API WEFT_MUST_USE enum weft_status weft_job_barrier_notify(struct weft_job *job, uint32_t name,
                                                                unsigned flags);
WEFT_API WEFT_MUST_USE enum weft_status weft_job_barrier_try(struct weft_job *job, uint32_t name,
                                                             unsigned flags);
WEFT_API WEFT_MUST_USE enum weft_status weft_job_barrier_wait(struct weft_job *job, uint32_t name,
                                                              unsigned flags);

/* The name on which the last barrier in two steps agreed, after it ended with OK.
 *   name  set on OK
 * Returns  OK | ENOTAVAIL (nobody named one; it ended otherwise; there was none) | EINVAL | EFORKED
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

/* Allocate a region of [len] bytes on every rank and open everyone's.
 * Collective; len may differ.
 *   mr       this rank's own; close with weft_mr_close after the remotes
 *   remotes  [size] entries, by rank, the own rank's included; close each with
 *            weft_remote_close
 * Returns  as weft_job_allgather, weft_mem_alloc, weft_remote_open. On failure
 *          nothing stays open here. */
WEFT_API WEFT_MUST_USE enum weft_status weft_job_mem_alloc(struct weft_job *job, size_t len,
                                                           unsigned access, struct weft_mr **mr,
                                                           struct weft_remote **remotes);

/* End the whole job with exit code [code]; does not return. Without a launcher
 * it ends this process. */
WEFT_API __attribute__((noreturn)) void weft_job_abort(struct weft_job *job, int code,
                                                       const char *why);

#ifdef __cplusplus
}
#endif

#endif
