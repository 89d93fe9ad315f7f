# SPDX-License-Identifier: BSD-3-Clause
"""The command `weft`: every test of `weft perf` with few iterations, counters of
running processes, help that fits a screen, answers to wrong options.

usage: tool_test.py WEFT pmix|alone|rdma      rdma: what goes over a device, and nothing else"""

import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "job"))
import harness  # noqa: E402

WEFT = os.path.abspath(sys.argv[1])
JOBS = sys.argv[2] == "pmix"
NOBODY = 65534
TCP = False  # is it built in, and usable here?
RDMA = False  # is it built in? The device that moves nothing is always there
TESTS = {  # what each prints
    "am_lat": "lat_ns", "am_rate": "rate_mps", "am_echo": "lat_ns", "put_lat": "lat_ns", "put_rate": "rate_mps",
    "get_lat": "lat_ns", "get_rate": "rate_mps", "put_bw": "gbs", "get_bw": "gbs",
    "msg_lat": "lat_ns", "msg_sendrecv": "lat_ns", "msg_rate": "rate_mps", "msg_bw": "gbs", "atomic_lat": "lat_ns",
    "barrier": "lat_ns",
}


def run(*arguments, timeout=harness.DEADLINE, **popen):
    """(code, output, errors) of weft with these arguments."""
    done = subprocess.run([WEFT, *arguments], capture_output=True, text=True,
                          timeout=timeout, stdin=subprocess.DEVNULL, check=False, **popen)
    return done.returncode, done.stdout, done.stderr


def pair(*arguments, **popen):
    return run("run", "-n", "2", "--", WEFT, *arguments, **popen)


def rows(result):
    code, out, err = result
    assert code == 0, f"exit code {code}: {err}"
    return [json.loads(line) for line in out.splitlines()]


def has_tcp():
    code, out, _ = run("info")
    return any(line.split()[:2] == ["tcp", "usable"] for line in out.splitlines())


def has_rdma():
    code, out, _ = run("info", env={**os.environ, "WEFT_DEBUG": "nullnic"})
    return any(line.split()[:2] == ["rdma", "usable"] for line in out.splitlines())


def refused(result, *words):
    code, out, err = result
    assert code == 2, f"exit code {code}: {out}{err}"
    for word in words:
        assert word in err, f"{word!r} is not in: {err}"


def help_fits_a_screen():
    for command in ([], *([["run"]] if JOBS else []), ["info"], ["perf"], ["explain"]):
        code, out, err = run(*command, "--help")
        assert code == 0 and not err, command
        lines = out.splitlines()
        assert len(lines) <= 24, f"{command}: {len(lines)} lines"
        assert max(map(len, lines)) < 80, f"{command}: {max(lines, key=len)}"
        if command:
            assert (0, out, "") == run("help", *command), command


def wrong_words_are_answered():
    refused(run("prf"), 'did you mean "perf"?')
    refused(run("perf", "am_lta"), 'did you mean "am_lat"?')
    refused(run("perf", "am_lat", "--pair", "3"), 'did you mean "--pairs"?')
    refused(run("perf", "compare", "ucxx"), 'did you mean "ucx"?')
    refused(run("perf", "am_lat", "--size", "0"), "--size 0")
    refused(run("perf", "am_lat", "--time", "0"), "--time 0", "milliseconds")
    refused(run("perf", "am_lat", "--time", "5", "--iters", "5"), "--time and --iters", "one of them")
    refused(run("perf", "am_lat", "--plot", "x.svg"), "--plot", "--size 8:1M")
    refused(run("perf", "am_lat", "--size", "8:64", "--plot", "x.png"), "ends in .svg")
    refused(run("perf", "atomic_lat", "--size", "16"), "8 bytes")
    refused(run("perf", "mem", "--pairs", "2"), "mem takes no option but --json")
    refused(run("perf", "mem", "--transport", "tcp"), "mem takes no option but --json")
    refused(run("perf", "am_lat", "--transport", "tpc"), "--transport tpc", "shm, tcp or rdma")
    curve = "perf", "curve"
    refused(run(*curve, "--peer", "ucx"), 'did you mean "--peers"?')
    refused(run(*curve, "--peers", "ucxx"), 'did you mean "ucx"?')
    refused(run(*curve, "--peers", "ucx,"), "--peers ucx,", "ucx,openmpi, or none")
    refused(run(*curve, "--from", "3"), "--from 3", "power of two")
    refused(run(*curve, "--from", "8", "--to", "4"), "--from 8 --to 4")
    refused(run(*curve, "put_lat", "--to", "4"), "put_lat", "at least")
    refused(run(*curve, "barrier"), "barrier has one size only")
    refused(run(*curve, "--size", "8"), "--from and --to instead of --size")
    refused(run(*curve, "--svg", "x.png"), "ends in .svg", "folder")
    refused(run(*curve, "compare"), "name a test")
    refused(run(*curve, "--transport", "tcp", "--hosts", "alpha"), "--hosts alpha", "two names")
    refused(run(*curve, "--hosts", "alpha,beta"), "--transport tcp or rdma")
    refused(run(*curve, "--agent", "x"), "give --hosts")
    refused(run("perf", "am_lat", "--peers", "none"), "--peers is an option of weft perf curve")
    refused(run("perf", "am_lat", "--json=x"), "only curve writes to a file")
    code, out, err = run(*curve, "--csv", "/nowhere/x.csv")
    assert code == 1 and "--csv /nowhere/x.csv: No such file" in err, err
    refused(run("info", "--stat"), "did you mean --stats?")
    refused(run("info", "--stats", "--jsn"), "did you mean --json?")
    refused(run("info", "--stats", "init"), "no process id")
    refused(run("info", "--resource"), "did you mean --resources?")
    refused(run("info", "--resources", "x"), "--resources x", "1 to 10000")
    refused(run("info", "--resources", "0"), "--resources 0", "1 to 10000")
    refused(run("info", "--resources", "10001", "--json"), "--resources 10001", "1 to 10000")
    refused(run("explain"), "-n SIZE")
    refused(run("explain", "-n", "8", "--per", "1"), "did you mean --peer?")
    refused(run("explain", "-n", "x"), "number of bytes")
    refused(run("explain", "-n", "8", "--peer", "3"), "ranks 0 to 0", "weft run -n 4")
    if JOBS:
        refused(run("perf", "am_lat"), "Run instead: weft run -n 2 -- weft perf am_lat")


def perf_tests():
    for test, figure in TESTS.items():
        (row,) = rows(pair("perf", test, "--iters", "40", "--json"))
        assert row["test"] == test and row["iters"] == 40, row
        assert row[figure] > 0, row
        mean_is_of_the_whole_time(row)


def mean_is_of_the_whole_time(row):
    """Rates of small messages and barriers are computed from the whole time, too."""
    assert row["mean_ns"] > 0, row
    if row["test"] in ("am_rate", "msg_rate"):
        assert abs(1e3 / row["mean_ns"] - row["rate_mps"]) < 0.01 * row["rate_mps"] + 0.001, row
    if row["test"] == "barrier":
        assert row["mean_ns"] == row["lat_ns"], row


def perf_one_place_again_and_again():
    for test in ("am_rate", "put_rate", "get_rate", "msg_lat", "msg_rate", "msg_sendrecv"):
        for transport in ("shm", "tcp") if TCP else ("shm",):
            (row,) = rows(pair("perf", test, "--cached", "--transport", transport, "--iters", "100", "--json"))
            assert row["test"] == test and row["mean_ns"] > 0, row


def perf_several_tests():
    found = rows(pair("perf", "am_echo", "barrier", "put_lat", "--iters", "40", "--json"))
    assert [row["test"] for row in found] == ["am_echo", "barrier", "put_lat"], found
    assert [row["size"] for row in found] == [8, 0, 8], found
    for words, told in ((("am_lat", "limits"), "limits runs by itself"),
                        (("mem", "am_lat"), "mem runs by itself"),
                        (("am_lat", "barrier", "--size", "64"), "barrier moves no data"),
                        (("am_lat", "put_lat", "--size", "8:64", "--plot", "x.svg"),
                         "draws one test")):
        code, _, err = run("perf", *words)
        assert code == 2 and told in err, (words, code, err)


def perf_tests_over(transport):
    for test, figure in TESTS.items():
        (row,) = rows(pair("perf", test, "--transport", transport, "--iters", "40", "--json"))
        assert row["test"] == test and row["transport"] == transport and row[figure] > 0, row


def perf_tests_by_transport():
    """That it is the transport asked for which carries the bytes is told by the library."""
    for transport in ("shm", "tcp") if TCP else ("shm",):
        perf_tests_over(transport)
        (row,) = rows(run("run", "-n", "5", "--", WEFT, "perf", "barrier", "--transport", transport,
                          "--iters", "20", "--json"))
        assert row["transport"] == transport and row["lat_ns"] > 0, row


def perf_sweeps_over_tcp():
    sizes = {"am_lat": "1:2k", "put_lat": "8:64k", "get_rate": "1:128k", "msg_lat": "1:256k",
             "msg_sendrecv": "1:256k", "msg_rate": "1:16k", "msg_bw": "16k:2M", "put_bw": "4k:4M", "get_bw": "4k:4M"}
    for test, size in sizes.items():
        found = rows(pair("perf", test, "--transport", "tcp", "--iters", "23", "--size", size,
                          "--json"))
        assert len(found) > 6 and all(b["size"] == 2 * a["size"] for a, b in zip(found, found[1:]))


def perf_counts_bytes_on_the_network():
    """Of a run over TCP, at least its payload is in the transport's counters; of one through
    shared memory, nothing."""
    for transport in ("tcp", "shm"):
        job = harness.Job([WEFT, "run", "-n", "2", "--", WEFT, "perf", "put_bw", "--iters", "1G",
                           "--transport", transport])
        end = time.monotonic() + harness.DEADLINE
        sent = None
        try:
            while sent is None or (transport == "tcp" and sent < 1 << 20):
                assert time.monotonic() < end, f"{sent} bytes were counted"
                code, out, _ = run("info", "--stats", "--job", str(job.process.pid), "--json")
                found = [json.loads(line)["counters"] for line in out.splitlines()] if code == 0 else []
                if len(found) == 2:
                    sent = sum(r.get("TCP_BYTES_SENT", 0) for r in found)
            assert transport == "tcp" or sent == 0, f"{sent} bytes went over TCP"
        finally:
            job.process.terminate()
            job.finish()


def perf_sweeps():
    sizes = {"am_lat": "1:2k", "put_lat": "8:4k", "get_rate": "1:64k", "msg_lat": "1:256k",
             "msg_sendrecv": "1:256k", "msg_rate": "1:16k", "msg_bw": "16k:2M", "put_bw": "4k:2M"}
    for test, size in sizes.items():
        found = rows(pair("perf", test, "--iters", "5", "--size", size, "--json"))
        assert found[0]["size"] == int(size.split(":")[0].rstrip("k")) * (
            1024 if "k" in size.split(":")[0] else 1), found[0]
        assert len(found) > 6 and all(b["size"] == 2 * a["size"] for a, b in zip(found, found[1:]))


def perf_limits_in_pairs():
    if len(os.sched_getaffinity(0)) < 2:
        return
    for test in ("msg_lat", "msg_rate", "msg_bw", "atomic_lat", "put_rate"):
        (row,) = rows(pair("perf", test, "--iters", "200", "--pairs", "2", "--json"))
        assert len(row["ratios"]) == 2 and row["ratio"] > 0 and row["limit"], row


def perf_limits_over_tcp():
    if len(os.sched_getaffinity(0)) < 2:
        return
    limits = {"am_lat": "tcp_lat", "put_lat": "tcp_lat", "get_lat": "tcp_round", "put_bw": "tcp",
              "get_bw": "tcp", "msg_bw": "tcp", "atomic_lat": "tcp_round", "barrier": "tcp_lat"}
    for test, limit in limits.items():
        (row,) = rows(pair("perf", test, "--transport", "tcp", "--iters", "50", "--pairs", "2",
                           "--json"))
        assert len(row["ratios"]) == 2 and row["ratio"] > 0 and row["limit"] == limit, row
    refused(pair("perf", "am_rate", "--transport", "tcp", "--pairs", "2"),
            "no limit of the machine", "weft perf compare --transport tcp")


def perf_many_ranks():
    (row,) = rows(run("run", "-n", "5", "--", WEFT, "perf", "barrier", "--iters", "20", "--json"))
    assert row["lat_ns"] > 0, row


def perf_draws():
    with tempfile.TemporaryDirectory() as where:
        picture = os.path.join(where, "it's a plot.svg")
        sweep = ("perf", "am_lat", "--iters", "5", "--size", "8:256", "--plot")
        if shutil.which("gnuplot"):
            code, out, err = pair(*sweep, picture)
            assert code == 0, err
            assert xml.etree.ElementTree.parse(picture).getroot().tag.endswith("svg")
            code, out, err = pair(*sweep, "/nowhere/x.svg")
            assert code == 1 and "/nowhere/x.svg: No such file" in err, err
        code, out, err = pair(*sweep, picture, env={**os.environ, "PATH": where})
        assert code == 1 and "apt install gnuplot-nox" in err, err


def perf_says_how_far_it_is():
    ours, theirs = os.openpty()
    job = subprocess.Popen([WEFT, "run", "-n", "2", "--", WEFT, "perf", "put_bw", "--size", "8:1M",
                            "--iters", "20"], stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    text = b""
    try:
        while True:
            text += os.read(ours, 4096)
    except OSError:  # the last one closed its end
        pass
    assert job.wait(harness.DEADLINE) == 0, text
    assert b"put_bw: 8 bytes (1 of 18), run 1 of 5" in text, text


def perf_memory():
    found = {(r["what"], r["count"]): r for r in rows(run("perf", "mem", "--json"))}
    assert found[("start", 1)]["after"] > 0, found
    for count in (2, 1000, 100000):
        assert ("untouched peer", count) in found, found
    assert found[("untouched peer", 100000)]["each"] < 4096, found
    if JOBS:
        found = rows(run("run", "-n", "2", "--", WEFT, "perf", "mem", "--json"))
        assert [r["what"] for r in found][:2] == ["PMIx_Init", "start in a job"], found


def perf_registrations():
    found = rows(run("perf", "reg", "--json", timeout=4 * harness.DEADLINE))  # sanitizers are slow
    found = {(r["what"], r["threads"], r["regions"]): r for r in found}
    assert found[("hit", 1, 16)]["ns"] > 0 and found[("hit_confirmed", 1, 10000)]["ns"] > 0, found
    if ("miss", 1, 64) in found:
        assert found[("miss", 1, 64)]["of_kernel"] > 0, found


def rdma_ports():
    """Those of the devices that move nothing: what is chosen by which variable, why not others."""
    def ports(device, **variables):
        code, out, err = run("info", env={**os.environ, "WEFT_DEBUG": "nullnic",
                                          "WEFT_RDMA_DEVICE": device, **variables})
        assert code == 0, err
        lines = [line[2:] for line in out.splitlines() if line[4:8] == "null"]
        return {line[2:].split()[0]: line for line in lines}, out

    _, out, _ = run("info", env={**os.environ, "WEFT_RDMA_DEVICE": "null0"})
    assert "null0:1" not in out, out  # a name alone does not choose them
    rows, _ = ports("null0")
    assert rows["null0:1"].startswith("* null0:1") and "GID none" in rows["null0:1"], rows
    assert rows["null1:1"][0] != "*" and "not the one named" in rows["null1:1"], rows
    rows, _ = ports("null1")
    assert rows["null1:1"].startswith("* ") and "port down" in rows["null1:2"], rows
    assert "GID 3 ::ffff:192.0.2.1 (RoCE v2), MTU 4096, 100 Gbit/s" in rows["null1:1"], rows
    rows, _ = ports("null1:1", WEFT_RDMA_GID_INDEX="0", WEFT_RDMA_MTU="512")
    assert "GID 0 fe80::1 (RoCE v1), MTU 512" in rows["null1:1"], rows
    rows, out = ports("null1", WEFT_RDMA_GID_INDEX="4")
    assert "no such GID" in rows["null1:1"] and not any(r[0] == "*" for r in rows.values()), rows
    assert "WEFT_RDMA_GID_INDEX=4: null1:1 has these: 0 fe80::1 (RoCE v1), 1" in out, out
    rows, out = ports("null1,null0")
    assert rows["null0:1"].startswith("* ") and rows["null1:1"].startswith("* "), rows
    assert "null1:1, " in out and "; and null0:1" in out, out
    rows, out = ports("null0,null2")
    assert "no active port null2" in out and not any(r[0] == "*" for r in rows.values()), out
    rows, out = ports("null1:2")
    assert "no active port null1:2" in out and "port down" in rows["null1:2"], out
    for name, value in ("GID_INDEX", "256"), ("GID_INDEX", "x"), ("MTU", "1000"):
        _, _, err = run("info", env={**os.environ, f"WEFT_RDMA_{name}": value})
        assert f"WEFT_RDMA_{name}={value}: must be" in err, err


def resources_for_so_many_peers():
    """Each peer takes a queue pair, and nothing else of the device."""
    two, five = rows(run("info", "--resources", "2", "5", "--json", timeout=4 * harness.DEADLINE))
    assert (two.pop("peers"), five.pop("peers")) == (2, 5), (two, five)
    pairs = two.pop("queue pairs"), five.pop("queue pairs")
    assert [p["count"] for p in pairs] == [2, 5], pairs
    assert 5 * pairs[0]["bytes"] == 2 * pairs[1]["bytes"] > 0, pairs
    assert two == five, (two, five)
    assert two["completion queues"]["count"] == 1 and two["memory regions"]["bytes"] > 0, two


def resources_of_threads():
    """What 16 endpoints take in each category, and what they share."""
    words = ("info", "--resources", "--threads", "16", "--json")
    for category, mode, contexts, pages, level, locks in (
            ("everywhere", "classic", 16, 128, 1, 5), ("2xdynamic", "classic", 1, 40, 1, 0),
            ("dynamic", "current", 1, 17, 1, 0), ("shared", "current", 1, 9, 2, 0),
            ("static", "classic", 1, 8, 3, 7), ("threads", "current", 1, 2, 4, 13), ("split", "current", 2, 18, 1, 0)):
        (got,) = rows(run(*words, "--sharing", category, "--mode", mode, timeout=4 * harness.DEADLINE))
        assert (got["contexts"]["count"], got["UAR pages"]["count"]) == (contexts, pages), (category, got)
        ends = got["endpoints"]
        assert len(ends) == (1 if category == "threads" else 16), got
        assert max(e["level"] for e in ends) == level and max(e["locks"] for e in ends) == locks, got
        assert {e["category"] for e in ends} == {category}, got
    env = {**os.environ, "MLX5_TOTAL_UUARS": "2"}
    code, _, err = run(*words, "--mode", "classic", env=env)
    assert code == 1 and "MLX5_NUM_LOW_LAT_UUARS=1" in err, err
    for option, bad, says in (("--sharing", "fast", "2xdynamic"), ("--threads", "0", "1 to 1024"),
                              ("--mode", "old", "classic or current")):
        code, out, err = run("info", "--resources", option, bad)
        assert code == 2 and says in err and not out, (code, err)


def endpoints_share_more_without_pages():
    """An endpoint opens though no page is left; this is logged once, with what to change."""
    env = {**os.environ, "WEFT_UARS": "5"}
    code, out, err = run("info", "--resources", "--threads", "8", "--sharing", "dynamic", "--json", env=env,
                         timeout=4 * harness.DEADLINE)
    assert code == 0 and err.count("endpoints get") == 1 and "WEFT_UARS=5" in err, (code, err)
    assert len(json.loads(out)["endpoints"]) == 8, out
    env = {**os.environ, "WEFT_SHARING": "fast"}
    code, _, err = run("perf", "threads", "--pairs", "1", env=env)
    assert code == 1 and "everywhere" in err and "split" in err, err


def perf_of_threads():
    for transport in ("shm", "null0"):
        found = rows(run("perf", "threads", "--transport", transport, "--pairs", "1", "--json",
                         timeout=4 * harness.DEADLINE))
        assert [r["endpoints"] for r in found] == ["own", "shared"], found
        assert all(r["threads"] == 2 and r["all_mps"] > 0 and r["ratio"] > 0 for r in found), found
    for words, says in ((("--threads", "0"), "1 to 64"), (("--transport", "x"), "null0"), (("--pair", "1"), "--pairs")):
        code, out, err = run("perf", "threads", *words)
        assert code == 2 and says in err and not out, (code, err)


def perf_compares_with_what_is_there():
    with tempfile.TemporaryDirectory() as empty:
        found = rows(run("perf", "compare", "--json", env={**os.environ, "PATH": empty}))
    assert [r["with"] for r in found] == ["ucx", "libfabric", "openmpi", "mpich"], found
    assert all(r["installed"] is False and r["packages"] for r in found), found
    code, _, err = run("perf", "compare", "mpich", "--transport", "tcp", "--json")
    assert code == 1 and "MPICH is not compared over tcp" in err, err


def explained(result):
    """The operations' rows, and the way of local memory that is taken."""
    found = rows(result)
    local = [r for r in found if r["operation"] == "local memory"]
    assert len(local) == 5 and sum(r["taken"] for r in local) == 1, local
    return ([r for r in found if r not in local],
            next(r["way"] for r in local if r["taken"]))


def explains():
    alone, way = explained(run("explain", "-n", "8", "--json"))
    assert way == "in the descriptor", way
    assert explained(run("explain", "-n", "4k", "--json"))[1] == "bounced"
    assert {r["transport"] for r in alone} == {"loop"}, alone
    if not JOBS:
        return
    found, way = explained(pair("explain", "-n", "1M", "--json"))
    assert way == "registered", way
    found = {(r["operation"], r["memory"]): r for r in found}
    assert found[("active message", "")]["status"] == "WEFT_EMSGSIZE", found
    assert found[("put", "shared")]["inlined"] is True, found
    assert found[("tagged message", "")]["transport"] == "shm", found
    code, out, err = pair("explain", "-n", "64")
    assert code == 0 and max(map(len, out.splitlines())) <= 80, out
    if TCP:
        explains_tcp()


def explains_tcp():
    only = {"env": {**os.environ, "WEFT_TRANSPORTS": "loop,tcp"}}
    for size in ("8", "1M"):
        for row in explained(pair("explain", "-n", size, "--json", **only))[0]:
            if "status" not in row:
                assert row["transport"] == "tcp" and not row["inlined"], row
                assert "mapped" not in row["why"] or "not mapped" in row["why"], row
        code, out, err = pair("explain", "-n", size, **only)
        assert code == 0 and max(map(len, out.splitlines())) <= 80, out + err


def perf_tests_on_device():
    perf_tests_over("rdma")


def explains_on_device():
    for size in ("8", "1M"):
        env = {**os.environ, "WEFT_TRANSPORTS": "loop,rdma"}
        for row in explained(pair("explain", "-n", size, "--json", env=env))[0]:
            assert "status" in row or row["transport"] == "rdma", row


def stats_of_a_running_job():
    job = harness.Job([WEFT, "run", "-n", "2", "--", WEFT, "perf", "am_lat", "--iters", "1G"])
    end = time.monotonic() + harness.DEADLINE
    try:
        def look():
            code, out, _ = run("info", "--stats", "--job", str(job.process.pid), "--json")
            found = [json.loads(line) for line in out.splitlines()] if code == 0 else []
            return found if len(found) == 2 else None

        def sent(found):
            return min(r["counters"]["REQUESTS_SENT"] for r in found)

        first = None
        while not first or not sent(first):
            assert time.monotonic() < end, "no counters appeared"
            first = look()
        assert [r["rank"] for r in sorted(first, key=lambda r: r["rank"])] == [0, 1], first
        assert all(r["endpoints"] == 1 and r["contexts"] == 1 for r in first), first
        while sent(look()) <= sent(first):
            assert time.monotonic() < end, "the counters stand still"
        pid = str(first[0]["pid"])
        code, out, err = run("info", "--stats", pid)
        assert code == 0 and f"process {pid}" in out and "REQUESTS_SENT" in out, out + err
        assert pid in {str(r["pid"]) for r in rows(run("info", "--stats", "--json"))}
        stats_of_another_user(pid)
        assert job.process.poll() is None, "the job was disturbed"
    finally:
        job.process.terminate()
        job.finish()


def stats_of_another_user(pid):
    """Called while a job of this user's runs."""
    if os.geteuid() != 0:
        return
    try:
        code, _, err = run("info", "--stats", pid, user=NOBODY, group=NOBODY, extra_groups=[])
    except PermissionError:  # nobody may not even reach the program
        return
    assert code == 1 and "belongs to another user" in err, err


def stats_of_no_job():
    ended = subprocess.Popen(["true"])
    ended.wait()
    code, _, err = run("info", "--stats", str(ended.pid))
    assert code == 1 and "does not exist any more" in err, err
    code, _, err = run("info", "--stats", str(os.getpid()))
    assert code == 1 and "no Weft context open" in err, err


def stats_that_lie():
    """A segment that could be truncated under its reader, or says nonsense, is not read."""
    fd = os.memfd_create("weft-stats", os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, 1 << 20)
        code, _, err = run("info", "--stats", str(os.getpid()))
        assert code == 1 and "counts in another way" in err, err
        os.pwrite(fd, b"WTFTATS1" + b"\xff" * 4088, 0)
        fcntl.fcntl(fd, 1033, 0x1 | 0x2 | 0x4 | 0x10)  # F_ADD_SEALS: all that are asked for
        code, _, err = run("info", "--stats", str(os.getpid()))
        assert code == 1 and "counts in another way" in err, err
    finally:
        os.close(fd)


ALONE = [help_fits_a_screen, wrong_words_are_answered, perf_memory, perf_registrations, explains,
         perf_compares_with_what_is_there, stats_of_no_job, stats_that_lie]
IN_JOBS = [perf_tests, perf_one_place_again_and_again, perf_several_tests, perf_sweeps, perf_limits_in_pairs,
           perf_many_ranks, perf_draws, perf_says_how_far_it_is, stats_of_a_running_job,
           perf_tests_by_transport]
OVER_TCP = [perf_sweeps_over_tcp, perf_limits_over_tcp, perf_counts_bytes_on_the_network]
OVER_RDMA = [rdma_ports, resources_for_so_many_peers, resources_of_threads, endpoints_share_more_without_pages,
             perf_of_threads]
ON_DEVICE = [perf_tests_on_device, explains_on_device]

if __name__ == "__main__":
    if sys.argv[2] == "rdma":
        harness.main(ON_DEVICE)
    TCP = has_tcp()
    RDMA = has_rdma()
    harness.main(ALONE + (IN_JOBS if JOBS else []) + (OVER_TCP if JOBS and TCP else []) +
                 (OVER_RDMA if RDMA else []))
