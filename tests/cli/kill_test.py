"""A run that is killed outright at a random moment goes on to exactly the losses of a run that was left alone."""
import os
import random
import subprocess
import time
import unittest

from support import LORRY, CommandTest, small

ROUNDS = 10


class Killed(CommandTest):
    def test_ten_kills_at_random_moments_change_no_loss(self):
        flags = (*small(), "--steps", "60", "--checkpoint-every", "7")
        start = time.monotonic()
        self.run_lorry("train", "--text", self.text, "--out", "whole", *flags)
        duration = time.monotonic() - start
        expected = self.losses("whole")

        seed = int(os.environ.get("LORRY_TEST_SEED", random.randrange(2**32)))
        chance = random.Random(seed)
        resumed = 0
        for number in range(ROUNDS):
            out = f"run{number}"
            process = subprocess.Popen([LORRY, "train", "--text", self.text, "--out", out, *flags, "--quiet"], cwd=self.path, stdout=subprocess.DEVNULL)
            time.sleep(chance.uniform(0, duration))
            process.kill()
            process.wait()
            if (self.path / out / "checkpoint").exists():
                self.run_lorry("train", "--resume", out, "--threads", "1")
                resumed += 1
            else:
                self.run_lorry("train", "--text", self.text, "--out", out, *flags)
            self.assertEqual(self.losses(out), expected, f"round {number}, LORRY_TEST_SEED={seed}")
            self.assertEqual(self.checkpoint_bytes(out), self.checkpoint_bytes("whole"), f"round {number}, LORRY_TEST_SEED={seed}")
        self.assertGreater(resumed, 0, "no kill came after the first checkpoint")


if __name__ == "__main__":
    unittest.main()
