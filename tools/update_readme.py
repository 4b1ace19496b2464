#!/usr/bin/env python3
"""Fills the examples, the tables of numbers and the picture of README.md and docs/ from examples/ and bench/results, so
that none of them is ever typed.

    tools/update_readme.py            # rewrites them
    tools/update_readme.py --check    # exits 1 when they do not say what the files say

bench/measure makes the results; bench/measure_gpu h200.json and h200_optim.json, bench/measure_demo demo.json, and
bench/peers/operators_torch.py those of operators.
"""
import json
import re
import shlex
import sys
import textwrap
from pathlib import Path

import operator_tables
import optim_tables

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PICTURE = "docs/optimizers.svg"
DEMO_PICTURE = "docs/demo.svg"  # drawn by the command: bench/measure_demo
WIDTH = 120  # of a line of prose

# The rows of the overhead suite: how the README names them, and how the reports do.
OVERHEAD = (
    ("`x.add_(y)`, 64 floats", "add_ 64"),
    ("`x.add(y)`, 64 floats", "add 64"),
    ("`x.view({8, 8})`", "view 64 as 8x8"),
    ("`empty({64})`", "empty 64"),
)
SIMD = {"AVX3": "AVX-512", "AVX3_DL": "AVX-512", "AVX3_ZEN4": "AVX-512", "AVX3_SPR": "AVX-512"}
NANO_STEP = "nano step, batch 16 x 128"
NANO_CASE = "training step of nano"  # of the suite of operators
ADAMW_STEP = "resnet50 adamw fused"

# What a newcomer meets, from limits.json: key, how the README names it, its unit and the most that it may be.
LIMITS = (
    ("info_ms", "start of `lorry info`", "{:.0f} ms", 50),
    ("command_mb", "size of the command", "{:.1f} MB", 30),
    ("build_minutes", "clean build, 2 cores", "{:.1f} min", 6),
    ("test_minutes", "`make test`, 2 cores", "{:.1f} min", 15),
    ("demo_validation_loss", "validation loss of `make demo`, trained by time; the README's run by steps",
     "{:.2f} nats per byte", 2.3),
)


def report_of(name):
    """A report of bench/results, or None when it was not made: who measures without PyTorch has none of the peers'."""
    path = RESULTS / name
    return json.loads(path.read_text()) if path.exists() else None


def medians(report):
    """{case: median in microseconds} of a report."""
    return {row["case"]: row["median_us"] for row in report["results"]}


def steps_of(name):
    """{case: row} of a report of bench/results."""
    return {row["case"]: row for row in report_of(name)["results"]}


def speeds(report):
    """The table of what Lorry and its peers take; a peer that was not measured has no cell."""
    lorry = medians(report)
    peer, train = report_of("overhead_libtorch.json"), report_of("train_torch.json")
    libtorch = medians(peer) if peer else {}
    rows = [(title, f"{lorry[case]:.3f} us", lorry[case], libtorch.get(case), "{:.3f} us") for title, case in OVERHEAD
            if case in lorry]
    if NANO_STEP in lorry:
        step = lorry[NANO_STEP] / 1e3
        rows.append(("training step of the nano GPT, f32, batch 16 x 128 (`lorry bench train`)", f"{step:.1f} ms", step,
                     train and train["ms_per_step"],
                     "{:.1f} ms (Python, eager, fused AdamW)"))
    if report_of("optim.json"):
        row = steps_of("optim.json")[ADAMW_STEP]
        torch = report_of("optim_torch.json") and steps_of("optim_torch.json").get(ADAMW_STEP)
        step = row["median_us"] / 1e3
        # Some processors copy more slowly than they step: there the copy is no ceiling.
        ratio = row["ratio_to_ceiling"]
        share = f", {100 * ratio:.0f} % of a memory copy's rate" if ratio <= 1.05 else ""
        rows.append(("AdamW step over ResNet-50's 25.6 M parameters, f32", f"{step:.1f} ms{share}", step,
                     torch and torch["median_us"] / 1e3, "{:.1f} ms (Python, fused)"))
    if not peer and not train:
        return ["| | Lorry |", "|---|---|"] + [f"| {title} | {ours} |" for title, ours, *_ in rows]
    lines = [f"| | Lorry | {peer['results'][0]['implementation'] if peer else 'PyTorch'} | |", "|---|---|---|---|"]
    for title, shown, ours, theirs, form in rows:
        cells = f"{form.format(theirs)} | {theirs / ours:.2f} x" if theirs else "|"
        lines.append(f"| {title} | {shown} | {cells} |")
    return lines


def limits(measured):
    rows = [(title, form, measured[key], most) for key, title, form, most in LIMITS if key in measured]
    if not rows:
        return []
    lines = ["", "| a build without CUDA | measured | at most |", "|---|---|---|"]
    return lines + [f"| {title} | {form.format(value)} | {form.format(most).replace('.0 ', ' ')} |"
                    for title, form, value, most in rows]


# What the README says of a GPU: how it names a case, the case in the report, how a median in microseconds is shown.
US, MS = "{:.2f} us", "{:.1f} ms"
GPU = (
    ("`x.add_(y)`, 64 floats (the kernel launch alone: {launch})", "add_ 64", US),
    ("`x.add(y)`, 64 floats", "add 64", US),
    ("`empty({{64}})`", "empty 64", "{:.3f} us"),
    ("`x.view({{8, 8}})`", "view 64 as 8x8", "{:.3f} us"),
    ("`add`, 64 M floats", "add", "{:.0f} us"),
    ("sum of rows, 16384 x 4096", "sum of rows", "{:.0f} us"),
    ("sum of columns", "sum of columns", "{:.0f} us"),
    ("`softmax`", "softmax", "{:.0f} us"),
    ("`layer_norm`", "layer_norm", "{:.0f} us"),
    ("transposed copy", "transpose", "{:.0f} us"),
    ("`nonzero` of 16 M", "nonzero of 16 M", "{:.0f} us"),
    ("product of 4096 x 4096, bf16", "matmul 4096 x 4096 x 4096 bf16", "{:.0f} us"),
    ("training step of GPT-2 124M, bf16, 8 x 1024 tokens", "gpt2 step, batch 8 x 1024", MS),
)


def eager(report):
    """{case: row} of PyTorch's eager mode in a report of a GPU."""
    peers = {}
    for row in report["results"]:
        if row["implementation"] != "lorry" and "compiled" not in row["implementation"]:
            peers.setdefault(row["case"], row)
    return peers


def gpu_of(report):
    """The name of a report's GPU."""
    return next(iter(report["machine"]["gpus"].values())).split(" (")[0]


def gpu():
    """The table of a GPU: Lorry, PyTorch's eager mode, and the share of a plain copy's rate where memory is the
    limit."""
    report = report_of("h200.json")
    if report is None:
        return []
    ours = {row["case"]: row for row in report["results"] if row["implementation"] == "lorry"}
    peers = eager(report)
    compiled = next((row for row in report["results"] if "compiled" in row["implementation"] and "tokens_per_s" in row),
                    None)
    peer = next(iter(peers.values()))["implementation"].split()[1]
    said = (f"On one {gpu_of(report)}; PyTorch {peer} beside it in the same run, eager mode, called from Python. "
            "The last column may pass 100 %: memory is read faster than it is written, and a copy does as much of "
            "both.")
    lines = ["", textwrap.fill(said, WIDTH), "",
             "| | Lorry | PyTorch | | compared with a memory copy |", "|---|---|---|---|---|"]
    launch = US.format(ours["raw launch"]["median_us"])
    for title, case, form in GPU:
        mine, theirs = ours[case], peers[case]
        scale = 1e-3 if form == MS else 1
        bounded = "ratio_to_ceiling" in mine and "flops" not in mine and case != "nonzero of 16 M"
        share = f"{100 * mine['ratio_to_ceiling']:.0f} %" if bounded else ""
        lines.append(f"| {title.format(launch=launch)} "
                     f"| {form.format(scale * mine['median_us'])} | {form.format(scale * theirs['median_us'])} "
                     f"| {theirs['median_us'] / mine['median_us']:.2f} x | {share} |")
    step = ours["gpt2 step, batch 8 x 1024"]
    told = f"That is {step['tokens_per_s'] / 1e3:.0f} k tokens/s with {step['peak_bytes'] / 1e9:.1f} GB at most"
    if compiled:
        told += f"; PyTorch compiled reaches {compiled['tokens_per_s'] / 1e3:.0f} k"
    told += (". PyTorch has f32 parameters and autocast here (`h200.json`). Its figures in [compile.md](compile.md) "
             "are of another run, with bf16 parameters (`h200_compile.json`), and so differ from these.")
    return lines + ["", textwrap.fill(told, WIDTH)]


def numbers():
    report = report_of("lorry.json")
    if report is None:
        return "Not measured yet; `make bench` measures this machine."
    machine = report["machine"]
    said = (f"Measured on {processor(machine)}, {machine['system'].split(',')[0]}; Lorry with {onednn(machine)}")
    train = report_of("train_torch.json")
    if train and "framework" in train:
        said += f", and {version(train['framework'])} where the table says Python"
    said += ". The files are in [bench/results](../bench/results)."
    lines = [textwrap.fill(said, WIDTH), ""]
    return "\n".join(lines + speeds(report) + limits((report_of("limits.json") or {}).get("limits", {})) + gpu())


def demo():
    """What the README shows of a trained model: its curve, and what it writes."""
    report = report_of("demo.json")
    if report is None:
        return ""
    run, machine = report["results"][0], report["machine"]
    minutes, seconds = divmod(round(run["seconds"]), 60)
    seeds = [str(text["seed"]) for text in report["texts"]]
    command = lambda words: "lorry " + " ".join(map(quoted, words))
    said = (f"The `nano` preset has {run['parameters'] / 1e3:.0f} thousand parameters. {run['steps']:,} steps on "
            f"Debian's fortunes took {minutes}:{seconds:02d} minutes on {processor(machine)}; the validation loss "
            f"ended at {run['validation_loss']:.2f} nats per byte ([demo.json](bench/results/demo.json)). The "
            "first command trains and draws the picture, the second writes:")
    generate = report.get("generate", ["generate"])
    cut = generate.index("--tokens") if "--tokens" in generate else len(generate)  # the line would be too long
    lines = [
        textwrap.fill(said, WIDTH),
        "",
        "```sh",
        f"{command(report['train'])} --out fortunes \\",
        "  --text $(find /usr/share/games/fortunes -maxdepth 1 -type f ! -name '*.*' | LC_ALL=C sort)",
        f"{command(generate[:cut])} --checkpoint fortunes --seed {seeds[0]} \\",
        "  " + " ".join(map(quoted, generate[cut:])),
        "```",
        "",
        f"![Loss of the training run by step]({DEMO_PICTURE})",
        "",
        textwrap.fill("It has learnt what English looks like, not what it means. This is what it wrote with "
                      + " and ".join(f"`--seed {seed}`" for seed in seeds)
                      + "; another processor may round otherwise and write other texts:", WIDTH),
    ]
    for text in report["texts"]:
        lines += ["", "```", *text["text"].splitlines(), "```"]
    return "\n".join(lines)


def quoted(word):
    """A word as a shell takes it."""
    return "$'" + word.replace("\n", "\\n") + "'" if "\n" in word else shlex.quote(word)


def processor(machine):
    """The threads, the CPU and the instructions of a report, which has Highway's name for these."""
    simd = machine.get("simd", "")
    return f"{machine['threads']} threads of {machine['cpu']}" + (simd and f" with {SIMD.get(simd, simd)}")


def onednn(machine):
    """"oneDNN 2.6.3": what computes large products on a CPU."""
    return f"oneDNN {machine.get('libraries', {}).get('onednn', '')}".rstrip()


def version(implementation):
    """"PyTorch 2.11.0" for "pytorch 2.11.0+cu130, compiled"."""
    return "PyTorch " + "".join(re.findall(r"[\d.]+", implementation)[:1])


def version_of(report):
    """The version of PyTorch in a report."""
    return next(version(row["implementation"]) for row in report["results"] if of_pytorch(row))


def of_pytorch(row):
    return row["implementation"].lower().startswith("pytorch")


def compiled_pair(report, case):
    """(Lorry's, PyTorch's) median of a compiled case."""
    rows = [row for row in report["results"] if row["case"] == case and row["implementation"].endswith("compiled")]
    return tuple(next(row["median_us"] for row in rows if of_pytorch(row) == wanted) for wanted in (False, True))


def speed():
    """A few rows of the tables of docs/benchmarks.md, and what they were measured on."""
    rows, said = [], []

    def add(title, ours, theirs, form, scale=1.0):
        if ours and theirs:
            cells = [title, form.format(scale * ours), form.format(scale * theirs), f"{theirs / ours:.1f} x"]
            rows.append("| " + " | ".join(cells) + " |")

    gpu_report, steps_report, cpu = report_of("h200.json"), report_of("h200_optim.json"), report_of("lorry.json")
    if steps_report:
        steps = optim_tables.Steps(steps_report)
        add("H200: AdamW step over ResNet-50 (fused)", steps.us("resnet50 adamw fused"),
            steps.us("resnet50 adamw fused", optim_tables.PYTORCH), "{:.0f} us")
    if gpu_report:
        ours = {row["case"]: row["median_us"] for row in gpu_report["results"] if row["implementation"] == "lorry"}
        theirs = eager(gpu_report)
        case = "gpt2 step, batch 8 x 1024"
        add("H200: training step of GPT-2 124M, bf16 (eager)", ours[case], theirs[case]["median_us"], "{:.1f} ms", 1e-3)
        compiled = report_of("h200_compile.json")
        if compiled:
            pair = compiled_pair(compiled, "gpt2 training step, batch 8 x 1024, bf16")
            add("H200: the same step (both compiled)", *pair, "{:.1f} ms", 1e-3)
        decoding = report_of("h200_generate.json")
        if decoding:
            case = "decode gpt2, context 512, batch 1"
            by = {row["implementation"]: row["median_us"] for row in decoding["results"] if row["case"] == case}
            torch = next((name for name in by if name.startswith("PyTorch") and name.endswith(" graph")), None)
            add("H200: decode step of GPT-2, one text, bf16 (both as a graph; Lorry's is compiled too)",
                by.get("lorry both"), by.get(torch), "{:.0f} us")
        add(f"H200: `x.add_(y)`, 64 floats (the kernel launch alone: {US.format(ours['raw launch'])})", ours["add_ 64"],
            theirs["add_ 64"]["median_us"], US)
        said.append(f"The H200: {version_of(gpu_report)}, eager with autocast and f32 parameters, compiled with bf16 "
                    "parameters; `h200_optim.json`, `h200.json`, `h200_compile.json` and `h200_generate.json`.")
    train = report_of("train_torch.json")
    if cpu and train:
        step = medians(cpu).get(NANO_STEP, 0) / 1e3
        add("CPU: training step of the `nano` GPT, batch 16 x 128, f32 (eager)", step, train["ms_per_step"],
            "{:.1f} ms")
        said.append(f"The CPU: {processor(cpu['machine'])}, Lorry with {onednn(cpu['machine'])}, "
                    f"{version(train.get('framework', ''))}; `lorry.json` and `train_torch.json`.")
        elsewhere = [(machine_of(report), operator_tables.speedup(own))
                     for name, _, _ in OPERATORS
                     if (report := report_of(name)) and report["results"][0]["device"] == "cpu"
                     for own, _ in operator_tables.Operators(report).pairs if own["case"].startswith(NANO_CASE)]
        if elsewhere:
            said.append("Measured in turn with PyTorch, the same step is "
                        + ", ".join(f"{speed:.1f} times as fast on {machine}" for machine, speed in elsewhere) + ".")
    if not rows:
        return ""
    told = textwrap.fill(" ".join(said) + " All files are in [bench/results](bench/results).", WIDTH)
    return "\n".join(["| | Lorry | PyTorch from Python | |", "|---|--:|--:|--:|", *rows, "", told])


def example(name="readme"):
    return "```cpp program\n" + (ROOT / "examples" / f"{name}.cpp").read_text().rstrip("\n") + "\n```"


def optimizer_steps():
    """What docs/benchmarks.md shows of optimizers."""
    report = report_of("h200_optim.json")
    if report is None:
        return ""
    steps = optim_tables.Steps(report)
    said = (f"{steps.source()} [optimizers.md](optimizers.md#operators-one-by-one-in-place) shows `foreach` from a "
            "later run on another host with an H200 (`h200_foreach.json`): much of PyTorch's time there is the host's.")
    return "\n".join([f"![One AdamW step by model]({Path(PICTURE).name})", "", *optim_tables.picture_table(steps), "",
                      textwrap.fill(said, WIDTH)])


def byte_presets():
    """What the start of the byte presets does: losses after the first steps of a long run, and jumps of short runs."""
    report = report_of("byte_presets.json")
    if report is None:
        return ""
    runs = report["results"]
    early = [run for run in runs if run["steps"] == 500]
    short = [run for run in runs if run["steps"] < 500]
    whole = {run["variant"]: run for run in runs if run["steps"] == 2500}
    texts = list(dict.fromkeys(run["text"] for run in early))
    seeds = len({run["seed"] for run in early})
    tries = [sum(run["variant"] == short[0]["variant"] and run["steps"] == steps for run in short)
             for steps in sorted({run["steps"] for run in short})]
    mean = lambda values: f"{sum(values) / len(values):.2f}" if values else ""
    whole_texts = ", ".join(dict.fromkeys(run["text"] for run in whole.values()))
    said = (f"Training loss in nats per byte, the mean of {seeds} seeds: steps 480 to 500 of a run planned for "
            f"{early[0]['planned']:,}; the validation loss at its end, one seed, on {whole_texts}; and the highest "
            "jump of a step over the mean of the ten before it in short runs, 30, 60, 120 and 300 steps, "
            f"{tries[0]} seeds each. ")
    commit = re.search(r"commit \w+", report["command"])[0]
    said += "".join(f"\"{text}\" is {origin}. ".replace("that commit", commit)
                    for text, origin in report["texts"].items())
    said += f"On one {gpu_of(report)} (`byte_presets.json`)."
    lines = [
        textwrap.fill(said, WIDTH),
        "",
        "| | " + " | ".join(texts) + " | whole run | highest jump, short runs |",
        "|---|" + "--:|" * (len(texts) + 2),
    ]
    for variant in dict.fromkeys(run["variant"] for run in early):
        cells = [mean([run["train"][-1] for run in early
                       if (run["variant"], run["text"]) == (variant, text)]) for text in texts]
        jumps = [run["jump"] for run in short if run["variant"] == variant]
        cells.append(f"{whole[variant]['validation']:.2f}" if variant in whole else "")
        cells.append(f"{max(jumps):.1f}" if jumps else "")
        lines.append(f"| {variant} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


# The reports of bench/peers/operators_torch.py, and what the pages call their machines.
OPERATORS = (("operators.json", "A CPU with AVX-512", "docs/operators_cpu.svg"),
             ("avx2_operators.json", "A CPU without AVX-512", "docs/operators_avx2.svg"),
             ("h200_operators.json", "An H200", "docs/operators_h200.svg"))


def machine_of(report):
    return processor(report["machine"]) if report["results"][0]["device"] == "cpu" else gpu_of(report)


def operator_speed():
    """What docs/operator-speed.md shows of each machine."""
    lines = []
    for name, title, drawn in OPERATORS:
        if (report := report_of(name)) is None:
            continue
        operators = operator_tables.Operators(report)
        runs = "one run" if operators.runs == 1 else f"{operators.runs} runs"
        if rounds := report["machine"].get("rounds"):
            runs += f" of {rounds} rounds"
        said = f"On {machine_of(report)}, {version_of(report)}, {runs} ([{name}](../bench/results/{name}))."
        lines += [f"## {title}", "", textwrap.fill(said, WIDTH), "",
                  f"![Speed-ups over PyTorch by family]({Path(drawn).name})", "",
                  *operator_tables.family_table(operators), ""]
        device = "" if report["results"][0]["device"] == "cpu" else "--device cuda "
        counts = f"--runs {operators.runs}" + (f" --rounds {rounds}" if rounds else "")
        lines += ["```sh", f"bench/peers/operators_torch.py build/release/lorry {device}{counts} --json {name}", "```",
                  ""]
        for said, make in (("Slower than PyTorch:", operator_tables.slower_table),
                           ("Too scattered to tell, with a median below 0.95:", operator_tables.doubtful_table)):
            if table := make(operators):
                lines += [said, "", *table, ""]
        lines += [*operator_tables.whole_tables(operators), ""]
    return "\n".join(lines).rstrip()


def attention_speed():
    """Attention on a GPU, a table."""
    if (report := report_of("h200_attention.json")) is None:
        return ""
    operators = operator_tables.Operators(report)
    said = (f"On {machine_of(report)}, {version_of(report)}, {report['machine']['rounds']} rounds "
            "([h200_attention.json](../bench/results/h200_attention.json); batch x heads x length x width):")
    return "\n".join([textwrap.fill(said, WIDTH), "", *operator_tables.HEAD,
                      *(operator_tables.row_of(*pair) for pair in operators.pairs)])


def counts_of(report):
    """How many cases are faster than PyTorch, slower, and neither."""
    operators = operator_tables.Operators(report)
    faster, slower, equal = (len(operators.with_verdict(x)) for x in ("faster", "slower", "equal"))
    doubtful = len(operators.doubtful())
    return (f"{faster} {'is' if faster == 1 else 'are'} faster than {version_of(report)}, {slower} slower, and {equal} "
            "within 5 % or too scattered to tell"
            + (f" ({doubtful} of these with a median below 0.95)" if doubtful else ""))


def operator_counts():
    """One sentence a machine: how many operators are faster than PyTorch, and how many are not."""
    said = []
    for name, _, _ in OPERATORS:
        if report := report_of(name):
            said.append(f"On {machine_of(report)}, of {len(operator_tables.Operators(report).pairs)} single calls "
                        f"{counts_of(report)}.")
    if attention := report_of("h200_attention.json"):
        pairs = operator_tables.Operators(attention).pairs
        said.append(f"Of {len(pairs)} larger calls of attention on {machine_of(attention)} {counts_of(attention)}; the "
                    f"slowest is {min(operator_tables.speedup(own) for own, _ in pairs):.2f} times as fast.")
    if not said:
        return ""
    said.append("[Each of them](docs/operator-speed.md) is listed.")
    return textwrap.fill(" ".join(said), WIDTH, break_on_hyphens=False)


def pages():
    """{page: {mark: what stands there}}; without results a place is left empty."""
    report = report_of("h200_optim.json")
    steps = optim_tables.Steps(report) if report else None

    def table(make):
        lines = optim_tables.lines_of(make, steps) if steps else []
        return "\n".join([*lines, "", steps.source()]) if lines else ""

    return {
        "README.md": {"example": example(), "demo": demo(), "speed": speed(), "operators": operator_counts()},
        "docs/benchmarks.md": {"numbers": numbers(), "steps": optimizer_steps(), "bytes": byte_presets()},
        "docs/operator-speed.md": {"attention": attention_speed(), "operators": operator_speed()},
        "docs/own-functions.md": {"example": example("own_function")},
        "docs/optimizers.md": {mark: table(make) for mark, make in optim_tables.TABLES.items()
                               if make is not optim_tables.picture_table},
    }


def pictures():
    """{file: its content}, of the results that there are."""
    drawn = {}
    if report := report_of("h200_optim.json"):
        drawn[PICTURE] = optim_tables.picture(optim_tables.Steps(report))
    for name, title, file in OPERATORS:
        if report := report_of(name):
            title = f"{title}: PyTorch's time over Lorry's, a dot for each call (to the right: Lorry is faster)"
            drawn[file] = operator_tables.picture(operator_tables.Operators(report), title)
    return drawn


def filled(page, text, contents):
    """The page with what stands between <!-- mark --> and <!-- /mark --> replaced."""
    for mark, content in contents.items():
        place = f"\n{content}\n\n" if content else "\n"
        text, count = re.subn(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", lambda m: m.group(1) + place + m.group(2),
                              text, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"{page}: the marks of '{mark}' stand {count} times; expected once")
    return text


def main(arguments):
    before = {page: (ROOT / page).read_text() for page in pages()}
    after = {page: filled(page, before[page], contents) for page, contents in pages().items()}
    for picture, content in pictures().items():
        before[picture] = (ROOT / picture).read_text() if (ROOT / picture).exists() else ""
        after[picture] = content
    if "--check" in arguments:
        stale = [page for page in after if before[page] != after[page]]
        if stale:
            print(f"{', '.join(stale)}: not what examples/ and bench/results say; run tools/update_readme.py",
                  file=sys.stderr)
            return 1
        return 0
    for page, text in after.items():
        (ROOT / page).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
