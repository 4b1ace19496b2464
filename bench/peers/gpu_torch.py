#!/usr/bin/env python3
"""The cases of `lorry bench memory`, `matmul` and `overhead` in PyTorch, eager, on a GPU: the peers of the same names.

    python bench/peers/gpu_torch.py [--json FILE] [--suite memory|matmul|overhead]...

Same schema as `lorry bench --json`. Times are wall clock over many calls that end with a synchronisation.
"""
import argparse
import json
import platform
import time

import torch
from torch.nn import functional as F


def measure(call, warmup_s=0.2, sample_s=0.004, total_s=1.0):
    """Median, least and 90th percentile of a call in microseconds: the harness of lorry/cli/measure.h on a GPU."""
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < warmup_s:
        call()
        calls += 1
        if calls % 64 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    per_sample = max(1, int(sample_s * calls / (time.perf_counter() - start)))
    samples, submits, begin = [], [], time.perf_counter()
    while len(samples) < 9 or time.perf_counter() - begin < total_s:
        start = time.perf_counter()
        for _ in range(per_sample):
            call()
        submits.append(1e6 * (time.perf_counter() - start) / per_sample)
        torch.cuda.synchronize()
        samples.append(1e6 * (time.perf_counter() - start) / per_sample)
    samples.sort()
    submits.sort()
    at = lambda xs, share: xs[int(share * (len(xs) - 1))]
    return {"median_us": at(samples, 0.5), "min_us": samples[0], "p90_us": at(samples, 0.9), "submit_us": at(submits, 0.5)}


def memory_cases():
    rows, columns = 16384, 4096
    n = rows * columns
    f32, bf16 = 4 * n, 2 * n
    make = lambda *sizes: torch.randn(*sizes, device="cuda")
    x, y, out = make(rows, columns), make(rows, columns), torch.empty(rows, columns, device="cuda")
    half, other_half, half_out = x.bfloat16(), y.bfloat16(), torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16)
    weight, bias = make(columns), make(columns)
    sparse = make(16 << 20) > 1
    picks, table = torch.randint(50257, (8192,), device="cuda"), make(50257, 768).bfloat16()
    return [
        ("copy", "f32", 2 * f32, lambda: out.copy_(x)),
        ("fill", "f32", f32, lambda: out.fill_(1)),
        ("add", "f32", 3 * f32, lambda: torch.add(x, y, out=out)),
        ("add bf16", "bf16", 3 * bf16, lambda: torch.add(half, other_half, out=half_out)),
        ("add a row", "f32", 2 * f32, lambda: torch.add(x, bias, out=out)),
        ("gelu", "f32", 2 * f32, lambda: F.gelu(x)),
        ("cast f32 to bf16", "bf16", f32 + bf16, lambda: half_out.copy_(x)),
        ("transpose", "f32", 2 * f32, lambda: x.t().contiguous()),
        ("transpose bf16", "bf16", 2 * bf16, lambda: half.t().contiguous()),
        ("sum of all", "f32", f32, lambda: x.sum()),
        ("sum of rows", "f32", f32, lambda: x.sum(1)),
        ("sum of columns", "f32", f32, lambda: x.sum(0)),
        ("sum of columns bf16", "bf16", bf16, lambda: half.sum(0)),
        ("max of rows", "f32", f32, lambda: x.amax(1)),
        ("softmax", "f32", 2 * f32, lambda: F.softmax(x, -1)),
        ("softmax bf16", "bf16", 2 * bf16, lambda: F.softmax(half, -1)),
        ("layer_norm", "f32", 2 * f32, lambda: F.layer_norm(x, (columns,), weight, bias)),
        ("rms_norm", "f32", 2 * f32, lambda: F.rms_norm(x, (columns,), weight)),
        ("cumsum", "f32", 2 * f32, lambda: x.cumsum(1)),
        ("normal", "f32", f32, lambda: out.normal_()),
        ("nonzero of 16 M", "bool", sparse.numel() + 8 * int(sparse.count_nonzero()), lambda: sparse.nonzero()),
        ("embedding 8192 x 768 bf16", "bf16", 2 * 2 * 8192 * 768, lambda: torch.index_select(table, 0, picks)),
    ]


def overhead_cases():
    x, y = torch.ones(64, device="cuda"), torch.ones(64, device="cuda")
    return [
        ("empty 64", "f32", None, lambda: torch.empty(64, device="cuda")),
        ("view 64 as 8x8", "f32", None, lambda: x.view(8, 8)),
        ("add 64", "f32", None, lambda: torch.add(x, y)),
        ("add_ 64", "f32", None, lambda: x.add_(y)),
    ]


def matmul_cases():
    kinds = [("f64", torch.float64, False), ("f32", torch.float32, False), ("tf32", torch.float32, True), ("f16", torch.float16, False), ("bf16", torch.bfloat16, False)]
    for name, dtype, tf32 in kinds:
        for size in (512, 1024, 2048, 4096, 8192):
            a, b = (torch.randn(size, size, device="cuda").to(dtype) for _ in range(2))
            out = torch.empty_like(a)

            def call():
                torch.mm(a, b, out=out)

            torch.backends.cuda.matmul.allow_tf32 = tf32
            yield (f"matmul {size} x {size} x {size} {name}", name, None, call)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--suite", action="append", choices=("memory", "matmul", "overhead"))
    arguments = parser.parse_args()
    suites = {"memory": memory_cases, "matmul": matmul_cases, "overhead": overhead_cases}
    results = []
    with torch.no_grad():
        for suite in arguments.suite or suites:
            for case, dtype, size, call in suites[suite]():
                row = {"suite": suite, "case": case, "implementation": f"PyTorch {torch.__version__}", "device": "cuda:0", "dtype": dtype, **measure(call)}
                if size:
                    row |= {"bytes": size, "gb_per_s": size / row["median_us"] / 1e3}
                if suite == "matmul":
                    row["tflop_per_s"] = 2 * int(case.split()[1]) ** 3 / row["median_us"] / 1e6
                results.append(row)
                print(f"{suite:<9} {case:<32} {row['median_us']:10.3f} us  (submit {row['submit_us']:.3f})" + (f"  {row['gb_per_s']:.0f} GB/s" if size else ""), flush=True)
    if arguments.json:
        report = {"schema": 1, "machine": {"gpu": torch.cuda.get_device_name(), "system": platform.platform()}, "results": results}
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=2)


if __name__ == "__main__":
    main()
