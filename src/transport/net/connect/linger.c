/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets on which this side sends nothing more. If a socket has unread bytes, close(2) sends RST,
 * and the peer's kernel then discards what the peer has not read yet. So the manager reads and
 * discards incoming bytes until the peer closes its side, too. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sockios.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/net/connect/auth.h"
#include "transport/net/connect/manager_int.h"

#define READS_MAX 64 /* per event */

void wf_conn_close_fd(int fd)
{
    if (fd >= 0) {
        (void)shutdown(fd, SHUT_RDWR);
        close(fd);
    }
}

void wf_mgr_linger_event(struct wf_conn_mgr *mgr, struct wf_mgr_watch *w)
{
    uint8_t discarded[4096];
    for (int i = 0; i < READS_MAX; i++) {
        ssize_t n = recv(w->fd, discarded, sizeof discarded, MSG_DONTWAIT);
        if (n > 0 || (n < 0 && errno == EINTR))
            continue;
        if (!n || errno != EAGAIN)
            wf_mgr_watch_end(mgr, w);
        return;
    }
}

/* While the manager closes, end the sockets that need not linger any more. SIOCOUTQ (tcp(7)) is 0
 * when the peer's kernel has acknowledged all data and the FIN. All sockets end when the time for
 * closing is over. */
void wf_mgr_lingers_closing(struct wf_conn_mgr *mgr)
{
    bool late = wf_now_ns() >= mgr->stop_ns;
    wf_list_each(it, &mgr->lingers)
    {
        struct wf_mgr_watch *w = wf_container_of(it, struct wf_mgr_watch, item);
        int unacknowledged = 0;
        if (!w->dead && (late || ioctl(w->fd, SIOCOUTQ, &unacknowledged) || !unacknowledged))
            wf_mgr_watch_end(mgr, w);
    }
}

void wf_conn_mgr_linger(struct wf_conn_mgr *mgr, int fd)
{
    struct wf_mgr_watch *w = calloc(1, sizeof *w);
    (void)shutdown(fd, SHUT_WR);
    if (!w) {
        close(fd);
        return;
    }
    w->kind = WF_MGR_LINGER;
    w->fd = fd;
    mgr_lock(mgr);
    wf_list_append(&mgr->lingers, &w->item);
    wf_mgr_deadline_set(mgr, w, wf_now_ns() + mgr->peer_ns);
    if (wf_mgr_watch_add(mgr, w, EPOLLIN))
        wf_mgr_watch_end(mgr, w);
    mgr_unlock(mgr);
    wf_mgr_wake(mgr);
}

void wf_conn_mgr_turn_away(struct wf_conn_mgr *mgr, int fd, struct wf_aead *aead)
{
    struct wf_net_frame bye = {.kind = WF_NET_BYE};
    uint8_t record[WF_AEAD_RECORD_MAX];
    size_t n = sizeof bye;
    if (aead)
        n = wf_aead_seal(aead, &bye, sizeof bye, record);
    (void)send(fd, aead ? record : (const void *)&bye, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    wf_conn_mgr_linger(mgr, fd);
}

void wf_conn_mgr_turn_away_conn(struct wf_conn_mgr *mgr, struct wf_net_conn *conn)
{
    struct wf_aead aead = {.number = 0};
    memcpy(aead.key, conn->key_out, sizeof aead.key);
    wf_conn_mgr_turn_away(mgr, conn->fd, conn->encrypted ? &aead : NULL);
    sodium_memzero(&aead, sizeof aead);
    wf_net_conn_free(conn);
}
