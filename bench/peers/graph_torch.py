#!/usr/bin/env python3
"""The cases of `lorry bench replay` in PyTorch: eager, torch.cuda.graph, torch.compile, and torch.compile in a graph.

    python bench/peers/graph_torch.py [--json FILE] [--filter TEXT]

Needs a GPU. Same schema as `lorry bench --json`. Results of graphs are compared with eager's to a tolerance.
"""
import argparse

import torch

from harness import Report, write

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)


def layers(width, dtype):
    torch.manual_seed(1)
    return torch.nn.Sequential(*(m for _ in range(24) for m in (torch.nn.Linear(width, width), torch.nn.ReLU()))).to(
        "cuda", dtype)


def captured(call):
    """A function that replays what `call` enqueues."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()

    def replay():
        graph.replay()
        return result

    return replay


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    parser.add_argument("--filter", default="")
    options = parser.parse_args()
    reports = {how: Report("replay", f"PyTorch {torch.__version__} {how}", "cuda:0", options.filter,
                           torch.cuda.synchronize)
               for how in ("eager", "graph", "compiled", "compiled, graph")}
    with torch.no_grad():
        for batch in BATCHES:
            case = f"24 x (linear 512 + relu), batch {batch}"
            if options.filter not in case:
                continue
            model = layers(512, torch.float16)
            x = torch.randn(batch, 512, device="cuda", dtype=torch.float16)
            compiled = torch.compile(model)
            calls = {"eager": lambda: model(x), "graph": captured(lambda: model(x)), "compiled": lambda: compiled(x),
                     "compiled, graph": captured(lambda: compiled(x))}
            for how, call in calls.items():
                torch.testing.assert_close(call(), model(x), rtol=1e-2, atol=1e-2)
                reports[how].add(case, call, None, dtype="f16")
    write(options.json, {"gpu": torch.cuda.get_device_name()},
          [row for report in reports.values() for row in report.rows])


if __name__ == "__main__":
    main()
