#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How jobs end: ranks that are killed, abort, exit, or are stopped for a while, and mpirun killed.
Nothing is left, and mpirun ends soon.

usage: ending_test.py COMPONENT MPIRUN PROGRAMS"""

import signal
import tempfile
import time

from runner import TCP, good, harness, kill_one, shared, start, stop_ranks

SOON = 10  # seconds


def ends(how, env=None):
    """Run until rank 1 ends as [how] says. Returns mpirun's code."""
    before = shared()
    job = start(2, "ompi_end", how, env=env)
    begun = time.monotonic()
    code = job.finish(3 * SOON)[0]
    took = time.monotonic() - begun
    assert took < SOON, f"{how}: {took:.1f} s"
    assert job.gone_within(SOON), f"{how}: processes are left: {job.members()}"
    assert shared() == before, f"{how}: {shared() - before} is left"
    return code


def killed_test():
    for env in {}, TCP:
        assert ends("kill", env) == 128 + signal.SIGKILL


def aborted_test():
    for env in {}, TCP:
        assert ends("abort", env) == 7


def exited_test():
    for env in {}, TCP:
        assert ends("exit", env) == 3


def unused_test():
    """Ranks that send nothing, or fork in the middle."""
    for how in "leave", "system":
        for env in {}, TCP:
            assert ends(how, env) == 0


def stopped_test():
    """A stopped rank is slow, not dead."""
    stop_ranks(2, [(0.1, 1, {}), (0.1, 1, TCP)])


def launcher_test():
    """mpirun is killed: its ranks end. The folder of its session stays, so it is in one of the test's own."""
    with tempfile.TemporaryDirectory() as folder:
        job = start(2, "ompi_end", "forever", env={"TMPDIR": folder})
        while "running" not in (line := job.process.stderr.readline()):
            assert line, "the ranks have ended"
        job.process.kill()
        job.finish()
        assert job.gone_within(2 * SOON), job.members()


def open_test():
    """MPI_Finalize returns while another thread is in the endpoint."""
    for env in {}, TCP:
        err = good(2, "ompi_open", env=env)
        assert "btl weft: an endpoint stays open until the process ends" in err, err


def lost_test():
    """Operations under way to a lost rank end, on all endpoints, and Open MPI's error callback is
    called."""
    for env, *args in (({},), ({"WEFT_DEBUG": "nopull"}, "denied", "threads"), (TCP, "denied"),
                       (TCP, "denied", "threads")):
        good(2, "ompi_lost", *args, env=env, words=["--enable-recovery"], btl_weft_endpoints=3)


def late_test():
    """An operation that goes back to the queue while a loss is reported ends, too."""
    for env in {}, TCP:
        good(2, "ompi_late", env=env, words=["--enable-recovery"])


def kills_test():
    """Ranks that are killed at several moments of mixed traffic."""
    for i in range(4):
        for env in {}, TCP:
            kill_one(0.05 * i, i % 3, env)


harness.main([killed_test, kills_test, aborted_test, exited_test, unused_test, stopped_test, launcher_test,
              open_test, lost_test, late_test])
