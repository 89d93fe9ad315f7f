#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The programs that test GASNet's rules, over shared memory, TCP and RDMA, on 1 to 16 ranks.

usage: rules_test.py [--on shm|tcp|rdma] [--ranks N,N] WEFT PROGRAM...
The first of the programs is started without a launcher, too. With --ranks that leave 1 out, not
all rules have to be tested."""

import argparse
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "job"))
import harness  # pylint: disable=wrong-import-position

RANKS = {"shm": [1, 2, 3, 16], "tcp": [1, 2, 4], "rdma": [2, 3]}
WAYS = {"shm": {}, "tcp": {"WEFT_TRANSPORTS": "tcp"}, "rdma": {"WEFT_TRANSPORTS": "loop,rdma"}}
DEADLINE = float(os.environ.get("WEFT_TEST_DEADLINE", "60"))  # of one program
# These end the job: ending_test.py has them.
ELSEWHERE = {8, 9, 10, 25}
LAST_RULE = 43
ENVIRONMENT = {"GASNET_RULES_VALUE": "as it was, with spaces"}
PMIX = ("PMIX_", "PMI_", "OMPI_", "SLURM_", "GASNET_PSHM_NODES")

seen = set()  # numbers of rules that were tested


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--on", choices=RANKS)
    parser.add_argument("--some", action="store_true", help="not all programs: rules may be missing")
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("weft", type=os.path.abspath)
    parser.add_argument("programs", nargs="+", type=os.path.abspath)
    return parser.parse_args()


def check(job, ranks):
    """The job ends with code 0, prints every test's line and the last one, and leaves no
    process."""
    code, out, err = job.finish(DEADLINE)
    assert code == 0, f"code {code}\n{out}{err}"
    assert "WRONG" not in out + err, out + err
    lines = out.splitlines()
    assert lines, f"no output\n{err}"
    # gasnet_exit wrote this one: a rank that was killed before has lost it.
    last = re.fullmatch(r"(\d+) passed, (\d+) skipped on (\d+) ranks", lines[-1])
    assert last, f"the last line is missing\n{out}{err}"
    passed = [re.fullmatch(r"rule (\d+) \w+ ok \(.* s\)", line) for line in lines[:-1]]
    passed = [int(match[1]) for match in passed if match]
    assert [int(n) for n in last.groups()] == [len(passed), len(lines) - 1 - len(passed), ranks], out
    seen.update(passed)
    assert job.gone_within(2), "processes are left"


def program_test(weft, program, way, ranks):
    def test():
        env = {**ENVIRONMENT, **WAYS[way]}
        check(harness.Job([weft, "run", "-n", str(ranks), "--", program], env=env), ranks)

    test.__name__ = f"{os.path.basename(program)} {way} {ranks}"
    return test


def alone_test(weft, program, nodes):
    """Without a launcher: one process, or the number given to it, started by weft, which is in
    PATH."""
    def test():
        env = {k: v for k, v in os.environ.items() if not k.startswith(PMIX)}
        os.environ.clear()
        os.environ.update(env)
        path = os.path.dirname(weft) + ":" + os.environ["PATH"]
        more = {"GASNET_PSHM_NODES": str(nodes)} if nodes else {}
        check(harness.Job([program], env={**ENVIRONMENT, **more, "PATH": path}), nodes or 1)

    test.__name__ = f"{os.path.basename(program)} started by itself as {nodes or 'one'}"
    return test


def coverage_test():
    """Every rule was tested."""
    missing = set(range(1, LAST_RULE + 1)) - ELSEWHERE - seen
    assert not missing, f"no test of rules {sorted(missing)}"


def named_test():
    """The tables of rules_polls.c name each call of the headers."""
    calls = set()
    for header in ("gasnet.h", "gasnet_coll.h", "gasnet_vis.h"):
        with open(os.path.join(HERE, "../../include/weft-gasnet", header), encoding="utf-8") as text:
            code = re.sub(r"/\*.*?\*/|//[^\n]*", "", text.read(), flags=re.DOTALL)
        calls |= set(re.findall(r"\b(gasnet_\w+)\s*\(", code))
    assert "gasnet_put" in calls and "gasnet_coll_scan" in calls, "the headers look different"
    with open(os.path.join(HERE, "rules_polls.c"), encoding="utf-8") as text:
        named = set(re.findall(r"\b(?:POLLS|NOT)\((\w+),", text.read()))
    assert not calls - named, f"not in rules_polls.c: {sorted(calls - named)}"


def main():
    args = arguments()
    tests = [program_test(args.weft, program, way, ranks)
             for way in ([args.on] if args.on else ("shm", "tcp"))
             for program in args.programs
             for ranks in args.ranks or RANKS[way]]
    if not args.ranks or 1 in args.ranks:
        if args.on not in ("tcp", "rdma"):
            tests += [alone_test(args.weft, args.programs[0], nodes) for nodes in (None, 3)]
            tests += [named_test]
        tests += [] if args.some else [coverage_test]
    harness.main(tests)


if __name__ == "__main__":
    main()
