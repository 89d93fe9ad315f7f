#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""One-sided communication over the component mca_btl_weft.so, of ranks on two hosts. Open MPI's osc rdma
then accesses the own memory, and the memory of other ranks of the node, by the component as well.

usage: hosts_test.py COMPONENT PROGRAMS"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "net"))
import netlib  # pylint: disable=wrong-import-position

COMPONENT, PROGRAMS = map(os.path.abspath, sys.argv[1:3])
DEADLINE = 40.0
# LeakSanitizer takes more than 10 s for what Open MPI has unloaded, where ranks wait for processors.
ENV = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


def good(net, ranks, program, *args, options=(), env=None, **mca):
    """Run a job with so many ranks on each host, which prints "ok" and nothing else. The hosts share the
    processors, and Open MPI does not know."""
    mca = {"mca_base_component_path": os.path.dirname(COMPONENT) + ":SYS_DEFAULT", "pml": "ob1",
           "btl": "self,weft", "osc": "rdma", "mpi_yield_when_idle": 1, **mca}
    words, variables = net.mpirun(ranks, [os.path.join(PROGRAMS, program), *args], {**ENV, **(env or {})},
                                  [*options, *(word for name, value in mca.items()
                                               for word in ("--mca", name, str(value)))])
    job = net.run(0, words, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                  stderr=subprocess.PIPE, text=True)
    try:
        out, err = job.communicate(timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        job.kill()
        out, err = job.communicate()
    assert job.returncode == 0 and out == "ok\n", (ranks, program, args, mca, job.returncode, out, err)


def windows_test():
    """Over TCP, the ranks of a host over shared memory. With an uneven distribution, and one that is
    not by blocks, the first rank of a host holds what it looks up itself."""
    with netlib.Net(hosts=2) as net:
        good(net, [1, 1], "ompi_each")
        good(net, [2, 2], "ompi_each")
        good(net, [3, 1], "ompi_each")
        good(net, [2, 2], "ompi_each", options=["--map-by", "node"])
        good(net, [2, 2], "ompi_windows", "--windows")
        good(net, [3, 0], "ompi_each", "dynamic")


def threads_test():
    with netlib.Net(hosts=2) as net:
        good(net, [1, 1], "ompi_threads", "2", "7")
        good(net, [2, 1], "ompi_threads", "2", "7", btl_weft_endpoints=2)


def settings_test():
    """What changes the way of an access to the own memory."""
    with netlib.Net(hosts=2) as net:
        good(net, [1, 1], "ompi_each", btl_weft_order="module")
        good(net, [1, 1], "ompi_each", btl_weft_order="all")
        good(net, [2, 1], "ompi_each", env={"WEFT_PROGRESS": "thread"})
        good(net, [2, 1], "ompi_each", pml_ob1_use_all_rdma=1)


netlib.enter()
netlib.need("mpirun", "openmpi-bin")
netlib.main([windows_test, threads_test, settings_test])
