"""The check of the form must fail on every kind of violation: each test plants one in an otherwise sound tree."""
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "check_format.py"
REAL = ROOT / ".venv" / "bin" / "clang-format"

# Stands in for clang-format: a line that says "ugly" is one that it would change.
STAND_IN = """#!{python}
import sys
if sys.argv[1:] == ["--version"]:
    sys.exit(print("clang-format version {version} (somewhere)"))
found = [(path, i) for path in sys.argv[3:] for i, line in enumerate(open(path), 1) if "ugly" in line]
for path, i in found:
    print(f"{{path}}:{{i}}:3: error: code should be clang-formatted [-Wclang-format-violations]", file=sys.stderr)
sys.exit(bool(found))
"""

SOUND = {
    "lorry/a.h": "#pragma once\n",
    "tools/a.py": "x" * 120 + "\n",
    "data/a.json": "x" * 200,
    "docs/a.svg": "x" * 200 + "  \n",
}


@unittest.skipUnless(shutil.which("git"), "there is no git")
class CheckFormat(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        subprocess.run(["git", "init", "-q", self.root], check=True)
        for name, text in SOUND.items():
            self.write(name, text)
        self.stand_in("14.0.6")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        subprocess.run(["git", "-C", self.root, "add", name], check=True)

    def stand_in(self, version):
        path = self.root / ".venv/bin/clang-format"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STAND_IN.format(python=sys.executable, version=version))
        path.chmod(0o755)

    def check(self):
        done = subprocess.run([sys.executable, SCRIPT, self.root], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def assert_sound(self, name, text):
        self.write(name, text)
        self.assertEqual(self.check(), (0, ""))

    def assert_refused(self, name, text, *said):
        self.write(name, text)
        status, output = self.check()
        self.assertEqual(status, 1, output)
        for line in said:
            self.assertIn(f"{name}:{line}", output)

    def test_a_sound_tree_passes(self):
        self.assertEqual(self.check(), (0, ""))

    def test_long_lines_are_refused(self):
        self.assert_refused("tools/run", "\n" + "x y " * 31 + "z\n", "2: 125 columns; at most 120")

    def test_columns_are_counted_not_bytes(self):
        self.assert_sound("tools/a.py", "é" * 120 + "\n")

    def test_blanks_at_the_end_are_refused(self):
        self.assert_refused("lorry/a.h", "\nint a; \n\t\n", "2: blanks", "3: blanks")

    def test_a_last_line_without_an_end_is_refused(self):
        self.assert_refused("Makefile", "all:\n\ttrue", "2: no newline")

    def test_what_is_not_text_is_refused(self):
        self.assert_refused("tools/a.txt", b"\xff\xfe\n", "1: not UTF-8")

    def test_files_that_git_does_not_know_are_nobodys_business(self):
        (self.root / "notes.txt").write_text("x " * 100)
        self.assertEqual(self.check(), (0, ""))

    def test_prose_of_a_page_is_wrapped(self):
        self.assert_refused("docs/a.md", "Short.\n\n" + "a word " * 20 + "\n", "3: 140 columns")
        self.assert_refused("docs/a.md", "- see [this one](" + "x" * 120 + ") and more\n", "1: ")
        self.assert_refused("docs/a.md", "```cpp\n" + "f(); " * 30 + "g();\n```\n", "2: 154 columns")

    def test_what_cannot_be_broken_may_be_long(self):
        long = "x" * 120
        self.assert_sound("docs/a.md", f"| a | {long} |\n\n- [a link of words](https://{long}).\n")
        self.assert_sound("docs/a.md", f"```\n{long} {long}  \n```\n")

    def test_code_after_quoted_output_is_code(self):
        self.assert_refused("docs/a.md", "```\nout  \n```\n\n```cpp\nf();  \n```\n", "6: blanks")

    def test_a_patch_has_one_column_more(self):
        self.assert_sound("docs/a.patch", "+" + "x" * 120 + "\n \n")
        self.assert_refused("docs/a.patch", "+" + "x" * 121 + "\n", "1: 122 columns; at most 121")

    def test_each_source_that_clang_format_would_change_is_told_once(self):
        self.write("lorry/b.cu", "ugly\nugly\n")
        self.assert_refused("lorry/a.cpp", "\nugly\n", "2: not as clang-format 14.0.6 makes it")
        self.assertEqual(self.check()[1].count("lorry/b.cu"), 1)

    def test_without_that_clang_format_nothing_is_claimed(self):
        self.stand_in("15.0.7")
        self.assertEqual(self.check()[0], 2)
        (self.root / ".venv/bin/clang-format").unlink()
        status, output = self.check()
        self.assertEqual(status, 2)
        self.assertIn("run tools/install-deps checks", output)

    def test_outside_of_git_nothing_is_claimed(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("git knows no files", done.stderr)

    @unittest.skipUnless(REAL.exists(), "tools/install-deps checks has not been run")
    def test_the_real_one_is_understood(self):
        (self.root / ".venv/bin/clang-format").unlink()
        (self.root / ".venv/bin/clang-format").symlink_to(REAL)
        self.write(".clang-format", (ROOT / ".clang-format").read_text())
        self.assertEqual(self.check(), (0, ""))
        self.assert_refused("lorry/a.cpp", "int f();\nint  g( );\n", "2: not as clang-format")


if __name__ == "__main__":
    unittest.main()
