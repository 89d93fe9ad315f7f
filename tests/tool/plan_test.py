# SPDX-License-Identifier: BSD-3-Clause
"""`weft plan`: its pages are those of the paper and of the driver's policy, its bytes those that the
library takes, its choice follows its options, and it refuses what makes no sense.

usage: plan_test.py WEFT pmix|alone"""

import json
import os
import shutil
import tempfile
import time
import xml.etree.ElementTree

from tool_test import harness, run

CATEGORIES = ["everywhere", "2xdynamic", "dynamic", "shared", "static", "threads", "split"]


def plan(*words, code=0):
    got, out, err = run("plan", *words, "--json")
    assert got == code, (words, got, out, err)
    found = [json.loads(line) for line in out.splitlines()]
    return ({o["category"]: o for o in found if "category" in o},
            {o["connection"]: o for o in found if "connection" in o})


def chosen(rows):
    return [name for name, row in rows.items() if row["chosen"]]


def plan_help_fits_a_screen():
    code, out, err = run("plan", "--help")
    assert code == 0 and not err, err
    assert len(out.splitlines()) <= 24 and max(map(len, out.splitlines())) < 80, out


def plan_pages_of_the_paper():
    classic = ("--nodes", "2", "--threads", "16", "--mode", "classic")
    rows, _ = plan(*classic)
    assert [rows[c]["uars"] for c in CATEGORIES] == [128, 40, 24, 16, 8, 8, 32], rows
    assert [rows[c]["uuars_used"] for c in CATEGORIES] == [16, 16, 16, 16, 15, 1, 16], rows
    assert [rows[c]["level"] for c in CATEGORIES] == [1, 1, 1, 2, 3, 4, 1], rows
    rows, _ = plan("--nodes", "2", "--ranks", "8", "--threads", "16", "--mode", "classic")
    assert [rows[c]["uars"] for c in CATEGORIES] == [1024, 320, 192, 128, 64, 64, 256], rows
    rows, _ = plan("--nodes", "2", "--threads", "16")
    assert [rows[c]["uars"] for c in CATEGORIES] == [32, 33, 17, 9, 9, 2, 18], rows
    env = {**os.environ, "MLX5_TOTAL_UUARS": "2", "MLX5_NUM_LOW_LAT_UUARS": "1"}
    code, out, err = run("plan", *classic, "--json", env=env)
    assert code == 0, err
    rows = {o["category"]: o for o in map(json.loads, out.splitlines()) if "category" in o}
    assert [rows[c]["uars"] for c in CATEGORIES] == [16, 33, 17, 9, 1, 1, 18], rows


def plan_connections_of_many_nodes():
    _, links = plan("--nodes", "100", "--ranks", "128", "--paper")
    kinds = {"RC": 1622016, "RC + SRQ": 1622016, "XRC": 25344, "UD": 128, "DC": 1152, "rv": 652, "node": 396}
    assert {k: v["queue_pairs"] for k, v in links.items()} == kinds, links
    assert links["RC"]["bytes"] == 1622016 * 80 * 1024, links


def plan_bytes_are_those_of_the_library():
    """One endpoint with so many peers: the sum of weft info --resources."""
    for peers in ("2", "100"):
        code, out, err = run("info", "--resources", peers, "--json", timeout=4 * harness.DEADLINE)
        assert code == 0, err
        counted = json.loads(out)
        rows, links = plan("--nodes", "2", "--peers", peers)
        for name in ("2xdynamic", "dynamic"):
            assert rows[name]["queue_pairs"] == counted["queue pairs"]["count"] == int(peers), (rows, counted)
            assert rows[name]["bytes"] == sum(v["bytes"] for v in counted.values() if isinstance(v, dict)), counted
        assert links["RC + SRQ"]["bytes"] == rows["dynamic"]["bytes"], (links, rows)


def plan_chooses():
    classic = ("--nodes", "2", "--threads", "16", "--mode", "classic")
    for loss, want in (("0", "2xdynamic"), ("20", "dynamic"), ("50", "shared")):
        rows, _ = plan(*classic, "--paper", "--loss", loss)
        assert chosen(rows) == [want] and "split" not in rows, (loss, rows)
    rows, _ = plan(*classic)
    assert chosen(rows) == ["split"] and rows["split"]["uars"] == 32, rows
    rows, _ = plan(*classic, "--loss", "100", "--locks")
    assert chosen(rows) == ["threads"], rows
    rows, _ = plan(*classic, "--loss", "100")
    assert chosen(rows) == ["shared"], rows
    rows, _ = plan(*classic, "--loss", "100", "--uars", "20")
    assert chosen(rows) == ["shared"] and "pages of 20" in rows["dynamic"]["unfit"], rows


def plan_that_nothing_fits():
    words = ("--nodes", "2", "--threads", "16", "--uars", "4")
    rows, _ = plan(*words, code=1)
    assert not chosen(rows), rows
    code, out, err = run("plan", *words)
    assert code == 1 and not err and "No category fits. The nearest is " in out, (out, err)
    code, out, _ = run("plan", "--nodes", "2", "--threads", "16", "--memory", "1M")
    assert code == 1 and "MiB of 1" in out, out
    rows, _ = plan("--nodes", "2", "--threads", "257", "--mode", "classic", "--loss", "100")
    assert not rows["dynamic"]["possible"] and "256 thread domains" in rows["dynamic"]["unfit"], rows
    assert rows["split"]["possible"], rows


def plan_large_machines_are_quick():
    start = time.monotonic()
    plan("--nodes", "10000", "--ranks", "256", "--threads", "8", "--uars", "100000", "--loss", "100")
    assert time.monotonic() - start < 20, time.monotonic() - start
    code, out, _ = run("plan", "--nodes", "2", "--ranks", "1024", "--threads", "16", "--uars", "65536")
    assert code == 0 and "PF_LOG_BAR_SIZE=" in out, out


def plan_refuses():
    for words, says in (((), "give the number of nodes"),
                        (("--nodes", "0"), "from 1 to 1000000"),
                        (("--nodes", "-1"), "from 1 to 1000000"),
                        (("--nodes", "1000000000000"), "from 1 to 1000000"),
                        (("--nodes", "1"), "one node needs no NIC"),
                        (("--nodes", "2", "--threads", "x"), "from 1 to 1024"),
                        (("--nodes", "2", "--threads"), "a value is missing"),
                        (("--nodes", "2", "--loss", "101"), "from 0 to 100"),
                        (("--nodes", "2", "--memory", "1X"), "such as 512M"),
                        (("--nodes", "2", "--mode", "old"), "classic"),
                        (("--nodes", "2", "--thread", "4"), "did you mean --threads?")):
        code, out, err = run("plan", *words)
        assert code == 2 and says in err and not out and err.count("\n") == 1, (words, code, out, err)
    env = {**os.environ, "MLX5_TOTAL_UUARS": "2"}
    code, _, err = run("plan", "--nodes", "2", "--mode", "classic", env=env)
    assert code == 2 and "MLX5_NUM_LOW_LAT_UUARS=1" in err, err


def plan_draws():
    if not shutil.which("gnuplot"):
        return
    with tempfile.TemporaryDirectory() as folder:
        picture = os.path.join(folder, "a.svg")
        code, _, err = run("plan", "--nodes", "2", "--threads", "16", "--plot", picture)
        assert code == 0, err
        text = " ".join("".join(part.itertext()) for part in xml.etree.ElementTree.parse(picture).getroot().iter())
        for name in CATEGORIES:
            assert name in text, (name, text)


if __name__ == "__main__":
    harness.main([plan_help_fits_a_screen, plan_pages_of_the_paper, plan_connections_of_many_nodes,
                  plan_bytes_are_those_of_the_library, plan_chooses, plan_that_nothing_fits,
                  plan_large_machines_are_quick, plan_refuses, plan_draws])
