"""The scripts of bench/ know the fields of a report from their one list, lorry/bench/result.cpp."""
import json
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import schema  # noqa: E402

# Reports whose rows are not those of `lorry bench`: courses of training, one line of train_torch.py, the demo.
OTHERS = {"byte_presets.json", "train_torch.json", "demo.json", "limits.json"}


class Schema(unittest.TestCase):
    def test_every_result_that_is_stored_has_its_fields(self):
        names = [path for path in (ROOT / "bench" / "results").glob("*.json") if path.name not in OTHERS]
        self.assertTrue(names)
        for path in names:
            report = json.loads(path.read_text())
            self.assertEqual(schema.report(report["machine"], report["results"])["schema"], report["schema"], path.name)

    def test_an_unknown_field_is_refused(self):
        with self.assertRaisesRegex(ValueError, "'add' has fields .*: median_ms"):
            schema.report({}, [{"case": "add", "median_ms": 1}])

    def test_rates_follow_from_bytes_operations_and_median(self):
        row = schema.with_rates({"median_us": 2, "bytes": 4000, "flops": 8e6})
        self.assertEqual((row["gb_per_s"], row["tflop_per_s"]), (2, 4))
        self.assertEqual(schema.with_rates({"median_us": 2}), {"median_us": 2})

    def test_a_list_in_another_form_is_refused(self):
        text = schema.SOURCE.read_text()
        with self.assertRaisesRegex(ValueError, "does not begin"):
            schema.read(text.replace('{"bytes", "', '{kBytes, "'))
        with self.assertRaisesRegex(ValueError, "no kSchema"):
            schema.read("")


if __name__ == "__main__":
    unittest.main()
