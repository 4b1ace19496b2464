#!/usr/bin/env python3
"""The cases of `lorry bench optim` and `lorry bench foreach` in PyTorch: the peers of the same names.

    python bench/peers/optim_torch.py [--device cpu|cuda] [--json FILE] [--suite optim|foreach]... [--models NAME...]
                                      [--compile NAME...] [--compile-limit SECONDS] [--filter TEXT] [--threads N]

Same schema as `lorry bench --json`. Times are wall clock over whole steps, several of them and one synchronisation a
sample; `extra_bytes` is what a step takes beyond what stands between two steps. Compiled steps run in processes of
their own, which end after the limit.
"""
import argparse

import torch

from harness import SMALL_MODELS, Report, elements, first_ms, load_shapes, write

EXECUTIONS = {"loop": {"foreach": False, "fused": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}

# Lorry's name of a rule: the class, its options, and the arrays that a step reads and writes, counted in parameters.
RULES = {
    "adamw": (torch.optim.AdamW, {}, 7),
    "adamw_amsgrad": (torch.optim.AdamW, {"amsgrad": True}, 9),
    "sgd": (torch.optim.SGD, {}, 3),
    "sgd_momentum": (torch.optim.SGD, {"momentum": 0.9}, 5),
    "adamax": (torch.optim.Adamax, {}, 7),
    "nadam": (torch.optim.NAdam, {}, 7),
    "radam": (torch.optim.RAdam, {}, 7),
    "adagrad": (torch.optim.Adagrad, {}, 5),
    "adadelta": (torch.optim.Adadelta, {}, 7),
    "rmsprop": (torch.optim.RMSprop, {}, 5),
    "rmsprop_momentum": (torch.optim.RMSprop, {"momentum": 0.9}, 7),
    "rmsprop_centered": (torch.optim.RMSprop, {"centered": True}, 7),
    "rmsprop_centered_momentum": (torch.optim.RMSprop, {"centered": True, "momentum": 0.9}, 9),
    "rprop": (torch.optim.Rprop, {}, 7),
    "asgd": (torch.optim.ASGD, {}, 5),
}
EVERYWHERE = ("adamw", "sgd_momentum")  # other rules over RULES_MODEL alone
RULES_MODEL = {"cuda": "gpt2", "cpu": "resnet50"}
CLIP = 1.0
EFFORT = {"warmup_s": 0.05, "total_s": 0.25}  # a report has some 250 cases; that of lorry/bench/model_cases.h


class Place:
    """A device, and what has to be asked of it."""

    def __init__(self, name):
        self.name = name
        self.cuda = name.startswith("cuda")
        self.label = "cuda:0" if name == "cuda" else name
        self.wait = torch.cuda.synchronize if self.cuda else lambda: None
        self.machine = {"gpu": torch.cuda.get_device_name()} if self.cuda else {"threads": torch.get_num_threads()}

    def tensors(self, shapes, value, dtype=torch.float32):
        return [torch.full(shape, value, device=self.name, dtype=dtype) for shape in shapes]

    def extra(self, call):
        """{"extra_bytes": ...} of a call that has been warmed up."""
        if not self.cuda:
            return {}
        self.wait()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        self.wait()
        return {"extra_bytes": torch.cuda.max_memory_allocated() - before}

    def clear(self):
        if self.cuda:
            torch.cuda.empty_cache()


def parameters(place, shapes):
    params = place.tensors(shapes, 0.5)
    for p in params:
        p.requires_grad_()
        p.grad = torch.full_like(p, 0.01)
    return params


def optimizer(rule, params, how):
    """One that has made its first step; None where PyTorch has no such execution of the rule, or none on this
    device."""
    make, options, _ = RULES[rule]
    try:
        stepper = make(params, lr=1e-6, **options, **how)
        stepper.step()
        return stepper
    except (TypeError, RuntimeError):
        return None


def optim_cases(report, place, model, shapes, compiled, arguments):
    params = parameters(place, shapes)
    count = elements(shapes)
    rules = RULES if model == RULES_MODEL[place.name.split(":")[0]] else EVERYWHERE
    for rule in rules:
        for execution, how in EXECUTIONS.items():
            case = f"{model} {rule} {execution}"
            if not report.wants(case) and not (execution == "fused" and report.wants(f"{case}, clip")):
                continue
            stepper = optimizer(rule, params, how)
            if stepper is None:
                continue
            report.add(case, stepper.step, 4 * count * RULES[rule][2], effort=EFFORT, **place.extra(stepper.step))
            if rule == "adamw" and execution == "fused":

                def clip_and_step():
                    torch.nn.utils.clip_grad_norm_(params, CLIP)
                    stepper.step()

                report.add(f"{case}, clip", clip_and_step, effort=EFFORT, **place.extra(clip_and_step))
            stepper = None  # its state goes before the next is made
            place.clear()
    report.add(f"{model} clip_grad_norm_", lambda: torch.nn.utils.clip_grad_norm_(params, CLIP), effort=EFFORT)
    if model in compiled:
        again = ["--device", place.name, "--only-compiled", model, "--threads", arguments.threads]
        report.add_limited(f"{model} adamw compiled", __file__, again, arguments.compile_limit)


def compiled_case(report, place, model, shapes):
    """AdamW as the compiler makes it: one call of it and its first call, which compiles."""
    params = parameters(place, shapes)
    # counts steps on the device, as a compiled step must
    stepper = torch.optim.AdamW(params, lr=1e-6, foreach=True, capturable=place.cuda)
    step = torch.compile(stepper.step)
    first = first_ms(step, place.wait)
    step()
    report.add(f"{model} adamw compiled", step, 4 * elements(shapes) * 7, effort=EFFORT, first_ms=first,
               **place.extra(step))


def foreach_cases(report, place, model, shapes, *_):
    """Operators over lists, in place, and the same tensor by tensor ("loop")."""
    count = elements(shapes)
    xs, ys, zs = (place.tensors(shapes, 1.0) for _ in range(3))
    halves = place.tensors(shapes, 1.0, torch.bfloat16)
    for name, size, together, one in (
        ("add", 12, lambda: torch._foreach_add_(xs, ys), lambda x, y, z, h: x.add_(y)),
        ("mul", 8, lambda: torch._foreach_mul_(xs, 1.0), lambda x, y, z, h: x.mul_(1.0)),
        ("addcmul", 16, lambda: torch._foreach_addcmul_(xs, ys, zs, value=0.1),
         lambda x, y, z, h: x.addcmul_(y, z, value=0.1)),
        ("lerp", 12, lambda: torch._foreach_lerp_(xs, ys, 0.1), lambda x, y, z, h: x.lerp_(y, 0.1)),
        ("sqrt", 8, lambda: torch._foreach_sqrt_(xs), lambda x, y, z, h: x.sqrt_()),
        ("norm", 4, lambda: torch._foreach_norm(xs), lambda x, y, z, h: torch.linalg.vector_norm(x)),
        ("copy", 8, lambda: torch._foreach_copy_(xs, ys), lambda x, y, z, h: x.copy_(y)),
        ("cast f32 to bf16", 6, lambda: torch._foreach_copy_(halves, xs), lambda x, y, z, h: h.copy_(x)),
        ("zero", 4, lambda: torch._foreach_zero_(xs), lambda x, y, z, h: x.zero_()),
    ):

        def loop():
            for tensors in zip(xs, ys, zs, halves):
                one(*tensors)

        report.add(f"{model} {name}", together, size * count, effort=EFFORT)
        report.add(f"{model} {name} loop", loop, size * count, effort=EFFORT)


SUITES = {"optim": optim_cases, "foreach": foreach_cases}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json")
    parser.add_argument("--suite", action="append", choices=SUITES)
    parser.add_argument("--models", nargs="+", help="all on a GPU, small ones on a CPU by default")
    parser.add_argument("--compile", nargs="*", default=[],
                        help="models whose step is compiled too, which takes minutes")
    parser.add_argument("--compile-limit", type=float, default=150)
    parser.add_argument("--filter", default="", help="only cases whose name contains this")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only-compiled", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    place, shapes = Place(arguments.device), load_shapes()
    rows = []
    new_report = lambda suite: Report(suite, f"PyTorch {torch.__version__}", place.label, arguments.filter, place.wait)
    if arguments.only_compiled:
        report = new_report("optim")
        compiled_case(report, place, arguments.only_compiled, shapes[arguments.only_compiled])
        rows = report.rows
    else:
        for suite in arguments.suite or SUITES:
            report = new_report(suite)
            for model in arguments.models or (shapes if place.cuda else SMALL_MODELS):
                with torch.no_grad():
                    SUITES[suite](report, place, model, shapes[model], arguments.compile, arguments)
                place.clear()
            rows += report.rows
    write(arguments.json, place.machine, rows)


if __name__ == "__main__":
    main()
