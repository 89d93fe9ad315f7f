#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A rank that computes between the steps of a barrier does not delay other ranks, whatever its node.

usage: compute_test.py WEFT COMPUTE
COMPUTE is compute.c with grouped.c: its nodes are groups of processes of this machine, with shared
memory between them as well. hosts_test.py has nodes with TCP between them."""

import os
import sys
import tempfile

import harness

WEFT, COMPUTE = map(os.path.abspath, sys.argv[1:])
DEADLINE = float(os.environ.get("WEFT_TEST_DEADLINE", "60"))
WAIT_MS = 15000  # how long a rank that computes waits for the others: they come unless they wait for it
TIMES = 3


def lonely(ranks, of_node, computing, env=None, late=(0, 0), wait_ms=WAIT_MS):
    """How often each rank that computes waited in vain for the others to pass: {rank: times}."""
    with tempfile.NamedTemporaryFile() as passes:
        job = harness.Job([WEFT, "run", "-n", str(ranks), "--", COMPUTE, hex(computing), str(wait_ms),
                           str(TIMES), passes.name, hex(late[0]), str(late[1])],
                          env={"JOB_TEST_NODES": str(of_node), **(env or {})})
        code, out, err = job.finish(DEADLINE)
    assert code == 0, f"code {code}\n{out}{err}"
    lines = [line.split() for line in out.splitlines()]
    passed = sorted(int(words[0]) for words in lines if words[1] != "alone")
    assert passed == [n for n in range(ranks) if not computing >> n & 1], out
    return {int(words[0]): int(words[2]) for words in lines if words[1] == "alone"}


def pass_test(ranks, of_node, computing):
    def test():
        assert not lonely(ranks, of_node, computing)

    test.__name__ = f"{ranks} ranks, {of_node} a node; {computing:#x} compute"
    return test


def late_test(late_us):
    """The vote of the node that came first is there when the other node's ranks notify, so that node
    is released at once. The first node's leader computes: its second rank is sent the vote, too."""
    def test():
        assert not lonely(4, 2, 0x1, late=(0xc, late_us))

    test.__name__ = f"{late_us} us late"
    return test


def leaders_test():
    """Without the other ranks' help all wait for the lowest one. So the tests above test something."""
    assert lonely(4, 2, 0x1, {"WEFT_BARRIER": "leaders"}, wait_ms=300) == {0: TIMES}


harness.main([pass_test(4, 4, 0x1)] +  # one node
             # a leader, the other, both, not the leaders
             [pass_test(4, 2, computing) for computing in (0x1, 0x4, 0x5, 0xa)] +
             # three nodes; one of three, two of four ranks of a node
             [pass_test(6, 2, 0x15), pass_test(6, 3, 0x09), pass_test(8, 4, 0x99), leaders_test] +
             # one node later than the others: the helper of the others has sent by then
             [late_test(late_us) for late_us in (20, 60, 200, 3000)])
