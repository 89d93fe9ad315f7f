#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draw the layers of Weft: docs/layers.svg, which README.md shows.

    docs/layers.py           write docs/layers.svg
    docs/layers.py --check   exit 1 if it is not what this program writes"""
import pathlib
import sys
from xml.sax.saxutils import escape

WIDTH, GAP, HIGH = 920, 8, 46
LEFT, RIGHT = 16, 904
SYSTEM = 744  # to its right: what a layer needs of the system

USER, API, OURS, DRIVER, PLANNED = "#fdf1d8", "#dbe7f6", "#eef3f9", "#e3f1e4", "#ffffff"

# One row each: boxes, and what is used of the system. A box: title, text, first column, columns, colour.
COLUMNS = 18
ROWS = [
    ([("your program", "runtimes, servers, examples/", 0, 5, USER),
      ("tools/weft", "run, info, perf, explain", 5, 4, USER),
      ("GASNet programs", "as they are", 9, 3, USER),
      ("libfabric ones", "as they are", 12, 3, USER),
      ("MPI programs", "by Open MPI", 15, 3, USER)], ""),
    ([("bindings/gasnet", "GASNet-1", 9, 3, OURS),
      ("bindings/libfabric", "provider", 12, 3, OURS),
      ("bindings/ompi", "BTL component", 15, 3, OURS)], ""),
    ([("include/weft/", "the only interface of everything above", 0, 18, API)], ""),
    ([("src/job", "ranks, start-up, barrier, allgather", 0, 18, OURS)], "PMIx"),
    ([("src/core", "endpoints, active and tagged messages, put and get, atomics, regions, events, fragments",
       0, 18, OURS)], ""),
    ([("src/transport/transport.h", "what core asks of a transport", 0, 18, API)], ""),
    ([("loop", "one process", 0, 3, OURS),
      ("shm", "one node: rings", 3, 3, OURS),
      ("node", "by the node's service", 6, 3, OURS),
      ("net", "exactly-once channels, connection manager", 9, 9, OURS)], "memfd, eventfd"),
    ([("tcp", "sockets, encryption", 9, 4.5, DRIVER),
      ("rdma", "queue pairs, NIC operations", 13.5, 4.5, DRIVER)], "sockets, libibverbs"),
    ([("src/mem", "slabs, regions, registration cache", 0, 18, OURS)], "userfaultfd"),
    ([("src/config, src/base", "variables, counters, atomics, lists, clock, log", 0, 18, OURS)], ""),
]


def text(x, y, words, size, weight="normal", colour="#1d2733"):
    return (f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" font-weight="{weight}" fill="{colour}" '
            f'text-anchor="middle">{escape(words)}</text>')


def box(x, y, width, title, words, colour):
    dash = ' stroke-dasharray="5 4"' if colour == PLANNED else ""
    middle = x + width / 2
    return [f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{HIGH}" rx="5" fill="{colour}" '
            f'stroke="#5b6b7d"{dash}/>',
            text(middle, y + 19, title, 14, "bold"), text(middle, y + 36, words, 12)]


def row(y, boxes, system):
    unit, out = (SYSTEM - LEFT) / COLUMNS, []
    for title, words, first, columns, colour in boxes:
        out += box(LEFT + first * unit, y, columns * unit - GAP, title, words, colour)
    if system:
        out += [f'<line x1="{SYSTEM - GAP}" y1="{y + HIGH / 2:.0f}" x2="{SYSTEM + 12}" y2="{y + HIGH / 2:.0f}" '
                'stroke="#5b6b7d"/>',
                text((SYSTEM + RIGHT) / 2 + 6, y + HIGH / 2 + 4, system, 13, colour="#5b6b7d")]
    return out


def draw():
    high = 2 * LEFT + len(ROWS) * (HIGH + GAP) - GAP
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high}" width="{WIDTH}" height="{high}" '
           'font-family="sans-serif">',
           "<!-- SPDX-License-Identifier: BSD-3-Clause; written by docs/layers.py -->",
           f'<rect width="{WIDTH}" height="{high}" fill="#ffffff"/>']
    for i, (boxes, system) in enumerate(ROWS):
        out += row(LEFT + i * (HIGH + GAP), boxes, system)
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    file = pathlib.Path(__file__).with_name("layers.svg")
    if sys.argv[1:] == ["--check"]:
        if file.read_text() != draw():
            sys.exit("docs/layers.svg is not what docs/layers.py writes: run it")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        file.write_text(draw())


main()
