#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""contract_table.py ROOT: the table of tests/contract/README.md is complete.

Fails when it names a test that contract.h does not have, or a call that no installed header declares;
when a test of one of the files of these calls is missing in it; or when a file that it names is not
there."""
import pathlib
import re
import sys

FILES = ("names group sender space many flags fenced delivered matched learn array atomic counted ctx defer nowait "
         "order pieces kept finish").split()


def main():
    root = pathlib.Path(sys.argv[1])
    contract = root / "tests/contract"
    text = (contract / "README.md").read_text()
    table = text[text.index("## Calls that bindings need"):]
    tests = set(re.findall(r"X\((\w+)\)", (contract / "contract.h").read_text()))
    headers = "".join(p.read_text() for p in (root / "include/weft").glob("*.h"))
    named, wrong = set(), []
    for row in re.findall(r"^\|(.*?)\|(.*?)\|.*\|$", table, re.M)[2:]:
        wrong += [f"no header has {call}" for call in re.findall(r"`\.?(\w+)", row[0])
                  if not re.search(rf"\b{call}\b", headers)]
        for name in re.findall(r"`([^`]+)`", row[1]):
            if "/" in name and not (root / name).exists():
                wrong.append(f"there is no {name}")
            elif "/" not in name and name not in tests:
                wrong.append(f"contract.h has no test {name}")
            named.add(name)
    for name in FILES:
        code = (contract / f"{name}.c").read_text()
        wrong += [f"{name}.c: {test} is not in the table" for test in re.findall(r"^void test_(\w+)", code, re.M)
                  if test in tests and test not in named]
    if not named:
        wrong.append("the table cannot be read")
    for line in wrong:
        print("tests/contract/README.md:", line)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
