# SPDX-License-Identifier: BSD-3-Clause
"""The program traffic.c on several hosts: start it, exchange addresses, read its output."""

import os
import subprocess
import threading
import time

import netlib

KEY_FILE = f"{netlib.SHARED}/key"


def key_file():
    """A job's secret for processes without a job."""
    if not os.path.exists(KEY_FILE):
        with open(os.open(KEY_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
            f.write(os.urandom(32))
    return KEY_FILE


class Member:
    """One process. Its output is read as it comes, by two threads."""

    def __init__(self, net, host, argv, env):
        self.lines, self.errors, self.others = [], "", []
        self.news = threading.Condition()
        self.process = net.run(host, argv, env={"WEFT_KEY_FILE": key_file(), **env}, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        self.open = 2
        for stream in (self.process.stdout, self.process.stderr):
            threading.Thread(target=self._read, args=[stream], daemon=True).start()

    def _read(self, stream):
        for line in stream:
            with self.news:
                if stream is self.process.stdout:
                    self.lines.append(line.rstrip("\n"))
                else:
                    self.errors += line
                self.news.notify_all()
        with self.news:
            self.open -= 1
            self.news.notify_all()

    def printed(self, start):
        """The words behind each line that begins with the word [start]."""
        with self.news:
            return [line.split()[1:] for line in self.lines if line.split()[:1] == [start]]

    def expect(self, start, seconds=20, count=1):
        """Wait until [count] lines have begun with [start]; the words behind the last one."""
        def there():
            return sum(line.split()[:1] == [start] for line in self.lines) >= count
        with self.news:
            self.news.wait_for(lambda: there() or not self.open, seconds)
            if not there():
                state = "and ended" if not self.open else f"within {seconds} s"
                raise AssertionError(f"did not print '{start}' {state}:\n" + self._all())
        return self.printed(start)[count - 1]

    def complains(self, text, seconds=2):
        """Is [text] in its standard error, now or soon?"""
        with self.news:
            return self.news.wait_for(lambda: text in self.errors, seconds)

    def _all(self):
        """Its output, and the others' errors: a member that fails ends the others."""
        printed = "\n".join(line for line in self.lines
                         if not line.startswith(("stat", "address", "now")))
        rest = "".join(other.errors for other in self.others if other is not self)
        return f"{printed}\n{self.errors}--- the others:\n{rest}"

    def send(self, text):
        try:
            self.process.stdin.write(text)
            self.process.stdin.flush()
        except BrokenPipeError:
            self.expect("", 5)  # it has ended: what did it print?

    def now(self):
        """How many operations are complete."""
        before = len(self.printed("now"))
        self.send("now\n")
        return int(self.expect("now", count=before + 1)[0])

    def kill(self):
        self.process.kill()
        self.process.wait(10)

    def port(self):
        """Where it listens: the contact behind its 64 bytes of address; address.h."""
        return int.from_bytes(bytes.fromhex(self.expect("address")[0])[44:46], "little")

    def lost(self, other, seconds=20):
        """Wait until it has lost member [other]: (status, when)."""
        end = time.monotonic() + seconds
        count = 0
        while True:
            count += 1
            lost, status, when = self.expect("lost", max(0.1, end - time.monotonic()), count)
            if int(lost) == other:
                return status, int(when) / 1e9

    def finish(self, seconds=30, code=0):
        """It ends by itself with [code]."""
        with self.news:
            self.news.wait_for(lambda: not self.open, seconds)
            if self.open:
                raise AssertionError(f"still running after {seconds} s:\n{self._all()}")
        got = self.process.wait(seconds)
        assert got == code, f"code {got}, not {code}:\n{self._all()}"
        return self

    def numbers(self, start):
        """{name: value} of the lines "start NAME VALUE"."""
        return {name: int(value) for name, value in self.printed(start)}


class Members:
    """[places]: a host number for each member.
    [args], [env]: for all, or a list with each one's."""

    def __init__(self, net, program, places, args=(), env=None):
        self.members = []
        for me, place in enumerate(places):
            own = args[me] if args and isinstance(args[0], (list, tuple)) else args
            words = [program, "--me", me, "--size", len(places), *own]
            self.members.append(Member(net, place, words,
                                       env[me] if isinstance(env, list) else env or {}))
            self.members[-1].others = self.members

    def __getitem__(self, i):
        return self.members[i]

    def __iter__(self):
        return iter(self.members)

    def addresses(self):
        return [" ".join(["address", *member.expect("address")]) for member in self]

    def connect(self):
        """Hand the addresses around; they start when they have them."""
        lines = "".join(line + "\n" for line in self.addresses())
        for member in self:
            member.send(lines)
        for member in self:
            member.expect("started")

    def move(self, operations=200, seconds=20, members=None):
        """Each goes on by so many operations at least."""
        goals = [(member, member.now() + operations) for member in members or self]
        end = time.monotonic() + seconds
        for member, goal in goals:
            while member.now() < goal:
                if time.monotonic() > end:
                    raise AssertionError(f"less than {operations} operations in {seconds} s")

    def stop(self):
        for member in self:
            if member.process.poll() is None:
                member.send("stop\n")

    def finish(self, seconds=30):
        """All end by themselves, and all held. The time is for all together."""
        end = time.monotonic() + seconds
        for member in self:
            member.finish(max(0.1, end - time.monotonic()))
            member.expect("done", 0)
        return self

    def total(self, name, start="stat"):
        return sum(member.numbers(start).get(name, 0) for member in self)
