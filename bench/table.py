# SPDX-License-Identifier: BSD-3-Clause
"""What shm-table and tcp-table share: a machine's description, a build, running a command that
prints JSON, and lines of a report."""

import json
import os
import pathlib
import statistics
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
UNITS = {"lat_ns": "ns", "rate_mps": "million/s", "gbs": "GB/s"}


def output(*command):
    """What a command prints, or "" if it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=TOP, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def read(path):
    """A short file's text, or ""."""
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return ""


def machine():
    """What the figures hold for."""
    cpu = dict(l.split(":", 1) for l in output("lscpu").splitlines() if ":" in l)
    compiler = os.environ.get("CC", "cc")
    dirty = output("git", "status", "--porcelain", "--", "src", "include", "tools/weft")
    return {
        "cpu": " ".join(cpu.get(k, "").strip() for k in ("Model name", "CPU family", "Model")),
        "cores": os.cpu_count(),
        "kernel": os.uname().release,
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "none",
        "compiler": (output(compiler, "--version").splitlines() or ["unknown"])[0],
        "src_tree": output("git", "rev-parse", "HEAD:src") or "unknown",
        "uncommitted_changes": bool(dirty),
        "load": os.getloadavg()[0],
    }


def build():
    """Build a release in build-bench/; its weft."""
    where = TOP / "build-bench"
    if not (where / "build.ninja").exists():
        subprocess.run(["meson", "setup", str(where), "--buildtype=release"], cwd=TOP, check=True)
    subprocess.run(["ninja", "-C", str(where)], check=True)
    return where / "tools" / "weft" / "weft"


def measure(command, seconds=600):
    """Run a command that prints JSON objects, one a line; ends this program if it fails."""
    print("+", " ".join(command), flush=True)
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def verdict(ratio, target, ceiling):
    if target is None:
        return "-"
    return "met" if (ratio <= target if ceiling else ratio >= target) else "MISSED"


def spread(values):
    """The middle half of the pairs."""
    if len(values) < 4:
        return f"{min(values):.2f} to {max(values):.2f}"
    q = statistics.quantiles(values, n=4)
    return f"{q[0]:.2f} to {q[2]:.2f}"


def compare_lines(rows):
    if not rows:
        return
    yield from ["", "## Beside other libraries", ""]
    yield "Each in turn with Weft, A B A B; ratio of each pair: Weft's figure over the other's."
    yield from ["", "| with | test, bytes | ranks | Weft | other | ratio | of each pair |"]
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for r in rows:
        if r.get("installed") is False:
            continue
        unit = UNITS[r["figure"]]
        yield (
            f"| {r['with']} | `{r['what']}` {r['size'] or ''} | {r['ranks']} | {r['weft']:.2f} {unit} | "
            f"{r['other']:.2f} {unit} | {r['ratio']:.3f} | {', '.join(f'{x:.2f}' for x in r['ratios'])} |"
        )
    absent = [f"{r['with']} ({r['packages']})" for r in rows if r.get("installed") is False]
    if absent:
        yield from ["", "Not there: " + ", ".join(absent) + "."]


def limits_lines(limits):
    for name, value in limits.items():
        if name == "copy_ns":
            yield "- copy_ns: " + ", ".join(f"{v} at {k} B" for k, v in value.items())
        elif name != "test":
            yield f"- {name}: {value}"
