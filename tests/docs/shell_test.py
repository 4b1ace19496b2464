#!/usr/bin/env python3
"""The shell blocks of README.md and docs/: what a reader would type exists. Targets of make, files of the tree, and the
commands and options of `lorry` (environment LORRY) are looked up; cheap commands of README.md are run, in their order.

    shell_test.py ROOT
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import page_code

LORRY = os.environ["LORRY"]
PROGRAMS = {"cmake", "ctest", "ninja", "compute-sanitizer"}  # of other projects
SECONDS = "3"  # what --max-seconds becomes


def commands(text):
    """(line, words) of every command of the shell blocks."""
    for block in page_code.blocks(text):
        if block.language != "sh":
            continue
        lines = block.code.replace("\\\n", "  ").splitlines()
        for number, line in enumerate(lines, block.line):
            words = shlex.split(line, comments=True)
            while words and re.match(r"\w+=", words[0]):  # the environment
                words = words[1:]
            if "lorry" in words and words[0] == "mpirun":  # which starts the command that follows
                words = words[words.index("lorry") :]
            if words:
                yield number, words


def help_of(*command):
    return subprocess.run([LORRY, *command, "--help"], check=True, capture_output=True, text=True).stdout


def lorry_problem(words):
    if len(words) < 2 or not re.search(rf"^  {re.escape(words[1])} ", help_of(), re.MULTILINE):
        return "there is no such command of lorry"
    if words[1] == "profile" and "--" in words:  # its own words, and the command behind them
        cut = words.index("--")
        return lorry_problem(words[:cut]) or lorry_problem(["lorry", *words[cut + 1 :]])
    text = help_of(words[1])
    unknown = [word for word in words if word.startswith("--") and not re.search(rf"[ ,]{re.escape(word)}\b", text)]
    if unknown:
        return f"lorry {words[1]} has no {', '.join(unknown)}"
    if words[1] == "bench":
        suites = re.search(r"What to measure: (.*?)\n\n", text, re.S)[1]  # over as many lines as it takes
        names = []
        for word in words[2:]:
            if word.startswith("--"):
                break
            names.append(word)
        if missing := [name for name in names if not re.search(rf"\b{re.escape(name)}\b", suites)]:
            return f"lorry bench has no suite {', '.join(missing)}"
    return None


def problem(root, words):
    """What is wrong with a command, or None."""
    program = words[0]
    if program == "lorry":
        return lorry_problem(words)
    if program == "make":
        targets = re.findall(r"^([\w -]+):(?!=)", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        known = {target for line in targets for target in line.split()}
        return next(
            (f"the Makefile has no {word}" for word in words[1:] if "=" not in word and word not in known), None
        )
    if program in PROGRAMS or program.startswith("build/"):
        return None
    script = root / program
    if not script.is_file():
        return f"there is no {program}"
    text = script.read_text(encoding="utf-8")
    return next(
        (f"{program} does not know {word}" for word in words[1:] if word.startswith("--") and word not in text), None
    )


def is_cheap(words):
    """Whether the tests can run a command: no measurement, no long run, and nothing with the model of one."""
    if words[:1] != ["lorry"] or words[1] in ("bench", "lessons", "profile"):
        return False
    return "--steps" not in words and "fortunes" not in words


class Shell(unittest.TestCase):
    def test_what_a_reader_would_type_exists(self):
        problems, count = [], 0
        for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
            for number, words in commands(page.read_text(encoding="utf-8")):
                count += 1
                if told := problem(ROOT, words):
                    problems.append(f"{page.relative_to(ROOT)}:{number}: {told}")
        self.assertEqual(problems, [])
        self.assertGreater(count, 10)

    def test_the_commands_of_the_readme_run(self):
        cheap = [words for _, words in commands((ROOT / "README.md").read_text(encoding="utf-8")) if is_cheap(words)]
        self.assertEqual({words[1] for words in cheap}, {"train", "generate", "info"})
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(ROOT / "docs" / "optimizers.md", Path(folder) / "book.txt")
            for words in cheap:
                if "--max-seconds" in words:
                    words[words.index("--max-seconds") + 1] = SECONDS
                done = subprocess.run([LORRY, *words[1:]], cwd=folder, capture_output=True, timeout=300)
                self.assertEqual(done.returncode, 0, (words, done.stderr))

    def test_mistakes_are_told(self):
        for words, told in (
            (["lorry", "trian"], "no such command"),
            (["lorry", "train", "--txt", "a"], "no --txt"),
            (["lorry", "bench", "speed"], "no suite speed"),
            (["lorry", "profile", "--trase", "a", "--", "train"], "no --trase"),
            (["lorry", "profile", "--", "train", "--txt", "a"], "no --txt"),
            (["make", "dmeo"], "no dmeo"),
            (["bench/measure_gpus"], "no bench/measure_gpus"),
            (["bench/measure_gpu", "--pats"], "does not know --pats"),
        ):
            self.assertIn(told, problem(ROOT, words) or "")


if __name__ == "__main__":
    ROOT = Path(sys.argv.pop(1))
    unittest.main()
