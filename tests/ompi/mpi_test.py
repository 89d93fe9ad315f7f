#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""MPI programs over the component mca_btl_weft.so, over shared memory and TCP. Across TCP the ranks
trust each other by the key that rank 0 draws.

usage: mpi_test.py COMPONENT MPIRUN PROGRAMS WEFT"""

import os
import re
import subprocess
import tempfile
import time

from runner import ALONE, COMPONENT, DEADLINE, ENV, FEW, PROGRAMS, TCP, WEFT, good, harness, start


def symbols_test():
    text = subprocess.run(["nm", "-D", "--defined-only", COMPONENT], check=True, text=True,
                          capture_output=True).stdout
    assert "__sync_" not in subprocess.run(["nm", "-D", COMPONENT], check=True, text=True,
                                           capture_output=True).stdout
    names = [line.split()[-1] for line in text.splitlines()]
    assert names == ["mca_btl_weft_component"], names


def info_test():
    """weft info names the folder of the component."""
    text = subprocess.run([*WEFT, "info"], check=True, text=True, capture_output=True).stdout
    line = next(line for line in text.splitlines() if "Open MPI component" in line)
    folder = line.split("OMPI_MCA_mca_base_component_path=")[1].removesuffix(":SYS_DEFAULT")
    assert os.path.samefile(folder, os.path.dirname(COMPONENT)), line


def taken_test():
    """The component is the one that sends to the other rank."""
    err = good(2, "ompi_ring", btl_base_verbose=100)
    assert err.count("Using weft btl for send") == 2, err


def btls(err):
    """Which BTL sends from a rank to another one: (BTL, rank)."""
    return sorted(re.findall(r"Using (\w+) btl for send to \[\[\d+,1\],(\d)\]", err))


OTHERS = "^vader,uct,openib,ofi"  # those that the user may have besides
LO = {"btl": OTHERS, "btl_tcp_if_include": "lo", "btl_base_verbose": 100}


def without_test():
    """Rank 2 has no such component: the others send to it, and it to them, by Open MPI's BTL tcp. They
    do not wait for what it has not published: the launcher would wait 2 s for each rank."""
    program = [os.path.join(PROGRAMS, "ompi_end"), "system"]
    without = ["env", "OMPI_MCA_mca_base_component_path=SYS_DEFAULT", *program]
    times = [time.monotonic()]
    good(3, *program, **LO)
    times.append(time.monotonic())
    err = good(2, *program, ":", "-n", "1", *without, **LO)
    times.append(time.monotonic())
    assert times[2] - times[1] < times[1] - times[0] + 1.8, times
    assert btls(err) == sorted([("self", "0"), ("self", "1"), ("self", "2"), ("weft", "0"), ("weft", "1"),
                                *[("tcp", rank) for rank in "0122"]]), err


def card_test():
    """Ranks have components of different releases: they use another BTL. If only Weft differs, the job
    ends, and the sentence says so."""
    for how in "format", "length":
        err = good(2, "ompi_card", how, **LO)
        assert btls(err) == [("self", "0"), ("self", "1"), ("tcp", "0"), ("tcp", "1")], (how, err)
    code, out, err = start(2, "ompi_card", "address", **LO).finish(DEADLINE)
    assert code and not out and "built for a different version of Weft" in err, (code, out, err)


def alone_test():
    """Without the BTL self, MPI_Init fails, and Open MPI's sentence names it. There is no mpirun: that of
    4.1.4 may crash when a rank sends it the sentence."""
    env = {**ENV, "OMPI_MCA_ess_singleton_isolated": "1", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "weft"}
    code, out, err = harness.Job([os.path.join(PROGRAMS, "ompi_ring")], env=env).finish(DEADLINE)
    assert code and not out and 'forgetting to\nspecify the "self" BTL' in err, (code, out, err)


def beside_test():
    """Among Open MPI's own components it is taken for all peers but oneself."""
    err = good(2, "ompi_ring", btl="^uct,openib,ofi", btl_base_verbose=100)
    assert "Using weft btl for send" in err, err
    assert "Using vader btl for send" not in err and "Using tcp btl for send" not in err, err


def ring_test():
    good(2, "ompi_ring")
    good(4, "ompi_ring")


def ring_tcp_test():
    good(2, "ompi_ring", env=TCP)
    good(4, "ompi_ring", env=TCP)


def windows_test():
    """One-sided communication: by puts, gets and atomics of the component."""
    good(2, "ompi_windows", "--windows", osc="rdma")
    good(3, "ompi_windows", "--windows", osc="rdma")


def windows_tcp_test():
    good(2, "ompi_windows", "--windows", osc="rdma", env=TCP)


def pieces_test():
    """Where the kernel denies copies between processes, messages do them."""
    good(2, "ompi_ring", env={"WEFT_DEBUG": "nopull"})
    good(2, "ompi_windows", "--windows", osc="rdma", env={"WEFT_DEBUG": "nopull"})


def shuffled_test():
    good(2, "ompi_ring", env={"WEFT_DEBUG": "shuffle"})
    good(2, "ompi_windows", "--windows", osc="rdma", env={"WEFT_DEBUG": "shuffle"})


def denied_test():
    """The kernel really denies the copies: all long messages and gets go in pieces."""
    wrapper = os.path.join(os.path.dirname(PROGRAMS), "cache", "denied")
    for program, *args in ("ompi_ring",), ("ompi_windows", "--windows"):
        err = good(2, wrapper, "process_vm", os.path.join(PROGRAMS, program), *args, osc="rdma",
                   btl_base_verbose=10)
        assert err.count("counter GET_PIECES ") == 2 and "counter GET_PULL " not in err, (program, err)
    # Accesses by handles of unmapped memory fail, and its owner, which does them, goes on.
    err = good(2, wrapper, "process_vm", os.path.join(PROGRAMS, "ompi_accesses"), "2000")
    assert "cannot be registered" not in err, err


def exhausted_test():
    """Descriptors run out: Open MPI tries again, and no message is lost."""
    err = good(4, "ompi_ring", **FEW)
    assert err.count("descriptors were refused") == 4, err


def flush_test():
    """A flush waits for the accesses of its window, and not for a message of another rank."""
    good(3, "ompi_flush", osc="rdma")
    for env in {"WEFT_DEBUG": "nopull"}, TCP:
        good(3, "ompi_flush", "held", osc="rdma", env=env)


def progress_test():
    """With a thread of Weft's the handler copies, and progress delivers."""
    good(2, "ompi_ring", env={"WEFT_PROGRESS": "thread"})


def threads_test():
    """MPI_THREAD_MULTIPLE: sends, receives, probes and a window, by several threads at a time."""
    good(2, "ompi_threads", "4", "15", osc="rdma")
    good(3, "ompi_threads", "3", "15", osc="rdma")
    good(2, "ompi_threads", "4", "15", osc="rdma", env={"WEFT_PROGRESS": "thread"})


def threads_tcp_test():
    good(2, "ompi_threads", "4", "15", osc="rdma", env=TCP)


def endpoints_test():
    """The threads share several endpoints."""
    for count in 2, 3, 64:
        good(2, "ompi_threads", "4", "15", osc="rdma", btl_weft_endpoints=count)
    good(2, "ompi_threads", "4", "15", osc="rdma", btl_weft_endpoints=4, env=TCP)
    good(2, "ompi_threads", "4", "15", osc="rdma", btl_weft_endpoints=3, btl_weft_order="module")
    good(2, "ompi_threads", "4", "15", osc="rdma", btl_weft_endpoints=4,
         env={"WEFT_PROGRESS": "thread"})
    good(2, "ompi_windows", "--windows", osc="rdma", btl_weft_endpoints=4)


def receiver_test():
    """A rank that has sent nothing yet receives over a network: it has the key, too."""
    good(2, "ompi_remap", "1", "3", env=TCP)


def apart_test():
    """What is complete at a rank arrives, although the rank makes no progress afterwards."""
    for how in "send", "isend", "long", "fin":
        for env in {}, TCP:
            good(2, "ompi_apart", how, env=env)


def on_nodes(first, second, **env):
    """Two ranks, each on a node of its own for the node's service, with the settings [first] and
    [second]. Returns what they write to stderr."""
    settings = [[word for key, value in {"WEFT_NODE_NAME": name, **more}.items()
                 for word in ("-x", f"{key}={value}")]
                for name, more in (("first", first), ("second", second))]
    program = [os.path.join(PROGRAMS, "ompi_remap"), "1", "3"]
    return good(1, *program, words=[*settings[0], *program, ":", "-n", "1", *settings[1]],
                env={"WEFT_NODE": "1", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": ALONE, **env})


def node_test():
    """The node's service carries all messages, without a key file: rank 0 publishes the key before the
    ranks open their endpoints. Nothing else connects the ranks."""
    err = on_nodes({}, {}, WEFT_TRANSPORTS="loop,node")
    assert "service" not in err, err


def node_differs_test():
    """A rank that finds no key for the node's service reports that, and uses TCP."""
    err = on_nodes({"WEFT_NODE": "0"}, {}, WEFT_TRANSPORTS="loop,node,tcp", WEFT_TCP_INTERFACES="lo")
    assert "give all ranks the same WEFT_NODE" in err, err


def spawn_test():
    """Ranks of other jobs, spawned or met by a port. The launcher serves a rank that has just sent its
    first message, without progress."""
    with tempfile.NamedTemporaryFile() as key:
        key.write(os.urandom(32))
        key.flush()
        for env in {}, {**TCP, "WEFT_KEY_FILE": key.name}:
            good(1, "ompi_spawn", "spawn", env=env)
            good(2, "ompi_spawn", "merge", env=env)
            good(1, "ompi_spawn", "connect", env=env)
            good(2, "ompi_spawn", "self", env=env)


def spawn_keyless_test():
    """A rank of another job, which is reached by a network only, and no key: the job ends."""
    code, _, err = start(1, "ompi_spawn", "spawn", env=TCP).finish(DEADLINE)
    assert code and "set WEFT_KEY_FILE for both jobs" in err, (code, err)


def remap_test():
    """Memory that changes between messages."""
    for hooks in {}, {"memory": "^patcher"}:
        for env in {}, {"WEFT_DEBUG": "nopull"}, TCP:
            err = good(2, "ompi_remap", "300", "1", env=env, btl_base_verbose=10, **hooks)
            kept, of = map(int, re.search(r"(\d+) of (\d+) registrations were kept", err).groups())
            assert kept < of, (env, hooks, kept, of)  # none is kept where userfaultfd is denied


RANGES = {
    "max_send_size": [(1000000, "512 to 32704", 32704), (1, "512 to 32704", 512)],
    "eager_limit": [(32705, "256 to 32704", 32704), (255, "256 to 32704", 256)],
    "rndv_eager_limit": [(1000000, "256 to {max_send_size}", "{max_send_size}"),
                         (0, "256 to {max_send_size}", 256)],
    "free_list_num": [(-1, "at least 0", 0)],
    "free_list_max": [(7, "at least 8", 8), (0, "at least 8", 8)],
    "free_list_inc": [(0, "at least 1", 1), (-5, "at least 1", 1)],
    "endpoints": [(100, "at most 64", 64), (-1, "at least 1", 1)],
    "latency": [(0, "1 to 4294967295", 1)],
    "exclusivity": [(0, "1 to 4294967295", 1)],
}


def adjusted_test():
    """A value that is out of range is adjusted, and each rank reports once how."""
    for i in range(2):
        rows = {name: rows[i % len(rows)] for name, rows in RANGES.items()}
        used = {"max_send_size": rows["max_send_size"][2]}
        err = good(2, "ompi_ring", **{f"btl_weft_{name}": row[0] for name, row in rows.items()})
        for name, (value, bounds, now) in rows.items():
            sentence = f"btl weft: btl_weft_{name} is {value}, but has to be {bounds}: {now} is used\n"
            assert err.count(sentence.format(**used)) == 2, (sentence.format(**used), err)
        assert err.count("but has to be") == 2 * len(rows), err


harness.main([symbols_test, info_test, taken_test, without_test, card_test, alone_test, beside_test, ring_test,
              ring_tcp_test, windows_test, windows_tcp_test, pieces_test, shuffled_test, denied_test,
              exhausted_test, flush_test, progress_test, threads_test, threads_tcp_test, endpoints_test,
              receiver_test, apart_test, node_test, node_differs_test, spawn_test, spawn_keyless_test,
              remap_test, adjusted_test])
