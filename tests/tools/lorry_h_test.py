#!/usr/bin/env python3
"""lorry/lorry.h is what users see: kernels, plans, the tape's nodes and the table of operators stay behind it.

    lorry_h_test.py ROOT COMPILER

Asks the preprocessor of the compiler which headers come in.
"""
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import public_names  # noqa: E402

# A rule of one's own is recorded by code that is made from it: what it is recorded into is no kernel.
BEHIND = re.compile(r"^lorry/(kernels/(?!common/recording\.h$).*|"
                    r"autograd/(node|saved|call|operator_node|recorder|rules)\.h|"
                    r"foreach/(list_plan|operator_plan|list_operators)\.h|"
                    r"optim/(stepper|execution/(program\w*|eager|streamed|compression))\.h|device/(runtime\.h|cuda/.*)|"
                    r"ops/dispatch/.*|ops/(internal|pointwise_call|array)\.h|memory/(allocate|caching_allocator)\.h|"
                    r"io/safetensors_header\.h|bench/.*|cli/.*)$")


def headers(root, compiler, text):
    """Lorry's headers that a source with this text includes."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "face.cpp"
        source.write_text(text)
        rule = subprocess.run([compiler, "-std=c++20", "-I", root, "-M", source], check=True, capture_output=True,
                              text=True).stdout
    return {str(Path(name).relative_to(root)) for name in rule.replace("\\\n", " ").split() if name.startswith(root)}


class LorryH(unittest.TestCase):
    def test_brings_in_nothing_that_is_behind_it(self):
        found = headers(ROOT, COMPILER, '#include "lorry/lorry.h"\n')
        self.assertIn("lorry/tensor/tensor.h", found)
        self.assertEqual(sorted(name for name in found if BEHIND.match(name)), [])

    def test_the_check_sees_a_header_that_is_behind_it(self):
        found = headers(ROOT, COMPILER, '#include "lorry/autograd/saved.h"\n')
        self.assertEqual(sorted(name for name in found if BEHIND.match(name)),
                         ["lorry/autograd/node.h", "lorry/autograd/saved.h"])

    def test_shows_the_names_of_the_list_and_no_others(self):
        stored = (Path(ROOT) / public_names.LIST).read_text().splitlines()
        found = public_names.names_of(COMPILER, ROOT)
        self.assertEqual(sorted(set(found) - set(stored)), [],
                         "new; where they are for users, run tools/public_names.py")
        self.assertEqual(sorted(set(stored) - set(found)), [], "gone; run tools/public_names.py")
        self.assertGreater(len(found), 500)

    def test_the_list_sees_every_kind_of_name(self):
        found = public_names.declared("""
            namespace lorry {
            class Forward;
            template <class T> requires (sizeof(T) > 1) && requires(T t) { t.f(); }
            struct Box { int inside() { return 1; } };
            template <> struct Box<int> {};
            enum class Kind : int { one }; enum Plain { first, second = 3 };
            using Alias = int; typedef int Old; using std::max;
            template <class T> concept Small = sizeof(T) < 8;
            inline constexpr int kNumber = 3, kTable[] = {1, 2};
            template <class F> requires std::invocable<F&>
            Box<F> call(F&& f, int a = max(1, 2)) { return {f}; }
            [[nodiscard]] Alias operator+(Alias a, Forward& b);
            int Forward::method() { return 0; }
            namespace detail { int hidden(); } namespace { int unseen(); }
            namespace inner::deep { void f(); }
            }
            namespace std { template <> struct hash<int> {}; }
            int outside();
            """)
        names = "Forward Box Kind Plain first second Alias Old max Small kNumber call operator+ inner::deep::f".split()
        self.assertEqual(found, {f"lorry::{name}" for name in names})

    def test_a_new_name_changes_the_list(self):
        found = public_names.names_of(COMPILER, ROOT, '#include "lorry/lorry.h"\n#include "lorry/ops/internal.h"\n')
        self.assertIn("lorry::reshape_result", set(found) - set(public_names.names_of(COMPILER, ROOT)))


if __name__ == "__main__":
    ROOT, COMPILER = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
