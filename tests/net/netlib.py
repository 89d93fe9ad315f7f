# SPDX-License-Identifier: BSD-3-Clause
"""Hosts for tests: network namespaces joined by veth pairs and bridges.

    import netlib
    netlib.enter()  # before anything else: may run the script anew, or skip it
    with netlib.Net(hosts=4, links=2) as net:
        p = net.run(1, ["program"], stdout=subprocess.PIPE)  # on the first host, n1
        net.cut(2)
        net.heal(2)

Host I is called nI. Its interface ethL, for link L = 0, 1, ..., has the address
10.(77 + L).0.I or fd77:L::I. A host has its own network, host name, /tmp and /dev/shm; all
share the names of hosts, processes and the rest of the file system. Host 0 is the test
itself, where the bridges are.

enter() puts the test into PID, mount and network namespaces of its own. So two runs never
meet, and when the test ends, however it does, the kernel ends all it started and removes all
it made: interfaces, rules, mounts, and the files under SHARED.

It needs root, of the machine or of a user namespace, and iproute2, nftables and util-linux; a test
without them is skipped (exit code 77), with the reason."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback

SKIPPED = 77
DEADLINE = 10.0      # seconds for a command that should take none
SHARED = "/mnt"      # the test's own files, seen by all hosts
HERE = os.path.dirname(os.path.abspath(__file__))
ARGUMENTS = list(sys.argv)  # before the test changes them
TOOLS = {"ip": "iproute2", "ss": "iproute2", "tc": "iproute2", "nft": "nftables",
         "nsenter": "util-linux", "unshare": "util-linux"}
_libc = ctypes.CDLL(None, use_errno=True)
AGENT = """#!/bin/sh
# Open MPI calls it in place of ssh: HOST COMMAND...
host=$1
shift
pid=$(cat "{shared}/$host.pid") || exit 1
exec nsenter -t "$pid" -n -m -u env TMPDIR=/tmp sh -c "$*"
"""


def skip(why):
    print(f"skipped: {why}", flush=True)
    sys.exit(SKIPPED)


def need(tool, package):
    if not shutil.which(tool):
        skip(f"not installed: {tool}, from {package}")


def enter():
    """Run this script again in namespaces of its own; returns in that run only."""
    if os.environ.pop("WEFT_NET_ENTERED", None) == str(os.getppid()):
        _settle()
        return
    if os.geteuid() != 0:
        skip("making network namespaces needs root")
    os.environ["PATH"] = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    for tool, package in TOOLS.items():
        need(tool, package)
    spaces = ["unshare", "--net", "--mount", "--uts", "--propagation", "private"]
    if subprocess.run([*spaces, "--pid", "--fork", "true"], stderr=subprocess.DEVNULL,
                      timeout=DEADLINE, check=False).returncode:
        skip("this user may not make namespaces")
    # The second run's parent is outside of its PID namespace: 0.
    os.environ["WEFT_NET_ENTERED"] = "0"
    os.execvp("unshare", [*spaces, "--pid", "--fork", "--kill-child", "--mount-proc",
                          sys.executable, *sys.argv])


def processes(name):
    """The processes of that name that have not ended, in this PID namespace: of all hosts."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
                head, _, rest = f.read().rpartition(") ")
        except OSError:
            continue  # it has ended
        if head.partition(" (")[2] == name and rest[0] != "Z":  # nobody may wait for it
            found.append(int(pid))
    return found


def _settle():
    """The first process of the namespaces: ends on request, and has a directory for files."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    _libc.sethostname(b"n0", 2)
    _must("mount -t tmpfs none " + SHARED)
    with open(f"{SHARED}/hosts", "w", encoding="ascii"):
        pass  # a Net writes it
    _must(f"mount --bind {SHARED}/hosts /etc/hosts")
    _must("ip link set lo up")


def _must(command, stdin=None):
    words = command.split() if isinstance(command, str) else command
    done = subprocess.run(words, input=stdin, text=True, capture_output=True, timeout=DEADLINE,
                          check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: code {done.returncode}\n{stdin or ''}{done.stderr}")
    return done.stdout


class Host:
    """A process that keeps the namespaces, and what is in them."""

    def __init__(self, number):
        self.number = number
        self.name = f"n{number}"
        self.addresses = []
        script = [f"hostname {self.name}"]
        # Of /tmp a host sees only what the test's arguments are in.
        tops = sorted({os.path.join("/tmp", os.path.abspath(word).split("/")[2])
                       for word in [HERE, os.getcwd(), *ARGUMENTS]
                       if os.path.abspath(word).startswith("/tmp/") and os.path.exists(word)})
        for i, top in enumerate(tops):
            made = "mkdir -p" if os.path.isdir(top) else "touch"
            script += [f"{made} {SHARED}/keep{i}", f"mount --bind {top} {SHARED}/keep{i}"]
        script += ["mount -t tmpfs none /tmp", "mount -t tmpfs none /dev/shm"]
        for i, top in enumerate(tops):
            made = "mkdir -p" if os.path.isdir(top) else "touch"
            script += [f"{made} {top}", f"mount --bind {SHARED}/keep{i} {top}",
                       f"umount {SHARED}/keep{i}"]
        cgroups, kept = "/sys/fs/cgroup", f"{SHARED}/cgroup"
        script += [f"mkdir -p {kept}", f"mount --rbind {cgroups} {kept}",
                   "mount -t sysfs none /sys", f"mount --rbind {kept} {cgroups}",
                   f"umount -l {kept}", "ip link set lo up", "echo ready", "exec cat"]
        self.holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--uts", "--propagation", "private", "sh", "-ec",
             "\n".join(script)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            raise RuntimeError(f"host {self.name} could not be made")
        self.pid = self.holder.pid
        with open(f"{SHARED}/{self.name}.pid", "w", encoding="ascii") as f:
            f.write(str(self.pid))

    def inside(self, argv):
        return ["nsenter", "-t", str(self.pid), "--net", "--mount", "--uts", "--", "env", "-C",
                os.getcwd(), *map(str, argv)]  # entering a mount namespace leads to its root

    def close(self):
        self.holder.stdin.close()
        self.holder.wait(DEADLINE)
        self.holder.stdout.close()


class Net:
    """[hosts] hosts on [links] networks. ipv6: they have IPv6 addresses only.
    links=0: no network but what the caller makes."""

    def __init__(self, hosts=2, ipv6=False, links=1):
        self.ipv6, self.links = ipv6, links
        self.hosts, self.started = [], []
        with open(f"{SHARED}/hosts", "w", encoding="ascii") as f:
            f.write("127.0.0.1 localhost\n" + "".join(f"{self.address(number)} n{number}\n"
                                                      for number in range(hosts + 1)))
        try:
            for link in range(links):
                _must(f"ip link add br{link} type bridge")
                _must(f"ip link set br{link} up")
                self._address(0, f"br{link}", link)
            for number in range(1, hosts + 1):
                self.hosts.append(Host(number))
                for link in range(links):
                    self._join(number, link)
            self._settle()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait(DEADLINE)
        for host in self.hosts:
            host.close()  # its interfaces end with it, later: two of a name must not meet
        for link in range(self.links):
            for host in self.hosts:
                subprocess.run(["ip", "link", "del", self.port(host.number, link)],
                               stderr=subprocess.DEVNULL, timeout=DEADLINE, check=False)
            subprocess.run(["ip", "link", "del", f"br{link}"], stderr=subprocess.DEVNULL,
                           timeout=DEADLINE, check=False)
        self.started, self.hosts = [], []

    # ---- what is where ----

    def host(self, number):
        return self.hosts[number - 1]

    def address(self, number, link=0):
        """Of host [number] on [link], as text. The test itself has number 0."""
        return f"fd77:{link}::{number or 99}" if self.ipv6 else f"10.{77 + link}.0.{number or 99}"

    @staticmethod
    def port(number, link=0):
        """The bridge's end of a host's link."""
        return f"h{number}l{link}"

    def _address(self, number, interface, link):
        nodad = " nodad" if self.ipv6 else ""
        self.check(number, f"ip addr add {self.address(number, link)}/{64 if self.ipv6 else 24} "
                           f"dev {interface}{nodad}")

    def _join(self, number, link):
        port, host = self.port(number, link), self.host(number)
        _must(f"ip link add {port} type veth peer name eth{link} netns {host.pid}")
        _must(f"ip link set {port} master br{link} up")
        self._address(number, f"eth{link}", link)
        self.check(number, f"ip link set eth{link} up")
        host.addresses.append(self.address(number, link))

    def _settle(self):
        """The kernel reports a little later that an interface has a carrier; then programs use
        it."""
        end = time.monotonic() + DEADLINE
        for host in self.hosts:
            states = [f"/sys/class/net/eth{link}/operstate" for link in range(self.links)]
            while states and set(self.check(host.number, ["cat", *states]).split()) != {"up"}:
                if time.monotonic() > end:
                    raise RuntimeError(f"{host.name} has an interface without carrier")

    # ---- running things ----

    def _words(self, number, argv):
        words = argv.split() if isinstance(argv, str) else list(map(str, argv))
        return self.host(number).inside(words) if number else words

    def run(self, number, argv, env=None, **popen):
        """Start a program on a host. Returns its Popen; the process id is the program's own."""
        process = subprocess.Popen(self._words(number, argv), env={**os.environ, **(env or {})},
                                   **popen)
        self.started.append(process)
        return process

    def within(self, number, work, *args):
        """What work(*args) returns when run by a thread whose network is that host's: sockets it
        makes are the host's, whoever uses them later."""
        result = []

        def thread():
            with open(f"/proc/{self.host(number).pid}/ns/net", "rb") as f:
                if _libc.setns(f.fileno(), 0):
                    raise OSError(ctypes.get_errno(), "setns")
            result.append(work(*args))

        runner = threading.Thread(target=thread)
        runner.start()
        runner.join(DEADLINE)
        if not result:
            raise RuntimeError(f"{work} failed on host {number}")
        return result[0]

    def check(self, number, argv, stdin=None):
        """Run a short command on a host; its output, or RuntimeError."""
        return _must(self._words(number, argv), stdin)

    def names(self, number):
        """The sockets on a host whose names are of node services, or of what these leave to their
        successors, a line each."""
        return [line for line in self.check(number, "ss -H -x -l").splitlines() if "@weft-node-" in line]

    def services(self, number):
        """Those of the services."""
        return [line for line in self.names(number) if "-held" not in line]

    @staticmethod
    def agent():
        """A program that runs a command on a host, as ssh does; and the environment in which Open
        MPI's mpirun, on host 0, can use it."""
        agent = f"{SHARED}/agent"
        if not os.path.exists(agent):
            with open(agent, "w", encoding="ascii") as f:
                f.write(AGENT.format(shared=SHARED))
            os.chmod(agent, 0o755)
        os.makedirs(f"{SHARED}/tmp", exist_ok=True)
        return agent, {"TMPDIR": f"{SHARED}/tmp", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def mpirun(self, ranks, argv, env=None, options=()):
        """The words and the environment to start a job with; to run on host 0.
        ranks: how many on n1, n2, ...; ranks are numbered host by host."""
        agent, variables = self.agent()
        hosts = ",".join(f"n{i + 1}:{n}" for i, n in enumerate(ranks) if n)
        words = ["mpirun", "--mca", "plm_rsh_agent", agent, "--mca", "orte_keep_fqdn_hostnames",
                 "1", "--bind-to", "none", "--host", hosts, "-n", str(sum(ranks))]
        for name in env or {}:
            words += ["-x", name]
        return ([*words, *options, *map(str, argv)], {**os.environ, **(env or {}), **variables})

    # ---- faults ----

    def _links(self, link):
        return range(self.links) if link is None else (link,)

    def cut(self, number, link=None, silently=True):
        """Nothing passes to or from a host any more. No interface reports it; otherwise its
        interface has no carrier."""
        for one in self._links(link):
            _must(f"ip link set {self.port(number, one)} "
                  + ("nomaster" if silently else "down"))

    def heal(self, number, link=None):
        for one in self._links(link):
            _must(f"ip link set {self.port(number, one)} master br{one} up")

    def kill_sockets(self, number, what=""):
        """Abort TCP connections of a host, as its kernel does for `ss -K`: errors for its own
        programs, RST for the others. [what]: ss's filter. Returns how many."""
        out = self.check(number, ["ss", "-K", "-t", "-n", "-H", "state", "established",
                                  *what.split()])
        return len(out.splitlines())

    def reset(self, number, packets=1, seconds=5.0):
        """Answer TCP packets that reach the host by RST, until there were [packets] on established
        connections or [seconds] are over. Returns how many."""
        rules = ("table inet weft_reset {\nchain input {\n"
                 "type filter hook input priority 0\n"
                 "tcp flags & (syn | rst | fin) == 0 counter reject with tcp reset\n}\n}\n")
        self.check(number, "nft -f -", rules)
        end = time.monotonic() + seconds
        try:
            while True:
                seen = self._counter(number, "weft_reset")
                if seen >= packets or time.monotonic() > end:
                    return seen
        finally:
            self.check(number, "nft delete table inet weft_reset")

    def drop_large(self, number, length):
        """TCP packets to a host that are longer than so many bytes vanish, as where an MTU is
        smaller than the ends assume, and they get no report."""
        self.check(number, "nft -f -", "table inet weft_large {\nchain input {\n"
                   "type filter hook input priority 0\n"
                   f"meta l4proto tcp meta length > {length} drop\n}}\n}}\n")

    def _counter(self, number, table):
        listed = json.loads(self.check(number, f"nft -j list table inet {table}"))
        return sum(word["counter"]["packets"] for item in listed["nftables"]
                   for word in item.get("rule", {}).get("expr", []) if "counter" in word)

    def rate(self, number, rate, link=0):
        """Let a host send at most [rate] (tc's words, such as 100mbit); None: as fast as it can."""
        if rate is None:
            self.check(number, f"tc qdisc del dev eth{link} root")
        else:
            self.check(number, f"tc qdisc replace dev eth{link} root tbf rate {rate} burst 128kb "
                               "latency 50ms")


def _counters(text):
    return {name: int(value) for name, value in (line.split() for line in text.splitlines())}


class Proxy:
    """The program proxy.c between a host and all the others it calls by IPv4 on a Net's own links,
    with settings by name as there: Proxy(net, program, 1, how="rst,half", frames=40)."""

    PORT = 7777
    RULES = """table ip weft_proxy {{
        chain output {{
            type nat hook output priority -100
            meta mark 77 return
            ip daddr {{ 10.77.0.0/24, 10.78.0.0/24 }} meta l4proto tcp redirect to :{port}
        }}
    }}
    """

    def __init__(self, net, program, host, **settings):
        words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        self.net, self.host = net, host
        self.process = net.run(host, [program, "--port", self.PORT, *words], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError("the proxy does not start")
        net.check(host, "nft -f -", self.RULES.format(port=self.PORT))

    def stop(self):
        """Connections are left alone from now on."""
        self.process.stdin.write("stop\n")
        self.process.stdin.flush()

    def end(self):
        """Its counters, by name. Its connections end with it."""
        self.net.check(self.host, "nft delete table ip weft_proxy")
        return _counters(self.process.communicate(timeout=DEADLINE)[0])


class Forwarder:
    """The program forwarder.c between all hosts of a Net, with addresses 10.99.0.I and settings
    by name as there: Forwarder(net, program, delay=20, loss=5, seed=1)."""

    def __init__(self, net, program, **settings):
        words = [word for name, value in settings.items()
                 for word in (f"--{name}", self._text(value))]
        hosts = range(1, len(net.hosts) + 1)
        self.process = net.run(0, [program, *words, *(f"{net.host(i).pid}={self.address(i)}"
                                                      for i in hosts)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._expect("ready")
        for number in hosts:
            net.check(number, f"ip addr add {self.address(number)}/24 dev weft0")
            net.check(number, "ip link set weft0 up")

    @staticmethod
    def _text(value):
        return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)

    @staticmethod
    def address(number):
        return f"10.99.0.{number}"

    def _expect(self, word):
        line = self.process.stdout.readline()
        if line != word + "\n":
            raise RuntimeError(f"the forwarder prints {line!r}, not {word!r}")

    def set(self, name, value):
        self.process.stdin.write(f"{name} {self._text(value)}\n")
        self.process.stdin.flush()
        self._expect("ok")

    def end(self):
        """Its counters, by name."""
        return _counters(self.process.communicate(timeout=DEADLINE)[0])


def main(tests):
    """Run the functions [tests]; each fails by an AssertionError."""
    failed = 0
    for test in tests:
        begin = time.monotonic()
        try:
            test()
            word = "ok"
        except AssertionError as error:
            failed += 1
            word = f"FAILED: {error}"
        except Exception:  # pylint: disable=broad-except
            failed += 1
            word = "FAILED: " + traceback.format_exc()
        print(f"{test.__name__} {word} ({time.monotonic() - begin:.2f} s)", flush=True)
    print(f"{len(tests) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
