#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A server without a launcher: its clients come and go and are killed, and it keeps nothing of them.

usage: server_test.py SERVER [--clients N] [--killed N] [TRANSPORT...]

docs/server.md has its whole text. Prints what the server had before, with clients, and after them. Fails when a sum is wrong, or
when the server has more descriptors, mappings or resident memory than before."""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

DEADLINE = 60  # s; longer is a hang
WAVE = 100  # clients at a time
TIMEOUT = "1000"  # ms, WEFT_PEER_TIMEOUT: over a network the server keeps a killed client so long
SLACK_KIB = 4096  # of resident memory: what allocators keep of the buffers of a wave of clients


def held(pid):
    """(descriptors, mappings, resident KiB) of a process."""
    proc = pathlib.Path(f"/proc/{pid}")
    status = (proc / "status").read_text().split("VmRSS:")[1]
    return (len(os.listdir(proc / "fd")), len((proc / "maps").read_text().splitlines()),
            int(status.split()[0]))


def until(what, true):
    end = time.monotonic() + DEADLINE
    while not (value := true()):
        assert time.monotonic() < end, f"never came true: {what}"
        time.sleep(0.01)  # between two looks
    return value


class Server:
    def __init__(self, program, transport, folder):
        self.program, self.file = program, folder / f"{transport}.address"
        key = folder / "key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(os.urandom(32))
        self.env = {**os.environ, "WEFT_TRANSPORTS": f"loop,{transport}",
                    "WEFT_TCP_INTERFACES": "127.0.0.1", "WEFT_PEER_TIMEOUT": TIMEOUT,
                    "WEFT_KEY_FILE": str(key)}
        self.process = subprocess.Popen([program, self.file], env=self.env, text=True,
                                        stdout=subprocess.PIPE)
        until("the server's address is there", self.file.exists)

    def client(self, *words):
        return subprocess.Popen([self.program, self.file, *words], env=self.env, text=True,
                                stdout=subprocess.PIPE)

    def ask(self, n):
        out, _ = self.client(str(n)).communicate(timeout=DEADLINE)
        return int(out)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=DEADLINE)
        assert self.process.returncode == 0, f"the server's exit code is {self.process.returncode}"
        return int(out)


def wave(server, stay, killed):
    """[stay] clients that end, and [killed] that are killed while they ask."""
    before = until_steady(server)  # those that ended before are forgotten
    doomed = [server.client("0", str(1 << 40)) for _ in range(killed)]
    if killed:  # each has a connection: at least a descriptor at the server
        until("all are connected",
              lambda: held(server.process.pid)[0] >= before[0] + killed)
    busy = held(server.process.pid)
    ending = [server.client("1", "10") for _ in range(stay)]
    for client in doomed:
        client.kill()
    for client in ending:
        out, _ = client.communicate(timeout=DEADLINE)
        assert client.returncode == 0 and int(out) >= 10, (client.returncode, out)
    for client in doomed:
        client.communicate(timeout=DEADLINE)
    return busy


def check(program, transport, clients, killed, folder):
    server = Server(program, transport, folder)
    try:
        check_server(server, transport, clients, killed)
    finally:
        server.process.kill()  # if it is still there


def check_server(server, transport, clients, killed):
    assert server.ask(1) == 1
    wave(server, 1, 1)  # the first of a kind: the server allocates once
    total = 11
    fds = lambda: held(server.process.pid)[0]  # noqa: E731
    idle = until_steady(server)
    peak = (0, 0, 0)
    left, doomed = clients, killed
    while left:
        n = min(left, WAVE)
        k = min(doomed, n * killed // clients + 1, n)
        peak = max(peak, wave(server, n - k, k))
        left, doomed, total = left - n, doomed - k, total + 10 * (n - k)
    until(f"the server has {idle[0]} descriptors again, not {fds()}", lambda: fds() <= idle[0])
    after = until_steady(server)
    assert server.ask(0) == total, f"the sum is not {total}"
    for name, figures in (("before", idle), ("with clients", peak), ("after", after)):
        print(f"{transport}: {clients} clients, {killed} killed: {name:12} "
              f"{figures[0]:4} descriptors {figures[1]:4} mappings {figures[2]:6} KiB resident")
    assert after[0] <= idle[0] and after[1] <= idle[1], (idle, after)
    assert after[2] <= idle[2] + SLACK_KIB, (idle, after)
    assert server.stop() == total


def until_steady(server):
    """What it holds, when that has not changed for longer than WEFT_PEER_TIMEOUT."""
    last, since = held(server.process.pid), time.monotonic()
    end = since + DEADLINE
    while time.monotonic() < min(end, since + int(TIMEOUT) / 1000 * 1.2):
        time.sleep(0.05)  # between two looks
        now = held(server.process.pid)
        if now[:2] != last[:2]:
            last, since = now, time.monotonic()
    return held(server.process.pid)


def check_page():
    tree = pathlib.Path(__file__).resolve().parent.parent
    blocks = (tree / "docs/server.md").read_text().split("```c\n")[1:]
    texts = [block.split("```\n")[0] for block in blocks]
    assert (tree / "examples/server.c").read_text() in texts, \
        "docs/server.md's server and examples/server.c are not the same"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--killed", type=int, default=7)
    parser.add_argument("transports", nargs="*", default=["shm", "tcp"])
    words = parser.parse_args()
    check_page()
    with tempfile.TemporaryDirectory() as folder:
        for transport in words.transports or ["shm", "tcp"]:
            check(os.path.abspath(words.server), transport, words.clients, words.killed,
                  pathlib.Path(folder))


if __name__ == "__main__":
    sys.exit(main())
