/* SPDX-License-Identifier: BSD-3-Clause */
/* A job: numbered processes, the ranks, each with a peer for every other rank. Jobs are optional: a
 * program can also use addresses of peers without ranks. Ranks come from the launcher through PMIx
 * (weft run, mpirun, prterun, srun --mpi=pmix). Without a launcher a program is a job of one rank.
 *
 * The ranks may be on several nodes. Ranks of one node use shared memory with each other, and the
 * network with all other ranks; no option is needed. Ranks on different nodes authenticate each
 * other by a secret that the launcher (weft run) or rank 0 draws. If rank 0 draws it, the secret
 * travels through the launcher, and is as private as the launcher's own channel.
 *
 * The job has one endpoint of its own, weft_job_ep. The thread that opened the job owns the
 * endpoint and makes the job's collective calls. In a job opened with WEFT_EP_LOCKED any thread may
 * use the endpoint, and one thread at a time makes collective calls. With WEFT_PROGRESS=thread the
 * handlers of the endpoint also run on another thread ("progress" in weft.h). Register handlers
 * before a barrier, so that all ranks have registered theirs before any rank sends. */
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
    /* The peer_down of the job's endpoint; may be NULL. It is not called with WEFT_ECLOSED for a
     * rank of the job, since a rank that leaves normally is no loss. After such a rank has left,
     * weft_peer_status of its peer and calls that need the rank return ECLOSED. */
    weft_peer_down_fn peer_down;
    void *arg;
    const struct weft_mr_domain *mr; /* mode of the job's context (weft/mr.h); NULL: no mode bits */
    uint64_t reserved[11];
};
#define WEFT_JOB_PARAMS_INIT                                                                       \
    {                                                                                              \
        (WEFT_VERSION_MAJOR << 16) | WEFT_VERSION_MINOR, 0, NULL, NULL, NULL,                      \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* Join the job in which this process was started. Collective: every rank calls this.
 *   params  NULL for defaults
 * Returns  OK | EINVAL | EVERSION | ENOJOB (a launcher started the process, but this library was
 *          built without libpmix) | EPEER (a rank died meanwhile) | ETIMEDOUT (WEFT_JOB_TIMEOUT) |
 *          ESYSTEM | ENOMEM | EUNREACH (no transport reaches some rank; logged) | EPROTO (data that
 *          a rank published through the launcher are damaged; logged) | EFORKED | EBUSY (a job is
 *          already open; or an earlier call of this process gave up, and the launcher's library
 *          still waits) */
WEFT_API WEFT_MUST_USE enum weft_status weft_job_open(const struct weft_job_params *params,
                                                      struct weft_job **out);

/* Leave the job. If the process exits with code 0 after this call, the launcher treats that as a
 * departure, not as a failure. The call is not collective: it waits for no other rank's call. If
 * other ranks may still need this rank, call weft_job_barrier first. The call closes the job's
 * peers, endpoint and context. The program must have closed all other objects that it opened on
 * them, and operations must have ended. The call polls, so handlers may run.
 * Blocks   for the launcher, at most 5 s. On several nodes the call also takes at most 0.1 s to
 *          inform the other ranks, and blocks as weft_ep_close and weft_ctx_close do, at most
 *          WEFT_PEER_TIMEOUT each. On several nodes, the lowest rank of a node waits at most 1 s
 *          more if it leaves between the two steps of a barrier. If other ranks have not notified
 *          when this time is over, the barrier ends with ECLOSED.
 *          After a failure (a collective call failed, or a rank was lost) at most about 3 s in all.
 *          An operation that begins during the call, such as a posted receive that a message
 *          matches, gets 0.1 s. If it has not ended by then, it ends with ECANCELED. If a request
 *          that is detached during the call gets no reply in this time, endpoint and context stay
 *          open until the process ends (logged).
 * Returns  OK | EBUSY (an object of the caller is still open, a message is claimed, or after 0.5 s
 *          an operation is still under way, a detached request has no reply, or another thread
 *          runs a deferred call of the endpoint; nothing changed) | EINVAL | ECONTEXT (also: inside
 *          a deferred call of the endpoint) | EFORKED */
WEFT_API enum weft_status weft_job_close(struct weft_job *job);

/* Leave the job because the process ends. The launcher and the other ranks see the same as after
 * weft_job_close, but nothing is closed here. So it does not matter which objects are open, which
 * operations are under way, or what other threads do. Calls of other threads on the job's endpoint
 * do not return any more. Messages that their receivers have not taken may be lost. The process may
 * make no further call of this library.
 * Blocks   for the launcher, at most 5 s.
 * Returns  OK | EINVAL | ECONTEXT | EFORKED */
WEFT_API enum weft_status weft_job_leave(struct weft_job *job);

WEFT_API unsigned weft_job_rank(const struct weft_job *job);
WEFT_API unsigned weft_job_size(const struct weft_job *job);
/* weft_job_local_size returns the number of ranks on this node that share memory, including this
 * rank. weft_job_local_rank returns this rank's index among them. */
WEFT_API unsigned weft_job_local_size(const struct weft_job *job);
WEFT_API unsigned weft_job_local_rank(const struct weft_job *job);

/* The job's context and endpoint. The job owns and closes both: weft_ctx_close and weft_ep_close
 * refuse them with EINVAL (logged). */
WEFT_API struct weft_ctx *weft_job_ctx(const struct weft_job *job);
WEFT_API struct weft_ep *weft_job_ep(const struct weft_job *job);

/* Returns the endpoint of rank [rank] as a peer of weft_job_ep; this rank has a peer, too. Returns
 * NULL if there is no such rank. The job owns the peer: weft_peer_close refuses it with EINVAL
 * (logged). */
WEFT_API struct weft_peer *weft_job_peer(struct weft_job *job, unsigned rank);

/* Returns the rank of [peer], a peer of weft_job_ep; -1 if [peer] is not a peer of the job. */
WEFT_API int weft_job_peer_rank(const struct weft_job *job, const struct weft_peer *peer);

/* Wait until every rank has made this call. Collective. Polls the job's endpoint, so handlers run.
 * Order    the effects of inlined puts before the barrier are visible after the barrier. The
 *          effects of other operations are visible, too, if they were complete before the barrier
 *          (weft_flush).
 * Returns  OK | EPEER (a rank died; every survivor gets this status, also ranks that never
 *          communicated with the dead rank) | ECLOSED (a rank left) | EPROTO (see "different
 *          calls"; logged) | ECONTEXT | EINVAL | EFORKED | the reason why a rank on another node
 *          became unreachable: EUNREACH | EVERSION | ELIMIT | ENOMEM | ESYSTEM.
 *          After a failure other than ECONTEXT, EINVAL and EFORKED, all later collective calls of
 *          this job fail with the same status. */
WEFT_API WEFT_MUST_USE enum weft_status weft_job_barrier(struct weft_job *job);

/* Different calls. All ranks must make the same collective calls in the same order: barriers,
 * barriers in two steps, allgathers of the same length, weft_job_mem_alloc. (An allgather of 0
 * bytes is a barrier.) If two ranks differ in a call, that call ends with EPROTO at every rank and
 * sets no output. All later collective calls of this job end with EPROTO, too. A rank that has
 * notified gets EPROTO from try or wait. The log names the calls that differ. Messages, put and get
 * still work, and so does weft_job_close. */

enum weft_barrier_flags {
    WEFT_BARRIER_ANONYMOUS = 1, /* matches any name */
    WEFT_BARRIER_MISMATCH = 2,  /* every rank gets WEFT_EMISMATCH */
    /* When the barrier ends, the handlers have run of all requests (active messages) that the other
     * ranks of the node sent before they notified. The sender and the receiver must give DELIVER.
     * Other messages may be handled, too. Without the flag a barrier promises nothing for them. */
    WEFT_BARRIER_DELIVER = 4,
};

/* A barrier in two steps, with a name on which all ranks must agree. Between the steps a rank may
 * do anything except another collective call.
 *   name   compared with the names of other ranks, unless flags has ANONYMOUS. try and wait must
 *          get the name and flags that the rank gave to notify
 *   flags  enum weft_barrier_flags
 * notify, the first step, announces this rank to the other ranks. It never blocks. try or wait, the
 * second step, ends the barrier. The result is the same at every rank: OK, or EMISMATCH if two
 * ranks gave different names or one rank gave MISMATCH. The barrier has ended in both cases.
 * On several nodes the two lowest ranks of each node forward the notifications of the node's ranks
 * to other nodes. They do so in their own calls of notify, try and wait. One of the two is enough,
 * except with WEFT_BARRIER=leaders, where only the lowest rank forwards. So a rank in wait may have
 * to wait until such a call is made. It does not wait for calls of other ranks that have notified,
 * or of ranks for which the barrier has ended.
 * Returns  notify: OK | EBUSY (this rank has notified already) | AGAIN (with DELIVER: the process
 *          of a peer has not accepted a connection yet; poll, then call again) | EINVAL | ...
 *          try: as wait, or AGAIN (not all ranks have notified). Then it has polled once, and every
 *          eighth try also looks for what ends the barrier early. If all ranks are on one node and
 *          have a core each, the first try looks 64 times for their notices before it polls
 *          wait: OK | EMISMATCH | EINVAL (not notified; unknown flags; other name or flags than in
 *          notify) | as weft_job_barrier */
WEFT_API WEFT_MUST_USE enum weft_status weft_job_barrier_notify(struct weft_job *job, uint32_t name,
                                                                unsigned flags);
WEFT_API WEFT_MUST_USE enum weft_status weft_job_barrier_try(struct weft_job *job, uint32_t name,
                                                             unsigned flags);
WEFT_API WEFT_MUST_USE enum weft_status weft_job_barrier_wait(struct weft_job *job, uint32_t name,
                                                              unsigned flags);

/* Get the name of the last barrier in two steps, after it ended with OK.
 *   name  set on OK
 * Returns  OK | ENOTAVAIL (no rank gave a name, the barrier did not end with OK, or there was no
 *          such barrier) | EINVAL | EFORKED */
WEFT_API WEFT_MUST_USE enum weft_status weft_job_barrier_name(const struct weft_job *job,
                                                              uint32_t *name);

#define WEFT_JOB_ALLGATHER_MAX 4096

/* Gather [len] bytes from every rank at every rank, in rank order. Collective.
 *   mine  [len] bytes, len <= WEFT_JOB_ALLGATHER_MAX; every rank gives the same len
 *   all   len * size bytes; set on success only
 * Returns  as weft_job_barrier, or EMSGSIZE */
WEFT_API WEFT_MUST_USE enum weft_status weft_job_allgather(struct weft_job *job, const void *mine,
                                                           size_t len, void *all);

/* Allocate a region of [len] bytes on every rank, and open the regions of all ranks. Collective.
 * len may differ between ranks.
 *   mr       this rank's own region; close it with weft_mr_close after the remotes
 *   remotes  [size] entries in rank order, this rank's included; close each with weft_remote_close
 * Returns  as weft_job_allgather, weft_mem_alloc, weft_remote_open. After a failure nothing stays
 *          open on this rank. */
WEFT_API WEFT_MUST_USE enum weft_status weft_job_mem_alloc(struct weft_job *job, size_t len,
                                                           unsigned access, struct weft_mr **mr,
                                                           struct weft_remote **remotes);

/* End the whole job with exit code [code]. Does not return. Without a launcher it ends only this
 * process. */
WEFT_API __attribute__((noreturn)) void weft_job_abort(struct weft_job *job, int code,
                                                       const char *why);

#ifdef __cplusplus
}
#endif

#endif
