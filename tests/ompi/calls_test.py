#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each call of the component's module by itself, between two ranks, over shared memory and TCP.

usage: calls_test.py COMPONENT MPIRUN PROGRAMS"""

import re

from runner import FEW, TCP, good, harness

MODES = ["tag", "module", "all"]
WAYS = [{}, {"WEFT_DEBUG": "nopull"}, {"WEFT_DEBUG": "shuffle"}, {"WEFT_PROGRESS": "thread"}]


def messages_test():
    for env in WAYS:
        err = good(2, "ompi_messages", env=env)
        assert err.count("messages with the tag 132 are dropped") == 2, (env, err)


def messages_tcp_test():
    good(2, "ompi_messages", env=TCP)


def few_test():
    """Descriptors run out: each rank is refused some. Nothing is lost."""
    for env in {}, TCP:
        err = good(2, "ompi_messages", env=env, **FEW)
        assert err.count("descriptors were refused") == 2, (env, err)
        good(2, "ompi_few", env=env, **FEW)


def inside_test():
    """Callbacks add ranks, flush, and make progress."""
    for env in [*WAYS, TCP]:
        good(2, "ompi_inside", env=env)


def copies_test():
    """A rank that makes no progress keeps a bounded amount of messages."""
    for env in {}, TCP:
        good(2, "ompi_copies", env={**env, "WEFT_PROGRESS": "thread"})


def overdue_test():
    """Where a callback wants what an access to the sender brings, the bound is suspended."""
    for how in "nested", "locked":
        for env in {}, TCP:
            good(2, "ompi_copies", how, env={**env, "WEFT_PROGRESS": "thread"})


def held_test():
    """Calls return while a callback in another thread waits for a lock that the caller holds."""
    for env in {}, TCP:
        good(2, "ompi_held", env=env)
        good(2, "ompi_held", "puts", env=env, btl_weft_order="all")


def puts_test():
    """A put that waits for its end takes messages without a bound."""
    for env in {}, TCP:
        good(2, "ompi_copies", "puts", env=env, btl_weft_order="all")


def accesses_test():
    for env in WAYS:
        good(2, "ompi_accesses", "100000", "near", env=env)


def accesses_tcp_test():
    good(2, "ompi_accesses", env=TCP)


def scarce_test():
    """More accesses than Weft takes at a time: Open MPI is to try again."""
    for env in TCP, {"WEFT_DEBUG": "nopull"}:
        debug = ",".join(filter(None, [env.get("WEFT_DEBUG"), "ops=64"]))
        good(2, "ompi_scarce", env={**env, "WEFT_DEBUG": debug})


def order_test():
    """What asks for an order has it."""
    for mode in MODES:
        for env in WAYS:
            messages = ["messages"] if "WEFT_PROGRESS" in env else []
            good(2, "ompi_order", mode, "3000", *messages, btl_weft_order=mode, env=env)


def order_tcp_test():
    """The same while messages without an order are overtaken, on four connections."""
    overtaken = 0
    for mode in MODES:
        err = good(2, "ompi_order", mode, "3000", btl_weft_order=mode,
                   env={**TCP, "WEFT_TCP_LANES": "4"})
        overtaken += int(re.search(r"(\d+) of \d+ free messages were overtaken", err).group(1))
    assert overtaken, "no free message was overtaken"


harness.main([messages_test, messages_tcp_test, few_test, inside_test, copies_test, overdue_test, held_test,
              puts_test, accesses_test, accesses_tcp_test, scarce_test, order_test, order_tcp_test])
