#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Mixed traffic over RDMA while links, queue pairs and processes fail: every byte once.

usage: rdma_test.py PROGRAMS [--turns N] [TEST...]

Runs in a machine of scripts/vm. PROGRAMS is the directory with traffic; TEST a test's name behind
test_; --turns: failures of each kind in each test, default 3."""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "net"))
import members as crew  # pylint: disable=wrong-import-position

crew.KEY_FILE = "/tmp/key"
COMMON = {"WEFT_TRANSPORTS": "loop,rdma", "WEFT_TCP_INTERFACES": "127.0.0.1"}
SECONDS = 120  # emulated processors; each wait is for an event and ends with it


class Member(crew.Member):
    """One that is remembered until the test ends: what it said is shown if that failed."""
    all = []

    def __init__(self, *args):
        super().__init__(*args)
        Member.all.append(self)


crew.Member = Member


def addresses(name, *which):
    return subprocess.run(["ip", "-6", "address", "show", "dev", name, "scope", "link", *which],
                          capture_output=True, text=True, check=True).stdout


def await_address(name):
    end = time.monotonic() + SECONDS
    while not addresses(name) or addresses(name, "tentative"):
        assert time.monotonic() < end, f"{name} has no address"
        time.sleep(0.05)


class Here:
    """The machine's two nodes: a member of node n uses rxe<n>."""

    def __init__(self):
        self.started = []

    def __enter__(self):
        for name in ("v0", "v1"):  # a link that was down: its address is tentative for a while
            await_address(name)
        return self

    def __exit__(self, *exc):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()

    def run(self, node, argv, env=None, **popen):
        own = {**os.environ, **COMMON, "WEFT_RDMA_DEVICE": f"rxe{node}", **(env or {})}
        process = subprocess.Popen([str(word) for word in argv], env=own, **popen)
        self.started.append(process)
        return process


def link(name, state):
    subprocess.run(["ip", "link", "set", name, state], check=True)


def carried_by_rdma(members):
    for me, member in enumerate(members):
        for other, transport in member.printed("peer"):
            assert transport == "rdma", f"{me} reaches {other} by {transport}"


def end_exact(members, breaks):
    """They stop, all sums are right, and so many connections broke."""
    members.stop()
    members.finish(SECONDS)
    carried_by_rdma(members)
    seen = members.total("TCP_BREAKS")
    assert seen >= breaks, f"{seen} connections broke, not {breaks}"
    return f"{seen} connections broke, {members.total('TCP_REPLAYED')} messages said again"


def test_nodes(traffic, _turns):
    """Each kind of traffic, all of it, between two nodes and within one."""
    with Here() as here:
        members = crew.Members(here, traffic, [0, 1, 0], ["--count", 100, "--max", 65536])
        members.connect()
        members.finish(SECONDS)
        carried_by_rdma(members)


def connected_by_manager():
    """Connections that the connection manager has, each end of them."""
    said = subprocess.run(["rdma", "resource", "show", "cm_id"], capture_output=True, text=True,
                          check=True)
    return said.stdout.count("state CONNECT ")


def test_manager(traffic, _turns):
    """WEFT_RDMA_CM: the manager has the connections of two that ask for it; of one, it has none."""
    for own in ({"WEFT_RDMA_CM": "1"}, {"WEFT_RDMA_CM": "0"}):
        with Here() as here:
            members = crew.Members(here, traffic, [0, 1], ["--max", 65536],
                                   [{"WEFT_RDMA_CM": "1"}, own])
            members.connect()
            members.move(30, SECONDS)
            both = own["WEFT_RDMA_CM"] == "1"
            seen = connected_by_manager()
            assert seen >= 2 if both else not seen, f"{seen} ends of connections"
            assert both or members[0].complains("WEFT_RDMA_CM")
            end_exact(members, 0)


def test_mtu(traffic, _turns):
    """Packets are as long as the shorter side's may be, whichever side begins."""
    subprocess.run(["ip", "link", "set", "v0", "mtu", "9000"], check=True)
    try:
        with Here() as here:
            members = crew.Members(here, traffic, [0, 1, 0], ["--max", 65536])
            members.connect()
            members.move(30, SECONDS)
            end_exact(members, 0)
            carried_by_rdma(members)
    finally:
        subprocess.run(["ip", "link", "set", "v0", "mtu", "1500"], check=True)


def listeners(device):
    """(address, port) of each that the connection manager has there."""
    said = subprocess.run(["rdma", "resource", "show", "cm_id", "link", f"{device}/1"],
                          capture_output=True, text=True, check=True)
    return re.findall(r"state LISTEN .* src-addr (\S+):(\d+)", said.stdout)


def test_stranger(traffic, turns):
    """Who asks a connection manager for a connection without a ticket is refused, and that is all."""
    with Here() as here:
        members = crew.Members(here, traffic, [0, 1], ["--max", 65536], {"WEFT_RDMA_CM": "1"})
        members.connect()
        members.move(30, SECONDS)
        own = re.search(r"inet6 ([^/ ]+)", addresses("v0")).group(1)
        asked = listeners("rxe1")
        assert asked, "nobody listens"
        for _ in range(turns):
            for address, port in asked:
                done = subprocess.run(["rping", "-c", "-a", f"{address}%v0", "-I", f"{own}%v0",
                                       "-p", port, "-C", "1"], timeout=SECONDS, check=False,
                                      capture_output=True, text=True)
                assert done.returncode and "REJECTED" in done.stdout + done.stderr, done
        members.move(30, SECONDS)
        return end_exact(members, 0)


def test_link(traffic, turns):
    """The cable is unplugged in the middle of it: it goes on by TCP; and plugged in again."""
    with Here() as here:
        members = crew.Members(here, traffic, [0, 1], ["--max", 65536])
        members.connect()
        for _ in range(turns):
            members.move(50, SECONDS)
            link("v0", "down")
            members.move(50, SECONDS)
            link("v0", "up")
        members.move(50, SECONDS)
        return end_exact(members, 1)


def test_link_short(traffic, turns):
    """The same for times about as long as a queue pair tries: it goes on, by what it was or not."""
    with Here() as here:
        members = crew.Members(here, traffic, [0, 1], ["--max", 65536])
        members.connect()
        for turn in range(turns):
            members.move(50, SECONDS)
            link("v0", "down")
            time.sleep(0.3 * (turn % 8))
            link("v0", "up")
        members.move(50, SECONDS)
        return end_exact(members, 0)


def packets(device):
    """That it has sent."""
    said = subprocess.run(["rdma", "-p", "statistic", "show", "link", f"{device}/1"],
                          capture_output=True, text=True, check=True)
    return int(re.search(r"sent_pkts (\d+)", said.stdout).group(1))


@contextlib.contextmanager
def rxe2():
    """A device beside rxe0, on a cable of its own."""
    def run(*words):
        subprocess.run(words, check=True)
    run("ip", "link", "add", "v2", "type", "veth", "peer", "name", "v3")
    try:
        for name in ("v2", "v3"):
            link(name, "up")
        await_address("v2")
        run("rdma", "link", "add", "rxe2", "type", "rxe", "netdev", "v2")
        yield
        run("rdma", "link", "delete", "rxe2")
    finally:
        run("ip", "link", "delete", "v2")


def await_traffic(members, devices):
    """Until each of the devices carries long transfers."""
    before = {device: packets(device) for device in devices}
    end = time.monotonic() + SECONDS
    while any(packets(device) - before[device] < 500 for device in devices):
        assert time.monotonic() < end, {d: packets(d) - before[d] for d in devices}
        members.move(5, SECONDS)


def test_rails(traffic, turns):
    """Both of two rails carry what is long. One goes down: it goes on by the other; and comes back."""
    with rxe2(), Here() as here:
        members = crew.Members(here, traffic, [0, 1], ["--max", 1048576, "--mix", "pamr"],
                               {"WEFT_RDMA_DEVICE": "rxe0,rxe2"})
        members.connect()
        await_traffic(members, ["rxe0", "rxe2"])
        for turn in range(min(turns, 2)):
            down, other = [("v2", "rxe0"), ("v0", "rxe2")][turn]
            link(down, "down")
            await_traffic(members, [other])
            link(down, "up")
            await_address(down)
            await_traffic(members, ["rxe0", "rxe2"])
        return end_exact(members, 1)


def test_killed(traffic, turns):
    """A process is killed in the middle of it; who is left learns it and goes on with the rest."""
    worst = 0
    for _ in range(turns):
        with Here() as here:
            members = crew.Members(here, traffic, [0, 1, 0], ["--max", 65536, "--survive", 1])
            members.connect()
            members.move(30, SECONDS)
            killed = time.monotonic()
            members[1].kill()
            for member in (members[0], members[2]):
                status, when = member.lost(1, SECONDS)
                assert status in ("WEFT_EPEER", "WEFT_ECLOSED"), status
                worst = max(worst, when - killed)
                member.expect("ended", SECONDS)
            rest = [members[0], members[2]]
            members.move(30, SECONDS, rest)
            for member in rest:
                member.send("stop\n")
            for member in rest:
                member.finish(SECONDS)
    assert worst < 10, f"learned after {worst:.1f} s"
    return f"learned after {worst:.2f} s at most"


def test_stopped(traffic, turns):
    """A process that does not poll for a while keeps nobody's memory or queue pair from working."""
    with Here() as here:
        members = crew.Members(here, traffic, [0, 1], ["--max", 65536])
        members.connect()
        for _ in range(turns):
            members.move(30, SECONDS)
            members[1].process.send_signal(19)
            time.sleep(1)
            members[1].process.send_signal(18)
        members.move(30, SECONDS)
        return end_exact(members, 0)


def test_overflow(traffic, _turns):
    """A completion queue overflows in the middle of it: no byte is lost, and RDMA goes on."""
    short = os.path.join(os.path.dirname(traffic), "..", "vm", "short_cq.so")
    assert os.path.exists(short), f"{short} is not there"
    with Here() as here:
        members = crew.Members(here, traffic, [0, 1], ["--max", 65536],
                               {"LD_PRELOAD": short, "SHORT_CQ": "15"})
        members.connect()
        members.move(200, SECONDS)
        assert any(member.complains("a queue failed or overflowed") for member in members)
        await_traffic(members, ["rxe0", "rxe1"])
        return end_exact(members, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("tests", nargs="*")
    args = parser.parse_intermixed_args()
    tests = {name[5:]: value for name, value in globals().items() if name.startswith("test_")}
    traffic = os.path.join(os.path.abspath(args.programs), "traffic")
    bad = 0
    for name in args.tests or tests:
        begin = time.monotonic()
        said = ""
        Member.all.clear()
        try:
            said = tests[name](traffic, args.turns) or ""
        except (AssertionError, OSError, subprocess.SubprocessError) as e:
            bad += 1
            said = f"FAILED: {e}\n" + "".join(f"--- member {i}:\n{m.errors[-4000:]}"
                                            for i, m in enumerate(Member.all))
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                link("v0", "up")
        print(f"{name}: {time.monotonic() - begin:.1f} s {said}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
