#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A program that does one turn, as scripts/soak wants it.

usage: turns.py PART COMMAND... --count N --seed S --from K --only M

Runs COMMAND once per turn K to K + M of N. The word SEED in it becomes a number
that depends on seed and turn alone; a word with [A/B] in it gets A and B in turn.
A turn holds if COMMAND exits 0 within 30 minutes.
"""
import re
import subprocess
import sys
import time

LIMIT_S = 1800


def option(words, name):
    at = words.index(name)
    value = int(words[at + 1])
    del words[at:at + 2]
    return value


def filled(word, turn, number):
    if word == "SEED":
        return str(number)
    return re.sub(r"\[([^]]*)\]", lambda m: (c := m[1].split("/"))[turn % len(c)], word)


def main():
    part, *command = sys.argv[1:]
    count, seed, first, only = (option(command, "--" + name)
                                for name in ("count", "seed", "from", "only"))
    end = min(first + only, count)
    held, slowest = 0, 0.0
    for turn in range(first, end):
        number = (seed * 1000003 + turn * 7919 + 1) % (1 << 63)
        begin = time.monotonic()
        done = subprocess.run([filled(word, turn, number) for word in command],
                              timeout=LIMIT_S, check=False)
        slowest = max(slowest, time.monotonic() - begin)
        held += done.returncode == 0
        if done.returncode:
            print(f"{part}: turn {turn}, seed {seed}: code {done.returncode}")
    print(f"{part}: {held} of {end - first} held; slowest {slowest * 1000:.1f} ms")
    print(f"{part}: seed {seed}, turns {first} to {end}: "
          + ("all held" if held == end - first else "FAILED"))
    return held != end - first


if __name__ == "__main__":
    sys.exit(main())
