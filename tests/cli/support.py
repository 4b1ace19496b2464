"""Runs the built command and reads what it wrote. The command's path is in LORRY; ctest sets it."""
import fcntl
import json
import os
import pty
import struct
import subprocess
import tempfile
import termios
import unittest
from pathlib import Path

LORRY = os.environ["LORRY"]


# Small enough that a test trains in a second.
def small(context=16, threads=1):
    return ("--preset", "nano", "--batch", "2", "--context", str(context), "--threads", str(threads))


TEXT = "".join(f"{i} is {'odd' if i % 2 else 'even'}, and so is {i * i}.\n" for i in range(400))


class CommandTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="lorry-")
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name)
        self.text = self.path / "text.txt"
        self.text.write_text(TEXT)

    def run_lorry(self, *arguments, status=0, **options):
        """Runs the command to its end; the test fails unless it exits with `status`."""
        done = subprocess.run([LORRY, *map(str, arguments)], capture_output=True, timeout=300, cwd=self.path, **options)
        done.out, done.err = done.stdout.decode("utf-8"), done.stderr.decode("utf-8")
        self.assertEqual(done.returncode, status, f"{arguments}\n{done.out}\n{done.err}")
        return done

    def refused(self, *arguments, says=(), **options):
        """Runs a command that must fail with one clear sentence and exit status 1."""
        done = self.run_lorry(*arguments, status=1, **options)
        complaints = [line for line in done.err.splitlines() if line.startswith("lorry: ")]
        self.assertEqual(len(complaints), 1, done.err)
        for text in says:
            self.assertIn(text, complaints[0])
        return done

    def train(self, *arguments, out="run", context=16, threads=1):
        return self.run_lorry("train", "--text", self.text, "--out", out, *small(context, threads), *arguments)

    def run_on_terminal(self, columns, *arguments, stream="stderr"):
        """Runs the command with one of its streams on a terminal; returns (exit status, what the terminal received)."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: theirs}
        process = subprocess.Popen([LORRY, *map(str, arguments)], cwd=self.path, **streams)
        os.close(theirs)
        text = b""
        try:
            while piece := os.read(ours, 4096):
                text += piece
        except OSError:  # the other end is closed
            pass
        os.close(ours)
        return process.wait(timeout=300), text.decode("utf-8")

    def losses(self, out="run"):
        """[(step, training loss, validation loss)] of a run, exactly as written; one of the two is None."""
        records = [json.loads(line) for line in (self.path / out / "metrics.jsonl").read_text().splitlines()]
        return [(r["step"], r.get("loss"), r.get("validation_loss")) for r in records]

    def training_losses(self, out="run"):
        """[loss] of the steps of a run."""
        return [loss for _, loss, _ in self.losses(out) if loss is not None]

    def checkpoint_bytes(self, out="run"):
        """Every file of a run's checkpoint, to compare before and after."""
        return {p.name: p.read_bytes() for p in sorted((self.path / out / "checkpoint").iterdir())}
