#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What libweft.so exports is what its headers declare WEFT_API, all of it under
a version node, and the library has a versioned soname.

usage: exported.py LIBRARY INCLUDE_DIR COMPILER...
"""
import pathlib
import re
import subprocess
import sys


def output(*command, **kwargs):
    return subprocess.run(command, check=True, text=True, capture_output=True, **kwargs).stdout


def declared(include, compiler):
    """Names of the functions that the headers declare WEFT_API."""
    headers = sorted(pathlib.Path(include, "weft").glob("*.h"))
    source = "".join(f"#include <weft/{header.name}>\n" for header in headers)
    text = output(*compiler, "-E", "-P", "-I", include, "-x", "c", "-", input=source)
    names = set()
    for part in text.split(";"):
        mark = part.rfind('visibility("default")')
        if mark < 0:
            continue
        # After the mark come attributes, the type, the name and its parameters.
        rest = re.sub(r"__attribute__\s*\(\(.*?\)\)\s", " ", part[mark:], flags=re.S)
        name = re.search(r"\b(weft_\w+)\s*[(\[]", rest)
        if name:
            names.add(name.group(1))
    return names


def exported(library):
    """Names that the dynamic symbol table defines, with their version nodes."""
    symbols = {}
    for line in output("nm", "-D", "--defined-only", "--with-symbol-versions", library).splitlines():
        _, kind, name = line.split()[-3:]
        name, _, node = name.partition("@")
        if kind != "A":  # the version nodes themselves
            symbols[name] = node.lstrip("@")
    return symbols


def main():
    library, include, *compiler = sys.argv[1:]
    want, have = declared(include, compiler), exported(library)
    faults = []
    if len(want) < 30:
        faults.append(f"only {len(want)} declarations found in {include}: this test is broken")
    faults += [f"{name}: declared, not exported" for name in sorted(want - have.keys())]
    faults += [f"{name}: exported, not declared WEFT_API" for name in sorted(have.keys() - want)]
    faults += [f"{name}: exported with version '{node}', not WEFT_<number>"
               for name, node in sorted(have.items()) if not re.fullmatch(r"WEFT_[0-9.]+", node)]
    dynamic = output("readelf", "-d", "-W", library)
    if not re.search(r"SONAME.*\[libweft\.so\.\d+\]", dynamic):
        faults.append("the soname is not libweft.so.<number>")
    print("\n".join(faults) if faults else f"{len(want)} functions")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
