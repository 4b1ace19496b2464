#!/usr/bin/env python3
"""Shows what a new pointwise operator costs: applies docs/adding-an-operator.patch to a copy of the tree and counts.

    tools/operator_cost.py [ROOT] [--build]

Fails (exit 1) when the patch no longer applies, touches more than 4 files, adds more than 30 lines, removes any, or
when a line that it adds is not quoted in docs/adding-an-operator.md. With --build it also builds the changed copy and
runs the tests of the new operator.
"""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MAX_FILES = 4
MAX_LINES = 30
PARTS = ("CMakeLists.txt", "CMakePresets.json", "cmake", "lorry", "tests", "tools")


def added_lines(patch):
    return [line[1:] for line in patch.splitlines() if line.startswith("+") and not line.startswith("+++")]


def place_of(old, lines, near):
    """Where the lines `old` stand in `lines`, as close to `near` as there is such a place; None when there is none."""
    places = [i for i in range(len(lines) - len(old) + 1) if lines[i : i + len(old)] == old]
    return min(places, key=lambda i: abs(i - near), default=None)


def apply(patch, scratch):
    """Applies a unified diff to the files under `scratch`; yields what does not fit. Here, because `patch` is not
    installed everywhere."""
    for part in re.split(r"^(?=--- )", patch, flags=re.MULTILINE)[1:]:
        header, *hunks = re.split(r"^(?=@@ )", part, flags=re.MULTILINE)
        name = re.search(r"^\+\+\+ b/(\S+)", header, flags=re.MULTILINE).group(1)
        path = scratch / name
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


def problems(root, scratch):
    patch_file = root / "docs" / "adding-an-operator.patch"
    patch = patch_file.read_text(encoding="utf-8")
    files = [line for line in patch.splitlines() if line.startswith("+++ ")]
    added = added_lines(patch)
    removed = [line for line in patch.splitlines() if line.startswith("-") and not line.startswith("---")]
    print(f"{patch_file.name}: {len(files)} files, {len(added)} lines added, {len(removed)} removed")
    if len(files) > MAX_FILES:
        yield f"{len(files)} files; expected at most {MAX_FILES}"
    if len(added) > MAX_LINES:
        yield f"{len(added)} lines; expected at most {MAX_LINES}"
    if removed:
        yield f"{len(removed)} lines removed; an operator adds"
    page = (root / "docs" / "adding-an-operator.md").read_text(encoding="utf-8")
    for line in added:
        if line not in page:
            yield f"docs/adding-an-operator.md does not show: {line.strip()}"
    for part in PARTS:
        source = root / part
        if source.is_dir():
            shutil.copytree(source, scratch / part)
        elif source.exists():
            shutil.copy(source, scratch / part)
    yield from apply(patch, scratch)


def build(scratch):
    build_folder = scratch / "build"
    tests = ("lorry_ops_test", "lorry_autograd_test")
    steps = [["cmake", "-S", str(scratch), "-B", str(build_folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"],
             ["cmake", "--build", str(build_folder), "--target", *tests]]
    wanted = "--gtest_filter=*softsign*:PointwiseForms.*:PointwiseRules.*"
    steps += [[str(build_folder / "tests" / test), wanted] for test in tests]
    for step in steps:
        print("+", " ".join(step), flush=True)
        if subprocess.run(step).returncode != 0:
            yield f"failed: {' '.join(step)}"
            return


def main(arguments):
    wants_build = "--build" in arguments
    places = [a for a in arguments if a != "--build"]
    root = Path(places[0] if places else Path(__file__).parent.parent).resolve()
    with tempfile.TemporaryDirectory(prefix="lorry-operator-") as folder:
        found = list(problems(root, Path(folder)))
        if wants_build and not found:
            found = list(build(Path(folder)))
    for what in found:
        print(f"operator_cost: {what}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
