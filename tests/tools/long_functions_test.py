"""tools/long_functions.py finds functions of more than 60 lines of every form, and takes nothing else for one."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "long_functions.py"


def block(head, lines, indent="", end="}"):
    """A block of so many lines, from the first one of `head` to the brace that closes it."""
    filling = lines - head.count("\n") - 2
    return "\n".join([*head.split("\n"), *[indent + "  f();"] * filling, indent + end, ""])


class LongFunctions(unittest.TestCase):
    def found(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "a.cpp")
            path.write_text(text)
            done = subprocess.run([sys.executable, SCRIPT, path], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1 if done.stdout else 0, done.stderr)
        return [line.replace(f"{path}:", "").split() for line in done.stdout.splitlines()]

    def test_sixty_lines_are_allowed(self):
        self.assertEqual(self.found(block("void f() {", 60)), [])
        self.assertEqual(self.found(block("void f() {", 61)), [["61", "1:", "f"]])

    def test_every_form_of_function_is_found(self):
        for head, name in (
            ("template <class T>\nT Of<T>::operator()(T x) const {", "operator()"),
            ("Of::Of(int a,\n       int b)\n    : a_(a), b_{b} {", "Of::Of"),
            ("Of::Of(int a)\n    : a_(a),\n      // Why.\n      b_(f(a)) {", "Of::Of"),
            ("Of::~Of() {", "Of::~Of"),
            ("template <int N>\n__global__ void __launch_bounds__(256, 2)\n    kernel(int x) {", "kernel"),
            ("TEST(Of, works) {", "TEST"),
            ("const std::map<Op, Reference>& references() {", "references"),
            ("constexpr std::array<Forms, 3> kForms = [] {", "kForms"),
        ):
            text = block(head, 70)
            found = self.found("namespace a {\n\n" + text + "\n}  // namespace a\n")
            self.assertEqual(found, [["70", "3:", name]], head)

    def test_members_are_found_and_types_are_not(self):
        member = block("  int f() const {", 65, "  ")
        self.assertEqual(self.found("struct A {\n" + member + "\n" + member + "};\n"),
                         [["65", "68:", "f"], ["65", "2:", "f"]])

    def test_parts_of_functions_and_tables_are_not_told(self):
        inner = block("  for (int i = 0; i < n; ++i) {", 65, "  ")
        self.assertEqual([line[1:] for line in self.found("int f(int n) {\n" + inner + "}\n")], [["1:", "f"]])
        self.assertEqual(self.found(block("constexpr Rule kRules[] = {", 90, end="};")), [])
        self.assertEqual(self.found(block("namespace a {", 90)), [])
        lambdas = block("    {.op = f(1),\n     .call = [](T t) {", 90, "    ", "}},")
        self.assertEqual(self.found("const Sample kSamples[] = {\n" + lambdas + "};\n"), [])

    def test_a_reason_is_wanted_where_a_function_is_long_and_nowhere_else(self):
        reason = "/// What it does.\n// Long: a table.\n"
        self.assertEqual(self.found(reason + block("template <class T>\nvoid f() {", 61)), [])
        self.assertEqual([line[1:] for line in self.found(reason + "\n" + block("void f() {", 61))], [["4:", "f"]])
        self.assertEqual(self.found(reason + block("void f() {", 60)), [["60", "3:", "f;", *"it is not long".split()]])


if __name__ == "__main__":
    unittest.main()
