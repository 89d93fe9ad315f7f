#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The manual pages against the headers: every public function is in the page of
its header, with its arguments and nothing else, and the examples do what they
say.

usage: man.py SOURCE LIBRARY-DIRECTORY CC..."""

import pathlib
import re
import subprocess
import sys
import tempfile

source, libdir, cc = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
PAGES = {"weft": "weft", "msg": "weft_msg", "frag": "weft_frag", "job": "weft_job",
         "cache": "weft_cache", "mr": "weft_mr", "event": "weft_event",
         "atomic": "weft_atomic_array"}
EXAMPLES = {"weft": "success: 42\n", "weft_msg": "rank 0: WEFT_OK, 0\n",
            "weft_frag": "rank 0 has put 42\n", "weft_job": "",
            "weft_cache": "sent 1048576 bytes\nsent 1048576 bytes\n",
            "weft_mr": "success: hello, hello\n", "weft_event": "counted 3\nevent 256: 42\n",
            "weft_atomic_array": "1.5 became 4.0\n"}
failures = []


def declared(header):
    """{name: arguments} of a header's public functions, blanks made one."""
    text = (source / "include/weft" / f"{header}.h").read_text()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    found = {}
    for head in re.findall(r"(?:WEFT_API|WEFT_INLINE)\s+([^;{#]*?\))\s*(?=[;{])", text):
        name, arguments = re.search(r"(weft_\w+)\((.*)\)$", " ".join(head.split())).groups()
        if not name.endswith("_"):  # the others are the headers' own
            found[name] = arguments
    return found


def documented(page):
    found, name, arguments = {}, None, []
    for line in page.split(".Sh DESCRIPTION")[0].splitlines():
        if match := re.match(r"\.Fn (\w+) (.*)", line):
            found[match[1]] = ", ".join(re.findall(r'"([^"]*)"', match[2]))
        elif line.startswith(".Fo "):
            name, arguments = line[4:], []
        elif line.startswith(".Fa "):
            arguments.append(line[4:].strip('"'))
        elif line == ".Fc":
            found[name] = ", ".join(arguments)
    return found


def check_functions(header, page):
    want, have = declared(header), documented(page)
    assert len(want) > 1, f"found only {len(want)} functions in {header}.h"
    for name in sorted(want.keys() | have.keys()):
        if want.get(name) != have.get(name):
            failures.append(f"{PAGES[header]}.3: {name}: the header has ({want.get(name)}), "
                            f"the page ({have.get(name)})")
        if not re.search(rf"^\.Nm {name}( ,)?$", page, re.M):
            failures.append(f"{PAGES[header]}.3: {name} is not below NAME")


def check_statuses(page):
    for name in re.findall(r"^WEFT_STATUS\((\w+),", (source / "include/weft/status.def").read_text(),
                           re.M):
        if not re.search(rf"\bWEFT_{name}\b", page):
            failures.append(f"weft.3: WEFT_{name} is not explained")


def check_example(name, page, place):
    program = place / name
    block = re.search(r"^\.Bd -literal\n(#include.*?)^\.Ed$", page, re.M | re.S)[1]
    program.with_suffix(".c").write_text(block.replace(r"\e", "\\"))
    made = subprocess.run([*cc, "-std=c17", "-Wall", "-Wextra", "-Werror", f"-I{source}/include",
                           f"{program}.c", "-o", program, f"-L{libdir}", "-lweft",
                           f"-Wl,-rpath,{libdir}"], capture_output=True, text=True, check=False)
    if made.returncode:
        failures.append(f"{name}.3: the example does not compile:\n{made.stderr}")
        return
    ran = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    if (ran.returncode, ran.stdout) != (0, EXAMPLES[name]):
        failures.append(f"{name}.3: the example: code {ran.returncode}\n{ran.stdout}{ran.stderr}")


with tempfile.TemporaryDirectory() as where:
    for header_name, page_name in PAGES.items():
        text = (source / "docs/man" / f"{page_name}.3").read_text()
        check_functions(header_name, text)
        check_example(page_name, text, pathlib.Path(where))
        if header_name == "weft":
            check_statuses(text)
print("\n".join(failures))
print(f"{len(PAGES)} pages, {len(failures)} failed")
sys.exit(1 if failures else 0)
