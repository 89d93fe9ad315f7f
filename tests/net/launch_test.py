#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Ranks whose messages go by the services of their nodes: the launcher returns when the ranks have
ended and does not wait for the services, and 2 s later nothing of them is left.

usage: launch_test.py WEFT HELLO MEMBER [GASNET_TABLE]"""

import os
import subprocess
import sys
import threading
import time

import netlib

WEFT, HELLO, MEMBER, *TABLE = map(os.path.abspath, sys.argv[1:5])
# No rank has a connection to another host, and each names its host.
NODE = {"WEFT_TRANSPORTS": "loop,shm,node", "WEFT_NODE": "1"}
ALONE = {"WEFT_TRANSPORTS": "loop,node", "WEFT_NODE": "1"}
RETURN_S = 0.9   # a service ends 1 s after its last client
LEFT_S = 2.0
TRIES = 3        # the shortest counts: the rest is the launcher's own time
DEADLINE = 40.0


def services(net):
    """The services of all hosts: their processes, and their names' sockets."""
    names = [line for host in net.hosts for line in net.names(host.number)]
    return netlib.processes("weft-node"), names


def launch(net, number, argv, env):
    """Run a job on a host. Returns its output, and the seconds from its last line to its end."""
    job = net.run(number, argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                  stderr=subprocess.STDOUT, text=True)
    lines, end = [], time.monotonic()
    limit = threading.Timer(DEADLINE, job.kill)
    limit.start()
    for line in job.stdout:
        lines.append(line)
        end = time.monotonic()
    code, after = job.wait(), time.monotonic() - end
    limit.cancel()
    assert code == 0, f"code {code}\n" + "".join(lines)
    return "".join(lines), after


def none_left(net):
    end = time.monotonic() + LEFT_S
    while any(services(net)):
        assert time.monotonic() < end, f"left after {LEFT_S} s: {services(net)}"
        time.sleep(0.02)  # nothing reports the end of a process of another session


def mpirun(net, ranks, argv, env):
    words, variables = net.mpirun(ranks, argv, env)
    return launch(net, 0, words, variables)


WORDS = ["open", "where", "barrier", "gather", "memory", "deliver", "storm=50", "close", "say=done"]


def expect_ways(out, hosts, mates):
    for rank, here in enumerate(hosts):
        ways = " ".join("loop" if o == rank else mates if hosts[o] == here else "node"
                        for o in range(len(hosts)))
        place = f"{hosts[:rank].count(here)} of {hosts.count(here)}" if mates == "shm" else "0 of 1"
        line = f"{rank}: at {rank} of {len(hosts)}, {place} {ways}"
        assert line in out.splitlines(), f"{line!r} is not in\n{out}"
    assert "WRONG" not in out and out.count("done") == len(hosts), out


def at_once(run, hosts, mates, net):
    """The launcher does not wait for the services that its ranks have started."""
    took = []
    while len(took) < TRIES and (not took or min(took) >= RETURN_S):
        out, after = run()
        took.append(after)
        expect_ways(out, hosts, mates)
        none_left(net)
    assert min(took) < RETURN_S, f"the launcher returns {took} s after the ranks' last line"
    print(f"{len(hosts)} ranks: returns after {min(took):.2f} s")


def test_mpirun():
    with netlib.Net(hosts=2) as net:
        for ranks in ([1, 1], [2, 2], [4, 3]):
            hosts = [host for host, n in enumerate(ranks) for _ in range(n)]
            at_once(lambda ranks=ranks: mpirun(net, ranks, [MEMBER, *WORDS], NODE), hosts, "shm",
                    net)
        for side in (2, 16):  # of many ranks some are far ahead of others when the job opens
            out, _ = mpirun(net, [side, side], [HELLO], NODE)
            want = sorted(f"rank {(rank + 1) % (2 * side)}: hello from rank {rank}"
                          for rank in range(2 * side))
            assert sorted(out.splitlines()) == want, out
            none_left(net)


def test_weft_run():
    """On one host the service carries messages between its own clients."""
    with netlib.Net(hosts=1) as net:
        at_once(lambda: launch(net, 1, [WEFT, "run", "-n", 4, "--", MEMBER, *WORDS], ALONE),
                [0] * 4, "node", net)


def test_gasnet():
    if not TABLE:
        return
    with netlib.Net(hosts=2) as net:
        out, _ = mpirun(net, [2, 2], [*TABLE, "3000"], NODE)
        assert "4 nodes counted 3000 keys 12 times each: " in out and ": all right\n" in out, out
        none_left(net)


if __name__ == "__main__":
    netlib.enter()
    netlib.need("mpirun", "openmpi-bin")
    netlib.main([test_mpirun, test_weft_run, test_gasnet])
