#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The forwarder delays, loses, reorders and cuts as its commands demand.

usage: forwarder_test.py FORWARDER"""

import itertools
import select
import socket
import sys
import time

import netlib

SO_RCVBUFFORCE = 33  # asm-generic/socket.h
FORWARDER = sys.argv[1]


def udp(net, number):
    made = net.within(number, socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((netlib.Forwarder.address(number), 5000))
    made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)  # for all that a test sends
    made.settimeout(5)
    return made


def tcp(net, one, other):
    listener = net.within(other, socket.create_server, (netlib.Forwarder.address(other), 0))
    here = net.within(one, socket.create_connection, listener.getsockname(), 5)
    there, _ = listener.accept()
    listener.close()
    for end in (here, there):
        end.settimeout(10)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return here, there


def trip_ms(here, there):
    begin = time.monotonic()
    here.send(b"x")
    there.recv(1)
    return (time.monotonic() - begin) * 1000


def expect_trip(here, there, delay_ms):
    """A byte takes as long; never less, and the best of some, for the machine may be busy."""
    took = [trip_ms(here, there) for _ in range(5)]
    assert delay_ms <= min(took) < delay_ms + 10, f"{took} ms, not {delay_ms}"


def numbered(here, there, count):
    """Send [count] numbered datagrams, a few at a time; the numbers that arrive."""
    got = []
    to = there.getsockname()
    for number in range(count):
        here.sendto(number.to_bytes(4, "big"), to)
        while select.select([there], [], [], 0)[0]:
            got.append(int.from_bytes(there.recv(4), "big"))
    while select.select([there], [], [], 0.2)[0]:
        got.append(int.from_bytes(there.recv(4), "big"))
    return got


def test_delay():
    with netlib.Net(hosts=3, links=0) as net:
        forwarder = netlib.Forwarder(net, FORWARDER, delay=30)
        here, there = tcp(net, 1, 2)
        expect_trip(here, there, 30)
        expect_trip(there, here, 30)
        forwarder.set("delay", 5)
        expect_trip(*tcp(net, 1, 2), 5)
        expect_trip(*tcp(net, 3, 1), 5)
        assert forwarder.end()["connections"] == 3


def test_lanes():
    """Connections have the delays of the list in turn, in both directions."""
    delays = (0, 20, 40, 60)
    with netlib.Net(hosts=2, links=0) as net:
        netlib.Forwarder(net, FORWARDER, delay=delays)
        for delay in delays * 2:
            here, there = tcp(net, 1, 2)
            expect_trip(here, there, delay)
            expect_trip(there, here, delay)


def test_loss():
    with netlib.Net(hosts=2, links=0) as net:
        forwarder = netlib.Forwarder(net, FORWARDER, loss=5, seed=7)
        got = numbered(udp(net, 1), udp(net, 2), 4000)
        assert got == sorted(set(got))
        seen = forwarder.end()
        assert 100 < seen["lost"] < 300, seen
        assert len(got) + seen["lost"] == 4000, (len(got), seen)


def test_reorder():
    with netlib.Net(hosts=2, links=0) as net:
        # A late packet waits 20 ms more: others are sent in that time, whatever else runs here.
        forwarder = netlib.Forwarder(net, FORWARDER, delay=20, reorder=10)
        got = numbered(udp(net, 1), udp(net, 2), 4000)
        assert len(set(got)) == len(got) == 4000
        overtaken = sum(number < top for number, top in zip(got, itertools.accumulate(got, max)))
        seen = forwarder.end()
        assert 300 < seen["late"] < 500 and overtaken > 300, (overtaken, seen)


def test_cut():
    with netlib.Net(hosts=3, links=0) as net:
        forwarder = netlib.Forwarder(net, FORWARDER)
        one, two, three = (udp(net, number) for number in (1, 2, 3))
        forwarder.set("cut", 2)
        assert not numbered(one, two, 10) and not numbered(two, three, 10)
        assert len(numbered(one, three, 10)) == 10
        forwarder.set("heal", 2)
        assert len(numbered(one, two, 10)) == 10
        assert forwarder.end()["cut"] >= 20


def packets_in_a_second():
    with netlib.Net(hosts=2, links=0) as net:
        forwarder = netlib.Forwarder(net, FORWARDER)
        here, there = tcp(net, 1, 2)
        here.setblocking(False)
        begin, got = time.monotonic(), 0
        while time.monotonic() < begin + 1:
            try:
                here.send(bytes(1 << 18))
            except BlockingIOError:
                pass
            got += len(there.recv(1 << 20))
        passed = forwarder.end()["passed"]
        print(f"{passed} packets, {got >> 20} MiB in a second")
        return passed


def test_rate():
    """TCP at speed, to see that it is not the forwarder that tests measure. The best of some, for
    other processes may use the processors."""
    assert any(packets_in_a_second() > 20000 for _ in range(10))


def main():
    netlib.enter()
    netlib.main([value for name, value in globals().items() if name.startswith("test_")])


if __name__ == "__main__":
    main()
