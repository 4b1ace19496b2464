"""The check for types that are defined twice must find each kind of them, and nothing else."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "check_types.py"


class CheckTypes(unittest.TestCase):
    def check(self, **files):
        """Runs the script over a tree: "lorry_a_h" stands for lorry/a.h."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                *parts, suffix = name.split("_")
                path = Path(folder, *parts).with_suffix("." + suffix)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)
            return done.returncode, done.stdout

    def assert_clash(self, name, **files):
        status, output = self.check(**files)
        self.assertEqual(status, 1, output)
        self.assertEqual(output.count("\n"), 1, output)
        self.assertIn(f" {name} is defined in ", output)

    def assert_sound(self, **files):
        self.assertEqual(self.check(**files), (0, ""))

    def test_a_class_of_one_name_in_a_header_and_a_source_clashes(self):
        self.assert_clash("lorry::memory::Cache",
                          lorry_a_h="namespace lorry::memory {\n/// One.\nstruct Cache {\n  int a;\n};\n}\n",
                          lorry_b_cpp="namespace lorry { namespace memory {\n"
                                      "class alignas(64) Cache final : public Base { int b[3]; }; } }\n")

    def test_code_for_gpus_is_read_too(self):
        self.assert_clash("lorry::Plan", lorry_a_h="namespace lorry { struct Plan { int a; }; }",
                          lorry_b_cu="namespace lorry { struct Plan { long b; }; }")

    def test_templates_specialisations_enumerations_and_nested_types_clash(self):
        self.assert_clash("a::Run",
                          lorry_a_h="namespace a { template <class T, int N = (3 > 2)> "
                                    "struct alignas(sizeof(T) * N) Run { T at[N]; }; }",
                          lorry_b_h="namespace a { template <class T> class Run {}; }")
        self.assert_clash("a::Of<int>", lorry_a_h="namespace a { template <> struct Of<int> {}; }",
                          lorry_b_h="namespace a { template <> struct Of<int> { int x; }; }")
        self.assert_clash("a::Kind", lorry_a_h="namespace a { enum class Kind : unsigned char { x }; }",
                          lorry_b_h="namespace a { enum Kind { y }; }")
        self.assert_clash("a::Outer::Inner", lorry_a_h="namespace a { struct Outer::Inner { int x; }; }",
                          lorry_b_h="namespace a { struct Outer::Inner {}; }")

    def test_a_branch_of_the_preprocessor_does_not_unbalance_the_rest(self):
        self.assert_clash("a::Late",
                          lorry_a_h="#if X\nnamespace b {\n#else\nnamespace a {\n#endif\nstruct Late {};\n}\n",
                          lorry_b_h="namespace a { struct Late { int x; }; }")

    def test_programs_that_are_not_linked_together_may_share_a_name(self):
        one, two = "namespace t { struct Case { int x; }; }", "namespace t { struct Case { long y; }; }"
        self.assert_sound(tests_ops_a_cpp=one, tests_nn_b_cpp=two, examples_c_cpp=two, examples_d_cpp=one)
        self.assert_clash("t::Case", tests_ops_a_cpp=one, tests_ops_b_cpp=two)
        self.assert_clash("t::Case", tests_support_a_h=one, tests_ops_b_cpp=two)
        self.assert_clash("t::Case", lorry_a_h=one, tests_ops_b_cpp=two)

    def test_what_cannot_clash_is_left_alone(self):
        self.assert_sound(lorry_a_h="namespace a { struct X; struct X x(); "
                                    "inline int f() { struct Local { int a; }; return 0; } "
                                    "struct Y { struct X { int a; }; }; }",
                          lorry_b_h="namespace a { struct X { int b; }; "
                                    "int g() { struct Local { long b; }; return 1; } }",
                          lorry_c_cpp="namespace a { namespace { struct X { long c; }; } }\n// struct X { int c; };\n"
                                      "const char* s = \"namespace a { struct X {};\";",
                          lorry_d_cpp="namespace b { struct X { char c; }; template <struct T> void f(struct X x) {} }")


if __name__ == "__main__":
    unittest.main()
