#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""variables.py ROOT: the manual describes each variable of src/config/params.def and each item of
debug.def, and neither it nor the texts beside it name a variable that there is not.

Fails when a row of these tables has no `.It Ev NAME` or, in weft(3), no `.It Cm item`; when docs/,
the pages of docs/man or the installed headers name a variable, or an item of WEFT_DEBUG, that is in
no table. Constants of the headers are no variables."""
import pathlib
import re
import sys

TEXTS = ("docs/*.md", "docs/man/*.[0-9]", "include/weft/*.h", "CONTRIBUTING.md", "examples/*.c", "examples/*.py")
OTHERS = {"WEFT_HOOK"}  # of tests; config.c knows them
NAMES = r"\bWEFT_[A-Z0-9_]*[A-Z0-9]\b"


def rows(root, table, macro, column):
    text = (root / "src/config" / table).read_text()
    return set(re.findall(rf'^{macro}\w*\((?:\w+, ){column}"(\w+)"', text, re.M))


def headers_define(root):
    """Every WEFT_ name that a header defines: macros, enumerators, generated ones."""
    names = set()
    for path in (root / "include").rglob("*"):
        if path.suffix in (".h", ".def", ".in"):
            code = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
            names.update(re.findall(r"\bWEFT_[A-Z0-9_]+\b", code))
            names.update(f"WEFT_{name}" for name in re.findall(r"^WEFT_STATUS\((\w+)", code, re.M))
    return names


def main():
    root = pathlib.Path(sys.argv[1])
    variables = rows(root, "params.def", "WF_PARAM_", "{1}")
    items = rows(root, "debug.def", "WF_DEBUG_", "{1}")
    renamed = rows(root, "renamed.def", "WF_RENAMED", "{0}")
    if not variables or not items or not renamed:
        sys.exit("a table of src/config cannot be read")
    wrong = [f"{name} is a variable and renamed" for name in variables & renamed]

    pages = {path: path.read_text() for path in (root / "docs/man").glob("*.[0-9]")}
    manual = "\n".join(pages.values())
    wrong += [f"docs/man: no .It Ev {name}" for name in variables
              if not re.search(rf"^\.It Ev (?:\w+ , )*{name}\b", manual, re.M)]
    listed = set()
    for line in re.findall(r"^\.It Cm (.*)$", pages[root / "docs/man/weft.3"], re.M):
        listed.update(word.split("=")[0] for word in line.split(" , "))
    wrong += [f"docs/man/weft.3: no .It Cm {item} of WEFT_DEBUG" for item in items - listed]

    known = variables | headers_define(root) | OTHERS
    texts = [path for pattern in TEXTS for path in root.glob(pattern)]
    for path in sorted({*texts, *map(pathlib.Path, sys.argv[2:])}):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            at = f"{path.relative_to(root)}:{number}"
            if line.startswith(".Dt "):  # a page's own name
                continue
            names = set(re.findall(NAMES + r"(?!\*)", line))
            wrong += [f"{at}: {name} is renamed" for name in names & renamed]
            wrong += [f"{at}: {name} is no variable" for name in
                      set(re.findall(rf"\.(?:Ev|It Ev) ({NAMES})", line)) - variables - renamed]
            wrong += [f"{at}: {name} is no variable and no constant" for name in names - known - renamed]
            for setting in re.findall(r"\bWEFT_DEBUG=([a-z0-9=,]+)", line):
                wrong += [f"{at}: {item} is no item of WEFT_DEBUG" for item in
                          {part.split("=")[0] for part in setting.split(",") if part} - items]
    print("\n".join(sorted(wrong)) or f"{len(variables)} variables, {len(items)} items of WEFT_DEBUG")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
