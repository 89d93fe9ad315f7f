#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The proxy aborts connections where and how it reports.

usage: proxy_test.py PROXY"""

import errno
import socket
import struct
import sys

import netlib

PROXY = sys.argv[1]
HANDSHAKE = (184 + 48, 80)  # what each side sends before frames
WIRE_REQUEST = 1


def pair(net):
    listener = net.within(2, socket.create_server, (net.address(2), 0))
    here = net.within(1, socket.create_connection, listener.getsockname(), 5)
    there, _ = listener.accept()
    listener.close()
    for end in (here, there):
        end.settimeout(5)
    return here, there


def until_end(end):
    """All bytes until the end, and how it ends: 0 or an errno."""
    got = b""
    try:
        while True:
            more = end.recv(65536)
            if not more:
                return got, 0
            got += more
    except OSError as error:
        return got, error.errno


def frame(length, nargs):
    """As in wire.h: length, ack, room, kind, arguments, handler."""
    pad = -(16 + 4 * nargs) % 16 + -length % 16
    return struct.pack("<IIIBBBB", length, 0, 0, WIRE_REQUEST, nargs, 0, 0) + bytes(
        4 * nargs + length + pad)


def test_passes():
    with netlib.Net(hosts=2) as net:
        proxy = netlib.Proxy(net, PROXY, 1)
        here, there = pair(net)
        for data in (b"x", bytes(100000), b"yy"):
            for one, other in ((here, there), (there, here)):
                one.sendall(data)
                got = b""
                while len(got) < len(data):
                    got += other.recv(65536)
                assert got == data
        here.shutdown(socket.SHUT_WR)
        assert until_end(there) == (b"", 0)
        there.sendall(b"still")
        there.close()
        assert until_end(here) == (b"still", 0)
        seen = proxy.end()
        assert seen["connections"] == 1 and seen["passed"] == 200011, seen


def test_bytes():
    """A connection ends at each byte offset, in both directions, and not before the reported
    one."""
    with netlib.Net(hosts=2) as net:
        for how, ends in (("rst", {errno.ECONNRESET}), ("close", {0, errno.ECONNRESET}),
                          ("half", {0})):
            proxy = netlib.Proxy(net, PROXY, 1, how=how, bytes="3:11")
            for number in range(16):
                ends_of = pair(net)
                sender, receiver = ends_of[number % 2], ends_of[1 - number % 2]
                sender.sendall(bytes(100))
                got, end = until_end(receiver)
                want = 3 + number // 2 * 131 % 8
                assert len(got) == want and end in ends, (how, number, len(got), end)
                if how == "half":
                    receiver.sendall(b"back")
                    assert sender.recv(4) == b"back"
            for end in ends_of:
                end.close()
            seen = proxy.end()
            assert seen[how] == 16 == seen["connections"], seen


def test_frames():
    with netlib.Net(hosts=2) as net:
        proxy = netlib.Proxy(net, PROXY, 1, frames=3, seed=5)
        frames = [frame(40, 3), frame(0, 0), frame(17, 16)]
        starts = [sum(map(len, frames[:i])) for i in range(3)]
        hit = set()
        for number in range(64):
            ends_of, side = pair(net), number % 2
            ends_of[side].sendall(bytes(HANDSHAKE[side]) + b"".join(frames))
            got, end = until_end(ends_of[1 - side])
            at = len(got) - HANDSHAKE[side]
            assert at - number // 2 % 16 in starts and end == errno.ECONNRESET, (number, at, end)
            hit.add(at - number // 2 % 16)
            for one in ends_of:
                one.close()
        assert len(hit) == 3, "not every frame was hit"
        seen = proxy.end()
        assert all(seen[f"offset{i}"] == 4 for i in range(16)), seen


def test_limits():
    with netlib.Net(hosts=2) as net:
        proxy = netlib.Proxy(net, PROXY, 1, bytes="0:2", aborts=1)
        here, there = pair(net)
        here.sendall(b"x")
        assert until_end(there)[1] == errno.ECONNRESET
        here, there = pair(net)
        there.sendall(b"xyz")
        assert here.recv(3) == b"xyz"
        assert proxy.end()["rst"] == 1


def main():
    netlib.enter()
    netlib.main([value for name, value in globals().items() if name.startswith("test_")])


if __name__ == "__main__":
    main()
