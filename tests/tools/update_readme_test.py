"""README.md says what examples/readme.cpp and bench/results say, and the check notices when it does not."""
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class UpdateReadme(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for part in ("tools/update_readme.py", "examples/readme.cpp", "README.md"):
            (self.root / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / part, self.root / part)
        self.results = self.root / "bench" / "results"
        self.results.mkdir(parents=True)
        for report in (ROOT / "bench" / "results").glob("*.json"):
            shutil.copy(report, self.results / report.name)

    def status(self, *arguments):
        return subprocess.run([sys.executable, self.root / "tools/update_readme.py", *arguments], capture_output=True).returncode

    def test_the_readme_is_up_to_date(self):
        self.assertEqual(self.status("--check"), 0)

    def assert_noticed_and_mended(self):
        self.assertEqual(self.status("--check"), 1)
        self.assertEqual(self.status(), 0)
        self.assertEqual(self.status("--check"), 0)

    def test_a_changed_example_is_noticed_and_mended(self):
        example = self.root / "examples/readme.cpp"
        example.write_text(example.read_text() + "// changed\n")
        self.assert_noticed_and_mended()

    def test_a_changed_result_is_noticed_and_mended(self):
        rows = [{"case": case, "median_us": 0.125, "implementation": "a peer"} for case in ("add_ 64", "add 64", "view 64 as 8x8", "empty 64", "nano step, batch 16 x 128")]
        report = {"machine": {"cpu": "a processor", "threads": 2, "system": "a system, a kernel"}, "results": rows}
        for name in ("lorry.json", "overhead_libtorch.json"):
            (self.results / name).write_text(json.dumps(report))
        (self.results / "train_torch.json").write_text(json.dumps({"ms_per_step": 777.7}))
        self.assert_noticed_and_mended()
        self.assertIn("777.7 ms", (self.root / "README.md").read_text())


if __name__ == "__main__":
    unittest.main()
