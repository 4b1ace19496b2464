"""What dtype_cost.py, operator_cost.py and rule_cost.py share: a patch of docs/ is applied to a copy of the tree,
counted, compared with the page that quotes it, and perhaps built."""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PARTS = ("CMakeLists.txt", "CMakePresets.json", "cmake", "docs", "lorry", "tests", "tools")


def added_lines(patch):
    return [line[1:] for line in patch.splitlines() if line.startswith("+") and not line.startswith("+++")]


def removed_lines(patch):
    return [line[1:] for line in patch.splitlines() if line.startswith("-") and not line.startswith("---")]


def place_of(old, lines, near):
    """Where the lines `old` stand in `lines`, as close to `near` as there is such a place; None when there is none."""
    places = [i for i in range(len(lines) - len(old) + 1) if lines[i : i + len(old)] == old]
    return min(places, key=lambda i: abs(i - near), default=None)


def apply(patch, scratch):
    """Applies a unified diff to the files under `scratch`; yields what does not fit. Here, because `patch` is not
    installed everywhere."""
    for part in re.split(r"^(?=--- )", patch, flags=re.MULTILINE)[1:]:
        header, *hunks = re.split(r"^(?=@@ )", part, flags=re.MULTILINE)
        name = re.search(r"^\+\+\+ b/(\S+)", header, flags=re.MULTILINE).group(1)
        path = scratch / name
        if header.startswith("--- /dev/null"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(added_lines(part)) + "\n", encoding="utf-8")
            continue
        if not path.exists():
            yield f"the patch does not apply: there is no {name}"
            continue
        lines = path.read_text(encoding="utf-8").split("\n")
        for hunk in hunks:
            head, *body = hunk.splitlines()
            body = [line for line in body if line[:1] in (" ", "+", "-")]
            old = [line[1:] for line in body if line[0] != "+"]
            at = place_of(old, lines, int(re.match(r"@@ -(\d+)", head).group(1)) - 1)
            if at is None:
                what = f"the patch does not apply to {name}: these lines do not follow each other there:"
                yield "\n".join([what, *old])
                break
            lines[at : at + len(old)] = [line[1:] for line in body if line[0] != "-"]
        path.write_text("\n".join(lines), encoding="utf-8")


def not_shown(patch, page):
    """Yields the added lines that the page does not quote."""
    text = page.read_text(encoding="utf-8")
    for line in added_lines(patch):
        if line not in text:
            yield f"docs/{page.name} does not show: {line.strip()}"


def apply_to_copy(patch, root, scratch):
    """Applies the patch to a copy of the tree; yields what does not fit."""
    for part in PARTS:
        source = root / part
        if source.is_dir():
            shutil.copytree(source, scratch / part)
        elif source.exists():
            shutil.copy(source, scratch / part)
    yield from apply(patch, scratch)


def build_and_run(scratch, tests):
    """Builds the programs of `tests` ({program: filter}) without CUDA and runs them; yields what fails."""
    folder = scratch / "build"
    steps = [["cmake", "-S", str(scratch), "-B", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
              "-DLORRY_CUDA=OFF"],
             ["cmake", "--build", str(folder), "--target", *tests]]
    steps += [[str(folder / "tests" / test), f"--gtest_filter={wanted}"] for test, wanted in tests.items()]
    for step in steps:
        print("+", " ".join(step), flush=True)
        if subprocess.run(step).returncode != 0:
            yield f"failed: {' '.join(step)}"
            return


def main(name, problems, tests, arguments):
    """[ROOT] [--build]: problems(root, scratch) yields what is wrong. Returns the exit status."""
    places = [a for a in arguments if a != "--build"]
    root = Path(places[0] if places else Path(__file__).parent.parent).resolve()
    with tempfile.TemporaryDirectory(prefix=f"lorry-{name}-") as folder:
        found = list(problems(root, Path(folder)))
        if "--build" in arguments and not found:
            found = list(build_and_run(Path(folder), tests))
    for what in found:
        print(f"{name}: {what}", file=sys.stderr)
    return 1 if found else 0
