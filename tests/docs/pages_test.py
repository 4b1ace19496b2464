#!/usr/bin/env python3
"""What pages claim beside their code, and what make_page_tests.py refuses.

pages_test.py ROOT
"""

import re
import sys
import tempfile
import unittest
from pathlib import Path

import make_page_tests
import page_code

NOT_THERE = "| not there | instead |"


def public_names(root, header="lorry/lorry.h", seen=None):
    """Every word of the code of lorry.h and of what it includes."""
    seen = set() if seen is None else seen
    if header in seen:
        return set()
    seen.add(header)
    text = (root / header).read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", re.sub(r"//[^\n]*", "", text)))
    for include in re.findall(r'#include "(lorry/[^"]+)"', text):
        words |= public_names(root, include, seen)
    return words


class NotThere(unittest.TestCase):
    def setUp(self):
        self.names = public_names(ROOT)
        text = (ROOT / "docs" / "pytorch.md").read_text(encoding="utf-8")
        self.rows = page_code.tables(text, NOT_THERE)[0].rows

    def test_the_headers_have_none_of_the_names_on_the_left(self):
        self.assertGreater(len(self.rows), 20)
        self.assertEqual([name for row in self.rows for name in row.left if {name, name + "_"} & self.names], [])

    def test_the_headers_have_the_names_on_the_right(self):
        right = [code for row in self.rows for code in row.right]
        self.assertEqual([code for code in right if not set(re.findall(r"\w+", code)) <= self.names], [])


class There(unittest.TestCase):
    def test_the_headers_have_the_operators_and_layers_of_the_readme(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        named = [code for row in page_code.tables(text, "| there is | |")[0].rows for code in row.right]
        self.assertGreater(len(named), 80)
        self.assertEqual([name for name in named if name not in public_names(ROOT)], [])


def anchors(text):
    """What headings of a page are linked by."""
    headings = [line.lstrip("# ") for line in page_code.without_blocks(text) if line.startswith("#")]
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


class Links(unittest.TestCase):
    def test_links_to_files_and_headings_lead_somewhere(self):
        broken = []
        for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
            text = "\n".join(page_code.without_blocks(page.read_text(encoding="utf-8")))
            text = re.sub(r"`[^`\n]*`", "", text)
            for file, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
                target = page.parent / file if file else page
                if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
                    broken.append(f"{page.name}: {file}#{anchor}")
        self.assertEqual(broken, [])


class Refusals(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name, text in {
            "examples/a.cpp": "int main() {}\n",
            "lorry/a.h": "int a;\nint b;\n",
            "tests/data/pytorch_values.json": '{"Sums": {"1 + 1": "2", "f()": null}}',
        }.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)

    def source(self, text):
        (self.root / "page.md").write_text(text)
        return make_page_tests.Page(self.root, "page.md").source()

    def refused(self, text, message):
        with self.assertRaisesRegex(SystemExit, message):
            self.source(text)

    def test_statements_have_a_test_and_their_lines(self):
        source = self.source("# Page\n```cpp\n#include <map>\nf();\n```\n```cpp continues\ng();\n```\n")
        self.assertIn("#include <map>\n", source)
        self.assertIn('TEST_F(page_page, code_of_line_3) {\n#line 3 "page.md"\n\nf();\n#line 7 "page.md"\ng();\n}\n',
                      source)

    def test_declarations_stand_outside_functions(self):
        source = self.source("```cpp global\nstruct A {};\n```\n")
        self.assertIn('class page_page : public lorry::docs::Page {};\n\n#line 2 "page.md"\nstruct A {};\n', source)

    def test_a_program_must_be_an_example(self):
        self.source("```cpp program\nint main() {}\n```\n")
        self.refused("```cpp program\nint main() { }\n```\n", "page.md:2: the program is no file of examples")

    def test_an_excerpt_must_be_in_its_file_in_that_order(self):
        self.source("```cpp excerpt=lorry/a.h\nint a;\nint  b;  // spaces and comments are free\n```\n")
        self.refused("```cpp excerpt=lorry/a.h\nint b;\nint a;\n```\n", "lorry/a.h does not have.*inta;")

    def test_unknown_words_and_open_blocks_are_refused(self):
        self.refused("```cpp sketch\nf();\n```\n", "unknown word 'sketch'")
        self.refused("```cpp continues\nf();\n```\n", "no block to continue")
        self.refused("```cpp\nf();\n", "does not end")

    def test_both_columns_are_compared_where_both_have_a_value(self):
        table = "## Sums\n| PyTorch | Lorry |\n|---|---|\n| `1 + 1` | `1 + 1` |\n| `f()` | `f()`, `h();` |\n"
        source = self.source(table)
        self.assertIn("TEST_F(page_page, sums) {", source)
        self.assertIn('EXPECT_PRED2(lorry::docs::same, lorry::docs::shown(1 + 1), "2");', source)
        self.assertIn("static_cast<void>(f());\n  h();", source)
        self.refused(table.replace("| `1 + 1` | ", "| `1 + 2` | "), "does not know `1 \\+ 2`")

    def test_bars_in_code_do_not_end_a_cell(self):
        row = page_code.tables("| PyTorch | Lorry |\n|---|---|\n| `a \\| b` | `c` |\n")[0].rows[0]
        self.assertEqual((row.left, row.right), (["a | b"], ["c"]))


if __name__ == "__main__":
    ROOT = Path(sys.argv.pop(1))
    unittest.main()
