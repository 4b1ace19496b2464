"""The code of a page of docs/ or of README.md.

Fenced blocks. The words after ```cpp say what a block is:

    (nothing)       statements, in a scope of their own, after tests/docs/before/PAGE.inc where there is one
    continues       statements that go on where the block before ended
    global          declarations outside functions
    program         a whole program: it is a file of examples/, which the tests run
    patch           lines of the page's patch, which tools/change_cost.py checks
    excerpt=FILE    lines of that file of the tree, in their order

Tables with the head `| PyTorch | Lorry |`. Each table is run from top to bottom. A code span of the right column that
ends in `;` or `}` is a statement; any other is an expression, whose value is compared with that of the left column
where it has one. The first such table after `<!-- setup -->` is run before each of the others.
"""

import re
from dataclasses import dataclass, field

FENCE = re.compile(r"^```(\S*)[ ]?(.*)$")
HEAD = "| PyTorch | Lorry |"


@dataclass
class Block:
    line: int  # of its first line of code, from 1
    language: str
    words: list
    code: str


@dataclass
class Row:
    line: int
    left: list  # code spans
    right: list


@dataclass
class Table:
    title: str
    line: int
    rows: list = field(default_factory=list)
    setup: bool = False


def blocks(text):
    found, start = [], None
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        match = FENCE.match(line)
        if not match:
            continue
        if start is None:
            start, language, words = number, match[1], match[2].split()
        else:
            found.append(Block(start + 1, language, words, "\n".join(lines[start : number - 1])))
            start = None
    if start is not None:
        raise SystemExit(f"line {start}: the block does not end")
    return found


def without_blocks(text):
    """The lines, with those of fenced blocks left empty."""
    inside, kept = False, []
    for line in text.splitlines():
        fence = bool(FENCE.match(line))
        kept.append("" if fence or inside else line)
        inside ^= fence
    return kept


def spans(cell):
    return [span.strip() for span in re.findall(r"`([^`]+)`", cell.replace(r"\|", "|"))]


def tables(text, head=HEAD):
    """The tables with this head."""
    found, title, table, setup = [], "", None, False
    for number, line in enumerate(without_blocks(text), 1):
        if line.startswith("#"):
            title = line.lstrip("# ")
        setup |= line.strip() == "<!-- setup -->"
        if line == head:
            table = Table(title, number, setup=setup)
            setup = False
            found.append(table)
        elif not line.startswith("|"):
            table = None
        elif table and not line.startswith("|--"):
            left, right = re.split(r"(?<!\\)\|", line)[1:3]
            table.rows.append(Row(number, spans(left), spans(right)))
    return found


def is_statement(code):
    return code.endswith((";", "}")) and not code.endswith("{}")


def pairs(row):
    """(expression of the right column, the left span that it is compared with, or None)."""
    shown = [code for code in row.right if not is_statement(code)]
    for i, code in enumerate(shown):
        yield code, row.left[i if len(row.left) == len(shown) else 0] if row.left else None
