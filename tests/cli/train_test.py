"""`lorry train` from the outside: what it leaves behind, what it refuses, and how it is interrupted."""
import json
import math
import os
import re
import resource
import signal
import subprocess
import time
import unittest

from support import LORRY, TEXT, CommandTest, small


class Train(CommandTest):
    def test_a_run_leaves_checkpoint_metrics_and_figures(self):
        done = self.train("--steps", 30, "--json", "figures.json")
        figures = json.loads((self.path / "figures.json").read_text())
        for key in ("validation_loss", "train_loss", "tokens_per_s", "steps", "seconds"):
            self.assertIn(key, figures)
        self.assertEqual(figures["steps"], 30)
        self.assertEqual(sorted(self.checkpoint_bytes()), ["model.safetensors", "optimizer.safetensors", "state.json"])
        self.assertEqual([step for step, loss, _ in self.losses() if loss is not None], list(range(1, 31)))
        losses = self.training_losses()
        self.assertLess(losses[-1], losses[0] - 1, "the loss fell")
        self.assertIn("validation loss", done.out)

    def test_a_seed_fixes_the_run_whatever_the_threads(self):
        self.train("--steps", 8, out="a")
        self.train("--steps", 8, out="b")
        self.train("--steps", 8, threads=3, out="c")
        self.train("--steps", 8, "--seed", 5, out="d")
        self.assertEqual(self.losses("a"), self.losses("b"))
        self.assertEqual(self.losses("a"), self.losses("c"))
        self.assertNotEqual(self.losses("a"), self.losses("d"))

    def test_compiled_steps_give_the_same_losses(self):
        for dtype in ("f32", "bf16"):
            for name, flags in (("eager", ()), ("compiled", ("--compile",))):
                self.train("--steps", 8, "--accumulate", 2, "--dtype", dtype, *flags, out=dtype + name)
            self.assertEqual(self.losses(dtype + "compiled"), self.losses(dtype + "eager"))

    def test_replayed_steps_give_the_same_losses(self):
        for dtype in ("f32", "bf16", "f16"):
            for name, flags in (("eager", ()), ("replayed", ("--replay",)), ("both", ("--replay", "--compile"))):
                self.train("--steps", 10, "--accumulate", 2, "--dtype", dtype, *flags, out=dtype + name)
            self.assertEqual(self.losses(dtype + "replayed"), self.losses(dtype + "eager"))
            self.assertEqual(self.losses(dtype + "both"), self.losses(dtype + "eager"))
            self.assertEqual(self.checkpoint_bytes(dtype + "replayed")["model.safetensors"],
                             self.checkpoint_bytes(dtype + "eager")["model.safetensors"])

    def test_replayed_steps_go_on_after_a_resume(self):
        for name, flags in (("eager", ()), ("replayed", ("--replay",))):
            self.train("--steps", 7, *flags, out=name)
            self.run_lorry("train", "--resume", name, "--steps", 12, *flags, "--quiet")
        self.assertEqual(self.losses("replayed"), self.losses("eager"))

    def test_compiled_steps_with_epilogues_give_nearly_the_same_losses(self):
        for name, flags in (("eager", ()), ("compiled", ("--compile", "--epilogues"))):
            self.train("--steps", 8, "--dtype", "bf16", *flags, out=name)
        for got, want in zip(self.training_losses("compiled"), self.training_losses("eager"), strict=True):
            self.assertAlmostEqual(got, want, delta=0.02 * want)
        self.run_lorry("train", "--text", self.text, "--out", "x", "--epilogues", status=2)

    def test_every_execution_gives_the_same_losses(self):
        for execution in ("loop", "foreach", "fused", "compiled"):
            self.train("--steps", 8, "--execution", execution, out=execution)
            self.assertEqual(self.losses(execution), self.losses("loop"), execution)

    def test_sgd_and_16_bits_train(self):
        for flags in (("--optimizer", "sgd", "--lr", "0.1"), ("--dtype", "bf16"), ("--dtype", "f16")):
            self.train("--steps", 30, *flags, out=flags[1])
            losses = self.training_losses(flags[1])
            self.assertLess(losses[-1], losses[0] - 0.5)

    def test_every_optimizer_trains_and_is_kept(self):
        refusal = self.run_lorry("train", "--text", self.text, "--optimizer", "none", status=2).err
        names = re.split(", | or ", re.search(r"expected (.*)", refusal)[1])
        self.assertGreater(len(names), 11)
        for name in names:
            # Of this seed: tiny batches make some short runs jump, whatever the optimizer.
            self.train("--steps", 20, "--optimizer", name, "--seed", 4, out=name)
            losses = self.training_losses(name)
            self.assertLess(sorted(losses[-5:])[2], losses[0] - 0.2, name)  # a batch of 32 bytes may be an odd one
            state = json.loads((self.path / name / "checkpoint/state.json").read_text())
            self.assertEqual(state["config"]["optimizer"], name)

    def test_decay_that_adds_to_gradients_is_off_unless_asked_for(self):
        def decay(out, *flags):
            self.train("--steps", 1, *flags, out=out)
            return json.loads((self.path / out / "checkpoint/state.json").read_text())["config"]["weight_decay"]

        for name in ("adamw", "lion", "nadam", "radam"):
            self.assertEqual(decay(name, "--optimizer", name), 0.1, name)
        for name in ("adam", "sgd", "rmsprop", "rprop"):
            self.assertEqual(decay(name, "--optimizer", name), 0, name)
        self.assertEqual(decay("given", "--optimizer", "adam", "--weight-decay", 0.02), 0.02)

    def test_a_run_may_end_while_it_warms_up(self):
        self.train("--steps", 3, "--warmup", 5)
        self.assertEqual(len(self.training_losses()), 3)

    def test_16_bits_keep_masters_and_f16_a_loss_scale(self):
        for dtype in ("f32", "bf16", "f16"):
            self.train("--steps", 2, "--dtype", dtype, out=dtype)
            optimizer = (self.path / dtype / "checkpoint/optimizer.safetensors").read_bytes()
            self.assertEqual(b".master" in optimizer, dtype != "f32")
            self.assertEqual(b"loss_scaler.scale" in optimizer, dtype == "f16")

    def test_batches_of_a_step_add_up_to_a_large_one(self):
        def train(out, batch, accumulate):
            size = ("--preset", "nano", "--context", 16, "--threads", 1, "--batch", batch, "--accumulate", accumulate)
            self.run_lorry("train", "--text", self.text, "--out", out, *size, "--steps", 10, "--json", f"{out}.json")
            return self.training_losses(out)

        for large, parts in zip(train("large", 4, 1), train("parts", 2, 2)):
            self.assertAlmostEqual(large, parts, delta=1e-3)
        state = json.loads((self.path / "parts/checkpoint/state.json").read_text())
        self.assertEqual(state["config"]["accumulate"], 2)

    def test_quiet_prints_no_progress(self):
        self.assertEqual(self.train("--steps", 3, "--quiet").err, "")


class Timed(CommandTest):
    """Runs of a given time. How long they take is not asserted: the plan is tested with a clock of its own."""

    def state(self, out="run"):
        return json.loads((self.path / out / "checkpoint/state.json").read_text())

    def assert_rates_follow_the_plan(self, out="run"):
        """Every rate of the run, as its plan in state.json says."""
        state = self.state(out)
        lr = state["config"]["lr"]
        parts = [tuple(map(float, line.split())) for line in state["schedule"]["plan"].splitlines()]
        for record in self.records(out):
            if "lr" not in record:
                continue
            step = record["step"] - 1
            first, progress, steps, warmup = [part for part in parts if part[0] <= step][-1]
            each = (1 - progress) / (steps - first) if steps > first else 0
            before = progress + (step - first) * each
            if before < warmup:
                rate = lr * min(1, (before + each) / warmup)
            else:
                rate = 0.1 * lr + 0.9 * lr * 0.5 * (1 + math.cos(math.pi * (before - warmup) / (1 - warmup)))
            self.assertAlmostEqual(record["lr"] / lr, rate / lr, 9, f"step {step}")

    def records(self, out="run"):
        return [json.loads(line) for line in (self.path / out / "metrics.jsonl").read_text().splitlines()]

    def rates(self, out="run"):
        return [record["lr"] for record in self.records(out) if "lr" in record]

    def test_a_time_is_a_whole_run(self):
        self.train("--max-seconds", 2)
        state = self.state()
        self.assertEqual(state["step"], state["config"]["steps"], "the plan ends with the run")
        rates = self.rates()
        largest = rates.index(max(rates))
        self.assertEqual(rates[:largest], sorted(rates[:largest]))
        self.assertEqual(rates[largest:], sorted(rates[largest:], reverse=True))
        self.assertEqual(self.records()[-1]["step"], state["step"])
        self.assertIn("validation_loss", self.records()[-1])
        self.assert_rates_follow_the_plan()
        before = self.checkpoint_bytes()
        self.run_lorry("train", "--resume", "run", "--threads", 1)
        self.assertEqual(self.checkpoint_bytes(), before, "there is nothing left to do")

    def test_an_interrupted_run_takes_the_time_that_is_left_at_the_rates_of_its_plan(self):
        command = [LORRY, "train", "--text", self.text, "--out", "run", *small(), "--max-seconds", "3"]
        process = subprocess.Popen(command, cwd=self.path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        metrics = self.path / "run/metrics.jsonl"
        while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= 20):
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, err)
        self.assertRegex(err.decode(), r"interrupted after step \d+ of about \d+, 0:0\d before the end")
        half = self.state()
        elapsed = half["schedule"]["elapsed_s"]
        self.assertEqual(half["schedule"]["max_seconds"], 3)
        self.assertTrue(0 < elapsed < 3, elapsed)
        self.assertGreater(half["config"]["steps"], half["step"])
        begun = self.rates()
        self.run_lorry("train", "--resume", "run", "--threads", 1)
        whole = self.state()
        self.assertEqual(self.rates()[: len(begun)], begun)
        self.assertTrue(whole["schedule"]["plan"].startswith(half["schedule"]["plan"]), "what was planned stays")
        self.assertGreater(whole["schedule"]["elapsed_s"], elapsed)
        self.assertEqual(whole["step"], whole["config"]["steps"])
        self.assert_rates_follow_the_plan()

    def test_more_steps_make_it_a_run_of_so_many(self):
        self.train("--max-seconds", 1)
        taken = self.state()["step"]
        self.run_lorry("train", "--resume", "run", "--threads", 1, "--steps", taken + 5)
        state = self.state()
        self.assertEqual((state["step"], state["config"]["steps"]), (taken + 5, taken + 5))
        self.assertEqual(state["schedule"], {})

    def test_a_validation_after_every_step_is_left_out_where_it_takes_too_long(self):
        self.train("--max-seconds", 3, "--eval-every", 1, "--checkpoint-every", 1000)
        records = self.records()
        validations = sum("validation_loss" in record for record in records)
        self.assertGreater(validations, 1)
        self.assertLess(validations, len(records) - validations)

    def test_a_damaged_plan_is_refused(self):
        self.train("--max-seconds", 1)
        state = self.path / "run/checkpoint/state.json"
        good = self.state()
        good["config"]["steps"] = good["step"] + 1
        plan = good["schedule"]["plan"]
        good["schedule"]["plan"] += f"{good['step']} 1 {good['step'] + 1} 0.1\n"
        for name, value in (("plan", ""), ("plan", "5 0 9 0.1\n"), ("plan", plan), ("elapsed_s", -1)):
            bad = json.loads(json.dumps(good))
            bad["schedule"][name] = value
            state.write_text(json.dumps(bad))
            self.refused("train", "--resume", "run", "--threads", 1, says=("checkpoint", name))


class LongRun(CommandTest):
    def test_how_long_it_takes_here_is_told_after_the_first_steps(self):
        command = [LORRY, "train", "--text", self.text, *small(), "--steps", "1000000", "--eval-every", "1000000"]
        process = subprocess.Popen(command, cwd=self.path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stderr.close)
        line = process.stderr.readline().decode()
        self.assertRegex(line, r"^\d+ steps: about \d+ (minutes?|hours|days) here$")


class BadInput(CommandTest):
    def refused_text(self, path, *says):
        return self.refused("train", "--text", path, "--out", "run", *small(), "--steps", 2, says=says)

    def test_a_missing_text_is_named(self):
        self.refused_text("nowhere.txt", "nowhere.txt")
        self.assertFalse((self.path / "run" / "checkpoint").exists())

    def test_an_empty_text_is_named(self):
        (self.path / "empty.txt").touch()
        self.refused_text("empty.txt", "empty")

    def test_a_text_that_is_too_short_is_refused(self):
        (self.path / "short.txt").write_text("hello")
        self.refused_text("short.txt", "short")

    def test_a_folder_is_no_text(self):
        (self.path / "folder").mkdir()
        self.refused_text("folder", "folder")

    @unittest.skipIf(os.geteuid() == 0, "root reads everything")
    def test_an_unreadable_text_is_named(self):
        self.text.chmod(0)
        self.refused_text(self.text, "text.txt", "ermission")

    def test_a_place_that_cannot_be_written_is_refused_before_training(self):
        (self.path / "file").write_text("in the way")
        self.refused("train", "--text", self.text, "--out", "file/run", *small(), "--steps", 2, says=("file",))

    def test_another_run_is_not_overwritten_silently(self):
        self.train("--steps", 3)
        before = self.checkpoint_bytes()
        self.refused("train", "--text", self.text, "--out", "run", *small(), "--steps", 3, says=("run", "--resume"))
        self.assertEqual(self.checkpoint_bytes(), before)

    def test_a_run_whose_checkpoint_a_crash_set_aside_is_not_started_over(self):
        self.train("--steps", 3)
        whole = self.checkpoint_bytes()
        aside = self.path / "run/.checkpoint.previous"
        (self.path / "run/checkpoint").rename(aside)
        self.refused("train", "--text", self.text, "--out", "run", *small(), "--steps", 3, says=("run", "--resume"))
        self.assertEqual({p.name: p.read_bytes() for p in aside.iterdir()}, whole)
        self.run_lorry("generate", "--checkpoint", "run", "--tokens", 3)
        self.run_lorry("train", "--resume", "run", "--threads", 1)

    def test_a_loss_that_explodes_stops_the_run(self):
        wild = (*small(), "--steps", 200, "--optimizer", "sgd", "--lr", "1e30", "--clip", 0)
        self.refused("train", "--text", self.text, "--out", "run", *wild, says=("loss", "--lr"))

    def test_a_full_disk_keeps_the_previous_checkpoint(self):
        self.train("--steps", 4)
        before = self.checkpoint_bytes()
        state = self.path / "run/checkpoint/state.json"
        state.write_text(state.read_text().replace('"steps": 4', '"steps": 6'))
        before["state.json"] = state.read_bytes()

        # No file may pass 1 MiB (ThreadSanitizer makes one of half that); writing more fails as a full disk does.
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        self.refused("train", "--resume", "run", "--threads", 1, says=("model.safetensors",), preexec_fn=limit)
        self.assertEqual(self.checkpoint_bytes(), before)
        self.run_lorry("train", "--resume", "run", "--threads", 1)


class BadCheckpoint(CommandTest):
    def setUp(self):
        super().setUp()
        self.train("--steps", 4)
        state = self.path / "run/checkpoint/state.json"
        state.write_text(state.read_text().replace('"steps": 4', '"steps": 6'))

    def refused_resume(self, *says):
        before = self.checkpoint_bytes()
        self.refused("train", "--resume", "run", "--threads", 1, says=says)
        self.assertEqual(self.checkpoint_bytes(), before)

    def test_a_missing_checkpoint_is_named(self):
        self.refused("train", "--resume", "nowhere", says=("nowhere",))

    def test_a_damaged_model_is_refused(self):
        model = self.path / "run/checkpoint/model.safetensors"
        good = model.read_bytes()
        for bad in (good[:1000], good[:-7], b"\xff" * 8 + good[8:], b"", good.replace(b'"F32"', b'"F99"', 1)):
            model.write_bytes(bad)
            self.refused_resume("model.safetensors")

    def test_a_damaged_state_is_refused(self):
        state = self.path / "run/checkpoint/state.json"
        good = state.read_text()
        edits = (('"step": 4', '"step": -4'), ('"nano"', '"mega"'), ('"batch"', '"bath"'))
        for bad in ("", "{", "[]", *(good.replace(*edit) for edit in edits)):
            state.write_text(bad)
            self.refused_resume()
        for seed in ("", "many", "-1", "1x", "99999999999999999999"):
            state.write_text(good.replace('"seed": "0"', f'"seed": "{seed}"'))
            self.refused_resume("seed", f"'{seed}'")

    def test_a_checkpoint_of_another_shape_is_refused(self):
        tiny = ("--preset", "tiny", "--batch", 1, "--context", 16)
        self.run_lorry("train", "--text", self.text, "--out", "other", *tiny, "--steps", 1)
        (self.path / "other/checkpoint/model.safetensors").replace(self.path / "run/checkpoint/model.safetensors")
        self.refused_resume("layers 4", "has 6")

    def test_a_text_that_has_moved_is_named_with_the_option_that_finds_it(self):
        self.text.rename(self.path / "moved.txt")
        resume = ("train", "--resume", "run", "--threads", 1, "--steps", 6)
        self.refused(*resume, says=(f"cannot open '{self.text}'", "if the text has moved, --text FILE"))
        done = self.refused(*resume, "--text", "elsewhere.txt", says=("elsewhere.txt",))
        self.assertNotIn("--text", done.err)
        self.run_lorry(*resume, "--text", "moved.txt")
        self.run_lorry("train", "--resume", "run", "--threads", 1, "--steps", 8)
        self.assertEqual(len(self.training_losses()), 8, "the new place is kept")
        usage = " ".join(self.run_lorry("train", "--help").out.split())
        self.assertIn("--text names its text where that has moved", usage)

    def test_of_several_texts_that_have_moved_all_must_be_named(self):
        (self.path / "more.txt").write_text(TEXT)
        self.run_lorry("train", "--text", self.text, "more.txt", "--out", "two", *small(), "--steps", 2)
        (self.path / "more.txt").rename(self.path / "moved.txt")
        resume = ("train", "--resume", "two", "--threads", 1, "--steps", 3)
        self.refused(*resume, says=("more.txt", "--text FILE", "all 2 files in their order"))
        self.run_lorry(*resume, "--text", self.text, "moved.txt")

    def test_another_text_is_refused(self):
        before = self.text.read_text()
        self.text.write_text(before.replace("odd", "ODDER"))
        expected = len(before) - len(before) // 10
        self.refused_resume("the text is not", f"expected the {expected} of the same files", "--text", "--out")


class Interrupted(CommandTest):
    def start(self, *arguments, out="run", size=small(), **options):
        command = [LORRY, "train", "--text", self.text, "--out", out, *size, *map(str, arguments)]
        process = subprocess.Popen(command, cwd=self.path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, **options)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def wait_for_steps(self, count, out="run"):
        metrics = self.path / out / "metrics.jsonl"
        while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= count):
            time.sleep(0.005)

    def test_a_signal_saves_says_how_to_go_on_and_loses_nothing(self):
        self.train("--steps", 400, out="whole")
        for kind in (signal.SIGINT, signal.SIGTERM):
            out = f"run{kind.value}"
            process = self.start("--steps", 400, out=out)
            self.wait_for_steps(20, out)
            process.send_signal(kind)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1, err)
            name = "Ctrl-C" if kind == signal.SIGINT else "SIGTERM"
            *said, end = err.decode().splitlines()
            self.assertEqual(said.count(f"saving; {name} again gives up"), 1, said)
            self.assertIn(f"lorry train --resume {out}", end)
            self.assertLess(json.loads((self.path / out / "checkpoint/state.json").read_text())["step"], 400)
            self.run_lorry("train", "--resume", out, "--threads", 1)
            self.assertEqual(self.losses(out), self.losses("whole"))

    def test_a_second_signal_ends_at_once_and_leaves_what_was_saved(self):
        for attempt in range(20):  # until one has not ended by itself before it is stopped
            out = f"run{attempt}"
            process = self.start("--steps", 100000, "--checkpoint-every", 5, out=out)
            self.wait_for_steps(12, out)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.002)
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.7)  # longer than one press
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
            process.communicate(timeout=60)
            if process.returncode == -signal.SIGTERM:
                break
            self.assertEqual(process.returncode, 1)
        self.assertEqual(process.returncode, -signal.SIGTERM)
        step = json.loads((self.path / out / "checkpoint/state.json").read_text())["step"]
        self.assertGreaterEqual(step, 5)
        self.run_lorry("train", "--resume", out, "--threads", 1, "--steps", step + 1)

    def test_a_key_pressed_twice_is_one_request(self):
        process = self.start("--steps", 100000)
        self.wait_for_steps(5)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, err)
        self.assertTrue((self.path / "run/checkpoint/state.json").exists())

    def test_a_key_that_bounces_until_the_end_is_one_request(self):
        for trial in range(3):
            process = self.start("--steps", 100000, out=f"run{trial}")
            self.wait_for_steps(5, f"run{trial}")
            for _ in range(60):
                if process.poll() is not None:
                    break
                process.send_signal(signal.SIGINT)
                time.sleep(0.005)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1, err)

    def test_a_signal_that_is_ignored_stays_ignored(self):
        process = self.start("--steps", 60, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        self.wait_for_steps(5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)

    def test_quiet_says_only_how_to_go_on(self):
        process = self.start("--steps", 100000, "--quiet")
        self.wait_for_steps(3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertRegex(err.decode(), r"^lorry: train: interrupted [^\n]*\n$")

    def test_16_bits_and_accumulation_go_on_to_the_bit(self):
        for flags in (("--dtype", "f16", "--accumulate", 2), ("--dtype", "bf16", "--accumulate", 3)):
            whole, out = f"whole-{flags[1]}", f"run-{flags[1]}"
            self.train("--steps", 100, *flags, out=whole)
            process = self.start("--steps", 100, *flags, out=out)
            self.wait_for_steps(10, out)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1)
            self.run_lorry("train", "--resume", out, "--threads", 1)
            self.assertEqual(self.losses(out), self.losses(whole))
            model, expected = (self.checkpoint_bytes(run)["model.safetensors"] for run in (out, whole))
            self.assertEqual(model, expected)

    def test_a_signal_is_heard_while_validating(self):
        self.text.write_text(self.text.read_text() * 40)  # a held-out tenth that takes a while
        size = ("--preset", "nano", "--batch", "16", "--context", "64", "--threads", "1")
        self.run_lorry("train", "--text", self.text, "--out", "whole", *size, "--steps", 3)
        process = self.start("--steps", 3, size=size)
        # Three steps and the two quick validations between them: now all of the held-out text is read.
        self.wait_for_steps(5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, err)
        self.assertEqual(err.decode().count("saving; Ctrl-C again gives up\n"), 1)
        self.assertIn("interrupted after step 3 of 3", err.decode())
        self.assertEqual(len(self.losses()), 5, "a loss over a part of the text is not recorded")
        self.run_lorry("train", "--resume", "run", "--threads", 1)
        self.assertEqual(self.losses(), self.losses("whole"))

    def test_a_timed_run_interrupted_at_once_can_go_on(self):
        process = self.start("--max-seconds", 30)
        self.wait_for_steps(1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        state = json.loads((self.path / "run/checkpoint/state.json").read_text())
        self.assertGreater(state["config"]["steps"], state["step"])


if __name__ == "__main__":
    unittest.main()
