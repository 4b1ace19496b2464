"""Several processes train as one: the losses of one process, whatever their number, and a clear end when one fails."""
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest
from pathlib import Path

from support import LORRY, CommandTest

FLAGS = ("--preset", "nano", "--context", "16", "--device", "cpu", "--threads", "1")
EVERY_WAY = os.environ.get("LORRY_TEST_EVERY_WAY") == "1"  # every second one otherwise
KILLS = int(os.environ.get("LORRY_TEST_KILLS", 2))  # of the processes of a run, an even number


def children(pid):
    """The processes that a process has started, and those that they have."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").glob("*"):
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *children(child)]
    return found


def ranks_below(pid):
    """The processes of the ranks that a process has started."""
    ranks = {}
    for child in children(pid):
        with contextlib.suppress(OSError):
            for word in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                if match := re.fullmatch(rb"OMPI_COMM_WORLD_RANK=(\d+)", word):
                    ranks[int(match[1])] = child
    return ranks


class Devices(CommandTest):
    def train_on(self, devices, out, *arguments, batch=4, **options):
        return self.run_lorry("train", "--text", self.text, "--out", out, *FLAGS, "--batch", batch, "--devices",
                              devices, *arguments, **options)

    def saved_at(self, out):
        """When the checkpoint of a run was written; None: there is none, or it is just being replaced."""
        try:
            return (self.path / out / "checkpoint" / "state.json").stat().st_mtime_ns
        except OSError:
            return None

    def assert_near(self, got, expected):
        """Losses of two runs, of the same steps and validations."""
        self.assertEqual([(r[0], r[1] is None) for r in got], [(r[0], r[1] is None) for r in expected])
        for a, b in zip(got, expected):
            self.assertAlmostEqual(a[1] or a[2], b[1] or b[2], delta=1e-5 * abs(b[1] or b[2]), msg=f"step {b[0]}")

    def test_losses_are_those_of_one_process(self):
        self.train_on(1, "one", "--steps", 20)
        for devices in (2, 4):
            done = self.train_on(devices, f"on{devices}", "--steps", 20)
            self.assertIn("validation loss", done.out)
            self.assertEqual(done.out.count("parameters"), 1, "rank 0 alone talks")
            self.assert_near(self.losses(f"on{devices}"), self.losses("one"))

    def test_gradients_add_up_over_batches(self):
        self.train_on(1, "one", "--steps", 6, "--accumulate", 3)
        self.train_on(2, "two", "--steps", 6, "--accumulate", 3)
        self.assert_near(self.losses("two"), self.losses("one"))

    def test_a_run_goes_on_with_another_number_of_processes(self):
        self.train_on(1, "whole", "--steps", 16, "--eval-every", 4)
        self.train_on(2, "run", "--steps", 16, "--eval-every", 4, "--checkpoint-every", 4)
        self.run_lorry("train", "--resume", "run", "--steps", 24, "--device", "cpu", "--threads", 1)
        self.run_lorry("train", "--resume", "whole", "--steps", 24, "--device", "cpu", "--threads", 1, "--devices", 2)
        self.assert_near(self.losses("run"), self.losses("whole"))

    def test_shards_change_neither_losses_nor_the_tensors_of_checkpoints(self):
        self.train_on(1, "one", "--steps", 12, batch=12)
        for devices in (2, 3, 4):
            out = f"shards{devices}"
            self.train_on(devices, out, "--steps", 12, "--shard", batch=12)
            self.assert_near(self.losses(out), self.losses("one"))
            for file in ("model.safetensors", "optimizer.safetensors"):
                headers = [(self.path / run / "checkpoint" / file).read_bytes()[:2000] for run in (out, "one")]
                self.assertEqual(headers[0], headers[1], "the same tensors, whatever the number of processes")

    def test_a_checkpoint_goes_on_with_any_number_of_processes_with_shards_or_without(self):
        self.train_on(1, "whole", "--steps", 4, batch=12)
        self.run_lorry("train", "--resume", "whole", "--steps", 12, "--device", "cpu", "--threads", 1)
        ways = [(1, False), (2, False), (3, True), (4, True)]
        for i, (saved_by, shard) in enumerate(ways):
            run = f"from{i}"
            self.train_on(saved_by, run, "--steps", 4, *["--shard"] * shard, batch=12)
            for j, (devices, sharded) in enumerate(ways):
                if (i + j) % 2 and not EVERY_WAY:
                    continue
                copy = f"{run}to{devices}{sharded}"
                shutil.copytree(self.path / run, self.path / copy)
                self.run_lorry("train", "--resume", copy, "--steps", 12, "--device", "cpu", "--threads", 1,
                               "--devices", devices, *["--shard"] * sharded)
                self.assertAlmostEqual(self.losses(copy)[-1][2], self.losses("whole")[-1][2], delta=1e-4)

    def test_a_run_limited_by_time_ends_on_all(self):
        done = self.train_on(2, "timed", "--max-seconds", 3)
        self.assertIn("validation loss", done.out)

    def test_the_death_of_a_process_ends_the_others_and_is_named(self):
        command = [LORRY, "train", "--text", str(self.text), "--out", "run", *FLAGS, "--batch", "4", "--devices", "2",
                   "--steps", "100000", "--checkpoint-every", "20", "--eval-every", "50000"]
        process = subprocess.Popen(command, cwd=self.path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while not (self.path / "run" / "checkpoint").exists():
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        ranks = ranks_below(process.pid)
        begin = time.monotonic()
        os.kill(ranks[1], signal.SIGKILL)
        error = process.communicate(timeout=60)[1].decode()
        self.assertLess(time.monotonic() - begin, 20)
        self.assertNotEqual(process.returncode, 0)
        complaints = [line for line in error.splitlines() if line.startswith("lorry: ")]
        self.assertEqual(len(complaints), 1, error)
        self.assertIn("rank 1 has ended in step", complaints[0])
        self.run_lorry("generate", "--checkpoint", "run", "--tokens", 4, "--device", "cpu")  # it is whole

    def test_a_run_is_restarted_when_a_process_dies(self):
        arguments = ("--steps", str(200 * KILLS), "--checkpoint-every", "7", "--eval-every", "100000")
        self.train_on(2, "whole", *arguments)
        command = [LORRY, "train", "--text", str(self.text), "--out", "run", *FLAGS, "--batch", "4", "--devices", "2",
                   "--shard", "--restarts", str(KILLS), *arguments]
        process = subprocess.Popen(command, cwd=self.path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        saved = None
        for rank in [1, 0] * (KILLS // 2):
            begin = time.monotonic()
            while (now := self.saved_at("run")) in (None, saved) or len(ranks := ranks_below(process.pid)) < 2:
                self.assertIsNone(process.poll())
                self.assertLess(time.monotonic() - begin, 60)
                time.sleep(0.01)
            time.sleep(random.random() / 20)
            os.kill(ranks[rank], signal.SIGKILL)
            while ranks_below(process.pid).get(rank) == ranks[rank] and process.poll() is None:
                time.sleep(0.01)
            saved = self.saved_at("run") or now
        error = process.communicate(timeout=120)[1].decode()
        self.assertEqual(process.returncode, 0, error)
        said = rf"lorry: restart (\d+) of {KILLS}: the run goes on after step \d+; \d+ (?:step is|steps are) lost"
        restarts = re.findall(said, error)
        self.assertEqual(restarts, [str(i + 1) for i in range(KILLS)], error)
        self.assert_near(self.losses("run"), self.losses("whole"))

    def test_a_run_that_is_complete_is_reported_by_several_processes_too(self):
        self.train_on(2, "run", "--steps", 3)
        done = self.run_lorry("train", "--resume", "run", "--device", "cpu", "--threads", 1, "--devices", 2)
        self.assertIn("validation loss", done.out)

    def test_what_fails_before_a_step_is_not_restarted(self):
        done = self.train_on(3, "refused", "--restarts", 5, "--steps", 2, status=1)
        self.assertNotIn("restart", done.err)
        self.run_lorry("train", "--text", self.text, "--restarts", 2, status=2)

    def test_processes_of_torchrun_find_each_other_and_need_gpus(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        processes = []
        for rank in range(2):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank),
                               MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            command = [LORRY, "train", "--text", str(self.text), "--out", f"run{rank}", *FLAGS, "--batch", "4",
                       "--steps", "2"]
            processes.append(subprocess.Popen(command, cwd=self.path, env=environment, stderr=subprocess.PIPE))
        for process in processes:
            error = process.communicate(timeout=60)[1].decode()
            self.assertEqual(process.returncode, 1)
            self.assertIn("CPU tensors travel through MPI, which torchrun has not started", error)

    def test_collectives_are_measured_by_all_and_reported_by_one(self):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        command = ["mpirun", *root, "--oversubscribe", "-n", "2", LORRY, "bench", "parallel", "--device", "cpu",
                   "--threads", "1", "--filter", "1 KiB", "--json", "bench.json"]
        subprocess.run(command, cwd=self.path, check=True, capture_output=True, timeout=120)
        rows = json.loads((self.path / "bench.json").read_text())["results"]
        self.assertEqual([r["case"] for r in rows], [f"{x} of 1 KiB on 2" for x in
                                                     ("all_reduce", "all_gather", "reduce_scatter")])
        self.assertEqual([r["bytes"] for r in rows], [1024, 512, 512])
        self.refused("bench", "parallel", says=["mpirun"])

    def test_refuses_what_cannot_be_shared(self):
        for devices, arguments, says in ((2, ("--compile",), "--compile"), (2, ("--replay",), "--replay"),
                                         (3, (), "a batch of 4 cannot be split evenly over 3"),
                                         (2, ("--dtype", "bf16", "--accumulate", "2"), "--accumulate 2")):
            done = self.train_on(devices, "refused", "--steps", 2, *arguments, status=1)
            self.assertIn(says, done.err)
            self.assertFalse((self.path / "refused" / "checkpoint").exists())


if __name__ == "__main__":
    unittest.main()
