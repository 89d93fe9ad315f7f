/* SPDX-License-Identifier: BSD-3-Clause */
/* Which connections a poll visits. An endpoint may have thousands of connections, of which few are
 * active. A poll reads the lines of the active connections only, which are called hot. The inactive
 * connections are called cold.
 *
 * A receiving connection that was idle for a while becomes cold. To the sender, a cold connection
 * looks like a receiver that sleeps: the sleep word is odd, and the check after the barrier found
 * no message. So when the sender publishes a message, it announces the message once. It sets the
 * connection's bit in the endpoint's doorbell and writes to the endpoint's event descriptor.
 *
 * When a bit is set, all connections of that bit become hot, even those without a message, and each
 * begins a new epoch of its sleep word. The reason: a poll may have delivered the announced message
 * already, before the connection became cold. The sender announces once per epoch. So without a new
 * epoch, the sender would not announce its next message. (tests/model, BELL_STAYS)
 *
 * A sending connection must be polled only while this endpoint waits for a reply or for room on
 * that connection. A cold sending connection has no credit, so the next send takes the slow path,
 * which makes the connection hot. */
#include <stdlib.h>

#include "base/rand.h"
#include "config/config.h"
#include "transport/shm/service.h"
#include "transport/ring/sleep.h"

/* While at most this many connections are polled (hot), none becomes cold. */
#define HOT_KEEP 4

/* A connection becomes cold, so that polls skip it, after this many sweeps without a message. A
 * sweep is the work of every 1,024th poll. In that time, polls load the connection's line 4,096
 * times from the cache, which takes some microseconds. To make a connection cold and hot again
 * takes about as long, because it needs a barrier and an announcement. */
#define COOL_SWEEPS 4

/* A sweep is the work of every 1,024th poll. It checks this many of the cold connections, which
 * polls skip. */
#define PATROL 16

static void rx_swap(struct shm_tep *t, uint32_t i, uint32_t j)
{
    struct shm_rx *rx = t->rx[i];
    t->rx[i] = t->rx[j];
    t->rx[j] = rx;
    t->rx[i]->index = i;
    t->rx[j]->index = j;
}

static void rx_set_asleep(struct shm_rx *rx, bool asleep)
{
    wf_sleep_set(&rx->back->sleep_epoch, &rx->epoch, asleep);
}

/* Add a new connection to those that are polled (hot). The caller has made room in t->rx. */
void wf_shm_rx_add(struct shm_tep *t, struct shm_rx *rx)
{
    rx->index = t->nrx++;
    t->rx[rx->index] = rx;
    rx_swap(t, rx->index, t->nrx_hot++);
}

static void bell_unlink(struct shm_tep *t, const struct shm_rx *rx)
{
    struct shm_rx **at = &t->bell_rxs[rx->bit];
    while (*at != rx)
        at = &(*at)->bell_next;
    *at = rx->bell_next;
}

void wf_shm_rx_remove(struct shm_tep *t, struct shm_rx *rx)
{
    if (rx->cold)
        bell_unlink(t, rx);
    else
        rx_swap(t, rx->index, --t->nrx_hot);
    rx_swap(t, rx->index, --t->nrx);
}

/* Make a connection cold, so that it is not polled. The caller has made the sleep word odd and,
 * after a barrier, found no message. So the sender announces any later message. */
static void rx_chill(struct shm_tep *t, struct shm_rx *rx)
{
    rx->cold = true;
    rx->bell_next = t->bell_rxs[rx->bit];
    t->bell_rxs[rx->bit] = rx;
    rx_swap(t, rx->index, --t->nrx_hot);
}

static void rx_heat(struct shm_tep *t, struct shm_rx *rx)
{
    rx->cold = false;
    rx->idle_sweeps = 0;
    rx->sweep_head = rx->head;
    rx_swap(t, rx->index, t->nrx_hot++);
    rx_set_asleep(rx, false);
}

static void bit_heat(struct shm_tep *t, uint32_t bit)
{
    struct shm_rx *rx = t->bell_rxs ? t->bell_rxs[bit] : NULL;
    if (rx)
        t->bell_rxs[bit] = NULL;
    for (struct shm_rx *next; rx; rx = next) {
        next = rx->bell_next;
        rx_heat(t, rx);
    }
}

/* Make the announced connections hot, so that they are polled. This function clears [rung] first,
 * then the words of bits. A sender that rings at the same time sets its connection's bit first,
 * then the bit in [rung]. So this poll or the next one finds the connection's bit. */
void wf_shm_bell_read(struct shm_tep *t)
{
    uint64_t words = atomic_exchange_explicit(&t->bell->rung, 0, memory_order_acquire); /* "bell" */
    for (uint32_t w = 0; w < WF_SHM_BELL_WORDS; w++) {
        uint64_t bits;
        if (!(words >> w & 1))
            continue;
        bits = atomic_exchange_explicit(&t->bell->bits[w], 0, memory_order_acquire);
        for (; bits; bits &= bits - 1)
            bit_heat(t, 64 * w + (uint32_t)__builtin_ctzll(bits));
    }
}

/* Called in each sweep, the work of every 1,024th poll. Every local process can write the doorbell,
 * and a hostile one could clear bits. So a few connections that are not polled are checked for
 * messages even if no bit is set. A cleared bit then only delays a message. */
void wf_shm_rxs_patrol(struct shm_tep *t)
{
    for (uint32_t i = 0; i < PATROL && t->nrx > t->nrx_hot; i++) {
        uint32_t cold = t->nrx - t->nrx_hot;
        struct shm_rx *rx = t->rx[t->nrx_hot + t->patrol++ % cold];
        if (!wf_shm_rx_ready(rx, rx->head) && !wf_load_acquire(&rx->segs->fwd->closed))
            continue;
        bell_unlink(t, rx);
        rx_heat(t, rx);
    }
}

static bool bell_rxs_ready(struct shm_tep *t)
{
    if (!t->bell_rxs)
        t->bell_rxs = calloc(WF_SHM_BELL_BITS, sizeof(struct shm_rx *));
    return t->bell_rxs != NULL;
}

static bool rx_is_idle(struct shm_rx *rx)
{
    bool idle = rx->head == rx->sweep_head;
    rx->sweep_head = rx->head;
    rx->idle_sweeps = idle ? rx->idle_sweeps + 1 : 0;
    return rx->idle_sweeps >= COOL_SWEEPS;
}

/* Called in each sweep, the work of every 1,024th poll. Connections that were idle for COOL_SWEEPS
 * sweeps become cold, so that they are not polled. One barrier serves for all of them. */
void wf_shm_rxs_cool(struct shm_tep *t)
{
    uint32_t from = t->nrx_hot, n;
    bool cold;
    if (from <= HOT_KEEP || !bell_rxs_ready(t))
        return;
    for (uint32_t i = from; i-- > 0;)
        if (rx_is_idle(t->rx[i])) {
            WF_HOOK("cool.idle");
            rx_swap(t, i, --from);
            rx_set_asleep(t->rx[from], true);
        }
    if (from == t->nrx_hot)
        return;
    WF_HOOK("cool.said");
    cold = wf_sleep_barrier(t->ctx->membarrier);
    for (n = t->nrx_hot; n-- > from;) {
        struct shm_rx *rx = t->rx[n];
        if (cold && !wf_shm_rx_ready(rx, rx->head) && !wf_load_acquire(&rx->segs->fwd->closed))
            rx_chill(t, rx);
        else
            rx_set_asleep(rx, false);
    }
}

/* Called before the owner sleeps: make the sleep words of the polled (hot) connections odd. The
 * sleep words of the cold connections are odd already. */
void wf_shm_rxs_sleep(struct shm_tep *t)
{
    for (uint32_t i = 0; i < t->nrx_hot; i++)
        rx_set_asleep(t->rx[i], true);
}

/* Called when the owner is awake again. If arming found no message after its barrier, idle
 * connections can become cold (not polled) without another barrier. */
void wf_shm_rxs_wake(struct shm_tep *t)
{
    bool may = t->armed_empty && t->nrx_hot > HOT_KEEP && bell_rxs_ready(t);
    for (uint32_t i = t->nrx_hot; i-- > 0;)
        if (may && t->rx[i]->head == t->rx[i]->sweep_head)
            rx_chill(t, t->rx[i]);
        else
            rx_set_asleep(t->rx[i], false);
}

static void tx_swap(struct shm_tep *t, uint32_t i, uint32_t j)
{
    struct shm_tx *tx = t->tx[i];
    t->tx[i] = t->tx[j];
    t->tx[j] = tx;
    t->tx[i]->index = i;
    t->tx[j]->index = j;
}

/* Add a new connection to those that are polled (hot). The caller has made room in t->tx. */
void wf_shm_tx_add(struct shm_tep *t, struct shm_tx *tx)
{
    tx->index = t->ntx;
    t->tx[tx->index] = tx;
    __atomic_store_n(&t->ntx, t->ntx + 1, __ATOMIC_RELEASE); /* stored, then counted (forked.c) */
    tx_swap(t, tx->index, t->ntx_hot++);
}

void wf_shm_tx_remove(struct shm_tep *t, struct shm_tx *tx)
{
    if (t->held == tx)
        wf_shm_ring_release(t);
    if (!tx->cold)
        tx_swap(t, tx->index, --t->ntx_hot);
    tx_swap(t, tx->index, --t->ntx);
}

/* Make the connection hot, so that it is polled, because a message is about to be sent. The caller
 * updates the credit. */
void wf_shm_tx_heat(struct shm_tx *tx)
{
    struct shm_tep *t = tx->tep;
    tx->cold = false;
    tx_swap(t, tx->index, t->ntx_hot++);
    /* When the owner armed, it set the sleep words of hot connections only. wf_shm_notify makes the
     * owner arm again, which also sets the sleep word of this connection. */
    if (t->armed)
        wf_shm_notify(t);
}

/* Called in each sweep, the work of every 1,024th poll. A connection becomes cold (not polled) if
 * nothing was sent on it since the last sweep, and this endpoint waits for no reply and no room on
 * it. */
void wf_shm_txs_cool(struct shm_tep *t)
{
    for (uint32_t i = t->ntx_hot; i-- > 0 && t->ntx_hot > HOT_KEEP;) {
        struct shm_tx *tx = t->tx[i];
        if (tx->tail == tx->sweep_tail && tx->tail == tx->tail_counted &&
            tx->due_head == tx->due_tail && !tx->wants_room) {
            tx->cold = true;
            tx->credit_end = tx->tail;
            tx_swap(t, i, --t->ntx_hot);
        }
        tx->sweep_tail = tx->tail;
    }
}

/* Has the receiver consumed all messages and answered all requests? Such a ring is drained: it can
 * be closed without loss. But it stays open while a message is sent in parts, because the receiver
 * takes the end of a connection for the end of the message. No other condition may keep a ring
 * open. A peer that polls drains its ring and gets the remaining parts, whatever its application
 * does. So every peer gets a ring after some time, however many peers there are (tests/model,
 * lend.pml). An operation may wait for its peer without a ring, such as the offer of a long message
 * that no receive has matched. If that peer ends, its word in the state segment shows it. */
static bool tx_is_drained(const struct shm_tx *tx)
{
    return tx->due_head == tx->due_tail &&
           wf_load_acquire(&tx->back->head) == tx->tail && /* "head" */
           !wf_load_relaxed(&tx->down) &&
           /* A ring that the receiver has closed is not drained. Poll must report the closing
            * first. */
           !wf_load_acquire(&tx->back->closed) &&
           !tx->tep->base.events->is_unfinished(tx->tep->base.owner, SHM_OF(tx->peer, wf_tpeer));
}

/* Returns the least recently used ring that is drained, which means that no message is under way on
 * it. A ring for [peer] will replace it. Returns NULL if no ring is drained. */
struct shm_tx *wf_shm_tx_drained(struct shm_tep *t, const struct shm_peer *peer)
{
    struct shm_tx *best = NULL;
    for (uint32_t i = 0; i < t->ntx; i++) {
        struct shm_tx *tx = t->tx[i];
        if (tx->tail != tx->tail_counted)
            wf_shm_tx_count(tx);
        if (tx == t->held && peer != t->waiter)
            continue;
        if ((!best || tx->last_use < best->last_use) && tx_is_drained(tx))
            best = tx;
    }
    return best;
}

/* Could a message that was refused for lack of a ring be sent now? */
bool wf_shm_ring_available(const struct shm_tep *t)
{
    struct wf_shm_geometry full = wf_shm_geometry_full(t->base.am_max);
    const struct wf_config *c = wf_config();
    if (t->ntx < WF_MIN(c->shm_rings, WF_SHM_RINGS_MIN))
        return true;
    if (t->ntx < c->shm_rings &&
        atomic_load(&t->ctx->ring_bytes) + wf_shm_ring_bytes(&full) <= c->shm_memory)
        return true;
    for (uint32_t i = 0; i < t->ntx; i++)
        if (tx_is_drained(t->tx[i]))
            return true;
    return false;
}

/* ---- fairness: messages that wait for a ring while all rings are in use ----
 *
 * If an application sends on a ring without a pause, no poll finds the ring drained. So once
 * messages have waited for RING_SWEEPS sweeps, each sweep holds one ring. A held ring gets no more
 * messages, drains, and is then replaced by a ring for the waiter. The waiter is drawn at random
 * from the peers that were refused, so that no peer waits for ever. The next sweep holds another
 * ring.
 *
 * A ring drains only if its receiver polls. A receiver that does not poll keeps any ring that it
 * gets. So only rings whose heads moved are held. If the head of a single ring moved, this ring is
 * held only if the endpoint has no other ring. Otherwise the last ring whose receiver polls could
 * go to a peer that does not poll, and then peers that do not poll would have all rings. */

#define RING_SWEEPS 2

/* Called when a message to [peer] was refused for lack of a ring. Draws at random whether [peer]
 * becomes the waiter, the peer that gets the next ring. Each refused peer has the same chance. */
void wf_shm_ring_refused(struct shm_tep *t, struct shm_peer *peer)
{
    t->flags |= SHM_WANTS_RING;
    if (!t->held && wf_rand(&t->rand) % ++t->ring_refusals == 0)
        t->waiter = peer;
}

/* Stop holding a ring for the waiter. Messages that were refused because of the hold can be
 * sent again, so the next poll reports an event. */
void wf_shm_ring_release(struct shm_tep *t)
{
    if (t->held)
        t->flags |= SHM_RETRY_DUE;
    t->held = NULL;
    t->waiter = NULL;
    t->ring_refusals = 0;
}

static bool head_moves(struct shm_tx *tx)
{
    uint32_t head = wf_load_relaxed(&tx->back->head), swept = tx->sweep_head;
    tx->sweep_head = head;
    return head != swept;
}

/* Called in each sweep, the work of every 1,024th poll. Releases the ring that was held, and holds
 * another one if messages have waited for RING_SWEEPS sweeps. A ring that is held takes no more
 * messages. */
void wf_shm_ring_hold(struct shm_tep *t)
{
    struct shm_peer *waiter = t->waiter;
    struct shm_tx *next = NULL;
    uint32_t moving = 0;
    wf_shm_ring_release(t);
    if (!(t->flags & SHM_WANTS_RING)) {
        t->ring_sweeps = 0;
        return;
    }
    t->ring_sweeps += t->ring_sweeps < RING_SWEEPS;
    for (uint32_t i = 0; i < t->ntx; i++)
        if (head_moves(t->tx[i]) && wf_rand(&t->rand) % ++moving == 0)
            next = t->tx[i];
    if (t->ring_sweeps < RING_SWEEPS || !waiter || !next || (moving == 1 && t->ntx > 1))
        return;
    t->held = next;
    t->waiter = waiter;
    next->credit_end = next->tail; /* without credit, the next send calls is_held */
}

/* Set the sleep words from which the receivers see whether they must wake this endpoint when they
 * make room or reply. On connections that are not polled (cold), this endpoint awaits neither, so
 * their sleep words need not be set. But if a message waits for a ring, any ring may become
 * drained, so the sleep words of all connections are set. */
void wf_shm_txs_set_asleep(struct shm_tep *t, bool asleep)
{
    uint32_t n = t->flags & SHM_WANTS_RING || !asleep ? t->ntx : t->ntx_hot;
    for (uint32_t i = 0; i < n; i++)
        wf_sleep_set(&t->tx[i]->segs->fwd->sleep_epoch, &t->tx[i]->epoch, asleep);
}
