#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How Longs travel, by Weft's counters: copied to a segment that is mapped, packed into the message
if they fit a Medium, otherwise put before the message. That a request has left when the call
returns, and a reply when its call returns: they arrive although their sender calls nothing
afterwards. And that no handler runs in gasnet_attach.

usage: ways_test.py --on shm|tcp|rdma WEFT WAYS EARLY INLINED"""

import argparse
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "job"))
import harness  # pylint: disable=wrong-import-position

RUNS = {"shm": {"mapped": {}, "nomap": {"WEFT_DEBUG": "nomap"}}, "tcp": {"tcp": {"WEFT_TRANSPORTS": "loop,tcp"}},
        "rdma": {"rdma": {"WEFT_TRANSPORTS": "loop,rdma"}}}
DEADLINE = float(os.environ.get("WEFT_TEST_DEADLINE", "60"))
COUNT = 20
MEDIUM = 4096
SIZES = (0, 8, MEDIUM, MEDIUM + 1, 65536)


def counters(weft, program, env, *arguments):
    """Returns both nodes' counters, by node; missing ones are 0."""
    with tempfile.TemporaryDirectory() as place:
        job = harness.Job([weft, "run", "-n", "2", "--", program, *map(str, arguments)],
                          env={**env, "GASNET_STATSFILE": f"{place}/s-%"})
        code, out, err = job.finish(DEADLINE)
        assert code == 0 and out.split() == ["ok"], f"code {code}\n{out}{err}"
        counted = []
        for node in range(2):
            with open(f"{place}/s-{node}", encoding="ascii") as f:
                counted.append({k: int(v) for k, v in re.findall(r"^weft (\w+) (\d+)", f.read(), re.M)})
        return counted


def travelled(counted):
    """Longs of weft_am_long; puts that were not copied here."""
    return (counted.get("LONG_SENT", 0), sum(v for k, v in counted.items() if k.startswith("PUT_")))


def one_test(args, run, how):
    def test():
        env = RUNS[args.on][run]
        before = [travelled(c) for c in counters(args.weft, args.ways, env, how, 0, 0, 0)]
        node = 1 if how == "reply" else 0  # sends the Longs
        for nbytes in SIZES:
            for nargs in (0, 12, 13, 16):
                now = travelled(counters(args.weft, args.ways, env, how, COUNT, nbytes, nargs)[node])
                now = tuple(a - b for a, b in zip(now, before[node]))
                want = (0, 0)
                if run != "mapped" and nbytes > MEDIUM:
                    want = (0, COUNT) if how == "reply" or nargs == 16 else (COUNT, now[1])
                assert now == want, f"{nbytes} bytes, {nargs} arguments: {now}, not {want}"

    test.__name__ = f"{how} {run}"
    return test


def ran(args, run, nodes, *words, env=None, printed=""):
    """These nodes end with code 0, and print [printed]."""
    job = harness.Job([args.weft, "run", "-n", str(nodes), "--", *map(str, words)], env={**RUNS[args.on][run], **(env or {})})
    code, out, err = job.finish(DEADLINE)
    assert code == 0 and out.strip() == printed, f"{nodes} nodes, {words[1:]} {env or ''}: code {code}\n{out}{err}"


def leave_test(args, run):
    with tempfile.TemporaryDirectory() as place:
        for count in (1, 8, 9, 12, 15, 17, 100):
            ran(args, run, 2, args.ways, "leave", count, f"{place}/{count}", 0, printed="ok")


def answer_test(args, run):
    """A handler's first reply leaves in the call that makes it, and so does one after many. (Over a
    network replies leave when the poll that runs their handlers ends.)"""
    with tempfile.TemporaryDirectory() as place:
        for before in (0, 1, 100):
            ran(args, run, 2, args.ways, "answer", before, f"{place}/{before}", 0, printed="ok")


def early_test(args, run):
    """More ranks than cores: some wait in gasnet_attach for a core while others send."""
    for nodes in (2, 3, 8, 16) if args.on == "shm" else (2, 4):
        for limit in ({}, {}, {}, {"GASNET_NETWORKDEPTH_TOTAL": "1"}, {"GASNET_NETWORKDEPTH": "1"}):
            ran(args, run, nodes, args.early, env=limit)


def drained_test(args, run):
    """On one machine, when a barrier ends, the handlers of requests sent before it have run."""
    # The first messages to a peer are sent before it has accepted the connection.
    for nodes, rounds in ((2, 100), (3, 30), (4, 30), (9, 5), (16, 3), *((n, 1) for n in (2, 4, 16) for _ in range(2))):
        ran(args, run, nodes, args.early, "drained", rounds)
    for nodes in (3, 4):  # connections are made anew all the time
        ran(args, run, nodes, args.early, "drained", 3, env={"WEFT_SHM_RINGS": "1"})


def inlined_test(args, run):
    """Short puts and gets are inlined where the segment is mapped. (In a debug build they are not.)"""
    ran(args, run, 2, args.inlined, "yes" if run == "mapped" else "no", printed="ok")


def named(test, args, run):
    def call():
        test(args, run)

    call.__name__ = f"{test.__name__.removesuffix('_test')} {run}"
    return call


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--on", choices=RUNS, required=True)
    parser.add_argument("weft", type=os.path.abspath)
    parser.add_argument("ways", type=os.path.abspath)
    parser.add_argument("early", type=os.path.abspath)
    parser.add_argument("inlined", type=os.path.abspath)
    args = parser.parse_args()
    harness.main([one_test(args, run, how) for run in RUNS[args.on] for how in ("long", "async", "reply")] +
                 [named(test, args, run) for test in (leave_test, early_test, inlined_test) for run in RUNS[args.on]] +
                 [named(test, args, run) for test in (answer_test, drained_test) for run in RUNS["shm"] if args.on == "shm"])


if __name__ == "__main__":
    main()
