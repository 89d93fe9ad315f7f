#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Mixed traffic between hosts whose connections, links and processes fail: every byte once.

usage: net_test.py PROGRAMS [TEST...]

PROGRAMS is the directory with traffic, order, forwarder and proxy; TEST a test's name
behind test_."""

import os
import random
import re
import select
import signal
import socket
import struct
import sys
import threading
import time

import netlib
from members import Member, Members

PROGRAMS = os.path.abspath(sys.argv[1])
TRAFFIC, ORDER, FORWARDER, PROXY, NAMED = (
    f"{PROGRAMS}/{name}" for name in ("traffic", "order", "forwarder", "proxy", "named"))

# A peer's end, reported by its kernel: 0.6 s on a machine that does nothing else. By a timeout
# alone it would be WEFT_PEER_TIMEOUT, 10 s.
NOTICED_MS = 5000


def carried_by(members, where=lambda a, b: "tcp"):
    """Each member reaches each other one by that transport."""
    for me, member in enumerate(members):
        for other, transport in member.printed("peer"):
            want = where(me, int(other))
            assert transport == want, f"{me} reaches {other} by {transport}, not {want}"


def test_hosts():
    with netlib.Net(hosts=4) as net:
        members = Members(net, TRAFFIC, [1, 2, 3, 4], ["--count", 300])
        members.connect()
        members.finish()
        carried_by(members)


def test_mates():
    """Two on each host: shared memory there, TCP between; the program checks the counters."""
    with netlib.Net(hosts=2) as net:
        places = [1, 1, 2, 2]
        members = Members(net, TRAFFIC, places, ["--count", 300])
        members.connect()
        members.finish()
        carried_by(members, lambda a, b: "shm" if places[a] == places[b] else "tcp")


def test_ipv6():
    with netlib.Net(hosts=2, ipv6=True) as net:
        members = Members(net, TRAFFIC, [1, 2], ["--count", 300])
        members.connect()
        members.finish()
        carried_by(members)


def test_encrypted():
    with netlib.Net(hosts=2) as net:
        members = Members(net, TRAFFIC, [1, 2], ["--count", 300], {"WEFT_TCP_ENCRYPT": "1"})
        members.connect()
        members.move()
        net.kill_sockets(1)
        members.finish()


def services(net, host):
    """The TCP connections of a host, and the sockets of its node services' names."""
    tcp = net.check(host, "ss -H -t -n state established").splitlines()
    return len(tcp), len(net.services(host))


def test_node(side=8, connections=4):
    """Between two hosts the nodes' services have 4 connections, not one for each two processes.
    When the processes have ended, so do the services."""
    with netlib.Net(hosts=2) as net:
        places = [1] * side + [2] * side
        members = Members(net, TRAFFIC, places, ["--max", 65536],
                          {"WEFT_TRANSPORTS": "loop,shm,node", "WEFT_NODE": "1",
                           "WEFT_NODE_CONNECTIONS": str(connections)})
        members.connect()
        members.move(60, seconds=60)
        for host in (1, 2):
            seen = services(net, host)
            assert seen == (connections, 1), f"host {host}: {seen} connections and services"
        members.stop()
        members.finish(60)
        carried_by(members, lambda a, b: "shm" if places[a] == places[b] else "node")
        end = time.monotonic() + 10
        while any(services(net, host) != (0, 0) or net.names(host) for host in (1, 2)):
            assert time.monotonic() < end, f"left: {net.names(1)}, {net.names(2)}"
        print(f"{side} processes on each host: {connections} connections between the hosts, not "
              f"{2 * side * side}")


def test_node_many():
    test_node(16)


# ---- connections are aborted ----


def end_exact(members, breaks=0):
    """They stop, all sums are right, and so many connections broke."""
    members.stop()
    members.finish()
    carried_by(members)
    seen = members.total("TCP_BREAKS")
    assert seen >= breaks, f"{seen} connections broke, not {breaks}"
    return members.total("TCP_REPLAYED")


def test_kill_sockets(rounds=6):
    with netlib.Net(hosts=3) as net:
        members = Members(net, TRAFFIC, [1, 2, 3])
        members.connect()
        aborted = 0
        for turn in range(rounds):
            members.move()
            aborted += net.kill_sockets(1 + turn % 3)
        members.move()
        assert aborted >= rounds
        print(f"{aborted} sockets killed, {end_exact(members, aborted)} messages replayed")


def test_reset(rounds=4):
    with netlib.Net(hosts=3) as net:
        members = Members(net, TRAFFIC, [1, 2, 3])
        members.connect()
        for turn in range(rounds):
            members.move()
            assert net.reset(1 + turn % 3), "nothing to reset"
        members.move()
        print(f"{end_exact(members, rounds)} messages replayed")


def proxied(seconds, **settings):
    with netlib.Net(hosts=2) as net:
        proxies = [netlib.Proxy(net, PROXY, host, seed=host, **settings) for host in (1, 2)]
        members = Members(net, TRAFFIC, [1, 2])
        members.connect()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            members.move()
        for proxy in proxies:
            proxy.stop()
        members.move()
        replays = end_exact(members)
        ends = [proxy.end() for proxy in proxies]
        return {name: sum(end[name] for end in ends) for name in ends[0]}, replays


def aborts(seen):
    return seen["rst"] + seen["close"] + seen["half"]


def test_frames(seconds=4):
    """A proxy cuts within the headers of frames: after each of their bytes."""
    seen, replays = proxied(seconds, frames=60, how="rst,close,half")
    assert min(seen[f"offset{i}"] for i in range(16)) > 0 and replays > 0, seen
    print(f"{aborts(seen)} connections aborted, {replays} messages replayed")


def test_bytes(seconds=4):
    """After each of the first bytes of a connection: handshake, SYNC, first frames."""
    seen, replays = proxied(seconds, bytes="0:1000", how="rst,half,close")
    print(f"{aborts(seen)} connections aborted, {replays} messages replayed")


def test_half(seconds=2):
    """One side's sender learns nothing: it must see the other side's new connection."""
    seen, replays = proxied(seconds, frames=400, how="half")
    assert seen["half"] > 10 and replays > 0, seen
    print(f"{aborts(seen)} connections half-closed, {replays} messages replayed")


# ---- links are cut ----


def test_link(seconds=2, timeout_ms=10000):
    """A link is cut and healed before WEFT_PEER_TIMEOUT: nothing is lost."""
    for silently in (True, False):
        with netlib.Net(hosts=3) as net:
            members = Members(net, TRAFFIC, [1, 2, 3], env={"WEFT_PEER_TIMEOUT": str(timeout_ms)})
            members.connect()
            members.move()
            net.cut(2, silently=silently)
            time.sleep(seconds)  # that is how long
            net.heal(2)
            members.move(seconds=timeout_ms / 1000 + 20)
            end_exact(members)


def test_cut(timeout_ms=5000):
    """It is cut for good: an error within WEFT_PEER_TIMEOUT, and the others go on. (With less than
    4 s it comes later: the kernel's probes of an idle connection are whole seconds apart.)"""
    with netlib.Net(hosts=3) as net:
        members = Members(net, TRAFFIC, [1, 2, 3], ["--survive", 1],
                          {"WEFT_PEER_TIMEOUT": str(timeout_ms)})
        members.connect()
        members.move()
        net.cut(2)
        begin = time.monotonic()
        for me, other in ((0, 1), (2, 1), (1, 0), (1, 2)):
            status, when = members[me].lost(other)
            took = (when - begin) * 1000
            # 100 ms: other programs run on this machine, too.
            assert status == "WEFT_EPEER" and took <= timeout_ms + 100, (me, other, status, took)
            print(f"{me} lost {other} after {took:.0f} ms")
        members.move(members=[members[0], members[2]])
        members.stop()
        members.finish()


def test_black_hole(timeout_ms=5000):
    """Connections are made, but nothing long comes through: an error, not one connection after
    the other for ever. (What is short still passes now and then: so two rounds, not one.)"""
    with netlib.Net(hosts=2) as net:
        members = Members(net, TRAFFIC, [1, 2], ["--survive", 1],
                          {"WEFT_PEER_TIMEOUT": str(timeout_ms), "WEFT_LOG": "info"})
        members.connect()
        members.move()
        net.drop_large(2, 300)
        begin = time.monotonic()
        status, when = members[0].lost(1)
        took = (when - begin) * 1000
        assert status == "WEFT_EPEER" and took <= 2 * timeout_ms, (status, took)
        assert any(m.complains("nothing long comes") for m in members), members[0].errors
        print(f"lost after {took:.0f} ms")
        members.stop()
        members.finish()


def test_two_links():
    """One of two networks is gone for good: connections are made again over the other."""
    for gone in (0, 1):
        with netlib.Net(hosts=2, links=2) as net:
            members = Members(net, TRAFFIC, [1, 2], env={"WEFT_PEER_TIMEOUT": "4000"})
            members.connect()
            members.move()
            net.cut(2, link=gone)
            members.move(2000)
            end_exact(members)


def test_lossy(loss=5, delay=20, count=150):
    """5% of packets are lost, each takes 20 ms."""
    with netlib.Net(hosts=2, links=0) as net:
        forwarder = netlib.Forwarder(net, FORWARDER, loss=loss, delay=delay, seed=3)
        members = Members(net, TRAFFIC, [1, 2], ["--count", count, "--max", 65536])
        members.connect()
        members.finish(300)
        carried_by(members)
        seen = forwarder.end()
        assert seen["lost"] > 0, seen
        print(f"{seen['lost']} packets lost, {seen['passed']} passed")


def test_reordered():
    with netlib.Net(hosts=2, links=0) as net:
        netlib.Forwarder(net, FORWARDER, reorder=10, delay=(1, 3, 0), jitter=2, seed=4)
        members = Members(net, TRAFFIC, [1, 2], ["--count", 200, "--max", 262144])
        members.connect()
        members.finish(60)
        carried_by(members)


# ---- processes end ----


def killed_once(net, places, victim, rng):
    """One of [places] is killed; the others see it soon, and go on."""
    members = Members(net, TRAFFIC, places, ["--survive", 1, "--max", 65536,
                                             "--seed", rng.randrange(1 << 32)])
    members.connect()
    members.move(rng.randrange(200))
    begin = time.monotonic()
    members[victim].kill()
    rest = [member for me, member in enumerate(members) if me != victim]
    slowest = 0
    for member in rest:
        status, when = member.lost(victim)
        assert status == "WEFT_EPEER", status
        slowest = max(slowest, (when - begin) * 1000)
    for member in rest:
        member.expect("ended")
    members.move(50, members=rest)
    members.stop()
    for member in rest:
        member.finish()
    return slowest


def test_killed(times=4):
    rng = random.Random(times)
    slowest = []
    with netlib.Net(hosts=3) as net:
        for _ in range(times):
            places = [1, 2, 3, 2]
            slowest.append(killed_once(net, places, rng.randrange(4), rng))
            assert slowest[-1] <= NOTICED_MS, f"noticed after {slowest[-1]:.0f} ms"
    print(f"{times} killed, slowest noticed after {max(slowest):.0f} ms")


def test_stopped(seconds=4, timeout_ms=1000):
    """A process that does not run is slow, not dead: its kernel answers."""
    with netlib.Net(hosts=2) as net:
        members = Members(net, TRAFFIC, [1, 2], env={"WEFT_PEER_TIMEOUT": str(timeout_ms)})
        members.connect()
        members.move()
        members[0].process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)  # that is how long
        members[0].process.send_signal(signal.SIGCONT)
        members.move()
        end_exact(members)


def test_reborn():
    """Another process listens where one has died: nobody takes it for that one."""
    ports = "net.ipv4.ip_local_port_range"
    with netlib.Net(hosts=2) as net:
        net.check(1, ["sysctl", "-q", "-w", f"{ports}=40000 40000"])
        members = Members(net, TRAFFIC, [1, 2], ["--survive", 1, "--stall", 20])
        assert members[0].port() == 40000
        net.check(1, ["sysctl", "-q", "-w", f"{ports}=41000 60000"])
        members.connect()
        members.move()
        net.check(1, ["sysctl", "-q", "-w", f"{ports}=40000 40000"])
        members[0].kill()
        net.check(1, "ss -K -t -n -a sport = 40000".split())
        others = Members(net, TRAFFIC, [1, 2], ["--count", 200])
        assert others[0].port() == 40000, "the new process listens elsewhere"
        net.check(1, ["sysctl", "-q", "-w", f"{ports}=41000 60000"])
        status, _ = members[1].lost(0)
        assert status == "WEFT_EPEER", status
        members.stop()
        members[1].finish()
        old = bytes.fromhex(members[0].expect("address")[0])
        new = bytes.fromhex(others[0].expect("address")[0])
        assert old[44:] == new[44:] and old[:44] != new[:44]
        third = Members(net, TRAFFIC, [2, 2])  # finds the old one's address somewhere
        third[1].send(members.addresses()[0] + "\n" + third.addresses()[1] + "\n")
        third[1].finish(10, 1)
        assert "WEFT_EPEER" in third[1].errors, third[1].errors
        others.connect()
        others.finish()


def test_names(late=5, rounds=3):
    """A client that knows a server's address and port alone, and begins before it; servers that are
    killed. A client on the server's host reaches it by shared memory."""
    with netlib.Net(hosts=2) as net:
        def member(host, what):
            return Member(net, host, [NAMED, what, net.address(2), 4711],
                          {"WEFT_CONNECT_TIMEOUT": "60s"})
        far, near = member(1, "ask"), member(2, "ask")
        far.expect("asking")
        near.expect("asking")
        time.sleep(late)
        assert not far.printed("found") and not near.printed("found")
        for count in range(1, rounds + 1):
            server = member(2, "serve")
            server.expect("serving")
            for client, transport in ((far, "tcp"), (near, "shm")):
                assert client.expect("found", count=count) == [transport]
            server.kill()
            for client in (far, near):
                assert client.expect("lost", count=count) == ["WEFT_EPEER"]
        for client in (far, near):
            client.process.stdin.close()
            client.finish()


def test_last_words(times=3):
    """What was sent before an endpoint closed arrives, while connections are aborted all
    the time."""
    for turn in range(times):
        with netlib.Net(hosts=2) as net:
            for host in (1, 2):
                netlib.Proxy(net, PROXY, host, seed=turn * 2 + host, frames=12,
                             how="rst,close,half")
            members = Members(net, TRAFFIC, [1, 2], ["--count", 40, "--seed", turn, "--max", 4096])
            members.connect()
            members.finish(60)


# ---- order ----


def ordered(places, count, seconds, delays=(), heedless=0, kills=0):
    """What the receiver of order.c has counted, on four lanes of those delays in milliseconds,
    whose connections are aborted so many times."""
    with netlib.Net(hosts=max(places), links=0 if delays else 1) as net:
        if delays:
            netlib.Forwarder(net, FORWARDER, delay=delays)
        members = Members(net, ORDER, places, ["--count", count, "--heedless", heedless],
                          {"WEFT_TCP_LANES": "4"})
        members.connect()
        while kills and members[1].process.poll() is None:
            kills -= net.kill_sockets(1) > 0
        members.finish(seconds)
        carried_by(members, lambda a, b: "tcp" if delays else "shm")
        return members[1].numbers("did")


def test_order(count=20000, seconds=60):
    """What follows nothing is overtaken; what follows something never comes before it."""
    seen = ordered([1, 2], count, seconds, (0, 2, 5, 9))
    assert seen["unordered"] == seen["chains"] == count and not seen["broken"], seen
    assert seen["overtaken"] > count / 100, seen
    broken = ordered([1, 2], count // 4, seconds, (0, 2, 5, 9), kills=10)
    assert broken["unordered"] == broken["chains"] == count // 4 and not broken["broken"], broken
    heedless = ordered([1, 2], 5000, 60, (0, 2, 5, 9), 1)
    assert heedless["broken"] > 100, f"the test cannot fail: {heedless}"
    print(f"{seen['overtaken']} of {count} that follow nothing were overtaken, and no chain; "
          f"without order {heedless['broken']} of 5000")


def test_order_mates():
    seen = ordered([1, 1], 20000, 60)
    assert seen["unordered"] == seen["chains"] == 20000 and not seen["broken"], seen


# ---- strangers ----


def greeting(magic, role, size, flags=0, version=2):
    return struct.pack("<IHBBII", magic, version, role, 0, size, flags)


class Flood:
    """A thread that connects, sends bytes, and holds the connection, over and over."""

    def __init__(self, net, host, to, sent, held=400):
        self.calls, self.stopping, self.to, self.sent, self.held = 0, False, to, sent, held
        self.ready = threading.Event()
        self.net, self.host = net, host
        self.runner = threading.Thread(target=self._run, daemon=True)
        self.runner.start()

    def _open(self):
        return [socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                for _ in range(self.held)]

    def _run(self):
        while not self.stopping:
            ends = self.net.within(self.host, self._open)
            for end in ends:
                end.connect_ex(self.to)
            _, able, _ = select.select([], ends[:200], [], 0.2)
            for end in able:
                try:
                    end.send(self.sent)
                    self.calls += 1
                except OSError:
                    pass
            self.ready.set()
            for end in ends:
                end.close()

    def stop(self):
        self.stopping = True
        self.runner.join(10)


def fds(member):
    return len(os.listdir(f"/proc/{member.process.pid}/fd"))


def rss_kib(member):
    with open(f"/proc/{member.process.pid}/status", encoding="ascii") as f:
        return int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1))


def test_strangers():
    """Strangers call one of two all the time, with nothing, with garbage, and with a hello that
    nothing follows; the two find each other and go on."""
    for sent in (b"", bytes(range(256)) * 8, greeting(0x48434654, 1, 184) + bytes(168)):
        with netlib.Net(hosts=3) as net:
            members = Members(net, TRAFFIC, [1, 2])
            before, memory = fds(members[0]), rss_kib(members[0])
            flood = Flood(net, 3, (net.address(1), members[0].port()), sent)
            assert flood.ready.wait(10)
            members.connect()
            members.move(1000)
            net.kill_sockets(2)
            members.move(1000)
            more, grown = fds(members[0]) - before, rss_kib(members[0]) - memory
            flood.stop()
            assert flood.calls > 100 and more < 100, (flood.calls, more)
            end_exact(members)
            print(f"{flood.calls} calls; {more} descriptors, {grown} KiB more")


def test_wrong_secret():
    with netlib.Net(hosts=2) as net:
        wrong = f"{netlib.SHARED}/wrong-key"
        with open(os.open(wrong, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
            f.write(os.urandom(32))
        members = Members(net, TRAFFIC, [1, 2], env=[{}, {"WEFT_KEY_FILE": wrong}])
        lines = "".join(line + "\n" for line in members.addresses())
        for member in members:
            member.send(lines)
        for member in members:
            member.finish(15, 1)
            assert "WEFT_EPEER" in member.errors, member.errors


def test_flags():
    """One encrypts, the other does not: both report it."""
    with netlib.Net(hosts=2) as net:
        members = Members(net, TRAFFIC, [1, 2], env=[{}, {"WEFT_TCP_ENCRYPT": "1"}])
        lines = "".join(line + "\n" for line in members.addresses())
        for member in members:
            member.send(lines)
        for member in members:
            member.finish(15, 1)
            assert "one side encrypts" in member.errors, member.errors
        errors = members[0].errors + members[1].errors  # the second may find no peer
        assert "WEFT_EUNREACH" in errors, errors


def main():
    netlib.enter()
    tests = {name[5:]: value for name, value in globals().items() if name.startswith("test_")}
    netlib.main([tests[name] for name in sys.argv[2:] or tests])


if __name__ == "__main__":
    main()
