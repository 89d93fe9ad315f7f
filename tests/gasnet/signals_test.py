#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Which signals a node catches, and what it does: GASNET_NO_CATCH_SIGNAL, GASNET_FREEZE,
GASNET_FREEZE_SIGNAL, GASNET_BACKTRACE and GASNET_BACKTRACE_SIGNAL.

usage: signals_test.py WEFT SIGNALS"""

import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "job"))
import harness  # pylint: disable=wrong-import-position

WEFT, PROGRAM = map(os.path.abspath, sys.argv[1:])
DEADLINE = float(os.environ.get("WEFT_TEST_DEADLINE", "60"))
NODES = 2


def ended(words, env, code):
    """Returns the output of a job that ends with the code."""
    job = harness.Job([WEFT, "run", "-n", str(NODES), "--", PROGRAM, *words], env=env)
    got, out, err = job.finish(DEADLINE)
    assert got == code, f"code {got}, not {code}\n{out}{err}"
    return err


def fault_test():
    """The node reports the signal, and dies of it."""
    for words, name, number in ((["fault"], "SIGSEGV", 11), (["raise", "FPE"], "SIGFPE", 8),
                                (["raise", "BUS"], "SIGBUS", 7), (["raise", "ILL"], "SIGILL", 4)):
        err = ended(words, {}, 128 + number)
        assert f"*** Caught a fatal signal: {name}({number}) on node 1/{NODES}\n" in err, err


def not_caught_test():
    for env in ({"GASNET_NO_CATCH_SIGNAL": "*"}, {"GASNET_NO_CATCH_SIGNAL": "SIGBUS,SEGV"},
                {"GASNET_NO_CATCH_SIGNAL": "11"}):
        err = ended(["fault"], env, 128 + 11)
        assert "*** Caught" not in err and "WARNING" not in err, err
    assert "*** Caught" in ended(["fault"], {"GASNET_NO_CATCH_SIGNAL": "SIGBUS"}, 128 + 11)
    err = ended(["fault"], {"GASNET_NO_CATCH_SIGNAL": "SIGSTRANGE"}, 128 + 11)
    assert "WARNING: GASNET_NO_CATCH_SIGNAL=SIGSTRANGE is not" in err and "*** Caught" in err, err
    err = ended(["raise", "TERM"], {}, 128 + 15)
    assert "*** Caught" not in err, err


def own_handler_test():
    """The program's own handler stays."""
    assert "*** Caught" not in ended(["own"], {}, 7)


def backtrace_test():
    err = ended(["fault"], {"GASNET_BACKTRACE": "1"}, 128 + 11)
    assert re.search(r"signals\S*\(\S*\) ?\[0x", err), err
    assert "GASNET_BACKTRACE=1" in ended(["fault"], {}, 128 + 11)
    err = ended(["raise", "USR1"], {"GASNET_BACKTRACE_SIGNAL": "USR1"}, 0)
    assert "*** Caught a signal: SIGUSR1(10) on node 1/2\n" in err and re.search(r"\[0x", err), err
    err = ended(["raise", "X"], {"GASNET_BACKTRACE_SIGNAL": "USR99"}, 0)
    assert "WARNING: GASNET_BACKTRACE_SIGNAL=USR99 is not" in err, err


def frozen_pids(words, env, count):
    """Returns the processes of a job that report that they wait for a debugger, then kills them."""
    with subprocess.Popen([WEFT, "run", "-n", str(NODES), "--", PROGRAM, *words], env={**os.environ, **env},
                          stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as job:
        pids = []
        while len(pids) < count:
            line = job.stderr.readline()
            assert line, "it ended"
            found = re.match(r"\*\*\* Process (\d+) on \S+ waits for a debugger: .*gasnetw_tools_frozen = 0", line)
            pids += [int(found[1])] if found else []
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        job.communicate(timeout=DEADLINE)
    return pids


def freeze_test():
    assert len(set(frozen_pids(["none"], {"GASNET_FREEZE": "1"}, NODES))) == NODES
    frozen_pids(["fault"], {"GASNET_FREEZE_ON_ERROR": "1"}, 1)
    frozen_pids(["raise", "USR1"], {"GASNET_FREEZE_SIGNAL": "SIGUSR1"}, 1)


harness.main([fault_test, not_caught_test, own_handler_test, backtrace_test, freeze_test])
