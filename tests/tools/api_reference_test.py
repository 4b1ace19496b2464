"""tools/header_entries.py reads headers as a user would; tools/api_reference.py tells of what its page would lack."""

import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import api_reference  # noqa: E402
import header_entries  # noqa: E402

HEADER = """#pragma once
// Not a docstring.
#define MACRO(x) \\
  int x();
namespace lorry::nn {
namespace detail {
/// Hidden.
int inner();
}
/// Adds numbers, e.g. ``1.5``. x: [n] f32. Throws ShapeError.
Tensor plus(const Tensor& x, const Options& options = {.dtype = kI64}, const Dims& sizes = {1, 2});
int without();
/// A pair.
struct Pair {
  double first = 1, second = 2;  ///< both
  std::vector<int> rest = {};
};
enum class Kind { one, two };
/// A box.
class Box : public Layer<Box> {
 public:
  explicit Box(int64_t size, bool open = false) : size_{size} { fill(); }
  Box(const Box&) = delete;
  template <class T>
  requires std::is_arithmetic_v<T>
  void put(const T& value);
  /// Its size.
  int64_t size() const { return size_; }

 private:
  /// Private.
  void fill();
  int64_t size_;
};
}  // namespace lorry::nn
"""


class ApiReference(unittest.TestCase):
    def entries(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.h"
            path.write_text(text)
            return {(entry.kind, entry.name): entry for entry in header_entries.Header(path).entries}

    def test_a_header_gives_what_is_public(self):
        found = self.entries(HEADER)
        self.assertEqual(
            set(found),
            {
                ("function", "plus"),
                ("function", "without"),
                ("struct", "Pair"),
                ("enum", "Kind"),
                ("class", "Box"),
                ("constructor", "Box"),
                ("method", "put"),
                ("method", "size"),
            },
        )
        plus = found["function", "plus"]
        self.assertEqual(plus.shown, ["plus(x, options = {.dtype = kI64}, sizes = {1, 2})"])
        self.assertEqual((plus.scope, plus.sentence, plus.takes_tensor), ("nn", "Adds numbers, e.g. ``1.5``.", True))
        self.assertEqual(found["function", "without"].sentence, "")
        self.assertEqual(found["struct", "Pair"].shown, ["first = 1", "second = 2", "rest"])
        self.assertEqual(found["enum", "Kind"].shown, ["Kind: one, two"])
        self.assertEqual(found["constructor", "Box"].shown, ["Box(size, open = false)"])
        self.assertEqual((found["method", "size"].scope, found["method", "size"].sentence), ("nn::Box", "Its size."))

    def test_operators_pass_gradients_as_their_tables_say(self):
        page = api_reference.Reference(ROOT).page()
        for line in (
            "| `exp(x)` | method, `exp_`, `exp_out` | any | yes | e^x. |",
            "| `isnan(x)` | method, `isnan_`, `isnan_out` | any | - |",
            "| `matmul(a, b)` | method, `matmul_out` | yes |",
            "| `argmax(x, dim = {}, keepdim = false)` | method, `argmax_out` | - |",
            "| `mse_loss(x, target, reduction = Reduction::mean)` | function only | yes |",
            "| `manual_seed(seed)` | function only | - |",
        ):
            self.assertIn(line, page)

    def test_a_function_without_a_sentence_is_told(self):
        reference = api_reference.Reference(ROOT)
        entry = next(entry for entry in reference.headers["io/safetensors.h"] if entry.name == "restore")
        entry.sentence = ""
        reference.page()
        problem = "io::restore has no sentence: give it a docstring, or its row a comment"
        self.assertEqual(list(reference.problems()), [problem])

    def test_a_sentence_of_nothing_is_told(self):
        reference = api_reference.Reference(ROOT)
        reference.page()
        reference.told.remove("zeros")
        self.assertEqual(list(reference.problems()), ["SENTENCES has zeros, which no header declares"])


if __name__ == "__main__":
    unittest.main()
