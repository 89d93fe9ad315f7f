#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Large counts of the component's tests, as scripts/soak wants them.

usage: soak.py COMPONENT MPIRUN PROGRAMS order|kills|stops|remap|threads --count N --seed S --from K --only M

A turn of order is 100,000 chains of each kind and as many free messages, in one of the three settings
of btl_weft_order and in one of four ways; a turn of kills is one rank that is killed; a turn of stops
is four ranks that are stopped for 20 s, each of another job; a turn of remap is 20,000 messages from
memory that changes, with one allocator, and with Open MPI's hooks or without; a turn of threads is
20,000 messages between 4 or 8 threads of each rank.
Order with delays makes namespaces, and needs root."""

import glob
import os
import random
import re
import sys
import time

import runner
from runner import ENV, PROGRAMS, TCP, good, harness

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "net"))
import netlib  # noqa: E402 pylint: disable=wrong-import-position

CHAINS, MESSAGES, EXCHANGES = 100000, 20000, 10000
STOPPED = 20  # seconds
SERIAL = 2000  # puts that each wait for a round trip
DELAYS = (0, 0.2, 0.5, 0.9)  # milliseconds, of four connections
runner.DEADLINE = 900
ALLOCATORS = ["", "libjemalloc.so.2", "libtcmalloc_minimal.so.4"]
LANES = {**TCP, "WEFT_TCP_LANES": "4"}


def delayed(mode):
    """Order between two hosts whose four connections have different delays."""
    env = {**ENV, **LANES, "WEFT_TCP_INTERFACES": "weft0"}
    count = SERIAL if mode == "all" else CHAINS
    with netlib.Net(hosts=2) as net:
        netlib.Forwarder(net, os.path.join(PROGRAMS, "..", "net", "forwarder"), delay=DELAYS)
        words, env = net.mpirun(
            [1, 1], [os.path.join(PROGRAMS, "ompi_order"), mode, str(count), "messages"], env=env,
            options=["--mca", "pml", "ob1", "--mca", "btl", runner.ALONE, "--mca", "btl_weft_order",
                     mode])
        code, out, err = harness.Job(words, env=env).finish(runner.DEADLINE)
    assert code == 0 and out == "ok\n", f"{mode}: code {code}\n{out}{err}"
    return err


def order(turn, seed):
    mode = ["tag", "module", "all"][turn % 3]
    shuffle = {"WEFT_DEBUG": f"shuffle={seed % 1000000 + 1}"}
    env = [LANES, {**LANES, **shuffle}, shuffle, {}][turn // 3 % 4]
    err = good(2, "ompi_order", mode, str(CHAINS), btl_weft_order=mode, env=env) if env \
        else delayed(mode)
    way = " ".join(f"{k}={v}" for k, v in env.items()) or f"four lanes with {DELAYS} ms of delay"
    early, of = re.search(r"(\d+) of (\d+) free messages were overtaken", err).groups()
    print(f"measured {mode}, {way}: {early} of {of} free messages overtaken")


def kills(turn, seed):
    rng = random.Random(seed)
    runner.kill_one(rng.random(), rng.randrange(3), [{}, TCP][turn % 2])


def stops(_, seed):
    rng = random.Random(seed)
    ways = [{}, TCP, {"WEFT_DEBUG": "shuffle"}, {"WEFT_PROGRESS": "thread"}]
    runner.stop_ranks(STOPPED, [(rng.random() / 4, rng.randrange(3), way) for way in ways])


def remap(turn, seed):
    name = ALLOCATORS[turn % 3]
    found = glob.glob(f"/usr/lib/*/{name}") if name else [""]
    assert found, f"not installed: {name}"
    env = {"LD_PRELOAD": found[0]} if name else {}
    hooks = {} if turn // 3 % 2 else {"memory": "^patcher"}
    err = good(2, "ompi_remap", str(MESSAGES), str(seed), env=env, btl_base_verbose=10, **hooks)
    for line in sorted(set(re.findall(r"\d+ of \d+ registrations were kept ones", err))):
        print(f"measured {name or 'glibc'}, {hooks or 'hooks on'}: {line}")


def threads(turn, _):
    count = [4, 8][turn % 2]
    env = [{}, TCP, {"WEFT_PROGRESS": "thread"}][turn // 4 % 3]
    endpoints = [1, 4][turn // 2 % 2]
    err = good(2, "ompi_threads", str(count), str(EXCHANGES // count), osc="rdma",
               btl_weft_endpoints=endpoints, mpi_yield_when_idle=1, env=env)
    messages, seconds = re.search(r"(\d+) messages in ([0-9.]+) s", err).groups()
    print(f"counted messages, and as many adds to a window: {messages}")
    way = " ".join(f"{k}={v}" for k, v in env.items()) or "shm"
    print(f"measured {count} threads, {endpoints} endpoint{'s'[endpoints < 2:]}, {way}: "
          f"{int(messages) / float(seconds):.0f} messages a second, each with an add")


def main():
    part, *options = runner.WEFT
    words = dict(zip(options[::2], map(int, options[1::2])))
    first, end = words["--from"], min(words["--from"] + words["--only"], words["--count"])
    run = {"order": order, "kills": kills, "stops": stops, "remap": remap, "threads": threads}[part]
    if part == "order":
        netlib.enter()
    held, slowest = 0, 0.0
    for turn in range(first, end):
        seed = (words["--seed"] * 1000003 + turn * 7919 + 1) % (1 << 62)
        begin = time.monotonic()
        try:
            run(turn, seed)
            held += 1
        except AssertionError as e:
            print(f"{part}: turn {turn}, seed {seed}: {e}", flush=True)
        slowest = max(slowest, time.monotonic() - begin)
    print(f"{part}: {held} of {end - first} held; slowest {slowest * 1000:.1f} ms")
    print(f"{part}: seed {words['--seed']}, turns {first} to {end}: "
          + ("all held" if held == end - first else "FAILED"))
    return held != end - first


if __name__ == "__main__":
    sys.exit(main())
