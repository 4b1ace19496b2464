"""The script that counts what changes cost must notice each way in which a patch can be too much, or not fit."""
import dataclasses
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import change_cost  # noqa: E402

PATCH = """--- a/lorry/rows.def
+++ b/lorry/rows.def
@@ -1,3 +1,3 @@
 ROW(a)
-ROW(b)
+ROW(b, 2)
 ROW(c)
--- /dev/null
+++ b/tests/row_test.cpp
@@ -0,0 +1,2 @@
+first
+second
"""
FITS = change_cost.Change("adding-a-row", files=2, lines=3, replaced=1, test_lines=2, tests={})


class ChangeCost(unittest.TestCase):
    def problems(self, change=FITS, rows="ROW(a)\nROW(b)\nROW(c)\n", page="ROW(b, 2)\nfirst\nsecond\n"):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("lorry/rows.def", rows), ("docs/adding-a-row.patch", PATCH),
                               ("docs/adding-a-row.md", page)):
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return change_cost.problems(change, Path(folder), build=False)

    def test_a_change_within_its_limits_passes(self):
        self.assertEqual(self.problems(), [])

    def test_each_limit_is_held(self):
        for limit, said in (("files", "2 files; expected at most 1"), ("lines", "3 lines added; expected at most 2"),
                            ("replaced", "1 lines replaced; expected at most 0"),
                            ("test_lines", "2 lines of tests; expected at most 1")):
            less = dataclasses.replace(FITS, **{limit: getattr(FITS, limit) - 1})
            self.assertEqual(self.problems(less), [said])

    def test_a_line_that_the_page_does_not_quote_is_named(self):
        self.assertEqual(self.problems(page="ROW(b, 2)\nsecond\n"), ["docs/adding-a-row.md does not show: first"])

    def test_a_file_that_a_script_writes_is_no_part_of_a_patch(self):
        patch = PATCH + "--- a/docs/api.md\n+++ b/docs/api.md\n@@ -1,1 +1,1 @@\n-old\n+new\n"
        more = dataclasses.replace(FITS, files=3, lines=4, replaced=2)
        self.assertEqual(list(change_cost.excesses(more, patch)),
                         ["docs/api.md is in the patch; expected it left to tools/api_reference.py"])

    def test_the_patch_may_have_another_name_than_its_page(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "docs").mkdir()
            Path(folder, "lorry").mkdir()
            Path(folder, "docs/adding-a-second-row.patch").write_text(PATCH)
            Path(folder, "docs/adding-a-row.md").write_text("ROW(b, 2)\nfirst\nsecond\n")
            Path(folder, "lorry/rows.def").write_text("ROW(a)\nROW(b)\nROW(c)\n")
            change = dataclasses.replace(FITS, patch="adding-a-second-row")
            self.assertEqual(change_cost.problems(change, Path(folder), build=False), [])

    def test_a_patch_that_no_longer_applies_is_named(self):
        self.assertIn("does not apply to lorry/rows.def", self.problems(rows="ROW(a)\nROW(c)\n")[0])

    def test_a_patch_is_applied_where_its_lines_have_moved(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "lorry/rows.def")
            path.parent.mkdir()
            path.write_text("// new\n// new\nROW(a)\nROW(b)\nROW(c)\n")
            self.assertEqual(list(change_cost.apply(PATCH, Path(folder))), [])
            self.assertEqual(path.read_text(), "// new\n// new\nROW(a)\nROW(b, 2)\nROW(c)\n")
            self.assertEqual(Path(folder, "tests/row_test.cpp").read_text(), "first\nsecond\n")


if __name__ == "__main__":
    unittest.main()
