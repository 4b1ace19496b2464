#!/usr/bin/env python3
"""Lists the public names that lorry/lorry.h shows: what namespace `lorry` and the namespaces in it declare, and macros.
What stands in a namespace `detail` or `waits` is not public, and nothing of room `kernels` is.

    tools/public_names.py [COMPILER]            # rewrites tests/face/public_names.txt; the compiler is c++ or another
    tools/public_names.py [COMPILER] --check    # exits 1 and prints the difference when the headers show other names

Reads what the compiler's preprocessor makes of the headers, so that names made by macros are seen too. It knows the C++
of this tree, not C++ at large.
"""
import difflib
import re
import subprocess
import sys
from pathlib import Path

from header_entries import matching, without_constraint, without_template

ROOT = Path(__file__).resolve().parent.parent
LIST = "tests/face/public_names.txt"
HIDDEN = {"detail", "kernels", "waits", ""}  # namespaces; "" is one without a name


def preprocessed(compiler, root, source):
    """(text, macros): what `source` brings in from the folder lorry of root, with macros expanded."""
    command = [compiler, "-std=c++20", "-E", "-dD", "-I", root, "-x", "c++", "-"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, input=source, cwd="/").stdout
    ours, lines, macros = False, [], set()
    for line in output.splitlines():
        if match := re.match(r'# \d+ "([^"]*)"', line):
            ours = match[1].startswith(f"{root}/lorry/")
        elif ours and (match := re.match(r"#(define|undef) (\w+)", line)):
            (macros.add if match[1] == "define" else macros.discard)(match[2])
        elif ours and not line.startswith("#"):
            lines.append(line)
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"|(?<!\w)\'(?:[^\'\\\n]|\\.)*\'', '""', "\n".join(lines))
    return text, macros


def name_of(head):
    """The name that a declaration, without its body, declares in its namespace; None where it declares none."""
    head = re.sub(r"\[\[.*?\]\]|\balignas\([^)]*\)|__attribute__\s*\(\(.*?\)\)", "", re.sub(r"\s+", " ", head)).strip()
    if re.match(r"(extern )?template (class|struct)\b|template ?<>|static_assert|friend\b|using namespace|asm\b", head):
        return None
    head = without_constraint(without_template(head).strip())
    if match := re.match(r"(?:class|struct|union) (\w+)(<)?", head):
        if not re.search(r"[)=]", head.split(":")[0]):
            return None if match[2] else match[1]
    if match := re.match(r"enum (?:class |struct )?(\w+)|using (\w+) ?=|concept (\w+)|namespace (\w+) ?=", head):
        return next(filter(None, match.groups()))
    if match := re.match(r"using [\w:]*?(\w+)$|typedef .*?(\w+)$", head):
        return next(filter(None, match.groups()))
    if match := re.search(r"(::)?\boperator ?([^\w\s(]+|\(\)|[\w:&*]+)(?= ?\()", head):
        return None if match[1] else f"operator{match[2]}"
    plain = re.sub(r"\b(decltype|noexcept|explicit)\([^()]*\)", "", head)
    depth = 0
    for at, c in enumerate(plain):
        depth += (c == "<") - (c == ">" and plain[at - 1] != "-")
        if depth == 0 and c in "(=[{":
            break
    else:
        at = len(plain)
    match = re.search(r"(::)?(\w+)\s*(?:<.*>)?\s*$", plain[:at])
    if not match:
        raise SystemExit(f"public_names: no name is found in: {head[:200]}")
    return None if match[1] else match[2]


def declared(text):
    """The qualified names that a preprocessed text declares in public namespaces."""
    scopes, names, at = [], set(), 0
    blank = re.compile(r"[\s;]+")
    space = re.compile(r'(?:inline )?namespace\s*([\w:]*)\s*(?:__attribute__\s*\(\(.*?\)\)\s*)?\{|extern ""\s*\{')
    while True:
        if match := blank.match(text, at):
            at = match.end()
        if at == len(text):
            return names
        if text[at] == "}":
            scopes.pop()
            at += 1
        elif match := space.match(text, at):
            scopes.append(match[1] if match[1] is not None else "extern")
            at = match.end()
        else:
            start = at
            head, at = declaration(text, start)
            path = [part for scope in scopes for part in scope.split("::") if part != "extern"]
            if path[:1] == ["lorry"] and not HIDDEN & set(path) and (name := name_of(head)):
                names.add("::".join([*path, name]))
                if re.match(r"enum (?!class\b|struct\b)", head):  # its values are names of the namespace too
                    values = re.sub(r"=[^,]*", "", text[start + len(head) : at].strip().strip("{};"))
                    names |= {"::".join([*path, value]) for value in re.findall(r"\w+", values)}


def declaration(text, at):
    """(its text without bodies, where the next one begins)."""
    start, depth, head = at, 0, None
    while True:
        c = text[at]
        if depth == 0 and c == ";":
            return (text[start:at] if head is None else head), at + 1
        depth += (c in "([") - (c in ")]")
        if depth == 0 and c == "{":
            before = text[start:at].rstrip()
            end = matching(text, at)
            after = re.compile(r"\s*").match(text, end).end()
            constraint = re.search(r"\brequires\s*(\([^()]*\))?$", before)
            if not constraint and head is None:
                head = before
            at = end
            if not constraint and text[after] not in ";,({":
                return head, after
            continue
        at += 1


def names_of(compiler, root, source='#include "lorry/lorry.h"\n'):
    text, macros = preprocessed(compiler, root, source)
    return sorted(declared(text)) + sorted(macros)


def main(arguments):
    compiler = next((argument for argument in arguments if argument != "--check"), "c++")
    page = ROOT / LIST
    found = "".join(f"{name}\n" for name in names_of(compiler, ROOT))
    if "--check" not in arguments:
        page.write_text(found, encoding="utf-8")
        return 0
    stored = page.read_text(encoding="utf-8")
    difference = difflib.unified_diff(stored.splitlines(), found.splitlines(), LIST, "lorry/lorry.h", lineterm="", n=0)
    print("\n".join(difference))
    if stored != found:
        print("If that is meant, run tools/public_names.py.", file=sys.stderr)
    return stored != found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
