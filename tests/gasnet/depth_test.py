#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""GASNET_NETWORKDEPTH and GASNET_NETWORKDEPTH_TOTAL: requests of every kind come and are answered,
and no node has more of them under way than the limits allow, though it reaches the limit; also if
only one node has a limit.

usage: depth_test.py --on shm|tcp|rdma WEFT DEPTH DEPTH_PAR"""

import argparse
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "job"))
import harness  # pylint: disable=wrong-import-position

DEADLINE = float(os.environ.get("WEFT_TEST_DEADLINE", "60"))
TRANSPORTS = {"shm": "loop,shm", "tcp": "loop,tcp", "rdma": "loop,rdma"}
COUNT = {"shm": 200, "tcp": 20, "rdma": 10}
TOTAL, NODE = "GASNET_NETWORKDEPTH_TOTAL", "GASNET_NETWORKDEPTH"


def run(args, program, nodes, env, only=None):
    """The most requests that each node had under way, and the warnings."""
    with tempfile.TemporaryDirectory() as place:
        command = [program, str(COUNT[args.on])]
        if only is not None:  # the limits are those of this rank alone
            names = " ".join(n for n in env if n.startswith("GASNET_"))
            command = ["sh", "-c", f'[ "$PMIX_RANK" = {only} ] || unset {names}; exec "$@"', "sh", *command]
        job = harness.Job([args.weft, "run", "-n", str(nodes), "--", "env", f"GASNET_STATSFILE={place}/s-%", *command],
                          env={**env, "WEFT_TRANSPORTS": TRANSPORTS[args.on]})
        code, out, err = job.finish(DEADLINE)
        assert code == 0 and out.split() == ["ok"], f"{env}: code {code}\n{out}{err}"
        most = []
        for node in range(nodes):
            with open(f"{place}/s-{node}", encoding="ascii") as f:
                match = re.search(r"^most requests under way +(\d+)", f.read(), re.M)
                most.append(int(match[1]) if match else 0)
        return most, err


def limits_test(args, program):
    def test():
        for nodes in (2, 3) if args.on != "rdma" else (2,):
            for env, most in (({TOTAL: "1"}, 1), ({TOTAL: "2"}, 2), ({TOTAL: "64"}, 64), ({NODE: "1"}, nodes - 1),
                              ({NODE: "5"}, 5 * (nodes - 1)), ({NODE: "5", TOTAL: "3"}, 3), ({NODE: "1", TOTAL: "64"}, nodes - 1)):
                most_each, err = run(args, program, nodes, env)
                assert max(most_each) <= most and "WARNING" not in err, f"{nodes} nodes, {env}: {most_each}, {most} allowed\n{err}"
                assert most > 8 or min(most_each) == most, f"{nodes} nodes, {env}: {most_each}, {most} expected\n{err}"

    test.__name__ = f"limits {os.path.basename(program)}"
    return test


def replies_of(args, env):
    """Weft's replies of both nodes, which are GASNet's replies and the credits."""
    with tempfile.TemporaryDirectory() as place:
        job = harness.Job([args.weft, "run", "-n", "2", "--", args.depth, str(COUNT[args.on])],
                          env={**env, "WEFT_TRANSPORTS": TRANSPORTS[args.on], "GASNET_STATSFILE": f"{place}/s-%"})
        code, out, err = job.finish(DEADLINE)
        assert code == 0, f"{env}: code {code}\n{out}{err}"
        sent = []
        for node in range(2):
            with open(f"{place}/s-{node}", encoding="ascii") as f:
                sent.append(int(re.search(r"^weft REPLIES_SENT (\d+)", f.read(), re.M)[1]))
        return sent


def none_test(args):
    """Without limits nothing is counted, and no credit is sent: 3 of the 7 kinds of requests get no reply. A node
    that leaves later than the other also counts its replies to the leaving one, one for each of few rounds."""
    def test():
        assert run(args, args.depth, 2, {}) == ([0, 0], "")
        with_, without = replies_of(args, {TOTAL: "64"}), replies_of(args, {})
        for a, b in zip(with_, without):
            assert a - b > 2 * COUNT[args.on], f"{with_} with limits, {without} without"

    test.__name__ = "none"
    return test


def one_test(args):
    def test():
        most_each, _ = run(args, args.depth, 2, {TOTAL: "2"}, only=1)
        assert most_each == [0, 2], most_each

    test.__name__ = "one"
    return test


def sizes_test(args):
    """The shortest and the longest messages: a reply fits its room."""
    def test():
        for size in ("768", "32704"):
            run(args, args.depth, 2, {TOTAL: "3", "WEFT_AM_MAX": size})
            run(args, args.depth, 2, {"WEFT_AM_MAX": size})

    test.__name__ = "sizes"
    return test


def blocks_test(args):
    """At the limit, a request waits until the other node has handled an earlier one. That node polls only
    when the file is there; the requester makes it after it has reported how many requests it sent."""
    def test():
        for limit in (1, 3):
            with tempfile.TemporaryDirectory() as place:
                job = harness.Job([args.weft, "run", "-n", "2", "--", args.depth, "blocks", f"{place}/go", str(limit)],
                                  env={TOTAL: str(limit), "WEFT_TRANSPORTS": TRANSPORTS[args.on]})
                code, out, err = job.finish(DEADLINE)
                assert code == 0 and out.split() == ["ok"], f"{limit}: code {code}\n{out}{err}"

    test.__name__ = "blocks"
    return test


def adjusted_test(args):
    def test():
        for text, most in (("0", 1), ("70000", 65535)):
            most_each, err = run(args, args.depth, 2, {TOTAL: text})
            assert f"WARNING: {TOTAL}={text} is adjusted to {most}: 1 to 65535" in err and max(most_each) <= most, f"{most_each} {err}"

    test.__name__ = "adjusted"
    return test


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--on", choices=TRANSPORTS, required=True)
    parser.add_argument("weft", type=os.path.abspath)
    parser.add_argument("depth", type=os.path.abspath)
    parser.add_argument("depth_par", type=os.path.abspath)
    args = parser.parse_args()
    harness.main([limits_test(args, args.depth), limits_test(args, args.depth_par), none_test(args), one_test(args), sizes_test(args), blocks_test(args),
                  adjusted_test(args)])


if __name__ == "__main__":
    main()
