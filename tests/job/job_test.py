#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The job: collectives, deaths and departures, under weft run, under mpirun and without a launcher;
and as jobs of several nodes: over shared memory, with a member whose ranks are grouped into nodes
(grouped.c), and over TCP, the node service or RDMA, each rank on its own.

usage: job_test.py WEFT MEMBER [alone|run|mpirun|nodes NODES...|tcp|node|rdma]"""

import contextlib
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
              "close-owned", "close-in-flight", "inside", "close"]
NODES = sys.argv[4:]  # JOB_TEST_NODES
NETWORKS = {"tcp": "tcp", "node": "loop,node", "rdma": "loop,rdma"}  # WEFT_TRANSPORTS
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def start(n, *words, options=(), **kw):
    if LAUNCHER == "alone":
        return Job([MEMBER, *words], **kw)
    if LAUNCHER == "mpirun":
        kw["env"] = {**MPI, **kw.get("env", {})}
        return Job(["mpirun", "--oversubscribe", "-n", str(n), MEMBER, *words], **kw)
    return Job([WEFT, "run", "-n", str(n), *options, "--", MEMBER, *words], **kw)


def expect(job, code, deadline=harness.DEADLINE):
    got, out, err = job.finish(deadline)
    assert "WRONG" not in out, out
    assert not re.search(r"killed by signal (4|6|7|8|11)\b", err), f"{err}{out}"
    assert got == code, f"code {got}, not {code}\n{out}{err}"
    return out


def expect_silence(job):
    """All ranks end with code 0, and print no error."""
    out = expect(job, 0)
    assert out == "", out


def sizes():
    return {"alone": (1,), "run": (1, 2, 3, 4, 7, 16), "nodes": (2, 3, 4, 7, 12),
            "tcp": (2, 3, 5), "node": (2, 3, 5), "rdma": (2, 3), "mpirun": (2, 4)}[LAUNCHER]


def late_rank():
    """One that others need not see in a call of Weft's: not the lowest of its node."""
    nodes = os.environ["JOB_TEST_NODES"] if LAUNCHER == "nodes" else LAUNCHER
    return {"1": None, "2": 1, "%3": 3, "tcp": None, "node": None, "rdma": None}.get(nodes, 0)


def test_everything():
    for n in sizes():
        out = expect(start(n, *EVERYTHING, "say=done"), 0)
        assert out.count("done") == n, out


def test_storm():
    for n in sizes():
        expect(start(n, "open", "storm=3000", "close"), 0)


def test_names():
    """Named, anonymous and mismatched barriers: the same result at every rank, as the names
    require."""
    for seed, n in enumerate(sizes()):
        out = expect(start(n, "open", "split-misuse", "deliver", f"names={seed + 1}", "close"), 0)
        counts = set(re.findall(r"mismatches (\d+)", out))
        assert len(counts) == 1 and (n == 1 or int(counts.pop()) > 100), out


MISMATCHES = [  # what one rank does, and what all others do
    (["gather-of=3"], ["barrier"]),
    (["gather-of=16"], ["gather-of=8"]),
    (["meet-memory"], ["gather-of=136"]),
    (["notify=5", "wait-all=5"], ["barrier"]),
    (["gather-of=8"], ["notify=5", "try=5"]),
]


def test_mismatch():
    """Ranks that make different collective calls: EPROTO at each of them, and messages go on."""
    for turn, (odd, others) in enumerate(MISMATCHES):
        for n in (2, 3, 5):
            odd_rank = turn % n
            words = [f"{r}:{w}" for r in range(n) for w in (odd if r == odd_rank else others)]
            out, err = mismatch(n, "open", "barrier", *words, "alive", "close")
            assert len(re.findall("(barrier|gather|memory|wait|try) WEFT_EPROTO", out)) == n, out + err
            assert "WEFT_OK" not in out, out
            assert "must make the same calls in the same order" in err, err
            assert "barrier WEFT_EPROTO" not in out or "barrier" in odd + others, out


def mismatch(n, *words):
    job = start(n, *words)
    out = expect(job, 0)
    return out, Job.last[2]


def test_uneven_service():
    """Of two ranks of a node, one uses the node's service: both end with an error that names the
    variable, whichever of them is rank 0."""
    for first in (0, 1):
        words = [MEMBER, "open"]
        job = Job(["mpirun", "--oversubscribe", "-n", "1", "-x", f"WEFT_NODE={first}", *words, ":",
                   "-n", "1", "-x", f"WEFT_NODE={1 - first}", *words],
                  env={**MPI, "WEFT_TRANSPORTS": "loop,node,tcp"})
        got, out, err = job.finish()
        assert got == 1 and "WEFT_NODE" in err, f"code {got}\n{out}{err}"


def test_mismatch_and_leave():
    """A rank that leaves between the two steps has still made another call."""
    out, err = mismatch(2, "open", "0:notify=5", "0:close", "1:barrier", "1:close")
    assert len(re.findall("barrier WEFT_(EPROTO|ECLOSED)", out)) == 1, out + err


def test_notice_stays():
    """A rank that has notified delays no other, whatever it does next; if it leaves, it has done
    its part."""
    for n in (2, 3, 4):
        if late_rank() is not None and late_rank() < n:
            notice_stays(n, late_rank())
        for step in ("wait-all=5", "try=5"):
            expect_silence(start(n, "open", "notify=5", "0:close", "0:exit=0", step, "close"))


def notice_stays(n, late):
    read, write = os.pipe()
    go, push = os.pipe()
    job = start(n, "open", "notify=5", f"{late}:wait={go}", "wait-all=5", f"ready={write}", "close",
                pass_fds=[write, go])
    read_within(read, n - 1)  # all but the late one, which has not even begun to wait
    os.write(push, b"g")
    expect_silence(job)
    for fd in (read, write, go, push):
        os.close(fd)


def test_leader_leaves_early():
    """A leader that forwards its local ranks' votes and leaves between the steps, before it has
    them, has not done its part: an error, or the barrier passes, and no rank waits for ever."""
    for n in (2, 4):
        read, write = os.pipe()
        go, push = os.pipe()
        job = start(n, "open", f"1:wait={go}", "notify=5", "0:close", f"0:ready={write}", "0:exit=0",
                    "wait-all=5", "close", options=["--keep-going"], pass_fds=[write, go])
        read_within(read, 1)
        os.write(push, b"g")
        out = expect(job, 0)
        assert set(re.findall(r"WEFT_\w+", out)) <= {"WEFT_ECLOSED"}, out
        assert LAUNCHER in ("nodes", *NETWORKS) or not out, out
        for fd in (read, write, go, push):
            os.close(fd)


def test_progress():
    """With a progress thread the calls of a job keep no other thread out."""
    for n in sizes()[:4]:
        expect(start(n, "open", *["beside"] * (n > 1), "names=7", "barrier", "gather", "memory",
                     *["beside"] * (n > 1), "close-deferring", "close", env={"WEFT_PROGRESS": "thread"}), 0)


def test_split_departure():
    for n in (2, 4):
        for step in ("wait-all=5", "try=5"):
            out = expect(start(n, "open", "1:close", "1:exit=0", "notify=5", step, "close"), 0)
            assert out.count("WEFT_ECLOSED") == n - 1, out


def test_split_death():
    """A rank that dies between the steps, or before its notice, ends this barrier or the next at
    every survivor. Its messages to other nodes may be lost: so on several nodes it may be the
    barrier at the end of open."""
    ends = "(barrier|open) WEFT_EPEER" if LAUNCHER in ("nodes", *NETWORKS) else "barrier WEFT_EPEER"
    for n in (2, 3, 4, 16):
        for words in (["notify=5", "1:kill=9", "wait-all=5"], ["1:kill=9"]):
            out = expect(start(n, "open", *words, "split-until-broken", "close",
                               options=["--keep-going"]), 137)
            assert len(re.findall(ends, out)) == n - 1, out
            assert "WEFT_ECLOSED" not in out, out


def test_again():
    """A job can be closed and opened again: nothing of the first is found."""
    for n in sizes()[:4]:
        expect(start(n, "open", "gather", "close", "open", "memory", "close", "open", "close"), 0)


def test_again_without_one():
    """No rank waits for one that has left."""
    out = expect(start(3, "open", "barrier", "close", "1:exit=0", "open", options=["--keep-going"]),
                 1)
    assert out.count("open WEFT_EPEER") == 2, out


# Keep-going is weft run's; mpirun ends the others.

def test_death():
    """Every survivor's barrier fails, also without messages to or from the dead rank."""
    for n in (2, 3, 4, 16):
        out = expect(start(n, "open", f"{n - 1}:kill=9", "until-broken", "close",
                           options=["--keep-going"]), 137)
        assert len(re.findall("(barrier|open) WEFT_EPEER", out)) == n - 1, out


def test_death_is_seen_soon():
    """All report the death before any leaves, without the launcher, which is slower. More ranks
    than have messages with the dead one."""
    n = 12 if LAUNCHER == "nodes" else 4
    read, write = os.pipe()
    go, push = os.pipe()
    job = start(n, "open", "barrier", f"ready={write}", "0:hang", "until-broken", f"ready={write}",
                f"wait={go}", "close", options=["--keep-going"], pass_fds=[write, go])
    os.close(write)
    read_within(read, n)
    victim = [pid for pid in job.members() if rank_of(pid) == 0]
    killed = time.monotonic()
    os.kill(victim[0], signal.SIGKILL)
    read_within(read, n - 1)
    took = time.monotonic() - killed
    os.write(push, b"g" * (n - 1))
    for fd in (read, go, push):
        os.close(fd)
    assert took < (1.5 if LAUNCHER == "tcp" else 1), f"seen after {took:.2f} s"
    expect(job, 137)


def test_departure():
    """A rank that waits for one that left gets an error; a rank in the same barrier is not
    disturbed."""
    out = expect(start(4, "open", "3:close", "3:exit=0", "barrier", "close",
                       options=["--keep-going"]), 0)
    assert out.count("barrier WEFT_ECLOSED") == 3, out
    # It may end any way it likes then.
    out = expect(start(4, "open", "barrier", "2:close", "2:exit=4", "barrier", "close",
                       options=["--keep-going"]), 4)
    assert out.count("barrier WEFT_ECLOSED") == 3, out
    for n in (2, 2, 2, 3, 3, 3, 16):
        expect_silence(start(n, "open", "barrier", "barrier", "close"))


def test_leaving_is_no_loss():
    """Ranks that leave in order, before others that have talked to them or while these leave: no
    peer_down on any transport. Of a rank that dies all others get one."""
    for n in (2, 4):
        expect_silence(start(n, "down", "open", "close-in-flight", "barrier", "close"))
        out = expect(start(n, "down", "open", "close-in-flight", "1:close", "1:exit=0",
                           "until-broken", "close", options=["--keep-going"]), 0)
        assert "down" not in out and out.count("barrier WEFT_ECLOSED") == n - 1, out
    # After a barrier: the word that rank 1 has the message of rank 0 must not end with rank 1.
    out = expect(start(2, "down", "open", "close-in-flight", "barrier", "1:kill=9", "until-broken",
                       "until-down", "close", options=["--keep-going"]), 137)
    assert out.count("down 1 WEFT_EPEER") == 1, out


def test_failure_after_leaving():
    """A rank that left may fail before others have seen its part in their barrier: they still pass
    it, though the launcher has reported the failure."""
    go, push = os.pipe()
    job = start(2, "open", "notify=5", f"0:wait={go}", "wait-all=5", "1:close", "1:exit=4",
                "say=passed", options=["--keep-going"], pass_fds=[go], env={"WEFT_LOG": "info"})
    for line in job.process.stderr:
        if "the launcher reports that rank 1 failed" in line:
            break
    os.write(push, b"g")
    out = expect(job, 4)
    assert "passed" in out and "wait WEFT" not in out, out
    os.close(go)
    os.close(push)


def test_stopped_is_slow():
    """The others wait for a stopped rank, which then continues."""
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
    expect_silence(job)
    for fd in (read, write, go, push):
        os.close(fd)


def listening(pid):
    """The sockets of this process that listen on the network."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}", encoding="ascii") as f:
            inodes |= {line.split()[9] for line in f if line.split()[3] == "0A"}  # LISTEN
    here = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    return here & {f"socket:[{inode}]" for inode in inodes}


def services():
    """The node services of this host."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as f:
            if f.read() == "weft-node\n":
                found.append(pid)
    return found


def test_no_network():
    """Ranks on one node that share memory listen nowhere: those that use a node's service keep its
    sockets for its successor."""
    read, write = os.pipe()
    job = start(2, "open", f"ready={write}", "hang", pass_fds=[write])
    read_within(read, 2)
    kept = {sock for pid in services() for sock in listening(pid)} if LAUNCHER == "node" else set()
    found = [bool(listening(pid) - kept) for pid in job.members() if rank_of(pid) is not None]
    job.process.terminate()
    job.finish()
    assert found == [LAUNCHER in ("tcp", "rdma")] * 2, found


def test_close_unflushed():
    """A short put in flight, neither waited for nor acknowledged, keeps the job open."""
    if LAUNCHER != "tcp":
        return
    (closed, close), (quiet, still) = os.pipe(), os.pipe()
    job = start(2, "open", "share", f"1:ready={still}", f"1:wait={closed}", f"0:wait={quiet}", "unflushed",
                "0:close-unflushed", f"0:ready={close}", "flushed", "close", "say=done",
                pass_fds=[closed, close, quiet, still])
    out = expect(job, 0)
    assert out.count("done") == 2, out


def leave_matched(result, *words):
    """Rank 1 leaves between the steps of a barrier, with a receive posted. Leaving polls: the message is
    matched, and rank 0 is needed for its bytes. [result]: what then becomes of the receive."""
    (sent, offered), (closed, left), (posted, post) = os.pipe(), os.pipe(), os.pipe()
    return closed, start(2, "open", "1:post-receive", "1:notify=5", f"1:ready={post}", f"0:wait={posted}",
                         "0:post-send", "0:notify=5", f"0:ready={offered}", f"1:wait={sent}", "1:close",
                         f"1:{result}", f"1:ready={left}", *words, pass_fds=[sent, offered, left, posted, post])


def test_close_matched():
    """An operation that begins while a rank leaves ends before its endpoint closes."""
    if LAUNCHER != "tcp":
        return
    _, job = leave_matched("received", "0:wait-all=5", "0:sent", "0:close", "say=done")
    out = expect(job, 0)
    assert out.count("done") == 2 and "stay open" not in Job.last[2], out + Job.last[2]


def test_close_matched_in_vain():
    """One that does not end is ended by the close."""
    if LAUNCHER != "tcp":
        return
    closed, job = leave_matched("cancelled", "hang")
    read_within(closed, 1)
    job.process.terminate()
    _, out, err = job.finish()
    assert "WRONG" not in out and "stay open" not in err, out + err


def on_nodes(how, test):
    def run():
        os.environ["JOB_TEST_NODES"] = how
        test()
    run.__name__ = f"{test.__name__}[{how}]"
    return run


def rank_of(pid):
    """The rank that [pid] is, if it is one and not a launcher."""
    with open(f"/proc/{pid}/comm", encoding="ascii") as f:
        if f.read().strip() not in ("member", "grouped"):
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
             "mpirun": [test_everything, test_storm, test_names, test_progress, test_mismatch, test_uneven_service]}
    every = [f for name, f in list(globals().items())
             if name.startswith("test_") and f is not test_uneven_service]
    if LAUNCHER in NETWORKS:
        os.environ["WEFT_TRANSPORTS"] = NETWORKS[LAUNCHER]
        os.environ["WEFT_NODE"] = str(int(LAUNCHER == "node"))
    if LAUNCHER == "rdma":  # on emulated processors: not those that look at the clock, or start 16 ranks
        every = [f for f in every if f not in (test_death, test_death_is_seen_soon, test_split_death,
                                               test_departure, test_stopped_is_slow)]
    if LAUNCHER == "nodes":
        every = [on_nodes(how, f) for how in NODES for f in every]
    harness.main(tests.get(LAUNCHER) or every)
