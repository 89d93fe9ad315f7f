#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""srun --mpi=pmix starts ranks, on one node and on two, and without it there is a warning: with
Slurm's own daemons, made and ended here.

All of it lives in a directory and in namespaces of this test's: on one node a mount namespace
with its own /tmp and a network namespace; on two, hosts of tests/net/netlib.py. Nothing of an
installed Slurm's set-up is used, and systemd is not needed.

usage: slurm_test.py HELLO MEMBER [NODES]"""

import ctypes
import fcntl
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import harness

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "net"))
import netlib  # pylint: disable=wrong-import-position

DEADLINE = 40  # seconds, for all of it
PROGRAMS = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client"}
CONF = """ClusterName=test
SlurmctldHost={control}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
SlurmctldPort=7101
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.%n.pid
SlurmdSpoolDir={place}/spool.%n
StateSaveLocation={place}/state
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=5 OverSubscribe=FORCE
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr={address} Port=7102 CPUs={cpus} State=UNKNOWN"


def skip(why):
    print(why)
    sys.exit(77)


def find(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def enter_namespace():
    """A network of our own, with a loopback interface that has 127.0.0.1 and one
    address more: getaddrinfo(3) with AI_ADDRCONFIG, which Slurm uses, takes a
    machine that has nothing but 127.0.0.1 for one without a network."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x40000000):  # CLONE_NEWNET
        skip(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:  # struct ifreq, netdevice(7)
        fcntl.ioctl(s, 0x8914, struct.pack("16sh22x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
        fcntl.ioctl(s, 0x8916, struct.pack("16sHH4s16x", b"lo:1", socket.AF_INET, 0,
                                           socket.inet_aton("127.0.0.2")))  # SIOCSIFADDR


class Slurm:
    """[control]: where slurmctld is, as in slurm.conf; [nodes]: for each its name, host name,
    address, and the words that run a command there."""

    def __init__(self, place, control, nodes):
        self.place = pathlib.Path(place)
        self.control, self.nodes = control, nodes
        self.end = time.monotonic() + DEADLINE
        self.daemons = []
        kept = {name: value for name, value in os.environ.items()
                if name.startswith("WEFT_") or name.endswith("SAN_OPTIONS")}
        self.env = {**kept, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(place),
                    "SLURM_CONF": f"{place}/slurm.conf"}

    def left(self):
        return max(0.1, self.end - time.monotonic())

    def start(self):
        for name in ("state", *(f"spool.{name}" for name, *_ in self.nodes)):
            (self.place / name).mkdir()
        key = self.place / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        (self.place / "slurm.conf").write_text(
            CONF.format(place=self.place, control=self.control,
                        nodes="\n".join(NODE.format(name=name, host=host, address=address,
                                                    cpus=os.cpu_count())
                                        for name, host, address, _ in self.nodes)))
        self.daemon("munged", "--foreground", "--force", f"--socket={self.place}/munge.socket",
                    f"--key-file={key}", f"--pid-file={self.place}/munged.pid",
                    f"--log-file={self.place}/munged.log", f"--seed-file={self.place}/munged.seed")
        self.wait_for(lambda: (self.place / "munge.socket").exists(), "munged's socket")
        self.daemon("slurmctld", "-D", "-c")
        for name, _, _, there in self.nodes:
            self.daemon("slurmd", "-D", "-N", name, there=there)

    def daemon(self, name, *arguments, there=()):
        with open(self.place / f"{name}.{len(self.daemons)}.out", "wb") as out:
            self.daemons.append(subprocess.Popen(
                [*there, find(name), *arguments], env=self.env, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT))

    def wait_for(self, true, what):
        while not true():
            for daemon in self.daemons:
                assert daemon.poll() is None, f"{daemon.args[0]} ended\n{self.logs()}"
            assert self.left() > 0.1, f"no {what} in time\n{self.logs()}"
            time.sleep(0.02)  # Slurm does not report that it is ready

    def logs(self):
        return "".join(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}"
                       for log in sorted(self.place.glob("*.log")) + sorted(self.place.glob("*.out")))

    def run(self, *command):
        """(code, output, errors) of a client's command."""
        try:
            done = subprocess.run([find(command[0]), *command[1:]], env=self.env, text=True,
                                  stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=self.left(), check=False)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{command} takes too long\n{error.stdout}{error.stderr}\n"
                                 f"{self.logs()}") from None
        return done.returncode, done.stdout, done.stderr

    def stop(self):
        for daemon in reversed(self.daemons):
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            try:
                daemon.wait(2)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def srun(slurm, *command, codes=(0,), mpi="pmix"):
    got, out, err = slurm.run("srun", "-n", "4", "-N", str(len(slurm.nodes)), "--overcommit",
                              f"--mpi={mpi}", *command)
    assert got in codes, f"srun: code {got}, not {codes}\n{out}{err}\n{slurm.logs()}"
    return out, err


def test(slurm, hello, member):
    slurm.start()
    idle = f"{len(slurm.nodes)} idle"
    slurm.wait_for(lambda: idle in slurm.run("sinfo", "-h", "-o", "%D %T")[1], "idle nodes")
    plugins = "".join(slurm.run("srun", "--mpi=list")[1:])
    if not re.search(r"\bpmix", plugins):
        skip(f"this Slurm was built without its PMIx plugin: {plugins.split()}")
    out, _ = srun(slurm, hello)
    want = [f"rank {(r + 1) % 4}: hello from rank {r}" for r in range(4)]
    assert sorted(out.splitlines()) == sorted(want), out
    out, _ = srun(slurm, member, "open", "barrier", "gather", "memory", "names=1", "close")
    assert "WRONG" not in out and out.count("mismatches") == 4, out
    out, err = srun(slurm, hello, mpi="none")
    assert out == "rank 0: hello from rank 0\n" * 4, out
    assert err.count("start them with srun --mpi=pmix") == 4, err
    if len(slurm.nodes) > 1:
        test_nodes(slurm, member)
        test_services(slurm, member)


def test_nodes(slurm, member):
    """Mates share memory, the others do not; and codes come through, in bounded time."""
    out, _ = srun(slurm, member, "open", "where", "barrier", "close")
    for r in range(4):
        ways = " ".join("loop" if o == r else "shm" if o // 2 == r // 2 else "tcp" for o in range(4))
        assert f"{r}: at {r} of 4, {r % 2} of 2 {ways}" in out.splitlines(), out
    _, err = srun(slurm, member, "open", "barrier", "close", "3:exit=6", codes=[6])
    assert "task 3: Exited with exit code 6" in err, err
    # srun itself ends with the highest code: that of tasks it had to kill, if there are any.
    for words, line in ((["3:exit=7", "hang"], "task 3: Exited with exit code 7"),
                        (["1:abort=9", "hang"], "task 1: Exited with exit code 9"),
                        (["2:exit=5", "until-broken", "close"], "task 2: Exited with exit code 5")):
        start = time.monotonic()
        _, err = srun(slurm, member, "open", "barrier", *words, codes=range(1, 138))
        took = time.monotonic() - start
        assert line in err, f"{line!r} is not in\n{err}"
        assert took < 3 + 0.125 * 2 + 2, f"{words} took {took:.1f} s"  # 2 s are srun's own


def test_services(slurm, member):
    """By the nodes' services: srun does not wait until they end, a second after their last client,
    and 2 s later none is left."""
    words = ["open", "where", "barrier", "gather", "memory", "close"]
    took = {}
    for way, env in (("tcp", {}), ("node", {"WEFT_NODE": "1", "WEFT_TRANSPORTS": "loop,shm,node"})):
        slurm.env |= env
        for _ in range(2):
            start = time.monotonic()
            out, _ = srun(slurm, member, *words)
            took[way] = min(time.monotonic() - start, took.get(way, DEADLINE))
            assert "WRONG" not in out and out.count(f" {way} {way}") == 4, out
            end = time.monotonic() + 2
            while netlib.processes("weft-node"):
                assert time.monotonic() < end, "a service is left after 2 s"
                time.sleep(0.02)  # nothing reports the end of a process of another session
    assert took["node"] < took["tcp"] + 0.9, took
    print(f"srun takes {took['tcp']:.2f} s, and {took['node']:.2f} s by services")


def one_node(hello, member):
    if not harness.private_tmp():
        skip("no mount namespace")
    enter_namespace()
    host = socket.gethostname().split(".")[0]
    with tempfile.TemporaryDirectory() as place:
        run(Slurm(place, "localhost(127.0.0.1)", [("n1", host, "127.0.0.1", [])]), hello, member)


def several_nodes(count, hello, member):
    netlib.enter()
    with netlib.Net(count) as net, tempfile.TemporaryDirectory(dir=netlib.SHARED) as place:
        nodes = [(f"n{i}", f"n{i}", net.address(i), net.host(i).inside([]))
                 for i in range(1, count + 1)]
        run(Slurm(place, f"n0({net.address(0)})", nodes), hello, member)


def run(slurm, hello, member):
    try:
        test(slurm, hello, member)
    except AssertionError as error:
        print(f"FAILED: {error}")
        sys.exit(1)
    finally:
        slurm.stop()


def main():
    missing = {package for program, package in PROGRAMS.items() if not find(program)}
    if missing:
        skip(f"not installed: {' '.join(sorted(missing))}")
    if os.geteuid():
        skip("not root: slurmd starts programs as their users")
    hello, member = map(os.path.abspath, sys.argv[1:3])
    if len(sys.argv) > 3:
        several_nodes(int(sys.argv[3]), hello, member)
    else:
        one_node(hello, member)
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
