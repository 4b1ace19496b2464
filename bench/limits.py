#!/usr/bin/env python3
"""Measures what a newcomer meets, for bench/results/limits.json and docs/benchmarks.md: how fast the command starts and
how large it is.

    bench/limits.py COMMAND OUT.json

What takes long is only written down: the minutes of a clean build and of the tests from LORRY_BUILD_MINUTES and
LORRY_TEST_MINUTES where they are set, the demo's loss from demo/metrics.jsonl where `make demo` has run.
"""
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import schema

RUNS = 21
MINUTES = {"build_minutes": "LORRY_BUILD_MINUTES", "test_minutes": "LORRY_TEST_MINUTES"}


def start_ms(command):
    """The median time of a whole `lorry info`, in milliseconds."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run([command, "info"], check=True, stdout=subprocess.DEVNULL)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def demo_loss(metrics):
    """The last validation loss of the demo's run; None before there is one."""
    records = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    return next((r["validation_loss"] for r in reversed(records) if "validation_loss" in r), None)


def main(arguments):
    if len(arguments) != 2:
        print("usage: bench/limits.py COMMAND OUT.json", file=sys.stderr)
        return 2
    command, out = Path(arguments[0]).resolve(), Path(arguments[1])
    limits = {"info_ms": start_ms(command), "command_mb": command.stat().st_size / 1e6}
    limits |= {key: float(os.environ[name]) for key, name in MINUTES.items() if name in os.environ}
    loss = demo_loss(Path("demo/metrics.jsonl"))
    if loss is not None:
        limits["demo_validation_loss"] = loss
    out.write_text(json.dumps({"schema": schema.VERSION, "limits": limits}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
