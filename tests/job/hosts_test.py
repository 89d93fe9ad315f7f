#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Jobs over several hosts, started by mpirun: ranks, ways, collectives, codes.

usage: hosts_test.py HELLO MEMBER COMPUTE [TEST...]"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "net"))
import netlib  # pylint: disable=wrong-import-position

HELLO, MEMBER, COMPUTE = map(os.path.abspath, sys.argv[1:4])
DEADLINE = float(os.environ.get("WEFT_TEST_DEADLINE", "40"))
PLACES = ([2, 2], [1, 1], [1, 3], [2, 0, 2], [1, 1, 1, 1], [1, 2, 1, 1])
HOSTS = 4
# As GASNet promises it: min(120, 3 + 0.125 * nodes) s. The rest is mpirun's own.
END_WITHIN = 3 + 0.125 * 2 + 1.5


def begin(net, ranks, words, env=None, options=()):
    argv, environment = net.mpirun(ranks, words, env, options)
    return net.run(0, argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                   stderr=subprocess.PIPE, text=True, start_new_session=True)


def expect(net, ranks, words, code=0, env=None):
    """The output of a job, and how long it took."""
    start = time.monotonic()
    job = begin(net, ranks, words, env)
    try:
        out, err = job.communicate(timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        out, err = job.communicate()
        raise AssertionError(f"still running after {DEADLINE} s\n{out}{err}") from None
    assert "WRONG" not in out, out + err
    assert job.returncode == code, f"code {job.returncode}, not {code}\n{out}{err}"
    return out, err, time.monotonic() - start


def hosts_of(ranks):
    """The host of each rank: mpirun numbers them host by host."""
    return [host for host, n in enumerate(ranks) for _ in range(n)]


def test_ranks():
    """Each rank is where it was put, and greets the next."""
    with netlib.Net(HOSTS) as net:
        for ranks in PLACES:
            n = sum(ranks)
            out, _, _ = expect(net, ranks, [HELLO])
            want = [f"rank {(r + 1) % n}: hello from rank {r}" for r in range(n)]
            assert sorted(out.splitlines()) == sorted(want), out


def test_ways():
    """Mates by shared memory, others by TCP, with no option given."""
    with netlib.Net(HOSTS) as net:
        for ranks in PLACES:
            host = hosts_of(ranks)
            out, _, _ = expect(net, ranks, [MEMBER, "open", "where", "barrier", "close"])
            for r, here in enumerate(host):
                place, mates = host[:r].count(here), host.count(here)
                ways = ["loop" if o == r else "shm" if host[o] == here else "tcp"
                        for o in range(len(host))]
                line = f"{r}: at {r} of {len(host)}, {place} of {mates} {' '.join(ways)}"
                assert line in out.splitlines(), f"{line} is not in\n{out}"


def test_node():
    """The service of each host carries what its ranks exchange with other hosts. The launcher gives
    no secret, so the ranks share one before they open endpoints. The services end with the job."""
    with netlib.Net(HOSTS) as net:
        for ranks in PLACES:
            host, n = hosts_of(ranks), sum(ranks)
            out, err, _ = expect(net, ranks, [MEMBER, "open", "where", "barrier", "gather", "memory",
                                              "deliver", "storm=200", "say=done", "close"],
                                 env={"WEFT_NODE": "1"})
            assert "no node service" not in err and out.count("done") == n, out + err
            for r, here in enumerate(host):
                ways = ["loop" if o == r else "shm" if host[o] == here else "node" for o in range(n)]
                assert re.search(rf"^{r}: at {r} of {n}, .*{' '.join(ways)}$", out, re.M), out
        end = time.monotonic() + 10
        while any(net.names(h) for h in range(HOSTS)):
            assert time.monotonic() < end, "a service is left"


def test_node_uneven():
    """Ranks that disagree about the node's service do not wait for each other for ever."""
    with netlib.Net(2) as net:
        env = {"WEFT_NODE": "1", "WEFT_JOB_TIMEOUT": "3s"}
        words = [MEMBER, "open", ":", "-n", "1", "--host", "n2:1", "-x", "WEFT_NODE=0", MEMBER, "open"]
        out, err, took = expect(net, [1], words, 1, env)
        assert "WEFT_NODE" in err and took < 20, out + err


def test_numbering():
    """The launcher numbers the ranks, here by a variable of its own: over the hosts in turn."""
    with netlib.Net(HOSTS) as net:
        out, _, _ = expect(net, [2, 2], [MEMBER, "open", "where", "barrier", "close"],
                           env={"OMPI_MCA_rmaps_base_mapping_policy": "node"})
        for r in range(4):
            ways = " ".join("loop" if o == r else "tcp" if (o - r) % 2 else "shm" for o in range(4))
            line = f"{r}: at {r} of 4, {r // 2} of 2 {ways}"
            assert line in out.splitlines(), f"{line} is not in\n{out}"


def test_everything():
    with netlib.Net(HOSTS) as net:
        for ranks in PLACES:
            n = sum(ranks)
            out, _, _ = expect(net, ranks,
                               [MEMBER, "open", "barrier", "gather", "memory", "handler-check",
                                "fork-check", "close-busy", "split-misuse", "deliver", "names=7", "storm=200",
                                "say=done", "close"])
            assert out.count("done") == n, out
            assert len(set(re.findall(r"mismatches (\d+)", out))) == 1, out


def test_compute():
    """A rank that computes between the steps of a barrier does not delay the ranks of other hosts,
    unless only the lowest rank of a host may send."""
    with netlib.Net(HOSTS) as net:
        for ranks, computing, env, waits in (([2, 2], 0x1, {}, False), ([2, 2], 0x5, {}, False),
                                             ([3, 3], 0x9, {}, False), ([4, 4], 0xdd, {}, False),
                                             ([2, 2, 2], 0x15, {}, False),
                                             ([2, 2], 0x1, {"WEFT_BARRIER": "leaders"}, True)):
            # Each host has a /tmp of its own.
            with tempfile.NamedTemporaryFile(dir=os.path.dirname(COMPUTE)) as passes:
                words = [COMPUTE, hex(computing), "300" if waits else "10000", "3", passes.name]
                out, _, _ = expect(net, ranks, words, env={"JOB_TEST_NODES": str(ranks[0]), **env})
            passed = sorted(int(line.split()[0]) for line in out.splitlines() if "alone" not in line)
            assert passed == [r for r in range(sum(ranks)) if not computing >> r & 1], out
            assert ("0 alone 3" in out if waits else "alone" not in out), f"{ranks}, {computing:#x}: {out}"


def test_ipv6():
    with netlib.Net(2, ipv6=True) as net:
        env = {"OMPI_MCA_oob_tcp_disable_ipv6_family": "0"}
        out, _, _ = expect(net, [1, 1], [MEMBER, "open", "gather", "memory", "say=done", "close"],
                           env=env)
        assert out.count("done") == 2, out


def test_no_shared_memory():
    """Each rank is a node of its own if its configuration requires it."""
    with netlib.Net(2) as net:
        out, _, _ = expect(net, [2, 1], [MEMBER, "open", "where", "gather", "memory", "close"],
                           env={"WEFT_TRANSPORTS": "tcp"})
        assert out.count("0 of 1") == 3 and "shm" not in out, out


def test_uneven():
    """Ranks that disagree about shared memory get an error."""
    with netlib.Net(2) as net:
        env = {"WEFT_TRANSPORTS": "tcp"}
        words = [MEMBER, "open", ":", "-n", "1", "--host", "n1:2", "-x", "WEFT_TRANSPORTS=loop,shm,tcp",
                 MEMBER, "open"]
        out, err, _ = expect(net, [1], words, 1, env)
        assert "the same WEFT_TRANSPORTS" in err and "WEFT_EINVAL" in out, out + err


CODES = [
    (["3:exit=3", "hang"], 3),
    (["2:exit=5", "until-broken", "close"], 5),
    (["1:abort=9", "hang"], 9),
    (["0:abort=4", "until-broken", "hang"], 4),
    (["1:kill=9", "hang"], 137),
    (["notify=5", "2:exit=6", "wait-all=5", "hang"], 6),
    (["barrier", "3:kill=19", "1:close", "1:exit=7", "hang"], 7),  # one is stopped
]


def test_codes():
    """The code of the rank that fails first, in bounded time, whatever the others do."""
    with netlib.Net(2) as net:
        _, _, usual = expect(net, [2, 2], [MEMBER, "open", "close"])
        for words, code in CODES:
            _, _, took = expect(net, [2, 2], [MEMBER, "deaf", "open", *words], code)
            assert took < usual + END_WITHIN, f"{words} took {took:.1f} s, {usual:.1f} s without"


def lines_until(job, pattern, count, seconds):
    """Returns a job's output once [count] lines match, then kills it."""
    killer = threading.Timer(seconds, os.killpg, [job.pid, signal.SIGKILL])
    killer.start()
    lines, found = [], 0
    for line in job.stdout:
        lines.append(line)
        found += re.search(pattern, line) is not None
        if found == count:
            os.killpg(job.pid, signal.SIGKILL)
            break
    killer.cancel()
    assert found == count, f"not {count} times {pattern!r} within {seconds} s\n" + "".join(lines)
    return lines


def test_death():
    """Every survivor's barrier fails, also without messages to or from the dead rank, on its node
    and on others, and they can close. mpirun lets them live if asked to, but then does not end."""
    with netlib.Net(3) as net:
        for victim in (0, 1, 2, 3, 4):
            job = begin(net, [2, 2, 1], [MEMBER, "open", "barrier", f"{victim}:kill=9",
                                         "until-broken", "close", "say=closed"],
                        options=["--enable-recovery"])
            lines = lines_until(job, "closed", 4, DEADLINE)
            broken = sorted(line[0] for line in lines if "barrier WEFT_EPEER" in line)
            assert broken == [str(r) for r in range(5) if r != victim], "".join(lines)


def test_departure():
    with netlib.Net(3) as net:
        for leaver in (0, 1, 4):
            out, _, _ = expect(net, [2, 2, 1], [MEMBER, "open", "barrier", f"{leaver}:close",
                                                f"{leaver}:exit=0", "barrier", "close"])
            assert out.count("barrier WEFT_ECLOSED") == 4, out


if __name__ == "__main__":
    netlib.enter()
    only = sys.argv[4:]
    netlib.main([f for name, f in list(globals().items())
                 if name.startswith("test_") and (not only or name in only)])
