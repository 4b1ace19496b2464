#!/usr/bin/env python3
"""Shows what a change of a kind costs: applies each patch of docs/ to a copy of the tree, counts, and compares it with
the page that quotes it.

    tools/change_cost.py [ROOT] [--build] [NAME...]

NAME is one of the rows below; without one, all are checked. Fails (exit 1) when a patch no longer applies, touches
more files, adds more lines, replaces more or takes more lines of tests than its row allows, or when a line that it adds
is not quoted in its page. Files that scripts write (GENERATED) are in no patch and counted in no row. With --build it
also runs these scripts in the changed copy, builds it without CUDA, and runs the tests of the row.
"""
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Change:
    page: str  # docs/<page>.md quotes docs/<page>.patch
    files: int  # at most, those of tests among them
    lines: int  # added
    replaced: int  # of the tree's lines, such as the end of a list that goes on
    test_lines: int  # of the added lines, in tests/
    tests: dict  # {program: filter}
    patch: str = ""  # docs/<patch>.patch, where it is not called as the page


CHANGES = {
    "operator": Change("adding-an-operator", files=4, lines=8, replaced=0, test_lines=1,
                       tests={"lorry_ops_test": "*softsign*:PointwiseForms.*",
                              "lorry_autograd_test": "*softsign*:PointwiseRules.*",
                              "lorry_foreach_test": "ForeachNames.*:ForeachArguments.*"}),
    "coefficient": Change("adding-an-operator", patch="adding-an-operator-with-coefficients", files=7, lines=21,
                          replaced=0, test_lines=4,
                          tests={"lorry_ops_test": "*softshrink*:PointwiseForms.*:Undefined.*:Messages.*",
                                 "lorry_autograd_test": "*softshrink*:PointwiseRules.*",
                                 "lorry_foreach_test": "ForeachNames.*:ForeachArguments.*"}),
    "reduction": Change("adding-a-reduction", files=4, lines=8, replaced=0, test_lines=1,
                        tests={"lorry_ops_test": "*nansum*:reduce.*:Undefined.*:Messages.*",
                               "lorry_autograd_test": "*nansum*"}),
    "list": Change("adding-a-list-operator", files=2, lines=15, replaced=0, test_lines=0,
                   tests={"lorry_foreach_test": "ListReductions.*:AnnouncedLists.*:ForeachNorm.*"}),
    "kernel": Change("adding-a-list-kernel", files=4, lines=130, replaced=2, test_lines=0,
                     tests={"lorry_foreach_test": "ListReductions.*:AnnouncedLists.*:ForeachNorm.*"}),
    "dtype": Change("adding-a-dtype", files=1, lines=1, replaced=0, test_lines=0,
                    tests={"lorry_ops_test": "*", "lorry_io_test": "Safetensors*", "lorry_tensor_test": "DLPack*"}),
    "optimizer": Change("adding-an-optimizer", files=4, lines=80, replaced=2, test_lines=1,
                        tests={"lorry_optim_test": "OptimKernel.*:Settings.*:Optimizers.*:Values.*:Rules.*"}),
}

# {what no patch holds: the script that writes it}
GENERATED = {"docs/api.md": "tools/api_reference.py", "tests/face/public_names.txt": "tools/public_names.py"}
COPIED = ("CMakeLists.txt", "CMakePresets.json", "README.md", "bench", "cmake", "docs", "examples", "lorry", "tests",
          "tools")


def added_lines(patch):
    return [line[1:] for line in patch.splitlines() if line.startswith("+") and not line.startswith("+++")]


def removed_lines(patch):
    return [line[1:] for line in patch.splitlines() if line.startswith("-") and not line.startswith("---")]


def parts_of(patch):
    """{file: its part of the patch}."""
    parts = re.split(r"^(?=--- )", patch, flags=re.MULTILINE)[1:]
    return {re.search(r"^\+\+\+ b/(\S+)", part, re.MULTILINE)[1]: part for part in parts}


def place_of(old, lines, near):
    """Where the lines `old` stand in `lines`, as close to `near` as there is such a place; None when there is none."""
    places = [i for i in range(len(lines) - len(old) + 1) if lines[i : i + len(old)] == old]
    return min(places, key=lambda i: abs(i - near), default=None)


def apply(patch, root):
    """Applies a unified diff to the files under `root`; yields what does not fit. Here, because `patch` is not
    installed everywhere."""
    for name, part in parts_of(patch).items():
        header, *hunks = re.split(r"^(?=@@ )", part, flags=re.MULTILINE)
        path = root / name
        if header.startswith("--- /dev/null"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(added_lines(part)) + "\n", encoding="utf-8")
            continue
        if not path.exists():
            yield f"the patch does not apply: there is no {name}"
            continue
        lines = path.read_text(encoding="utf-8").split("\n")
        for hunk in hunks:
            head, *body = hunk.splitlines()
            body = [line for line in body if line[:1] in (" ", "+", "-")]
            old = [line[1:] for line in body if line[0] != "+"]
            at = place_of(old, lines, int(re.match(r"@@ -(\d+)", head).group(1)) - 1)
            if at is None:
                what = f"the patch does not apply to {name}: these lines do not follow each other there:"
                yield "\n".join([what, *old])
                break
            lines[at : at + len(old)] = [line[1:] for line in body if line[0] != "-"]
        path.write_text("\n".join(lines), encoding="utf-8")


def excesses(change, patch):
    """Prints what the patch costs; yields what is more than its row allows."""
    parts = parts_of(patch)
    added = added_lines(patch)
    test_lines = sum(len(added_lines(part)) for name, part in parts.items() if name.startswith("tests/"))
    replaced = len(removed_lines(patch))
    print(f"{change.patch or change.page}: {len(parts)} files, {len(added)} lines added, {test_lines} of them in "
          f"tests, {replaced} replaced")
    for name in sorted(GENERATED.keys() & parts):
        yield f"{name} is in the patch; expected it left to {GENERATED[name]}"
    for what, count, most in (("files", len(parts), change.files), ("lines added", len(added), change.lines),
                              ("lines of tests", test_lines, change.test_lines),
                              ("lines replaced", replaced, change.replaced)):
        if count > most:
            yield f"{count} {what}; expected at most {most}"


def not_shown(patch, page):
    """Yields the added lines that the page does not quote."""
    text = page.read_text(encoding="utf-8")
    for line in added_lines(patch):
        if line not in text:
            yield f"docs/{page.name} does not show: {line.strip()}"


def copy_tree(root, scratch):
    for part in COPIED:
        source = root / part
        if source.is_dir():
            shutil.copytree(source, scratch / part)
        elif source.exists():
            shutil.copy(source, scratch / part)


def build_and_run(scratch, tests):
    """Writes what scripts write, builds the programs of `tests` without CUDA and runs them; yields what fails."""
    folder = scratch / "build"
    steps = [[str(scratch / script)] for script in GENERATED.values()]
    steps += [["cmake", "-S", str(scratch), "-B", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
              "-DLORRY_CUDA=OFF"],
             ["cmake", "--build", str(folder), "--target", *tests]]
    steps += [[str(folder / "tests" / test), f"--gtest_filter={wanted}"] for test, wanted in tests.items()]
    for step in steps:
        print("+", " ".join(step), flush=True)
        if subprocess.run(step).returncode != 0:
            yield f"failed: {' '.join(step)}"
            return


def problems(change, root, build):
    patch = (root / "docs" / f"{change.patch or change.page}.patch").read_text(encoding="utf-8")
    found = [*excesses(change, patch), *not_shown(patch, root / "docs" / f"{change.page}.md")]
    with tempfile.TemporaryDirectory(prefix="lorry-change-") as folder:
        copy_tree(root, Path(folder))
        found += apply(patch, Path(folder))
        if build and not found:
            found += build_and_run(Path(folder), change.tests)
    return found


def main(arguments):
    build = "--build" in arguments
    names = [a for a in arguments if a in CHANGES]
    roots = [a for a in arguments if a not in CHANGES and a != "--build"]
    if len(roots) > 1 or any(not Path(r).is_dir() for r in roots):
        print(f"change_cost: no change or folder {' '.join(roots)}; expected {', '.join(CHANGES)}", file=sys.stderr)
        return 2
    root = Path(roots[0] if roots else Path(__file__).parent.parent).resolve()
    status = 0
    for name in names or CHANGES:
        for what in problems(CHANGES[name], root, build):
            print(f"change_cost: {name}: {what}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
