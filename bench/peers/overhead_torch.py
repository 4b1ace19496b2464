#!/usr/bin/env python3
"""The cases of `lorry bench overhead` in PyTorch, called from Python: what a call costs when there is almost nothing to
do.

    python bench/peers/overhead_torch.py [--json FILE] [--threads N]

For PyTorch without Python in the way see overhead_torch.cpp beside this file. Same schema as `lorry bench --json`.
"""
import argparse
import json
import platform
import time

import torch


def measure(call, warmup_s=0.2, sample_s=0.0005, total_s=1.0):
    """Median, least and 90th percentile of a call in microseconds: the harness of lorry/cli/measure.h."""
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < warmup_s:
        call()
        calls += 1
    per_sample = max(1, int(sample_s * calls / (time.perf_counter() - start)))
    samples, begin = [], time.perf_counter()
    while len(samples) < 9 or time.perf_counter() - begin < total_s:
        start = time.perf_counter()
        for _ in range(per_sample):
            call()
        samples.append(1e6 * (time.perf_counter() - start) / per_sample)
    samples.sort()
    at = lambda share: samples[int(share * (len(samples) - 1))]
    return {"median_us": at(0.5), "min_us": samples[0], "p90_us": at(0.9)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)

    x, y = torch.ones(64), torch.ones(64)
    cases = {
        "empty 64": lambda: torch.empty(64),
        "view 64 as 8x8": lambda: x.view(8, 8),
        "add 64": lambda: torch.add(x, y),
        "add_ 64": lambda: x.add_(y),
    }
    results = []
    with torch.no_grad():
        for case, call in cases.items():
            row = {"suite": "overhead", "case": case, "implementation": f"PyTorch {torch.__version__}, Python",
                   "device": "cpu", "dtype": "f32", **measure(call)}
            results.append(row)
            print(f"{case:<18} {row['median_us']:8.3f} us   (least {row['min_us']:.3f}, p90 {row['p90_us']:.3f})")
    if arguments.json:
        report = {"schema": 1, "machine": {"cpu": platform.processor(), "system": platform.platform(),
                                           "threads": torch.get_num_threads()}, "results": results}
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=2)


if __name__ == "__main__":
    main()
