#!/usr/bin/env python3
"""Writes a C++ test file of the code of one page (page_code.py).

make_page_tests.py ROOT PAGE OUTPUT
"""

import json
import re
import sys
from pathlib import Path

import page_code

VALUES = "tests/data/pytorch_values.json"


def squeezed(line):
    return re.sub(r"\s+", "", re.sub(r"//.*", "", line))


class Page:
    def __init__(self, root, page):
        self.root, self.page = root, page
        self.name = re.sub(r"\W", "_", Path(page).stem)
        self.suite = f"{self.name}_page"  # a page may be called as a function is
        self.text = (root / page).read_text(encoding="utf-8")
        self.includes, self.out = [], []

    def fail(self, line, message):
        raise SystemExit(f"{self.page}:{line}: {message}")

    def code(self, block):
        """The block's lines; its own #includes go to the head of the file."""
        lines = []
        for line in block.code.splitlines():
            if line.startswith("#include"):
                self.includes.append(line)
                line = ""
            lines.append("" if line == "using namespace lorry;" else line)
        return [f'#line {block.line} "{self.page}"', *lines]

    def check_program(self, block):
        examples = (self.root / "examples").glob("*.cpp")
        if block.code not in [file.read_text(encoding="utf-8").rstrip("\n") for file in examples]:
            self.fail(block.line, "the program is no file of examples/")

    def check_excerpt(self, block, file):
        lines = iter(squeezed(line) for line in (self.root / file).read_text(encoding="utf-8").splitlines())
        for line in filter(None, map(squeezed, block.code.splitlines())):
            if not any(line in there for there in lines):
                self.fail(block.line, f"{file} does not have, after the lines before it: {line}")

    def open_test(self, line):
        self.out.append(f"TEST_F({self.suite}, code_of_line_{line}) {{")
        before = self.root / "tests" / "docs" / "before" / f"{self.name}.inc"
        if before.exists():
            self.out.append(f'#include "{before}"')

    def blocks(self):
        is_open = False

        def close():
            if is_open:
                self.out.append("}\n")

        for block in page_code.blocks(self.text):
            if block.language != "cpp":
                continue
            kind = block.words[0] if block.words else ""
            if kind == "continues":
                if not is_open:
                    self.fail(block.line, "there is no block to continue")
                self.out += self.code(block)
                continue
            if kind == "":
                close()
                is_open = True
                self.open_test(block.line)
                self.out += self.code(block)
            elif kind == "global":
                close()
                is_open = False
                self.out += self.code(block) + [""]
            elif kind == "program":
                self.check_program(block)
            elif kind.startswith("excerpt="):
                self.check_excerpt(block, kind.removeprefix("excerpt="))
            elif kind != "patch":
                self.fail(block.line, f"unknown word '{kind}' after ```cpp; tests/docs/page_code.py has the list")
        close()

    def rows(self, rows, values):
        for row in rows:
            self.out.append(f'#line {row.line} "{self.page}"')
            compared = {code: values.get(left) for code, left in page_code.pairs(row)}
            for code in row.right:
                if page_code.is_statement(code):
                    self.out.append(f"  {code}")
                elif compared[code] is None:
                    self.out.append(f"  static_cast<void>({code});")
                else:
                    text = json.dumps(compared[code])
                    self.out.append(f"  EXPECT_PRED2(lorry::docs::same, lorry::docs::shown({code}), {text});")

    def tables(self):
        found = page_code.tables(self.text)
        values = json.loads((self.root / VALUES).read_text(encoding="utf-8")) if found else {}
        setup = [row for table in found if table.setup for row in table.rows]
        for table in found:
            if table.setup:
                continue
            stored = values.get(table.title, {})
            for row in table.rows:
                for code, left in page_code.pairs(row):
                    if left is not None and left not in stored:
                        self.fail(row.line, f"{VALUES} does not know `{left}`; run tests/peers/make_pytorch_values.py")
            self.out.append(f"TEST_F({self.suite}, {re.sub(r'[^a-z]+', '_', table.title.lower()).strip('_')}) {{")
            self.rows(setup, {})
            self.rows(table.rows, stored)
            self.out.append("}\n")

    def source(self):
        self.blocks()
        self.tables()
        head = [
            f"// Made from {self.page} by tests/docs/make_page_tests.py.",
            '#include "docs/shown.h"',
            *dict.fromkeys(self.includes),
            "",
            "namespace {",
            "",
            "using namespace lorry;",
            "",
            f"class {self.suite} : public lorry::docs::Page {{}};",
            "",
        ]
        return "\n".join([*head, *self.out, "}  // namespace", ""])


def main():
    root, page, output = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(Page(root, page).source(), encoding="utf-8")


if __name__ == "__main__":
    main()
