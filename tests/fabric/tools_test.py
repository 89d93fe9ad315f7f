#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""libfabric's own tools with the provider: fi_info lists it, without a thread or a socket, and
fi_pingpong runs over shared memory and TCP and checks the bytes. The provider exports one symbol.

usage: tools_test.py PROVIDER WEFT FI_INFO FI_PINGPONG"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "job"))
import harness  # pylint: disable=wrong-import-position

DEADLINE = float(os.environ.get("WEFT_TEST_DEADLINE", "60"))
PROVIDER, WEFT, FI_INFO, FI_PINGPONG = (os.path.abspath(path) for path in sys.argv[1:])
ENV = {"FI_PROVIDER_PATH": os.path.dirname(PROVIDER), "FI_LOG_LEVEL": "warn"}
CAPS = "FI_MSG|FI_RMA|FI_ATOMIC|FI_TAGGED|FI_DIRECTED_RECV|FI_MULTI_RECV|FI_SOURCE|FI_LOCAL_COMM|FI_REMOTE_COMM"


def info(*args):
    return harness.Job([FI_INFO, "-p", "weft", *args], env=ENV).finish(DEADLINE)


def info_test():
    code, out, err = info("-v")
    assert code == 0 and "type: FI_EP_RDM" in out, f"{code}\n{out}{err}"
    assert out.count("fi_info:") == 1 and "FI_EP_MSG" not in out and "FI_EP_DGRAM" not in out, out
    code, out, err = info("-c", CAPS, "-v")
    assert code == 0 and "FI_DIRECTED_RECV" in out, f"{code}\n{out}{err}"
    for more in ("FI_TRIGGER", "FI_HMEM", "FI_COLLECTIVE", "FI_MULTICAST"):
        code, out, err = info("-c", more)
        assert code != 0, f"{more} is granted:\n{out}"
    for kind in ("FI_EP_MSG", "FI_EP_DGRAM"):
        code, out, err = info("-t", kind)
        assert code != 0, f"{kind} is granted:\n{out}"


def variables_test():
    """A variable that the provider does not have is named by one warning, and those that it has are not."""
    code, _, err = harness.Job([FI_INFO, "-p", "weft"], env={**ENV, "FI_WEFT_MR_MODES": "raw", "FI_WEFT_MR_MODE": "raw"}).finish(DEADLINE)
    warnings = [line for line in err.splitlines() if "FI_WEFT_" in line]
    assert code == 0 and len(warnings) == 1 and "FI_WEFT_MR_MODES is not a variable" in warnings[0], f"{code}\n{err}"


def weft_info_test():
    code, out, err = harness.Job([WEFT, "info"]).finish(DEADLINE)
    line = next((line for line in out.splitlines() if "libfabric provider" in line), "")
    assert code == 0 and "FI_PROVIDER_PATH=" in line and "!" not in line, f"{code}\n{out}{err}"


def symbols_test():
    out = subprocess.check_output(["nm", "-D", "--defined-only", PROVIDER], text=True)
    assert [line.split()[-1] for line in out.splitlines()] == ["fi_prov_ini"], out


def local_test():
    """A program whose libfabric is RTLD_LOCAL, as Python loads the libraries of modules: only weft may answer."""
    code, out, err = harness.Job(
        [sys.executable, "-c", "import ctypes\nfabric = ctypes.CDLL('libfabric.so.1', mode=ctypes.RTLD_LOCAL)\n"
         "print(fabric.fi_getinfo(1 << 16 | 17, None, None, 0, None, ctypes.byref(ctypes.c_void_p())))"],
        env={**ENV, "FI_PROVIDER": "weft"}).finish(DEADLINE)
    assert code == 0 and out == "0\n", f"{code}\n{out}{err}"


def quiet_test():
    """Loading and fi_getinfo start no thread and open no socket."""
    if not shutil.which("strace"):
        return
    with tempfile.NamedTemporaryFile("r") as trace:
        argv = ["strace", "-f", "-o", trace.name, "-e", "trace=openat,socket,clone,clone3,memfd_create,eventfd2",
                FI_INFO, "-p", "weft"]
        code, out, err = harness.Job(argv, env=ENV).finish(DEADLINE)
        lines = trace.read().splitlines()
    if code and "ptrace" in err:
        return
    assert code == 0, f"{code}\n{out}{err}"
    loaded = [at for at, line in enumerate(lines) if "libweft-fi.so" in line and "= -1" not in line]
    assert loaded, "the provider was not opened"
    # Other providers are probed between the provider's loading and its answer: see what is ours.
    made = [line for line in lines[loaded[0]:] if "clone" in line or "memfd" in line]
    assert not made, made


def pingpong(env, *args):
    env = {**ENV, **env}
    argv = [FI_PINGPONG, "-p", "weft", "-e", "rdm", "-c", "-I", "20", *args]
    port = str(20000 + os.getpid() % 20000)
    server = harness.Job([*argv, "-B", port], env=env)
    end = time.monotonic() + DEADLINE
    while True:  # until the server listens
        client = harness.Job([*argv, "-P", port, "127.0.0.1"], env=env)
        code, out, err = client.finish(DEADLINE)
        if code == 0 or "refused" not in out + err or time.monotonic() > end:
            break
    served = server.finish(DEADLINE)
    assert code == 0 and served[0] == 0, f"client {code}\n{out}{err}server {served}"
    assert "=20" in out and "1m" in out, out


def pingpong_test():
    pingpong({})
    pingpong({}, "-m", "tagged")


def pingpong_tcp_test():
    with tempfile.TemporaryDirectory() as where:
        key = os.path.join(where, "key")
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(os.urandom(32))
        env = {"WEFT_TRANSPORTS": "tcp", "WEFT_KEY_FILE": key, "WEFT_TCP_INTERFACES": "lo"}
        pingpong(env)
        pingpong(env, "-m", "tagged")


harness.main([info_test, variables_test, weft_info_test, symbols_test, local_test, quiet_test, pingpong_test, pingpong_tcp_test])
