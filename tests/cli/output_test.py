"""Where the command writes: a file that the user names may be standard output, a link, a FIFO or a device."""
import json
import os
import re
import resource
import shutil
import stat
import subprocess
import threading
import unittest
from pathlib import Path

from support import LORRY, CommandTest, small

BENCH = ("bench", "overhead", "--filter", "empty", "--quiet")


class Files(CommandTest):
    def read_fifo(self, name):
        """Makes a FIFO; returns it, and a call that gives what was written to it."""
        fifo = self.path / name
        os.mkfifo(fifo)
        text = []
        reader = threading.Thread(target=lambda: text.append(fifo.read_text()), daemon=True)
        reader.start()

        def result():
            reader.join(timeout=60)
            self.assertFalse(reader.is_alive(), "the FIFO was never closed")
            return text[0]

        return fifo, result

    def test_a_dash_is_standard_output_and_the_table_goes_to_standard_error(self):
        for arguments, key in ((BENCH, "results"), (("info",), "cpu")):
            done = self.run_lorry(*arguments, "--json", "-")
            self.assertIn(key, json.loads(done.out))
            self.assertTrue(done.err)
        self.assertFalse((self.path / "-").exists())
        self.run_lorry(*BENCH, "--json", "-", "--plot", "-", status=2)

    def test_figures_of_training_and_texts_go_to_standard_output(self):
        done = self.train("--steps", 3, "--json", "-")
        self.assertEqual(json.loads(done.out)["steps"], 3)
        self.assertIn("validation loss", done.err)
        done = self.run_lorry("generate", "--checkpoint", "run", "--tokens", 5, "--json", "-")
        self.assertEqual(json.loads(done.out)["tokens"], 5)

    def test_another_name_of_standard_output_is_standard_output(self):
        with open(self.path / "out.json", "wb") as out:
            subprocess.run([LORRY, "info", "--json", "/dev/stdout"], stdout=out, stderr=subprocess.DEVNULL, check=True)
        self.assertIn("cpu", json.loads((self.path / "out.json").read_text()))

    def test_a_link_stays_and_its_target_is_written(self):
        (self.path / "link").symlink_to("there.json")
        self.run_lorry("info", "--json", "link")
        self.assertTrue((self.path / "link").is_symlink())
        self.assertIn("cpu", json.loads((self.path / "there.json").read_text()))

    def test_a_fifo_is_written_through(self):
        fifo, text = self.read_fifo("fifo")
        self.run_lorry("info", "--json", fifo)
        self.assertIn("cpu", json.loads(text()))
        self.assertTrue(stat.S_ISFIFO(fifo.lstat().st_mode))

    def test_a_device_is_written_through_and_stays(self):
        self.run_lorry("info", "--json", "/dev/null")
        self.assertTrue(stat.S_ISCHR(os.lstat("/dev/null").st_mode))
        self.refused("info", "--json", "/dev/full", says=("/dev/full", "No space left"))

    @unittest.skipUnless(shutil.which("gnuplot"), "gnuplot is not installed")
    def test_a_plot_is_written_like_every_file(self):
        fifo, text = self.read_fifo("fifo")
        self.run_lorry(*BENCH, "--plot", fifo)
        self.assertIn("<svg", text())
        self.assertIn("<svg", self.run_lorry(*BENCH, "--plot", "-").out)
        (self.path / "link.svg").symlink_to("there.svg")
        self.run_lorry(*BENCH, "--plot", "link.svg")
        self.assertTrue((self.path / "link.svg").is_symlink())
        self.assertIn("<svg", (self.path / "there.svg").read_text())
        self.refused(*BENCH, "--plot", "no/such.svg", says=("no/such.svg", "No such file"))

    def test_a_file_that_cannot_be_written_is_found_before_the_work(self):
        (self.path / "there.json").write_text("what was there")
        (self.path / "folder").mkdir()
        for file, why in (("no/such.json", "No such file"), ("folder", "s a directory")):
            done = self.refused(*BENCH[:-1], "--json", file, says=(file, why))
            self.assertNotIn("measuring", done.err)
            done = self.refused(*BENCH[:-1], "--plot", file, says=(file,))
            self.assertNotIn("measuring", done.err)
            self.refused("train", "--text", self.text, *small(), "--steps", 3, "--json", file, says=(file, why))
            self.assertFalse((self.path / "run/checkpoint").exists())
            self.assertFalse((self.path / "run/metrics.jsonl").exists())
        self.train("--steps", 3, "--json", "run/figures.json")
        self.assertEqual(json.loads((self.path / "run/figures.json").read_text())["steps"], 3)
        done = self.refused("generate", "--checkpoint", "run", "--tokens", 5, "--json", "no/such.json",
                            says=("no/such.json",))
        self.assertEqual(done.out, "", "nothing was written before")
        # A run that fails later leaves the file as it was.
        self.refused("generate", "--checkpoint", "nowhere", "--json", "there.json", says=("nowhere",))
        self.assertEqual((self.path / "there.json").read_text(), "what was there")
        self.assertEqual(sorted(p.name for p in self.path.iterdir()), ["folder", "run", "text.txt", "there.json"])

    def test_metrics_may_go_to_a_device_or_through_a_link(self):
        (self.path / "run").mkdir()
        (self.path / "run/metrics.jsonl").symlink_to("/dev/null")
        self.train("--steps", 3)
        self.assertTrue((self.path / "run/metrics.jsonl").is_symlink())
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))


def lose_output():
    """In the child: standard output is closed."""
    os.close(1)


class LostOutput(CommandTest):
    def test_standard_output_that_takes_nothing_is_a_failure(self):
        self.train("--steps", 3)
        commands = (BENCH, ("info",), ("generate", "--checkpoint", "run", "--tokens", 5), ("train", "--resume", "run"),
                    ("--help",), ("train", "--help"), ("--version",), ("info", "--json", "-"))
        for arguments in commands:
            with open("/dev/full", "wb") as full:
                command = [LORRY, *map(str, arguments)]
                done = subprocess.run(command, cwd=self.path, stdout=full, stderr=subprocess.PIPE, timeout=60)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn(b"lorry: cannot write standard output: No space left on device", done.stderr, arguments)

    def test_standard_output_that_is_closed_is_a_failure_and_takes_no_file(self):
        done = self.refused("info", "--json", "info.json", says=("standard output",), preexec_fn=lose_output)
        self.assertEqual(done.out, "")
        self.assertIn("cpu", json.loads((self.path / "info.json").read_text()))

    def test_a_file_past_the_limit_of_its_size_is_a_failure(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

        self.refused("info", "--json", "info.json", says=("info.json", "File too large"), preexec_fn=limit)
        self.assertFalse((self.path / "info.json").exists())
        if b"ThreadSanitizer" in Path(LORRY).read_bytes():
            self.skipTest("ThreadSanitizer's own files are larger than the limit")
        train = ("train", "--text", self.text, *small(), "--steps", 9)
        self.refused(*train, says=("metrics.jsonl", "File too large"), preexec_fn=limit)


class Terminals(CommandTest):
    def test_rows_of_a_table_fit_their_terminal(self):
        for arguments in (("bench", "optim", "--filter", "efficientnet_b0 adamw fused, one", "--quiet"), ("info",)):
            for columns in (64, 80):
                status, text = self.run_on_terminal(columns, *arguments, stream="stdout")
                self.assertEqual(status, 0, text)
                for line in text.splitlines():
                    self.assertLessEqual(len(line), columns, line)

    def test_a_step_is_said_once(self):
        done = self.train("--max-seconds", 3)
        said = re.findall(r"^step (\d+):", done.err, re.MULTILINE)
        self.assertTrue(said, done.err)
        self.assertEqual(len(said), len(set(said)), done.err)

    def test_a_line_of_progress_fits_its_terminal_and_keeps_the_loss(self):
        for columns in (40, 80, 200):
            arguments = ("train", "--text", self.text, "--out", f"run{columns}", *small(), "--steps", 120)
            status, text = self.run_on_terminal(columns, *arguments)
            self.assertEqual(status, 0, text)
            drawn = re.findall("\r\033\\[K([^\r]+)", text)
            self.assertTrue(drawn, text)
            for line in drawn:
                if line.startswith(("step ", "gnuplot ")):  # a line that stays
                    continue
                self.assertLess(len(line), columns, line)
                self.assertRegex(line, r"loss \d+\.\d{3}(?!\d)")
                self.assertRegex(line, r"\d+:\d\d( left)?$")


if __name__ == "__main__":
    unittest.main()
