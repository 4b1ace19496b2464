"""`lorry generate`, `info` and `bench` from the outside."""
import json
import shutil
import tempfile
import unittest
from pathlib import Path

from support import CommandTest


class Generate(CommandTest):
    trained = None  # a run that all tests read

    @classmethod
    def setUpClass(cls):
        cls.trained = tempfile.TemporaryDirectory(prefix="lorry-")

    @classmethod
    def tearDownClass(cls):
        cls.trained.cleanup()

    def setUp(self):
        super().setUp()
        run = Path(self.trained.name) / "run"
        if not run.exists():
            self.train("--steps", 40, out=run)
        shutil.copytree(run, self.path / "run")

    def generate(self, *arguments, **options):
        return self.run_lorry("generate", "--checkpoint", "run", "--threads", 1, *arguments, **options)

    def test_text_goes_out_and_figures_to_standard_error(self):
        done = self.generate("--prompt", "12 is", "--tokens", 40)
        self.assertTrue(done.out.startswith("12 is"))
        self.assertGreater(len(done.out), len("12 is") + 10)
        self.assertIn("tokens/s", done.err)

    def test_a_seed_fixes_the_text(self):
        texts = [self.generate("--tokens", 60, "--seed", seed).out for seed in (1, 1, 2)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_the_prompt_can_be_left_out(self):
        done = self.generate("--prompt", "12 is", "--tokens", 20, "--no-echo", "--temperature", 0)
        self.assertFalse(done.out.startswith("12 is"))

    def test_more_tokens_than_the_context_holds_are_written(self):
        self.assertGreaterEqual(len(self.generate("--prompt", "1", "--tokens", 100, "--temperature", 0).stdout), 100)

    def test_text_ends_before_the_stop(self):
        done = self.generate("--prompt", "12 is", "--tokens", 200, "--temperature", 0.5, "--stop", ".")
        self.assertNotIn(".", done.out)

    def test_several_texts_at_once_equal_each_alone(self):
        done = self.generate("--prompt", "7 is", "--tokens", 30, "--batch", 3, "--json", "g.json")
        figures = json.loads((self.path / "g.json").read_text())
        self.assertEqual(len(figures["texts"]), 3)
        self.assertEqual(len(set(figures["texts"])), 3)
        self.assertIn(figures["texts"][2], done.out)
        self.generate("--prompt", "7 is", "--tokens", 30, "--json", "one.json")
        self.assertEqual(json.loads((self.path / "one.json").read_text())["texts"][0], figures["texts"][0])

    def texts(self, *arguments):
        self.generate(*arguments, "--json", "g.json")
        return json.loads((self.path / "g.json").read_text())["texts"]

    def test_prompts_of_any_lengths_are_written_side_by_side(self):
        prompts = [("12 is one more than 11.\n" * 9)[-length:] for length in range(1, 200, 12)]
        self.assertEqual(len(prompts), 17)
        settings = ("--tokens", 60, "--top-k", 9, "--repetition-penalty", 1.1, "--seed", 3)
        all_prompts = tuple(word for prompt in prompts for word in ("--prompt", prompt))
        alone = [text for prompt in prompts for text in self.texts("--prompt", prompt, *settings)]
        self.assertEqual(self.texts(*all_prompts, *settings), alone)
        self.assertEqual(self.texts(*all_prompts, *settings, "--no-padding"), alone)
        self.assertEqual(self.texts(*all_prompts, "--batch", 2, *settings)[::2], alone)

    def test_a_text_goes_on_in_another_process_as_it_would_have(self):
        settings = ("--prompt", "7 is", "--prompt", "8", "--top-p", 0.9, "--repetition-penalty", 1.2, "--seed", 5)
        whole = self.texts(*settings, "--tokens", 300)
        parts = [self.texts(*settings, "--tokens", 70, "--save", "a.json"),
                 self.texts("--resume", "a.json", "--tokens", 100, "--save", "b.json"),
                 self.texts("--resume", "b.json", "--tokens", 130, "--seed", 9)]
        self.assertEqual(["".join(pieces) for pieces in zip(*parts)], whole)
        self.assertIn("7 is" + parts[0][0], self.generate("--resume", "a.json", "--tokens", 1).out)

    def test_a_text_that_has_met_its_stop_is_not_resumed(self):
        settings = ("--prompt", "12 is", "--stop", ".", "--temperature", 0.5, "--tokens", 400)
        stopped, = self.texts(*settings, "--save", "a.json")
        self.assertLess(len(stopped), 399)
        self.assertEqual(self.texts("--resume", "a.json"), [""])

    def test_texts_that_cannot_be_resumed_are_refused(self):
        self.generate("--tokens", 2, "--save", "a.json")
        text = (self.path / "a.json").read_text()
        for says, broken in (("a.json", None), ("a.json", text[:-20]), ("format", text.replace("1", "7", 1)),
                             ("format", text.replace('"format":1', '"format":1.5')),
                             ("no byte", text.replace('"tokens":[10', '"tokens":[10.5')),
                             ("no byte", text.replace('"tokens":[10', '"tokens":[1e300')),
                             ("top_p", text.replace('"top_p":1.0', '"top_p":0')),
                             ("top_k", text.replace('"top_k":0', '"top_k":-1')),
                             ("there is no text", '{"format":1,"stop":[],"texts":{}}'),
                             ("drawn", text.replace('"drawn":2', '"drawn":"2"')), ("drawn", text.replace("drawn", "d")),
                             ("drawn", text.replace('"drawn":2', '"drawn":9')), ("a.json", "[]"), ("a.json", "\0"),
                             ("no byte", text.replace('"tokens":[10', '"tokens":[999')),
                             ("there is no text", '{"format":1,"stop":[],"texts":[]}')):
            (self.path / "a.json").unlink(missing_ok=True)
            if broken is not None:
                (self.path / "a.json").write_text(broken)
            self.refused("generate", "--checkpoint", "run", "--resume", "a.json", says=(says,))
        self.refused("generate", "--checkpoint", "run", "--resume", ".", says=("'.'",))
        self.run_lorry("generate", "--checkpoint", "run", "--resume", "a.json", "--top-k", 3, status=2)
        self.run_lorry("generate", "--checkpoint", "run", "--save", "-", status=2)
        self.refused("generate", "--checkpoint", "run", "--save", "no/such/file", says=("no/such/file",))

    def test_texts_are_the_same_however_steps_run(self):
        settings = ("--prompt", "7 is", "--prompt", "8", "--batch", 3, "--tokens", 40, "--top-k", 5)
        expected = self.texts(*settings)
        for flags in (("--execution", "eager"), ("--execution", "compiled"), ("--execution", "both"), ("--no-padding",),
                      ("--sizes", "2,6"), ("--policy", "latency"), ("--graph-memory", 3_000_000)):
            self.assertEqual(self.texts(*settings, *flags), expected, flags)
        self.refused("generate", "--checkpoint", "run", "--batch", 4, "--sizes", "1,2", says=("no bucket holds all",))
        self.refused("generate", "--checkpoint", "run", "--graph-memory", 10, says=("memory_budget is too small",))
        self.run_lorry("generate", "--checkpoint", "run", "--policy", "latency", "--execution", "both", status=2)

    def test_fast_texts_have_their_lengths(self):
        self.assertEqual([len(text) > 0 for text in self.texts("--fast", "--batch", 3, "--tokens", 20)], [True] * 3)

    def test_greedy_text_does_not_depend_on_the_random_seed(self):
        one, other = (self.generate("--temperature", 0, "--seed", seed).out for seed in (1, 2))
        self.assertEqual(one, other)

    def test_bad_checkpoints_are_refused(self):
        self.refused("generate", "--checkpoint", "nowhere", says=("nowhere",))
        (self.path / "run/checkpoint/model.safetensors").write_bytes(b"junk")
        self.refused("generate", "--checkpoint", "run", says=("model.safetensors",))

    def test_an_empty_prompt_is_refused(self):
        self.refused("generate", "--checkpoint", "run", "--prompt", "", says=("prompt",))


class Info(CommandTest):
    def test_the_figures_are_json_too(self):
        done = self.run_lorry("info", "--json", "info.json")
        facts = json.loads((self.path / "info.json").read_text())
        for key in ("lorry", "cpu", "threads", "simd", "libraries", "gpus"):
            self.assertIn(key, facts)
        self.assertIn(facts["cpu"], done.out)

    def test_a_figures_file_that_cannot_be_written_is_a_failure(self):
        self.refused("info", "--json", "no/such/folder.json", says=("no/such/folder.json",))

    def test_wrong_usage_is_status_2(self):
        self.run_lorry("info", "--threads", "none", status=2)
        self.run_lorry(status=2)


class Bench(CommandTest):
    def test_results_follow_the_schema(self):
        self.run_lorry("bench", "overhead", "--filter", "empty", "--json", "b.json")
        report = json.loads((self.path / "b.json").read_text())
        self.assertEqual(report["schema"], 1)
        self.assertIn("cpu", report["machine"])
        self.assertEqual([r["case"] for r in report["results"]], ["empty 64"])
        for row in report["results"]:
            self.assertLessEqual(row["min_us"], row["median_us"])
            self.assertLessEqual(row["median_us"], row["p90_us"])

    def test_a_filter_that_leaves_nothing_is_refused(self):
        self.refused("bench", "overhead", "--filter", "nothing like it", says=("nothing like it",))


if __name__ == "__main__":
    unittest.main()
