#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How GASNet programs end, on 4 ranks over 2 network namespaces, over and over; as scripts/soak wants
it.

usage: ending_soak.py [--misuses] WEFT MISUSE MISUSE_DEBUG LEAVE LEAVE_PAR
       --count N --seed S --from K --only M

A turn is every case of ending_test.py --hosts (with --misuses of these), in four parts at a time.
The cases do not depend on the seed; when each meets which others does. Needs root."""

import os
import re
import subprocess
import sys

PARTS = 4
LIMIT_S = 600
HERE = os.path.dirname(os.path.abspath(__file__))
LINE = re.compile(r"(rule \d+ hosts .*) (ok|FAILED.*) \(([0-9.]+) s\)")


def option(words, name):
    at = words.index(name)
    value = int(words[at + 1])
    del words[at:at + 2]
    return value


def turn(programs, number):
    """Returns {case: (held, seconds)}, and the output of the cases that did not hold."""
    parts = [subprocess.Popen([sys.executable, os.path.join(HERE, "ending_test.py"), "--hosts", "--part",
                               f"{(number + i) % PARTS}/{PARTS}", *programs],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for i in range(PARTS)]
    found, failures = {}, []
    for part in parts:
        out, _ = part.communicate(timeout=LIMIT_S)
        cases = [match for match in map(LINE.fullmatch, out.splitlines()) if match]
        found |= {match[1]: (match[2] == "ok", float(match[3])) for match in cases}
        if part.returncode:
            failures.append(out)
    return found, failures


def main():
    programs = sys.argv[1:]
    count, _, first, only = (option(programs, "--" + name) for name in ("count", "seed", "from", "only"))
    end = min(first + only, count)
    held, ran, slowest, failed = {}, {}, {}, False
    for number in range(first, end):
        found, failures = turn(programs, number)
        for case, (well, seconds) in found.items():
            ran[case] = ran.get(case, 0) + 1
            held[case] = held.get(case, 0) + well
            slowest[case] = max(slowest.get(case, 0), seconds)
        failed |= bool(failures) or not found
        for text in failures:
            print(f"turn {number}:\n{text}", flush=True)
    for case, times in ran.items():
        print(f"{case}: {held[case]} of {times} held; slowest {slowest[case] * 1000:.1f} ms")
    print(f"endings: turns {first} to {end}: " + ("FAILED" if failed else "all held"))
    return failed


if __name__ == "__main__":
    sys.exit(main())
