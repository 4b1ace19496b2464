#!/usr/bin/env python3
"""Writes tests/data/optim_values.json: where PyTorch's optimizers arrive after 100 steps, for every option of SGD, Adam and AdamW.

    tests/peers/make_optim_values.py        (needs torch; the file is kept in the tree, so that the tests do not)

Parameters and gradients come from a generator of 24-bit numbers that tests/optim/values_test.cpp repeats exactly, in f32 and f64 alike.
"""
import json
from pathlib import Path

import torch

COUNT, STEPS = 12, 100
CASES = {
    "sgd": ("SGD", {"lr": 0.01}),
    "sgd-weight-decay": ("SGD", {"lr": 0.01, "weight_decay": 0.1}),
    "sgd-momentum": ("SGD", {"lr": 0.01, "momentum": 0.9}),
    "sgd-dampening": ("SGD", {"lr": 0.01, "momentum": 0.9, "dampening": 0.5}),
    "sgd-nesterov": ("SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "sgd-maximize": ("SGD", {"lr": 0.001, "momentum": 0.5, "maximize": True, "weight_decay": 0.01}),
    "adam": ("Adam", {"lr": 0.01}),
    "adam-weight-decay": ("Adam", {"lr": 0.01, "weight_decay": 0.1}),
    "adam-betas-eps": ("Adam", {"lr": 0.01, "betas": (0.8, 0.95), "eps": 0.001}),
    "adam-amsgrad": ("Adam", {"lr": 0.01, "amsgrad": True}),
    "adam-maximize": ("Adam", {"lr": 0.01, "maximize": True, "weight_decay": 0.01}),
    "adamw": ("AdamW", {"lr": 0.01}),
    "adamw-weight-decay": ("AdamW", {"lr": 0.01, "weight_decay": 0.25}),
    "adamw-no-decay": ("AdamW", {"lr": 0.01, "weight_decay": 0.0}),
    "adamw-amsgrad": ("AdamW", {"lr": 0.01, "amsgrad": True, "betas": (0.9, 0.9)}),
    "adamw-maximize": ("AdamW", {"lr": 0.01, "maximize": True}),
    "adamw-lr-changes": ("AdamW", {"lr": 0.01, "weight_decay": 0.1}),
}


class Numbers:
    """Multiples of 2^-24 in [-0.5, 0.5): exact in f32 and f64."""

    def __init__(self):
        self.state = 1

    def next(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 40) / 2**24 - 0.5


def run(name, optimizer, options, dtype):
    numbers = Numbers()
    param = torch.tensor([numbers.next() for _ in range(COUNT)], dtype=dtype, requires_grad=True)
    optim = getattr(torch.optim, optimizer)([param], foreach=False, fused=False, **options)
    for step in range(STEPS):
        if name.endswith("lr-changes"):
            optim.param_groups[0]["lr"] = options["lr"] / (1 + step % 4)
        param.grad = torch.tensor([numbers.next() * 2.0 ** (i - 6) for i in range(COUNT)], dtype=dtype)
        optim.step()
    return [float(x) for x in param.detach()]


def main():
    cases = []
    for name, (optimizer, options) in CASES.items():
        case = {"name": name, "optimizer": optimizer, "options": options}
        for key, dtype in (("f32", torch.float32), ("f64", torch.float64)):
            case[key] = run(name, optimizer, options, dtype)
        cases.append(case)
    path = Path(__file__).resolve().parent.parent / "data" / "optim_values.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"torch": torch.__version__, "steps": STEPS, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
