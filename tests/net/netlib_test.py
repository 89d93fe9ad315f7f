#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The networks of netlib.py have the promised properties, and leave nothing behind."""

import errno
import os
import socket
import subprocess
import sys
import threading
import time

import netlib

ORPHAN = """
import netlib, os, sys
netlib.enter()
net = netlib.Net(hosts=2)
net.run(1, ["sleep", "100"])
print(os.readlink("/proc/self/ns/net"), os.readlink(f"/proc/{net.host(1).pid}/ns/net"), flush=True)
sys.stdin.read()
"""


def connected(net, one, other, link=0):
    """Two ends of a TCP connection between hosts; reads and writes wait at most a second."""
    family = socket.AF_INET6 if net.ipv6 else socket.AF_INET
    listener = net.within(other, lambda: socket.create_server((net.address(other, link), 0),
                                                              family=family))
    here = net.within(one, socket.create_connection, listener.getsockname()[:2], 5)
    there, _ = listener.accept()
    listener.close()
    for end in (here, there):
        end.settimeout(1)
    return here, there


def passes(here, there, data=b"0123456789abcdef"):
    here.sendall(data)
    try:
        return there.recv(len(data)) == data
    except TimeoutError:
        return False


def drain(end, data=None):
    """Send [data] over and over, or receive, until the connection breaks."""
    try:
        while end.send(data) if data else end.recv(1 << 20):
            pass
    except OSError:
        pass


def fails_with(end, *codes):
    """Reading or writing fails with one of [codes] within five seconds."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            end.sendall(b"x")
            end.recv(1)
        except TimeoutError:
            continue
        except OSError as error:
            return error.errno in codes
    return False


def test_hosts():
    with netlib.Net(hosts=4, links=2) as net:
        for number in (1, 2, 3, 4):
            assert net.check(number, "hostname") == f"n{number}\n"
            assert [net.address(number, link) for link in (0, 1)] == net.host(number).addresses
            for link in (0, 1):
                here, there = connected(net, number, number % 4 + 1, link)
                assert here.getsockname()[0] == net.address(number, link)
                assert passes(here, there) and passes(there, here)


def test_ipv6():
    with netlib.Net(hosts=2, ipv6=True) as net:
        here, there = connected(net, 1, 2)
        assert here.getsockname()[0].startswith("fd77:")
        assert passes(here, there)
        assert "10.77" not in net.check(1, "ip addr")


def test_cut():
    for silently in (True, False):
        with netlib.Net(hosts=3) as net:
            here, there = connected(net, 1, 2)
            beside = connected(net, 1, 3)
            net.cut(2, silently=silently)
            end, want = time.monotonic() + 5, "up\n" if silently else "down\n"
            while net.check(2, "cat /sys/class/net/eth0/operstate") != want:  # a little later
                assert time.monotonic() < end, f"the interface is not {want}"
            assert not passes(here, there), "through a link that is cut"
            assert passes(*beside)
            net.heal(2)
            there.settimeout(10)
            assert there.recv(16) == b"0123456789abcdef", "not sent again after it was healed"


def test_kill_sockets():
    with netlib.Net(hosts=2) as net:
        here, there = connected(net, 1, 2)
        port = here.getpeername()[1]
        assert net.kill_sockets(1, f"dport = {port + 1}") == 0
        assert passes(here, there)
        assert net.kill_sockets(1, f"dport = {port}") == 1
        assert fails_with(here, errno.ECONNABORTED, errno.EPIPE)
        assert fails_with(there, errno.ECONNRESET)


def test_reset():
    with netlib.Net(hosts=2) as net:
        assert net.reset(2, seconds=0.2) == 0, "no packets, but some were answered"
        here, there = connected(net, 1, 2)
        there.setblocking(True)
        # The receiver may never learn of it: nothing comes to it any more, RST or not.
        reader = threading.Thread(target=drain, args=[there], daemon=True)
        writer = threading.Thread(target=drain, args=[here, bytes(1000)], daemon=True)
        reader.start()
        writer.start()
        assert net.reset(2) >= 1
        writer.join(5)
        assert not writer.is_alive(), "its connection was not reset"
        here, there = connected(net, 1, 2)
        assert passes(here, there), "the rules are still there"


def test_rate():
    with netlib.Net(hosts=2) as net:
        here, there = connected(net, 1, 2)
        net.rate(1, "16mbit")
        begin, got = time.monotonic(), 0
        there.settimeout(10)
        here.setblocking(False)
        while got < 1 << 20:
            try:
                here.send(bytes(16384))
            except BlockingIOError:
                pass
            got += len(there.recv(1 << 16))
        took = time.monotonic() - begin
        assert 0.3 < took < 2, f"1 MiB at 2 MB/s took {took:.2f} s"


def test_mpirun():
    with netlib.Net(hosts=3) as net:
        script = "echo $OMPI_COMM_WORLD_RANK $(hostname) $NAME"
        words, env = net.mpirun([2, 0, 1], ["sh", "-c", script],
                                env={"NAME": "value"})
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=30,
                              check=False)
        assert done.returncode == 0, done.stderr
        lines = sorted(done.stdout.splitlines())
        assert lines == ["0 n1 value", "1 n1 value", "2 n3 value"], done


def test_nothing_left():
    """The test is killed: its processes and namespaces end."""
    script = f"{netlib.SHARED}/orphan.py"
    with open(script, "w", encoding="ascii") as f:
        f.write(ORPHAN)
    with subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, text=True,
                          stdout=subprocess.PIPE,
                          env={**os.environ, "PYTHONPATH": netlib.HERE}) as test:
        spaces = set(test.stdout.readline().split())
        assert len(spaces) == 2, spaces

        def using():
            found = 0
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    found += os.readlink(f"/proc/{pid}/ns/net") in spaces
                except OSError:  # ended
                    pass
            return found

        assert using() >= 3
        test.kill()
        test.wait()
        end = time.monotonic() + 5
        while using() and time.monotonic() < end:
            pass
        assert not using()


def main():
    netlib.enter()
    netlib.main([value for name, value in globals().items() if name.startswith("test_")])


if __name__ == "__main__":
    main()
