#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The pages about the tree name files and functions that exist.

usage: doc_names.py [TREE]

README.md, ARCHITECTURE.md, CONTRIBUTING.md, docs/*.md and docs/design/*.md name files and folders in backticks, links and
indented blocks. Each is in the tree: by its path from the root, from src/ or from the page's folder, or by the end of its
path; a program by its source. `{a,b}`, `*`, NAME and DATE stand for several. In a table of pairs (name, release, acquire)
each other name in backticks behind a file occurs in that file, and each label of an atomic access in src/ has a row.
What is called wf_, net_ or weft_ there is a word of the sources. docs/layers.svg is what docs/layers.py writes.

Prints what is wrong, and exits 1 then."""

import itertools
import os
import pathlib
import re
import subprocess
import sys

PAGES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/*.md", "docs/design/*.md"]
ENDINGS = "c|h|cc|def|py|sh|pml|md|map|build|svg|supp"
WORD = r"[\w.*{},-]"
FILE = re.compile(rf"(?<![\w/.<>$~-])(?:{WORD}+/)*{WORD}+\.(?:{ENDINGS})\b(?![\w(])|"
                  rf"(?<![\w/.-])(?:src|tests|docs|scripts|bench|include|tools|examples|fuzz|packaging)(?:/{WORD}+)+/?")
# What a program of the reader's is called, and what is only built or installed.
NOT_HERE = {"FILE.c", "prog.c", "include/weft-conduit/weft-seq.mak"}


def files_of(tree):
    found = subprocess.run(["git", "-c", f"safe.directory={tree}", "ls-files", "-co", "--exclude-standard"], cwd=tree,
                           capture_output=True, text=True, check=True).stdout.split()
    here = {f for f in found if (tree / f).exists()}
    return here | {str(p) for f in here for p in pathlib.PurePath(f).parents if str(p) != "."}


def expanded(name):
    parts = [p.strip("{}").split(",") if p.startswith("{") else [p] for p in re.split(r"(\{[^}]*\})", name)]
    return ["".join(p) for p in itertools.product(*parts)]


def matches(name, page, files):
    """The files of the tree that [name] can mean."""
    name = re.sub(r"NAME|DATE", "*", name.rstrip("/"))
    for base in ("", "src/", str(pathlib.PurePath(page).parent) + "/", "docs/"):
        path = os.path.normpath(base + name)
        found = [f for f in files if f in (path, path + ".c") or ("*" in path and pathlib.PurePath(f).match(path))]
        if found:
            return found
    ending = re.compile("(^|/)" + re.escape(name).replace(r"\*", "[^/]*") + "$")
    return [f for f in files if ending.search(f)]


def spans(text):
    """(line number, text) of what may be names: in backticks, or in an indented block."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        if fenced:
            continue
        if line.startswith("    "):
            yield number, line
        for words in re.findall(r"`([^`]+)`", line) + re.findall(r"\]\(([^)#]+)\)", line):
            yield number, words


def names_wrong(page, text, files):
    for number, words in spans(text):
        if re.match(r"https?:", words.strip()):
            continue
        for found in FILE.finditer(words):
            for name in expanded(found.group().rstrip(".,")):
                if name not in NOT_HERE and not name.startswith(("build/", "weft/")) and not matches(name, page, files):
                    yield f"{page}:{number}: there is no {name}"


def pairs_wrong(page, text, files, tree):
    """In tables whose head has release and acquire: names behind a file occur in it."""
    in_pairs = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            in_pairs = False
            continue
        if "release" in line and "acquire" in line and "name" in line:
            in_pairs = True
        if not in_pairs:
            continue
        for cell in line.split("|")[2:4]:
            texts = []
            for words in re.findall(r"`([^`]+)`", cell):
                if re.fullmatch(rf"[\w/.-]+\.(?:{ENDINGS})", words):
                    texts = [(tree / f).read_text() for f in matches(words, page, files) if (tree / f).is_file()]
                    continue
                for name in re.findall(r"[A-Za-z_]\w+", words):
                    if texts and not any(re.search(rf"\b{name}\b", t) for t in texts):
                        yield f"{page}:{number}: {name} is not in the file that is named before it"


NAMED = re.compile(r"\b(?:wf|weft|net|WF|WEFT)_[A-Za-z0-9_]+\b(?![*{])")


def identifiers_wrong(page, text, known):
    for number, words in spans(text):
        for name in NAMED.findall(words):
            if name not in known and not name.endswith("_"):
                yield f"{page}:{number}: nothing is called {name}"


LABEL = re.compile(r'(?:acquire|release|ACQUIRE|RELEASE|ACQ_REL|atomic).*/\* "([a-z ]+)"')


def labels_missing(tree, files):
    """Labels of acquires and releases in src/ that ARCHITECTURE.md has no row for."""
    rows = re.findall(r"^\| ([^|]+) \|", (tree / "ARCHITECTURE.md").read_text(), re.M)
    known = {re.sub(r" *\(.*", "", name) for row in rows for name in row.split(", ")}
    for file in sorted(f for f in files if f.startswith("src/") and f.endswith((".c", ".h"))):
        for number, line in enumerate((tree / file).read_text().splitlines(), 1):
            for label in LABEL.findall(line):
                if label not in known:
                    yield f'{file}:{number}: ARCHITECTURE.md has no pair "{label}"'


def main():
    tree = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()
    files = files_of(tree)
    wrong = []
    sources = [f for f in files if f.startswith(("src/", "include/", "tools/", "tests/", "fuzz/")) and (tree / f).is_file()]
    known = set(re.findall(r"\w+", "\n".join((tree / f).read_text(errors="replace") for f in sources)))
    for page in sorted(p for pattern in PAGES for p in tree.glob(pattern)):
        name, text = str(page.relative_to(tree)), page.read_text()
        wrong += names_wrong(name, text, files)
        wrong += identifiers_wrong(name, text, known)
        wrong += pairs_wrong(name, text, files, tree)
    wrong += labels_missing(tree, files)
    wrong += [] if subprocess.run([tree / "docs/layers.py", "--check"]).returncode == 0 else ["docs/layers.svg"]
    print("\n".join(wrong))
    print(f"{len(wrong)} names are wrong")
    return 1 if wrong else 0


sys.exit(main())
