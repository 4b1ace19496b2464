#!/usr/bin/env python3
"""Writes tests/data/rule_values.json: where PyTorch's optimizers are in f64 after 1, 2, 10 and 100 steps, with their
states at the end.

    tests/peers/make_rule_values.py        (needs torch; the file is kept in the tree, so that the tests do not)

Parameters and gradients come from a generator that tests/support/rule_values.h repeats exactly, in f32 and f64 alike;
gradients span twelve orders of magnitude. Beside them stand gradients that are 0, infinite or no number.
"""
import json
import math
from pathlib import Path

import torch

COUNT, SNAPSHOTS = 11, (1, 2, 10, 100)
DECAY, UP = {"weight_decay": 0.03}, {"maximize": True}
DECOUPLED = DECAY | {"decoupled_weight_decay": True}
BETAS = {"betas": (0.8, 0.95), "eps": 1e-3}
CHANGES = {"lr_changes": True}  # of the test, not of the optimizer

# PyTorch's class, the rule's name, options.
CASES = [
    ("SGD", "sgd", {}), ("SGD", "sgd", DECAY | UP | CHANGES),
    ("SGD", "sgd_momentum", {"momentum": 0.9}),
    ("SGD", "sgd_momentum", {"momentum": 0.9, "dampening": 0.4} | DECAY | CHANGES),
    ("SGD", "sgd_momentum", {"momentum": 0.8, "nesterov": True} | DECAY | UP),
    ("Adam", "adamw", {}), ("Adam", "adamw", DECAY | BETAS | CHANGES),
    ("Adam", "adamw_amsgrad", {"amsgrad": True} | DECAY | UP),
    ("AdamW", "adamw", DECAY | CHANGES), ("AdamW", "adamw", DECAY | UP | BETAS),
    ("AdamW", "adamw_amsgrad", {"amsgrad": True, "betas": (0.9, 0.9)} | DECAY),
    ("Adamax", "adamax", {}), ("Adamax", "adamax", DECAY | BETAS | CHANGES), ("Adamax", "adamax", DECAY | UP),
    ("NAdam", "nadam", {}), ("NAdam", "nadam", DECAY | BETAS | CHANGES), ("NAdam", "nadam", DECOUPLED | UP),
    ("NAdam", "nadam", {"momentum_decay": 0.3}), ("NAdam", "nadam", {"momentum_decay": 0.0} | DECOUPLED | CHANGES),
    ("RAdam", "radam", {}), ("RAdam", "radam", DECAY | BETAS | CHANGES), ("RAdam", "radam", DECOUPLED | UP),
    ("RAdam", "radam", {"betas": (0.6, 0.6)} | DECOUPLED),
    ("Adagrad", "adagrad", {}),
    ("Adagrad", "adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.5} | DECAY | CHANGES),
    ("Adagrad", "adagrad", {"eps": 1e-3, "lr": 0.3} | DECAY | UP),
    ("Adadelta", "adadelta", {}), ("Adadelta", "adadelta", {"rho": 0.7, "eps": 1e-3, "lr": 0.5} | DECAY | CHANGES),
    ("Adadelta", "adadelta", DECAY | UP),
    ("RMSprop", "rmsprop", {}), ("RMSprop", "rmsprop", {"alpha": 0.9, "eps": 1e-3} | DECAY | CHANGES),
    ("RMSprop", "rmsprop", DECAY | UP),
    ("RMSprop", "rmsprop_momentum", {"momentum": 0.9}),
    ("RMSprop", "rmsprop_momentum", {"momentum": 0.5} | DECAY | UP | CHANGES),
    ("RMSprop", "rmsprop_centered", {"centered": True}),
    ("RMSprop", "rmsprop_centered", {"centered": True, "alpha": 0.9} | DECAY | UP | CHANGES),
    ("RMSprop", "rmsprop_centered_momentum", {"centered": True, "momentum": 0.9}),
    ("RMSprop", "rmsprop_centered_momentum", {"centered": True, "momentum": 0.5, "eps": 1e-3} | DECAY | UP | CHANGES),
    # The ends of domains, and flags that meet nowhere above.
    ("SGD", "sgd_momentum", {"momentum": 0.9, "nesterov": True} | CHANGES),
    ("SGD", "sgd_momentum", {"momentum": 0.9, "dampening": 1.0} | UP),
    ("Adam", "adamw", {"betas": (0.4, 0.0), "eps": 0.0, "lr": 0.1}),
    ("Adam", "adamw_amsgrad", {"amsgrad": True} | BETAS | CHANGES),
    ("AdamW", "adamw", {}), ("AdamW", "adamw_amsgrad", {"amsgrad": True} | UP | CHANGES),
    ("Adamax", "adamax", {"betas": (0.4, 0.0)} | UP), ("NAdam", "nadam", {"betas": (0.0, 0.5)} | DECAY | UP),
    ("RAdam", "radam", {"betas": (0.9, 0.0)} | DECAY | UP),
    ("Adagrad", "adagrad", {"initial_accumulator_value": 0.1, "eps": 0.0} | UP | CHANGES),
    ("Adagrad", "adagrad", {"lr_decay": 2.0}),
    ("Adadelta", "adadelta", {"rho": 0.0} | UP | CHANGES), ("Adadelta", "adadelta", {"rho": 1.0}),
    ("RMSprop", "rmsprop", {"alpha": 0.0} | UP | CHANGES),
    ("RMSprop", "rmsprop_momentum", {"momentum": 0.9, "alpha": 1.0, "eps": 0.01}),
    ("ASGD", "asgd", {"lambd": 0.0, "t0": 5} | DECAY | UP),
    ("Rprop", "rprop", {}), ("Rprop", "rprop", UP | CHANGES),
    ("Rprop", "rprop", {"etas": (0.3, 1.5), "step_sizes": (1e-3, 0.1)}),
    ("ASGD", "asgd", {}), ("ASGD", "asgd", {"t0": 20} | DECAY | CHANGES),
    ("ASGD", "asgd", {"lambd": 0.05, "alpha": 0.5, "t0": 0, "lr": 0.1} | UP | CHANGES),
]
SGD_LIKE = ("SGD", "ASGD")  # whose steps are as large as gradients: theirs are made smaller


class Numbers:
    """Multiples of 2^-24 in [-0.5, 0.5): exact in f32 and f64."""

    def __init__(self):
        self.state = 1

    def next(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 40) / 2**24 - 0.5


def gradient(numbers, small):
    """Element i is of the order 4^(i - 5), or 2^(i - 5), and changes that by up to 2^3 from step to step."""
    return [numbers.next() * 2.0 ** ((i - 5) * (1 if small
                                                else 2)) * 2.0 ** math.floor(numbers.next() * 8) for i in range(COUNT)]


def make(kind, options, param):
    return getattr(torch.optim, kind)([param], foreach=False, **{k: v for k, v in options.items() if k != "lr_changes"})


def run(kind, options):
    numbers, snapshots = Numbers(), []
    param = torch.tensor([4 * numbers.next() for _ in range(COUNT)], requires_grad=True)
    optim = make(kind, options, param)
    group = optim.param_groups[0]
    lr = group["lr"]
    for step in range(SNAPSHOTS[-1]):
        if options.get("lr_changes"):
            group["lr"] = lr / (1 + step % 4)
        param.grad = torch.tensor(gradient(numbers, kind in SGD_LIKE))
        optim.step()
        if step + 1 in SNAPSHOTS:
            snapshots.append(param.detach().tolist())
    states = {k: v.tolist() for k, v in optim.state[param].items() if torch.is_tensor(v) and v.ndim == 1}
    return snapshots, states


# gradients of one element each
SPECIAL = [[1, math.nan, 1], [1, 1, math.inf], [1, 1, -math.inf], [0, 0, 0], [0, 1, 0], [math.nan, 0, 0]]


def text(x):
    return x if math.isfinite(x) else str(x)


def special(kind, options):
    param = torch.ones(len(SPECIAL), requires_grad=True)
    optim, table = make(kind, options, param), []
    for step in range(3):
        param.grad = torch.tensor([float(element[step]) for element in SPECIAL])
        optim.step()
        table.append([text(x) for x in param.detach().tolist()])
    return table


def main():
    torch.set_default_dtype(torch.float64)  # of the numbers that optimizers keep, too
    cases = []
    for kind, rule, options in CASES:
        snapshots, states = run(kind, options)
        cases.append({"optimizer": kind, "rule": rule, "options": options, "snapshots": snapshots, "states": states,
                      "special": special(kind, options)})
    data = {"torch": torch.__version__, "steps": SNAPSHOTS,
            "special": [[text(x) for x in element] for element in SPECIAL], "cases": cases}
    path = Path(__file__).resolve().parent.parent / "data" / "rule_values.json"
    path.write_text(json.dumps(data).replace('{"optimizer"', '\n{"optimizer"') + "\n")


if __name__ == "__main__":
    main()
