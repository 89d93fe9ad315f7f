#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The programs that test the GASNet binding, as jobs of four ranks on two machines of scripts/vm.

usage: two_gasnet.py WEFT PROGRAM...

Runs in both machines (--machines 2). Ranks of one machine use shared memory, others RDMA. mpirun
on the first machine starts them: its agent has the second one run a command."""

import os
import socket
import subprocess
import sys
import threading
import time

SECONDS = 600  # emulated processors: rules_nb, of 65,535 operations, takes up to 375
os.environ.setdefault("WEFT_TEST_DEADLINE", str(SECONDS))
HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("gasnet", "job"):
    sys.path.insert(0, os.path.join(HERE, "..", folder))
import harness  # pylint: disable=wrong-import-position
import more_test  # pylint: disable=wrong-import-position
import rules_test  # pylint: disable=wrong-import-position

ADDRESSES = ("10.77.0.1", "10.77.0.2")
PORT = 7778
RANKS = 4
AGENT = f"""#!/usr/bin/env python3
# Open MPI calls it in place of ssh: HOST COMMAND...
import socket, sys
line = socket.create_connection((sys.argv[1], {PORT}))
line.sendall((" ".join(sys.argv[2:]) + "\\n").encode())
while data := line.recv(65536):
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
"""
ENVIRONMENT = {**rules_test.ENVIRONMENT, "WEFT_TRANSPORTS": "loop,shm,rdma", "WEFT_RDMA_DEVICE": "rxe0",
               "WEFT_TCP_INTERFACES": "10.77.0.0/24",
               # On a busy host ranks on emulated processors are silent for longer than the default.
               "WEFT_PEER_TIMEOUT": "120s"}


def serve():
    """Run the commands of the first machine's agent until that sends an empty line."""
    listener = socket.create_server((ADDRESSES[1], PORT))
    listener.settimeout(2 * SECONDS)  # longer than any program may take
    while True:
        line = listener.accept()[0]
        line.settimeout(SECONDS)
        command = line.makefile().readline().strip()
        if not command:
            return 0
        process = subprocess.Popen(["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=line, stderr=line)
        line.close()
        threading.Thread(target=process.wait, daemon=True).start()


def send_end():
    """Connects, so it also shows that the second machine serves."""
    with socket.create_connection((ADDRESSES[1], PORT), SECONDS) as line:
        line.sendall(b"\n")


def await_server():
    end = time.monotonic() + SECONDS
    while True:
        try:
            with socket.create_connection((ADDRESSES[1], PORT), SECONDS) as line:
                line.sendall(b"true\n")
            return
        except OSError:
            assert time.monotonic() < end, "the other machine does not serve"
            time.sleep(0.1)  # nothing reports it


def job_of(agent, argv, ranks=RANKS):
    words = ["mpirun", "--mca", "plm_rsh_agent", agent, "--bind-to", "none", "--oversubscribe",
             "--host", ",".join(f"{address}:{ranks // 2}" for address in ADDRESSES), "-n", str(ranks)]
    for name in ENVIRONMENT:
        words += ["-x", name]
    return harness.Job([*words, *argv], env={**ENVIRONMENT, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                                               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})


def way_test(agent, weft):
    """By what it is that ranks of different machines reach each other; without this the tests below
    would not show what they should."""
    def test():
        code, out, err = job_of(agent, [weft, "perf", "am_lat", "--iters", "10", "--json"], 2).finish(SECONDS)
        assert code == 0 and '"transport":"rdma"' in out, f"code {code}\n{out}{err}"

    test.__name__ = "two machines are connected by RDMA"
    return test


def program_test(agent, program):
    name = os.path.basename(program)

    def test():
        started = job_of(agent, [program])
        if name.startswith("rules_"):
            rules_test.check(started, RANKS)
            return
        code, out, err = started.finish(SECONDS)
        said = sum("ok" in line.split() for line in out.splitlines())
        assert code == 0 and said == more_test.GROUPS[name.split("_")[0]], f"code {code}\n{out}{err}"

    test.__name__ = name
    return test


def main():
    weft, *programs = map(os.path.abspath, sys.argv[1:])
    agent = "/tmp/agent"  # Open MPI looks for it on both machines
    with open(os.open(agent, os.O_WRONLY | os.O_CREAT, 0o755), "w", encoding="ascii") as f:
        f.write(AGENT)
    if os.environ["VM_RANK"] == "1":
        return serve()
    await_server()
    try:
        return harness.main([way_test(agent, weft)] + [program_test(agent, one) for one in programs])
    finally:
        send_end()


if __name__ == "__main__":
    sys.exit(main())
