#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The end of jobs that fail: misuse, gasnet_exit at any time, a rank that dies. Each ends in
bounded time, with the right code, reports the reason, and leaves no process.

usage: ending_test.py [--hosts [--misuses]] [--repeat N] [--only WORD]
       WEFT MISUSE MISUSE_DEBUG LEAVE LEAVE_PAR
--hosts: on two hosts (network namespaces: needs root) instead of this one.
--misuses: of all misuses there, not of the ways to end."""

import argparse
import contextlib
import os
import re
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "job"), os.path.join(HERE, "..", "net")]
import harness  # pylint: disable=wrong-import-position
import netlib  # pylint: disable=wrong-import-position

RANKS = 4
# As GASNet promises it: min(120, 3 + 0.125 * nodes) s. The rest is for starting, two cores, and the
# launcher.
START = 10.0
HANGS = 60.0
PATIENCE = 3.5  # GASNET_EXITTIMEOUT_MIN, and _FACTOR for each of 4
AT_ONCE = 0.5
LONG = {"GASNET_EXITTIMEOUT": "30"}  # a wrong wait takes longer than START
SHORT = {"GASNET_EXITTIMEOUT": "0.5"}  # to bound waits for a rank that computes

TCP = {"WEFT_TRANSPORTS": "tcp"}

# ---- misuse: rule, name, text beside the rank; the target may report it ----

MISUSE = [
    (1, "init-twice", "gasnet_init"),
    (2, "am-before-attach", "gasnet_AMRequestShort"),
    (2, "long-before-attach", "gasnet_AMRequestLong"),
    (2, "barrier-before-attach", "gasnet_barrier_notify"),
    (2, "attach-before-init", "gasnet_attach"),
    (3, "attach-twice", "gasnet_attach"),
    (3, "attach-unaligned", "gasnet_attach"),
    (3, "attach-too-large", "gasnet_attach"),
    (4, "attach-index", "gasnet_attach.*127"),
    (4, "attach-duplicate", "gasnet_attach.*201"),
    (4, "attach-129", "gasnet_attach.*129"),
    (13, "medium-too-long", "gasnet_AMRequestMedium"),
    (13, "medium-far-too-long", "gasnet_AMRequestMedium"),
    (13, "args-17", "gasnet_AMRequestShort.*17"),
    (13, "args-negative", "gasnet_AMRequestMedium.*-1"),
    (13, "reply-args-17", "gasnet_AMReplyShort.*17"),
    (13, "reply-medium-too-long", "gasnet_AMReplyMedium"),
    (19, "long-outside", "gasnet_AMRequestLong"),
    (19, "long-past-end", "gasnet_AMRequestLong"),
    (19, "async-outside", "gasnet_AMRequestLongAsync"),
    (19, "reply-long-outside", "gasnet_AMReplyLong"),
    (19, "long-no-node", "gasnet_AMRequestLong"),
    (17, "am-no-node", "gasnet_AMRequestShort"),
    (20, "two-replies", "gasnet_AMReplyShort"),
    (20, "reply-in-reply", "gasnet_AMReplyShort"),
    (21, "request-in-handler", "gasnet_AMRequestShort"),
    (21, "poll-in-handler", "gasnet_AMPoll"),
    (21, "barrier-in-handler", "gasnet_barrier_notify"),
    (25, "handler-unregistered", "handler.*240"),
    (25, "handler-mine-only", "handler.*204"),
    (25, "handler-reserved", "handler.* 5"),
    (25, "reply-unregistered", "handler.*240"),
    (29, "hsl-not-held", "gasnet_hsl_unlock"),
    (29, "hsl-not-made", "gasnet_hsl_lock"),
    (29, "hsl-destroyed-held", "gasnet_hsl_destroy"),
    (30, "put-outside", "gasnet_put"),
    (30, "put-before", "gasnet_put"),
    (30, "put-past-end", "gasnet_put"),
    (30, "put-huge", "gasnet_put"),
    (30, "get-outside", "gasnet_get"),
    (30, "put-nb-outside", "gasnet_put"),
    (30, "get-nbi-outside", "gasnet_get"),
    (30, "memset-outside", "gasnet_memset"),
    (30, "put-val-outside", "gasnet_put"),
    (30, "put-no-segment", "gasnet_put"),
    (30, "put-no-node", "gasnet_put"),
    (30, "get-no-node", "gasnet_get"),
    (30, "put-nb-no-node", "gasnet_put"),
    (38, "regions-nested", "gasnet_begin_nbi_accessregion"),
    (38, "region-sync", "syncnbi"),
    (38, "region-try", "syncnbi"),
    (38, "region-not-begun", "gasnet_end_nbi_accessregion"),
    (39, "valget-9", "gasnet_get_nb_val"),
    (42, "notify-twice", "gasnet_barrier_notify"),
    (42, "wait-first", "gasnet_barrier_wait"),
    (42, "try-first", "gasnet_barrier_try"),
    (42, "wait-twice", "gasnet_barrier_wait"),
]
# Found only in programs compiled with -DGASNET_DEBUG, since the check costs time.
MISUSE_DEBUG = [
    (2, "put-before-attach", "gasnet_put"),
    (2, "get-nb-before-attach", "gasnet_get"),
    (2, "poll-before-attach", "gasnet_AMPoll"),
    (21, "put-in-handler", "gasnet_put"),
    (21, "get-in-handler", "gasnet_get"),
    (21, "put-nb-in-handler", "gasnet_put"),
    (30, "put-far-node", "gasnet_put"),
    (29, "request-in-hsl", "gasnet_AMRequestShort"),
    (29, "reply-in-hsl", "gasnet_AMReplyShort"),
    (29, "handler-keeps-hsl", "lock"),
]
BY_TARGET = {"handler-unregistered", "handler-mine-only", "handler-reserved", "reply-unregistered"}
NOT_YET = {"attach-before-init"}  # no rank is known
# Of the many similar ones, these are also tried with -DGASNET_DEBUG, and on hosts.
SOME = {"init-twice", "am-before-attach", "attach-twice", "attach-duplicate", "medium-too-long",
        "long-outside", "two-replies", "request-in-handler", "handler-unregistered",
        "handler-mine-only", "hsl-not-held", "put-outside", "put-past-end", "get-nbi-outside",
        "put-no-node", "region-sync", "notify-twice", "wait-first", "args-17"}
ON_HOSTS = {"am-before-attach", "attach-duplicate", "two-replies", "handler-mine-only", "put-outside",
            "put-past-end", "notify-twice"}

# ---- leave: rule, how, rank, code, others; codes, how long, environment ----

MANY = set(range(20, 20 + RANKS))
FAILURE = set(range(1, 256))  # the signal's, or a survivor's that noticed before the launcher did
LEAVE = [
    (8, "exit", 2, 5, "compute", {5}, PATIENCE, {}),
    (8, "exit", 0, 5, "compute", {5}, 0.5, SHORT),
    (8, "exit", 3, 0, "pause", {0}, 0.5, SHORT),
    (8, "exit", 1, 6, "barrier", {6}, 0.5, {}),
    (8, "exit", 3, 255, "barrier", {255}, 0.5, {}),
    (8, "exit", 0, 0, "barrier", {0}, 0.5, {}),
    (8, "exit", 2, 7, "until", {7}, 0.5, {}),
    (8, "exit", 1, 0, "until", {0}, 0.5, {}),
    (8, "exit", 0, 9, "poll", {9}, 0.5, {}),
    (8, "exit", 1, 20, "exit", {20, 30, 32, 33}, 0.5, {}),
    (8, "all", 0, 20, "until", MANY, 0.5, {}),
    (8, "all", 0, 0, "until", {0, 1, 2, 3}, 0.5, {}),
    *[(8, "words", 0, 0, "exit", {0}, 0.5, how) for how in 3 * [{}, TCP]],
    (8, "handler", 1, 8, "until", {8}, 0.5, SHORT),
    (8, "handler", 2, 8, "compute", {8}, 0.5, SHORT),
    (8, "handler", 3, 8, "barrier", {8}, 0.5, SHORT),
    (8, "early", 1, 4, "barrier", {4}, PATIENCE, {}),
    (8, "exit", 2, 3, "quit", {3}, 0.5, {}),
    (8, "exit", 0, 3, "quit-exit", {3}, 0.5, {}),
    (9, "kill", 1, 0, "barrier", FAILURE, 0.5, {}),
    (9, "kill", 0, 0, "until", FAILURE, 0.5, {}),
    (9, "kill", 3, 0, "compute", FAILURE, 0.5, {}),
    (9, "kill", 2, 0, "poll", FAILURE, 0.5, {}),
    (9, "segv", 2, 0, "barrier", FAILURE, 0.5, {}),
    (9, "segv", 0, 0, "compute", FAILURE, 0.5, {}),
    (9, "abort", 1, 0, "until", FAILURE, 0.5, {}),
    (10, "return", 2, 5, "barrier", {5}, 0.5, {}),
    (10, "return", 0, 6, "until", {6}, 0.5, {}),
    (10, "return", 0, 11, "return", {11}, 0.5, {}),
    (10, "return", 3, 0, "return", {0}, 0.5, {}),
    (10, "libexit", 1, 12, "barrier", {12}, 0.5, {}),
    (10, "libexit", 2, 13, "compute", {13}, 0.5, SHORT),
]
LEAVE_PAR = [
    (8, "thread", 1, 5, "until", {5}, 0.5, {}),
    (8, "thread", 2, 6, "compute", {6}, 0.5, SHORT),
    (8, "thread", 0, 0, "barrier", {0}, 0.5, {}),
    (8, "handler", 0, 8, "until", {8}, 0.5, SHORT),
    (8, "exit", 3, 4, "until", {4}, 0.5, {}),
    *[(8, "busy", 0, 0, "exit", {0}, 0.5, how) for how in 3 * [{}, TCP]],
    (9, "kill", 2, 0, "until", FAILURE, 0.5, {}),
    (10, "return", 1, 3, "barrier", {3}, 0.5, {}),
]


# ---- starting a job, here and on two hosts ----

class Here:
    """weft run; its own time to start is in START."""

    name = "here"
    slack = START

    def __init__(self, weft):
        self.weft = weft

    def job(self, words, env):
        return harness.Job([self.weft, "run", "-n", str(RANKS), "--", *words], env=env)


class Hosts:
    """mpirun, with half of the ranks on each of two hosts."""

    name = "hosts"
    slack = START + 2.5  # mpirun's own

    def __init__(self, net):
        self.net = net

    def job(self, words, env):
        argv, environment = self.net.mpirun([RANKS // 2, RANKS // 2], words, env,
                                            ["-x", "WEFT_TEST_MARK"])
        return harness.Job(argv, env=environment)


def end_of(place, words, env, within):
    """Returns code, output, errors and a description. The job ends in time, and leaves no
    process."""
    start = time.monotonic()
    job = place.job(words, env)
    code, out, err = job.finish(HANGS)
    took = time.monotonic() - start
    report = f"{' '.join(words[1:])}: code {code}, {took:.1f} s\n{out}{err}"
    assert job.gone_within(2), f"processes {job.members()} are left: {report}"
    assert took < within + place.slack, f"longer than {within + place.slack:.1f} s: {report}"
    return code, out, err, report


def misuse_test(place, program, rule, name, what):
    rank = sum(name.encode()) % RANKS  # any, but the same each time
    if name == "put-no-segment":
        rank = 1  # 3 has none

    def test():
        code, _, err, report = end_of(place, [program, name, str(rank)], LONG, AT_ONCE)
        assert "nothing was noticed" not in err, report
        assert code != 0 and code < 128, f"neither 0 nor a signal: {report}"
        named = r"node \d of" if name in BY_TARGET else "" if name in NOT_YET else f"node {rank} of"
        lines = [line for line in err.splitlines() if re.search(f"FATAL.*{named}.*{what}", line)]
        assert lines, f"no line has {named!r} and {what!r}: {report}"

    test.__name__ = f"rule {rule} {place.name} {os.path.basename(program)} {name} {rank}"
    return test


def leave_test(place, program, rule, how, rank, code_given, others, codes, within, env):
    def test():
        words = [program, how, str(rank), str(code_given), others]
        # With code 0 the launcher waits for the others before it ends them.
        patience = PATIENCE if code_given == 0 and how not in ("kill", "segv", "abort") else 0
        end_env = {**LONG, **env} if within == AT_ONCE and code_given else env
        code, out, err, report = end_of(place, words, end_env, within + patience)
        assert code in codes, f"code not in {codes}: {report}"
        assert how != "busy" or "FATAL" not in err, report
        assert how in ("early", "words", "busy") or out.count("is here") == RANKS, report
        # No rank has left the barrier before this one came: it can still print, as programs do.
        assert how != "words" or "last words" in out, f"cut short: {report}"
        if how in ("exit", "handler", "thread", "return", "libexit") and others not in ("exit", "return"):
            assert f"rank {rank} leaves" in out, f"its output was not flushed: {report}"
        if others.startswith("quit"):
            assert out.count("got SIGQUIT") == RANKS - 1, f"peers' SIGQUIT handlers: {report}"
        assert how not in ("kill", "segv", "abort") or err, f"no reason is printed: {report}"

    test.__name__ = (f"rule {rule} {place.name} {os.path.basename(program)} {how} {rank} {code_given} "
                     f"{others}")
    return test


def of_each_kind(ways):
    """One of the misuses with the same ways to leave and to stay."""
    kinds = {}
    for way in ways:
        kinds.setdefault((way[1], way[4]), way)
    return list(kinds.values())


def tests_at(place, args):
    """All of them here; of each kind one on hosts, where a job takes more than a second to start."""
    if isinstance(place, Hosts) and args.misuses:
        tests = [misuse_test(place, args.misuse, *m) for m in MISUSE]
        tests += [misuse_test(place, args.misuse_debug, *m) for m in MISUSE_DEBUG]
    elif isinstance(place, Hosts):
        tests = [misuse_test(place, args.misuse, *m) for m in MISUSE if m[1] in ON_HOSTS]
        tests += [leave_test(place, args.leave, *way) for way in of_each_kind(LEAVE)]
        tests += [leave_test(place, args.leave_par, *way) for way in LEAVE_PAR[:2]]
    else:
        tests = [misuse_test(place, args.misuse, *m) for m in MISUSE]
        tests += [misuse_test(place, args.misuse_debug, *m)
                  for m in MISUSE_DEBUG + MISUSE if m in MISUSE_DEBUG or m[1] in SOME]
        tests += [leave_test(place, args.leave, *way) for way in LEAVE]
        tests += [leave_test(place, args.leave_par, *way) for way in LEAVE_PAR]
    part, parts = (int(n) for n in args.part.split("/"))
    return [test for test in tests if args.only in test.__name__][part::parts] * args.repeat


def alone_test(args):
    """Started without a launcher, as three: the code is the one given."""
    def test():
        path = os.path.dirname(args.weft) + ":" + os.environ["PATH"]
        job = harness.Job([args.leave, "exit", "1", "17", "until"],
                          env={"GASNET_PSHM_NODES": "3", "PATH": path})
        code, out, err = job.finish(HANGS)
        assert code == 17 and out.count("is here") == 3, f"code {code}\n{out}{err}"
        assert job.gone_within(2), "processes are left"

    test.__name__ = "started by itself"
    return test


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", action="store_true")
    parser.add_argument("--misuses", action="store_true")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--only", default="", help="of the cases with this in their names")
    parser.add_argument("--part", default="0/1", help="K/N: every Nth case from the Kth on")
    for name in ("weft", "misuse", "misuse_debug", "leave", "leave_par"):
        parser.add_argument(name, type=os.path.abspath)
    args = parser.parse_args()
    if not args.hosts:
        harness.main(tests_at(Here(args.weft), args) + [alone_test(args)])
    netlib.enter()
    with netlib.Net(2) as net:
        harness.main(tests_at(Hosts(net), args))


if __name__ == "__main__":
    main()
