#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares a program with records of the kernel module rv, call by call and event by event.

    oracle.py --member PROGRAM FILE...    run the scenarios of the files (oracle/*/*.jsonl)
    --record DIRECTORY                    write what the members did, as files of the same form
    --world PROGRAM                       cuts the cable and removes devices: see below
    --differs FILE                        differences that are meant (oracle/differs)
    --whole                               a scenario that cannot be run is a failure

A record is script and answer at once (oracle/README.md). Each process of a scenario is a *member*:
PROGRAM NODE NAME TAG, which reads a request a line from standard input and answers each with one
line. TAG is unique to the run of the scenario. The end of standard input ends the member.

    request   CALL KEY=VALUE...      numbers are decimal; lists have commas
    answer    STATUS KEY=VALUE...    ok, or the name of an error

    query version=     query_old    map_ring ring=    close    fork    child REQUEST
    attach dev= mode= port= connections= index_bits= gid_index= gid= job= key= key_len= service=
           ring= depth= reconnect_s= heartbeat_ms= cache_mb= address=
                                     ok index= cache_mb= depth= reconnect_s= region_pages= contact=
    reg buf= at= len= access= pd= | address= len= access=
                                     ok handle= lkey= rkey= io= addr= hit=
    dereg handle= [buf= at= len= access=]
    evict how= [buf= at= len= access=] [bytes= count=]              ok bytes= count=
    churn times= buf= at= len= access=                              ok key_again_after= ...
    create to= contact= ...          ok handle=
    connect handle= ...    connected handle=                        ok value=
    count handle= sub=                                              ok count=
    post handle= mr= addr= len= remote= rkey= imm= wr=              ok sub= count=
    events n= ms=                    ok events=KIND/STATUS/NUMBER/LENGTH/CONNECTION,...
    stats of= [handle= sub=]         ok and the counters
    mmap buf= len= [prot= at_address_of=]    munmap, dontneed, mprotect buf= at= len=
    mremap buf= to=    fill buf= at= len= byte=    look buf= at= len=    ok bytes=

A member answers "none" to a call that its interface does not have. The scenario is not run if one
answers "unbuilt" (its interface is to have the call later) or "cannot" (the machine lacks something). Handles, keys and addresses may have any values: the
comparison gives them the names that the record has. Events of one ring are compared in order;
those of different rings have no order.

The world is started as PROGRAM TAG and answers lines, too: "cable down", "device A gone", and
"objects A" by the numbers of the kernel's objects on that node: ok qp= cq= pd= mr=

Exits 1 if a scenario differs, 77 if none could be run."""

import argparse
import collections
import fnmatch
import json
import os
import platform
import select
import shlex
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ANSWER_S = 60  # for one answer of a member: the most that a call may take
WAIT_S = 60  # for what a line "wait" names
QUIET_S = 0.5  # without an event: no more will come
POLL_S = 0.01
SECOND = 1  # of a line that waits for time to pass
SORTED = 8  # as many events, or more, are compared by number
DEFAULTS = {"dev": "own", "mode": "kernel", "port": 1, "connections": 4, "index_bits": 4,
            "gid_index": 0, "gid": "own", "job": "j1", "key": "", "key_len": 16, "service": 0,
            "ring": 64, "depth": 64, "reconnect_s": 30, "heartbeat_ms": 1000, "cache_mb": 0,
            "address": 0}
NO_PEER = {"remote": 0, "rkey": 0}
NO_HANDLE = 0x7fffffffffff0000


class NotRun(Exception):
    """The scenario cannot be run here."""


class Broken(Exception):
    """A member ended, or does not answer."""


# ---- members ----

def words(call, values):
    shown = {k: v.replace(" ", ",") if isinstance(v, str) else v for k, v in values.items()}
    return " ".join([call, *(f"{key}={value}" for key, value in shown.items())])


def parsed(answer):
    """Returns the status and the values of an answer; numbers are integers."""
    status, *rest = answer.split()
    values = dict(word.split("=", 1) for word in rest)
    return status, {k: int(v) if v.lstrip("-").isdigit() else v for k, v in values.items()}


class Process:
    """A member that is a process. Another one has the same three functions."""

    def __init__(self, command, user=None):
        self.name = shlex.join(command)
        self.pending = b""
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        user=user)

    def ask(self, request):
        try:
            self.process.stdin.write((request + "\n").encode())
            self.process.stdin.flush()
        except OSError as error:
            raise Broken(f"{self.name} has ended before '{request}'") from error
        end = time.monotonic() + ANSWER_S
        while b"\n" not in self.pending:
            left = max(0, end - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                raise Broken(f"{self.name} does not answer '{request}'")
            got = os.read(self.process.stdout.fileno(), 1 << 16)
            if not got:
                raise Broken(f"{self.name} ended in '{request}'")
            self.pending += got
        line, self.pending = self.pending.split(b"\n", 1)
        return line.decode()

    def end(self):
        """Returns once the process has ended."""
        self.process.stdin.close()
        try:
            code = self.process.wait(ANSWER_S)
        except subprocess.TimeoutExpired as error:
            self.kill()
            self.process.wait()
            raise Broken(f"{self.name} does not end") from error
        self.process.stdout.close()
        if code > 0:
            raise Broken(f"{self.name} exited with {code}")

    def kill(self):
        self.process.kill()


# ---- comparing ----

def is_range(value):
    return isinstance(value, dict) and set(value) == {"from", "to"}


def matches(recorded, here):
    if is_range(recorded):
        return isinstance(here, int) and recorded["from"] <= here <= recorded["to"]
    return recorded == here


def differences(recorded, here, path=""):
    """(field, recorded, here) of each field of the record that differs."""
    if isinstance(recorded, dict) and isinstance(here, dict) and not is_range(recorded):
        for key, value in recorded.items():
            yield from differences(value, here.get(key), f"{path}.{key}" if path else key)
    elif not matches(recorded, here):
        yield path, recorded, here


def of_answer(answer, here):
    """As differences; values of a call that failed are not compared."""
    found = list(differences(answer, here))
    failed = [row for row in found if row[0] == "ret"]
    return failed or found


def of_line(line, answer, here):
    """The differences from the alternative of the record that has the fewest."""
    common = {key: answer[key] for key in answer if key != "seen"}
    ways = [{**common, **{k: v for k, v in way.items() if k != "runs"}}
            for way in line.get("seen", [{}])]
    return min((of_answer(way, here) for way in ways), key=len)


class Rule:
    """A line of the file of differences: SCENARIO KIND FIELD RECORDED HERE | REASON. HERE may also be
    +N or -N: the number of the record, and N more or less."""

    def __init__(self, text, number):
        columns, _, self.reason = text.partition("|")
        try:
            self.scenario, self.kind, self.field, *values = columns.split()
            recorded, here = values
            self.more = int(here) if here[0] in "+-" else None
            self.recorded = None if recorded == "*" else (json.loads(recorded),)
            self.here = None if here == "*" or self.more else (json.loads(here),)
        except ValueError as error:
            raise SystemExit(f"differs:{number}: {error}: {text.strip()}") from error
        if not self.reason.strip():
            raise SystemExit(f"differs:{number}: no reason")
        self.number, self.used = number, 0

    def excuses(self, where, field, recorded, here):
        """[where] is (scenario, number of the line, kind)."""
        scenario, number, kind = where
        name, _, line = self.scenario.partition(":")
        if self.more and (not isinstance(here, int) or here != recorded + self.more):
            return False
        return (fnmatch.fnmatchcase(scenario, name) and line in ("", str(number)) and
                fnmatch.fnmatchcase(kind, self.kind) and fnmatch.fnmatchcase(field, self.field) and
                self.recorded in (None, (recorded,)) and self.here in (None, (here,)))


def rules_of(path):
    with open(path, encoding="utf-8") as f:
        lines = [(number, line) for number, line in enumerate(f, 1)]
    return [Rule(line, number) for number, line in lines
            if line.strip() and not line.startswith("#")]


# ---- a scenario ----

class Side:
    """A process of the scenario: its member, and the names of what it has."""

    def __init__(self, name, member):
        self.name, self.node, self.member = name, name[0], member
        self.params, self.values = dict(DEFAULTS), {}
        self.has_child = False
        self.base = 0      # index of the first process of its job on its node
        self.regions = {}  # name of a region: its raw values
        self.conns = {}    # name of a connection: its raw handle
        self.queue = []    # events that were fetched, and that no line of the record took yet
        self.fetched = collections.Counter()
        self.posted = []   # (to, imm, wr) of writes that were taken
        self.series = {}   # to: (imm, wr) of series that were taken, since their last outcome
        self.kept = []     # all events that were fetched


class Scenario:
    def __init__(self, lines, start, world=None):
        self.header, self.lines = lines[0], lines[1:]
        self.name = f"{self.header['group']}/{self.header['scenario']}"
        self.start, self.world = start, world
        self.sides, self.users, self.shared = {}, {}, {}
        self.bases = {}    # of jobs: Side.base
        self.nseries = self.number = 0
        self.killed_at = {}
        self.found = []    # (line's number, kind, field, recorded, here)
        self.written = []  # the lines as they are here

    # -- asking --

    def side(self, name):
        return self.sides[name.removeprefix("child of ")]

    def ask(self, name, call, **values):
        request = words(call, values)
        if name.startswith("child of "):
            request = "child " + request
            if not self.side(name).has_child and call != "fork":
                self.side(name).has_child = True
                self.ask(name.removeprefix("child of "), "fork")
        status, answer = parsed(self.side(name).member.ask(request))
        if status == "unbuilt":
            raise NotRun(f"the member does not have '{call}' yet")
        if status == "cannot":
            raise NotRun(f"'{call}' cannot be done on this machine")
        return status, answer

    def until(self, done, seconds=None):
        """Ask again and again: nothing reports what is waited for."""
        end = time.monotonic() + (WAIT_S if seconds is None else seconds)
        while not done():
            if time.monotonic() >= end:
                return False
            time.sleep(POLL_S)
        return True

    def next_call(self, number, name):
        later = (line["call"] for line in self.lines[number:]
                 if line.get("p") == name and "call" in line)
        return next(later, None)

    # -- calls: each returns the answer as a record has it --

    def call_open(self, line, number):
        name = line["p"]
        self.sides[name] = Side(name, self.start(name, self.users.get(name)))
        is_own = self.next_call(number, name) in ("query", "query_old")
        if not is_own and self.header["scenario"] != "query_first":
            status, _ = self.ask(name, "query", version="1.6")
            if status not in ("ok", "none"):
                return {"ret": f"query: {status}"}
        return {"ret": "ok"}

    def call_attach(self, line, _number):
        name, side = line["p"], self.side(line["p"])
        params = {**DEFAULTS, **line.get("in", {})}
        status, values = self.ask(name, "attach", **params)
        if status != "ok":
            return {"ret": status}
        side.params, side.values = params, values
        if params["mode"] == "kernel" and params["ring"] and self.header["scenario"] != "ring":
            mapped, _ = self.ask(name, "map_ring", ring=params["ring"])
            if mapped not in ("ok", "none"):
                status = f"map_ring: {mapped}"
        out = {key: value for key, value in values.items() if key != "contact"}
        if out.get("index") == "none":
            out["index"] = None
        elif "index" in out:
            out["index"] = self.relative(side, out["index"])
        return {"ret": status, "out": out}

    def relative(self, side, index):
        """Which index is the first does not matter: in the record it is 0."""
        length = int(side.params["key_len"])
        key = str(side.params["key"] or side.params["job"])[:length]
        job = (side.node, self.users.get(side.name), key, length, side.params["address"])
        side.base = self.bases.setdefault(job, index)
        return (index - side.base) % (1 << side.params["index_bits"])

    @staticmethod
    def shifted(imm, side, by):
        """The immediate, with another index of the receiving process."""
        bits = side.params["index_bits"]
        index = (imm >> (32 - bits)) + by
        return (index % (1 << bits)) << (32 - bits) | imm & ((1 << (32 - bits)) - 1)

    def call_query(self, line, _number):
        status, out = self.ask(line["p"], line["call"], **line.get("in", {}))
        if status == "ok":
            out["can"] = out["can"].split(",")
            return {"ret": status, "out": out}
        return {"ret": status}

    call_query_old = call_query

    def call_close(self, line, _number):
        return {"ret": self.ask(line["p"], "close")[0]}

    def call_map_ring(self, line, _number):
        return {"ret": self.ask(line["p"], "map_ring", **line["in"])[0]}

    def call_statistics(self, line, _number):
        return {"ret": self.ask(line["p"], "stats", of="cache")[0]}

    def call_reg(self, line, _number):
        side = self.side(line["p"])
        status, got = self.ask(line["p"], "reg", **line["in"])
        if status != "ok":
            return {"ret": status}
        wanted = line.get("out", {}).get("mr")
        page = got["addr"] & 4095
        if got["hit"]:
            same = [n for n, region in side.regions.items() if region["handle"] == got["handle"]]
            name = same[-1] if same else f"unknown {got['handle']}"
        else:
            name = wanted if wanted not in (None, *side.regions) else f"more{len(side.regions)}"
            side.regions[name] = {**got, "io": got["io"] - page, "addr": got["addr"] - page}
        entry = side.regions.get(name, got)
        keys = (got["lkey"], got["rkey"]) == (entry["lkey"], entry["rkey"])
        return {"ret": status, "out": {
            "mr": name, "hit": got["hit"], "io_offset": got["io"] - entry["io"],
            "io_is_address": got["io"] == got["addr"], "keys": "same" if keys else "other"}}

    def call_dereg(self, line, _number):
        values = dict(line["in"])
        region = self.side(line["p"]).regions.get(values.pop("mr"))
        handle = region["handle"] if region else NO_HANDLE
        return {"ret": self.ask(line["p"], "dereg", handle=handle, **values)[0]}

    def call_evict(self, line, _number):
        status, out = self.ask(line["p"], "evict", **line["in"])
        return {"ret": status, "out": out} if status == "ok" else {"ret": status}

    def call_churn(self, line, _number):
        status, out = self.ask(line["p"], "churn", **line["in"])
        if status == "ok" and "out" not in line:
            return {"ret": {status: line["in"]["times"]}}
        return {"ret": status, "out": out} if status == "ok" else {"ret": status}

    def conn_of(self, line):
        return self.side(line["p"]).conns.get(line["in"]["conn"], NO_HANDLE)

    def shared_name(self, node, handle, wanted=None):
        """Members of a node have the same connection if they have the same handle."""
        names = self.shared.setdefault(node, {})
        if handle not in names:
            free = wanted if wanted and wanted not in names.values() else None
            names[handle] = free or f"{node}c{len(names) + 1}"
        return names[handle]

    def call_create(self, line, _number):
        values = dict(line["in"])
        conn = values.pop("conn")
        there = [side for side in self.sides.values() if side.node == values["to"]]
        contact = next((s.values["contact"] for s in there if "contact" in s.values), "none")
        status, got = self.ask(line["p"], "create", contact=contact, **values)
        if status != "ok":
            return {"ret": status}
        side = self.side(line["p"])
        side.conns[conn] = got["handle"]
        shared = self.shared_name(side.node, got["handle"], line.get("out", {}).get("shared"))
        return {"ret": status, "out": {"conn": conn, "shared": shared}}

    def call_connect(self, line, _number):
        values = {key: value for key, value in line["in"].items() if key != "conn"}
        return {"ret": self.ask(line["p"], "connect", handle=self.conn_of(line), **values)[0]}

    def call_connected(self, line, _number):
        status, out = self.ask(line["p"], "connected", handle=self.conn_of(line))
        return {"ret": status, "out": out} if status == "ok" else {"ret": status}

    def call_count(self, line, _number):
        status, out = self.ask(line["p"], "count", handle=self.conn_of(line), sub=line["in"]["sub"])
        return {"ret": status, "out": out} if status == "ok" else {"ret": status}

    def call_counts(self, line, _number):
        counts = self.counts(line["p"], self.conn_of(line), line["in"]["subs"])
        return {"ret": "ok", "out": {"counts": counts}}

    def counts(self, name, handle, subs):
        answers = [self.ask(name, "count", handle=handle, sub=sub) for sub in range(subs)]
        return [out.get("count", status) for status, out in answers]

    # -- writes --

    def post(self, name, write):
        """[write]: conn, region, at, len, to, remote, rkey, imm, wr. Returns status and values."""
        side = self.side(name)
        status, out = self.ask(name, "post", handle=side.conns.get(write["conn"], NO_HANDLE),
                               **{k: v for k, v in write.items() if k not in ("conn", "to")})
        if status == "ok":
            side.posted.append((write["to"], write["imm"], write["wr"]))
        return status, out

    def target(self, to, region, at):
        there = self.sides[to].regions.get(region)
        return {"remote": there["io"] + at, "rkey": there["rkey"]} if there else dict(NO_PEER)

    def call_post(self, line, _number):
        values = line["in"]
        region = self.side(line["p"]).regions.get(values["mr"], {"handle": NO_HANDLE, "addr": 0})
        write = {"conn": values["conn"], "to": values["to"], "len": values["len"],
                 "addr": region["addr"] + values["at"],
                 "mr": NO_HANDLE if values.get("mr_handle") == "wrong" else region["handle"],
                 "mr_len": values.get("mr_len", 0),
                 "imm": self.shifted(int(values["imm"], 16), self.sides[values["to"]],
                                     self.sides[values["to"]].base), "wr": int(values["wr"][1:]),
                 **self.target(values["to"], values["to_mr"], values["to_at"])}
        if "key" in values:
            write["rkey"] = 0 if values["key"] == "0" else 0x7fffff00
        status, out = self.post(line["p"], write)
        return {"ret": status, "out": out} if status == "ok" else {"ret": status}

    def call_posts(self, line, _number):
        values, side, to = line["in"], self.side(line["p"]), self.sides[line["in"]["to"]]
        lengths = [int(word) for word in str(values["len"]).split()]
        again = values.get("again", "").split()
        first = 100000 * (self.nseries + 1)
        self.nseries += 1
        region = side.regions["m1"]
        index = to.values.get("index", 0) << (32 - to.params["index_bits"])
        ret, taken = collections.Counter(), []
        for i in range(values["n"]):
            length = lengths[i % len(lengths)]
            at = 0 if length == 100 else i % 16 * 65536
            at = min(at, max(0, region["len"] - length)) if "len" in region else at
            write = {"conn": "c", "to": to.name, "mr": region["handle"], "mr_len": 0,
                     "addr": region["addr"] + at, "len": length, "imm": index | first + i,
                     "wr": first + i, **self.target(to.name, "m1", at)}
            answer = [""]

            def posted(write=write, answer=answer):
                answer[0] = self.post(side.name, write)[0]
                return answer[0] not in again
            self.until(posted)
            ret[answer[0]] += 1
            if answer[0] == "ok":
                taken.append((write["imm"], write["wr"]))
        side.series.setdefault(to.name, []).extend(taken)
        return {"ret": dict(ret)}

    # -- events --

    def fetch(self, name, n, seconds):
        """Takes at most [n] events of the ring, within [seconds]. Returns them in the ring's
        order."""
        side, got, end = self.side(name), [], time.monotonic() + seconds
        while len(got) < n:
            left = max(0, end - time.monotonic())
            _, out = self.ask(name, "events", n=n - len(got), ms=int(1000 * min(left, 10)))
            listed = [row.split("/") for row in str(out.get("events", "")).split(",") if row]
            got += [{"kind": kind, "status": int(status), "number": int(number, 0),
                     "len": int(length), "conn": int(conn, 0)}
                    for kind, status, number, length, conn in listed]
            if not left:
                break
        side.fetched.update((e["kind"], e["number"]) for e in got)
        side.kept += got
        return got

    def drain(self, side):
        """Takes events until none has come for QUIET_S."""
        end = time.monotonic() + WAIT_S
        while side.member and time.monotonic() < end:
            got = self.fetch(side.name, 1 << 20, QUIET_S)
            side.queue += got
            if not got:
                break

    def event_line(self, side, event):
        number = {"wr": f"w{event['number']}"}
        if event["kind"] == "recv":
            number = {"imm": f"0x{self.shifted(event['number'], side, -side.base):08x}"}
        return {"event": event["kind"], "status": event["status"], **number, "len": event["len"],
                "shared": self.shared_name(side.node, event["conn"])}

    def take_event(self, line):
        side = self.side(line["p"])
        if not side.queue:
            return {"event": "none"}
        return self.event_line(side, side.queue.pop(0))

    def summary(self, line):
        """{"events":..}: what the last wait fetched, by kind and status."""
        side = self.side(line["p"])
        self.drain(side)
        events, side.queue = side.queue, []
        if line["events"] != "all":
            shown = collections.Counter(str(e["status"]) for e in events
                                        if e["kind"] == line["events"])
            return {"v": {**{key: 0 for key in line["v"]}, **shown}}
        shown = collections.Counter(f"{e['kind']}{e['status']}" for e in events)
        numbers = collections.Counter((e["kind"], e["number"]) for e in events)
        return {"v": dict(shown), "each_once": max(numbers.values(), default=1) == 1}

    def outcome(self, line):
        """Of the last series from one process to another."""
        side, to = self.side(line["p"]), self.sides[line["to"]]
        self.drain(side)
        self.drain(to)
        side.queue, to.queue = [], []
        series = side.series.pop(to.name, [])
        sent = {e["number"]: e["status"] for e in side.kept if e["kind"] == "sent"}
        arrived = collections.Counter(e["number"] for e in to.kept if e["kind"] == "recv")
        v = collections.Counter(ok_arrived=0, ok_not_arrived=0, failed_arrived=0,
                                failed_not_arrived=0, no_event=0)
        status = collections.Counter()
        for imm, wr in series:
            if wr not in sent:
                v["no_event"] += 1
                continue
            status[str(sent[wr])] += 1
            v[("ok" if sent[wr] == 0 else "failed") +
              ("_arrived" if arrived[imm] else "_not_arrived")] += 1
        twice = sum(1 for imm, _ in series if arrived[imm] > 1)
        return {"v": dict(v), "status": dict(status), "arrived_twice": twice}

    # -- what surrounds the processes --

    def env(self, line, number):
        """Returns what is compared of the line, or None."""
        kind, name = line["env"], line.get("p")
        if kind == "wait":
            return self.wait(line)
        if kind == "user":
            if os.geteuid():
                raise NotRun("a member of another user: run it as root")
            self.users[name] = 65534
        elif kind == "exit":
            self.sides[name].member.end()
            self.sides[name].member = None
        elif kind == "kill":
            self.sides[name].member.kill()
            self.killed_at[name] = time.monotonic()
        elif kind in ("cable", "device"):
            self.of_world(" ".join([kind, *(line[k] for k in ("node", "state", "when") if k in line)]))
        elif kind == "munmap" and line["buf"] == "ring":
            self.ask(name, "unmap_ring")
        else:
            if kind == "fork":
                self.sides[name].has_child = True
            values = {k: v for k, v in line.items() if k not in ("env", "p", "ret")}
            status, _ = self.ask(name, kind, **values)
            if status != "ok" and "ret" not in line:
                raise Broken(f"line {number}: {kind}: {status}")
            return {"ret": status} if "ret" in line else None
        return None

    def of_world(self, request):
        if not self.world:
            raise NotRun(f"'{request}' takes --world")
        return self.world(request)

    def wait(self, line):
        name, side = line["p"], self.side(line["p"])
        wanted = line["for"] if "for" in line else line["seen"][0]["for"]
        what, _, amount = wanted.partition("=")
        handle = side.conns.get("c", NO_HANDLE)
        if what == "events":
            got = self.fetch(name, int(amount), WAIT_S)
            if "seen" in line:  # one more may come
                got += self.fetch(name, 1, 0)
            ordered = sorted(got, key=lambda e: (e["number"], e["kind"]))
            side.queue += ordered if len(got) >= SORTED else got
            return {"for": f"events={len(got)}"}
        if what == "ended":
            side.member.end()
            lasted = time.monotonic() - self.killed_at.get(name, 0) > 0.5
            return {"for": what, "longer_than_half_a_second": lasted}
        if what == "quiet":
            before = self.ask(name, "stats", of="events")
            time.sleep(QUIET_S)
            return {"for": what if self.ask(name, "stats", of="events") == before else "events"}
        if what.endswith(" s"):
            time.sleep(SECOND * float(what.split()[0]))
            return {"for": what}
        done = {"connected": lambda: self.ask(name, "connected", handle=handle)[1].get("value") == 1,
                "EIO": lambda: self.ask(name, "connected", handle=handle)[0] != "ok",
                "counts": lambda: sum(n for n in self.counts(name, handle,
                                                             side.params["connections"])
                                      if isinstance(n, int)) >= int(amount)}[what]
        return {"for": wanted if self.until(done) else f"not {wanted}"}

    def stats(self, line):
        if line["stats"] == "device":
            return {"v": self.of_world(f"objects {line['node']}")}
        values, name = {"of": line["stats"]}, line["p"]
        if line["stats"] == "connection":
            conn = line["of"]["conn"]
            values["handle"] = 0 if conn == "all" else self.side(name).conns.get(conn, NO_HANDLE)
            values["sub"] = 255 if line["of"].get("sub", "all") == "all" else line["of"]["sub"]
        status, out = self.ask(name, "stats", **values)
        if status != "ok":
            return {"ret": status}
        if "flags" in out:
            out["flags"] = str(out["flags"]).split(",")
        return {"v": out}

    def look(self, line):
        _, out = self.ask(line["p"], "look", buf=line["look"], at=line["at"], len=line["len"])
        return {"bytes": [int(byte) for byte in str(out.get("bytes", "")).split(",") if byte]}

    # -- running --

    SCRIPT = {"call": ("call", "p", "in"), "event": ("p",), "events": ("events", "p"),
              "outcome": ("outcome", "p", "to"), "stats": ("stats", "p", "of", "node"),
              "look": ("look", "p", "at", "len"),
              "env": ("env", "p", "buf", "at", "len", "byte", "prot", "at_address_of", "to", "node",
                      "state", "when", "user")}

    def step(self, line, number):
        """Does the line. Returns its kind, the parts of it that are compared, and the same parts as
        they are here."""
        what = next(iter(line))
        kind = f"{what}.{line[what]}" if what in ("stats", "event", "env") else what
        if what == "call":
            kind = {"reg dereg evict": "churn"}.get(line["call"], line["call"])
            here = getattr(self, f"call_{kind}")(line, number)
        elif what == "env":
            here = self.env(line, number)
        else:
            here = {"event": self.take_event, "events": self.summary, "outcome": self.outcome,
                    "stats": self.stats, "look": self.look}[what](line)
        answer = {k: v for k, v in line.items() if k not in self.SCRIPT[what] and k != "seen"}
        return kind, answer if here is not None else {}, here or {}

    def note(self, number, kind, rows):
        self.found += [(number, kind, field, recorded, here) for field, recorded, here in rows]

    def rest_of(self, side):
        """Events that were waited for, and that no line of the record names."""
        for event in side.queue:
            shown = self.event_line(side, event)
            self.note(self.number, f"event.{event['kind']}", [("event", "none", shown)])
            self.written.append({"event": shown["event"], "p": side.name, **shown})
        side.queue = []

    def twice(self):
        """Events for which nothing was posted, or more of them than were posted."""
        sent, received = collections.Counter(), collections.defaultdict(collections.Counter)
        for side in self.sides.values():
            for to, imm, wr in side.posted:
                sent[side.name, wr] += 1
                index = imm >> (32 - self.sides[to].params["index_bits"])
                node = self.sides[to].node
                owner = next((s.name for s in self.sides.values() if s.node == node and
                              s.values.get("index") == index), to)
                received[owner][imm] += 1
        for side in self.sides.values():
            for (kind, number), n in side.fetched.items():
                most = sent[side.name, number] if kind == "sent" else received[side.name][number]
                if n > most:
                    yield f"{side.name} {kind} {number}", most, n

    def run(self):
        try:
            for number, line in enumerate(self.lines, 1):
                self.number = number
                if line.get("p") in self.sides and ("call" in line or "env" in line):
                    self.rest_of(self.sides[line["p"]])
                kind, answer, here = self.step(line, number)
                self.note(number, kind, of_line(line, answer, here))
                script = {k: v for k, v in line.items() if k in self.SCRIPT[next(iter(line))]}
                if "event" in line:
                    script = {"event": here["event"], **script}
                self.written.append({**script, **here})
            for side in self.sides.values():
                self.rest_of(side)
            self.note(len(self.lines) + 1, "events", self.twice())
        except Broken as error:
            self.note(self.number, "member", [("answer", "an answer", str(error))])
        finally:
            self.finish()

    def finish(self):
        for side in self.sides.values():
            if side.member:
                try:
                    side.member.end()
                except Broken as error:
                    self.note(len(self.lines) + 1, "member", [("end", 0, str(error))])
                side.member = None


# ---- the program ----

def record_of(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


class World:
    """What can cut the cable of a scenario."""

    def __init__(self, program, tag):
        self.process = Process([program, tag])

    def __call__(self, request):
        status, values = parsed(self.process.ask(request))
        if status != "ok":
            raise NotRun(f"the world: {request}: {status}")
        return values


def verdict(scenario, rules):
    """Prints the differences that no rule excuses. Returns how many there are, and how many are
    meant."""
    bad = meant = 0
    for number, kind, field, recorded, here in scenario.found:
        where = (scenario.name, number, kind)
        rule = next((r for r in rules if r.excuses(where, field, recorded, here)), None)
        if rule:
            rule.used += 1
            meant += 1
            continue
        bad += 1
        print(f"  {scenario.name}:{number} {kind} {field}: recorded {json.dumps(recorded)}, "
              f"here {json.dumps(here)}")
    return bad, meant


def write(scenario, module, directory):
    path = os.path.join(directory, scenario.name + ".jsonl")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    header = {**scenario.header, "module": module, "kernel": platform.release(), "runs": 1}
    with open(path, "w", encoding="utf-8") as f:
        for line in [header, *scenario.written]:
            f.write(json.dumps(line) + "\n")


def run_file(path, args, rules):
    """Returns "equal", "meant", "differs" or "not run"."""
    lines, tag = record_of(path), f"{os.getpid()}-{os.path.basename(path).split('.')[0]}"

    def start(name, user):
        return Process([args.member, name[0], name, tag], user)
    world = World(args.world, tag) if args.world else None
    scenario = Scenario(lines, start, world)
    try:
        scenario.run()
    except NotRun as error:
        print(f"{scenario.name}: not run: {error}")
        return "not run"
    finally:
        if world:
            world.process.end()
    if args.record:
        write(scenario, os.path.basename(args.member), args.record)
    bad, meant = verdict(scenario, rules)
    print(f"{scenario.name}: " + (f"{bad} differences" if bad else
                                  f"equal but for {meant} that are meant" if meant else "equal"))
    return "differs" if bad else "meant" if meant else "equal"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--member", required=True)
    parser.add_argument("--record")
    parser.add_argument("--world")
    parser.add_argument("--differs", default=os.path.join(HERE, "oracle", "differs"))
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    rules = rules_of(args.differs)
    results, ran = collections.Counter(), []
    for path in args.files:
        result = run_file(path, args, rules)
        results[result] += 1
        if result != "not run":
            header = record_of(path)[0]
            ran.append(f"{header['group']}/{header['scenario']}")
    stale = [r for r in rules if not r.used and r.scenario.partition(":")[0] in ran]
    for rule in stale:
        print(f"differs:{rule.number}: nothing differs so any more:{rule.reason.rstrip()}")
    print(", ".join(f"{results[key]} {key}" for key in ("equal", "meant", "differs", "not run")))
    if results["differs"] or stale or (args.whole and results["not run"]):
        return 1
    return 77 if not ran else 0


if __name__ == "__main__":
    sys.exit(main())
