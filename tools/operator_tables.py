#!/usr/bin/env python3
"""The tables of operators beside PyTorch, from a report of bench/peers/operators_torch.py: for docs/operator-speed.md,
README.md and the terminal.

    tools/operator_tables.py bench/results/operators.json       # prints them
"""
import json
import math
import statistics
import sys
from pathlib import Path
from xml.sax.saxutils import escape

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
import speedups  # noqa: E402


def three_digits(value):
    """Three digits, with a point only where they need one."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


class Operators:
    """The cases of a report, in its order: Lorry's row beside PyTorch's, or alone."""

    def __init__(self, report):
        self.machine = report["machine"]
        rows = report["results"]
        peers = {row["case"]: row for row in rows if row["implementation"] != "lorry"}
        own = [row for row in rows if row["implementation"] == "lorry"]
        self.pairs = [(row, peers[row["case"]]) for row in own if row["case"] in peers]
        self.alone = [row for row in own if row["case"] not in peers]
        self.families = list(dict.fromkeys(row["family"] for row in own))
        self.runs = max(len(row["speedups"]) for row in own)

    def with_verdict(self, verdict, family=None):
        return [pair for pair in self.pairs if speedups.verdict(pair[0]["speedups"]) == verdict
                and family in (None, pair[0]["family"])]

    def doubtful(self):
        """Cases that are neither faster nor slower, but slower by their median."""
        return [pair for pair in self.with_verdict("equal") if speedup(pair[0]) < speedups.LEAST]


def speedup(own):
    """The median of the runs' medians."""
    return statistics.median(middle for _, middle, _ in own["speedups"])


def row_of(own, peer):
    """A case's row of a table."""
    lowest, highest = min(low for low, _, _ in own["speedups"]), max(high for *_, high in own["speedups"])
    ceiling = f"{100 * own['ratio_to_ceiling']:.0f} %" if "ratio_to_ceiling" in own else ""
    numbers = [three_digits(x) for x in (own["median_us"], peer["median_us"], speedup(own), lowest, highest)]
    return "| {} | {} | {} | {} x | {} to {} | {} |".format(own["case"].replace("|", "&#124;"), *numbers, ceiling)


HEAD = ["| | Lorry, us | PyTorch, us | speed-up | half of the rounds | of the best |", "|---|--:|--:|--:|--:|--:|"]


def family_table(operators):
    """How many cases of each family are faster, and how much."""
    lines = ["| | cases | faster | equal | slower | median |", "|---|--:|--:|--:|--:|--:|"]
    for family in [*operators.families, None]:
        pairs = [pair for pair in operators.pairs if family in (None, pair[0]["family"])]
        counts = [str(len(operators.with_verdict(verdict, family))) for verdict in ("faster", "equal", "slower")]
        median = f"{statistics.median(speedup(own) for own, _ in pairs):.2f} x" if pairs else ""
        lines.append(f"| {family or 'all'} | {len(pairs)} | {' | '.join(counts)} | {median} |")
    return lines


def slowest_first(pairs):
    pairs = sorted(pairs, key=lambda pair: speedup(pair[0]))
    return [*HEAD, *(row_of(*pair) for pair in pairs)] if pairs else []


def slower_table(operators):
    """The cases that are slower in every run, the slowest first."""
    return slowest_first(operators.with_verdict("slower"))


def doubtful_table(operators):
    """The cases that are too scattered to tell, with a median below 0.95."""
    return slowest_first(operators.doubtful())


def whole_tables(operators):
    """Every case, by family."""
    lines = []
    for family in operators.families:
        rows = [row_of(own, peer) for own, peer in operators.pairs if own["family"] == family]
        rows += [f"| {own['case']} | {three_digits(own['median_us'])} | none | | | |" for own in operators.alone
                 if own["family"] == family]
        lines += ["" if lines else None, f"### {family.capitalize()}", "", *HEAD, *rows]
    return [line for line in lines if line is not None]


TABLES = {"families": family_table, "slower": slower_table, "doubtful": doubtful_table, "all": whole_tables}


# ---- the picture -----------------------------------------------------------------------------------------------------

COLOURS = {"faster": "#2e7d4f", "equal": "#9aa5b1", "slower": "#c0392b"}
LEFT, WIDTH, ROW, TOP, DOT = 110, 680, 42, 66, 3  # pixels
MOST = 16  # the speed-up at which the axis of a picture ends


def picture(operators, title):
    """An SVG: a dot for each case, by family, on a logarithmic axis of speed-ups that ends at MOST. Dots that would
    cover each other are moved up and down, and a row is as high as its tallest column."""
    values = [min(speedup(own), MOST) for own, _ in operators.pairs] or [1]
    low, high = min(0, math.floor(math.log2(min(values)))), max(1, math.ceil(math.log2(max(values))))
    x = lambda value: LEFT + WIDTH * (math.log2(min(value, MOST)) - low) / (high - low)
    rows, bottom = [], TOP
    for family in operators.families:
        columns = {}  # the cases whose dots stand in a column as wide as one
        for own, _ in sorted((pair for pair in operators.pairs if pair[0]["family"] == family),
                             key=lambda pair: speedup(pair[0])):
            columns.setdefault(round(x(speedup(own)) / (2 * DOT)), []).append(own)
        height = max(ROW, 2 * DOT * (max(map(len, columns.values()), default=0) + 2))
        rows.append((family, columns, bottom + height // 2))
        bottom += height
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="860" height="{bottom + 30}" '
           f'viewBox="0 0 860 {bottom + 30}" font-family="sans-serif" font-size="12">',
           f'<rect width="860" height="{bottom + 30}" fill="white"/>',
           f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>']
    for i, (verdict, colour) in enumerate(COLOURS.items()):
        out.append(f'<circle cx="{LEFT + 6 + 150 * i}" cy="42" r="{DOT + 1}" fill="{colour}"/>'
                   f'<text x="{LEFT + 16 + 150 * i}" y="46">{verdict} ({len(operators.with_verdict(verdict))})</text>')
    for power in range(low, high + 1):
        at = f"{x(2**power):.1f}"
        more = " or more" if 2**power == MOST else ""
        out.append(f'<path d="M{at} {TOP - 6}V{bottom}" stroke="{"#7f8c8d" if power == 0 else "#e3e3e3"}"/>'
                   f'<text x="{at}" y="{bottom + 18}" text-anchor="middle">{2.0**power:g} x{more}</text>')
    for family, columns, middle in rows:
        out.append(f'<text x="{LEFT - 12}" y="{middle + 4}" text-anchor="end">{escape(family)}</text>')
        for column, cases in columns.items():
            for n, own in enumerate(cases):
                y = middle + (n + 1) // 2 * 2 * DOT * (-1) ** n
                out.append(f'<circle cx="{column * 2 * DOT}" cy="{y}" r="{DOT}" '
                           f'fill="{COLOURS[speedups.verdict(own["speedups"])]}"><title>{escape(own["case"])}: '
                           f'{speedup(own):.2f} x</title></circle>')
    return "\n".join([*out, "</svg>"]) + "\n"


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
