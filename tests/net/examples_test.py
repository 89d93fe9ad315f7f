#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The examples on 4 ranks over 2 and 4 hosts, also by the nodes' services, print the same as on
one, bit for bit. Started by Open MPI's mpirun, whose launch agent enters the hosts;
tests/job/hosts_test.py tests the jobs.

usage: examples_test.py HELLO STENCIL DGEMM      "" for what was not built"""

import os
import random
import re
import struct
import subprocess
import sys
import zlib

import netlib
from netlib import SHARED

HELLO, STENCIL, DGEMM = sys.argv[1:4]
PLACES = ([4], [2, 2], [1, 1, 1, 1])  # ranks on each host
# The same by the nodes' services: no rank has a connection to another host.
NODE = {"WEFT_TRANSPORTS": "loop,shm,node", "WEFT_NODE": "1"}
WAYS = [(ranks, {}) for ranks in PLACES] + [([2, 2], NODE)]


def job(net, ranks, argv, env):
    words, environ = net.mpirun(ranks, argv, env)
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=30,
                          check=False)
    assert not done.returncode, f"{ranks}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def crossed(net):
    """Bytes that the hosts have sent to each other."""
    return sum(int(net.check(host.number, "cat /sys/class/net/eth0/statistics/tx_bytes"))
               for host in net.hosts)


def results(argv, out=None, crossing=0):
    """Returns the output of [argv] and its file [out], for each of WAYS; with more than one host
    at least [crossing] bytes must have gone from one to another."""
    found = []
    for ranks, env in WAYS:
        with netlib.Net(hosts=len(ranks)) as net:
            before = crossed(net)
            output = job(net, ranks, argv, env)
            if len(ranks) > 1:
                went = crossed(net) - before
                assert went >= crossing, f"{ranks}: {went} bytes went between hosts"
        written = b""
        if out:
            with open(out, "rb") as f:
                written = f.read()
            os.unlink(out)
        found.append((sorted(output.splitlines()), written))
    return found


def test_hello():
    want = sorted(f"rank {(rank + 1) % 4}: hello from rank {rank}" for rank in range(4))
    for output, _ in results([HELLO]):
        assert output == want, output


def picture(path, width, height):
    rows = random.Random(1).randbytes(width * height)
    data = zlib.compress(b"".join(b"\0" + rows[y * width:(y + 1) * width] for y in range(height)))

    def chunk(name, body):
        end = struct.pack(">I", zlib.crc32(name + body))
        return struct.pack(">I", len(body)) + name + body + end

    with open(path, "wb") as f:
        header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
                + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def test_stencil():
    if not STENCIL:
        return
    source, out = f"{SHARED}/in.png", f"{SHARED}/out.png"
    picture(source, 300, 200)
    found = results([STENCIL, source, out, "--steps", "100"], out, 100 * 3 * 300 * 4)
    assert found[0][1]
    sums = [re.findall("checksum ([0-9a-f]{16})", " ".join(output)) for output, _ in found]
    assert len(sums[0]) == 1 and sums[1:] == sums[:1] * (len(WAYS) - 1), sums
    for _, written in found[1:]:
        assert written == found[0][1], "the picture depends on the hosts"


def matrix(path, size, seed):
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({size}, {size}), }}"
    head += " " * (-(10 + len(head) + 1) % 64) + "\n"
    draw = random.Random(seed)
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode()
                + b"".join(struct.pack("<d", draw.uniform(-1, 1)) for _ in range(size * size)))


def test_dgemm():
    if not DGEMM:
        return
    paths = [f"{SHARED}/{name}.npy" for name in "abc"]
    matrix(paths[0], 200, 1)
    matrix(paths[1], 200, 2)
    found = results([DGEMM, *paths, "--tile", "32"], paths[2], 200 * 200 * 8)
    assert found[0][1]
    for _, written in found[1:]:
        assert written == found[0][1], "the product depends on the hosts"


def main():
    netlib.enter()
    netlib.need("mpirun", "openmpi-bin")
    netlib.main([value for name, value in globals().items() if name.startswith("test_")])


if __name__ == "__main__":
    main()
