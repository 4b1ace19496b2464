#!/usr/bin/env python3
"""Shows what a new optimizer costs: applies docs/adding-an-optimizer.patch to a copy of the tree and counts.

    tools/rule_cost.py [ROOT] [--build]

Fails (exit 1) when the patch no longer applies, touches more than 3 files beside the tests or more than a line of
these, replaces more than the ends of two lists, or when a line that it adds is not quoted in docs/adding-an-
optimizer.md. With --build it also builds the changed copy and runs the tests of all rules."""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from operator_cost import PARTS, added_lines, apply

MAX_FILES = 3
MAX_TEST_LINES = 1
MAX_REPLACED = 2  # lists whose last line goes on


def problems(root, scratch):
    patch_file = root / "docs" / "adding-an-optimizer.patch"
    patch = patch_file.read_text(encoding="utf-8")
    parts = {re.search(r"^\+\+\+ b/(\S+)", part, re.M)[1]: part
             for part in re.split(r"^(?=--- )", patch, flags=re.M)[1:]}
    tests = [name for name in parts if name.startswith("tests/")]
    files = [name for name in parts if name not in tests]
    test_lines = sum(len(added_lines(parts[name])) for name in tests)
    replaced = [line for line in patch.splitlines() if line.startswith("-") and not line.startswith("---")]
    print(f"{patch_file.name}: {len(files)} files, {len(added_lines(patch))} lines added, {len(replaced)} replaced, "
          f"{test_lines} of them in tests")
    if len(files) > MAX_FILES:
        yield f"{len(files)} files; expected at most {MAX_FILES}"
    if test_lines > MAX_TEST_LINES:
        yield f"{test_lines} lines of tests; expected at most {MAX_TEST_LINES}"
    if len(replaced) > MAX_REPLACED:
        yield f"{len(replaced)} lines replaced; expected at most {MAX_REPLACED}"
    page = (root / "docs" / "adding-an-optimizer.md").read_text(encoding="utf-8")
    for line in added_lines(patch):
        if line not in page:
            yield f"docs/adding-an-optimizer.md does not show: {line.strip()}"
    for part in PARTS:
        source = root / part
        if source.is_dir():
            shutil.copytree(source, scratch / part)
        elif source.exists():
            shutil.copy(source, scratch / part)
    yield from apply(patch, scratch)


def build(scratch):
    folder = scratch / "build"
    run = [str(folder / "tests" / "lorry_optim_test"),
           "--gtest_filter=OptimKernel.*:Settings.*:Optimizers.*:Values.*:Rules.*"]
    for step in (["cmake", "-S", str(scratch), "-B", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                  "-DLORRY_CUDA=OFF"],
                 ["cmake", "--build", str(folder), "--target", "lorry_optim_test"], run):
        print("+", " ".join(step), flush=True)
        if subprocess.run(step).returncode != 0:
            yield f"failed: {' '.join(step)}"
            return


def main(arguments):
    places = [a for a in arguments if a != "--build"]
    root = Path(places[0] if places else Path(__file__).parent.parent).resolve()
    with tempfile.TemporaryDirectory(prefix="lorry-rule-") as folder:
        found = list(problems(root, Path(folder)))
        if "--build" in arguments and not found:
            found = list(build(Path(folder)))
    for what in found:
        print(f"rule_cost: {what}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
