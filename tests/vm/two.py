# SPDX-License-Identifier: BSD-3-Clause
"""Jobs of Open MPI's mpirun with ranks on the two machines of scripts/vm (--machines 2). mpirun runs on the
first machine: its agent has the second one run a command."""

import os
import socket
import subprocess
import threading
import time

SECONDS = 600  # the longest that a program takes on emulated processors
ADDRESSES = ("10.77.0.1", "10.77.0.2")
PORT = 7778
AGENT_PATH = "/tmp/agent"  # Open MPI looks for it on both machines
AGENT = f"""#!/usr/bin/env python3
# Open MPI calls it in place of ssh: HOST COMMAND...
import socket, sys
line = socket.create_connection((sys.argv[1], {PORT}))
line.sendall((" ".join(sys.argv[2:]) + "\\n").encode())
while data := line.recv(65536):
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
"""
ENVIRONMENT = {"WEFT_TRANSPORTS": "loop,shm,rdma", "WEFT_RDMA_DEVICE": "rxe0", "WEFT_TCP_INTERFACES": "10.77.0.0/24",
               # On a busy host ranks on emulated processors are silent for longer than the default.
               "WEFT_PEER_TIMEOUT": "120s"}
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


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


def words_of(ranks, argv, environment, options=()):
    """The command of a job with half of its ranks on each machine."""
    words = ["mpirun", "--mca", "plm_rsh_agent", AGENT_PATH, "--bind-to", "none", "--oversubscribe",
             "--host", ",".join(f"{address}:{ranks // 2}" for address in ADDRESSES), "-n", str(ranks)]
    for name in environment:
        words += ["-x", name]
    return [*words, *options, *argv]


def main(tests):
    """Serve on the second machine; run the tests on the first. Returns the exit code. [tests] runs them."""
    with open(os.open(AGENT_PATH, os.O_WRONLY | os.O_CREAT, 0o755), "w", encoding="ascii") as f:
        f.write(AGENT)
    if os.environ["VM_RANK"] == "1":
        return serve()
    await_server()
    try:
        return tests()
    finally:
        send_end()
