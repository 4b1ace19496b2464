#!/usr/bin/env python3
"""Checks that functions in C++ and CUDA sources have at most 60 lines. Prints the others, longest first, and exits 1.

    tools/long_functions.py [FILE...]      (default: all tracked .h, .cpp and .cu files)

A function may be longer where a line of the comment above it says why: "// Long: a table, a row an operator". Without
need for it that line is an error too.

Reads sources as clang-format leaves them: a brace that ends a line opens a block, which the first line that begins
with the matching brace, at the indentation of the opening statement, closes. A block is a function where the statement
before the brace has parameters and is no control statement, type, namespace or initializer. Lambdas and bodies of
local types count as lines of the function around them.
"""
import re
import subprocess
import sys
from pathlib import Path

MOST = 60
ROOT = Path(__file__).resolve().parent.parent
NO_FUNCTION = re.compile(
    r"^(if|else|for|while|do|switch|try|catch|case|default|return|namespace|enum|struct|class|union|extern)\b"
    r"|^[}#{.]|^//|=\s*\{$|\breturn\b[^;]*\{$")
VARIABLE = re.compile(r"((inline|constexpr|const|static) )*[\w:]+ \w+ = ")
LAMBDA = re.compile(r"^[\w:<>, ]+ \w+ = \[[^\]]*\]( ?\(.*\))? \{$")  # that a variable begins with
NOT_THE_NAME = re.compile(r"__launch_bounds__\([^)]*\)|requires \(.*?\)")
REASON = re.compile(r"\s*// Long: .")
ENDS_STATEMENT = re.compile(r"[;{}]\s*(//.*)?$|^\s*(#|//)|^\s*(public|private|protected):$")


def statement_before(lines, at):
    """(first line, text) of the statement that the brace at the end of lines[at] belongs to."""
    first = at
    while first > 0 and lines[first - 1].strip():
        before = first - 1
        while before > 0 and lines[before].lstrip().startswith("//"):  # a comment in a list of initializers
            before -= 1
        if before < first - 1 and lines[before].rstrip().endswith(","):
            first = before
        elif ENDS_STATEMENT.search(lines[first - 1]):
            break
        else:
            first -= 1
    return first, " ".join(line.strip() for line in lines[first : at + 1] if not line.lstrip().startswith("//"))


def without_template(head):
    """The statement after "template <...>"."""
    while head.startswith("template <"):
        depth = 0
        for at, sign in enumerate(head):
            depth += (sign == "<") - (sign == ">")
            if sign == ">" and not depth:
                break
        head = head[at + 1 :].lstrip()
    return head


def name_of(head):
    if LAMBDA.search(head):
        return re.search(r"(\w+) = \[", head)[1]
    name = re.search(r"operator ?(\(\)|[^\s(]+)", head) or re.search(r"[\w:~]+(?=\()", NOT_THE_NAME.sub("", head))
    return name[0] if name else head[:60]


def says_why(lines, first):
    """Whether the comment above lines[first] gives a reason for a long function."""
    while first > 0 and lines[first - 1].lstrip().startswith("//"):
        first -= 1
        if REASON.match(lines[first]):
            return True
    return False


def functions(text):
    """(line, lines, head, whether a reason is given) of every function that is no part of another."""
    lines, at = text.split("\n"), 0
    while at < len(lines):
        line = re.sub(r"\s*//.*", "", lines[at])
        at += 1
        if not line.endswith("{") or line.lstrip().startswith("#"):
            continue
        first, head = statement_before(lines, at - 1)
        head = without_template(head)
        if not LAMBDA.search(head) and ("(" not in head or NO_FUNCTION.search(head) or VARIABLE.match(head)):
            continue
        indent = re.match(r"\s*", lines[first]).group()
        end = next((i for i in range(at, len(lines)) if lines[i].startswith(indent + "}")), at)
        yield first + 1, end - first + 1, head, says_why(lines, first)
        at = end + 1


def main(arguments):
    if not arguments:
        # Also files that are new, and not those that are gone.
        command = ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "*.h", "*.cpp", "*.cu"]
        listed = subprocess.run(command, capture_output=True, text=True)
        arguments = [path for name in listed.stdout.split() if (path := ROOT / name).exists()]
    found = []
    for path in map(Path, arguments):
        where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        for line, count, head, reason in functions(path.read_text(encoding="utf-8")):
            if reason != (count > MOST):
                found.append((count, f"{where}:{line}: {name_of(head)}" + ("; it is not long" if reason else "")))
    for count, what in sorted(found, reverse=True):
        print(f"{count:4d} {what}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
