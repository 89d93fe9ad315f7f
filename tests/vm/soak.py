#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""RDMA's faults, many times: a turn is a machine in which each kind of failure happens FAILURES
times, and two machines of which one is switched off.

usage: soak.py --count N --seed S --from K --only M

For scripts/soak; runs in the build directory."""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FAILURES = 1
AT_A_TIME = 2  # a machine keeps about one processor busy


def vm(*words):
    done = subprocess.run([f"{ROOT}/scripts/vm", "run", "--seconds", "600", *words],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def held(part, count, seconds):
    print(f"{part + ':':<24} {count} of {count} held; slowest {1000 * seconds:.0f} ms", flush=True)


def turn(build):
    said = vm("--", f"{ROOT}/tests/vm/rdma_test.py", f"{build}/tests/net", "--turns",
              str(FAILURES))
    for name, seconds in re.findall(r"^(\w+): ([0-9.]+) s", said, re.M):
        held(f"rdma {name}", FAILURES, float(seconds))
    begin = time.monotonic()
    vm("--machines", "2", "--", f"{ROOT}/tests/vm/two_test.py", f"{build}/tests/net")
    held("rdma switched off", 1, time.monotonic() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("count", "seed", "from", "only"):
        parser.add_argument(f"--{name}", type=int, required=True, dest=f"{name}_")
    args = parser.parse_args()
    upto = min(args.count_, args.from_ + args.only_)
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(turn, [os.getcwd()] * (upto - args.from_)))
    print(f"soak: turns {args.from_} to {upto}")


if __name__ == "__main__":
    main()
