"""What the peers share: how a call is timed, how a case runs under a time limit, and the report, in the schema of
`lorry bench --json`."""
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH), str(BENCH / "data")]
import schema  # noqa: E402
from make_param_shapes import elements, load as load_shapes  # noqa: E402, F401: the peers take them from here

# What a processor steps in a moment; a GPU takes all.
SMALL_MODELS = ("efficientnet_b0", "resnet50", "tiny-4096x1024")


def measure(call, wait=lambda: None, warmup_s=0.2, sample_s=0.004, total_s=1.0):
    """Median, least and 90th percentile of a call in microseconds: the sampling of lorry/profile/sampling.cpp. A sample
    is several calls and one wait."""
    calls, start = 0, time.perf_counter()
    while calls == 0 or time.perf_counter() - start < warmup_s:
        call()
        calls += 1
        if calls % 64 == 0:
            wait()
    wait()
    per_sample = max(1, int(sample_s * calls / (time.perf_counter() - start)))
    samples, submits, begin = [], [], time.perf_counter()
    while len(samples) < 9 or time.perf_counter() - begin < total_s:
        start = time.perf_counter()
        for _ in range(per_sample):
            call()
        submits.append(1e6 * (time.perf_counter() - start) / per_sample)
        wait()
        samples.append(1e6 * (time.perf_counter() - start) / per_sample)
    samples.sort()
    submits.sort()
    at = lambda xs, share: xs[int(share * (len(xs) - 1))]
    return {"median_us": at(samples, 0.5), "min_us": samples[0], "p90_us": at(samples, 0.9),
            "submit_us": at(submits, 0.5)}


def first_ms(call, wait=lambda: None):
    """Milliseconds of a first call, which is where compilers work."""
    start = time.perf_counter()
    call()
    wait()
    return 1e3 * (time.perf_counter() - start)


def show(row):
    size = f"  {row['bytes'] / row['median_us'] / 1e3:.0f} GB/s" if "bytes" in row else ""
    extra = f"  +{row['extra_bytes'] / 1e6:.0f} MB" if row.get("extra_bytes") else ""
    first = f"  first call {row['first_ms'] / 1e3:.1f} s" if "first_ms" in row else ""
    times = f"{row['median_us']:12.3f} us  (submit {row['submit_us']:.3f})"
    print(f"{row['suite']:<9} {row['case']:<44} {times}{size}{extra}{first}", flush=True)


class Report:
    """Rows as they come, printed at once. Rows are of one suite and one implementation."""

    def __init__(self, suite, implementation, device, wanted="", wait=lambda: None):
        self.head = {"suite": suite, "implementation": implementation, "device": device}
        self.wanted, self.wait, self.rows = wanted, wait, []

    def wants(self, case):
        return self.wanted in case

    def add(self, case, call, size=None, dtype="f32", effort=None, **figures):
        """Measures a call that moves `size` bytes."""
        if not self.wants(case):
            return
        row = {"suite": self.head["suite"], "case": case, **self.head, "dtype": dtype,
               **measure(call, self.wait, **(effort or {}))}
        if size:
            row["bytes"] = size
        self.take(schema.with_rates(row | figures))

    def add_limited(self, case, script, arguments, limit_s):
        """Takes the rows of another run of a script, ended after limit_s: compilers cannot be interrupted otherwise."""
        if not self.wants(case):
            return
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            command = [sys.executable, script, *map(str, arguments), "--json", file.name]
            try:
                subprocess.run(command, check=True, timeout=limit_s, stdout=subprocess.DEVNULL)
            except subprocess.TimeoutExpired:
                print(f"{Path(script).name}: {case} was not done after {limit_s} s and is left out", file=sys.stderr)
                return
            except subprocess.CalledProcessError as error:
                print(f"{Path(script).name}: {case} failed with status {error.returncode} and is left out",
                      file=sys.stderr)
                return
            for row in json.loads(Path(file.name).read_text())["results"]:
                self.take(row)

    def take(self, row):
        self.rows.append(row)
        show(row)


def write(path, machine, rows):
    """Writes a report where a path is given."""
    if path:
        report = schema.report(machine | {"system": platform.platform()}, rows)
        text = json.dumps(report, indent=1) + "\n"
        if Path(path).exists() and not Path(path).is_file():
            Path(path).write_text(text)  # a pipe or a terminal
            return
        part = Path(f"{path}.part")  # an interruption leaves the last whole report
        part.write_text(text)
        part.replace(path)
