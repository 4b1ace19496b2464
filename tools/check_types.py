#!/usr/bin/env python3
"""Checks that no type has two definitions in one program (C++'s one definition rule), code for GPUs included.

    tools/check_types.py [ROOT]

Two files that define different types of one qualified name compile and link, and then share one of the two's functions.
Compilers see it only when they link with -flto -Wodr, and never in .cu files. This script reads namespaces, classes and
enumerations, and nothing else. Types in an unnamed namespace or in a function cannot clash.

The files of lorry/ are one program with those of each folder of tests/ (which see tests/support/), and with each file
elsewhere. Prints one line a clash, "path:line: what is wrong", and exits 1 when there is one.
"""
import re
import sys
from pathlib import Path

SOURCES = {".h", ".cpp", ".cu", ".cuh"}
FOLDERS = ("lorry", "tests", "bench", "examples", "tools")

# Comments, literals, preprocessor lines with their continuations, names, and single characters. Whatever else stands
# between is space.
TOKEN = re.compile(r"""
    (?P<skip>//[^\n]*|/\*.*?\*/)
  | (?P<text>R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+')
  | (?P<line>^[ \t]*\#(?:\\\n|[^\n])*)
  | (?P<number>\b\d[\w.']*)
  | (?P<name>[A-Za-z_]\w*|::)
  | (?P<other>\S)
""", re.VERBOSE | re.MULTILINE | re.DOTALL)
KEYS = {"struct", "class", "union", "enum"}


def without_brackets(tokens, opening, closing):
    """The tokens outside of brackets."""
    depth, outside = 0, []
    for token in tokens:
        if token == opening:
            depth += 1
        elif token == closing and depth:
            depth -= 1
        elif not depth:
            outside.append(token)
    return outside


def type_name(statement):
    """The name of the type that the tokens before a "{" begin to define, "" for one without a name, or None for
    anything else."""
    tokens = without_brackets(without_brackets(statement, "[", "]"), "(", ")")
    while tokens and tokens[0] == "template":
        depth = 0
        for at, token in enumerate(tokens):
            depth += (token == "<") - (token == ">")
            if at and not depth:
                break
        tokens = tokens[at + 1:]
    while tokens and tokens[0] in ("typedef", "static", "constexpr", "inline", "const", "extern"):
        tokens = tokens[1:]
    if not tokens or tokens[0] not in KEYS:
        return None
    tokens = tokens[1:]
    if tokens and tokens[0] in ("struct", "class"):  # of an enumeration
        tokens = tokens[1:]
    if "=" in without_brackets(tokens, "<", ">"):
        return None  # an initialised variable of an elaborated type
    name, depth = [], 0
    for token in tokens:
        depth += (token == "<") - (token == ">")
        if not depth and token in (":", "final"):
            break
        name.append(token)
    while len(name) > 1 and name[0] in ("alignas", "__align__", "__attribute__"):
        name = name[1:]
    return "".join(name)


def definitions(text):
    """(qualified name, line) of every type that the text defines, where another file could define it too."""
    scopes, statement, branches = [], [], []  # a scope is a name, "" to look through, or None for what is nobody else's
    for match in TOKEN.finditer(text):
        kind, token = match.lastgroup, match.group()
        if match.group("line") is not None:
            directive = token.lstrip().lstrip("#").lstrip()
            if directive.startswith("if"):
                branches.append((list(scopes), list(statement)))
            elif directive.startswith(("else", "elif")) and branches:
                scopes, statement = list(branches[-1][0]), list(branches[-1][1])
            elif directive.startswith("endif") and branches:
                branches.pop()
        elif match.group("skip") is not None or kind is None:
            continue
        elif token == "{":
            words = [word for word in statement if word != "inline"]
            if words[:1] == ["namespace"]:
                scopes.append("".join(words[1:]) or None)
            elif words[:1] == ["extern"] and len(words) == 2:
                scopes.append("")
            else:
                name = type_name(statement)
                if name and None not in scopes:
                    line = text.count("\n", 0, match.start()) + 1
                    yield "::".join([scope for scope in scopes if scope] + [name]), line
                scopes.append(name or None)
            statement = []
        elif token == "}":
            if scopes:
                scopes.pop()
            statement = []
        elif token == ";":
            statement = []
        elif token == ":" and statement in (["public"], ["private"], ["protected"]):
            statement = []
        else:
            statement.append(token)


def program_of(path):
    """The files that are linked together: None for those of every program."""
    if path.parts[0] == "lorry" or path.parts[:2] == ("tests", "support"):
        return None
    return "/".join(path.parts[:2]) if path.parts[0] == "tests" else path.as_posix()


def main(root):
    known, clashes = {}, 0
    for folder in FOLDERS:
        for path in sorted(Path(root, folder).rglob("*")):
            if path.suffix not in SOURCES or not path.is_file():
                continue
            path = path.relative_to(root)
            for name, line in definitions(Path(root, path).read_text()):
                others = known.setdefault(name, [])
                for other, other_line in others:
                    programs = {program_of(path), program_of(other)} - {None}
                    if other != path and len(programs) < 2:
                        print(f"{path}:{line}: {name} is defined in {other}:{other_line} too; "
                              "rename one, or move it into an unnamed namespace")
                        clashes += 1
                        break
                others.append((path, line))
    return 1 if clashes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "."))
