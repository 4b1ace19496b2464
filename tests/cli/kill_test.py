"""A run that is killed outright at a random moment goes on to exactly the losses of a run that was left alone."""
import os
import random
import subprocess
import time
import unittest

from support import LORRY, CommandTest, small

ROUNDS = 10
MOST_TRIES = 200


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
        for number in range(MOST_TRIES):
            if resumed == ROUNDS:
                break
            out = f"run{number}"
            command = [LORRY, "train", "--text", self.text, "--out", out, *flags, "--quiet"]
            process = subprocess.Popen(command, cwd=self.path, stdout=subprocess.DEVNULL)
            time.sleep(chance.uniform(0, duration))
            process.kill()
            # A run that ended before the kill, or saved nothing before it, has nothing to go on with: it is another
            # try, not a round.
            ended = process.wait() == 0
            if ended or not (self.path / out / "checkpoint").exists():
                continue
            self.run_lorry("train", "--resume", out, "--threads", "1")
            resumed += 1
            which = f"try {number}, LORRY_TEST_SEED={seed}"
            self.assertEqual(self.losses(out), expected, which)
            self.assertEqual(self.checkpoint_bytes(out), self.checkpoint_bytes("whole"), which)
        left = f"kills that left a checkpoint, of {MOST_TRIES} tries, LORRY_TEST_SEED={seed}"
        self.assertEqual(resumed, ROUNDS, left)


if __name__ == "__main__":
    unittest.main()
