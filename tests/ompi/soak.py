#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Large counts of the component's tests, as scripts/soak wants them.

usage: soak.py COMPONENT MPIRUN PROGRAMS order|kills|remap --count N --seed S --from K --only M

A turn of order is 100,000 chains of each kind and as many free messages, in one of the three settings
of btl_weft_order and in one of two ways; a turn of kills is one rank that is killed; a turn of remap is
100,000 messages from memory that changes, with one allocator, and with Open MPI's hooks or without."""

import glob
import random
import re
import sys
import time

import runner
from runner import TCP, good

CHAINS, MESSAGES = 100000, 100000
runner.DEADLINE = 900
ALLOCATORS = ["", "libjemalloc.so.2", "libtcmalloc_minimal.so.4"]


def order(turn, seed):
    mode = ["tag", "module", "all"][turn % 3]
    env = [{**TCP, "WEFT_TCP_LANES": "4"}, {"WEFT_DEBUG": f"shuffle={seed % 1000000}"}][turn // 3 % 2]
    err = good(2, "ompi_order", mode, str(CHAINS), btl_weft_order=mode, env=env)
    early = re.search(r"(\d+) of \d+ free messages were overtaken", err).group(1)
    print(f"measured {mode}, {' '.join(f'{k}={v}' for k, v in env.items())}: "
          f"{early} of {CHAINS} free messages overtaken")


def kills(turn, seed):
    rng = random.Random(seed)
    runner.kill_one(rng.random(), rng.randrange(3), [{}, TCP][turn % 2])


def remap(turn, seed):
    name = ALLOCATORS[turn % 3]
    found = glob.glob(f"/usr/lib/*/{name}") if name else [""]
    assert found, f"not installed: {name}"
    env = {"LD_PRELOAD": found[0]} if name else {}
    hooks = {} if turn // 3 % 2 else {"memory": "^patcher"}
    err = good(2, "ompi_remap", str(MESSAGES), str(seed), env=env, btl_base_verbose=10, **hooks)
    for line in sorted(set(re.findall(r"\d+ of \d+ registrations were kept ones", err))):
        print(f"measured {name or 'glibc'}, {hooks or 'hooks on'}: {line}")


def main():
    part, *options = runner.WEFT
    words = dict(zip(options[::2], map(int, options[1::2])))
    first, end = words["--from"], min(words["--from"] + words["--only"], words["--count"])
    run = {"order": order, "kills": kills, "remap": remap}[part]
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
