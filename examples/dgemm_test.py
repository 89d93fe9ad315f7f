#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""dgemm multiplies what a plain implementation multiplies, with the same bits on any number of
ranks, from every kind of file it reads; and it reports what is wrong with the others.

usage: dgemm_test.py WEFT DGEMM
"""
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

WEFT, DGEMM = sys.argv[1:3]
MAGIC = b"\x93NUMPY"


def npy(rows, fortran=False, version=1, descr="<f8", shape=None, cut=0, extra=b""):
    """A .npy file's bytes. [shape]: what the header claims."""
    shape = shape or f"({len(rows)}, {len(rows[0])})"
    head = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}"
    width = "<H" if version == 1 else "<I"
    head += " " * (-(8 + struct.calcsize(width) + len(head) + 1) % 64) + "\n"
    order = zip(*rows) if fortran else rows
    data = b"".join(struct.pack(f"<{len(line)}d", *line) for line in map(list, order))
    whole = MAGIC + bytes([version, 0]) + struct.pack(width, len(head)) + head.encode() + data
    return whole[:len(whole) - cut] + extra


def read_npy(path):
    data = path.read_bytes()
    assert data[:8] == MAGIC + b"\1\0" and (10 + struct.unpack("<H", data[8:10])[0]) % 64 == 0
    start = 10 + struct.unpack("<H", data[8:10])[0]
    rows, cols = map(int, re.search(rb"\((\d+), (\d+)\)", data[:start]).groups())
    numbers = struct.unpack(f"<{rows * cols}d", data[start:])
    return [list(numbers[r * cols:(r + 1) * cols]) for r in range(rows)]


def mtx(rows, form="array", field="real", symmetry="general"):
    lines = [f"%%MatrixMarket matrix {form} {field} {symmetry}", "% made by a test", ""]
    cells = [(r, c) for c in range(len(rows[0])) for r in range(len(rows))
             if symmetry == "general" or r >= c]
    show = (lambda v: str(int(v))) if field == "integer" else repr
    if form == "array":
        lines.append(f"{len(rows)} {len(rows[0])}")
        lines += [show(rows[r][c]) for r, c in cells]
    else:
        cells = [(r, c) for r, c in cells if rows[r][c]]
        random.shuffle(cells)
        lines.append(f"{len(rows)} {len(rows[0])} {len(cells)}")
        lines += [f"{r + 1} {c + 1} {show(rows[r][c])}" for r, c in cells]
    return "\n".join(lines).encode() + b"\n"


def whole_numbers(rows, cols):
    return [[float(random.randint(-9, 9)) for _ in range(cols)] for _ in range(rows)]


def fractions(rows, cols):
    return [[random.uniform(-1, 1) for _ in range(cols)] for _ in range(rows)]


def product(a, b):
    columns = list(zip(*b))
    return [[sum(x * y for x, y in zip(row, column)) for column in columns] for row in a]


def symmetric(n):
    m = whole_numbers(n, n)
    return [[m[max(r, c)][min(r, c)] for c in range(n)] for r in range(n)]


class Place:
    def __init__(self, directory):
        self.at = pathlib.Path(directory)

    def run(self, a, b, *options, ranks=1, code=0):
        """Multiply two files' bytes. Returns the result's path and the output."""
        a_path, b_path, out = self.at / "a", self.at / "b", self.at / f"c{ranks}.npy"
        out.unlink(missing_ok=True)
        a_path.write_bytes(a)
        b_path.write_bytes(b)
        done = subprocess.run([WEFT, "run", "-n", str(ranks), "--", DGEMM, a_path, b_path, out,
                               *options], capture_output=True, text=True, timeout=60, check=False)
        output = done.stdout + done.stderr
        assert done.returncode == code, f"code {done.returncode}, not {code}\n{output}"
        return out, output


def test_formats(place):
    """Whole numbers, so that there is one right result, through every format."""
    a, b = whole_numbers(7, 5), whole_numbers(5, 9)
    want = product(a, b)
    for left in (npy(a), npy(a, fortran=True), npy(a, version=2), npy(a, fortran=True, version=3),
                 mtx(a), mtx(a, field="integer"), mtx(a, "coordinate"),
                 mtx(a, "coordinate", "integer")):
        out, _ = place.run(left, npy(b), "--tile", "4", ranks=2)
        assert read_npy(out) == want
    s = symmetric(5)
    for right in (mtx(s, symmetry="symmetric"), mtx(s, "coordinate", symmetry="symmetric"),
                  mtx(s, "coordinate", "integer", "symmetric")):
        out, _ = place.run(npy(a), right, "--tile", "2")
        assert read_npy(out) == product(a, s)
    out, _ = place.run(mtx([[0.0, 0.0]], "coordinate"), npy([[1.0], [2.0]]))
    assert read_npy(out) == [[0.0]], "a matrix without entries"


def test_ranks(place):
    """The same bits from 1, 2 and 4 ranks, close to the sums of plain Python."""
    for rows, inner, cols, tile in ((33, 65, 17, 8), (1, 1, 1, 256), (1, 50, 1, 7), (40, 1, 40, 16),
                                    (64, 64, 64, 16), (5, 5, 5, 1), (30, 100, 30, 64)):
        a, b = fractions(rows, inner), fractions(inner, cols)
        results = set()
        for ranks in (1, 2, 4):
            out, output = place.run(npy(a), npy(b, fortran=True), "--tile", str(tile), "--check",
                                  ranks=ranks)
            assert "bit for bit" in output and f"{ranks} rank" in output, output
            results.add(out.read_bytes())
        assert len(results) == 1, f"{rows} x {inner} x {cols}: bits depend on the ranks"
        for got, want in zip(read_npy(out), product(a, b)):
            assert all(abs(x - y) <= 1e-13 * inner for x, y in zip(got, want)), (got, want)


GOOD = [[1.0, 2.0], [3.0, 4.0]]
HEAD = b"%%MatrixMarket matrix "
# file, error
BAD = [
    (b"", "neither"),
    (b"\x93NUMPZ" + npy(GOOD)[6:], "neither"),
    (npy(GOOD, version=4), "version 4"),
    (npy(GOOD)[:9], "cut off in its header"),
    (npy(GOOD)[:40], "cut off in its header"),
    (npy(GOOD, cut=1), "4 numbers|32 bytes, but 31"),
    (npy(GOOD, extra=b"x"), "32 bytes, but 33"),
    (npy(GOOD, descr="<f4"), r"type is '<f4', not '<f8'"),
    (npy(GOOD, descr=">f8"), r"type is '>f8'"),
    (npy(GOOD, shape="(4,)"), "one dimension"),
    (npy(GOOD, shape="(2, 2, 1)"), "two dimensions"),
    (npy(GOOD, shape="()"), "two dimensions"),
    (npy(GOOD, shape="(-2, -2)"), "two dimensions"),
    (npy(GOOD, shape="(0, 2)"), "0 x 2 is no matrix"),
    (npy(GOOD, shape="(1000000000, 1000000000)"), "memory"),
    (npy(GOOD, shape="(4611686018427387904, 4)"), "memory"),
    (npy(GOOD, shape="(99999999999999999999999, 1)"), "two dimensions"),
    (npy(GOOD, shape="(1000, 1000)"), "8000000 bytes, but 32"),
    (npy(GOOD, fortran="Maybe"), "neither True nor False"),
    (npy(GOOD).replace(b"descr", b"dexcr"), "no descr"),
    (MAGIC + b"\2\0\xff\xff\xff\xff" + b" " * 100, "absurd"),
    (HEAD + b"array real\n1 1\n1\n", "four words"),
    (b"%%Matrix real\n1 1\n1\n", "four words"),
    (HEAD + b"array complex general\n1 1\n1 1\n", "numbers are complex"),
    (HEAD + b"coordinate pattern general\n1 1 1\n1 1\n", "numbers are pattern"),
    (HEAD + b"array real hermitian\n1 1\n1\n", "is hermitian"),
    (HEAD + b"list real general\n1 1\n1\n", "format is list"),
    (HEAD.replace(b"matrix ", b"vector ") + b"array real general\n1 1\n1\n", "a vector"),
    (HEAD + b"array real general\n", "ends before its sizes"),
    (HEAD + b"array real general\n2\n1\n", "line 2: two sizes"),
    (HEAD + b"array real general\n2 -2\n1\n", "line 2: two sizes"),
    (HEAD + b"coordinate real general\n2 2\n1 1 1\n", "line 2: three sizes"),
    (HEAD + b"array real general\n0 4\n", "0 x 4 is no matrix"),
    (HEAD + b"array real general\n1000000000 1000000000\n1\n", "memory"),
    (HEAD + b"array real general\n2 2\n1\n2\n3\n", "after 3 of 4"),
    (HEAD + b"array real general\n1 2\n1\n2\n3\n", "line 5: more than the 2"),
    (HEAD + b"array real general\n1000 1000\n1\n", "claims 1000000 entries"),
    (HEAD + b"coordinate real general\n2 2 999999999\n1 1 1\n", "claims 999999999 entries"),
    (HEAD + b"coordinate real general\n2 2 1\n3 1 1\n", "line 3: row 3, column 1 is outside"),
    (HEAD + b"coordinate real general\n2 2 1\n0 1 1\n", "is outside"),
    (HEAD + b"coordinate real general\n2 2 1\n1 1 x\n", "line 3: that is no real"),
    (HEAD + b"coordinate real general\n2 2 1\n1 1\n", "no real"),
    (HEAD + b"coordinate integer general\n2 2 1\n1 1 1.5\n", "no integer"),
    (HEAD + b"coordinate real symmetric\n2 2 1\n1 2 1\n", "above the diagonal"),
    (HEAD + b"array real symmetric\n1 2\n1\n2\n", "symmetric, but 1 x 2"),
    (HEAD + b"array real general\n1 1\n" + b"1" * 2000 + b"\n", "longer than 1024"),
]


def test_bad_files(place):
    for data, text in BAD:
        out, got = place.run(data, npy(GOOD), code=1)
        assert re.search(text, got), f"{text!r} is not printed for {data[:120]!r}\n{got}"
        assert not out.exists()
    place.run(npy(GOOD), npy(GOOD, cut=3), code=1, ranks=3)


def test_usage(place):
    good = npy(GOOD)
    for options, text in ((["--tile"], "needs a number"), (["--tile", "0"], "needs a number"),
                          (["--tile", "9x"], "needs a number"), (["--tiel", "9"], "unknown option"),
                          (["more"], "one argument too many")):
        assert text in place.run(good, good, *options, code=2)[1]
    _, output = place.run(good, npy([[1.0, 2.0]]), code=1)
    assert "2 x 2, B 1 x 2" in output, output
    thin = npy([[1.0] * 300000])
    _, output = place.run(npy([[1.0]]), thin, "--tile", "8192", code=1)
    assert "a smaller --tile" in output, output


def main():
    failed = 0
    tests = [f for name, f in list(globals().items()) if name.startswith("test_")]
    for test in tests:
        with tempfile.TemporaryDirectory() as directory:
            try:
                test(Place(directory))
                print(f"{test.__name__} ok", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"{test.__name__} FAILED: {error}", flush=True)
    print(f"{len(tests) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
