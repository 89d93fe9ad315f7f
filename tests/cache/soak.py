#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The cache's torture under three allocators, as scripts/soak wants it.

usage: soak.py PROGRAM EVENTS --count N --seed S --from K --only M

Turn k runs PROGRAM with EVENTS events under glibc's allocator, jemalloc or tcmalloc, in turn. It
holds if it ends with 0: no stale byte, no registration left, nothing stuck.
"""
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../stress"))
from turns import LIMIT_S, option  # noqa: E402

ALLOCATORS = [("glibc", None), ("jemalloc", "libjemalloc.so.2"),
              ("tcmalloc", "libtcmalloc_minimal.so.4")]
COUNTED = {"events": r"events (\d+)", "changes read": r"changes read (\d+)",
           "hits": r"hits (\d+)", "misses": r"misses (\d+)", "stale": r"stale (\d+)"}


def main():
    program, events, *rest = sys.argv[1:]
    count, seed, first, only = (option(rest, "--" + name)
                                for name in ("count", "seed", "from", "only"))
    end = min(first + only, count)
    failed = False
    for turn in range(first, end):
        name, library = ALLOCATORS[turn % len(ALLOCATORS)]
        env = dict(os.environ, **({"LD_PRELOAD": library} if library else {}))
        number = (seed * 1000003 + turn * 7919 + 1) % (1 << 63)
        begin = time.monotonic()
        done = subprocess.run([program, str(number), events], env=env, timeout=LIMIT_S,
                              check=False, text=True, stdout=subprocess.PIPE)
        spent = time.monotonic() - begin
        if done.returncode == 77:
            sys.exit(f"cache: {done.stdout}")
        held = done.returncode == 0 and "stale 0" in done.stdout
        failed |= not held
        print(done.stdout, end="")
        for what, pattern in COUNTED.items():
            print(f"counted cache-{name}, {what}: {re.search(pattern, done.stdout).group(1)}")
        print(f"cache-{name}: {int(held)} of 1 held; slowest {spent * 1000:.1f} ms")
    print(f"cache: seed {seed}, turns {first} to {end}: " + ("FAILED" if failed else "all held"))
    return failed


if __name__ == "__main__":
    sys.exit(main())
