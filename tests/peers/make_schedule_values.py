#!/usr/bin/env python3
"""Writes tests/data/schedule_values.json: the rates that PyTorch's schedulers give to two groups, step by step.

    tests/peers/make_schedule_values.py        (needs torch; the file is kept in the tree, so that the tests do not)

Each case names the fields of a Schedule, or of PlateauOptions with the metrics that it is given.
"""
import json
import math
from pathlib import Path

import torch
from torch.optim import lr_scheduler as peer

BASES, STEPS, METRICS = [0.1, 0.003], 45, 80


def warm(after):
    """A warm-up over 5 steps to the full rate, then `after`."""
    return lambda o: peer.SequentialLR(o, [peer.LinearLR(o, start_factor=1 / 5, total_iters=4), after(o)],
                                       milestones=[5])


def one_cycle(**options):
    return lambda o: peer.OneCycleLR(o, max_lr=BASES, total_steps=40, cycle_momentum=False, **options)


SCHEDULES = [
    ({"kind": "constant"}, lambda o: peer.ConstantLR(o, factor=1.0)),
    ({"kind": "linear", "steps": 30}, lambda o: peer.LinearLR(o, start_factor=1.0, end_factor=0.0, total_iters=30)),
    ({"kind": "cosine", "steps": 45, "min_lr": 0.001}, lambda o: peer.CosineAnnealingLR(o, T_max=45, eta_min=0.001)),
    ({"kind": "cosine_restarts", "t_0": 7, "min_lr": 0.001},
     lambda o: peer.CosineAnnealingWarmRestarts(o, T_0=7, eta_min=0.001)),
    ({"kind": "cosine_restarts", "t_0": 4, "t_mult": 3},
     lambda o: peer.CosineAnnealingWarmRestarts(o, T_0=4, T_mult=3)),
    ({"kind": "one_cycle", "steps": 40}, one_cycle()),
    ({"kind": "one_cycle", "steps": 40, "anneal": "linear", "div_factor": 10.0, "final_div_factor": 100.0,
      "pct_start": 0.37},
     one_cycle(anneal_strategy="linear", div_factor=10.0, final_div_factor=100.0, pct_start=0.37)),
    ({"kind": "one_cycle", "steps": 40, "three_phase": True}, one_cycle(three_phase=True)),
    ({"kind": "one_cycle", "steps": 40, "three_phase": True, "anneal": "linear", "pct_start": 0.21},
     one_cycle(three_phase=True, anneal_strategy="linear", pct_start=0.21)),
    ({"kind": "one_cycle", "steps": 40, "pct_start": 0.0}, one_cycle(pct_start=0.0)),
    ({"kind": "step", "step_size": 6, "gamma": 0.5}, lambda o: peer.StepLR(o, step_size=6, gamma=0.5)),
    ({"kind": "multi_step", "milestones": [3, 11, 11, 30]}, lambda o: peer.MultiStepLR(o, milestones=[3, 11, 11, 30])),
    ({"kind": "exponential", "gamma": 0.9}, lambda o: peer.ExponentialLR(o, gamma=0.9)),
    ({"kind": "polynomial", "steps": 40}, lambda o: peer.PolynomialLR(o, total_iters=40)),
    ({"kind": "polynomial", "steps": 40, "power": 2.5}, lambda o: peer.PolynomialLR(o, total_iters=40, power=2.5)),
    ({"kind": "constant", "warmup": 5}, warm(lambda o: peer.ConstantLR(o, factor=1.0))),
    ({"kind": "cosine", "warmup": 5, "steps": 45}, warm(lambda o: peer.CosineAnnealingLR(o, T_max=40))),
    ({"kind": "step", "warmup": 5, "step_size": 6, "gamma": 0.5},
     warm(lambda o: peer.StepLR(o, step_size=6, gamma=0.5))),
    ({"kind": "exponential", "warmup": 5, "gamma": 0.9}, warm(lambda o: peer.ExponentialLR(o, gamma=0.9))),
]

PLATEAUS = [
    {},
    {"patience": 2, "factor": 0.5},
    {"patience": 2, "factor": 0.5, "threshold": 0.05},
    {"patience": 2, "factor": 0.5, "threshold": 0.05, "threshold_mode": "abs"},
    {"patience": 1, "factor": 0.3, "cooldown": 4, "min_lr": 1e-4},
    {"patience": 1, "factor": 0.5, "eps": 0.002},
    {"patience": 3, "factor": 0.5, "mode": "max"},
    {"patience": 3, "factor": 0.5, "mode": "max", "threshold": 0.02, "threshold_mode": "abs", "cooldown": 1},
]


def optimizer():
    return torch.optim.SGD([{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in BASES])


def rates(o):
    return [float(group["lr"]) for group in o.param_groups]


def metrics(mode):
    """A loss that falls ever less, with waves that die away, and an accuracy that does the contrary."""
    fall = [round(math.exp(-i / 8) + 0.3 + 0.05 * math.exp(-i / 40) * math.sin(1.7 * i), 4) for i in range(METRICS)]
    return fall if mode == "min" else [round(2 - x, 4) for x in fall]


def main():
    schedules, plateaus = [], []
    for fields, make in SCHEDULES:
        o = optimizer()
        scheduler, table = make(o), []
        for _ in range(min(fields.get("steps", STEPS), STEPS)):
            table.append(rates(o))
            o.step()
            if len(table) < fields.get("steps", STEPS):
                scheduler.step()
        schedules.append({"fields": fields, "rates": table})
    for options in PLATEAUS:
        o = optimizer()
        scheduler, table, given = peer.ReduceLROnPlateau(o, **options), [], metrics(options.get("mode", "min"))
        for metric in given:
            scheduler.step(metric)
            table.append(rates(o))
        plateaus.append({"options": options, "metrics": given, "rates": table})
    path = Path(__file__).resolve().parent.parent / "data" / "schedule_values.json"
    path.write_text(json.dumps({"torch": torch.__version__, "bases": BASES, "schedules": schedules,
                                "plateaus": plateaus}) + "\n")


if __name__ == "__main__":
    main()
