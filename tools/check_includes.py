#!/usr/bin/env python3
"""Checks the structure of the tree: rooms include and link only rooms above them, the folders of a room only what is
named here, no file includes itself by way of others, one file launches on GPUs, every kernel waits for the one before
it, and no file outgrows its subject.

    tools/check_includes.py [ROOT]

Prints one line a violation, "path:line: what is wrong", and exits 1 when there is one.
"""
import re
import sys
from pathlib import Path

# The rooms, top to bottom: a room sees itself and what stands before it.
ROOMS = ("base layout device memory formula tensor kernels ops autograd foreach trace compile "
         "optim nn io parallel replay generate profile bench cli").split()
# A formula must compile anywhere, device code and run-time compilers included, so it sees the portability macros only.
FORMULA_MAY_INCLUDE = {"lorry/base/macros.h"}
# The command and its suites: no part of the library, so nothing else may build on them.
ONLY_FROM_CLI = {"bench", "cli"}

# Inside a room: a file under the first folder may not include one under the second. Backends share what stands in
# kernels/common, which knows neither, and so do the contracts beside it.
APART = (
    ("lorry/kernels/cuda/", "lorry/kernels/cpu/"),
    ("lorry/kernels/cpu/", "lorry/kernels/cuda/"),
    ("lorry/kernels/common/", "lorry/kernels/cpu/"),
    ("lorry/kernels/common/", "lorry/kernels/cuda/"),
)

# A family of kernels in a backend, lorry/kernels/<backend>/<family>/, may include itself, what families share (the
# folders common/ and the backend's own table.h), and its contract, kernels/<family>.h. Where it builds on another
# family, that stands here.
FAMILY = re.compile(r"lorry/kernels/(cpu|cuda)/(\w+)/")
FAMILIES_BUILD_ON = {
    ("cpu", "attention"): {"matmul", "random", "rowwise"},  # blocks of products, dropout by tile, one head by rows
    ("cpu", "fused"): {"pointwise"},  # the block functions of pointwise rows
    ("cpu", "list"): {"pointwise"},  # the same
    ("cpu", "paged"): {"attention"},  # vector loops over a row of scores
    ("cpu", "matmul"): {"reduce"},  # a row times a column
    ("cpu", "optim"): {"list", "pointwise", "random"},  # steps over lists, block functions, rounding that draws numbers
    ("cpu", "random"): {"sort"},  # permutations by sorted words
    ("cpu", "quantize"): {"optim"},  # vector loops over a block of 8-bit codes
    ("cuda", "fused"): {"pointwise", "rowwise"},  # how formulas are evaluated, steps over held rows
    ("cuda", "reduce"): {"rowwise"},  # teams that hold rows
    ("cuda", "indexing"): {"sort"},  # positions in order
    ("cuda", "list"): {"pointwise"},
    ("cuda", "matmul"): {"paged", "reduce", "rowwise"},  # products of rows take in norms and stores to a cache; dots
    ("cuda", "optim"): {"fused", "list"},  # kernels compiled at run time, steps over lists
    ("cuda", "random"): {"sort"},  # draws without replacement
}

# What a folder of another room may include of its room beside itself. Folders that are not here have no limit. Headers
# of ops/dispatch/ stand below every operator; its sources call them.
FOLDERS_MAY_USE = {
    "lorry/ops/dispatch/": ("lorry/ops/array.h", "lorry/ops/creation.h"),
    "lorry/autograd/rules/": ("lorry/autograd/rules.h", "lorry/autograd/grad_mode.h"),
    "lorry/optim/rules/": ("lorry/optim/optimizer_for.h", "lorry/optim/memory.h"),
    "lorry/optim/execution/": ("lorry/optim/execution.h", "lorry/optim/memory.h", "lorry/optim/family.h",
                               "lorry/optim/rules/rule.h"),
}
SOURCES_MAY_ALSO_USE = {
    "lorry/ops/dispatch/": ("lorry/ops/internal.h", "lorry/ops/ops.h", "lorry/ops/pointwise_call.h"),
}

# What reaches a GPU's streams goes through one file, which tells observers of it (lorry/device/launches.h). The other
# one measures what a launch costs without it.
LAUNCHES = re.compile(r"\bcuda(?:Launch(?:Kernel|Cooperative|HostFunc)|GraphLaunch|Memcpy|Memset)\w*\(|<<<\s*\w")
# Kernels that first fetch what is only a hint, and kernels of tests that are launched otherwise.
KERNELS_THAT_BEGIN_OTHERWISE = {
    "lorry/kernels/cuda/matmul/linear_rows_kernel.h": {"multiply_rows"},
    "lorry/kernels/cuda/paged/paged.cu": {"paged_rows", "paged_tiles"},
    "tests/device/launch_attributes_test.cu": {"write_late"},
    "tests/kernels/branch_free_test.cu": {"roots", "moderate_roots", "quotients"},
    "tests/ops/late_copy.cu": {"copy_by_and_by", "copy_at_once"},
}
EARLY_LOADS = re.compile(r"__restrict__|\b__ldg\(|\bld\.global\.nc\b")
MAY_LAUNCH = {"lorry/device/cuda/launch.cpp", "lorry/profile/raw_launch.cu"}

# A user's rule is compiled by nvcc into kernels of its own; the bench measures plans of the library that no table has.
MAY_USE_BACKENDS = {"lorry/optim/custom.h", "lorry/bench/matmul_ceiling.cpp"}

MAX_LINES = 600
INCLUDED = {".h", ".cuh", ".inc"}
SOURCES = {".h", ".cpp", ".cu", ".cuh", ".def", ".inc"}
SOURCE_FOLDERS = ("lorry", "tests", "bench", "examples", "tools")

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
LINK = re.compile(r"\blorry(?:::|_)(%s)\b" % "|".join(ROOMS))


def room_order_violation(room, other):
    """Why `room` may not use `other`, or None."""
    if other not in ROOMS:
        return f"'{other}' is not a room"
    if other in ONLY_FROM_CLI and room not in (other, "cli"):
        return f"{room} may not use {other}: nobody but the command does"
    if ROOMS.index(other) > ROOMS.index(room):
        return f"{room} may not use {other}, which stands below it"
    return None


def family_violation(source, target):
    """Why the file `source` of a family of kernels may not include `target`, or None."""
    own, other = FAMILY.match(source), FAMILY.match(target)
    if not own:
        return None
    backend, family = own.groups()
    contract = re.fullmatch(r"lorry/kernels/(\w+)\.h", target)
    if contract and family not in ("common", contract[1]):
        return f"the family {family} has a contract of its own, kernels/{family}.h"
    if other and other[2] not in {family, "common"} | FAMILIES_BUILD_ON.get((backend, family), set()):
        return f"{backend}/{family} does not build on {backend}/{other[2]}; FAMILIES_BUILD_ON says what it does"
    return None


def folder_violation(source, target):
    """Why the file `source` of a folder with limits may not include `target` of the same room, or None."""
    room = source.split("/")[1]
    for folder, allowed in FOLDERS_MAY_USE.items():
        if not source.startswith(folder) or not target.startswith(f"lorry/{room}/") or target.startswith(folder):
            continue
        if not source.endswith(".h"):
            allowed += SOURCES_MAY_ALSO_USE.get(folder, ())
        if target not in allowed:
            return f"{folder[:-1]} may use {', '.join(name.removeprefix('lorry/') for name in allowed)} of its room"
    return None


def apart_violation(source, target):
    """Why the file `source` may not include `target` of the same room, or None."""
    for folder, other in APART:
        if source.startswith(folder) and target.startswith(other):
            return f"{folder[:-1]} may not use {other[:-1]}"
    contract = re.fullmatch(r"lorry/kernels/\w+\.h", source)
    if contract and re.match(r"lorry/kernels/(cpu|cuda)/", target):
        return "a contract may not use a backend"
    if not source.startswith("lorry/kernels/") and source.startswith("lorry/") and source not in MAY_USE_BACKENDS:
        if re.match(r"lorry/kernels/(cpu|cuda)/", target):
            return "backends are reached by their tables, lorry/kernels/backend.h"
    return None


def include_violations(path, room, text, source):
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, target = match.groups()
        parts = target.split("/")
        if parts[0] != "lorry":
            if quote == '"' and ("/" not in target or (path.parent / target).exists()):
                yield number, f'include "{target}" by its full path, lorry/<room>/<file>'
            continue
        if len(parts) < 3:
            yield number, f"include '{target}' names no room"
        elif reason := room_order_violation(room, parts[1]):
            yield number, f"include '{target}': {reason}"
        elif reason := apart_violation(source, target) or family_violation(source, target):
            yield number, f"include '{target}': {reason}"
        elif reason := folder_violation(source, target):
            yield number, f"include '{target}': {reason}"
        elif room == "formula" and parts[1] != "formula" and target not in FORMULA_MAY_INCLUDE:
            yield number, f"include '{target}': formulas include nothing but formulas"


def launch_violations(text, source):
    if source in MAY_LAUNCH:
        return
    for number, line in enumerate(text.splitlines(), 1):
        if LAUNCHES.search(line.split("//")[0]):
            yield number, "launches, copies and fills go through lorry/device/cuda/launch.h"


def function_at(text, at):
    """(name, where the body begins after its brace) of the function whose head is at `at`; None for a declaration."""
    depth, name = 0, ""
    for i in range(at, len(text)):
        if text[i] == "(" and depth == 0:
            name = re.search(r"\w*\s*$", text[:i])[0].strip()
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0 and text[i] in ';"{':
            return (name, i + 1) if text[i] == "{" else None
    return None


def kernel_violations(text, source):
    """Kernels are launched before the work in front of them ends (lorry/device/cuda/launch.h), and must wait for it."""
    if source in MAY_LAUNCH or not source.startswith("lorry/") and not source.endswith(".cu"):
        return
    named = re.sub(r"{(\w+)}", r" \1 ", text)  # in the source of a kernel that is made at run time
    for kernel in re.finditer(r"\b__global__\b", named):
        name, begin = function_at(named, kernel.start()) or ("", len(named))
        body = named[begin:].lstrip("{ \n")
        may_begin_otherwise = name in KERNELS_THAT_BEGIN_OTHERWISE.get(source, ())
        if begin < len(named) and not body.startswith(("lorry::cuda::begin_programmatic();", "}")) \
                and not may_begin_otherwise:
            yield named.count("\n", 0, kernel.start()) + 1, "a kernel begins with lorry::cuda::begin_programmatic();"
    if source.startswith("lorry/kernels/cuda/"):
        for number, line in enumerate(text.splitlines(), 1):
            if EARLY_LOADS.search(line.split("//")[0]):
                yield number, "this may be loaded before begin_programmatic(); use a plain pointer"


def link_violations(room, text):
    for number, line in enumerate(text.splitlines(), 1):
        for other in LINK.findall(line.split("#")[0]):
            if reason := room_order_violation(room, other):
                yield number, f"link: {reason}"


def cycles(includes):
    """Yields (file, line, what) for each include that closes a circle. includes: {file: [(line, file included)]}."""
    done = set()

    def visit(file, way):
        for line, target in includes.get(file, ()):
            if target in way:
                yield file, line, "includes itself: " + " > ".join([*way[way.index(target) :], target])
            elif target not in done:
                yield from visit(target, [*way, target])
        done.add(file)

    for file in sorted(includes):
        if file not in done:
            yield from visit(file, [file])


def included_files(text):
    for number, line in enumerate(text.splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match[2]


def room_of(path, root):
    """The room a file belongs to, or None for files outside the rooms (lorry/CMakeLists.txt among them)."""
    parts = path.relative_to(root).parts
    return parts[1] if parts[0] == "lorry" and len(parts) > 2 else None


def violations(root):
    includes = {}
    for folder in SOURCE_FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            is_list = path.name == "CMakeLists.txt" or path.suffix == ".cmake"
            if not path.is_file() or not (is_list or path.suffix in SOURCES | {".py"}):
                continue
            text = path.read_text(encoding="utf-8")
            lines = text.count("\n")
            if lines > MAX_LINES:
                yield path, lines, f"{lines} lines; more than {MAX_LINES} means a second subject"
            source = path.relative_to(root).as_posix()
            if path.suffix in SOURCES:
                for number, what in kernel_violations(text, source):
                    yield path, number, what
            room = room_of(path, root)
            if room is None:
                continue
            if room not in ROOMS:
                yield path, 1, f"'{room}' is not a room"
                continue
            if path.suffix in INCLUDED:
                includes[source] = list(included_files(text))
            found = link_violations(room, text) if is_list else include_violations(path, room, text, source)
            for number, what in found:
                yield path, number, what
            for number, what in launch_violations(text, source):
                yield path, number, what
    for file, number, what in cycles(includes):
        yield root / file, number, what


def main(arguments):
    root = Path(arguments[0] if arguments else Path(__file__).parent.parent).resolve()
    if not (root / "lorry").is_dir():
        print(f"check_includes: no folder 'lorry' in {root}", file=sys.stderr)
        return 2
    found = list(violations(root))
    for path, number, what in found:
        print(f"{path.relative_to(root)}:{number}: {what}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
