#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The longest Medium by WEFT_AM_MAX: what the manual page promises of its texts.

usage: env_test.py WEFT PROGRAM    (any that ends well)"""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "job"))
import harness  # pylint: disable=wrong-import-position

DEADLINE = float(os.environ.get("WEFT_TEST_DEADLINE", "60"))
DEFAULT = 4032
WEFT, PROGRAM = (os.path.abspath(path) for path in sys.argv[1:])


def medium(text):
    """gasnet_AMMaxMedium() with WEFT_AM_MAX=text, and the warnings about that."""
    env = {"GASNET_VERBOSEENV": "1", **({} if text is None else {"WEFT_AM_MAX": text})}
    code, out, err = harness.Job([WEFT, "run", "-n", "2", "--", PROGRAM], env=env).finish(DEADLINE)
    assert code == 0, f"code {code}\n{out}{err}"
    said = re.findall(r"gasnet_AMMaxMedium\(\) is (\d+)", err)
    assert len(said) == 1, err
    return int(said[0]), re.findall(r"^WARNING: WEFT_AM_MAX=(.*) is not 640 to 32704", err, re.M)


def taken_test():
    for text, want in (("4160", DEFAULT), ("4096", 3968), ("4K", 3968), ("4k", 3968), ("4KiB", 3968),
                       ("4kb", 3968), ("0x1000", 3968), ("640", 512), ("32704", 32576)):
        assert medium(text) == (want, []), f"{text}: {medium(text)}"


def refused_test():
    for text in ("639", "0", "32705", "32K", "1M", "4096T", "many", "4.5K", "4Kx", "-4096"):
        assert medium(text) == (DEFAULT, [text]), f"{text}: {medium(text)}"


def not_set_test():
    for text in (None, ""):
        assert medium(text) == (DEFAULT, []), f"{text}: {medium(text)}"


harness.main([taken_test, refused_test, not_set_test])
