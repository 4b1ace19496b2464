"""`lorry train --forecast` and `lorry profile --apply` from the outside: before a run, how much memory it takes; after
a diagnosis, what its cures gain."""
import json
import unittest

from support import CommandTest, small


class Forecast(CommandTest):
    def test_a_forecast_needs_no_text_and_leaves_nothing_behind(self):
        done = self.run_lorry("train", "--forecast", "--preset", "nano", "--json", "f.json", "--device", "cpu")
        for row in ("block0", "block3", "all", "optimizer's states", "peak", "left on the device", "the largest batch"):
            self.assertIn("\n" + row, done.out)
        figures = json.loads((self.path / "f.json").read_text())
        self.assertEqual(figures["activations_bytes"], sum(m["activations_bytes"] for m in figures["modules"]))
        self.assertEqual(figures["parameters_bytes"], sum(m["parameters_bytes"] for m in figures["modules"]))
        self.assertTrue(figures["fits"])
        self.assertEqual(sorted(p.name for p in self.path.iterdir()), ["f.json", "text.txt"])

    def test_the_forecast_is_the_peak_of_the_run(self):
        settings = ("--preset", "nano", "--batch", 8, "--context", 128, "--device", "cpu")
        self.run_lorry("train", "--forecast", *settings, "--json", "f.json")
        forecast = json.loads((self.path / "f.json").read_text())["peak_bytes"]
        self.text.write_text(self.text.read_text() * 4)
        self.run_lorry("profile", "--json", "p.json", "--", "train", "--text", self.text, "--steps", 3, *settings)
        peak = json.loads((self.path / "p.json").read_text())["memory"]["peak_bytes"]
        self.assertAlmostEqual(forecast / peak, 1, delta=0.05)

    def test_settings_change_it_as_they_change_the_run(self):
        def figures(*flags):
            self.run_lorry("train", "--forecast", *flags, "--json", "f.json", "--device", "cpu")
            return json.loads((self.path / "f.json").read_text())
        one, two = figures("--batch", 1), figures("--batch", 2)
        self.assertAlmostEqual(two["activations_bytes"] / one["activations_bytes"], 2, delta=0.1)
        self.assertGreater(one["states_bytes"], figures("--states", "q8")["states_bytes"])
        self.assertGreater(one["parameters_bytes"], figures("--dtype", "bf16")["parameters_bytes"])
        self.assertFalse(figures("--preset", "gpt2", "--batch", 1 << 20)["fits"])

    def test_what_it_cannot_tell_is_refused(self):
        for flag in ("--compile", "--replay"):
            done = self.run_lorry("train", "--forecast", flag, status=2)
            self.assertIn(f"--forecast excludes {flag}", done.err)


class Apply(CommandTest):
    def test_each_cure_is_compared_with_the_run_as_it_is(self):
        done = self.run_lorry("profile", "--apply-all", "--json", "p.json", "--", "train", "--text", self.text,
                              "--steps", 6, "--execution", "loop", "--device", "cpu", *small())
        applied = json.loads((self.path / "p.json").read_text())["applied"]
        tried = {c["cure"]: c for c in applied["cures"] if c["cure"].startswith("--")}
        self.assertEqual(sorted(tried), ["--compile", "--execution fused", "--replay"])
        for name, cure in tried.items():
            self.assertIn("\n" + name, done.out)
            self.assertNotIn("failed", cure)
            self.assertGreater(cure["now_us"], 0)
            self.assertGreater(cure["then_us"], 0)
            self.assertGreaterEqual(cure["predicted_us"], 0)
            self.assertLessEqual(cure["low_us"], cure["achieved_us"])
            self.assertLessEqual(cure["achieved_us"], cure["high_us"])
        self.assertEqual(len(self.training_losses()), 6, "the run itself is as long as it was asked to be")

    def test_commands_without_steps_are_refused(self):
        for command in (("bench", "overhead"), ("generate", "--checkpoint", "x"), ("train", "--forecast")):
            done = self.run_lorry("profile", "--apply", "--", *command, status=2)
            self.assertIn("--apply can make the steps of train again; " + command[0], done.err)


if __name__ == "__main__":
    unittest.main()
