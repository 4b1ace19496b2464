#!/usr/bin/env python3
"""The cases of `lorry bench overhead` in PyTorch, called from Python: what a call costs when there is almost nothing to
do.

    python bench/peers/overhead_torch.py [--json FILE] [--threads N]

For PyTorch without Python in the way see overhead_torch.cpp beside this file. Same schema as `lorry bench --json`.
"""
import argparse
import platform

import torch

from harness import Report, write

EFFORT = {"sample_s": 0.0005}  # as Lorry on a CPU


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    x, y = torch.ones(64), torch.ones(64)
    report = Report("overhead", f"PyTorch {torch.__version__}, Python", "cpu")
    with torch.no_grad():
        report.add("empty 64", lambda: torch.empty(64), effort=EFFORT)
        report.add("view 64 as 8x8", lambda: x.view(8, 8), effort=EFFORT)
        report.add("add 64", lambda: torch.add(x, y), effort=EFFORT)
        report.add("add_ 64", lambda: x.add_(y), effort=EFFORT)
    write(arguments.json, {"cpu": platform.processor(), "threads": torch.get_num_threads()}, report.rows)


if __name__ == "__main__":
    main()
