#!/usr/bin/env python3
"""The cases of `lorry bench memory`, `matmul` and `overhead` in PyTorch, eager, on a GPU: the peers of the same names.

    python bench/peers/gpu_torch.py [--json FILE] [--suite memory|matmul|overhead]...

Same schema as `lorry bench --json`. Times are wall clock over many calls that end with a synchronisation.
"""
import argparse
import itertools

import torch
from torch.nn import functional as F

from harness import Report, write


def memory_cases():
    rows, columns = 16384, 4096
    n = rows * columns
    f32, bf16 = 4 * n, 2 * n
    make = lambda *sizes: torch.randn(*sizes, device="cuda")
    x, y, out = make(rows, columns), make(rows, columns), torch.empty(rows, columns, device="cuda")
    half, other_half = x.bfloat16(), y.bfloat16()
    half_out = torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16)
    weight, bias = make(columns), make(columns)
    turns = lambda made, count: itertools.cycle([made() for _ in range(count)])  # beyond the caches, as Lorry's
    sparse = make(16 << 20) > 1
    masks = turns(sparse.clone, 20)
    grads = turns(lambda: make(8192, 3072).bfloat16(), 8)
    packed = make(64, 1024, 3 * 16, 64).bfloat16()
    angles = torch.outer(torch.arange(1024, device="cuda"), 1e4 ** (-2.0 * torch.arange(32, device="cuda") / 64))
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]

    def rotary():
        a, b = packed[:, :, :32].float().chunk(2, dim=-1)
        turned = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).bfloat16()
        return torch.cat((turned, packed[:, :, 32:]), dim=2)

    pageable = torch.ones(64 << 20)
    pinned = pageable.pin_memory()
    table = make(4 * 50257, 768).bfloat16()
    picks = turns(lambda: torch.randint(4 * 50257, (8192,), device="cuda"), 20)
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
        ("sum of columns 8192 x 3072 bf16", "bf16", 2 * 8192 * 3072, lambda: next(grads).sum(0)),
        ("max of rows", "f32", f32, lambda: x.amax(1)),
        ("softmax", "f32", 2 * f32, lambda: F.softmax(x, -1)),
        ("softmax bf16", "bf16", 2 * bf16, lambda: F.softmax(half, -1)),
        ("layer_norm", "f32", 2 * f32, lambda: F.layer_norm(x, (columns,), weight, bias)),
        ("rms_norm", "f32", 2 * f32, lambda: F.rms_norm(x, (columns,), weight)),
        ("cumsum", "f32", 2 * f32, lambda: x.cumsum(1)),
        ("rotary of q and k, bf16", "bf16", 4 * packed.numel(), rotary),
        ("normal", "f32", f32, lambda: out.normal_()),
        ("nonzero of 16 M", "bool", sparse.numel() + 8 * int(sparse.count_nonzero()), lambda: next(masks).nonzero()),
        ("embedding 8192 x 768 bf16", "bf16", 2 * 2 * 8192 * 768, lambda: torch.index_select(table, 0, next(picks))),
        ("to the GPU from pageable memory", "f32", 4 * pageable.numel(), lambda: pageable.cuda()),
        ("to the GPU from pinned memory", "f32", 4 * pinned.numel(), lambda: pinned.cuda()),
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
    kinds = [("f64", torch.float64, False), ("f32", torch.float32, False), ("tf32", torch.float32, True),
             ("f16", torch.float16, False), ("bf16", torch.bfloat16, False)]
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
    rows = []
    with torch.no_grad():
        for suite in arguments.suite or suites:
            report = Report(suite, f"PyTorch {torch.__version__}", "cuda:0", wait=torch.cuda.synchronize)
            for case, dtype, size, call in suites[suite]():
                flops = {"flops": 2 * int(case.split()[1]) ** 3} if suite == "matmul" else {}
                report.add(case, call, size, dtype, **flops)
            rows += report.rows
    write(arguments.json, {"gpu": torch.cuda.get_device_name()}, rows)


if __name__ == "__main__":
    main()
