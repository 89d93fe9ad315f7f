#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Mixed traffic between two machines of scripts/vm; then one of them is switched off.

usage: two_test.py PROGRAMS

Runs in both (--machines 2). PROGRAMS is the directory with traffic."""

import os
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "net"))
import members as crew  # pylint: disable=wrong-import-position

crew.KEY_FILE = "/tmp/key"
RANK = int(os.environ["VM_RANK"])
PORT = 7777
SECONDS = 120


class Local:
    """What members.py asks of a network."""

    @staticmethod
    def run(_node, argv, env=None, **popen):
        import subprocess  # pylint: disable=import-outside-toplevel
        own = {**os.environ, "WEFT_TRANSPORTS": "loop,rdma",
               "WEFT_TCP_INTERFACES": f"10.77.0.{RANK + 1}", **(env or {})}
        return subprocess.Popen([str(word) for word in argv], env=own, **popen)


def call():
    """A connection between the two machines' tests."""
    end = time.monotonic() + SECONDS
    if RANK == 0:
        listener = socket.create_server(("10.77.0.1", PORT))
        listener.settimeout(SECONDS)
        line = listener.accept()[0]
        line.settimeout(SECONDS)
        return line.makefile("rw")
    while True:
        try:
            return socket.create_connection(("10.77.0.1", PORT), SECONDS).makefile("rw")
        except OSError:
            assert time.monotonic() < end, "the other machine does not listen"
            time.sleep(0.1)  # nothing tells of it


def swap(line, text):
    line.write(text + "\n")
    line.flush()
    return line.readline().strip()


def switch_off():
    """At once. (The "o" of sysrq shuts devices down first, and a kernel whose NIC is busy may lock
    up in that.) scripts/vm ends a machine that would start again."""
    with open("/run/vm/box/code", "w", encoding="ascii") as f:
        f.write("0\n")
    os.sync()
    with open("/proc/sysrq-trigger", "w", encoding="ascii") as f:
        f.write("b")
    time.sleep(SECONDS)


def start(line, traffic, *args):
    member = crew.Member(Local, 0, [traffic, "--me", RANK, "--size", 2, "--max", 65536, *args], {})
    own = " ".join(["address", *member.expect("address", SECONDS)])
    other = swap(line, own)
    member.send("".join(text + "\n" for text in ((own, other) if RANK == 0 else (other, own))))
    member.expect("started", SECONDS)
    return member


def main():
    traffic = os.path.join(os.path.abspath(sys.argv[1]), "traffic")
    line = call()
    with open(os.open(crew.KEY_FILE, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
        f.write(b"a secret of the two machines' all")
        f.truncate(32)

    member = start(line, traffic, "--count", 50)
    member.finish(SECONDS)
    assert [words[1] for words in member.printed("peer")] == ["rdma"]
    swap(line, "finished")
    print("traffic: held", flush=True)

    member = start(line, traffic, "--survive", 1)
    crew.Members.move(None, 30, SECONDS, [member])
    swap(line, "moved")
    if RANK == 1:
        assert line.readline() == "off\n"  # all that this one has said has come, too
        switch_off()
    line.write("off\n")
    line.flush()
    off = time.monotonic()
    status, when = member.lost(1, SECONDS)
    assert status == "WEFT_EPEER", status
    member.expect("ended", SECONDS)
    member.send("stop\n")
    member.finish(SECONDS)
    print(f"switched off: learned after {when - off:.1f} s", flush=True)


if __name__ == "__main__":
    main()
