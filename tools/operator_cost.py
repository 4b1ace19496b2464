#!/usr/bin/env python3
"""Shows what a new pointwise operator costs: applies docs/adding-an-operator.patch to a copy of the tree and counts.

    tools/operator_cost.py [ROOT] [--build]

Fails (exit 1) when the patch no longer applies, touches more than 4 files, adds more than 30 lines, removes any, or
when a line that it adds is not quoted in docs/adding-an-operator.md. With --build it also builds the changed copy and
runs the tests of the new operator.
"""
import sys

import patch_cost

MAX_FILES = 4
MAX_LINES = 30
TESTS = {test: "*softsign*:PointwiseForms.*:PointwiseRules.*" for test in ("lorry_ops_test", "lorry_autograd_test")}


def problems(root, scratch):
    patch_file = root / "docs" / "adding-an-operator.patch"
    patch = patch_file.read_text(encoding="utf-8")
    files = [line for line in patch.splitlines() if line.startswith("+++ ")]
    added, removed = patch_cost.added_lines(patch), patch_cost.removed_lines(patch)
    print(f"{patch_file.name}: {len(files)} files, {len(added)} lines added, {len(removed)} removed")
    if len(files) > MAX_FILES:
        yield f"{len(files)} files; expected at most {MAX_FILES}"
    if len(added) > MAX_LINES:
        yield f"{len(added)} lines; expected at most {MAX_LINES}"
    if removed:
        yield f"{len(removed)} lines removed; an operator adds"
    yield from patch_cost.not_shown(patch, root / "docs" / "adding-an-operator.md")
    yield from patch_cost.apply_to_copy(patch, root, scratch)


if __name__ == "__main__":
    sys.exit(patch_cost.main("operator_cost", problems, TESTS, sys.argv[1:]))
