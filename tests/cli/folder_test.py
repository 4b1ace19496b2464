"""The folder of a run: one writer, nothing of another's overwritten, read and extended as it stands."""
import fcntl
import json
import os
import socket
import subprocess
import time
import unittest

from support import LORRY, CommandTest, small


def train_on(test):
    """A process that trains in run/ until it is killed, at the latest with the test; it has saved a checkpoint."""
    command = [LORRY, "train", "--text", test.text, "--out", "run", *small(), "--steps", "100000",
               "--checkpoint-every", "5"]
    process = subprocess.Popen(command, cwd=test.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    test.addCleanup(process.wait)
    test.addCleanup(process.kill)
    while not (test.path / "run/checkpoint").exists():
        time.sleep(0.01)
    return process


class OneWriter(CommandTest):
    def test_a_second_process_is_told_who_holds_the_folder(self):
        first = train_on(self)
        self.refused("train", "--resume", "run", says=(f"process {first.pid} on {socket.gethostname()}",))
        self.run_lorry("generate", "--checkpoint", "run", "--tokens", 3)
        first.kill()
        first.wait()
        self.run_lorry("train", "--resume", "run", "--max-seconds", 1, status=2)
        state = json.loads((self.path / "run/checkpoint/state.json").read_text())
        self.run_lorry("train", "--resume", "run", "--steps", state["step"] + 2)
        self.assertFalse((self.path / "run/lock").exists())


class Extended(CommandTest):
    def test_a_finished_run_goes_on_to_more_steps(self):
        self.train("--steps", 20)
        before = self.training_losses()
        self.run_lorry("train", "--resume", "run", "--steps", 30, "--threads", 1, "--json", "figures.json")
        self.assertEqual(json.loads((self.path / "figures.json").read_text())["steps"], 30)
        self.assertEqual(self.training_losses()[:20], before)
        self.assertEqual(len(self.training_losses()), 30)
        state = json.loads((self.path / "run/checkpoint/state.json").read_text())
        self.assertEqual((state["step"], state["config"]["steps"]), (30, 30))
        usage = " ".join(self.run_lorry("train", "--help").out.split())
        self.assertIn("with --resume, the run ends at N steps in all: more or fewer than before, but not "
                      "fewer than it has taken", usage)
        self.refused("train", "--resume", "run", "--steps", 10, says=("30 steps", "--steps 10"))
        self.assertIn("taken all of its 30 steps; a larger --steps makes it longer",
                      self.run_lorry("train", "--resume", "run").err)

    def test_a_run_that_is_not_at_its_end_may_end_sooner(self):
        self.train("--steps", 4)
        state = self.path / "run/checkpoint/state.json"
        state.write_text(state.read_text().replace('"steps": 4', '"steps": 9'))
        self.run_lorry("train", "--resume", "run", "--steps", 6, "--threads", 1)
        self.assertEqual(len(self.training_losses()), 6)
        state = json.loads(state.read_text())
        self.assertEqual((state["step"], state["config"]["steps"]), (6, 6))

    def test_a_finished_run_is_read_where_nothing_can_be_written(self):
        self.train("--steps", 5)
        self.text.unlink()
        files = {p: p.read_bytes() for p in self.path.rglob("*") if p.is_file()}
        for path in (*self.path.rglob("*"), self.path):
            path.chmod(0o555 if path.is_dir() else 0o444)
        self.addCleanup(lambda: [p.chmod(0o755) for p in (self.path, *self.path.rglob("*")) if p.is_dir()])

        def without_rights():  # root may write everywhere
            if os.geteuid() == 0:
                os.setgroups([])
                os.setuid(65534)

        try:
            subprocess.run([LORRY, "--version"], preexec_fn=without_rights, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):  # such as a checkout in root's home
            self.skipTest("the command may not be run without root's rights here")
        probe = subprocess.run(["touch", self.path / "run/probe"], preexec_fn=without_rights, capture_output=True)
        self.assertNotEqual(probe.returncode, 0, "nothing can be written")
        self.run_lorry("generate", "--checkpoint", "run", "--tokens", 5, preexec_fn=without_rights)
        done = self.run_lorry("train", "--resume", "run", preexec_fn=without_rights)
        self.assertIn("validation loss", done.out)
        self.run_lorry("info", preexec_fn=without_rights)
        done = self.run_lorry("info", "run", "--json", "-", preexec_fn=without_rights)
        self.assertEqual(json.loads(done.out)["step"], 5)
        self.assertEqual({p: p.read_bytes() for p in self.path.rglob("*") if p.is_file()}, files)


class Shown(CommandTest):
    def info(self, run="run"):
        return json.loads(self.run_lorry("info", run, "--json", "-").out)

    def test_a_run_is_shown_with_its_model_its_steps_and_its_losses(self):
        self.train("--steps", 30, "--dtype", "bf16", "--json", "figures.json")
        figures = json.loads((self.path / "figures.json").read_text())
        shown = self.info()
        for key in ("parameters", "validation_loss", "train_loss", "steps", "seconds", "checkpoint"):
            self.assertEqual(shown[key], figures[key], key)
        self.assertEqual((shown["step"], shown["saved_step"], shown["validation_step"]), (30, 30, 30))
        self.assertEqual((shown["preset"], shown["layers"], shown["width"], shown["context"]), ("nano", 4, 128, 16))
        self.assertEqual((shown["dtype"], shown["optimizer"], shown["lock"]), ("bf16", "adamw", None))
        self.assertEqual(shown["tokens"], 30 * 2 * 16)
        self.assertEqual((shown["lr"], shown["batch"], shown["seed"]), (0.003, 2, 0))
        self.assertEqual(shown["texts"], [str(self.text)])
        text = self.run_lorry("info", "run").out
        for says in (f"text             {self.text}", "adamw, learning rate 0.003, batch 2, seed 0",
                     "preset nano: 4 layers, 4 heads, width 128, context 16", "826 k, bf16", "30 of 30",
                     "after step 30", f"{figures['train_loss']:.4f}", f"{figures['validation_loss']:.4f}",
                     "held by nobody"):
            self.assertIn(says, text)

    def test_a_run_of_a_given_time_is_shown_with_it(self):
        self.train("--max-seconds", 1)
        shown = self.info()
        self.assertEqual((shown["max_seconds"], shown["step"]), (1, shown["steps"]))
        self.assertRegex(self.run_lorry("info", "run").out, r"time +0:0\d of 0:01")

    def test_who_trains_is_named(self):
        process = train_on(self)
        shown = self.info()
        self.assertEqual(shown["lock"], f"process {process.pid} on {socket.gethostname()}")
        self.assertGreaterEqual(shown["step"], shown["saved_step"])
        process.kill()
        process.wait()
        shown = self.info()
        self.assertIsNone(shown["lock"], "a killed process holds nothing")
        self.assertEqual(shown["step"], shown["saved_step"], "what it did after its checkpoint is lost")
        self.assertTrue((self.path / "run/lock").exists(), "nothing was removed")

    def test_a_folder_without_a_run_is_refused(self):
        self.run_lorry("info", "run", "--measure", status=2)


class NoRun(CommandTest):
    COMMANDS = (("train", "--resume"), ("generate", "--checkpoint"), ("info",))

    def test_a_path_without_a_run_is_named_with_what_was_expected(self):
        (self.path / "folder").mkdir()
        files = sorted(self.path.rglob("*"))
        for path in ("nothere", "text.txt", "folder", "nothere/deeper", "nothere/checkpoint", "text.txt/checkpoint"):
            for command in self.COMMANDS:
                done = self.refused(*command, path)
                self.assertEqual(done.err, f"lorry: {command[0]}: there is no run or checkpoint at '{path}'; "
                                           "expected a folder that `lorry train` wrote\n")
        self.assertEqual(sorted(self.path.rglob("*")), files, "nothing was made")

    def test_who_trains_there_without_a_checkpoint_is_named(self):
        (self.path / "run").mkdir()
        with open(self.path / "run/lock", "w") as lock:
            lock.write("process 7 on host")
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)
            for command in self.COMMANDS:
                self.refused(*command, "run", says=("no run or checkpoint at 'run'", "process 7 on host is training"))

    def test_who_trains_there_is_named_to_a_new_run(self):
        self.train("--steps", 2)
        with open(self.path / "run/lock", "w") as lock:
            lock.write("process 7 on host")
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = self.refused("train", "--text", self.text, "--out", "run", *small(),
                                says=("'run' is being trained by process 7 on host", "--out"))
            self.assertNotIn("--resume", done.err)

    def test_a_file_that_a_checkpoint_lacks_is_named(self):
        self.train("--steps", 2)
        (self.path / "run/checkpoint/optimizer.safetensors").unlink()
        for command in self.COMMANDS:
            self.refused(*command, "run", says=("is incomplete: there is no optimizer.safetensors",))

    def test_a_run_is_named_by_its_checkpoint_too(self):
        self.train("--steps", 2)
        (self.path / "link").symlink_to("run/checkpoint")
        whole = self.run_lorry("info", "run").out
        inside = self.path / "run/checkpoint"
        for path in ("run/", "run/checkpoint", "run/checkpoint/", "link", inside):
            self.assertEqual(self.run_lorry("info", path).out, whole, path)
            self.run_lorry("generate", "--checkpoint", path, "--tokens", 2)
        for folder, path in ((inside, "."), (self.path / "run", "checkpoint"), (self.path / "run", ".")):
            done = subprocess.run([LORRY, "info", path], cwd=folder, capture_output=True)
            self.assertEqual(done.stdout.decode(), whole, done.stderr)
        self.run_lorry("train", "--resume", "run/checkpoint", "--steps", 3, "--threads", 1)
        self.assertEqual(len(self.training_losses()), 3)
        self.assertEqual({p.name for p in inside.iterdir()},
                         {"model.safetensors", "optimizer.safetensors", "state.json"}, "nothing was written there")

    def test_a_checkpoint_that_a_crash_set_aside_is_named_as_if_it_were_there(self):
        self.train("--steps", 2)
        (self.path / "run/checkpoint").rename(self.path / "run/.checkpoint.previous")
        self.run_lorry("info", "run/checkpoint")

    def test_a_checkpoint_outside_of_a_run_writes_text(self):
        self.train("--steps", 2)
        (self.path / "run/checkpoint").rename(self.path / "kept")
        self.run_lorry("generate", "--checkpoint", "kept", "--tokens", 2)

    def test_a_damaged_run_is_no_missing_one(self):
        self.train("--steps", 2)
        (self.path / "run/checkpoint/state.json").unlink()
        for command in self.COMMANDS:
            self.refused(*command, "run", says=("'run/checkpoint' is incomplete", "no state.json"))


class Foreign(CommandTest):
    def test_a_folder_with_files_of_another_is_refused_by_name(self):
        run = self.path / "run"
        run.mkdir()
        for name, text in (("thesis.tex", "years"), ("metrics.jsonl", "{\"step\": \"dance\"}\n"),
                           ("metrics.jsonl", "notes"), ("loss.svg", "<svg/>"), ("lock", "mine")):
            (run / name).write_text(text)
            self.refused("train", "--text", self.text, "--out", "run", *small(), "--steps", 2, says=(name,))
            self.assertEqual({p.name: p.read_text() for p in run.iterdir()}, {name: text})
            (run / name).unlink()

    def test_a_run_that_was_killed_before_its_first_checkpoint_starts_over(self):
        self.train("--steps", 3, out="whole")
        run = self.path / "run"
        run.mkdir()
        for text in ("", '{"st', '{"step":1,"loss":5.5,"lr":0.1,"gradient_norm":1.5,"seconds":0.1}\n{"ste'):
            for leftover in run.iterdir():
                if leftover.is_dir():
                    for file in leftover.iterdir():
                        file.unlink()
                    leftover.rmdir()
                else:
                    leftover.unlink()
            (run / "metrics.jsonl").write_text(text)
            (run / "lock").write_text("process 1 on nowhere")
            self.train("--steps", 3)
            self.assertEqual(self.losses(), self.losses("whole"))


class EditedState(CommandTest):
    def test_settings_that_differ_from_the_tensors_are_named_with_both_values(self):
        self.train("--steps", 4)
        state = self.path / "run/checkpoint/state.json"
        good = json.loads(state.read_text())
        cases = (("layers", 1_000_000_000, 4), ("layers", 3, 4), ("width", 4096, 128), ("vocab", 300, 256),
                 ("heads", 8, 4))
        for name, said, has in cases:
            edited = json.loads(json.dumps(good))
            edited["config"][name] = said
            state.write_text(json.dumps(edited))
            for command in (("train", "--resume", "run", "--steps", 9), ("generate", "--checkpoint", "run")):
                self.refused(*command, says=(f"{name} {said}", f"has {has}"))
        edited = json.loads(json.dumps(good))
        edited["config"]["rotary"] = False
        state.write_text(json.dumps(edited))
        for command in (("train", "--resume", "run", "--steps", 9), ("generate", "--checkpoint", "run")):
            self.refused(*command, says=("learned", "no table"))
        for key, said, says in (("step", 3, ("step 3", "has 4")), ("steps", 2, ("steps 2", "step 4"))):
            edited = json.loads(json.dumps(good))
            (edited if key == "step" else edited["config"])[key] = said
            state.write_text(json.dumps(edited))
            for command in (("train", "--resume", "run", "--steps", 9), ("generate", "--checkpoint", "run")):
                self.refused(*command, says=says)


if __name__ == "__main__":
    unittest.main()
