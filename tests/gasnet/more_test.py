#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The programs that test collectives (coll_*) and vectors, indices and strides (vis_*), over shared
memory, TCP or RDMA, on 1 to 16 ranks; collectives of threads with several images per node, too.

usage: more_test.py --on shm|tcp|rdma WEFT PROGRAM..."""

import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "job"))
import harness  # pylint: disable=wrong-import-position

RANKS = {"shm": [1, 2, 3, 5, 16], "tcp": [2, 3, 5], "rdma": [2, 3]}
WAYS = {"shm": {}, "tcp": {"WEFT_TRANSPORTS": "tcp"}, "rdma": {"WEFT_TRANSPORTS": "loop,rdma"}}
DEADLINE = float(os.environ.get("WEFT_TEST_DEADLINE", "60"))
GROUPS = {"coll": 8, "vis": 5}  # "ok" lines


def one_test(weft, way, program, ranks, *arguments):
    name = os.path.basename(program)

    def test():
        job = harness.Job([weft, "run", "-n", str(ranks), "--", program, *arguments],
                          env=WAYS[way])
        code, out, err = job.finish(DEADLINE)
        assert code == 0, f"code {code}\n{out}{err}"
        groups = sum("ok" in line.split() for line in out.splitlines())
        assert groups == GROUPS[name.split("_")[0]], f"{groups} groups\n{out}{err}"
        assert job.gone_within(2), "processes are left"

    test.__name__ = f"{name} {' '.join(arguments)} {way} {ranks}"
    return test


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--on", choices=RANKS, required=True)
    parser.add_argument("--some", action="store_true", help="few ranks")
    parser.add_argument("weft", type=os.path.abspath)
    parser.add_argument("programs", nargs="+", type=os.path.abspath)
    args = parser.parse_args()
    tests = []
    for program in args.programs:
        ranks = [3] if args.some else RANKS[args.on]
        tests += [one_test(args.weft, args.on, program, n) for n in ranks]
        if os.path.basename(program) == "coll_par":
            tests += [one_test(args.weft, args.on, program, n, "3") for n in (1, 3)]
    harness.main(tests)


if __name__ == "__main__":
    main()
