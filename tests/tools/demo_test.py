"""tools/demo: a run is trained once, gone on with when it is not complete, and never needs its texts again when it
is."""
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cli"))
from support import LORRY, TEXT, CommandTest  # noqa: E402

SAYS = "A fortune, by the model"


class Demo(CommandTest):
    def setUp(self):
        super().setUp()
        self.texts = self.path / "texts"
        self.texts.mkdir()
        (self.texts / "numbers").write_text(TEXT)
        (self.texts / "numbers.dat").write_bytes(bytes(1000))

    def demo(self, status=0):
        environment = {**os.environ, "LORRY_DEMO_TEXTS": str(self.texts), "LORRY_DEMO_SECONDS": "3", "SEED": "1"}
        done = subprocess.run([ROOT / "tools" / "demo", LORRY], cwd=self.path, env=environment, capture_output=True,
                              text=True, errors="replace", timeout=300)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertEqual(SAYS in done.stdout, status == 0)
        return done

    def state(self):
        return json.loads((self.path / "demo/checkpoint/state.json").read_text())

    def set_steps(self, change):
        """Makes the run one of as many steps as it has taken, and `change` more, whatever their time."""
        state = self.state()
        state["schedule"] = {}
        state["config"]["steps"] = state["step"] + change
        (self.path / "demo/checkpoint/state.json").write_text(json.dumps(state))

    def test_a_run_is_trained_once_and_outlives_its_texts(self):
        self.demo()
        self.assertEqual([Path(t).name for t in self.state()["config"]["texts"].split()], ["numbers"])
        self.set_steps(2)
        steps = self.state()["step"]
        self.demo()
        self.assertEqual(self.state()["step"], steps + 2, "what was missing is trained")

        before = self.checkpoint_bytes("demo")
        fortune = self.demo().stdout
        self.assertTrue(fortune.split(SAYS)[1].split("\n", 1)[1].strip(), "the model wrote something")
        (self.texts / "numbers").write_text("other fortunes\n" * 1000)
        self.assertEqual(self.demo().stdout, fortune)
        (self.texts / "numbers").unlink()
        self.assertEqual(self.demo().stdout, fortune)
        self.assertEqual(self.checkpoint_bytes("demo"), before)

        # What a crash between the two renames of a save leaves.
        (self.path / "demo/checkpoint").rename(self.path / "demo/.checkpoint.previous")
        self.assertEqual(self.demo().stdout, fortune)
        self.assertFalse((self.path / "demo/checkpoint").exists(), "nothing started over")

    def test_missing_fortunes_are_named(self):
        (self.texts / "numbers").unlink()
        self.assertIn(f"no fortunes in {self.texts}", self.demo(status=1).stderr)
        self.assertFalse((self.path / "demo").exists())


if __name__ == "__main__":
    unittest.main()
