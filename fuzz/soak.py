#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each harness for a long time, as scripts/soak wants it.

usage: soak.py --count N --seed S --from K --only M

N is how many seconds each harness runs, M at a time; turn K is harness number K of scripts/fuzz
--list. It holds if nothing was found. What it reached is kept in build/fuzz, as scripts/fuzz does."""
import pathlib
import re
import subprocess
import sys

FUZZ = pathlib.Path(__file__).resolve().parent.parent / "scripts/fuzz"
MORE_S = 900  # building, and what was found before
LINE = re.compile(r"^(\w+): (\d+) executions, (\d+) a second, (\d+) new corpus entries, "
                  r"(\d+) findings$", re.M)


def option(name):
    return int(sys.argv[sys.argv.index("--" + name) + 1])


def run(names, seconds, seed):
    """Fuzz with these at a time, print what came of it. How many held."""
    done = subprocess.run([FUZZ, "--seconds", str(seconds), "--seed", str(seed), "--jobs",
                           str(len(names)), *names],
                          timeout=seconds + MORE_S, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout, end="")
    seen = {line[1]: line.groups()[1:] for line in LINE.finditer(done.stdout)}
    for name in names:
        executions, rate, entries, findings = seen.get(name, (0, 0, 0, "?"))
        held = executions and findings == "0"
        print(f"{name}: {int(bool(held))} of 1 held; slowest {seconds * 1000:.1f} ms")
        for what, number in (("executions", executions), ("executions a second", rate),
                             ("new corpus entries", entries), ("findings", findings)):
            print(f"counted {name}, {what}: {number}")
    return done.returncode == 0 and len(seen) == len(names)


def main():
    count, seed, first, only = (option(name) for name in ("count", "seed", "from", "only"))
    names = subprocess.run([FUZZ, "--list"], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.split()
    names = names[first:first + only]
    held = not names or run(names, count, (seed + first) % 1000000000 + 1)
    print(f"fuzz: seed {seed}, turns {first} to {first + len(names)}: "
          + ("all held" if held else "FAILED"))
    return not held


if __name__ == "__main__":
    sys.exit(main())
