#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""MPI programs over the component on RDMA devices, in a machine of scripts/vm: WEFT_RDMA_DEVICE and
WEFT_TEST_DEADLINE are set. Its processors are emulated, so the counts are small.

usage: rdma_test.py COMPONENT MPIRUN PROGRAMS"""

import re
import signal

from runner import good, harness, start

RDMA = {"WEFT_TRANSPORTS": "loop,rdma"}


def counts(err):
    """The counters that both ranks have written, added up."""
    total = {}
    for name, value in re.findall(r"btl weft: counter (\w+) (\d+)", err):
        total[name] = total.get(name, 0) + int(value)
    return total


def reads_test():
    """The gets of long messages are READs of the NIC."""
    n = counts(good(2, "ompi_apart", "fin", env=RDMA, btl_base_verbose=10))
    # Each of 40 messages, five times, is one get.
    assert n.get("GET_NIC", 0) >= 200, n
    assert not n.get("GET_PIECES", 0) and not n.get("GET_BULK", 0), n


def apart_test():
    """What is complete has left."""
    for how in "send", "isend":
        good(2, "ompi_apart", how, env=RDMA)


def calls_test():
    good(2, "ompi_messages", env=RDMA)
    good(2, "ompi_accesses", "1000", "nic", env=RDMA)
    good(2, "ompi_held", env=RDMA)


def order_test():
    good(2, "ompi_order", "module", "100", btl_weft_order="module", env=RDMA)


def windows_test():
    good(2, "ompi_windows", "--windows", osc="rdma", env=RDMA)


def threads_test():
    good(2, "ompi_threads", "2", "7", osc="rdma", env=RDMA)


def lost_test():
    good(2, "ompi_lost", env=RDMA, words=["--enable-recovery"])


def killed_test():
    """A rank that dies ends the job with its code."""
    assert start(2, "ompi_end", "kill", env=RDMA).finish()[0] == 128 + signal.SIGKILL


harness.main([reads_test, apart_test, calls_test, order_test, windows_test, threads_test,
              lost_test, killed_test])
