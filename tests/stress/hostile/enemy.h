/* SPDX-License-Identifier: BSD-3-Clause */
/* The packet protocol spoken by hand, so that every part of it can be wrong. */
#ifndef TEST_ENEMY_H
#define TEST_ENEMY_H

#include <stdbool.h>

#include "transport/address.h"
#include "transport/shm/packet.h"
#include "transport/shm/ring.h"
#include "worker.h"

/* A process id like the victim's, but this process's, with a token of its own. */
struct wf_process_id enemy_id(const struct wf_address *victim);
struct wf_address enemy_address(const struct worker *victim);

/* Sockets: to the victim's service thread; its own, where the victim connects. */
int enemy_connect(const struct wf_address *victim); /* no packet was sent yet */
int enemy_listen(const struct wf_process_id *self);
int enemy_accept(int listener);
/* Connect and send a proper hello; takes the welcome. */
int enemy_greet(const struct wf_address *victim, const struct wf_process_id *self);

/* Wait for a packet, 10 s at most. False: the other side closed the socket.
 * Descriptors that came are the caller's. */
bool enemy_hear(int sock, struct wf_packet *p, int fds[WF_PACKET_FDS], int *nfds);
void enemy_close_fds(const int *fds, int nfds);
/* The other side closes the socket within 10 s, whatever it sends before. */
void enemy_await_end(int sock);

/* A memfd of [size] bytes, mapped; sealed afterwards. */
int enemy_memfd(size_t size, int seals, void **base);

/* A connection to the victim's endpoint, made by hand. */
struct enemy_ring {
    struct wf_shm_geometry geometry;
    struct wf_shm_fwd *fwd;
    struct wf_shm_back *back;
    int fds[3]; /* forward, back, the enemy's event descriptor */
    int victim_event;
    uint8_t *payload, *places;
};
#define ENEMY_GEOMETRY                                                                             \
    {                                                                                              \
        64, 16384, 4096, 8                                                                         \
    }
void enemy_ring_make(struct enemy_ring *r);
/* Offer it; returns the status of the refusal, or OK. */
enum weft_status enemy_ring_offer(struct enemy_ring *r, int sock, const struct wf_address *victim,
                                  const struct wf_process_id *self);
void enemy_ring_free(struct enemy_ring *r);
/* Ask the victim to poll now: it may be asleep. */
void enemy_ring_wake(struct enemy_ring *r);
/* Until back.closed is set, 10 s at most. Returns it. */
enum weft_status enemy_ring_await_closed(struct enemy_ring *r);

uint64_t enemy_rand(void);
/* Seeded by WEFT_TEST_SEED or the clock; printed. */
void enemy_seed(void);

#endif
