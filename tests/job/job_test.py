#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The job: collectives, deaths and departures, under weft run, under mpirun and
without a launcher.

usage: job_test.py WEFT MEMBER [alone|run|mpirun]"""

import os
import re
import shutil
import signal
import sys
import time

import harness
from harness import Job, read_within

WEFT, MEMBER = sys.argv[1:3]
LAUNCHER = sys.argv[3] if len(sys.argv) > 3 else "run"
EVERYTHING = ["open", "barrier", "gather", "memory", "handler-check", "fork-check", "close-busy",
              "close"]
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def start(n, *words, options=(), **kw):
    if LAUNCHER == "alone":
        return Job([MEMBER, *words], **kw)
    if LAUNCHER == "mpirun":
        return Job(["mpirun", "--oversubscribe", "-n", str(n), MEMBER, *words], env=MPI, **kw)
    return Job([WEFT, "run", "-n", str(n), *options, "--", MEMBER, *words], **kw)


def expect(job, code, deadline=harness.DEADLINE):
    got, out, err = job.finish(deadline)
    assert "WRONG" not in out, out
    assert got == code, f"code {got}, not {code}\n{out}{err}"
    return out


def sizes():
    return (1,) if LAUNCHER == "alone" else (1, 2, 3, 4, 7, 16) if LAUNCHER == "run" else (2, 4)


def test_everything():
    for n in sizes():
        out = expect(start(n, *EVERYTHING, "say=done"), 0)
        assert out.count("done") == n, out


def test_storm():
    for n in sizes():
        expect(start(n, "open", "storm=3000", "close"), 0)


def test_names():
    """Named, anonymous and mismatched barriers: the same verdict at every rank,
    the one that follows from what all said."""
    for seed, n in enumerate(sizes()):
        out = expect(start(n, "open", "split-misuse", f"names={seed + 1}", "close"), 0)
        counts = set(re.findall(r"mismatches (\d+)", out))
        assert len(counts) == 1 and (n == 1 or int(counts.pop()) > 100), out


def test_notice_stays():
    """A rank that has notified holds up nobody, whatever it does; one that
    leaves then has done its part."""
    for n in (2, 3, 4):
        read, write = os.pipe()
        go, push = os.pipe()
        job = start(n, "open", "notify=5", f"0:wait={go}", "wait-all=5", f"ready={write}", "close",
                    pass_fds=[write, go])
        read_within(read, n - 1)  # all but rank 0, which has not even begun to wait
        os.write(push, b"g")
        assert expect(job, 0) == ""
        for fd in (read, write, go, push):
            os.close(fd)
        for step in ("wait-all=5", "try=5"):
            assert expect(start(n, "open", "notify=5", "0:close", "0:exit=0", step, "close"),
                          0) == ""


def test_split_departure():
    for n in (2, 4):
        for step in ("wait-all=5", "try=5"):
            out = expect(start(n, "open", "1:close", "1:exit=0", "notify=5", step, "close"), 0)
            assert out.count("WEFT_ECLOSED") == n - 1, out


def test_split_death():
    """Who dies between the steps, or before its notice, ends this barrier or the
    next at every survivor."""
    for n in (2, 3, 4, 16):
        for words in (["notify=5", "1:kill=9", "wait-all=5"], ["1:kill=9"]):
            out = expect(start(n, "open", *words, "split-until-broken", "close",
                               options=["--keep-going"]), 137)
            assert out.count("barrier WEFT_EPEER") == n - 1, out
            assert "WEFT_ECLOSED" not in out, out


def test_again():
    """A job can be closed and opened again: nothing of the first is found."""
    for n in sizes()[:4]:
        expect(start(n, "open", "gather", "close", "open", "memory", "close", "open", "close"), 0)


def test_again_without_one():
    """Who has left for good is not waited for."""
    out = expect(start(3, "open", "barrier", "close", "1:exit=0", "open", options=["--keep-going"]),
                 1)
    assert out.count("open WEFT_EPEER") == 2, out


# Keep-going is weft run's; mpirun ends the others.

def test_death():
    """Every survivor's barrier fails, also where nobody had talked to the dead
    one."""
    for n in (2, 3, 4, 16):
        out = expect(start(n, "open", f"{n - 1}:kill=9", "until-broken", "close",
                           options=["--keep-going"]), 137)
        assert out.count("barrier WEFT_EPEER") == n - 1, out


def test_death_is_seen_soon():
    read, write = os.pipe()
    job = start(4, "open", "barrier", f"ready={write}", "0:hang", "until-broken", f"ready={write}",
                "close", options=["--keep-going"], pass_fds=[write])
    os.close(write)
    read_within(read, 4)
    victim = [pid for pid in job.members() if rank_of(pid) == 0]
    killed = time.monotonic()
    os.kill(victim[0], signal.SIGKILL)
    read_within(read, 3)
    took = time.monotonic() - killed
    os.close(read)
    assert took < 1, f"seen after {took:.2f} s"
    expect(job, 137)


def test_departure():
    """Who waits for a rank that left is told; who was in the same barrier is
    not disturbed by its leaving."""
    out = expect(start(4, "open", "3:close", "3:exit=0", "barrier", "close",
                       options=["--keep-going"]), 0)
    assert out.count("barrier WEFT_ECLOSED") == 3, out
    for n in (2, 2, 2, 3, 3, 3, 16):
        assert expect(start(n, "open", "barrier", "barrier", "close"), 0) == ""


def test_stopped_is_slow():
    """A stopped rank is waited for, and goes on where it was."""
    read, write = os.pipe()
    go, push = os.pipe()
    job = start(3, "open", f"ready={write}", f"1:wait={go}", "barrier", "gather", "close",
                pass_fds=[write, go])
    read_within(read, 3)
    stopped = [pid for pid in job.members() if rank_of(pid) == 1][0]
    os.kill(stopped, signal.SIGSTOP)
    os.write(push, b"g")
    time.sleep(1.5)  # how long it is stopped: longer than a death takes to be seen
    assert job.process.poll() is None, "somebody gave up"
    os.kill(stopped, signal.SIGCONT)
    assert expect(job, 0) == ""
    for fd in (read, write, go, push):
        os.close(fd)


def rank_of(pid):
    """The rank that [pid] is, if it is one and not a launcher."""
    with open(f"/proc/{pid}/comm", encoding="ascii") as f:
        if f.read().strip() != "member":
            return None
    with open(f"/proc/{pid}/environ", "rb") as f:
        for entry in f.read().split(b"\0"):
            if entry.startswith(b"PMIX_RANK="):
                return int(entry[10:])
    return None


def test_broken_environment():
    """Half a launcher's variables: an error, not a crash or a job of one."""
    got, out, _ = Job([MEMBER, "open"], env={"PMIX_RANK": "0", "PMIX_NAMESPACE": "x"}).finish()
    assert got == 1 and re.search("open WEFT_(ESYSTEM|ENOJOB)", out), out


if __name__ == "__main__":
    if LAUNCHER == "mpirun" and not shutil.which("mpirun"):
        print("no mpirun: install openmpi-bin")
        sys.exit(77)
    tests = {"alone": [test_everything, test_storm, test_names, test_again, test_broken_environment],
             "mpirun": [test_everything, test_storm, test_names]}
    harness.main(tests.get(LAUNCHER) or
                 [f for name, f in list(globals().items()) if name.startswith("test_")])
