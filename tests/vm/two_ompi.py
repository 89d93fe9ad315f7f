#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""MPI programs over the Open MPI component, as jobs of ranks on two machines of scripts/vm that RDMA
connects. Processors are emulated, so the counts are small.

usage: two_ompi.py COMPONENT PROGRAMS

Runs in both machines (--machines 2)."""

import os
import re
import sys

import two

os.environ.setdefault("WEFT_TEST_DEADLINE", str(two.SECONDS))
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "job"))
import harness  # pylint: disable=wrong-import-position

ENVIRONMENT = {**two.ENVIRONMENT, "HOME": "/tmp"}


def good(component, ranks, program, *args, **mca):
    """Run a job that prints "ok" and nothing else. Returns what it writes to stderr."""
    mca = {"mca_base_component_path": os.path.dirname(component) + ":SYS_DEFAULT", "pml": "ob1",
           "btl": "self,weft", "mpi_yield_when_idle": 1, **mca}
    options = [word for name, value in mca.items() for word in ("--mca", name, str(value))]
    job = harness.Job(two.words_of(ranks, [program, *args], ENVIRONMENT, options),
                      env={**ENVIRONMENT, **two.ROOT})
    code, out, err = job.finish(two.SECONDS)
    assert code == 0 and out == "ok\n", f"code {code}\n{out}{err}"
    return err


def tests_of(component, programs):
    def program(name):
        return os.path.join(programs, "ompi_" + name)

    def reads_test():
        """The gets of long messages between machines are READs of the NIC."""
        err = good(component, 2, program("apart"), "far", btl_base_verbose=10)
        counts = {}
        for name, value in re.findall(r"btl weft: counter (\w+) (\d+)", err):
            counts[name] = counts.get(name, 0) + int(value)
        # Each of 40 messages, five times, is one get.
        assert counts.get("GET_NIC", 0) >= 200, counts
        assert not counts.get("GET_PIECES", 0) and not counts.get("GET_BULK", 0), counts
        print(f"GET_NIC {counts['GET_NIC']}", flush=True)

    def messages_test():
        good(component, 2, program("messages"))
        good(component, 2, program("accesses"), "1000", "nic")

    def windows_test():
        good(component, 4, program("windows"), "--windows", osc="rdma")

    def order_test():
        good(component, 2, program("order"), "module", "100", btl_weft_order="module")

    return [reads_test, messages_test, windows_test, order_test]


def main():
    component, programs = map(os.path.abspath, sys.argv[1:])
    return two.main(lambda: harness.main(tests_of(component, programs)))


if __name__ == "__main__":
    sys.exit(main())
