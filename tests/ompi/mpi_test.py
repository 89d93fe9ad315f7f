#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""MPI programs over the component mca_btl_weft.so, over shared memory and TCP. Across TCP the ranks
trust each other by the key that rank 0 draws.

usage: mpi_test.py COMPONENT MPIRUN PROGRAMS"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "job"))
import harness  # pylint: disable=wrong-import-position

DEADLINE = float(os.environ.get("WEFT_TEST_DEADLINE", "60"))
COMPONENT, MPIRUN, PROGRAMS = (os.path.abspath(path) for path in sys.argv[1:4])
ENV = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_mca_base_component_path": os.path.dirname(COMPONENT) + ":SYS_DEFAULT"}
ALONE = "self,weft"
TCP = {"WEFT_TRANSPORTS": "loop,tcp", "WEFT_TCP_INTERFACES": "lo"}


def run(ranks, program, *args, env=None, btl=ALONE, **mca):
    """Start a job, and return its code, output and errors."""
    mca = {"pml": "ob1", "btl": btl, **mca}
    words = [word for name, value in mca.items() for word in ("--mca", name, str(value))]
    job = harness.Job([MPIRUN, "-n", str(ranks), "--oversubscribe", *words,
                       os.path.join(PROGRAMS, program), *args], env={**ENV, **(env or {})})
    return job.finish(DEADLINE)


def good(*args, **kwargs):
    """A job that prints "ok"; returns what it writes to stderr."""
    code, out, err = run(*args, **kwargs)
    tail = "\n".join(err.splitlines()[-20:])
    assert code == 0 and out == "ok\n", f"{args}, {kwargs}: code {code}\n{out}{tail}"
    return err


def symbols_test():
    text = subprocess.run(["nm", "-D", "--defined-only", COMPONENT], check=True, text=True,
                          capture_output=True).stdout
    names = [line.split()[-1] for line in text.splitlines()]
    assert names == ["mca_btl_weft_component"], names


def taken_test():
    """The component is the one that sends to the other rank."""
    err = good(2, "ompi_ring", btl_base_verbose=100)
    assert err.count("Using weft btl for send") == 2, err


def beside_test():
    """Among Open MPI's own components it is taken for all peers but oneself."""
    err = good(2, "ompi_ring", btl="^uct,openib,ofi", btl_base_verbose=100)
    assert "Using weft btl for send" in err, err
    assert "Using vader btl for send" not in err and "Using tcp btl for send" not in err, err


def ring_test():
    good(2, "ompi_ring")
    good(4, "ompi_ring")


def ring_tcp_test():
    good(2, "ompi_ring", env=TCP)
    good(4, "ompi_ring", env=TCP)


def shuffled_test():
    good(2, "ompi_ring", env={"WEFT_DEBUG": "shuffle"})


def exhausted_test():
    """Descriptors run out: Open MPI tries again, and no message is lost."""
    good(4, "ompi_ring", btl_weft_free_list_num=2, btl_weft_free_list_max=8,
         btl_weft_free_list_inc=2)


def progress_test():
    """With a thread of Weft's the handler copies, and progress delivers."""
    good(2, "ompi_ring", env={"WEFT_PROGRESS": "thread"})


def adjusted_test():
    """A value that is out of range is adjusted, and the sentence says how."""
    err = good(2, "ompi_ring", btl_weft_max_send_size=1000000, btl_weft_free_list_inc=0)
    assert "btl_weft_max_send_size is 1000000, but has to be 512 to 32704" in err, err
    assert "btl_weft_free_list_inc is 0, but has to be at least 1" in err, err


harness.main([symbols_test, taken_test, beside_test, ring_test, ring_tcp_test, shuffled_test,
              exhausted_test, progress_test, adjusted_test])
