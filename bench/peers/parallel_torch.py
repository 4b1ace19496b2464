#!/usr/bin/env python3
"""Times PyTorch's all_reduce by size, in lockstep as `lorry bench parallel` does; one JSON line from rank 0:

    torchrun --nproc-per-node 2 bench/peers/parallel_torch.py [--device cuda]
"""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist


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
        samples = []
        for sample in range(-2, 15):
            dist.barrier()
            wait()
            begin = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(x)
            wait()
            us = torch.tensor((time.perf_counter() - begin) / calls * 1e6, device=device)
            dist.all_reduce(us, dist.ReduceOp.MAX)
            if sample >= 0:
                samples.append(us.item())
        samples.sort()
        median = samples[len(samples) // 2]
        rows[size] = {"median_us": round(median, 2), "bus_gb_per_s": round(size * 2 * (n - 1) / n / median / 1e3, 2)}
    if dist.get_rank() == 0:
        print(json.dumps({"framework": f"pytorch {torch.__version__}", "ranks": n, "all_reduce": rows}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
