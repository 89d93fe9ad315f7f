#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""srun --mpi=pmix starts ranks, and without it a warning says so: with Slurm's own daemons, made and ended here.

All of it lives in a directory, a mount namespace with its own /tmp, and a
network namespace of this test's; nothing of an installed Slurm's set-up is
used, and systemd is not needed.

usage: slurm_test.py HELLO MEMBER"""

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

DEADLINE = 20  # seconds, for all of it
PROGRAMS = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client"}
CONF = """ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
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
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port=7102 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=n1 Default=YES State=UP MaxTime=5 OverSubscribe=FORCE
"""


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
    def __init__(self, place):
        self.place = pathlib.Path(place)
        self.end = time.monotonic() + DEADLINE
        self.daemons = []
        kept = {name: value for name, value in os.environ.items()
                if name.startswith("WEFT_") or name.endswith("SAN_OPTIONS")}
        self.env = {**kept, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(place),
                    "SLURM_CONF": f"{place}/slurm.conf"}

    def left(self):
        return max(0.1, self.end - time.monotonic())

    def start(self):
        for name in ("state", "spool.n1"):
            (self.place / name).mkdir()
        key = self.place / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        (self.place / "slurm.conf").write_text(
            CONF.format(place=self.place, host=socket.gethostname().split(".")[0],
                        cpus=os.cpu_count()))
        self.daemon("munged", "--foreground", "--force", f"--socket={self.place}/munge.socket",
                    f"--key-file={key}", f"--pid-file={self.place}/munged.pid",
                    f"--log-file={self.place}/munged.log", f"--seed-file={self.place}/munged.seed")
        self.wait_for(lambda: (self.place / "munge.socket").exists(), "munged's socket")
        self.daemon("slurmctld", "-D", "-c")
        self.daemon("slurmd", "-D", "-N", "n1")

    def daemon(self, name, *arguments):
        with open(self.place / f"{name}.out", "wb") as out:
            self.daemons.append(subprocess.Popen(
                [find(name), *arguments], env=self.env, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT))

    def wait_for(self, true, what):
        while not true():
            for daemon in self.daemons:
                assert daemon.poll() is None, f"{daemon.args[0]} ended\n{self.logs()}"
            assert self.left() > 0.1, f"no {what} in time\n{self.logs()}"
            time.sleep(0.02)  # Slurm tells nobody when it is ready

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


def srun(slurm, *command, code=0, mpi="pmix"):
    got, out, err = slurm.run("srun", "-n", "4", "--overcommit", f"--mpi={mpi}", *command)
    assert got == code, f"srun: code {got}, not {code}\n{out}{err}\n{slurm.logs()}"
    return out, err


def test(slurm, hello, member):
    slurm.start()
    slurm.wait_for(lambda: "idle" in slurm.run("sinfo", "-h", "-o", "%T")[1], "idle node")
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


def main():
    missing = {package for program, package in PROGRAMS.items() if not find(program)}
    if missing:
        skip(f"not installed: {' '.join(sorted(missing))}")
    if os.geteuid():
        skip("not root: slurmd starts programs as their users")
    if not harness.private_tmp():
        skip("no mount namespace")
    enter_namespace()
    hello, member = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory() as place:
        slurm = Slurm(place)
        try:
            test(slurm, hello, member)
        except AssertionError as error:
            print(f"FAILED: {error}")
            sys.exit(1)
        finally:
            slurm.stop()
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
