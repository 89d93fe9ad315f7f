#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""edit.py IN OUT OLD NEW [OLD NEW ...]: write IN to OUT with each OLD, which must occur once, as NEW.

Tests make of the tree's sources what they need and no product has: a labelled point before a copy, a
known race. It fails where the source no longer has the place."""
import pathlib
import sys


def main(source, out, *edits):
    text = pathlib.Path(source).read_text()
    for old, new in zip(edits[::2], edits[1::2], strict=True):
        if text.count(old) != 1:
            sys.exit(f"{source}: {text.count(old)} times instead of once: {old}")
        text = text.replace(old, new)
    pathlib.Path(out).write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
