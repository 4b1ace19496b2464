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

BEHIND = re.compile(r"^lorry/(kernels/.*|autograd/(node|saved|call|operator_node|recorder|rules)\.h|foreach/plan\.h|"
                    r"optim/(stepper|execution/(program\w*|eager|streamed|compression))\.h|device/(runtime\.h|cuda/.*)|"
                    r"ops/(door|table|pointwise_call|array|out)\.h|ops/operators\.def)$")


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


if __name__ == "__main__":
    ROOT, COMPILER = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
