/* SPDX-License-Identifier: BSD-3-Clause */
/* The socket of an encrypted connection. Each side sends its bytes as AEAD records (auth.h). The
 * nonce of a record is its number. The number is not sent: both sides count the records. So records
 * have to arrive in order: this side sends all bytes of a record before it encrypts the next
 * one. */
#define _GNU_SOURCE
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "transport/tcp/sock_link.h"

struct sock_crypt {
    struct wf_aead out, in;
    /* The record that is being sent: its length, and how many of its bytes the socket has
     * accepted. */
    uint32_t out_len, out_sent;
    uint32_t in_len; /* bytes in [raw]: received, not yet decrypted */
    uint8_t record[WF_AEAD_RECORD_MAX], plain[WF_AEAD_RECORD];
    uint8_t raw[4 * WF_AEAD_RECORD_MAX];
};

bool wf_sock_crypt_open(struct sock_link *s, const struct wf_net_conn *conn)
{
    struct sock_crypt *c = malloc(sizeof *c);
    if (!c)
        return false;
    memset(&c->out, 0, sizeof c->out);
    c->in = c->out;
    memcpy(c->out.key, conn->key_out, sizeof c->out.key);
    memcpy(c->in.key, conn->key_in, sizeof c->in.key);
    c->out_len = c->out_sent = c->in_len = 0;
    s->crypt = c;
    return true;
}

void wf_sock_crypt_close(struct sock_link *s)
{
    if (s->crypt)
        sodium_memzero(s->crypt, sizeof *s->crypt);
    free(s->crypt);
    s->crypt = NULL;
}

struct wf_aead *wf_sock_crypt_out(const struct sock_link *s)
{
    return s->crypt ? &s->crypt->out : NULL;
}

/* Send the rest of the current record, without blocking. Returns true if the socket has accepted
 * the whole record. Returns false with errno otherwise. */
static bool record_send(struct sock_link *s)
{
    struct sock_crypt *c = s->crypt;
    ssize_t n;
    if (c->out_sent == c->out_len)
        return true;
    n = send(s->fd, c->record + c->out_sent, c->out_len - c->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
        return false;
    c->out_sent += (uint32_t)n;
    s->base.has_unsent = c->out_sent != c->out_len;
    errno = EAGAIN;
    return !s->base.has_unsent;
}

/* Copy the first bytes of the [count] elements of [v] to [to], at most one record. Returns how many
 * bytes these are, or -1 with errno EFAULT if some of the lent memory is not there. Bit i of [lent]
 * is set if v[i] is lent memory. */
static ssize_t gather(const struct net_chan *chan, uint8_t *to, const struct iovec *v,
                      unsigned count, uint64_t lent)
{
    size_t at = 0;
    for (unsigned i = 0; i < count && at < WF_AEAD_RECORD; i++) {
        size_t n = WF_MIN(v[i].iov_len, WF_AEAD_RECORD - at);
        if (!(lent >> i & 1))
            memcpy(to + at, v[i].iov_base, n);
        else if (!wf_net_chan_lent_read(chan, to + at, v[i].iov_base, n))
            return -1;
        at += n;
    }
    return (ssize_t)at;
}

ssize_t wf_sock_crypt_sendv(struct sock_link *s, const struct iovec *v, unsigned n, uint64_t lent)
{
    struct sock_crypt *c = s->crypt;
    ssize_t len;
    if (!record_send(s))
        return -1;
    len = gather(s->base.chan, c->plain, v, n, lent);
    if (len <= 0)
        return len;
    c->out_len = (uint32_t)wf_aead_seal(&c->out, c->plain, (size_t)len, c->record);
    c->out_sent = 0;
    s->base.has_unsent = true;
    if (!record_send(s) && errno != EAGAIN)
        return -1;
    return len;
}

/* Decrypt the whole records among the received bytes, as long as [to] has room for a record of
 * the greatest size. Returns the number of decrypted bytes, or -1 if a record was altered on
 * the way. */
static ssize_t records_open(struct sock_crypt *c, uint8_t *to, size_t room)
{
    size_t got = 0, used = 0, n = 0;
    while (room - got >= WF_AEAD_RECORD) {
        long m = wf_aead_open(&c->in, c->raw + used, c->in_len - used, to + got, &n);
        if (m < 0)
            return -1;
        if (!m)
            break;
        used += (size_t)m;
        got += n;
    }
    c->in_len -= (uint32_t)used;
    memmove(c->raw, c->raw + used, c->in_len);
    return (ssize_t)got;
}

ssize_t wf_sock_crypt_recv(struct sock_link *s, uint8_t *to, size_t room)
{
    struct sock_crypt *c = s->crypt;
    ssize_t n = recv(s->fd, c->raw + c->in_len, sizeof c->raw - c->in_len, MSG_DONTWAIT);
    if (n <= 0)
        return n;
    c->in_len += (uint32_t)n;
    s->received += (uint32_t)n;
    n = records_open(c, to, room);
    errno = n < 0 ? EBADMSG : EAGAIN;
    return n > 0 ? n : -1;
}
