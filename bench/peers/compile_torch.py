#!/usr/bin/env python3
"""The cases of `lorry bench compile` in PyTorch: eager, and compiled by torch.compile.

    python bench/peers/compile_torch.py [--device cpu|cuda] [--json FILE] [--filter TEXT] [--threads N]

On a CPU torch.compile emits C++ and needs g++. Its caches are off and what it compiled for other cases is forgotten, so
that a first call compiles, as it does in a program's first run; compiled kernels on disk would be faster. Same schema
as `lorry bench --json`; the row "CASE, the first call" is one call. Results are compared with eager's to a tolerance:
torch.compile promises no equal bits.
"""
import argparse
import math
import platform

import torch
import torch._dynamo
import torch._inductor.config
from torch._dynamo.utils import counters
from torch.nn import functional as F

from harness import Report, first_ms, write
from train_torch import GPT, PRESETS

SHORT = {"sample_s": 0.0005}  # as Lorry on a CPU


def arithmetic(x, y):
    a = x * 2 + 1
    b = a * y - x
    c = b / (y + 2)
    d = c.abs() + 1
    e = d.sqrt() * a
    g = torch.minimum(torch.maximum(e, b), d)
    h = g.square() - c
    return -(torch.clamp(h * 0.5 + e, -3, 3) * y - x)


def transcendental(x, y):
    a = (x * 0.5).exp()
    b = (a + 1).log()
    c = (b * x).sin()
    d = (c + y).cos()
    e = (d * a).tanh()
    f = (e - b).sigmoid()
    g = (f * 2).erf()
    h = g.abs().log1p()
    return (h * c + d) / (f + 1)


class Cases:
    """Rows of a function's calls, eager and compiled, and of the compiled one's first call."""

    def __init__(self, device, wanted):
        self.device = device
        wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        label = "cuda:0" if device == "cuda" else device
        self.eager, self.compiled = (Report("compile", f"PyTorch {torch.__version__} {how}", label, wanted, wait)
                                     for how in ("eager", "compiled"))
        self.effort = SHORT if device == "cpu" else {}

    def rows(self):
        return self.eager.rows + self.compiled.rows

    def add(self, case, eager, compiled, size=None, tokens=None, check=True, dtype="f32"):
        """`eager` and `compiled` take no arguments and return a tensor; `compiled` has not been called."""
        if not self.eager.wants(case):
            return
        first = 1e3 * first_ms(compiled, self.compiled.wait)
        self.compiled.take({"suite": "compile", "case": f"{case}, the first call", **self.compiled.head,
                            "dtype": dtype, "median_us": first, "min_us": first, "p90_us": first, "submit_us": first})
        if check:
            torch.testing.assert_close(compiled(), eager(), rtol=1e-3, atol=1e-4)
        for report, call in ((self.eager, eager), (self.compiled, compiled)):
            report.add(case, call, size, dtype=dtype, effort=self.effort)
            if tokens:
                report.rows[-1]["tokens_per_s"] = 1e6 * tokens / report.rows[-1]["median_us"]
        self.compiled.rows[-1]["recordings"] = counters["stats"]["unique_graphs"]

    def add_function(self, case, function, arguments, size=None):
        if self.eager.wants(case):
            compiled = compile_anew(function)
            self.add(case, lambda: function(*arguments), lambda: compiled(*arguments), size)


def compile_anew(function):
    """Compiles a function, with nothing left of those before it."""
    torch._dynamo.reset()
    counters.clear()
    return torch.compile(function)


def chain(x, y):
    return torch.sigmoid((x * 2 + y).abs() * y - x) * 0.5 + y


def softmax_of_operators(x):
    terms = (x - x.amax(-1, keepdim=True)).exp()
    return terms / terms.sum(-1, keepdim=True)


def large(cases):
    millions, n = (64, 4096) if cases.device == "cuda" else (16, 1024)
    random = lambda *sizes: torch.randn(sizes, device=cases.device)
    x, y = random(millions << 20), torch.rand(millions << 20, device=cases.device)
    for name, function in (("8 operators", chain), ("20 arithmetic operators", arithmetic),
                           ("20 operators, 8 transcendental", transcendental)):
        cases.add_function(f"{name}, {millions} M", function, (x, y), 3 * x.nbytes)
    x, weight, bias = random(16384, n), random(n), random(n)
    cases.add_function(f"mul and softmax, 16384 x {n}", lambda s: F.softmax(s * 0.125, -1), (x,), 2 * x.nbytes)
    cases.add_function(f"softmax of 5 operators, 16384 x {n}", softmax_of_operators, (x,), 2 * x.nbytes)
    cases.add_function(f"gelu and layer_norm, 16384 x {n}",
                       lambda rows: F.layer_norm(F.gelu(rows), (n,), weight, bias), (x,), 2 * x.nbytes)


def small(cases):
    x, y = torch.randn(64, device=cases.device), torch.rand(64, device=cases.device)
    cases.add_function("20 arithmetic operators, 64 elements", arithmetic, (x, y))
    ones = [torch.ones(1, device=cases.device) for _ in range(3)]
    cases.add_function("guard of 3 arguments: mul and add, 1 element", lambda p, q, r: p * q + r, ones)


def lengths(cases):
    case = "50 sequence lengths, 8 to 400 x 256"
    if not cases.eager.wants(case):
        return
    function = lambda x: F.softmax(F.gelu(x * 0.125 + 1) - x, -1)
    inputs = [torch.randn(8 * k, 256, device=cases.device) for k in range(1, 51)]

    def all_of(f):
        for x in inputs:
            last = f(x)
        return last

    compiled = compile_anew(function)
    cases.add(case, lambda: all_of(function), lambda: all_of(compiled))


class Training:
    """A step of a GPT over bytes with its optimizer and schedule: warm-up, then half a cosine. The learning rate of a
    compiled optimizer is a tensor, as PyTorch advises: a number would be compiled anew when it changes."""

    def __init__(self, preset, dtype, device, compiled):
        torch.manual_seed(0)
        self.model = GPT(PRESETS[preset]).to(device=device, dtype=dtype)
        rate = torch.tensor(1e-3, device=device) if compiled else 1e-3
        how = {} if compiled else {"fused": True}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate, weight_decay=0.1, **how)
        factor = lambda step: min((step + 1) / 10, (1 + math.cos(math.pi * step / 1e6)) / 2)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, factor)
        self.loss, self.update = self.model, self.optimizer.step
        if compiled:
            self.loss = compile_anew(self.model)
            self.update = torch.compile(lambda: self.optimizer.step())

    def step(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(x, y)
        loss.backward()
        self.update()
        self.schedule.step()
        return loss.detach()


def training(cases, preset, batch, dtype, dtype_name):
    config = PRESETS[preset]
    case = f"{preset} training step, batch {batch} x {config.context}, {dtype_name}"
    if not cases.eager.wants(case):
        return
    eager, compiled = (Training(preset, dtype, cases.device, how) for how in (False, True))
    window = torch.randint(0, config.vocab, (batch, config.context + 1), device=cases.device)
    x, y = window[:, :-1].contiguous(), window[:, 1:].contiguous()
    # The two have taken different numbers of steps when they are timed, so their losses are not compared here.
    cases.add(case, lambda: eager.step(x, y), lambda: compiled.step(x, y), tokens=x.numel(), check=False,
              dtype=dtype_name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json")
    parser.add_argument("--filter", default="")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch._inductor.config.force_disable_caches = True
    torch.manual_seed(0)
    cases = Cases(arguments.device, arguments.filter)
    with torch.no_grad():
        large(cases)
        small(cases)
        lengths(cases)
    training(cases, "nano", 16, torch.float32, "f32")
    if arguments.device == "cuda":
        training(cases, "gpt2", 8, torch.bfloat16, "bf16")
    facts = {"gpu": torch.cuda.get_device_name()} if arguments.device == "cuda" else {
        "cpu": platform.processor(), "threads": torch.get_num_threads()}
    write(arguments.json, facts, cases.rows())


if __name__ == "__main__":
    main()
