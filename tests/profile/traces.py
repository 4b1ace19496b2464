"""The two traces that the tests here read: that of a short training on the CPU, and that of the recording which
sample_recording.cpp makes by hand, with the work of GPUs. ctest sets the paths of the programs that write them."""
import functools
import json
import os
import subprocess
import sys
import tempfile
import unittest
from decimal import Decimal
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))
from support import LORRY, TEXT, small  # noqa: E402


def write_traces(folder):
    """Writes the traces into the folder; returns {name: path}."""
    text = folder / "text.txt"
    text.write_text(TEXT[:len(TEXT) // 4])
    training, sample = folder / "training.json", folder / "sample.json"
    train = ["train", "--text", text, "--out", folder / "run", *small(), "--steps", "3", "--device", "cpu", "--quiet"]
    subprocess.run([LORRY, "profile", "--trace", training, "--", *train], check=True, timeout=300,
                   stdout=subprocess.DEVNULL)
    sample.write_bytes(subprocess.run([os.environ["LORRY_PRINT_SAMPLE_TRACE"]], check=True, stdout=subprocess.PIPE,
                                      timeout=300).stdout)
    return {"training": training, "sample": sample}


class Trace:
    """The events of a trace by phase, as Python's strict reading of JSON finds them."""

    def __init__(self, path):
        def refuse(word):
            raise ValueError(f"{word} is not JSON")

        self.path = path
        self.all = json.loads(path.read_bytes().decode("utf-8"), parse_float=Decimal, parse_constant=refuse)
        events = self.all["traceEvents"]
        self.slices = [e for e in events if e["ph"] == "X"]
        self.counters = [e for e in events if e["ph"] == "C"]
        self.labels = [e for e in events if e["ph"] == "M"]
        self.arrows = {phase: [e for e in events if e["ph"] == phase] for phase in "sf"}
        self.others = [e for e in events if e["ph"] not in ("X", "C", "M", "s", "f")]


def nanoseconds(microseconds):
    """A time of a trace in nanoseconds, exactly."""
    ns = microseconds * 1000
    if ns != int(ns):
        raise ValueError(f"{microseconds} us is no whole number of nanoseconds")
    return int(ns)


def track(event):
    return event["pid"], event.get("tid")


def nested(trace):
    """[(slice, begin, end, slices around it)] in nanoseconds; fails where two slices of a track overlap in part."""
    by_track = {}
    for event in trace.slices:
        begin = nanoseconds(event["ts"])
        by_track.setdefault(track(event), []).append((event, begin, begin + nanoseconds(event["dur"])))
    found = []
    for slices in by_track.values():
        around = []
        for event, begin, end in sorted(slices, key=lambda x: (x[1], -x[2])):
            while around and around[-1][2] <= begin:
                around.pop()
            if around and end > around[-1][2]:
                raise AssertionError(f"{event}\noverlaps {around[-1][0]}")
            found.append((event, begin, end, [x[0] for x in around]))
            around.append((event, begin, end))
    return found


@functools.cache
def traces():
    """{"training": Trace, "sample": Trace}, written once."""
    folder = tempfile.TemporaryDirectory(prefix="lorry-")
    unittest.addModuleCleanup(folder.cleanup)
    return {name: Trace(path) for name, path in write_traces(Path(folder.name)).items()}
