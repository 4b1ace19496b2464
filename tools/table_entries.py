"""What the tables of operators (*.def) declare for users, for the reference that tools/api_reference.py writes."""

import re

from header_entries import Entry

DOMAINS = {"any": "any", "number": "all but bool", "whole": "bool, whole", "integer": "whole", "floating": "floating"}


def pointwise_rows(root):
    """{name: (dtypes, result, arguments, sentence)} of formula/pointwise.def; arguments: None without public forms."""
    text = (root / "lorry/formula/pointwise.def").read_text(encoding="utf-8")
    row = r"^LORRY_(UNARY|BINARY|NARY)\((\w+),\s*\w+,\s*(?:\d,\s*\w+\(\d\),\s*)?(\w+),\s*(\w+)\)(?:\s*// (.*))?$"
    found = re.findall(row, text, re.M)
    return {
        name: (DOMAINS[domain], result, {"UNARY": "x", "BINARY": "x, y"}.get(kind), "" if kind == "NARY" else sentence)
        for kind, name, result, domain, sentence in found
    }


REDUCTION = re.compile(r"^LORRY_(TOTAL|CHOICE)\((\w+),.*?(\w+)\)(?:\s*// (.*))?$", re.M)


def operator_kinds(root):
    """{name: differentiable, constant or view} of ops/dispatch/operators.def and formula/reduce.def."""
    text = (root / "lorry/ops/dispatch/operators.def").read_text(encoding="utf-8")
    reductions = REDUCTION.findall((root / "lorry/formula/reduce.def").read_text(encoding="utf-8"))
    kinds = {name: "constant" if result == "truth" else "differentiable" for _, name, result, _ in reductions}
    return kinds | dict(re.findall(r"^LORRY_OPERATOR\((\w+), (\w+),", text, re.M))


def reduction_entries(root):
    """What the rows of formula/reduce.def declare: functions with their out forms, and methods."""
    functions, methods = [], []
    for signature, name, _, sentence in REDUCTION.findall((root / "lorry/formula/reduce.def").read_text("utf-8")):
        rest = "dims = {}, keepdim = false" + (", dtype = {}" if signature == "TOTAL" else "")
        for called, given in ((name, "x"), (f"{name}_out", "out, x")):
            functions.append(Entry(called, "", "function", sentence, [f"{called}({given}, {rest})"], result="Tensor",
                                   takes_tensor=True))
        methods.append(Entry(name, "Tensor", "method", "", [f"{name}({rest})"], result="Tensor"))
    return functions, methods


def list_reduction_entries(root):
    """What the rows of formula/list.def declare."""
    text = (root / "lorry/formula/list.def").read_text(encoding="utf-8")
    rows = re.findall(r"^LORRY_LIST_REDUCTION\((\w+),.*\)(?:\s*// (.*))?$", text, re.M)
    return [Entry(name, "foreach", "function", sentence, [f"{name}(x)"]) for name, sentence in rows]


def aliases(root):
    text = (root / "lorry/tensor/aliases.def").read_text(encoding="utf-8")
    return sorted(set(re.findall(r"^LORRY_ALIAS\w*\((\w+),\s*(\w+)", text, re.M)))
