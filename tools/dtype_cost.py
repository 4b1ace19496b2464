#!/usr/bin/env python3
"""Shows what a new element type costs: applies docs/adding-a-dtype.patch to a copy of the tree and counts.

    tools/dtype_cost.py [ROOT] [--build]

Fails (exit 1) when the patch no longer applies, touches more than 8 files, or when a line that it adds is not quoted in
docs/adding-a-dtype.md. With --build it also builds the changed copy and runs the suites whose tables hold the dtypes.
"""
import sys

import patch_cost

MAX_FILES = 8
TESTS = {"lorry_ops_test": "*", "lorry_io_test": "Safetensors*", "lorry_tensor_test": "DLPack*"}


def problems(root, scratch):
    patch_file = root / "docs" / "adding-a-dtype.patch"
    patch = patch_file.read_text(encoding="utf-8")
    files = [line for line in patch.splitlines() if line.startswith("+++ ")]
    added, removed = patch_cost.added_lines(patch), patch_cost.removed_lines(patch)
    print(f"{patch_file.name}: {len(files)} files, {len(added)} lines added, {len(removed)} removed")
    if len(files) > MAX_FILES:
        yield f"{len(files)} files; expected at most {MAX_FILES}"
    yield from patch_cost.not_shown(patch, root / "docs" / "adding-a-dtype.md")
    yield from patch_cost.apply_to_copy(patch, root, scratch)


if __name__ == "__main__":
    sys.exit(patch_cost.main("dtype_cost", problems, TESTS, sys.argv[1:]))
