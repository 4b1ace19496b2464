"""The tables of erf and gelu are those that tools/erf_tables.py computes, and it notices others."""
import contextlib
import io
import re
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import erf_tables  # noqa: E402


class ErfTables(unittest.TestCase):
    def said_of(self, text):
        """The exit status and the message for a header of this text."""
        with tempfile.NamedTemporaryFile("w", suffix=".h") as file, contextlib.redirect_stderr(io.StringIO()) as said:
            file.write(text)
            file.flush()
            there, erf_tables.FILE = erf_tables.FILE, Path(file.name)
            try:
                return erf_tables.main([]), said.getvalue()
            finally:
                erf_tables.FILE = there

    def test_the_header_holds_the_computed_tables(self):
        self.assertEqual(self.said_of(erf_tables.FILE.read_text()), (0, ""))

    def test_another_last_bit_of_f64_is_noticed(self):
        text = erf_tables.FILE.read_text()
        status, said = self.said_of(text.replace("0x1.712c69e28d9a0p-1", "0x1.712c69e28d9a1p-1"))
        self.assertEqual(status, 1)
        self.assertIn("1 coefficients of kErf are others", said)

    def test_a_wrong_coefficient_of_f32_is_noticed(self):
        text = erf_tables.FILE.read_text()
        status, said = self.said_of(re.sub(r"0x1\.919e32p-2f", "0x1.919f32p-2f", text))
        self.assertEqual(status, 1)
        self.assertIn("too far from their function: {1:", said)


if __name__ == "__main__":
    unittest.main()
