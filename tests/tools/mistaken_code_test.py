#!/usr/bin/env python3
"""A user's rule or function that is mistaken in type is told so by one error of the compiler.

    mistaken_code_test.py ROOT COMPILER
"""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

MAIN = """#include "lorry/lorry.h"
using namespace lorry;
%s
int main() {
  const Tensor w = ones({2}).requires_grad_();
  %s
}
"""
FUNCTION = """struct F : autograd::Function<F> {
  static Tensor forward(autograd::Context&, const Tensor& x) { return x * 1; }
  static %s
};"""


def errors(before, body, *options):
    """The compiler's errors over a program."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "main.cpp"
        source.write_text(MAIN % (before, body))
        run = subprocess.run([COMPILER, "-std=c++20", "-I", ROOT, "-fsyntax-only", *options, source],
                             capture_output=True, text=True)
    return [line for line in run.stderr.splitlines() if " error: " in line]


class MistakenCode(unittest.TestCase):
    def assert_one(self, found, text):
        self.assertEqual(len(found), 1, found)
        self.assertIn(text, found[0])

    def test_an_update_with_too_few_arguments(self):
        found = errors("", "optim::Custom o({w}, optim::rule<0>([](auto& p, auto g) { p -= g; }));")
        self.assert_one(found, "an update is called as update(V& param, V grad, V* states, const H& h) const")

    def test_an_update_that_captures(self):
        found = errors("double a = 1;", "optim::Custom o({w}, optim::rule<0>([b = a](auto& p, auto g, auto*, "
                                        "const auto&) { p -= b * g; }));")
        self.assert_one(found, "an update captures nothing")

    def test_a_rule_without_its_parts(self):
        found = errors("struct R { static constexpr int kStates = 0; struct Settings { double lr = 1; }; };",
                       "using Mine = optim::Custom<R>;")
        self.assertTrue(any("constraint" in line for line in found), found)

    def test_a_rule_with_fast_math(self):
        body = "optim::Custom o({w}, optim::rule<0>([](auto& p, auto g, auto*, const auto&) { p -= g; }));"
        self.assertEqual(errors("", body), [])
        self.assert_one(errors("", body, "-ffast-math"), "without -ffast-math")

    def test_a_backward_that_returns_one_tensor(self):
        backward = "Tensor backward(autograd::Context&, const std::vector<Tensor>& g) { return g[0]; }"
        wanted = "a Function has static std::vector<Tensor> backward(Context&, const std::vector<Tensor>& grads)"
        self.assert_one(errors(FUNCTION % backward, "F::apply(w);"), wanted)

    def test_arguments_that_forward_does_not_take(self):
        backward = "std::vector<Tensor> backward(autograd::Context&, const std::vector<Tensor>& g) { return g; }"
        self.assertEqual(errors(FUNCTION % backward, "F::apply(w);"), [])
        self.assert_one(errors(FUNCTION % backward, "F::apply(w, 2);"),
                        "a Function has static forward(Context&, arguments of apply...)")


if __name__ == "__main__":
    ROOT, COMPILER = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
