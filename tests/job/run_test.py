#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""weft run: ranks that leave or fail, exit codes, and no process that is left.

usage: run_test.py WEFT MEMBER"""

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time

import harness
from harness import Job, files, read_within

WEFT, MEMBER = sys.argv[1:3]
CPUS = len(os.sched_getaffinity(0))


def run(*args, **kw):
    """weft run ARGS to its end: (code, output, errors); nothing may be left."""
    job = Job([WEFT, "run", *args], **kw)
    result = job.finish()
    assert job.gone_within(1), f"processes left after {args}"
    return result


def member(n, *words, options=(), **kw):
    return run("-n", str(n), *options, "--", MEMBER, *words, **kw)


def expect(result, code, pattern="", absent=None):
    got, out, err = result
    assert got == code, f"code {got}, not {code}\n{out}{err}"
    assert re.search(pattern, err), f"{pattern!r} not printed\n{err}"
    assert absent is None or absent not in err, f"{absent!r} printed\n{err}"
    assert "WRONG" not in out, out
    return out


# ---- codes ----

# words, code, output; 4 ranks
CODES = [
    (["open", "barrier", "close"], 0, r"\A\Z"),
    (["say=plain"], 0, r"\A\Z"),
    (["exit=3"], 3, r"rank \d \(pid \d+\) exited with code 3; ending the job"),
    (["2:exit=3"], 3, r"rank 2 \(pid \d+\) exited with code 3; ending the job"),
    (["2:exit=3", "hang"], 3, r"rank 2 .* exited with code 3"),
    (["1:kill=9", "hang"], 137, r"rank 1 .* was killed by SIGKILL; ending the job"),
    (["1:kill=10", "hang"], 138, r"rank 1 .* was killed by SIGUSR1"),
    (["open", "3:exit=0", "hang"], 1, r"rank 3 .* exited with code 0 without weft_job_close"),
    (["open", "3:exit=255", "hang"], 255, r"rank 3 .* exited with code 255"),
    (["open", "barrier", "close", "1:exit=4"], 4, r"rank 1 .* exited with code 4"),
    (["open", "barrier", "close", "1:kill=15"], 143, r"rank 1 .* was killed by SIGTERM"),
    (["3:exit=0", "open", "hang"], 1, r"rank 3 .* without weft_job_open, which other ranks"),
    (["open", "2:abort=9", "hang"], 9, r"rank 2 .* aborted the job with code 9: asked to"),
    (["open", "2:abort=0", "hang"], 0, r"rank 2 .* aborted the job with code 0"),
    (["open", "close", "open", "barrier", "close"], 0, r"\A\Z"),
    (["open", "close", "open", "1:exit=0", "hang"], 1, r"rank 1 .* without weft_job_close"),
]


def test_codes():
    for words, code, pattern in CODES:
        expect(member(4, *words), code, pattern)


def test_one_line_per_failure():
    """What a failure drags along is not reported."""
    got = member(4, "open", "1:kill=9", "until-broken", "exit=5")
    expect(got, 137)
    assert len(got[2].splitlines()) == 1, got[2]


def test_lines_are_whole():
    """Ranks write to the same file: a line of weft run is one write."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        code = subprocess.run([WEFT, "run", "-n", "3", "--keep-going", "--", MEMBER, "open",
                               "1:kill=9", "until-broken", "exit=5"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=theirs,
                              timeout=harness.DEADLINE).returncode
        theirs.close()
        writes = []
        while more := ours.recv(65536):
            writes.append(more.decode())
    assert code == 137 and len(writes) == 3, writes
    assert all(w.startswith("weft run: rank ") and w.endswith("\n") for w in writes), writes


def test_first_failure_is_the_cause():
    """Survivors exit at once with codes of their own; the killed rank counts."""
    for victim in (0, 3):
        expect(member(4, "open", f"{victim}:kill=9", "until-broken", "exit=5"), 137,
               f"rank {victim} ")


def test_keep_going():
    out = expect(member(4, "open", "1:kill=9", "until-broken", "close", options=["--keep-going"]),
                 137, r"rank 1 .* killed by SIGKILL; keeping the others running")
    assert out.count("barrier WEFT_EPEER") == 3, out
    out = expect(member(4, "2:exit=6", "say=went on", options=["--keep-going"]), 6)
    assert out.count("went on") == 3, out
    expect(member(4, "open", "2:abort=8", "hang", options=["--keep-going"]), 8)


def test_dead_member_of_a_fence():
    """A rank that never opens the job soon fails the others' weft_job_open, however it ended and
    whichever process holds its connection."""
    for first in (["1:exit=5"], ["1:kill=9"], ["1:exit=0"], ["1:orphan", "1:kill=9"]):
        start = time.monotonic()
        out = expect(member(4, *first, "open", "close", options=["--keep-going"]),
                     {"1:exit=5": 5, "1:exit=0": 1}.get(first[0], 137))
        assert out.count("open WEFT_EPEER") == 3, out
        # WEFT_JOB_TIMEOUT is 30 s.
        assert time.monotonic() - start < 15, "the others waited too long"


def test_job_timeout():
    """A rank that is just late is waited for, but not longer than
    WEFT_JOB_TIMEOUT."""
    out = expect(member(3, "1:hang", "open", env={"WEFT_JOB_TIMEOUT": "3000"}), 1,
                 r"not all of the 3 ranks opened the job in time")
    assert "open WEFT_ETIMEDOUT" in out, out


# ---- what a rank gets ----

def test_stdin():
    read, write = os.pipe()
    os.write(write, b"hello\n")
    os.close(write)
    out = expect(run("-n", "2", "--", "sh", "-c", "cat; echo", stdin=read), 0)
    os.close(read)
    assert sorted(out.split()) == ["hello"], out
    out = expect(run("-n", "3", "--", "readlink", "/proc/self/fd/0"), 0)
    assert out.count("/dev/null") >= 2, out


def test_descriptors():
    """Ranks inherit the descriptors of weft run, and none of its own."""
    read, write = os.pipe()
    out = expect(run("-n", "3", "--", "ls", "-m", "/proc/self/fd", pass_fds=[write]), 0)
    os.close(read)
    os.close(write)
    lines = out.splitlines()
    assert len(lines) == 3
    for line in lines:
        fds = {int(fd) for fd in line.split(",")}
        assert write in fds, f"{write} is not in {line}"
        assert len(fds) == 6, f"not 0 1 2, the harness's, ours and ls's own: {line}"


def test_binding():
    def masks(n, *options):
        out = expect(run("-n", str(n), *options, "--", "grep", "Cpus_allowed_list",
                         "/proc/self/status"), 0)
        return [line.split()[1] for line in out.splitlines()]
    everything = masks(1, "--bind", "none")[0]
    many = masks(CPUS + 1)
    assert many == [everything] * (CPUS + 1), many
    assert masks(2, "--bind=none") == [everything] * 2
    if CPUS >= 2:
        assert len(set(masks(2))) == 2, "two ranks share a core"
        assert len(set(masks(2, "--bind", "core"))) == 2
    expect(run("-n", str(CPUS + 1), "--bind", "core", "true"), 2, r"--bind none lets them share")


def test_environment():
    out = expect(run("-n", "1", "--", "sh", "-c", "echo $HWLOC_COMPONENTS $PMIX_RANK $MINE",
                     env={"HWLOC_COMPONENTS": "-gl", "MINE": "kept", "PMIX_RANK": "77"}), 0)
    assert out.split() == ["-gl", "0", "kept"], out


def test_nested():
    """A job inside a rank of another job is separate."""
    out = expect(run("-n", "2", "--", WEFT, "run", "-n", "2", "--", MEMBER, "open", "barrier",
                     "close", "say=in"), 0)
    assert out.count("in") == 4, out


def test_wrapped():
    """A rank may be a shell's child."""
    expect(run("-n", "2", "--", "sh", "-c", f"{MEMBER} open barrier close; exit 0"), 0, r"\A\Z")
    expect(run("-n", "2", "--", "sh", "-c", f"{MEMBER} open 1:exit=0 hang; exit $?"), 1)


def test_another_jobs_name():
    """A process that does not know the job's name is refused."""
    out = expect(run("-n", "1", "--", "env", "PMIX_NAMESPACE=weft-1-0", MEMBER, "open"), 1)
    assert "open WEFT_ESYSTEM" in out, out


def test_stopped_launcher():
    """weft run is stopped for a while: a rank waits no longer than it should,
    and one that closed the job meanwhile has departed."""
    start = time.monotonic()
    out = expect(run("-n", "1", "--", "sh", "-c", f"kill -STOP $PPID; {MEMBER} open; echo $?; "
                     "kill -CONT $PPID", env={"WEFT_JOB_TIMEOUT": "300"}), 0,
                 "launcher does not answer")
    assert "open WEFT_ETIMEDOUT" in out and time.monotonic() - start < 15, out
    for leave, code in (("close", 0), ("abort=9", 9)):
        ready, is_ready = os.pipe()
        go, say_go = os.pipe()
        script = (f"{MEMBER} open ready={is_ready} wait={go} {leave} & "
                  f"head -c 1 <&{ready} >/dev/null; kill -STOP $PPID; echo >&{say_go}; wait $!; "
                  "code=$?; kill -CONT $PPID; exit $code")
        job = Job([WEFT, "run", "-n", "1", "--", "sh", "-c", script],
                  pass_fds=[ready, is_ready, go, say_go])
        expect(job.finish(), code)
        assert job.gone_within(1)
        for fd in (ready, is_ready, go, say_go):
            os.close(fd)


# ---- the end ----

def ready_job(n, *words, options=(), **popen):
    """A job all of whose ranks have reached [words], then hang."""
    read, write = os.pipe()
    job = Job([WEFT, "run", "-n", str(n), *options, "--", MEMBER, *words, f"ready={write}", "hang"],
              pass_fds=[write], **popen)
    os.close(write)
    read_within(read, n)
    os.close(read)
    return job


def test_signals():
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        job = ready_job(3, "open", "barrier", options=["--keep-going"])
        job.process.send_signal(sig)
        expect(job.finish(5), 128 + sig, f"got {sig.name}; ending the job")
        assert job.gone_within(1)


def test_ignored_signals():
    """What weft run was started to ignore, it ignores (nohup, a shell's background)."""
    job = ready_job(2, "open", "barrier", options=["--keep-going"], preexec_fn=lambda:
                    signal.signal(signal.SIGINT, signal.SIG_IGN))
    job.process.send_signal(signal.SIGINT)
    job.process.terminate()
    expect(job.finish(5), 143, "got SIGTERM; ending the job", absent="SIGINT")


def test_sigterm_comes_once():
    """Many programs take a second one as "at once"."""
    words = ("import os, signal; ends = {signal.SIGTERM}; signal.pthread_sigmask(signal.SIG_BLOCK, ends);"
             "os.write(%d, b'r'); signal.sigwait(ends); print(signal.sigtimedwait(ends, 0.5))")
    read, write = os.pipe()
    job = Job([WEFT, "run", "-n", "1", "--", sys.executable, "-c", words % write], pass_fds=[write])
    read_within(read, 1)
    job.process.terminate()
    assert expect(job.finish(5), 143) == "None\n"
    os.close(read)
    os.close(write)


def test_too_few_descriptors():
    """For the launcher: it reports the reason and ends the processes that it has started."""
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    job = Job([WEFT, "run", "-n", "64", "--", MEMBER, "hang"], preexec_fn=limit)
    expect(job.finish(20), 126, "ulimit -Hn")
    assert job.gone_within(1)


def test_limit_on_descriptors():
    """The launcher takes what it may have; ranks have what it was started with."""
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))
    words = ("import os, resource;"
             "os.write(1, b'%d %d\\n' % resource.getrlimit(resource.RLIMIT_NOFILE))")
    job = Job([WEFT, "run", "-n", "40", "--", sys.executable, "-c", words], preexec_fn=limit)
    assert expect(job.finish(60), 0) == "64 4096\n" * 40


def test_grace():
    """SIGKILL comes two seconds after SIGTERM, or with the second signal."""
    job = ready_job(2, "deaf", "open", "orphan")
    start = time.monotonic()
    job.process.terminate()
    expect(job.finish(15), 143, r"rank 0 .* is still there after SIGTERM")
    assert 1.9 < time.monotonic() - start, "not after two seconds"
    assert job.gone_within(1)
    job = ready_job(2, "deaf", "open")
    start = time.monotonic()
    job.process.terminate()
    line = job.process.stderr.readline()
    assert "SIGTERM" in line, line
    job.process.terminate()
    job.finish(6)
    assert time.monotonic() - start < 1.9, "the second signal did not hurry it"
    assert job.gone_within(1)


def test_stopped_rank_is_ended():
    job = ready_job(2, "open")
    for pid in job.members():
        if pid != job.process.pid:
            with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                if f.read().strip() == "member":
                    os.kill(pid, signal.SIGSTOP)
    job.process.terminate()
    expect(job.finish(6), 143)
    assert job.gone_within(1)


def test_killed_launcher():
    """Ranks, their children and all files go with weft run."""
    before = files()
    for words in (["open"], ["open", "orphan"], ["deaf"], ["deaf", "open", "barrier", "orphan"]):
        job = ready_job(4, *words)
        job.process.kill()
        assert job.process.wait(5) == -9
        assert job.gone_within(3), f"processes left: {words}"
    assert files() == before, files() - before


def test_killed_launcher_early():
    """The same at moments of the start."""
    before = files()
    for step in range(12):
        job = Job([WEFT, "run", "-n", "4", "--", MEMBER, "open", "storm=1000000"])
        time.sleep(step * 0.004)  # the moment to kill at, nothing is waited for
        job.process.kill()
        job.process.wait(5)
        assert job.gone_within(3), f"processes left after {step * 4} ms"
    assert files() == before, files() - before


def comm(pid):
    with open(f"/proc/{pid}/comm", encoding="ascii") as f:
        return f.read().strip()


def parts(job):
    """The processes that weft run is: front, guard, launcher."""
    found = {job.process.pid: "front"}
    for pid in job.members():
        if comm(pid) == "weft-guard":
            found[pid] = "guard"
        elif comm(pid) == "weft" and pid != job.process.pid:
            found[pid] = "launcher"
    assert sorted(found.values()) == ["front", "guard", "launcher"], found
    return {part: pid for pid, part in found.items()}


def test_killed_parts():
    """If any process of weft run is killed, also all that a signal to its group reaches, the ranks
    end, and so do their descendants, even detached ones."""
    for victim in ("front", "guard", "launcher", "group"):
        for words in (["open", "barrier", "daemon"], ["deaf", "orphan", "1:daemon"]):
            job = ready_job(3, *words, process_group=0)
            if victim == "group":
                os.killpg(job.process.pid, signal.SIGKILL)
            else:
                os.kill(parts(job)[victim], signal.SIGKILL)
            code, _, err = job.finish(5)
            assert code == (137 if victim in ("guard", "launcher") else -9), code
            assert victim in ("front", "group") or "killed by SIGKILL; the job is ended" in err, err
            assert job.gone_within(3), f"processes left: {victim} {words}"


def test_daemons():
    """They end with the job, however that ends."""
    expect(member(3, "open", "daemon", "barrier", "close"), 0, r"\A\Z")
    start = time.monotonic()
    expect(member(3, "open", "barrier", "daemon", "1:exit=4", "hang"), 4)
    assert time.monotonic() - start < 15
    job = ready_job(2, "daemon", "open")
    job.process.terminate()
    expect(job.finish(6), 143)
    assert job.gone_within(1)


def test_group_signal():
    """A terminal's signal goes to the whole group: it is one signal still."""
    job = ready_job(2, "deaf", "open", process_group=0)
    start = time.monotonic()
    os.killpg(job.process.pid, signal.SIGTERM)
    expect(job.finish(6), 143)
    assert time.monotonic() - start > 1.9, "taken for two signals"
    assert job.gone_within(1)


def test_nothing_left():
    before = files()
    expect(member(4, "open", "barrier", "gather", "memory", "close"), 0)
    expect(member(4, "open", "1:kill=9", "hang"), 137)
    expect(member(3, "orphan"), 0)
    assert files() == before, files() - before


# ---- the command line ----

def test_cannot_start():
    for program, code, text in (("/nonexistent/program", 127, "No such file"),
                                ("nonexistent-program", 127, "in PATH"),
                                ("/etc/passwd", 126, "Permission denied"),
                                ("/", 126, "Permission denied")):
        expect(run("-n", "3", "--", program), code, f"cannot start {program} as rank 0: .*{text}")


def test_usage():
    for args, text in ((["--keepgoing", "true"], "did you mean --keep-going"),
                       (["-n", "x", "true"], "must be a number"),
                       (["-n", "0", "true"], "must be a number"),
                       (["-n"], "needs a number"),
                       (["true"], "say -n N"),
                       (["-n", "2"], "which program"),
                       (["-n", "2", "--bind", "socket", "true"], "core or none"),
                       (["-n", "2", "--bind"], "core or none"),
                       (["--zzzzzzzzzz"], "unknown option")):
        expect(run(*args), 2, text)
    out = expect(run("--help"), 0)
    assert len(out.splitlines()) <= 30, "help does not fit a screen"
    expect(run("-n2", "--", "true"), 0, r"\A\Z")
    expect(run("-n=2", "sh", "-c", "test $# = 1 && test $1 = --help", "sh", "--help"), 0, r"\A\Z")


def test_tool():
    def tool(*args):
        return subprocess.run([WEFT, *args], capture_output=True, text=True, timeout=30,
                              check=False)
    assert tool("--version").stdout.startswith("weft ")
    assert tool("--help").returncode == 0 and tool("help", "run").returncode == 0
    assert tool().returncode == 2
    assert 'did you mean "run"' in tool("rnu").stderr and tool("rnu").returncode == 2
    info = tool("info")
    assert info.returncode == 0 and "shm" in info.stdout and "open files" in info.stdout
    config = subprocess.run([WEFT, "info", "--config"], capture_output=True, text=True, timeout=30,
                            env={**os.environ, "WEFT_AM_MAX": "1024"}, check=True).stdout
    assert re.search(r"^\* WEFT_AM_MAX +1K +4K ", config, re.M), config
    assert "did you mean --config" in tool("info", "--cofnig").stderr


if __name__ == "__main__":
    if not harness.private_tmp():
        print("no mount namespace: what is left is looked for in TMPDIR only")
        harness.own_tmp()
    harness.main([f for name, f in list(globals().items()) if name.startswith("test_")])
