#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Connections, links and processes that fail, by the thousand, under mixed traffic; as
scripts/soak wants it.

usage: net_soak.py PROGRAMS --count N --seed S --from K --only M

N is how many connections are aborted at least, 50 a turn, and 5 processes are killed; what is
shown once (ONCE) is part of the first turns. Each turn has other settings: lanes, encryption,
hosts, ways to abort. It holds if every byte came once and every sum is exact."""

import random
import sys
import time
import traceback

import netlib
import net_test
from members import Members
from net_test import PROXY, TRAFFIC

ABORTS, KILLS = 50, 5  # a turn

ONCE = {
    "link cut for 5 s and healed": lambda: net_test.test_link(5),
    "cut for good, 10 s timeout": lambda: net_test.test_cut(10000),
    "5% loss, 20 ms delay": lambda: net_test.test_lossy(5, 20, 400),
    "stopped for 15 s, 5 s timeout": lambda: net_test.test_stopped(15, 5000),
    "another process at an old address": net_test.test_reborn,
    "last words before the end": lambda: net_test.test_last_words(10),
    "a listener flooded by strangers": net_test.test_strangers,
    "one of two networks is gone": net_test.test_two_links,
    "a million chains on four lanes": lambda: million(),  # pylint: disable=unnecessary-lambda
}

counted = {}


def count(name, number):
    counted[name] = counted.get(name, 0) + number


def million():
    """Order between fragments, and none where it was not asked for."""
    seen = net_test.ordered([1, 2], 1000000, 1500, (0, 2, 5, 9))
    count("fragments that follow nothing", seen["unordered"])
    count("of them overtaken", seen["overtaken"])
    count("chains of fragments", seen["chains"])
    count("of them out of order", seen["broken"])
    assert not seen["broken"] and seen["overtaken"] > 10000, seen


def by_kernel(net, members, rng, goal):
    """`ss -K`: a host's kernel aborts all its connections at once."""
    aborted = 0
    while aborted < goal:
        members.move(rng.randrange(1, 60))
        aborted += net.kill_sockets(rng.randrange(1, len(net.hosts) + 1))
    count("connections aborted by ss -K", aborted)
    return aborted


def by_filter(net, members, rng, goal):
    """nftables answers what arrives at a host by RST: at least one connection each time."""
    aborted = 0
    while aborted < goal:
        members.move(rng.randrange(1, 60))
        aborted += net.reset(rng.randrange(1, len(net.hosts) + 1)) > 0
    count("connections aborted by nftables' RST", aborted)
    return aborted


def by_proxy(net, members, proxies, goal):
    """Until all proxies together have aborted so many; they print their count only at the end."""
    for _ in range(goal):
        members.move(40)
    for proxy in proxies:
        proxy.stop()
    members.move()
    ends = [proxy.end() for proxy in proxies]
    for how, text in (("rst", "RST"), ("close", "FIN"), ("half", "half-close")):
        count(f"connections aborted by a proxy's {text}", sum(end[how] for end in ends))
    for offset in range(16):
        count(f"of them behind byte {offset} of a header",
              sum(end[f"offset{offset}"] for end in ends))
    return sum(net_test.aborts(end) for end in ends)


def aborts(turn, rng):
    """50 connections at least are aborted, a third by each way; all is exact."""
    hosts = rng.choice((2, 3, 4))
    encrypted = turn % 3 == 2
    env = {"WEFT_TCP_LANES": str(rng.choice((1, 2, 4))), "WEFT_TCP_ENCRYPT": str(int(encrypted))}
    where = {"bytes": "0:1500"} if encrypted or turn % 3 == 1 else {"frames": 60}
    with netlib.Net(hosts=hosts) as net:
        proxies = [netlib.Proxy(net, PROXY, host, seed=rng.randrange(1 << 30),
                                how="rst,close,half", **where) for host in range(1, hosts + 1)]
        members = Members(net, TRAFFIC, list(range(1, hosts + 1)),
                          ["--seed", rng.randrange(1 << 30), "--max", rng.choice((65536, 1 << 20))],
                          env)
        members.connect()
        done = by_proxy(net, members, proxies, ABORTS // 3)
        done += by_kernel(net, members, rng, ABORTS // 3)
        done += by_filter(net, members, rng, ABORTS // 6)
        while done < ABORTS:
            done += by_kernel(net, members, rng, ABORTS - done)
        members.move()
        count("messages replayed", net_test.end_exact(members))
        count("breaks noticed", members.total("TCP_BREAKS"))
        for kind in ("puts", "adds", "messages", "requests", "bytes"):
            count(f"{kind} checked", members.total(kind, "did"))


def kills(_, rng):
    with netlib.Net(hosts=3) as net:
        for _ in range(KILLS):
            places = [1, 2, 3, rng.choice((1, 2, 3))]
            took = net_test.killed_once(net, places, rng.randrange(4), rng)
            assert took <= net_test.NOTICED_MS, f"noticed after {took:.0f} ms"
            count("processes killed", 1)


def run(name, scene, *args):
    """One line for scripts/soak; whether it held."""
    begin = time.monotonic()
    try:
        scene(*args)
        held = 1
    except Exception:  # pylint: disable=broad-except
        traceback.print_exc(file=sys.stdout)
        held = 0
    took = (time.monotonic() - begin) * 1000
    print(f"{name}: {held} of 1 held; slowest {took:.1f} ms", flush=True)
    return held


def main():
    netlib.enter()
    words = sys.argv[2:]
    option = {words[i]: int(words[i + 1]) for i in range(0, len(words), 2)}
    first, seed = option["--from"], option["--seed"]
    turns = -(-option["--count"] // ABORTS)
    end = min(first + option["--only"], turns)
    held = True
    for turn in range(first, end):
        rng = random.Random(seed * 1000003 + turn)
        held &= bool(run("connections aborted under traffic", aborts, turn, rng))
        held &= bool(run("processes killed under traffic", kills, turn, rng))
        for name, scene in list(ONCE.items())[turn::turns]:
            held &= bool(run(name, scene))
    for name, number in counted.items():
        print(f"counted {name}: {number}")
    print(f"net: seed {seed}, turns {first} to {end}: {'all held' if held else 'FAILED'}")
    sys.exit(not held)


if __name__ == "__main__":
    main()
