#!/usr/bin/env python3
"""The tables and the picture of optimizer steps, from a report of bench/measure_gpu: for README.md, docs/optimizers.md,
and the terminal.

A report's rows are named "MODEL RULE EXECUTION[ STRATEGY][, WHAT ELSE]" in the suite `optim` and
"MODEL OPERATOR[ loop]" in `foreach`.

    tools/optim_tables.py bench/results/NAME_optim.json       # prints them
"""
import json
import math
import sys
from pathlib import Path
from xml.sax.saxutils import escape

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench" / "data"))
from make_param_shapes import elements, load  # noqa: E402

STRATEGIES = ("per_tensor", "kernel_args_4k", "kernel_args_32k", "device_table")
OPERATORS = ("add", "mul", "addcmul", "lerp", "sqrt", "norm", "copy", "cast f32 to bf16", "zero")
LORRY, PYTORCH = "lorry", "PyTorch"


def us(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.0f}" if value >= 10 else f"{value:.1f}"


class Steps:
    """Looks rows up by suite, implementation and case; what was not measured is None."""

    def __init__(self, report):
        self.machine = report["machine"]
        self.rows = {(row["suite"], row["implementation"].split()[0], row["case"]): row for row in report["results"]}
        self.pytorch = next((name for row in report["results"] if (name := row["implementation"]).startswith(PYTORCH)),
                            PYTORCH)
        self.shapes = load()
        self.models = [model for model in self.shapes if self.of(f"{model} adamw fused")]

        # of which there are all rules, as in lorry/bench/optim.cpp
        self.wide = "gpt2" if "gpt2" in self.models else "resnet50"

    def of(self, case, implementation=LORRY, suite="optim"):
        return self.rows.get((suite, implementation, case))

    def us(self, case, implementation=LORRY, suite="optim"):
        row = self.of(case, implementation, suite)
        return row and row["median_us"]

    def jit(self, model):
        """A model's step by optax, or by the same written in jax."""
        return next((row for (_, who, case), row in self.rows.items()
                     if who in ("optax", "jax") and case.startswith(f"{model} adamw jit")), None)

    def bytes_us(self, model):
        """What the bytes of an AdamW step take at the rate of a copy."""
        row = self.of(f"{model} adamw fused")
        return row["median_us"] * row["ratio_to_ceiling"]

    def source(self):
        """What the tables were measured on."""
        peer = f", {self.pytorch.split('+')[0]}" if self.pytorch != PYTORCH else ""
        return f"On one {self.device()}{peer} (`h200_optim.json`)."

    def device(self):
        gpus = self.machine.get("gpus")
        return next(iter(gpus.values())).split(" (")[0] if isinstance(gpus, dict) else self.machine.get("cpu", "a CPU")


def times(theirs, ours):
    return f"{theirs / ours:.1f} x" if theirs and ours else ""


def row_of(*cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def head_of(*titles):
    """The head of a table whose first column is text and whose others are numbers."""
    return [row_of(*titles), "|---|" + "--:|" * (len(titles) - 1)]


def picture_table(steps):
    """Whole AdamW steps by model: the one table that a visitor should remember."""
    lines = head_of("AdamW, microseconds a step", "tensors", "elements", f"{steps.pytorch.split('+')[0]} loop",
                    "foreach", "fused", "**Lorry**", "its bytes by a memory copy", "fused / Lorry")
    for model in steps.models:
        theirs = [steps.us(f"{model} adamw {execution}", PYTORCH) for execution in ("loop", "foreach", "fused")]
        ours = steps.us(f"{model} adamw fused")
        shapes = steps.shapes[model]
        lines.append(row_of(model, f"{len(shapes):,}", f"{elements(shapes) / 1e6:,.1f} M", *map(us, theirs),
                            f"**{us(ours)}**", us(steps.bytes_us(model)), times(theirs[-1], ours)))
    return lines


def execution_table(steps):
    """Every execution of Lorry and its peers."""
    lines = head_of("AdamW, microseconds", "Lorry loop", "foreach", "fused", "host alone", "launches",
                    "PyTorch compiled (first call)", "optax under jit (first call)")
    for model in steps.models:
        fused = steps.of(f"{model} adamw fused")
        compiled = steps.of(f"{model} adamw compiled", PYTORCH)
        with_first = lambda row: f"{us(row['median_us'])} ({row['first_ms'] / 1e3:.0f} s)" if row else "-"
        lines.append(row_of(model, us(steps.us(f"{model} adamw loop")), us(steps.us(f"{model} adamw foreach")),
                            us(fused["median_us"]), us(fused.get("submit_us")), fused.get("launches", "-"),
                            with_first(compiled), with_first(steps.jit(model))))
    return lines


def strategy_table(steps):
    """Microseconds and launches of a fused AdamW step by how its list is passed."""
    lines = head_of("microseconds (launches)", *(f"`{s}`" for s in STRATEGIES), "`automatic`")
    for model in steps.models:
        cases = [*(f"{model} adamw fused {strategy}" for strategy in STRATEGIES), f"{model} adamw fused"]
        rows = [steps.of(case) for case in cases]
        if any(rows[:-1]):
            lines.append(row_of(model, *(f"{us(row['median_us'])} ({row.get('launches', '-')})" if row else "-"
                                         for row in rows)))
    return lines


def rule_table(steps):
    """Every rule over one model."""
    model = steps.wide
    lines = head_of(f"over {model}, microseconds", "Lorry loop", "foreach", "fused", "compared with a memory copy",
                    "PyTorch foreach", "PyTorch fused")
    for suite, who, case in steps.rows:
        name, _, rest = case.partition(" ")
        if suite != "optim" or who != LORRY or name != model or not rest.endswith(" fused") or rest.startswith("own_"):
            continue
        rule, fused = rest.removesuffix(" fused"), steps.of(case)
        lines.append(row_of(f"`{rule}`", us(steps.us(f"{model} {rule} loop")), us(steps.us(f"{model} {rule} foreach")),
                            us(fused["median_us"]), f"{100 * fused['ratio_to_ceiling']:.0f} %",
                            us(steps.us(f"{model} {rule} foreach", PYTORCH)),
                            us(steps.us(f"{model} {rule} fused", PYTORCH))))
    return lines


def around_table(steps):
    """What else a step does or meets, on one model; a moved gradient on the most tensors."""
    model = steps.wide
    many = max(steps.models, key=lambda name: len(steps.shapes[name]))
    own = [("momentum, built in", f"{model} sgd_momentum fused"),
           ("the same as a rule of one's own", f"{model} own_momentum fused")]
    if not steps.of(own[1][1]):
        own = []
    said = [("AdamW", f"{model} adamw fused"),
            ("the same after unscaling, the norm of all gradients, clipping, skipping what is not finite",
             f"{model} adamw fused, clip"),
            ("bf16 parameters with f32 masters", f"{model} adamw fused, bf16 with masters"),
            ("with split masters", f"{model} adamw fused, bf16 with split masters"),
            *own,
            (f"AdamW over {many}", f"{many} adamw fused"),
            ("after one of its gradients moved", f"{many} adamw fused, one gradient elsewhere"),
            ("after all of them moved", f"{many} adamw fused, every gradient elsewhere")]
    lines = ["| | Lorry, us | host alone, us | launches | PyTorch, us |", "|---|--:|--:|--:|--:|"]
    for title, case in said:
        row = steps.of(case)
        if row:
            lines.append(row_of(title, us(row["median_us"]), us(row.get("submit_us")), row.get("launches", "-"),
                                us(steps.us(case, PYTORCH))))
    return lines


def memory_table(steps):
    """What an AdamW step takes beyond what stands, by model and execution."""
    executions = ("loop", "foreach", "fused")
    lines = ["| MB while AdamW steps | Lorry loop | foreach | fused | PyTorch loop | foreach | fused |",
             "|---|--:|--:|--:|--:|--:|--:|"]
    for model in steps.models:
        rows = [steps.of(f"{model} adamw {execution}", who) for who in (LORRY, PYTORCH) for execution in executions]
        if any(row and "extra_bytes" in row for row in rows):
            cells = [f"{row['extra_bytes'] / 1e6:,.0f}" if row and "extra_bytes" in row else "-" for row in rows]
            lines.append(f"| {model} | " + " | ".join(cells) + " |")
    return lines if len(lines) > 2 else []


def kept_table(steps):
    """AdamW by what it keeps: time, bytes of states and masters, and the loss of a model trained with them."""
    said = [("f32 states", "adamw fused", "f32"), ("bf16 states", "adamw fused, bf16 states", "bf16"),
            ("8-bit states", "adamw fused, q8 states", "q8"),
            ("bf16 parameters, rounded stochastically", "adamw fused, bf16, rounded stochastically", None),
            ("the same, bf16 states", "adamw fused, bf16, bf16 states, rounded stochastically", None),
            ("the same, 8-bit states", "adamw fused, bf16, q8 states, rounded stochastically", None)]
    models = [model for model in (steps.wide, "llama-1b") if steps.of(f"{model} adamw fused, q8 states")]
    if not models:
        return []
    losses = {states: steps.of(f"fortunes GPT, {states} states", suite="train") for _, _, states in said if states}
    head = [f"{model}: us | compared with a memory copy | states, MB" for model in models]
    head += ["loss on the fortunes"] * any(losses.values())
    lines = ["| AdamW, fused | " + " | ".join(head) + " |", "|---|" + "--:|" * (3 * len(models) + any(losses.values()))]
    for title, way, states in said:
        rows = [steps.of(f"{model} {way}") for model in models]
        if not any(rows):
            continue
        cells = []
        for model, row in zip(models, rows):
            kept = row and row.get("state_bytes", 8 * elements(steps.shapes[model]) if states == "f32" else None)
            cells += [us(row["median_us"]), f"{100 * row['ratio_to_ceiling']:.0f} %",
                      f"{kept / 1e6:,.0f}" if kept else "-"] if row else ["-"] * 3
        if any(losses.values()):
            cells.append(f"{losses[states]['validation_loss']:.4f}" if states and losses[states] else "-")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return lines


def placement_table(steps):
    """AdamW with states elsewhere than on the device, beside the rate of the link to it."""
    model = steps.wide
    link = steps.of("link, both ways")
    lines = ["| AdamW over the link, fused | us | GB/s over it | of what copies both ways reach |", "|---|--:|--:|--:|"]
    for title, way, size in (("f32 states in pinned memory", ", in pinned memory", 16),
                             ("8-bit states in pinned memory", ", q8 states, in pinned memory", 4),
                             ("f32 states in managed memory", ", in managed memory", 0),
                             ("8-bit states in managed memory", ", q8 states, in managed memory", 0)):
        if row := steps.of(f"{model} adamw fused{way}"):
            # states alone cross it, there and back; managed ones lie on the device
            rate = size * elements(steps.shapes[model]) / row["median_us"] / 1e3
            share = f"{100 * rate / link['gb_per_s']:.0f} %" if link and size else "-"
            lines.append(f"| {model}, {title} | {us(row['median_us'])} | {f'{rate:.1f}' if size else '-'} | {share} |")
    if len(lines) > 2 and link:
        one_way = [steps.of(f"link, {way} the device") for way in ("to", "from")]
        rates = [f"{row['gb_per_s']:.1f}" if row else "-" for row in one_way]
        lines.append(f"| copies to, from the device, both at once | - | {', '.join(rates)}, {link['gb_per_s']:.1f} | |")
    return lines


def foreach_table(steps):
    """Operators over lists, beside the same tensor by tensor."""
    models = [model for model in (steps.wide, "tiny-4096x1024") if steps.of(f"{model} add", suite="foreach")]
    lines = ["| microseconds | " + " | ".join(f"{model}: Lorry | one by one | PyTorch | one by one" for model in models)
             + " |",
             "|---|" + "--:|" * (4 * len(models))]
    for operator in OPERATORS:
        cells = [us(steps.us(f"{model} {operator}{loop}", who,
                             "foreach")) for model in models for who in (LORRY, PYTORCH) for loop in ("", " loop")]
        if any(cell != "-" for cell in cells):
            lines.append(f"| `{operator}` | " + " | ".join(cells) + " |")
    return lines


TABLES = {"steps": picture_table, "steps-by-execution": execution_table, "strategies": strategy_table,
          "rules": rule_table, "around": around_table,
          "memory": memory_table, "kept": kept_table, "placement": placement_table, "foreach": foreach_table}


def lines_of(make, steps):
    """A table, or nothing where it has no rows."""
    lines = make(steps)
    return lines if len(lines) > 2 else []


# ---- the picture -----------------------------------------------------------------------------------------------------

BARS = (("PyTorch loop", "#d5dbe3"), ("PyTorch foreach", "#a9b8c9"), ("PyTorch fused", "#6f87a3"), ("Lorry", "#c0392b"))
LEFT, WIDTH, BAR, GAP, TOP = 150, 620, 11, 16, 64


def picture(steps):
    """An SVG: bars on a logarithmic axis for each model, and a mark where a memory copy of its bytes would be."""
    values = {model: [steps.us(f"{model} adamw {e}", PYTORCH) for e in ("loop", "foreach", "fused")]
              + [steps.us(f"{model} adamw fused")] for model in steps.models}
    known = [v for row in values.values() for v in row if v] + [steps.bytes_us(model) for model in steps.models]
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
    x = lambda value: LEFT + WIDTH * (math.log10(value) - low) / (high - low)
    group = len(BARS) * BAR + GAP
    bottom = TOP + group * len(values)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="860" height="{bottom + 44}" '
           f'viewBox="0 0 860 {bottom + 44}" font-family="sans-serif" font-size="12">',
           f'<rect width="860" height="{bottom + 44}" fill="white"/>',
           f'<text x="{LEFT}" y="22" font-size="15">One AdamW step, whole, on one {escape(steps.device())}: '
           "microseconds, logarithmic</text>"]
    at = LEFT
    for name, colour in BARS:
        out.append(f'<rect x="{at}" y="36" width="11" height="11" fill="{colour}"/>'
                   f'<text x="{at + 16}" y="46">{name}</text>')
        at += 34 + 7 * len(name)
    out.append(f'<path d="M{at + 5} 34v15" stroke="black" stroke-width="2"/>'
               f'<text x="{at + 14}" y="46">its bytes at the rate of a copy</text>')
    for power in range(low, high + 1):
        at = f"{x(10**power):.1f}"
        out.append(f'<path d="M{at} {TOP - 6}V{bottom}" stroke="#e3e3e3"/>'
                   f'<text x="{at}" y="{bottom + 18}" text-anchor="middle">{10**power:,}</text>')
    for g, (model, row) in enumerate(values.items()):
        y = TOP + g * group
        out.append(f'<text x="{LEFT - 10}" y="{y + 2 * BAR + 4}" text-anchor="end">{escape(model)}</text>')
        for i, (value, (_, colour)) in enumerate(zip(row, BARS)):
            if value:
                out.append(f'<rect x="{LEFT}" y="{y + i * BAR}" width="{x(value) - LEFT:.1f}" height="{BAR - 1}" '
                           f'fill="{colour}"/>')
                out.append(f'<text x="{x(value) + 4:.1f}" y="{y + i * BAR + 9}" font-size="9.5">{us(value)}</text>')
        mark = x(steps.bytes_us(model))
        out.append(f'<path d="M{mark:.1f} {y + 3 * BAR - 2}v{BAR + 3}" stroke="black" stroke-width="2"/>')
    return "\n".join([*out, "</svg>"]) + "\n"


def main(arguments):
    if len(arguments) != 1:
        print("usage: tools/optim_tables.py REPORT.json", file=sys.stderr)
        return 2
    steps = Steps(json.loads(Path(arguments[0]).read_text()))
    for make in TABLES.values():
        if lines := lines_of(make, steps):
            print("\n" + make.__doc__, "", *lines, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
