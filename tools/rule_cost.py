#!/usr/bin/env python3
"""Shows what a new optimizer costs: applies docs/adding-an-optimizer.patch to a copy of the tree and counts.

    tools/rule_cost.py [ROOT] [--build]

Fails (exit 1) when the patch no longer applies, touches more than 3 files beside the tests or more than a line of
these, replaces more than the ends of two lists, or when a line that it adds is not quoted in
docs/adding-an-optimizer.md. With --build it also builds the changed copy and runs the tests of all rules."""
import re
import sys

import patch_cost

MAX_FILES = 3
MAX_TEST_LINES = 1
MAX_REPLACED = 2  # lists whose last line goes on
TESTS = {"lorry_optim_test": "OptimKernel.*:Settings.*:Optimizers.*:Values.*:Rules.*"}


def problems(root, scratch):
    patch_file = root / "docs" / "adding-an-optimizer.patch"
    patch = patch_file.read_text(encoding="utf-8")
    parts = {re.search(r"^\+\+\+ b/(\S+)", part, re.M)[1]: part
             for part in re.split(r"^(?=--- )", patch, flags=re.M)[1:]}
    tests = [name for name in parts if name.startswith("tests/")]
    files = [name for name in parts if name not in tests]
    test_lines = sum(len(patch_cost.added_lines(parts[name])) for name in tests)
    added, replaced = patch_cost.added_lines(patch), patch_cost.removed_lines(patch)
    print(f"{patch_file.name}: {len(files)} files, {len(added)} lines added, {len(replaced)} replaced, "
          f"{test_lines} of them in tests")
    if len(files) > MAX_FILES:
        yield f"{len(files)} files; expected at most {MAX_FILES}"
    if test_lines > MAX_TEST_LINES:
        yield f"{test_lines} lines of tests; expected at most {MAX_TEST_LINES}"
    if len(replaced) > MAX_REPLACED:
        yield f"{len(replaced)} lines replaced; expected at most {MAX_REPLACED}"
    yield from patch_cost.not_shown(patch, root / "docs" / "adding-an-optimizer.md")
    yield from patch_cost.apply_to_copy(patch, root, scratch)


if __name__ == "__main__":
    sys.exit(patch_cost.main("rule_cost", problems, TESTS, sys.argv[1:]))
