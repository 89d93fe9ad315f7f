#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""One-sided communication over the component mca_btl_weft.so, of ranks on two hosts. Open MPI's osc rdma
then accesses the own memory, and the memory of other ranks of the node, by the component as well.

usage: hosts_test.py COMPONENT MPIRUN PROGRAMS"""

import os
import shutil
import signal
import subprocess
import sys
import time

from runner import COMPONENT, PROGRAMS, pids_of, shared

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "net"))
import netlib  # pylint: disable=wrong-import-position

DEADLINE = 40.0
KILLS = 3
# LeakSanitizer takes more than 10 s for what Open MPI has unloaded, where ranks wait for processors.
ENV = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


def start(net, ranks, program, *args, options=(), env=None, **mca):
    """Start a job with so many ranks on each host. The hosts share the processors, and Open MPI does not
    know."""
    mca = {"mca_base_component_path": os.path.dirname(COMPONENT) + ":SYS_DEFAULT", "pml": "ob1",
           "btl": "self,weft", "osc": "rdma", "mpi_yield_when_idle": 1, **mca}
    words, variables = net.mpirun(ranks, [os.path.join(PROGRAMS, program), *args], {**ENV, **(env or {})},
                                  [*options, *(word for name, value in mca.items()
                                               for word in ("--mca", name, str(value)))])
    return net.run(0, words, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                   stderr=subprocess.PIPE, text=True)


def good(net, ranks, program, *args, **kwargs):
    """Run a job that prints "ok" and nothing else. Returns what it writes to stderr."""
    job = start(net, ranks, program, *args, **kwargs)
    try:
        out, err = job.communicate(timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        job.kill()
        out, err = job.communicate()
    assert job.returncode == 0 and out == "ok\n", (ranks, program, args, kwargs, job.returncode, out, err)
    return err


def kill_one(net, after, rank):
    """Kill one of three ranks on two hosts, [after] seconds after they began to exchange messages and
    access each other's memory: mpirun ends within 5 s with the code of that rank, and nothing is left."""
    before = shared()
    job = start(net, [2, 1], "ompi_end", "mixed")
    pid = pids_of(job.stderr, 3)[rank]
    time.sleep(after)
    os.kill(pid, signal.SIGKILL)
    try:
        _, err = job.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        job.kill()
        _, err = job.communicate()
    assert job.returncode == 128 + signal.SIGKILL, (after, rank, job.returncode, err)
    end = time.monotonic() + 5
    while (left := netlib.processes("ompi_end") + netlib.processes("orted")) and time.monotonic() < end:
        time.sleep(0.05)
    assert not left, f"processes are left: {left}"
    assert shared() == before, f"{shared() - before} is left"


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


# Rank 0 is process 1 of its namespace, and rank 1 process 2 of another one: Open MPI takes shared memory of
# a process with the own id for its own.
APART = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
         '[ "$OMPI_COMM_WORLD_RANK" = 0 ] && exec "$@"; "$@"', "sh"]


def containers_test():
    """Ranks of one host that do not know each other's processes communicate by TCP."""
    with netlib.Net(hosts=1) as net:
        for program, *args in ("ompi_ring",), ("ompi_windows", "--windows"):
            err = good(net, [2], shutil.which(APART[0]), *APART[1:], os.path.join(PROGRAMS, program), *args,
                       btl_base_verbose=10)
            assert err.count("counter TCP_BYTES_SENT ") == 2, (program, err)


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


def killed_test():
    """A rank is killed, on the host of another rank or alone on its host."""
    with netlib.Net(hosts=2) as net:
        for i in range(KILLS):
            kill_one(net, 0.05 * (i % 7), 2 - i % 3)


netlib.enter()
netlib.need("mpirun", "openmpi-bin")
netlib.main([windows_test, containers_test, threads_test, settings_test, killed_test])
