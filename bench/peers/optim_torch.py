#!/usr/bin/env python3
"""Times optimizer steps over ResNet-50's parameters in PyTorch on the CPU: the peer of bench/optim_bench.cpp.

    python bench/peers/optim_torch.py --threads 2
"""
import argparse
import json
import statistics
import time

import torch

SGD = {"lr": 1e-3, "momentum": 0.9}


def resnet50():
    shapes = []

    def convolution(out, inputs, size):
        shapes.extend([(out, inputs, size, size), (out,), (out,)])

    convolution(64, 3, 7)
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            convolution(width, inputs, 1)
            convolution(width, width, 3)
            convolution(width * 4, width, 1)
            if block == 0:
                convolution(width * 4, inputs, 1)
            inputs = width * 4
    return shapes + [(1000, 2048), (1000,)]


def median_ms(call, repeats):
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    params = [torch.full(shape, 0.5, requires_grad=True) for shape in resnet50()]
    for p in params:
        p.grad = torch.full_like(p, 0.01)
    elements = sum(p.numel() for p in params)
    for name, make, arrays in (("adamw", lambda **how: torch.optim.AdamW(params, **how), 7), ("sgd_momentum", lambda **how: torch.optim.SGD(params, **SGD, **how), 5)):
        for execution, how in (("fused", {"fused": True}), ("foreach", {"foreach": True}), ("loop", {"foreach": False, "fused": False})):
            ms = median_ms(make(**how).step, arguments.repeats)
            print(json.dumps({"case": f"{name}_{execution}", "torch": torch.__version__, "threads": arguments.threads, "median_ms": round(ms, 2),
                              "gb_per_s": round(elements * 4 * arrays / ms / 1e6, 2)}))
    ms = median_ms(lambda: torch.nn.utils.clip_grad_norm_(params, 1e30), arguments.repeats)
    print(json.dumps({"case": "clip_grad_norm_", "torch": torch.__version__, "threads": arguments.threads, "median_ms": round(ms, 2)}))


if __name__ == "__main__":
    main()
