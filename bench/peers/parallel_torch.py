#!/usr/bin/env python3
"""Times PyTorch's all_reduce by size, and sharded steps of AdamW over the shapes of known models, in lockstep as
`lorry bench parallel` does; one JSON line from rank 0:

    torchrun --nproc-per-node 2 bench/peers/parallel_torch.py [--device cuda]
"""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from harness import load_shapes
from torch.distributed.optim import ZeroRedundancyOptimizer


def timed(call, calls, wait, device):
    """The median over samples of the slowest rank's microseconds a call."""
    samples = []
    for sample in range(-2, 15):
        dist.barrier()
        wait()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        us = torch.tensor((time.perf_counter() - begin) / calls * 1e6, device=device)
        dist.all_reduce(us, dist.ReduceOp.MAX)
        if sample >= 0:
            samples.append(us.item())
    return round(sorted(samples)[len(samples) // 2], 2)


def zero_step(shapes, device):
    """Gradients summed as DDP sums them, clipped, and a step of ZeroRedundancyOptimizer: bf16 parameters and states."""
    elements = sum(torch.Size(x).numel() for x in shapes)
    flat = torch.full((elements,), 0.01, dtype=torch.bfloat16, device=device)
    parameters, at = [], 0
    for shape in shapes:
        x = torch.nn.Parameter(torch.full(shape, 0.5, dtype=torch.bfloat16, device=device))
        x.grad = flat[at:at + x.numel()].view(shape)
        at += x.numel()
        parameters.append(x)
    optimizer = ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=1e-3, fused=True)

    def step():
        dist.all_reduce(flat)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    return step


def flat_step(shapes, device):
    """The same work as Lorry's, by hand over one flat tensor: reduce_scatter of bf16 gradients, the norm over all
    ranks, fused AdamW over the own f32 masters, all_gather of bf16 parameters."""
    n = dist.get_world_size()
    elements = -(-sum(torch.Size(x).numel() for x in shapes) // n) * n
    gradients = torch.full((elements,), 0.01, dtype=torch.bfloat16, device=device)
    parameters = torch.full((elements,), 0.5, dtype=torch.bfloat16, device=device)
    own_gradient = torch.empty(elements // n, dtype=torch.bfloat16, device=device)
    own = parameters[dist.get_rank() * (elements // n):][:elements // n]
    master = torch.nn.Parameter(own.float())
    optimizer = torch.optim.AdamW([master], lr=1e-3, fused=True)

    def step():
        dist.reduce_scatter_tensor(own_gradient, gradients)
        master.grad = own_gradient.float()
        square = torch.linalg.vector_norm(master.grad).square()
        dist.all_reduce(square)
        master.grad.mul_((1.0 / (square.sqrt() + 1e-6)).clamp(max=1.0))
        optimizer.step()
        own.copy_(master.detach())
        dist.all_gather_into_tensor(parameters, own)
    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    gpu = parser.parse_args().device == "cuda"
    dist.init_process_group("nccl" if gpu else "gloo")
    if gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = "cuda" if gpu else "cpu"
    n = dist.get_world_size()
    wait = torch.cuda.synchronize if gpu else (lambda: None)
    rows = {}
    for size in (8, 1 << 10, 64 << 10, 1 << 20, 16 << 20) + ((256 << 20,) if gpu else ()):
        x = torch.zeros(size // 4, device=device)
        calls = max(4, min(100, (64 << 20) // size))
        median = timed(lambda x=x: dist.all_reduce(x), calls, wait, device)
        rows[size] = {"median_us": round(median, 2), "bus_gb_per_s": round(size * 2 * (n - 1) / n / median / 1e3, 2)}
    steps = {}
    for model in ("gpt2", "llama-1b") if gpu else ():
        for name, make in (("ZeroRedundancyOptimizer", zero_step), ("flat", flat_step)):
            steps[f"adamw over {model}, {name}"] = timed(make(load_shapes()[model], device), 4, wait, device)
            torch.cuda.empty_cache()
    if dist.get_rank() == 0:
        print(json.dumps({"framework": f"pytorch {torch.__version__}", "ranks": n, "all_reduce": rows, "steps": steps}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
