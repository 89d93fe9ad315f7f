/* SPDX-License-Identifier: BSD-3-Clause */
/* One suite for every transport: each test gets a fresh pair of endpoints of
 * the set-up at hand, and one thread that polls both. A transport joins by a row
 * in setups[] (pair.c). Tests use the public interface only and rely on no
 * order, so that they hold under WEFT_DEBUG=shuffle and with the smallest rings. */
#ifndef TEST_CONTRACT_H
#define TEST_CONTRACT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <weft/mr.h>
#include <weft/msg.h>
#include <weft/weft.h>

#include "support.h"

struct setup {
    const char *name;
    int eps;      /* 1: the peer is the endpoint itself */
    int contexts; /* 2: they meet as two processes do */
    int rings;    /* endpoints that can be sent to are limited by WEFT_SHM_RINGS */
    int places;   /* long replies are limited (WEFT_DEBUG=places), apart from the rest */
    int network;  /* nothing is mapped, and it takes its time to arrive */
};

struct pair {
    const struct setup *setup;
    struct weft_ctx *ctx[2];        /* the same twice with one context */
    struct weft_ep *ep[2];          /* the same twice with one endpoint */
    struct weft_peer *peer[2];      /* peer[i]: how ep[i] reaches the other */
    int downs[2];                   /* calls of peer_down */
    enum weft_status why[2];        /* of the last */
    int fails;                      /* calls of am_failed */
    struct weft_am_failure failure; /* of the last */
    uint32_t failed_args[WEFT_AM_FAILED_ARGS];
    uint32_t progress; /* of the contexts, as weft_ctx_params.progress */
    void *test;        /* the running test's own */
};

/* Conditions in handlers: noted, checked by the test's thread afterwards; an
 * assertion there would jump out of the library. */
extern int contract_bad;
void contract_note(const char *what, const char *file, int line);
#define EXPECT(cond) ((cond) ? (void)0 : contract_note(#cond, __FILE__, __LINE__))

#define OK(call) assert_int_equal((call), WEFT_OK)
/* Says which of many calls it was. */
#define GIVES(want, call)                                                                          \
    do {                                                                                           \
        enum weft_status got_ = (call);                                                            \
        if (got_ != (want))                                                                        \
            fail_msg("%s:%d: %s gives %s, not %s", __FILE__, __LINE__, #call,                      \
                     weft_status_name(got_), weft_status_name(want));                              \
    } while (0)

/* Poll both ends until [cond]; it must come true. */
#define UNTIL(p, cond)                                                                             \
    do {                                                                                           \
        uint64_t end_ = test_now_ns() + TEST_LIMIT_NS;                                             \
        while (!(cond)) {                                                                          \
            pair_poll(p);                                                                          \
            if (test_now_ns() > end_)                                                              \
                fail_msg("%s:%d: never came true: %s", __FILE__, __LINE__, #cond);                 \
        }                                                                                          \
    } while (0)

int pair_setup(void **state);
int pair_teardown(void **state);
/* Both ends anew, with contexts whose regions are like that. */
void pair_reopen(struct pair *p, const struct weft_mr_domain *domain, unsigned ep_flags);
/* Both ends anew, without the thread of WEFT_PROGRESS=thread: the test is about its own polls. */
void pair_polls_alone(struct pair *p);
int pair_poll(struct pair *p);
/* Poll until nothing has happened for long enough to see also what comes late. */
void pair_quiet(struct pair *p);
/* Close end [i] with all that is its own; with two contexts, its context too. */
void pair_close_end(struct pair *p, int i);
/* Close [ep], one that the test has opened besides. Across a network the close waits for [end],
 * which a thread polls meanwhile. */
void pair_close_ep(struct pair *p, int end, struct weft_ep *ep);
void pair_register(struct pair *p, unsigned handler, weft_am_fn fn); /* at both ends */
void pair_break(void); /* every TCP connection of this process */
uint64_t pair_stat(const struct pair *p, const char *name); /* sum of both */
uint64_t config_value(const char *name);
uint64_t debug_value(const char *item, uint64_t otherwise); /* of WEFT_DEBUG; a flag is 1 */
struct weft_peer *peer_to(struct weft_ep *from, struct weft_ep *to);
int other(const struct pair *p, int i);
int by_rdma(const struct pair *p);
/* Do NICs put and get for the two sides: their own, or, if the suite was started with transports
 * node and rdma, their services'? */
int by_nic(const struct pair *p);
/* Do messages pass by a node's service, a process that takes its time? */
int by_service(void);
/* As weft_am_request, polling while it says AGAIN. */
enum weft_status request_wait(struct pair *p, int from, unsigned handler, const uint32_t *args,
                              unsigned nargs, const void *data, size_t len, size_t reply_max);

/* What [op] ends with, once it was started with [status]. */
enum weft_status op_end(struct pair *p, struct weft_op *op, enum weft_status status);
/* Cancel the receive [op] of end [end]. A message that is arriving ends it first. */
void recv_cancel(struct pair *p, int end, struct weft_op *op);

/* ---- region.c ---- */

#define RW (WEFT_REMOTE_READ | WEFT_REMOTE_WRITE)

struct region {
    struct weft_mr *mr;
    struct weft_remote *r;
    unsigned char *base, *own; /* own: malloc'd */
    unsigned char key[WEFT_KEY_MAX];
    size_t key_len;
};

/* Of end [end], opened by the other; [own]: the caller's memory, else Weft's. Zeroed, and
 * aligned to 64 bytes at least. */
struct region region_open(struct pair *p, int end, size_t len, unsigned access, int own);
/* Close the region, but not what the other end has of it. */
void region_revoke(struct region *g);
void region_close(struct region *g);
/* The check at the end of a raw key, made anew: docs/protocol.md "Keys". */
void key_seal(unsigned char *key, size_t n);

/* What an operation ends with. Where the region is mapped it must end at once. */
enum weft_status rma_end(struct pair *p, const struct weft_remote *r, struct weft_op *op,
                         enum weft_status status);
enum weft_status put_end(struct pair *p, struct weft_remote *r, uint64_t offset, const void *src,
                         size_t len);
enum weft_status get_end(struct pair *p, struct weft_remote *r, uint64_t offset, void *dst,
                         size_t len);
enum weft_status signal_end(struct pair *p, struct weft_remote *r, uint64_t offset, const void *src,
                            size_t len, struct weft_remote *sig, uint64_t sig_offset,
                            uint64_t value, unsigned how);
enum weft_status add_end(struct pair *p, struct weft_remote *r, uint64_t offset, uint64_t operand,
                         uint64_t *fetched);
/* weft_flush, polling while it says PENDING. */
enum weft_status flush_end(struct pair *p, struct weft_peer *peer);

#define CONTRACT_TESTS(X)                                                                          \
    X(am_sizes)                                                                                    \
    X(am_reply_rules)                                                                              \
    X(am_never_replied)                                                                            \
    X(am_full)                                                                                     \
    X(am_full_of_payload)                                                                          \
    X(am_unread_replies)                                                                           \
    X(am_places)                                                                                   \
    X(am_reply_keeps_payload)                                                                      \
    X(am_unhandled)                                                                                \
    X(am_source)                                                                                   \
    X(am_sender)                                                                                   \
    X(am_no_handler)                                                                               \
    X(pieces_two)                                                                                  \
    X(pieces_many)                                                                                 \
    X(pieces_full)                                                                                 \
    X(pieces_misuse)                                                                               \
    X(later_reply)                                                                                 \
    X(later_no_peer)                                                                               \
    X(later_two_handles)                                                                           \
    X(later_source_of_receive)                                                                     \
    X(later_misuse)                                                                                \
    X(later_closed)                                                                                \
    X(later_gone)                                                                                  \
    X(later_limit)                                                                                 \
    X(defer_in_handler)                                                                            \
    X(defer_from_done)                                                                             \
    X(defer_peer_down)                                                                             \
    X(defer_refused)                                                                               \
    X(defer_again)                                                                                 \
    X(defer_context)                                                                               \
    X(defer_closed)                                                                                \
    X(defer_forks)                                                                                 \
    X(defer_handler_forks)                                                                         \
    X(defer_forked)                                                                                \
    X(defer_wakes)                                                                                 \
    X(defer_beside_handler)                                                                        \
    X(defer_beside_calls)                                                                          \
    X(nowait_calls)                                                                                \
    X(nowait_alone)                                                                                \
    X(am_handler_context)                                                                          \
    X(traffic_random)                                                                              \
    X(misuse_ctx)                                                                                  \
    X(ctx_limits)                                                                                  \
    X(ctx_eager)                                                                                   \
    X(ctx_progress)                                                                                \
    X(ctx_progress_left)                                                                           \
    X(ctx_secret)                                                                                  \
    X(ctx_misuse)                                                                                  \
    X(misuse_ep)                                                                                   \
    X(misuse_am)                                                                                   \
    X(misuse_mem)                                                                                  \
    X(misuse_descriptors)                                                                          \
    X(misuse_no_remote)                                                                            \
    X(misuse_dead_peer)                                                                            \
    X(region_start)                                                                                \
    X(region_start_stopped)                                                                        \
    X(sleep_arm)                                                                                   \
    X(sleep_reply)                                                                                 \
    X(sleep_room)                                                                                  \
    X(sleep_much)                                                                                  \
    X(sleep_closed)                                                                                \
    X(sleep_timeout)                                                                               \
    X(sleep_word)                                                                                  \
    X(sleep_signal)                                                                                \
    X(sleep_words)                                                                                 \
    X(close_peer_down)                                                                             \
    X(close_delivers_first)                                                                        \
    X(close_after_sending)                                                                         \
    X(close_sent)                                                                                  \
    X(close_unheard)                                                                               \
    X(close_endpoint_unheard)                                                                      \
    X(close_without_reply)                                                                         \
    X(close_reconnect)                                                                             \
    X(close_rings)                                                                                 \
    X(close_context)                                                                               \
    X(rma_contents)                                                                                \
    X(rma_signal)                                                                                  \
    X(rma_range)                                                                                   \
    X(rma_access)                                                                                  \
    X(rma_closed)                                                                                  \
    X(rma_reused)                                                                                  \
    X(rma_keys)                                                                                    \
    X(rma_two_remotes)                                                                             \
    X(rma_many_regions)                                                                            \
    X(msg_sizes)                                                                                   \
    X(msg_order)                                                                                   \
    X(msg_wildcards)                                                                               \
    X(msg_truncated)                                                                               \
    X(msg_pieces)                                                                                  \
    X(msg_many_pieces)                                                                             \
    X(msg_claim)                                                                                   \
    X(msg_cancel)                                                                                  \
    X(msg_closed)                                                                                  \
    X(msg_refused)                                                                                 \
    X(msg_many)                                                                                    \
    X(msg_full)                                                                                    \
    X(msg_settled)                                                                                 \
    X(msg_two_handles)                                                                             \
    X(msg_other_handle)                                                                            \
    X(msg_own_handlers)                                                                            \
    X(msg_asleep)                                                                                  \
    X(cancel_send)                                                                                 \
    X(cancel_first)                                                                                \
    X(cancel_known)                                                                                \
    X(cancel_rings)                                                                                \
    X(cancel_scattered)                                                                            \
    X(close_wakes)                                                                                 \
    X(close_sends)                                                                                 \
    X(close_receives)                                                                              \
    X(close_rma)                                                                                   \
    X(close_busy)                                                                                  \
    X(close_kept)                                                                                  \
    X(copied_send)                                                                                 \
    X(copied_many)                                                                                 \
    X(copied_closed)                                                                               \
    X(copied_rma)                                                                                  \
    X(fenced_waits)                                                                                \
    X(fenced_closed)                                                                               \
    X(fenced_wakes)                                                                                \
    X(fenced_idle)                                                                                 \
    X(fenced_answers)                                                                              \
    X(fenced_ends)                                                                                 \
    X(fenced_random)                                                                               \
    X(fenced_atomics)                                                                              \
    X(delivered_received)                                                                          \
    X(delivered_kept)                                                                              \
    X(delivered_many)                                                                              \
    X(delivered_ends)                                                                              \
    X(delivered_long)                                                                              \
    X(matched_waits)                                                                               \
    X(matched_received)                                                                            \
    X(matched_order)                                                                               \
    X(matched_ends)                                                                                \
    X(counted_accesses)                                                                            \
    X(counted_flags)                                                                               \
    X(counted_read)                                                                                \
    X(counted_followed)                                                                            \
    X(counted_binding)                                                                             \
    X(kept_reported)                                                                               \
    X(kept_partly)                                                                                 \
    X(kept_unmapped)                                                                               \
    X(kept_watched)                                                                                \
    X(kept_limits)                                                                                 \
    X(kept_refused)                                                                                \
    X(flags_refused)                                                                               \
    X(many_ways)                                                                                   \
    X(many_order)                                                                                  \
    X(many_cut)                                                                                    \
    X(many_cancel)                                                                                 \
    X(many_misuse)                                                                                 \
    X(msg_data)                                                                                    \
    X(msg_no_data)                                                                                 \
    X(msg_spaces)                                                                                  \
    X(msg_spaces_end)                                                                              \
    X(msg_drop)                                                                                    \
    X(msg_drop_early)                                                                              \
    X(msg_inject)                                                                                  \
    X(msg_more_refused)                                                                            \
    X(msg_sender)                                                                                  \
    X(msg_sender_forget)                                                                           \
    X(msg_sender_threads)                                                                          \
    X(msg_sender_closing)                                                                          \
    X(parts_late)                                                                                  \
    X(parts_cut)                                                                                   \
    X(parts_closed)                                                                                \
    X(pushed)                                                                                      \
    X(pushed_cut)                                                                                  \
    X(flood_kept)                                                                                  \
    X(flood_no_op)                                                                                 \
    X(flood_refused)                                                                               \
    X(flood_lost)                                                                                  \
    X(flood_handles)                                                                               \
    X(measured_ways)                                                                               \
    X(op_contents)                                                                                 \
    X(op_atomics)                                                                                  \
    X(op_atomic_sum)                                                                               \
    X(op_signal)                                                                                   \
    X(op_long)                                                                                     \
    X(op_rights)                                                                                   \
    X(op_read_only)                                                                                \
    X(op_region_closed)                                                                            \
    X(finish_calls)                                                                                \
    X(finish_again)                                                                                \
    X(op_flush)                                                                                    \
    X(op_flush_all)                                                                                \
    X(op_many)                                                                                     \
    X(op_paths)                                                                                    \
    X(op_broken)                                                                                   \
    X(mixed_contents)                                                                              \
    X(mixed_region_closed)                                                                         \
    X(mixed_two_handles)                                                                           \
    X(mixed_adds)                                                                                  \
    X(mixed_forged_keys)                                                                           \
    X(order_chains)                                                                                \
    X(order_long)                                                                                  \
    X(order_misuse)                                                                                \
    X(frag_sizes)                                                                                  \
    X(frag_message_message)                                                                        \
    X(frag_message_put)                                                                            \
    X(frag_no_room)                                                                                \
    X(frag_put_message)                                                                            \
    X(frag_put_put)                                                                                \
    X(frag_chains)                                                                                 \
    X(frag_tags)                                                                                   \
    X(frag_again)                                                                                  \
    X(frag_misuse)                                                                                 \
    X(frag_busy)                                                                                   \
    X(frag_numbers)                                                                                \
    X(frag_gone)                                                                                   \
    X(mr_named)                                                                                    \
    X(mr_vector)                                                                                   \
    X(mr_ordered)                                                                                  \
    X(mr_misuse)                                                                                   \
    X(mr_keys)                                                                                     \
    X(mr_unbacked)                                                                                 \
    X(mr_space)                                                                                    \
    X(mr_modes)                                                                                    \
    X(mr_virt_addr)                                                                                \
    X(mr_local)                                                                                    \
    X(mr_rights)                                                                                   \
    X(mr_raw)                                                                                      \
    X(mr_counter)                                                                                  \
    X(mr_endpoint)                                                                                 \
    X(mr_refresh)                                                                                  \
    X(mr_async)                                                                                    \
    X(mr_auth)                                                                                     \
    X(mr_close)                                                                                    \
    X(mr_pmem)                                                                                     \
    X(mr_dmabuf)                                                                                   \
    X(mr_dmabuf_synced)                                                                            \
    X(mr_dmabuf_misuse)                                                                            \
    X(learn_once)                                                                                  \
    X(learn_reused)                                                                                \
    X(learn_grown)                                                                                 \
    X(learn_between)                                                                               \
    X(learn_refreshed)                                                                             \
    X(learn_kept)                                                                                  \
    X(learn_unlike)                                                                                \
    X(learn_gone)                                                                                  \
    X(array_values)                                                                                \
    X(array_edges)                                                                                 \
    X(array_refused)                                                                               \
    X(array_buffers)                                                                               \
    X(array_pages)                                                                                 \
    X(array_rights)                                                                                \
    X(array_sum)                                                                                   \
    X(atomic_values)                                                                               \
    X(atomic_refused)                                                                              \
    X(atomic_closed)                                                                               \
    X(atomic_many)                                                                                 \
    X(atomic_breaks)                                                                               \
    X(name_found)                                                                                  \
    X(name_two)                                                                                    \
    X(name_again)                                                                                  \
    X(name_busy)                                                                                   \
    X(name_receive)                                                                                \
    X(name_closed)                                                                                 \
    X(name_raw_keys)                                                                               \
    X(name_sleep)                                                                                  \
    X(name_progress)                                                                               \
    X(name_handlers)                                                                               \
    X(name_status)                                                                                 \
    X(name_misuse)                                                                                 \
    X(group_members)                                                                               \
    X(group_sends)                                                                                 \
    X(group_later)                                                                                 \
    X(group_closed)                                                                                \
    X(group_named)                                                                                 \
    X(group_left)                                                                                  \
    X(group_flood)                                                                                 \
    X(group_misuse)

#define CONTRACT_DECLARE(name) void test_##name(void **state);
CONTRACT_TESTS(CONTRACT_DECLARE)

#endif
