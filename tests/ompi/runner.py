# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of the component share: a job of mpirun's with the component.

A test is called with the arguments COMPONENT MPIRUN PROGRAMS [WEFT]."""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "job"))
import harness  # pylint: disable=wrong-import-position

DEADLINE = float(os.environ.get("WEFT_TEST_DEADLINE", "60"))
COMPONENT, MPIRUN, PROGRAMS = (os.path.abspath(path) for path in sys.argv[1:4])
WEFT = sys.argv[4:]  # the tool
ENV = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_mca_base_component_path": os.path.dirname(COMPONENT) + ":SYS_DEFAULT",
       # Open MPI unloads it at the end, with memory that it never frees: LeakSanitizer cannot name it then.
       "OMPI_MCA_op": "^avx"}
ALONE = "self,weft"
# The component has few descriptors.
FEW = {f"btl_weft_free_list_{name}": value for name, value in (("num", 2), ("max", 8), ("inc", 2))}
TCP = {"WEFT_TRANSPORTS": "loop,tcp", "WEFT_TCP_INTERFACES": "lo"}


def start(ranks, program, *args, env=None, btl=ALONE, words=(), **mca):
    """Start a job. LeakSanitizer does not look at some kinds. Where mpirun oversubscribes the processors, it
    takes more than 10 s for what Open MPI has unloaded. And Open MPI never frees all that it has of the
    ranks of another job, or of one that some ranks reach by other components."""
    if ranks > 2 or ":" in args or program == "ompi_spawn":
        env = {**(env or {}), "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
    mca = {"pml": "ob1", "btl": btl, **mca}
    mca = [word for name, value in mca.items() for word in ("--mca", name, str(value))]
    return harness.Job([MPIRUN, "-n", str(ranks), "--oversubscribe", *words, *mca,
                        os.path.join(PROGRAMS, program), *args], env={**ENV, **(env or {})})


def shared():
    """Weft's files in shared memory."""
    return {name for name in os.listdir("/dev/shm") if "weft" in name}


def pids_of(stream, ranks):
    """The processes of the ranks of a job that writes to [stream], when all of them exchange messages."""
    pids = {}
    while len(pids) < ranks:
        line = stream.readline()
        assert line, "the ranks have ended"
        if line.startswith("running "):
            pids[int(line.split()[1])] = int(line.split()[2])
    return pids


def kill_one(after, rank, env=None):
    """Kill one of three ranks, [after] seconds after they began to exchange messages and access each
    other's memory: mpirun ends within 5 s with the code of that rank, and nothing is left."""
    before = shared()
    job = start(3, "ompi_end", "mixed", env=env, osc="rdma")
    pids = pids_of(job.process.stderr, 3)
    time.sleep(after)
    os.kill(pids[rank], signal.SIGKILL)
    code, _, err = job.finish(5)
    assert code == 128 + signal.SIGKILL, (code, err)
    assert job.gone_within(5), f"processes are left: {job.members()}"
    assert shared() == before, f"{shared() - before} is left"


def stop(pid):
    """Stop a process. Returns when it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + DEADLINE
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        while stat.read().rsplit(")", 1)[1].split()[0] != "T":
            assert time.monotonic() < end, f"{pid} does not stop"
            stat.seek(0)


def stop_ranks(seconds, stops):
    """Stop ranks for [seconds]. For each (after, rank, env) of [stops] there is a job of three ranks, all
    at the same time. Its [rank] is stopped [after] seconds after the ranks began to exchange messages
    and access each other's memory. A stopped rank is slow, not dead: all jobs go on, until they are
    asked to end, with no message and no access missing."""
    jobs = [start(3, "ompi_end", "until", env=env, osc="rdma") for _, _, env in stops]
    try:
        pids = [pids_of(job.process.stderr, 3) for job in jobs]
        for (after, rank, _), of_rank in zip(stops, pids):
            time.sleep(after)
            stop(of_rank[rank])
        time.sleep(seconds)
        for (_, rank, _), of_rank in zip(stops, pids):
            os.kill(of_rank[rank], signal.SIGCONT)
        for (after, rank, env), of_rank, job in zip(stops, pids, jobs):
            os.kill(of_rank[0], signal.SIGUSR1)
            code, out, err = job.finish()
            assert code == 0 and out == "ok\n", (after, rank, env, code, out, err)
    finally:
        for pid in [pid for job in jobs for pid in job.members()]:
            os.kill(pid, signal.SIGKILL)


def good(*args, **kwargs):
    """A job that prints "ok"; returns what it writes to stderr."""
    code, out, err = start(*args, **kwargs).finish(DEADLINE)
    tail = "\n".join(err.splitlines()[-20:])
    assert code == 0 and out == "ok\n", f"{args}, {kwargs}: code {code}\n{out}{tail}"
    return err
