/* SPDX-License-Identifier: BSD-3-Clause */
/* An encrypted channel's socket: what is written leaves in records, what is read was one.
 * A record once sealed leaves as it is: its number is its nonce. */
#define _GNU_SOURCE
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "transport/net/connect/auth.h"
#include "transport/net/net.h"

struct sock_crypt {
    struct wf_aead out, in;
    uint32_t out_len, out_sent; /* of the record that is leaving */
    uint32_t in_len;            /* of the record that is not whole yet, and what follows it */
    uint8_t record[WF_AEAD_RECORD_MAX], plain[WF_AEAD_RECORD];
    uint8_t raw[4 * WF_AEAD_RECORD_MAX];
};

bool wf_crypt_open(struct net_chan *chan, const struct wf_net_conn *conn)
{
    struct sock_crypt *s = malloc(sizeof *s);
    if (!s)
        return false;
    memset(&s->out, 0, sizeof s->out);
    s->in = s->out;
    memcpy(s->out.key, conn->key_out, sizeof s->out.key);
    memcpy(s->in.key, conn->key_in, sizeof s->in.key);
    s->out_len = s->out_sent = s->in_len = 0;
    chan->crypt = s;
    return true;
}

void wf_crypt_close(struct net_chan *chan)
{
    if (chan->crypt)
        sodium_memzero(chan->crypt, sizeof *chan->crypt);
    free(chan->crypt);
    chan->crypt = NULL;
}

struct wf_aead *wf_crypt_out(const struct net_chan *chan)
{
    return chan->crypt ? &chan->crypt->out : NULL;
}

bool wf_crypt_has_unsent(const struct net_chan *chan)
{
    return chan->crypt && chan->crypt->out_sent != chan->crypt->out_len;
}

static bool record_leave(const struct net_chan *chan)
{
    struct sock_crypt *s = chan->crypt;
    ssize_t n;
    if (s->out_sent == s->out_len)
        return true;
    n = send(chan->fd, s->record + s->out_sent, s->out_len - s->out_sent,
             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0)
        s->out_sent += (uint32_t)n;
    else if (n < 0)
        return false;
    errno = EAGAIN;
    return s->out_sent == s->out_len;
}

static size_t gather(uint8_t *to, const struct iovec *v, unsigned count)
{
    size_t at = 0;
    for (unsigned i = 0; i < count && at < WF_AEAD_RECORD; i++) {
        size_t n = WF_MIN(v[i].iov_len, WF_AEAD_RECORD - at);
        memcpy(to + at, v[i].iov_base, n);
        at += n;
    }
    return at;
}

ssize_t wf_crypt_write(struct net_chan *chan, const struct iovec *v, unsigned count)
{
    struct sock_crypt *s = chan->crypt;
    size_t n;
    if (!record_leave(chan))
        return -1;
    n = gather(s->plain, v, count);
    if (!n)
        return 0;
    s->out_len = (uint32_t)wf_aead_seal(&s->out, s->plain, n, s->record);
    s->out_sent = 0;
    if (!record_leave(chan) && errno != EAGAIN)
        return -1;
    return (ssize_t)n;
}

/* Records among the raw bytes, as many as there is room for. -1: one was tampered with. */
static ssize_t records_open(struct sock_crypt *s, uint8_t *to, size_t room)
{
    size_t got = 0, used = 0, n = 0;
    while (room - got >= WF_AEAD_RECORD) {
        long m = wf_aead_open(&s->in, s->raw + used, s->in_len - used, to + got, &n);
        if (m < 0)
            return -1;
        if (!m)
            break;
        used += (size_t)m;
        got += n;
    }
    s->in_len -= (uint32_t)used;
    memmove(s->raw, s->raw + used, s->in_len);
    return (ssize_t)got;
}

ssize_t wf_crypt_read(struct net_chan *chan, uint8_t *to, size_t room)
{
    struct sock_crypt *s = chan->crypt;
    ssize_t n = recv(chan->fd, s->raw + s->in_len, sizeof s->raw - s->in_len, MSG_DONTWAIT);
    if (n <= 0)
        return n;
    s->in_len += (uint32_t)n;
    chan->socket_bytes += (uint32_t)n;
    n = records_open(s, to, room);
    errno = n < 0 ? EBADMSG : EAGAIN;
    return n > 0 ? n : -1;
}
