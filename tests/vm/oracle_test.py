#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests oracle.py, by members that answer as a record has it, with handles, keys and addresses of
their own: each record is equal to itself, and a record that was changed differs."""

import collections
import copy
import glob
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import oracle  # pylint: disable=wrong-import-position

oracle.WAIT_S, oracle.QUIET_S, oracle.SECOND = 0.1, 0.01, 0.001
PEERS = {}  # mirrors of one scenario, for what a series of writes brings to others


def number_of(text, base=0):
    """A raw value for a name."""
    return base + zlib.crc32(text.encode()) % 0xffff * 4096 + 4096


class Mirror:
    """A member that answers from the lines of a record."""

    def __init__(self, lines, name):
        self.name, self.node = name, name[0]
        self.lines = [line for line in lines[1:] if line.get("call") != "open" and
                      line.get("p", "").removeprefix("child of ") == name]
        self.at, self.left, self.waiting = 0, [], []
        self.taken, self.is_quiet = [], False
        PEERS[name] = self

    # The next line of the record that is of this kind; those before it are done.
    def next(self, *kinds):
        for i in range(self.at, len(self.lines)):
            line = self.lines[i]
            if line.get("call") in kinds or next(iter(line)) in kinds or line.get("env") in kinds:
                self.at = i + 1
                return line
        raise AssertionError(f"{self.name}: the record has no more of {kinds}")

    def ask(self, request):
        call, values = oracle.parsed(request.removeprefix("child "))
        return getattr(self, f"on_{call}", self.on_other)(call, values)

    def end(self):
        if any("longer_than_half_a_second" in line for line in self.lines):
            time.sleep(0.6)

    def kill(self):
        pass

    @staticmethod
    def shown(line):
        ret = line["ret"] if isinstance(line["ret"], str) else next(iter(line["ret"]))
        out = {k: "none" if v is None else ",".join(map(str, v)) if isinstance(v, list) else v
               for k, v in line.get("out", {}).items()}
        return oracle.words(ret, out)

    def on_other(self, call, _values):
        if call in ("munmap", "unmap_ring", "mmap", "fill", "dontneed", "mprotect", "fork"):
            return "ok"
        return self.shown(self.next("reg dereg evict" if call == "churn" else call))

    def on_mremap(self, call, _values):
        return self.next(call)["ret"]

    def is_next(self, call):
        later = [line["call"] for line in self.lines[self.at:] if "call" in line]
        return later[:1] == [call]

    def on_query(self, call, _values):
        return self.shown(self.next(call)) if self.is_next(call) else "ok"

    on_map_ring = on_query

    def on_statistics(self, call, _values):
        return self.shown(self.next(call))

    def on_reg(self, call, _values):
        line = self.next(call)
        if line["ret"] != "ok":
            return line["ret"]
        out, offset = line["out"], line["out"]["io_offset"]
        base = number_of(out["mr"], 1 << 40)
        addr = number_of(out["mr"], 1 << 30) + offset
        io = addr if out["io_is_address"] else base + offset
        return oracle.words("ok", {"handle": number_of(out["mr"]), "lkey": number_of(out["mr"], 7),
                                   "rkey": number_of(out["mr"], 8), "io": io, "addr": addr,
                                   "hit": out["hit"]})

    def on_create(self, call, _values):
        line = self.next(call)
        return f"ok handle={number_of(line['out']['shared'])}" if line["ret"] == "ok" else \
            line["ret"]

    def on_connected(self, call, _values):
        waits = [line for line in self.lines[self.at:self.at + 1]
                 if line.get("env") == "wait" and line.get("for") in ("connected", "EIO")]
        if waits:
            self.at += 1
            return "ok value=1" if waits[0]["for"] == "connected" else "EIO"
        return self.shown(self.next(call))

    def on_count(self, call, values):
        line = self.lines[self.at]
        if line.get("env") == "wait":  # counts=
            self.at += values["sub"] == 3
            return f"ok count={int(line['for'].partition('=')[2]) if values['sub'] == 3 else 0}"
        if line.get("call") == "counts":
            self.at += values["sub"] + 1 == line["in"]["subs"]
            return f"ok count={line['out']['counts'][values['sub']]}"
        return self.shown(self.next(call))

    def on_post(self, call, values):
        line = self.lines[self.at] if self.at < len(self.lines) else {}
        if line.get("call") != "posts":
            return self.shown(self.next(call))
        if not self.left:
            ret = line.get("seen", [line])[0]["ret"]
            self.left = [status for status, n in ret.items() for _ in range(self.least(n))]
            self.left += ["EAGAIN"] * (line["in"]["n"] - len(self.left))
        status = self.left.pop(0)
        if status == "ok":
            self.taken.append((values["imm"], values["wr"], values["len"]))
        self.at += not self.left
        return status if status != "ok" else "ok sub=0 count=1"

    # -- events --

    def raw(self, event):
        number = event["imm"] if event["event"] == "recv" else int(event["wr"][1:])
        return f"{event['event']}/{event['status']}/{number}/{event['len']}/" \
               f"{number_of(event['shared'])}"

    @staticmethod
    def least(value):
        return value["from"] if oracle.is_range(value) else value

    def of_outcome(self, line):
        """Events of a series that lead to this line: they are put before what waits for them."""
        to, v = PEERS.get(line["to"]), {k: self.least(n) for k, n in line["v"].items()}
        if oracle.is_range(line["v"]["ok_arrived"]):
            v["ok_arrived"] = line["v"]["ok_arrived"]["to"]
        v["failed_not_arrived"] += len(self.taken) - sum(v.values())
        status = {k: self.least(n) for k, n in line["status"].items() if k != "0"}
        if status:
            last = max(status, key=int) if "5" not in status else "5"
            status[last] += v["failed_arrived"] + v["failed_not_arrived"] - sum(status.values())
        bad = [k for k, n in status.items() for _ in range(n)]
        rows, taken, self.taken = [], self.taken, []
        for kind in ("ok_arrived", "ok_not_arrived", "failed_arrived", "failed_not_arrived"):
            for _ in range(v[kind]):
                imm, wr, length = taken.pop(0)
                code = "0" if kind.startswith("ok") else bad.pop(0)
                rows.append(f"sent/{code}/{wr}/{length}/1")
                if kind.endswith("_arrived") and "not" not in kind and to:
                    to.waiting.append(f"recv/0/{imm}/{length}/1")
        return rows

    def of_summary(self, line):
        """The numbers are those of what was posted."""
        kinds = {}
        for key, n in line["v"].items():
            kind, code = (line["events"], key) if line["events"] != "all" else (key[:4], key[4:])
            kinds[kind, code] = self.least(n)
        rows, pools = [], {kind: self.pool(kind) for kind, _ in kinds}
        for (kind, code), n in kinds.items():
            posted, pools[kind] = pools[kind][:n], pools[kind][n:]
            for number, length in posted:
                rows.append(f"{kind}/{code}/{number}/{length}/1")
        return rows

    def pool(self, kind):
        if kind == "sent":
            return [(wr, length) for _, wr, length in self.taken]
        mine = []
        for other in PEERS.values():
            if other.node != self.node:
                mine += [(imm, length) for imm, _, length in other.taken]
        # Those of another receiver have another index.
        return [row for row in mine if row[0] >> 28 == int(self.name[1:])]

    def on_events(self, _call, values):
        n = values["n"]
        while self.at < len(self.lines) and not self.waiting:
            line = self.lines[self.at]
            what = next(iter(line))
            if what == "event":
                self.waiting.append(self.raw(line))
            elif what == "outcome":
                self.waiting += self.of_outcome(line)
            elif what == "events":
                self.waiting += self.of_summary(line)
            elif what != "env" or (line["env"] == "wait" and "events" not in
                                   line.get("for", line.get("seen", [{}])[0].get("for"))):
                break
            self.at += 1
        while self.at < len(self.lines) and "event" in self.lines[self.at] and \
                len(self.waiting) < n:
            self.waiting.append(self.raw(self.lines[self.at]))
            self.at += 1
        got, self.waiting = self.waiting[:n], self.waiting[n:]
        return "ok events=" + ",".join(got)

    def on_stats(self, _call, _values):
        if self.lines[self.at].get("for") == "quiet":  # it is asked for twice
            self.at += self.is_quiet
            self.is_quiet = not self.is_quiet
            return "ok"
        kinds = ("stats", "statistics")
        line = self.next(*kinds)
        if line.get("ret"):
            return line["ret"]
        seen = line.get("seen", [line])[0]["v"]
        flat = {k: ",".join(v) if isinstance(v, list) else self.least(v) for k, v in seen.items()}
        return oracle.words("ok", flat)

    def on_look(self, _call, _values):
        line = self.next("look")
        return "ok bytes=" + ",".join(map(str, line["bytes"]))


def run(truth, doctored=None):
    """Runs a record with members that behave as [truth]. Returns the scenario."""
    PEERS.clear()
    objects = (line["v"] for line in truth[1:] if line.get("stats") == "device")
    scenario = oracle.Scenario(doctored or truth, lambda name, user: Mirror(truth, name),
                               lambda request: next(objects) if "objects" in request else {})
    scenario.run()
    return scenario


def record(name):
    return oracle.record_of(os.path.join(HERE, "oracle", name + ".jsonl"))


def found(scenario):
    return [(number, kind, field) for number, kind, field, _, _ in scenario.found]


def place(lines, **values):
    """The index of the first line that has these values."""
    return next(i for i, line in enumerate(lines)
                if all(line.get(k) == v for k, v in values.items()))


# ---- tests ----

def test_records():
    """Every record is equal to itself."""
    paths = sorted(glob.glob(os.path.join(HERE, "oracle", "*", "*.jsonl")))
    assert len(paths) == 87, len(paths)
    oracle.os.geteuid = lambda: 0  # mirrors of other users are no processes
    for path in paths:
        scenario = run(oracle.record_of(path))
        assert not scenario.found, (path, scenario.found)


def test_result():
    truth = record("cache/hit_miss_subrange_rounding")
    for field, value in (("hit", 0), ("io_offset", 8), ("mr", "m4"), ("keys", "other")):
        doctored = copy.deepcopy(truth)
        i = next(i for i, line in enumerate(truth) if line.get("out", {}).get("hit") == 1)
        doctored[i]["out"][field] = value
        assert (i, "reg", f"out.{field}") in found(run(truth, doctored)), field
    doctored = copy.deepcopy(truth)
    i = place(truth, call="dereg")
    doctored[i]["ret"] = "EINVAL"
    assert found(run(truth, doctored)) == [(i, "dereg", "ret")]
    doctored = copy.deepcopy(truth)
    i = place(truth, call="dereg") - 1
    doctored[i]["v"]["miss"] += 1
    assert found(run(truth, doctored)) == [(i, "stats.cache", "v.miss")]


def test_missing_event():
    truth = record("write/ring_full_and_drained")
    i = place(truth, event="recv", imm="0x00000002")  # the last one of a wait
    less = truth[:i] + truth[i + 1:]
    more = [row[1:] for row in found(run(truth, less))]
    assert more == [("event.recv", "event")], more  # one too many, seen at the next call
    rows = found(run(less, truth))  # one too few
    assert (i - 3, "env.wait", "for") in rows and (i, "event.recv", "event") in rows, rows
    # The same behind the last call of the record.
    i = place(truth, event="sent")
    more = [row[1:] for row in found(run(truth[:i + 1], truth[:i]))]
    assert more == [("event.sent", "event")], more


def test_order():
    truth = record("write/ring_full_and_drained")
    i = place(truth, event="recv", imm="0x00000000")
    doctored = truth[:i] + [truth[i + 1], truth[i]] + truth[i + 2:]
    wrong = [(i, "event.recv", "imm"), (i + 1, "event.recv", "imm")]
    assert found(run(truth, doctored)) == wrong
    assert found(run(doctored, truth)) == wrong
    # Events of two rings have no order.
    truth = record("write/one_each_way")
    i = place(truth, event="recv")
    doctored = truth[:i] + truth[i + 1:i + 3] + [truth[i]] + truth[i + 3:]
    assert not found(run(truth, doctored)), found(run(truth, doctored))


def test_twice():
    truth = record("write/one_each_way")
    i = place(truth, event="recv")
    again = truth[:i + 1] + [truth[i]] + truth[i + 1:]
    again[i - 1] = {**truth[i - 1], "for": "events=2"}
    rows = run(again, again).found
    assert [(kind, recorded, here) for _, kind, _, recorded, here in rows] == [("events", 1, 2)]


def test_alternatives():
    truth = record("trouble/link_3s_64_writes")
    i = next(i for i, line in enumerate(truth) if "seen" in line)
    member = copy.deepcopy(truth)
    for way, rows in (({"EAGAIN": 1}, 0), ({"ENOMEM": 1}, 1)):
        member[i]["seen"] = [{"ret": way}]
        assert len([row for row in found(run(member, truth)) if row[0] == i]) == rows
    for n, rows in ((0, 0), (2, 0), (3, 1)):
        member = copy.deepcopy(truth)
        j = place(truth, outcome="writes")
        member[j]["v"]["failed_arrived"] = n
        bad = [row for row in found(run(member, truth)) if row[2] == "v.failed_arrived"]
        assert len(bad) == rows, (n, bad)


def test_names():
    """A handle that another region of the process had is another name."""
    truth = record("cache/access_differs")
    member = copy.deepcopy(truth)
    i = next(i for i, line in enumerate(truth) if line.get("out", {}).get("hit") == 1)
    member[i]["out"]["mr"] = "m2"
    assert (i, "reg", "out.mr") in found(run(member, truth))
    truth = record("connect/second_process_shares")
    member = copy.deepcopy(truth)
    i = next(i for i, line in enumerate(truth) if line.get("call") == "create" and
             line["p"] == "A1")
    member[i]["out"]["shared"] = "Ac2"  # not the connection of A0
    assert (i, "create", "out.shared") in found(run(member, truth))


def test_indexes():
    """The first index of a job on a node does not matter; the order does."""
    truth = record("attach/index_round_robin")
    member = copy.deepcopy(truth)
    for line in member:
        if line.get("call") == "attach":
            line["out"]["index"] = (line["out"]["index"] + 3) % 4
    assert not found(run(member, truth))
    member[-1]["out"]["index"] = 1
    assert found(run(member, truth)) == [(len(truth) - 1, "attach", "out.index")]


def test_rules():
    scenario = run(record("attach/limits"))
    scenario.found = [(1, "attach", "ret", "EBUSY", "ok"), (2, "attach", "ret", "EBUSY", "EINVAL")]
    text = 'attach/*:1 att* ret "EBUSY" "ok" | a reason\n'
    rule = oracle.Rule(text, 1)
    assert oracle.verdict(scenario, [rule]) == (1, 1) and rule.used == 1
    for wrong in (text.replace(":1", ":2"), text.replace("EBUSY", "EIO"),
                  text.replace("attach/", "cache/"), text.replace("att*", "reg")):
        assert oracle.verdict(scenario, [oracle.Rule(wrong, 1)]) == (2, 0), wrong
    scenario.found = [(7, "stats.cache", "v.hit", 3, 5), (8, "stats.cache", "v.hit", 3, 4)]
    rule = oracle.Rule('attach/limits stats.cache v.hit * +2 | two more', 1)
    assert oracle.verdict(scenario, [rule]) == (1, 1)
    for wrong in (text.replace("a reason", ""), text.replace('"ok"', "ok")):
        try:
            oracle.Rule(wrong, 1)
        except SystemExit:
            continue
        raise AssertionError(f"taken: {wrong}")


PROGRAM = f"""#!{sys.executable}
import sys
sys.path.insert(0, {HERE!r})
import oracle, oracle_test
truth, name = oracle.record_of(sys.argv[0] + ".jsonl"), sys.argv[2]
mirror = oracle_test.Mirror(truth, name)
for line in sys.stdin:
    print(mirror.ask(line.rstrip()), flush=True)
"""


def command(member, files, *options):
    done = subprocess.run([os.path.join(HERE, "oracle.py"), "--member", member, *options, *files],
                          capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_program():
    """The same by processes, with exit codes; what is recorded is equal to the record."""
    with tempfile.TemporaryDirectory() as folder:
        member = os.path.join(folder, "member")
        path = os.path.join(HERE, "oracle", "cache", "evict_exact.jsonl")
        truth = oracle.record_of(path)
        rules = os.path.join(folder, "differs")
        with open(member, "w", encoding="utf-8") as f:
            f.write(PROGRAM)
        os.chmod(member, 0o755)

        def member_is(lines):
            with open(member + ".jsonl", "w", encoding="utf-8") as f:
                f.writelines(json.dumps(line) + "\n" for line in lines)

        def differs(text):
            with open(rules, "w", encoding="utf-8") as f:
                f.write(text)
        member_is(truth)
        differs("")
        options = ["--differs", rules, "--record", folder]
        code, text = command(member, [path], *options)
        assert code == 0 and "1 equal" in text, text
        written = oracle.record_of(os.path.join(folder, "cache", "evict_exact.jsonl"))
        assert written[0]["runs"] == 1 and written[1:] == truth[1:]
        i = place(truth, call="evict")
        changed = copy.deepcopy(truth)
        changed[i]["ret"] = "unbuilt"
        member_is(changed)
        assert command(member, [path], *options)[0] == 77
        changed[i] = {**truth[i], "ret": "ok"}
        member_is(changed)
        code, text = command(member, [path], *options)
        assert code == 1 and f'{i} evict ret: recorded "ENOENT", here "ok"' in text, text
        written = oracle.record_of(os.path.join(folder, "cache", "evict_exact.jsonl"))
        assert written[i]["ret"] == "ok"
        differs(f'cache/evict_exact:{i} evict ret * "ok" | it is meant\n')
        code, text = command(member, [path], *options)
        assert code == 0 and "1 meant" in text, text
        member_is(truth)  # the difference is gone
        code, text = command(member, [path], *options)
        assert code == 1 and "nothing differs so any more: it is meant" in text, text


def main():
    tests = collections.OrderedDict((name, f) for name, f in globals().items()
                                    if name.startswith("test_"))
    for name, test in tests.items():
        test()
        print(f"{name}: ok", flush=True)


if __name__ == "__main__":
    main()
