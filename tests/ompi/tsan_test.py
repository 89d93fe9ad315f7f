#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Threads of MPI_THREAD_MULTIPLE over the component, both built with ThreadSanitizer. Open MPI's
libraries are as Debian built them, so what they do to memory is not checked.

usage: tsan.sh clean tsan_test.py COMPONENT MPIRUN PROGRAMS"""

import os

from runner import TCP, good, harness

# A report ends the rank with code 66.
OPTIONS = f"suppressions={os.path.dirname(os.path.abspath(__file__))}/tsan.supp " \
          "ignore_noninstrumented_modules=1"
TSAN = {"TSAN_OPTIONS": os.environ.get("TSAN_OPTIONS", "halt_on_error=1 exitcode=66") + " " + OPTIONS}
WAYS = [{}, TCP, {"WEFT_PROGRESS": "thread"}]


def threads(endpoints):
    for env in WAYS:
        good(2, "ompi_threads", "4", "6", osc="rdma", mpi_yield_when_idle=1,
             btl_weft_endpoints=endpoints, env={**TSAN, **env})


def threads_test():
    threads(1)


def endpoints_test():
    threads(3)


def held_test():
    good(2, "ompi_held", env={**TSAN})
    good(2, "ompi_held", "puts", env={**TSAN, **TCP}, btl_weft_order="all")


harness.main([threads_test, endpoints_test, held_test])
