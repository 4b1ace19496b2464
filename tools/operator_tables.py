#!/usr/bin/env python3
"""The tables of operators beside PyTorch, from a report of bench/peers/operators_torch.py: for docs/operator-speed.md,
README.md and the terminal.

    tools/operator_tables.py bench/results/operators.json       # prints them
"""
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
import speedups  # noqa: E402


def us(value):
    """Three digits, with a point only where they need one."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


class Operators:
    """The cases of a report, in its order: Lorry's row beside PyTorch's."""

    def __init__(self, report):
        self.machine = report["machine"]
        rows = report["results"]
        peers = {row["case"]: row for row in rows if row["implementation"] != "lorry"}
        self.pairs = [(row, peers[row["case"]]) for row in rows if row["implementation"] == "lorry"]
        self.families = list(dict.fromkeys(own["family"] for own, _ in self.pairs))
        self.runs = len(self.pairs[0][0]["speedups"])

    def with_verdict(self, verdict, family=None):
        return [pair for pair in self.pairs if speedups.verdict(pair[0]["speedups"]) == verdict
                and family in (None, pair[0]["family"])]


def speedup(own):
    """The median of the runs' medians."""
    return statistics.median(middle for _, middle, _ in own["speedups"])


def row_of(own, peer):
    """A case's row of a table."""
    spread = f"{min(low for low, _, _ in own['speedups']):.2f} to {max(high for *_, high in own['speedups']):.2f}"
    ceiling = f"{100 * own['ratio_to_ceiling']:.0f} %" if "ratio_to_ceiling" in own else ""
    return (f"| {own['case'].replace('|', '&#124;')} | {us(own['median_us'])} | {us(peer['median_us'])} "
            f"| {speedup(own):.2f} x | {spread} | {ceiling} |")


HEAD = ["| | Lorry, us | PyTorch, us | | half of the rounds | of the best |", "|---|--:|--:|--:|--:|--:|"]


def family_table(operators):
    """How many cases of each family are faster, and how much."""
    lines = ["| | cases | faster | equal | slower | median |", "|---|--:|--:|--:|--:|--:|"]
    for family in [*operators.families, None]:
        pairs = [pair for pair in operators.pairs if family in (None, pair[0]["family"])]
        counts = [str(len(operators.with_verdict(verdict, family))) for verdict in ("faster", "equal", "slower")]
        median = statistics.median(speedup(own) for own, _ in pairs)
        lines.append(f"| {family or 'all'} | {len(pairs)} | {' | '.join(counts)} | {median:.2f} x |")
    return lines


def slower_table(operators):
    """The cases that are slower in every run, the slowest first."""
    pairs = sorted(operators.with_verdict("slower"), key=lambda pair: speedup(pair[0]))
    return [*HEAD, *(row_of(*pair) for pair in pairs)] if pairs else []


def whole_tables(operators):
    """Every case, by family."""
    lines = []
    for family in operators.families:
        rows = [row_of(own, peer) for own, peer in operators.pairs if own["family"] == family]
        lines += ["" if lines else None, f"### {family.capitalize()}", "", *HEAD, *rows]
    return [line for line in lines if line is not None]


TABLES = {"families": family_table, "slower": slower_table, "all": whole_tables}


def main(arguments):
    if len(arguments) != 1:
        print("usage: tools/operator_tables.py REPORT.json", file=sys.stderr)
        return 2
    operators = Operators(json.loads(Path(arguments[0]).read_text()))
    for make in TABLES.values():
        if lines := make(operators):
            print("\n" + make.__doc__, "", *lines, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
