#!/usr/bin/env python3
"""Checks that the tracked text files of the tree are in its form.

    tools/check_format.py [ROOT]

- Lines have at most 120 columns, no blanks at their end, and the last one ends with a newline.
- In Markdown a line may be longer where it cannot be broken: rows of tables, a single word or link, and fenced blocks
  without a language, which quote what a program printed (blanks at the end included).
- In a .patch every line has one column more, and a blank before the lines that it leaves as they are.
- .h, .cpp and .cu files are as clang-format makes them. Each version has its own taste, so it must be the one that
  `tools/install-deps checks` puts into .venv; comments are not its business (.clang-format).

Data are left alone: .json, .svg and .safetensors. Prints one line a violation, "path:line: what is wrong", and
exits 1 when there is one, 2 when it could not check.
"""
import re
import subprocess
import sys
from pathlib import Path

COLUMNS = 120
VERSION = "14.0.6"
DATA = {".json", ".svg", ".safetensors"}
SOURCES = {".h", ".cpp", ".cu"}

# What cannot be broken: a link or code span counts as one word, with the sign of a list before it.
WORD = re.compile(r"\s*(?:[-*] |\d+\. )?(?:\[[^]]*\]\([^)]*\)|`[^`]*`|\S)+")


def tracked(root):
    """The paths that git knows and that are there."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True)
    if listed.returncode:
        raise SystemExit(f"check_format: git knows no files of {root}: {listed.stderr.strip()}")
    return [root / name for name in listed.stdout.split("\0") if name and (root / name).is_file()]


def markdown_lines(lines):
    """(line, whether it may be long, whether it quotes output) of a page."""
    language = None
    for line in lines:
        fence = re.match(r"\s*```(.*)", line)
        if fence:
            language = fence[1] if language is None else None
        quoted = not fence and language == ""
        yield line, quoted or (language is None and (line.startswith("|") or bool(WORD.fullmatch(line)))), quoted


def text_violations(path, text):
    lines = text.split("\n")
    columns = COLUMNS + (path.suffix == ".patch")
    if path.suffix == ".md":
        forms = markdown_lines(lines)
    else:
        forms = ((line, False, path.suffix == ".patch") for line in lines)
    for number, (line, may_be_long, may_end_blank) in enumerate(forms, 1):
        if len(line) > columns and not may_be_long:
            yield number, f"{len(line)} columns; at most {columns}"
        if line != line.rstrip() and not may_end_blank:
            yield number, "blanks at the end of the line"
    if text and lines[-1]:
        yield len(lines), "no newline at the end of the file"


def clang_format(root):
    """The program, or an explanation of its absence."""
    program = root / ".venv" / "bin" / "clang-format"
    try:
        version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    except OSError:
        version = ""
    if f"version {VERSION}" not in version:
        raise SystemExit(f"check_format: there is no clang-format {VERSION} in {root / '.venv'}; "
                         "run tools/install-deps checks, which needs PyPI")
    return program


def source_violations(root, files):
    """(path, line) of the first place of each file that clang-format would change."""
    if not files:
        return
    program = clang_format(root)
    done = subprocess.run([program, "--dry-run", "-Werror", *files], cwd=root, capture_output=True, text=True)
    places = re.findall(r"^(.+?):(\d+):\d+: error:", done.stderr, re.M)
    if done.returncode and not places:
        raise SystemExit(f"check_format: {program} failed: {done.stderr.strip()}")
    seen = set()
    for path, line in places:
        if path not in seen:
            seen.add(path)
            yield Path(path), int(line)


def violations(root):
    files = tracked(root)
    for path in files:
        if path.suffix in DATA:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            yield path, 1, "not UTF-8"
            continue
        for number, what in text_violations(path, text):
            yield path, number, what
    for path, number in source_violations(root, [path for path in files if path.suffix in SOURCES]):
        yield path, number, f"not as clang-format {VERSION} makes it; run .venv/bin/clang-format -i on it"


def main(arguments):
    root = Path(arguments[0] if arguments else Path(__file__).parent.parent).resolve()
    found = 0
    try:
        for path, number, what in violations(root):
            print(f"{path.relative_to(root)}:{number}: {what}")
            found += 1
    except SystemExit as error:
        print(error, file=sys.stderr)
        return 2
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
