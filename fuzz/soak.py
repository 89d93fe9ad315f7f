#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each harness for a long time, as scripts/soak wants it.

usage: soak.py --count N --seed S --from K --only M

N is how many seconds each harness runs; turn K is harness number K of scripts/fuzz --list. It
holds if nothing was found. What it reached is kept in build/fuzz, as scripts/fuzz does."""
import pathlib
import re
import subprocess
import sys
import time

FUZZ = pathlib.Path(__file__).resolve().parent.parent / "scripts/fuzz"
MORE_S = 900  # building, and what was found before
LINE = re.compile(r"^(\w+): (\d+) executions, (\d+) a second, (\d+) new corpus entries, "
                  r"(\d+) findings$", re.M)


def option(name):
    return int(sys.argv[sys.argv.index("--" + name) + 1])


def run(name, seconds, seed):
    """Fuzz, print what came of it. True: it holds."""
    begin = time.monotonic()
    done = subprocess.run([FUZZ, "--seconds", str(seconds), "--seed", str(seed), name],
                          timeout=seconds + MORE_S, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout, end="")
    seen = LINE.search(done.stdout)
    held = done.returncode == 0 and seen is not None and int(seen[2]) > 0
    print(f"{name}: {int(held)} of 1 held; slowest {(time.monotonic() - begin) * 1000:.1f} ms")
    if seen:
        for what, number in zip(("executions", "executions a second", "new corpus entries",
                                 "findings"), seen.groups()[1:]):
            print(f"counted {name}, {what}: {number}")
    return held


def main():
    count, seed, first, only = (option(name) for name in ("count", "seed", "from", "only"))
    names = subprocess.run([FUZZ, "--list"], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.split()
    turns = range(first, min(first + only, len(names)))
    held = sum(run(names[turn], count, (seed + turn) % 1000000000 + 1) for turn in turns)
    print(f"fuzz: seed {seed}, turns {first} to {first + len(turns)}: "
          + ("all held" if held == len(turns) else "FAILED"))
    return held != len(turns)


if __name__ == "__main__":
    sys.exit(main())
