#!/usr/bin/env python3
"""Fills the README's example and table of numbers from examples/readme.cpp and bench/results, so that neither is ever typed.

    tools/update_readme.py            # rewrites README.md
    tools/update_readme.py --check    # exits 1 when README.md does not say what the files say

bench/measure makes the results and then runs this.
"""
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"

# The rows of the overhead suite: how the README names them, and how the reports do.
OVERHEAD = (
    ("`x.add_(y)`, 64 floats", "add_ 64"),
    ("`x.add(y)`, 64 floats", "add 64"),
    ("`x.view({8, 8})`", "view 64 as 8x8"),
    ("`empty({64})`", "empty 64"),
)
NANO_STEP = "nano step, batch 16 x 128"


def medians(name):
    """{case: median in microseconds} of a report, and the report itself."""
    report = json.loads((RESULTS / name).read_text())
    return {row["case"]: row["median_us"] for row in report["results"]}, report


def numbers():
    if not (RESULTS / "lorry.json").exists():
        return "Not measured yet; `make bench` measures this machine."
    lorry, report = medians("lorry.json")
    libtorch, peer = medians("overhead_libtorch.json")
    train = json.loads((RESULTS / "train_torch.json").read_text())
    machine = report["machine"]
    lines = [
        f"Measured on {machine['cpu']}, {machine['threads']} threads, {machine['system'].split(',')[0]}; the files are in [bench/results](bench/results).",
        "",
        f"| | Lorry | {peer['results'][0]['implementation']} | |",
        "|---|---|---|---|",
    ]
    for title, case in OVERHEAD:
        lines.append(f"| {title} | {lorry[case]:.3f} us | {libtorch[case]:.3f} us | {libtorch[case] / lorry[case]:.1f} x |")
    ours, theirs = lorry[NANO_STEP] / 1e3, train["ms_per_step"]
    lines.append(f"| training step of the nano GPT, f32, batch 16 x 128 | {ours:.1f} ms | {theirs:.1f} ms (Python, eager, fused AdamW) | {theirs / ours:.2f} x |")
    return "\n".join(lines)


def example():
    return "```cpp\n" + (ROOT / "examples" / "readme.cpp").read_text().rstrip("\n") + "\n```"


def filled(text):
    """The README with what stands between <!-- name --> and <!-- /name --> replaced."""
    for name, content in (("example", example()), ("numbers", numbers())):
        text, count = re.subn(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", lambda m: f"{m.group(1)}\n{content}\n\n{m.group(2)}", text, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"README.md: the marks of '{name}' stand {count} times; expected once")
    return text


def main(arguments):
    path = ROOT / "README.md"
    before = path.read_text()
    after = filled(before)
    if "--check" in arguments:
        if before != after:
            print("README.md differs from examples/readme.cpp or bench/results; run tools/update_readme.py", file=sys.stderr)
            return 1
        return 0
    path.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
