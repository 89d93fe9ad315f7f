#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A leader that lies to the others breaks the job, with an error that names the reason, and nothing
else. The rank that detects it reports it to all others before it dies or leaves. A rank that stops
while the job opens is named by the rank that waits for it.

usage: forge_test.py WEFT FORGE"""

import os
import re
import sys

import harness
from harness import Job, read_within

WEFT, FORGE = sys.argv[1:3]
NONE_SUCH = 3
RANKS = 4


def forge(how, log="error"):
    if how > 0:  # receivers must go on polling
        return Job([WEFT, "run", "-n", str(RANKS), "--keep-going", "--", FORGE, str(how)],
                   env={"JOB_TEST_NODES": "1", "WEFT_LOG": log}).finish()
    read, write = os.pipe()
    go, push = os.pipe()
    job = Job([WEFT, "run", "-n", str(RANKS), "--keep-going", "--", FORGE, str(how), str(write),
               str(go)], env={"JOB_TEST_NODES": "1", "WEFT_LOG": log}, pass_fds=[write, go])
    os.close(write)
    try:
        read_within(read, RANKS)
        os.write(push, b"g" * RANKS)
    except AssertionError:
        if job.process.poll() is None:  # it ends where there is no such lie
            job.process.terminate()
    for fd in (read, go, push):
        os.close(fd)
    return job.finish()


def test_truth():
    code, out, err = forge(0)
    assert code == 0 and out.count("barrier WEFT_OK") == 3, out + err


def test_each_lie():
    kind = 1
    while (result := forge(-kind))[0] != NONE_SUCH:
        code, out, err = result
        assert code == 0, f"lie {kind}: code {code}\n{out}{err}"
        assert out.count("barrier WEFT_EPROTO") == 3, out + err
        assert err.count("\n") == 1 and ("breaks the protocol" in err or
                                         "the same calls in the same order" in err), err
        kind += 1
    assert kind > 20, f"only {kind} lies are known"


def test_many_lies():
    for seed in range(1, 4):
        code, out, err = forge(seed)
        assert code == 0 and out.count(": barrier WEFT_E") == 3, f"seed {seed}\n{out}{err}"


STEPS = {  # by transports: for what rank 0 may wait, and what its transport reports of its messages
    "loop,shm": ("send its part of round 0 of a barrier", "shm"),
    "loop,tcp": ("take a greeting", "tcp: 1 messages to it are not acknowledged on lane 0: "),
}
LIMIT_MS = 400  # of the opening


def test_stops():
    """A rank publishes its address, and then never comes. The other one names it, and sleeps
    meanwhile: on one processor both have the waits of ranks that outnumber the processors."""
    for transports, (step, rest) in STEPS.items():
        env = {"JOB_TEST_NODES": "1", "JOB_TEST_STOPS": "1", "WEFT_LOG": "error",
               "WEFT_JOB_TIMEOUT": f"{LIMIT_MS}ms", "WEFT_TRANSPORTS": transports}
        one = {min(os.sched_getaffinity(0))}
        code, out, err = Job([WEFT, "run", "-n", "2", "--", FORGE, "0"], env=env,
                             preexec_fn=lambda: os.sched_setaffinity(0, one)).finish()
        line = (rf"rank 0 waited in vain for rank 1 to {step}; "
                rf"endpoint \d+ of process \d+, by {rest}")
        used = re.search(r"0: open WEFT_ETIMEDOUT after (\d+) ms of processor", out)
        assert code and used and len(re.findall(line, err)) == 1, f"code {code}\n{out}{err}"
        assert err.count("waited in vain") == 1, err
        assert int(used[1]) < LIMIT_MS / 2, f"{used[1]} ms of a processor by {transports}"


if __name__ == "__main__":
    harness.main([test_truth, test_stops, test_each_lie, test_many_lies])
