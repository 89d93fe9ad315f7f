/* SPDX-License-Identifier: BSD-3-Clause */
/* Packets with descriptors over a SOCK_SEQPACKET socket of unix(7), without blocking. The bytes of
 * a packet are the caller's. */
#ifndef WF_BASE_SEQPACKET_H
#define WF_BASE_SEQPACKET_H

#include <stddef.h>
#include <sys/types.h>

#define WF_SEQPACKET_FDS 8 /* the most descriptors of a packet of any kind */
#define WF_SEQPACKET_LOST (-1)

/* Send [len] bytes as one packet, with [nfds] descriptors, at most WF_SEQPACKET_FDS, which stay the
 * caller's. Returns 0, or -1 with errno: EAGAIN if the socket is full. */
int wf_seqpacket_send(int sock, const void *bytes, size_t len, const int *fds, int nfds);

/* Receive a packet of at most [room] bytes and [most] descriptors (at most WF_SEQPACKET_FDS).
 * Returns its length: the caller owns the first [most] of the *nfds descriptors, which are
 * close-on-exec and above 2, in [fds]; more than [most] came if *nfds is greater. *nfds is
 * WF_SEQPACKET_LOST if this process had too few free descriptors, and then it owns none.
 * Returns 0 at the end of the connection.
 * Returns -1 with errno: EAGAIN if there is no packet; EPROTO if it is empty but for descriptors,
 * or longer than [room]. */
ssize_t wf_seqpacket_recv(int sock, void *bytes, size_t room, int *fds, int most, int *nfds);

/* Close the descriptors of a received packet that its reader refuses. */
void wf_seqpacket_drop(const int *fds, int most, int nfds);

#endif
