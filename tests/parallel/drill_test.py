#!/usr/bin/env python3
"""One rank of several goes wrong, in every way and in every phase; all others must end in time, with exit status 1 and
one sentence that names it, and the last checkpoint must be whole.

    LORRY_DRILL=PROGRAM LORRY_MPIRUN="mpirun ..." drill_test.py [--ranks 2,4] [--only FAULT,PHASE...]

LORRY_TEST_DEVICE=cuda gives every rank a GPU; LORRY_DRILL_SLACK is how many seconds beyond the time-out all may take.
"""
import argparse
import concurrent.futures
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TIMEOUT = 4  # seconds that ranks wait for each other
SLACK = int(os.environ.get("LORRY_DRILL_SLACK", 8))  # until everything is over, beyond that
PHASES = ("start-up", "forward", "backward", "reduction", "step", "checkpoint")
FAULTS = ("killed", "stopped", "memory", "throws", "leaves", "sleeps")
DISAGREEMENTS = ("shapes", "dtypes", "order", "count", "seeds")


def whole(path):
    """Whether a file of safetensors has the length that its header says."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    ends = [int(x) for x in re.findall(rb'"data_offsets":\s*\[\d+,\s*(\d+)\]', data[8:8 + size])]
    return len(data) == 8 + size + max(ends)


def run(ranks, fault, phase, faulty, shard):
    """Returns what was wrong with the way in which the other ranks ended."""
    wrong = []
    with tempfile.TemporaryDirectory(prefix="lorry-drill-", ignore_cleanup_errors=True) as folder:
        script = Path(__file__).with_name("run_rank.py")
        command = [*os.environ["LORRY_MPIRUN"].split(), "-n", str(ranks), sys.executable, str(script), folder,
                   os.environ["LORRY_DRILL"], fault, phase, str(faulty), folder, *["shard"] * shard]
        # Launchers that share a folder for their files remove it under one another.
        environment = dict(os.environ, LORRY_PARALLEL_TIMEOUT=str(TIMEOUT), OMP_NUM_THREADS="1", TMPDIR=folder)
        begin = time.monotonic()
        with open(Path(folder, "launcher"), "w", encoding="utf-8") as launcher:
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=launcher)
        others = [r for r in range(ranks) if r != faulty]
        status = lambda r: Path(folder, f"status.{r}")
        while time.monotonic() - begin < TIMEOUT + SLACK and not all(status(r).exists() for r in others):
            time.sleep(0.02)
        seconds = time.monotonic() - begin
        pid = Path(folder, f"pid.{faulty}")
        if pid.exists() and not status(faulty).exists() and fault in ("stopped", "sleeps"):
            os.kill(int(pid.read_text()), signal.SIGKILL)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            wrong.append("the launcher does not end")
        time.sleep(0.05)
        for r in others:
            if not status(r).exists():
                wrong.append(f"rank {r} hung for {seconds:.1f} s")
                if not Path(folder, f"pid.{r}").exists():
                    wrong.append(f"and never began; the launcher says {Path(folder, 'launcher').read_text()!r}")
                continue
            text = Path(folder, f"error.{r}").read_text(encoding="utf-8").strip()
            if status(r).read_text() != "1":
                wrong.append(f"rank {r} ended with {status(r).read_text()}")
            lines = text.splitlines()
            names = [f"rank {faulty}"] if phase != "calls" else [f"rank {faulty}", f"{faulty}"]
            if len(lines) != 1 or not any(n in text for n in names):
                wrong.append(f"rank {r} says {text!r}")
            elif os.environ.get("LORRY_DRILL_SHOW"):
                print(f"      rank {r}: {text}")
        checkpoint = Path(folder, "checkpoint")
        if checkpoint.exists() and not all(whole(checkpoint / f"{x}.safetensors") for x in ("model", "optimizer")):
            wrong.append("the checkpoint is damaged")
        if phase in ("checkpoint", "calls") and not checkpoint.exists():
            wrong.append("the last checkpoint is gone")
    return wrong, seconds


def cases(ranks, only, shard):
    """(ranks, fault, phase, faulty rank, whether there are shards) of every drill. The faulty rank is the coordinator's
    own, which without shards alone writes checkpoints, and another. With shards: the phases that are other ones."""
    all_of_them = [(f, p, False) for f in FAULTS for p in PHASES] + [(d, "calls", False) for d in DISAGREEMENTS]
    with_shards = [(f, p, True) for f in FAULTS for p in ("reduction", "step", "checkpoint")]
    for fault, phase, sharded in (with_shards if shard else all_of_them):
        if not only or {fault, phase} & set(only.split(",")):
            for faulty in (0,) if phase == "checkpoint" and not sharded else (0, ranks - 1):
                yield ranks, fault, phase, faulty, sharded


def waits(case):
    """Whether the ranks of a drill wait for the time-out, most of the time."""
    return case[1] in ("stopped", "sleeps") or case[2] == "start-up"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--only")
    parser.add_argument("--jobs", type=int, default=1,
                        help="how many drills that wait are made at once; a third of the others")
    parser.add_argument("--shard", action="store_true", help="drills of sharded steps and checkpoints")
    options = parser.parse_args()
    todo = [case for ranks in options.ranks.split(",") for case in cases(int(ranks), options.only, options.shard)]
    failures = 0

    def report(case, result):
        nonlocal failures
        ranks, fault, phase, faulty, shard = case
        wrong, seconds = result
        failures += bool(wrong)
        verdict = "FAILED" if wrong else "ok"
        print(f"{verdict:6} {ranks} ranks{', shards' * shard}, rank {faulty} {fault} in {phase}: {seconds:.1f} s",
              *(f"\n      {w}" for w in wrong), flush=True)

    for jobs, cases_of in ((max(1, options.jobs // 3), lambda case: not waits(case)), (options.jobs, waits)):
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            some = list(filter(cases_of, todo))
            for case, result in zip(some, pool.map(lambda case: run(*case), some)):
                report(case, result)
    print(f"{len(todo)} drills, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
