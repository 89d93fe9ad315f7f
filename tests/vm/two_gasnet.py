#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The programs that test the GASNet binding, as jobs of four ranks on two machines of scripts/vm.

usage: two_gasnet.py WEFT PROGRAM...

Runs in both machines (--machines 2). Ranks of one machine use shared memory, others RDMA."""

import os
import sys

import two
from two import SECONDS  # rules_nb, of 65,535 operations, takes up to 375

os.environ.setdefault("WEFT_TEST_DEADLINE", str(SECONDS))
HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("gasnet", "job"):
    sys.path.insert(0, os.path.join(HERE, "..", folder))
import harness  # pylint: disable=wrong-import-position
import more_test  # pylint: disable=wrong-import-position
import rules_test  # pylint: disable=wrong-import-position

RANKS = 4
ENVIRONMENT = {**rules_test.ENVIRONMENT, **two.ENVIRONMENT}


def job_of(argv, ranks=RANKS):
    return harness.Job(two.words_of(ranks, argv, ENVIRONMENT), env={**ENVIRONMENT, **two.ROOT})


def way_test(weft):
    """By what it is that ranks of different machines reach each other; without this the tests below
    would not show what they should."""
    def test():
        code, out, err = job_of([weft, "perf", "am_lat", "--iters", "10", "--json"], 2).finish(SECONDS)
        assert code == 0 and '"transport":"rdma"' in out, f"code {code}\n{out}{err}"

    test.__name__ = "two machines are connected by RDMA"
    return test


def program_test(program):
    name = os.path.basename(program)

    def test():
        started = job_of([program])
        if name.startswith("rules_"):
            rules_test.check(started, RANKS)
            return
        code, out, err = started.finish(SECONDS)
        said = sum("ok" in line.split() for line in out.splitlines())
        assert code == 0 and said == more_test.GROUPS[name.split("_")[0]], f"code {code}\n{out}{err}"

    test.__name__ = name
    return test


def main():
    weft, *programs = map(os.path.abspath, sys.argv[1:])
    return two.main(lambda: harness.main([way_test(weft), *map(program_test, programs)]))


if __name__ == "__main__":
    sys.exit(main())
