#!/usr/bin/env python3
"""Writes tests/data/pytorch_values.json: the values of the left column of docs/pytorch.md, for the tests of that page.

    tests/peers/make_pytorch_values.py        (needs torch; the file is kept in the tree, so that the tests do not)

{title of the table: {code: its value as text, or null}}. Code that does not run, or has no value, is null and is
listed: it must be something that PyTorch cannot run on a CPU without other packages, or no code at all.
"""

import json
import os
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "docs"))
import page_code  # noqa: E402
import torch  # noqa: E402
import torch.utils.checkpoint  # noqa: E402

NAMES = {
    "bool": "bool",
    "uint8": "u8",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
}


def renamed(text):
    return re.sub(r"torch\.(\w+)", lambda m: NAMES[m[1]], text)


def shown(value):
    """As tests/docs/shown.h writes it."""
    if isinstance(value, torch.Tensor):
        return renamed(repr(value.detach()))
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(shown, value)) + "]"
    if isinstance(value, torch.dtype):
        return renamed(str(value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if isinstance(value, (bool, int, str)) else None


def run(code, scope):
    try:
        return shown(eval(compile(code, "page", "eval"), scope))
    except SyntaxError:
        exec(compile(code, "page", "exec"), scope)
        return None


def main():
    text = (ROOT / "docs" / "pytorch.md").read_text(encoding="utf-8")
    found = page_code.tables(text)
    setup = [code for table in found if table.setup for row in table.rows for code in row.left]
    beginning = next(block.code for block in page_code.blocks(text) if block.language == "python")
    os.chdir(tempfile.mkdtemp())
    values = {}
    for table in found:
        if table.setup:
            continue
        scope = {}
        for code in (beginning, *setup):
            exec(code, scope)
        torch.manual_seed(0)
        stored = values[table.title] = {}
        for row in table.rows:
            for code in row.left:
                value = None
                try:
                    value = run(code, scope)
                except Exception as error:
                    print(f"docs/pytorch.md:{row.line}: `{code}`: {type(error).__name__}: {error}")
                if code in stored and stored[code] != value:
                    raise SystemExit(f"docs/pytorch.md:{row.line}: `{code}` stands twice, with two values")
                stored[code] = value
    text = json.dumps(values, indent=1, ensure_ascii=False) + "\n"
    (ROOT / "tests" / "data" / "pytorch_values.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
