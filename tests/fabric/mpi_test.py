#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Open MPI over the provider: two-sided by its MTL, one-sided by its BTL, over shared memory and TCP.
Across TCP the processes trust each other by the key that mpirun made for the job.

usage: mpi_test.py PROVIDER MPIRUN PROGRAM"""

import os
import pathlib
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "job"))
import harness  # pylint: disable=wrong-import-position

DEADLINE = float(os.environ.get("WEFT_TEST_DEADLINE", "60"))
PROVIDER, MPIRUN, PROGRAM = (os.path.abspath(path) for path in sys.argv[1:])
ENV = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
OURS = {"FI_PROVIDER_PATH": os.path.dirname(PROVIDER), "FI_LOG_LEVEL": "info"}
TCP = {"WEFT_TRANSPORTS": "loop,tcp", "WEFT_TCP_INTERFACES": "lo"}
MTL = ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "weft"]
BTL = ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp,ofi", "--mca", "btl_tcp_if_include", "lo",
       "--mca", "btl_ofi_provider_include", "weft", "--mca", "osc", "rdma"]


def run(ranks, mca, env, *args):
    env = {**OURS, **env}
    exported = [word for name in env for word in ("-x", name)]
    # Each rank's log in a file of its own: mpirun does not keep the lines of ranks apart.
    with tempfile.TemporaryDirectory() as logs:
        job = harness.Job([MPIRUN, "-n", str(ranks), "--oversubscribe", "--output-filename", logs, *exported,
                           *mca, PROGRAM, *args], env={**ENV, **env})
        code, out, err = job.finish(DEADLINE)
        tail = "\n".join(err.splitlines()[-20:])
        assert code == 0 and out == "ok\n", f"{ranks} ranks, {mca[1]}, {env}: code {code}\n{out}{tail}"
        opened = sum("Opened fabric: weft" in path.read_text(encoding="utf-8", errors="replace")
                     for path in pathlib.Path(logs).glob("**/stderr"))
    assert opened == ranks, f"{opened} of {ranks} ranks use the provider"


def messages_test():
    run(2, MTL, {})
    run(3, MTL, {})


def messages_tcp_test():
    run(2, MTL, TCP)


def windows_test():
    run(2, BTL, {}, "--windows")


def windows_tcp_test():
    run(2, BTL, TCP, "--windows")


harness.main([messages_test, messages_tcp_test, windows_test, windows_tcp_test])
