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
        parts = ["tools/update_readme.py", "tools/optim_tables.py", "tools/operator_tables.py", "bench/speedups.py",
                 "examples/readme.cpp", "README.md", "docs/benchmarks.md", "docs/operator-speed.md",
                 "docs/optimizers.md", "docs/own-functions.md", "examples/own_function.cpp"]
        pictures = ["docs/optimizers.svg", *(f"docs/operators_{machine}.svg" for machine in ("cpu", "avx2", "h200"))]
        for part in [*parts, *pictures, "bench/data/make_param_shapes.py", "bench/data/param_shapes.json"]:
            (self.root / part).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / part).exists():  # there is no picture before there are results
                shutil.copy(ROOT / part, self.root / part)
        self.results = self.root / "bench" / "results"
        self.results.mkdir(parents=True)
        for report in (ROOT / "bench" / "results").glob("*.json"):
            shutil.copy(report, self.results / report.name)

    def status(self, *arguments):
        return subprocess.run([sys.executable, self.root / "tools/update_readme.py", *arguments],
                              capture_output=True).returncode

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

    CASES = ("add_ 64", "add 64", "view 64 as 8x8", "empty 64", "nano step, batch 16 x 128")

    def write_report(self, name):
        rows = [{"case": case, "median_us": 0.125, "implementation": "a peer"} for case in self.CASES]
        machine = {"cpu": "a processor", "threads": 2, "system": "a system, a kernel"}
        (self.results / name).write_text(json.dumps({"machine": machine, "results": rows}))

    def readme(self):
        return (self.root / "README.md").read_text()

    def benchmarks(self):
        return (self.root / "docs/benchmarks.md").read_text()

    def clear_results(self):
        for report in self.results.glob("*.json"):
            report.unlink()

    def test_a_changed_result_is_noticed_and_mended(self):
        for name in ("lorry.json", "overhead_libtorch.json"):
            self.write_report(name)
        (self.results / "train_torch.json").write_text(json.dumps({"ms_per_step": 777.7}))
        self.assert_noticed_and_mended()
        self.assertIn("777.7 ms", self.benchmarks())
        self.assertIn("`nano` GPT, batch 16 x 128, f32 (eager) | 0.0 ms | 777.7 ms |", self.readme())

    def test_a_peer_that_was_not_measured_has_no_column(self):
        self.clear_results()
        self.write_report("lorry.json")
        self.assert_noticed_and_mended()
        self.assertIn("| | Lorry |\n", self.benchmarks())
        self.assertIn("| `empty({64})` | 0.125 us |\n", self.benchmarks())

    def test_a_step_of_a_cpu_has_its_row(self):
        self.clear_results()
        self.write_report("lorry.json")
        for name, median, more in (("optim.json", 14000, {"ratio_to_ceiling": 0.875}), ("optim_torch.json", 21000, {})):
            row = {"case": "resnet50 adamw fused", "median_us": median, **more}
            (self.results / name).write_text(json.dumps({"results": [row]}))
        row = {"case": "add 64", "median_us": 1, "implementation": "a peer"}
        (self.results / "overhead_libtorch.json").write_text(json.dumps({"results": [row]}))
        self.assert_noticed_and_mended()
        self.assertIn("| 14.0 ms, 88 % of a memory copy's rate | 21.0 ms (Python, fused) | 1.50 x |\n",
                      self.benchmarks())

    def test_one_peer_of_two_has_its_rows(self):
        self.clear_results()
        self.write_report("lorry.json")
        self.write_report("overhead_libtorch.json")
        self.assert_noticed_and_mended()
        self.assertIn("| `empty({64})` | 0.125 us | 0.125 us | 1.00 x |\n", self.benchmarks())
        self.assertIn("| 0.0 ms | | |\n", self.benchmarks())

    def test_limits_are_shown_with_what_they_may_be(self):
        self.clear_results()
        self.write_report("lorry.json")
        (self.results / "limits.json").write_text(json.dumps({"limits": {"info_ms": 12.3, "command_mb": 4.56}}))
        self.assert_noticed_and_mended()
        self.assertIn("| start of `lorry info` | 12 ms | 50 ms |\n| size of the command | 4.6 MB | 30 MB |\n",
                      self.benchmarks())
        self.assertNotIn("clean build", self.benchmarks())

    def test_what_a_model_writes_is_shown(self):
        self.clear_results()
        report = {"machine": {"cpu": "some processor", "threads": 3}, "train": ["train", "--steps", "9"],
                  "generate": ["generate", "--prompt", "%\n", "--tokens", "40"],
                  "texts": [{"seed": 4, "text": "One\nday"}],
                  "results": [{"parameters": 826112, "steps": 9, "seconds": 61.2, "validation_loss": 1.2345}]}
        (self.results / "demo.json").write_text(json.dumps(report))
        self.assert_noticed_and_mended()
        for told in ("1:01 minutes on 3 threads of some\nprocessor; the", "\nlorry train --steps 9 --out fortunes \\\n",
                     "\nlorry generate --prompt $'%\\n' --checkpoint fortunes --seed 4 \\\n  --tokens 40\n",
                     "`--seed 4`;",
                     "```\nOne\nday\n```\n", "](docs/demo.svg)"):
            self.assertIn(told, self.readme())
        self.assertNotIn("PyTorch from Python", self.readme())

    def test_optimizer_steps_become_a_table_a_picture_and_a_page(self):
        self.clear_results()
        (self.root / "docs/optimizers.svg").unlink(missing_ok=True)
        head = {"suite": "optim", "device": "cuda:0", "dtype": "f32"}
        ours = {**head, "implementation": "lorry", "case": "gpt2 adamw fused", "median_us": 875.25,
                "ratio_to_ceiling": 0.9375, "launches": 1}
        theirs = {**head, "implementation": "PyTorch 9.9.9", "case": "gpt2 adamw fused", "median_us": 1750.5}
        report = {"machine": {"gpus": {"cuda:0": "A GPU (some GiB)"}}, "results": [ours, theirs]}
        (self.results / "h200_optim.json").write_text(json.dumps(report))
        self.assert_noticed_and_mended()
        self.assertIn("| gpt2 | 148 | 124.4 M | - | - | 1,750 | **875** | 821 | 2.0 x |\n", self.benchmarks())
        self.assertIn("on one A GPU", (self.root / "docs/optimizers.svg").read_text())
        self.assertIn("| `adamw` | - | - | 875 | 94 % | - | 1,750 |\n", (self.root / "docs/optimizers.md").read_text())

    def test_operators_are_counted_and_the_slower_ones_named(self):
        self.clear_results()
        head = {"family": "pointwise", "device": "cpu", "dtype": "f32", "suite": "operators"}

        def rows(case, ours, theirs, *speedups):
            yield {**head, "case": case, "implementation": "lorry", "median_us": ours, "speedups": speedups,
                   "ratio_to_ceiling": 0.5}
            yield {**head, "case": case, "implementation": "pytorch 9.9.9+cpu", "median_us": theirs}
        results = [*rows("neg", 10, 20, [1.9, 2, 2.1], [1.8, 2, 2.2]),
                   *rows("abs", 20, 16, [0.7, 0.8, 0.9], [0.7, 0.8, 0.94]),
                   *rows("exp", 20, 16, [0.7, 0.8, 0.9], [0.9, 0.95, 1.0]),  # slower in one run
                   next(rows("matmul of i64", 20, 0))]  # PyTorch has none
        machine = {"cpu": "a processor", "threads": 2, "rounds": 3}
        (self.results / "operators.json").write_text(json.dumps({"machine": machine, "results": results}))
        self.assert_noticed_and_mended()
        self.assertIn("of 3 single calls 1 is faster than PyTorch 9.9.9, 1 slower, and 1 within 5 % or too scattered "
                      "to tell (1 of these with a median below 0.95).", self.readme().replace("\n", " "))
        page = (self.root / "docs/operator-speed.md").read_text()
        self.assertIn("| pointwise | 3 | 1 | 1 | 1 | 0.88 x |\n", page)
        self.assertIn("| matmul of i64 | 20.0 | none | | | |\n", page)
        self.assertIn("build/release/lorry --runs 2 --rounds 3 --json operators.json\n", page)
        named = page[page.index("Slower than PyTorch:"):page.index("Too scattered to tell, ")]
        self.assertIn("| abs | 20.0 | 16.0 | 0.80 x | 0.70 to 0.94 | 50 % |\n", named)
        self.assertNotIn("exp", named)
        doubtful = page[page.index("Too scattered to tell, "):page.index("### Pointwise")]
        self.assertIn("| exp | 20.0 | 16.0 | 0.88 x | 0.70 to 1.00 | 50 % |\n", doubtful)
        self.assertNotIn("abs", doubtful)
        drawn = (self.root / "docs/operators_cpu.svg").read_text()
        self.assertEqual(drawn.count("<title>"), 3)
        self.assertIn("slower (1)", drawn)


if __name__ == "__main__":
    unittest.main()
