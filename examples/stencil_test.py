#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The stencil computes what a second, plain implementation computes, the same on any number of
ranks, for every kind of PNG, and reports what is wrong with what it cannot use.

usage: stencil_test.py WEFT STENCIL
"""
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib

FRACTION = 20


def write_png(path, width, height, depth, kind, rows, palette=b""):
    """[rows]: packed bytes of each row; [kind]: PNG's colour type."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + (chunk(b"PLTE", palette) if palette else b"")
        + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def diffuse(rows, steps):
    """[steps] steps on rows of 8-bit pixels; pixels with FRACTION bits."""
    now = [[pixel << FRACTION for pixel in row] for row in rows]
    height, width = len(rows), len(rows[0])
    for _ in range(steps):
        was = now
        now = [[
            (was[max(y - 1, 0)][x] + was[min(y + 1, height - 1)][x]
             + was[y][max(x - 1, 0)] + was[y][min(x + 1, width - 1)] + 4 * was[y][x] + 4) >> 3
            for x in range(width)] for y in range(height)]
    return now


def checksum(pixels):
    value = 0xCBF29CE484222325
    for row in pixels:
        for byte in b"".join(struct.pack("<I", pixel) for pixel in row):
            value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


class Stencil:
    def __init__(self, weft, program, directory):
        self.weft, self.program, self.directory = weft, program, pathlib.Path(directory)

    def path(self, name):
        return self.directory / name

    def run(self, ranks, *args):
        return subprocess.run([self.weft, "run", "-n", str(ranks), "--", self.program, *map(str, args)],
                              text=True, capture_output=True, timeout=120)

    def sum(self, ranks, picture, steps):
        done = self.run(ranks, self.path(picture), self.path("out.png"), "--steps", steps)
        assert done.returncode == 0, f"{picture} on {ranks} ranks: {done.returncode}\n{done.stderr}"
        return re.search(r"checksum ([0-9a-f]{16})$", done.stdout).group(1)


def check_against_reference(stencil):
    rng = random.Random(1)
    for width, height, steps in ((61, 37, 20), (1, 5, 3), (7, 4, 1), (16, 9, 0), (33, 8, 41)):
        rows = [[rng.randrange(256) for _ in range(width)] for _ in range(height)]
        write_png(stencil.path("grey.png"), width, height, 8, 0, rows)
        want = checksum(diffuse(rows, steps))
        for ranks in (1, 2, 3, 4):
            got = stencil.sum(ranks, "grey.png", steps)
            assert got == want, f"{width}x{height}, {steps} steps, {ranks} ranks: {got}, not {want}"


def check_output(stencil):
    """With no steps the picture comes back; so it does when run on itself."""
    rows = [[(x * 5 + y * 3) % 256 for x in range(40)] for y in range(30)]
    write_png(stencil.path("grey.png"), 40, 30, 8, 0, rows)
    want = stencil.sum(2, "grey.png", 0)
    assert stencil.sum(2, "out.png", 0) == want, "0 steps changed the picture"


def check_formats(stencil):
    """A grey picture is the same whether stored as grey, RGB, palette, 16 bits or with alpha."""
    rows = [[(x * x + 7 * y) % 256 for x in range(20)] for y in range(12)]
    write_png(stencil.path("grey.png"), 20, 12, 8, 0, rows)
    want = stencil.sum(2, "grey.png", 5)
    forms = {
        "rgb": (8, 2, [[p for p in row for _ in range(3)] for row in rows], b""),
        "palette": (8, 3, rows, bytes(v for v in range(256) for _ in range(3))),
        "alpha": (8, 6, [[v for p in row for v in (p, p, p, 255)] for row in rows], b""),
    }
    for name, (depth, kind, packed, palette) in forms.items():
        write_png(stencil.path("form.png"), 20, 12, depth, kind, packed, palette)
        got = stencil.sum(2, "form.png", 5)
        assert got == want, f"{name}: {got}, not {want}"
    deep = [[v for p in row for v in (p, p)] for row in rows]
    write_png(stencil.path("form.png"), 20, 12, 16, 0, deep)
    assert re.fullmatch("[0-9a-f]{16}", stencil.sum(2, "form.png", 5)), "16 bits"
    clear = [[v for p in row for v in (p, 0)] for row in rows]
    write_png(stencil.path("form.png"), 20, 12, 8, 4, clear)
    white = checksum([[255 << FRACTION] * 20] * 12)
    assert stencil.sum(2, "form.png", 5) == white, "what is transparent is not white"


def check_errors(stencil):
    rows = [[0] * 4] * 2
    write_png(stencil.path("small.png"), 4, 2, 8, 0, rows)
    stencil.path("text.png").write_text("not a picture at all\n")
    whole = stencil.path("small.png").read_bytes()
    stencil.path("cut.png").write_bytes(whole[:45])
    small, out = stencil.path("small.png"), stencil.path("out.png")
    for ranks, args, code, text in (
            (2, (stencil.path("none.png"), out), 1, "No such file"),
            (2, (stencil.path("text.png"), out), 1, "Not a PNG"),
            (2, (stencil.path("cut.png"), out), 1, "cannot read"),
            (2, (small, stencil.path("no/out.png")), 1, "cannot write"),
            (3, (small, out), 2, "use at most 2"),
            (2, (small,), 2, "usage:"),
            (2, (small, out, "--what"), 2, "usage:"),
            (2, (small, out, "--steps", "-3"), 2, "give a number"),
            (2, (small, out, "--steps", "3x"), 2, "give a number")):
        done = stencil.run(ranks, *args)
        assert done.returncode == code, f"{args}: exit {done.returncode}, not {code}\n{done.stderr}"
        assert done.stderr.count(text) == 1, f"{args}: '{text}' is not printed once:\n{done.stderr}"


def ranks_of(launcher):
    """Process ids of the ranks that [launcher], a process id, has started."""
    children, found = {}, []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = stat.read_text().split(" (", 1)
        except (FileNotFoundError, ProcessLookupError):
            continue
        name, _, rest = rest.rpartition(") ")
        children.setdefault(int(rest.split()[1]), []).append((int(pid), name))
    todo = [launcher]
    while todo:
        for pid, name in children.get(todo.pop(), []):
            todo.append(pid)
            if name == "stencil":
                found.append(pid)
    return found


def cpu_ms(pid):
    """Time that the process has run: the first field of schedstat, in nanoseconds.
    stat's utime counts clock ticks, which one that runs between them never meets."""
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) // 1000000


def check_death(stencil):
    """A rank is killed while all compute: the others report it and end, with a failure."""
    for least_ms in (20, 200, 2000):  # a sanitizer's ranks use as much before they have joined
        errors = kill_one(stencil, least_ms)
        if "cannot join the job" not in errors:
            break
    assert len(re.findall("^stencil: rank [0-2]: .*: the peer died$", errors, re.M)) == 2, errors


def kill_one(stencil, least_ms):
    """Kill a rank once all have computed for so long. Returns the output."""
    rows = [[x % 256 for x in range(64)] for _ in range(64)]
    write_png(stencil.path("grey.png"), 64, 64, 8, 0, rows)
    command = [stencil.weft, "run", "-n", "3", "--keep-going", "--", stencil.program,
               stencil.path("grey.png"), stencil.path("out.png"), "--steps", "1000000000"]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        try:
            deadline = time.monotonic() + 60
            ranks = []
            while len(ranks) < 3 or min(map(cpu_ms, ranks)) < least_ms:
                assert time.monotonic() < deadline, "the ranks do not start to compute"
                assert job.poll() is None, f"it ended by itself:\n{job.stderr.read()}"
                ranks = ranks_of(job.pid)
            os.kill(ranks[1], signal.SIGKILL)
            _, errors = job.communicate(timeout=20)
        finally:
            job.kill()
    assert job.returncode != 0, "a rank was killed, and the job's exit code is 0"
    return errors


def main():
    with tempfile.TemporaryDirectory() as directory:
        stencil = Stencil(sys.argv[1], sys.argv[2], directory)
        check_against_reference(stencil)
        check_output(stencil)
        check_formats(stencil)
        check_errors(stencil)
        check_death(stencil)


if __name__ == "__main__":
    main()
