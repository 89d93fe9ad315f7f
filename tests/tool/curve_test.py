# SPDX-License-Identifier: BSD-3-Clause
"""`weft perf curve`: its files agree, its verdicts are right beside a library of which the times are
known, and what was measured before a signal stays.

usage: curve_test.py WEFT pmix|alone"""

import csv
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

from tool_test import JOBS, WEFT, harness, has_tcp, run


def curve_help_fits_a_screen():
    code, out, err = run("perf", "curve", "--help")
    assert code == 0 and not err and "--from N --to N" in out, out
    lines = out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) < 80, out


def spread_fits(row, name):
    low, middle, high = (float(row[name.replace("weft", "weft" + which)]) for which in ("_low", "", "_high"))
    assert 0 < low <= middle <= high, row


def curve_rows(where):
    with open(where, newline="", encoding="ascii") as f:
        found = list(csv.DictReader(f))
    for row in found:
        assert None not in row and None not in row.values(), row  # as many fields as names
        spread_fits(row, "weft_ns")
    return found


def curve_objects(where):
    with open(where, encoding="ascii") as f:
        return [json.loads(line) for line in f]


def curve_writes_files():
    """Weft alone: a line, an object and a row of the table for each point, and a panel a test."""
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, "it's." + kind) for kind in ("csv", "json", "svg")]
        draws = ("--svg", files[2]) if shutil.which("gnuplot") else ()
        code, out, err = run("perf", "curve", "msg_lat", "put_lat", "--from", "4", "--to", "16", "--peers",
                             "none", "--pairs", "3", "--iters", "20", "--csv", files[0], "--json=" + files[1],
                             *draws)
        assert code == 0 and "5 points" in err, (code, out, err)
        points = [(test, size) for test, sizes in (("msg_lat", (4, 8, 16)), ("put_lat", (8, 16)))
                  for size in sizes]
        lines, objects = curve_rows(files[0]), curve_objects(files[1])
        curve_agrees(points, lines, [o for o in objects if o["test"] == "curve"])
        for test, size in points:
            assert [line for line in out.splitlines() if line.split()[:2] == [test, str(size)]], out
        end = objects[-1]
        assert end["test"] == "curve_end" and end["points"] == 5 and end["interrupted"] is False, end
        assert end["steps"] == sum(o["test"] == "step" for o in objects), objects
        if draws:
            picture = xml.etree.ElementTree.parse(files[2]).getroot()
            text = " ".join("".join(part.itertext()) for part in picture.iter())
            for word in ("msg_lat over shm", "put_lat over shm", "Weft", "size", "time of an operation", "16 B"):
                assert word in text, word


def curve_agrees(points, lines, objects):
    """Are these the points, with the same figures in both files?"""
    assert [(row["test"], int(row["size"])) for row in lines] == points, lines
    assert [(o["what"], o["size"]) for o in objects] == points, objects
    for row, o in zip(lines, objects):
        assert (row["with"], row["transport"], row["pairs"], row["ratio"], row["verdict"]) == (
            "", "shm", "3", "", ""), row
        assert o["runs"] == 3 and len(o["weft_values"]) == 3, o
        assert sorted(o["weft_values"])[1] == o["weft_ns"] == float(row["weft_ns"]), (row, o)


FAKE = """#!{python}
# In place of UCX's benchmark: slow below 32 bytes, impossibly fast there, none of 64 bytes and more.
import os, socket, sys
words = sys.argv[1:]
port = int(words[words.index("-p") + 1])
if "127.0.0.1" not in words and "localhost" not in words:
    socket.create_server(("127.0.0.1", port)).accept()
    sys.exit(0)
size = int(words[words.index("-s") + 1])
socket.create_connection(("127.0.0.1", port))
if size >= 64:
    sys.exit(f'"{{size}}" bytes are too many')
us = float(os.environ.get("FAKE_US", 1e9 if size < 32 else 1e-6))
print("iterations,50.0_percentile_lat,overall_bw")
print("10,%f,1" % us)
"""


def curve_judges():
    """Beside a library of which the times are known."""
    if os.cpu_count() < 2:
        return
    with tempfile.TemporaryDirectory() as folder:
        fake, lines, objects = (os.path.join(folder, name) for name in ("ucx_perftest", "a.csv", "a.json"))
        with open(fake, "w", encoding="ascii") as f:
            f.write(FAKE.format(python=sys.executable))
        os.chmod(fake, 0o755)
        words = ("perf", "curve", "msg_lat", "--peers", "ucx", "--iters", "20")
        sizes = ("--from", "16", "--to", "128", "--pairs", "2", "--csv", lines, "--json=" + objects)
        env = {**os.environ, "PATH": folder + ":" + os.environ["PATH"]}
        code, out, err = run(*words, *sizes, env=env)
        assert code == 0 and err.count("UCX is left out of msg_lat from 64 bytes on") == 1, (code, err)
        found = [(row["size"], row["verdict"]) for row in curve_rows(lines) if row["with"] == "ucx"]
        assert found == [("16", "met"), ("32", "MISSED")], found
        curve_is_consistent([o for o in curve_objects(objects) if "ratios" in o and o["test"] == "curve"])
        (left_out,) = [o for o in curve_objects(objects) if "left_out" in o]
        assert left_out["size"] == 64 and '"64" bytes are too many' in left_out["left_out"], left_out
        table = {line.split()[1]: line for line in out.split("Missed beside")[0].splitlines()
                 if line.startswith("msg_lat ")}
        assert table["16"].endswith("  met") and table["32"].endswith("  MISSED: UCX"), out
        assert table["64"].split()[4:] == table["128"].split()[4:] == ["-", "-", "-"], out
        assert "Missed beside a library: 1 of 2" in out, out
        for size, strict in (("16", 0), ("32", 1)):
            code, out, err = run(*words, "--from", size, "--to", size, "--pairs", "1", "--strict", env=env)
            assert code == strict and ("MISSED" in out) == bool(strict), (code, out, err)
        for us in ("0", "inf"):  # neither has a ratio that JSON can have
            code, out, err = run(*words, "--from", "16", "--to", "16", "--pairs", "1", "--json=" + objects,
                                 env={**env, "FAKE_US": us})
            assert code == 0 and "printed no figure" in err, (code, err)
            assert not [o for o in curve_objects(objects) if "ratios" in o and o["test"] == "curve"], us


def curve_beside_what_is_installed():
    """Each counterpart runs, and prints what is understood."""
    peers = [name for name, program in (("ucx", "ucx_perftest"), ("libfabric", "fi_pingpong"),
                                        ("openmpi", "mpirun.openmpi"), ("mpich", "mpirun.mpich"))
             if shutil.which(program)]
    if os.cpu_count() < 2 or not peers:
        return
    with tempfile.TemporaryDirectory() as folder:
        objects = os.path.join(folder, "a.json")
        code, out, err = run("perf", "curve", "--from", "8", "--to", "32", "--pairs", "1", "--iters", "1000", "--peers",
                             ",".join(peers), "--json=" + objects, timeout=4 * harness.DEADLINE)
        if "built without" in err:
            return
        assert code == 0 and not any("left_out" in o for o in curve_objects(objects)), (code, err)
        pairs = [o for o in curve_objects(objects) if "ratios" in o and o["test"] == "curve"]
        found = {(o["with"], o["what"]) for o in pairs}
        for peer in peers:
            assert (peer, "msg_lat") in found and (peer, "msg_rate") in found, found
        figures = {}  # a run has several sizes, each with figures of its own
        for with_what in found:
            sizes = [o["size"] for o in pairs if (o["with"], o["what"]) == with_what]
            assert sizes == [8, 16, 32], (with_what, sizes)
            figures[with_what] = len({o["other_ns"] for o in pairs if (o["with"], o["what"]) == with_what})
        for peer in peers:  # so few turns, rounded, may be equal by chance in one test, not in all
            assert max(n for with_what, n in figures.items() if with_what[0] == peer) > 1, figures
        assert {o["runs"] for o in curve_objects(objects) if "runs" in o} == {1}  # Weft once a round
        assert "openmpi" not in peers or {("openmpi", t) for t in ("msg_sendrecv", "put_lat", "get_rate")} <= found
        assert "mpich" not in peers or {("mpich", t) for t in ("msg_sendrecv", "put_lat", "get_rate")} <= found
        assert ("libfabric" in peers) == ("libfabric has no counterpart of am_echo, msg_sendrecv\n" in err), err


AGENT = """#!/bin/sh
echo "$*" >>"{log}"
shift
exec sh -c "$*"
"""


def curve_on_hosts():
    """An agent starts the other library's programs, each on its host and core; mpirun starts Weft.
    The cores are 0 and 1, which the machine has to have, and this process to be allowed."""
    if not shutil.which("mpirun.openmpi") or not {0, 1} <= os.sched_getaffinity(0):
        return
    with tempfile.TemporaryDirectory() as folder:
        agent, log, lines = (os.path.join(folder, name) for name in ("agent", "log", "a.csv"))
        for name, text in (("agent", AGENT.format(log=log)), ("ucx_perftest", FAKE.format(python=sys.executable))):
            with open(os.path.join(folder, name), "w", encoding="ascii") as f:
                f.write(text)
            os.chmod(os.path.join(folder, name), 0o755)
        code, out, err = run("perf", "curve", "msg_lat", "--transport", "tcp", "--hosts", "localhost,localhost",
                             "--agent", agent, "--from", "16", "--to", "16", "--peers", "ucx", "--pairs", "1",
                             "--iters", "20", "--csv", lines,
                             env={**os.environ, "PATH": folder + ":" + os.environ["PATH"]})
        assert code == 0 and "Between localhost and localhost" in out, (code, out, err)
        assert [row["with"] for row in curve_rows(lines)] == ["ucx", ""], out
        with open(log, encoding="ascii") as f:
            called = [line for line in f.read().splitlines() if "ucx_perftest" in line]
        assert len(called) == 2 and all("UCX_TLS=tcp" in line for line in called), called
        assert "taskset -c 0" in called[0] and "taskset -c 1" in called[1], called
        assert " localhost " not in called[0][10:] and " localhost " in called[1][10:], called


def curve_is_consistent(besides):
    assert [o["verdict"] for o in besides] == ["met", "MISSED"], besides
    for o in besides:
        assert o["pairs"] == len(o["ratios"]) == 2 and o["theirs"] == "tag_lat", o
        for ratio, ours, theirs in zip(o["ratios"], o["weft_values"], o["other_values"]):
            assert abs(ratio - ours / theirs) <= 0.0001 + 0.01 * ratio, o


def lines_of(where):
    """How many there are, also while the file is written."""
    if not os.path.exists(where):
        return 0
    with open(where, "rb") as f:
        return f.read().count(b"\n")


def curve_keeps_what_is_measured():
    """A signal to the command alone, as its children would not get one."""
    with tempfile.TemporaryDirectory() as folder:
        lines, objects = os.path.join(folder, "a.csv"), os.path.join(folder, "a.json")
        job = subprocess.Popen([WEFT, "perf", "curve", "--peers", "none", "--pairs", "1", "--csv", lines,
                                "--json=" + objects], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + harness.DEADLINE
        while (written := lines_of(lines)) < 3:
            assert time.monotonic() < end and job.poll() is None, "nothing was written"
        assert written < 20, "points are written late"
        job.send_signal(signal.SIGINT)
        out, err = job.communicate(timeout=harness.DEADLINE)
        found = curve_objects(objects)
        assert job.returncode == 130 and "interrupted" in err, (job.returncode, err)
        points = [o for o in found if o["test"] == "curve" and o["with"] == "" and "runs" in o]
        assert len(curve_rows(lines)) == len(points) >= 2, found
        assert found[-1]["interrupted"] is True and found[-1]["points"] == len(points), found
        assert "Steps" in out, out


def curve_ends_what_runs():
    job = subprocess.Popen([WEFT, "perf", "curve", "am_lat", "--peers", "none", "--pairs", "1", "--iters", "1G"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while "Ctrl-C ends it" not in job.stderr.readline():
        assert job.poll() is None, "it ended by itself"
    job.send_signal(signal.SIGTERM)
    out, err = job.communicate(timeout=harness.DEADLINE)
    assert job.returncode == 143 and "0 points" in err, (job.returncode, err)


def libfabric_side_that_fails_leaves_nothing():
    """libfabric's provider shm removes an endpoint's file only when the endpoint is closed."""
    program = os.path.join(os.path.dirname(WEFT), "weft-perf-libfabric")
    if not os.path.exists(program) or not shutil.which("fi_pingpong"):
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        side = subprocess.Popen([program, "shm", "tagged_lat", "8:1", str(server.getsockname()[1]), "call",
                                 "127.0.0.1"], stderr=subprocess.PIPE, text=True)
        server.settimeout(harness.DEADLINE)
        connection = server.accept()[0]
        connection.settimeout(harness.DEADLINE)
        assert connection.recv(1), "no endpoint"  # the endpoint's name
        connection.close()
    _, err = side.communicate(timeout=harness.DEADLINE)
    left = [name for name in os.listdir("/dev/shm") if name.split(":")[0] == str(side.pid)]
    assert side.returncode == 1 and not left, (side.returncode, err, left)


IN_JOBS = [curve_writes_files, curve_judges, curve_beside_what_is_installed,
           curve_keeps_what_is_measured, curve_ends_what_runs]

if __name__ == "__main__":
    harness.main([curve_help_fits_a_screen, libfabric_side_that_fails_leaves_nothing] + (IN_JOBS if JOBS else []) +
                 ([curve_on_hosts] if JOBS and has_tcp() else []))
