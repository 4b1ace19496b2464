"""The schema of reports for the scripts that write and read them. Its fields are listed once, in
lorry/bench/result.cpp."""
import re
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "lorry" / "bench" / "result.cpp"


def read(text):
    """(version, {field: meaning}) of that source."""
    version = re.search(r"constexpr int kSchema = (\d+);", text)
    table = re.search(r"constexpr Field kFields\[\] = \{\n(.*?)\n\};", text, re.S)
    if not version or not table:
        raise ValueError("lorry/bench/result.cpp: there is no kSchema or no kFields as bench/schema.py reads them")
    fields = dict(re.findall(r'^    \{"(\w+)", "([^"]+)",', table[1], re.M))
    if len(fields) != len(re.findall(r"^    \{", table[1], re.M)):
        raise ValueError('lorry/bench/result.cpp: a row of kFields does not begin with {"name", "meaning",')
    return int(version[1]), fields


VERSION, FIELDS = read(SOURCE.read_text(encoding="utf-8"))


def with_rates(row):
    """The row with what follows from its bytes, operations and median."""
    row = dict(row)
    if "bytes" in row:
        row["gb_per_s"] = row["bytes"] / row["median_us"] / 1e3
    if "flops" in row:
        row["tflop_per_s"] = row["flops"] / row["median_us"] / 1e6
    return row


def report(machine, rows):
    """A report with these rows. Raises ValueError for a field that the schema does not have."""
    for row in rows:
        if unknown := sorted(set(row) - set(FIELDS)):
            names = ", ".join(unknown)
            case = row.get("case")
            raise ValueError(f"the row {case!r} has fields that lorry/bench/result.cpp does not list: {names}")
    return {"schema": VERSION, "machine": machine, "results": rows}
