#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Segments whose allocation fails at first: all nodes try again together, or, when the tries are used
up or GASNET_SEGMENT_RETRY forbids them, all nodes get GASNET_ERR_RESOURCE and may attach a smaller one.

usage: retry_test.py WEFT RETRY"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "job"))
import harness  # pylint: disable=wrong-import-position

DEADLINE = float(os.environ.get("WEFT_TEST_DEADLINE", "60"))
WEFT, RETRY = (os.path.abspath(path) for path in sys.argv[1:])
TRIES = 8  # with the first


def attach(nodes, failures, result, env, failed):
    job = harness.Job([WEFT, "run", "-n", str(nodes), "--", RETRY, str(failures), result], env=env)
    code, out, err = job.finish(DEADLINE)
    assert code == 0 and out == f"{failed} failed\n", f"{nodes} nodes, {failures} failures: code {code}\n{out}{err}"


def survives_test():
    for nodes, failures in ((1, 0), (1, 3), (2, 3), (3, 1), (2, TRIES - 1)):
        attach(nodes, failures, "ok", {}, failures)


def used_up_test():
    for nodes in (1, 2):
        attach(nodes, 100, "resource", {}, TRIES)


def forbidden_test():
    for nodes in (1, 3):
        attach(nodes, 1, "resource", {"GASNET_SEGMENT_RETRY": "0"}, 1)


harness.main([survives_test, used_up_test, forbidden_test])
