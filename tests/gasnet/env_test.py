#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The longest Medium by WEFT_AM_MAX: what the manual page promises of its texts. The variables of
Weft that variables of GASNet set, as the job's statistics show them.

usage: env_test.py WEFT PROGRAM LARGEST [rdma]    (any that ends well; one with the largest segment)
       rdma: only what needs such a device"""

import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "job"))
import harness  # pylint: disable=wrong-import-position

DEADLINE = float(os.environ.get("WEFT_TEST_DEADLINE", "60"))
DEFAULT = 4096
WEFT, PROGRAM, LARGEST = (os.path.abspath(path) for path in sys.argv[1:4])


def medium(text):
    """gasnet_AMMaxMedium() with WEFT_AM_MAX=text, and the warnings about that."""
    env = {"GASNET_VERBOSEENV": "1", **({} if text is None else {"WEFT_AM_MAX": text})}
    code, out, err = harness.Job([WEFT, "run", "-n", "2", "--", PROGRAM], env=env).finish(DEADLINE)
    assert code == 0, f"code {code}\n{out}{err}"
    values = re.findall(r"gasnet_AMMaxMedium\(\) is (\d+)", err)
    assert len(values) == 1, err
    return int(values[0]), re.findall(r"^WARNING: WEFT_AM_MAX=(.*) is not 640 to 32704", err, re.M)


def taken_test():
    for text, want in (("4224", DEFAULT), ("4096", 3968), ("4K", 3968), ("4k", 3968), ("4KiB", 3968),
                       ("4kb", 3968), ("0x1000", 3968), ("640", 512), ("32704", 32576)):
        assert medium(text) == (want, []), f"{text}: {medium(text)}"


def refused_test():
    for text in ("639", "0", "32705", "32K", "1M", "4096T", "many", "4.5K", "4Kx", "-4096"):
        assert medium(text) == (DEFAULT, [text]), f"{text}: {medium(text)}"


def not_set_test():
    for text in (None, ""):
        assert medium(text) == (DEFAULT, []), f"{text}: {medium(text)}"


def configured(env):
    """Returns the rows of Weft's configuration that differ from the defaults, and the warnings."""
    with tempfile.TemporaryDirectory() as place:
        job = harness.Job([WEFT, "run", "-n", "2", "--", PROGRAM], env={**env, "GASNET_STATSFILE": f"{place}/s-%"})
        code, out, err = job.finish(DEADLINE)
        assert code == 0, f"code {code}\n{out}{err}"
        with open(f"{place}/s-1", encoding="ascii") as f:
            return dict(re.findall(r"^weft (WEFT_\w+)=(\S+) \(default", f.read(), re.M)), err


def mapped_test():
    for name, text, weft, want in (
            ("GASNET_GNI_PUT_BOUNCE_REGISTER_CUTOVER", "8192", "WEFT_RDMA_PUT_COPY", "8K"),
            ("GASNET_GNI_GET_BOUNCE_REGISTER_CUTOVER", "16K", "WEFT_RDMA_GET_COPY", "16K"),
            ("GASNET_GNI_PUT_FMA_RDMA_CUTOVER", "8192", "WEFT_RDMA_PUT_COPY", "8K"),
            ("GASNET_GNI_PUT_FMA_RDMA_CUTOVER", "1024", "WEFT_RDMA_PUT_COPY", None),
            ("GASNET_GNI_GET_FMA_RDMA_CUTOVER", "16K", "WEFT_RDMA_GET_COPY", "16K"),
            ("GASNET_GNI_MEM_CONSISTENCY", "strict", "WEFT_RDMA_ORDER", None),
            ("GASNET_GNI_MEM_CONSISTENCY", "none", "WEFT_RDMA_ORDER", None),
            ("GASNET_GNI_MEM_CONSISTENCY", "relaxed", "WEFT_RDMA_ORDER", "relaxed"),
            ("GASNET_GNI_MEM_CONSISTENCY", "default", "WEFT_RDMA_ORDER", "relaxed"),
            ("GASNET_GNI_MEM_CONSISTENCY", "", "WEFT_RDMA_ORDER", None),
            ("GASNET_GNI_BOUNCE_SIZE", "1.5M", "WEFT_RDMA_COPY_POOL", "1536K"),
            ("GASNET_GNI_NUM_PD", "0100", "WEFT_RDMA_DESCRIPTORS", "100"),
            ("GASNET_GNI_BTE_MULTI_CHANNEL", "1", "WEFT_RDMA_RAILS", "4"),
            ("GASNET_GNI_BTE_MULTI_CHANNEL", "0", "WEFT_RDMA_RAILS", None),
            ("GASNET_NETWORKDEPTH_SPACE", "128K", "WEFT_SHM_PAYLOAD", "128K"),
            ("GASNET_NETWORKDEPTH_SPACE", "128K", "WEFT_TCP_SEND", "128K"),
            ("GASNET_NETWORKDEPTH_SPACE", "128K", "WEFT_TCP_SEND_MAX", "0"),
            ("GASNET_GNI_BOUNCE_SIZE", "1M", "WEFT_RDMA_COPY_POOL", "1M"),
            ("GASNET_GNI_NUM_PD", "64", "WEFT_RDMA_DESCRIPTORS", "64"),
            ("GASNET_GNI_MEMREG", "3072", "WEFT_MR_CACHE_COUNT", "3072"),
            ("GASNET_USE_UDREG", "0", "WEFT_MR_CACHE_COUNT", "0"),
            ("GASNET_BARRIER", "amdissem", "WEFT_BARRIER", "leaders"),
            ("GASNET_BARRIER", "RDMADISSEM", "WEFT_BARRIER", None),
            ("GASNET_SUPERNODE_MAXSIZE", "1", "WEFT_TRANSPORTS", "loop,node,rdma,tcp")):
        have, err = configured({name: text})
        assert have.get(weft) == want and "WARNING" not in err, f"{name}={text}: {have}\n{err}"


def adjusted_test():
    for name, text, weft, want in (
            ("GASNET_GNI_PUT_BOUNCE_REGISTER_CUTOVER", "64K", "WEFT_RDMA_PUT_COPY", "32K"),
            ("GASNET_GNI_PUT_FMA_RDMA_CUTOVER", "1M", "WEFT_RDMA_PUT_COPY", "16K"),
            ("GASNET_GNI_NUM_PD", "0", "WEFT_RDMA_DESCRIPTORS", "32"),
            ("GASNET_GNI_NUM_PD", "0K", "WEFT_RDMA_DESCRIPTORS", "32"),
            ("GASNET_GNI_MEMREG", "5000000000", "WEFT_MR_CACHE_COUNT", "4294967295"),
            ("GASNET_GNI_BOUNCE_SIZE", "4096", "WEFT_RDMA_COPY_POOL", "64K"),
            ("GASNET_GNI_NUM_PD", "8", "WEFT_RDMA_DESCRIPTORS", "32")):
        have, err = configured({name: text})
        assert have.get(weft) == want and f"WARNING: {name}={text} is adjusted" in err, f"{name}: {have}\n{err}"


def cutovers_test():
    """The greater of the conduit's two limits counts."""
    for fma, bounce, want in (("8K", "16K", "16K"), ("16K", "8K", "16K"), ("2K", "8K", "8K")):
        have, err = configured({"GASNET_GNI_PUT_FMA_RDMA_CUTOVER": fma, "GASNET_GNI_PUT_BOUNCE_REGISTER_CUTOVER": bounce})
        assert have.get("WEFT_RDMA_PUT_COPY") == want and "WARNING" not in err, f"{fma}, {bounce}: {have}\n{err}"


def unknown_test():
    for name, text in (("GASNET_GNI_MEM_CONSISTENCY", "loose"), ("GASNET_GNI_NUM_PD", "many"), ("GASNET_GNI_NUM_PD", "-4"),
                       ("GASNET_NETWORKDEPTH", "64K"), ("GASNET_NETWORKDEPTH_TOTAL", "-5")):
        have, err = configured({name: text})
        assert f"WARNING: {name}={text} is not" in err and "WEFT_RDMA_DESCRIPTORS" not in have, f"{have}\n{err}"


def largest(program, env):
    """Returns gasnet_getMaxGlobalSegmentSize() on two nodes, and the nodes' output."""
    job = harness.Job([WEFT, "run", "-n", "2", "--", program], env={**env, "GASNET_VERBOSEENV": "1"})
    code, out, err = job.finish(DEADLINE)
    assert code == 0, f"{env}: code {code}\n{out}{err}"
    return int(re.search(r"gasnet_getMaxGlobalSegmentSize\(\) is (\d+)", err)[1]), err


def pinned_test():
    """The largest segment leaves room for Weft's own pinned memory, so that it can be pinned, too: 8 to
    12 KiB for each of the receive buffers, and 512 KiB to 4 MiB. Without an RDMA device nothing is left out.
    (Nodes of one machine that do not share memory count as machines of their own for WEFT_PINNED.)"""
    share = 64 << 20
    env = {"GASNET_PHYSMEM_MAX": f"{2 * share >> 20}M", "WEFT_PINNED": str(share), "WEFT_RDMA_ON_DEMAND": "never"}
    assert largest(PROGRAM, {**env, "WEFT_TRANSPORTS": "loop,tcp"})[0] == share
    found = {}
    for receives in (64, 512):
        found[receives], err = largest(LARGEST, {**env, "WEFT_TRANSPORTS": "loop,rdma", "WEFT_RDMA_RECEIVES": str(receives)})
        assert "peers reach" not in err and "WARNING" not in err, err
        own = share - found[receives]
        assert receives * 8192 + (512 << 10) <= own <= receives * 12288 + (4 << 20), f"{receives}: {own}"
    assert found[64] - found[512] >= 448 * 8192, found


def unknown_barrier_test():
    have, err = configured({"GASNET_BARRIER": "FASTEST"})
    assert "WARNING: GASNET_BARRIER=FASTEST is not RDMADISSEM" in err and "WEFT_BARRIER" not in have, err


def weft_first_test():
    have, _ = configured({"GASNET_GNI_NUM_PD": "64", "WEFT_RDMA_DESCRIPTORS": "100"})
    assert have["WEFT_RDMA_DESCRIPTORS"] == "100", have


harness.main([pinned_test] if sys.argv[4:] == ["rdma"] else
             [taken_test, refused_test, not_set_test, mapped_test, adjusted_test, cutovers_test, unknown_test,
              unknown_barrier_test, weft_first_test])
