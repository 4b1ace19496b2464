#!/usr/bin/env python3
"""Writes docs/api.md, the reference of what lorry/lorry.h gives, from the headers: their declarations, the first
sentences of their docstrings, and the two lists of operators.

    tools/api_reference.py            # rewrites it
    tools/api_reference.py --check    # exits 1 when it does not say what the headers say

Exits 1 too when a function has no sentence.
"""

import re
import sys
import textwrap
from pathlib import Path

from header_entries import Entry, Header
from table_entries import aliases, list_reduction_entries, operator_kinds, pointwise_rows, reduction_entries

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/api.md"

# Title, a sentence, headers. Every header that lorry.h includes stands in one of them.
OPERATORS = (
    ("Creating tensors", "", ("ops/creation.h", "ops/random.h")),
    (
        "Pointwise operators",
        "They promote dtypes and broadcast shapes by PyTorch's rules. The signs `+ - * / % & | ^ << >>`, `! ~` and\n"
        "`== != < <= > >=` stand for their operators.",
        ("ops/pointwise.h", "ops/promotion.h"),
    ),
    ("Shapes, views, copies", "", ("ops/views.h", "ops/joining.h", "ops/copy.h", "ops/sum_to_size.h")),
    ("Indexing", "", ("ops/indexing.h",)),
    ("Reductions, sorting, normalisation", "", ("ops/reduce.h", "ops/sort.h", "ops/softmax.h", "ops/norm.h")),
    ("Matrix products, attention, embedding", "",
     ("ops/matmul.h", "ops/batch_invariant.h", "ops/attention.h", "ops/rotary.h", "ops/embedding.h")),
    ("Generation", "", ("ops/paged_attention.h", "ops/tokens.h")),
    ("Compression", "[compression.md](compression.md) says what each scheme is for.", ("ops/quantize.h",)),
    ("Losses and dropout", "", ("ops/loss.h", "ops/dropout.h")),
)
OTHERS = (
    (
        "Tensor",
        "What a tensor knows of itself, and what is a method only. The other methods are operators, above.",
        ("tensor/tensor.h",),
    ),
    ("Dtypes, devices, errors", "", ("layout/dtype.h", "layout/device.h", "base/error.h",
     "base/synchronisation_error.h")),
    ("Gradients", "", ("autograd/grad_mode.h", "autograd/engine.h", "autograd/checkpoint.h", "autograd/function.h")),
    ("Layers and models", "", ("nn/module.h", "nn/layers.h", "nn/containers.h", "nn/gpt.h")),
    (
        "Optimizers",
        "",
        (
            "optim/optimizer.h",
            "optim/step_options.h",
            "optim/rules/adam.h",
            "optim/rules/adaptive.h",
            "optim/rules/sgd.h",
            "optim/optimizers.h",
            "optim/memory.h",
            "optim/custom.h",
            "optim/schedule.h",
            "optim/clip.h",
            "optim/loss_scaler.h",
        ),
    ),
    (
        "Lists of tensors",
        "Every pointwise operator of the table above also takes lists: `foreach::add(x, y)`, `foreach::add_(x, y)`.",
        ("foreach/foreach.h", "foreach/norm.h"),
    ),
    ("Compiled functions", "", ("compile/compile.h",)),
    ("Graphs", "", ("replay/graph.h", "replay/bucket_options.h", "replay/buckets.h")),
    ("Text generation", "", ("generate/request.h", "generate/engine.h")),
    ("Several processes", "", ("parallel/process_group.h", "parallel/reduction.h", "parallel/collectives.h",
                               "parallel/data_parallel.h", "parallel/checkpoint.h", "parallel/tensor_parallel.h")),
    ("Files and data", "", ("io/safetensors.h", "io/checkpoint.h", "io/corpus.h")),
    (
        "Devices, memory, threads, events",
        "",
        ("device/device.h", "device/stream.h", "memory/memory.h", "device/cpu/team.h", "base/events.h"),
    ),
    ("Measuring", "", ("profile/benchmark.h", "profile/sampling.h", "profile/ceilings.h")),
    ("Profiling", "", ("profile/session.h", "profile/table.h", "profile/diagnose.h", "profile/memory_timeline.h",
                       "profile/chrome_trace.h", "profile/sync.h", "profile/forecast.h", "profile/apply.h")),
    ("Compression", "", ("profile/lossy.h",)),
    ("DLPack", "", ("tensor/dlpack.h",)),
)
# Headers that lorry.h includes and whose names are listed elsewhere: lists of other headers, and second names (below).
LISTS = {"ops/ops.h", "ops/aliases.h"}

# Functions for the inside, which headers must show.
SKIPPED = re.compile("|".join(r"""
    (?!save_for)\w+_backward attention_dropout embed reshape_result wrapped_number without_repeats from_bytes
    raise\w* require node node_ptr emit emit_after heard choice run require_device parallel_for for_each_chunk
    (allocate|release|record)_(pinned|managed) allocate release record_stream make_built_in_blocks make_rule
    with_options built_in_index built_in_rule
    AllOptions \w*OptionsList visit\w* promote can_store to_whole index_put checked with_sizes info detail named choose
    layout storage NormGrads
    AttentionCall NestedNumbers DTypeOf Type DTypeInfo ShortRule OwnRule UserFunction LiveBlock OptionsList DL\w+
    extent DeferReports SerialScope EllipsisType numbered copy decltype CompileError CaptureError Operand TensorNode
    view_in_place announce\w+
    """.split()))
# Sentences for what has none of its own in the headers, or shares its neighbour's.
SENTENCES = {
    "leaky_relu": "x, or negative_slope * x below 0.",
    "elu": "x, or alpha * (exp(x) - 1) below 0.",
    "zeros": "All 0.",
    "ones": "All 1.",
    "zeros_like": "All 0, with x's sizes and device.",
    "ones_like": "All 1, with x's sizes and device.",
    "full": "All one value; without options its dtype is the value's: bool, i64 or f32.",
    "full_like": "All one value, with x's sizes and device.",
    "rand": "Uniform in [0, 1).",
    "randn": "Standard normal.",
    "manual_seed": "Seeds the process's generator.",
    "view": "Other sizes, or another dtype, over the same elements.",
    "view_as": "A view with the other's sizes.",
    "reshape_as": "reshape to the other's sizes.",
    "permute": "Dimensions in another order.",
    "transpose": "Two dimensions exchanged.",
    "select": "One index along a dimension, which goes.",
    "expand_as": "expand to the other's sizes.",
    "broadcast_to": "expand by another name.",
    "broadcast_tensors": "All of them expanded to their common sizes.",
    "squeeze": "Without the dimensions of size 1, or without those given where their size is 1.",
    "unsqueeze": "A new dimension of size 1.",
    "unflatten": "One dimension split into several.",
    "ravel": "flatten of all dimensions.",
    "diagonal": "The diagonal of two dimensions, as the last one.",
    "unfold": "Windows of a size along a dimension, as a new last dimension.",
    "movedim": "Dimensions moved to other places.",
    "unbind": "The slices along a dimension, as a list.",
    "clone": "A copy.",
    "flip": "The order along dimensions reversed.",
    "index": "The elements that a list of numbers, slices and tensors selects.",
    "scatter_add": "scatter that adds to what is there.",
    "max": "The largest element; along a dimension also where it is.",
    "min": "The smallest element; along a dimension also where it is.",
    "argmax": "Where the (first) largest is, i64.",
    "argmin": "Where the (first) smallest is, i64.",
    "count_nonzero": "How many elements are not 0.",
    "std": "The square root of var.",
    "var_mean": "The variance and the mean.",
    "cumsum": "The sums of what stands up to each place.",
    "cumprod": "The products of what stands up to each place.",
    "argsort": "Where the elements of each line are in order.",
    "l1_loss": "|x - target|.",
    "mse_loss": "(x - target)^2.",
    "index_add": "Adds slices at positions along dim.",
    "index_copy": "Writes slices at positions along dim.",
    "hstack": "cat along the second dimension; of vectors, along the first.",
    "vstack": "cat along the first dimension; vectors become rows.",
    "set_matmul_precision": "Whether f32 products on a GPU may use tf32.",
    "matmul_precision": "What is set.",
    "set_matmul_tuning": "Whether a GPU's products are timed to choose their algorithm.",
    "matmul_tuning": "What is set.",
    "addcmul": "x + value a b.",
    "addcdiv": "x + value a / b.",
    "tril": "The elements on and below the diagonal; 0 above.",
    "triu": "The elements on and above the diagonal; 0 below.",
    "cat": "Joined along a dimension that they have.",
    "randn_like": "Standard normal, with x's sizes and device.",
    "rand_like": "Uniform in [0, 1), with x's sizes and device.",
    "randint_like": "Whole numbers in [low, high), with x's sizes and device.",
    "events::Event": "A hidden copy, a wait for a GPU, or a warning, as a handler receives it.",
    "Generator::State": "Where a generator stands.",
    "Unique": "What unique gives.",
    "nn::GPTConfig": "The shape of a GPT.",
    "nn::PagedCache::Layer": "The keys and values of one layer: [blocks, block_size, heads, width / heads].",
    "nn::Module": "A named tree of parameters, buffers and further modules.",
    "optim::Optimizer": "What every optimizer is.",
    "x.size": "The size of one dimension.",
    "x.data": "The address of the first element, typed.",
    "autograd::Function": "An operator of your own: a struct with a forward and a backward.",
    "Function.apply": "Calls forward, and records the call where a gradient is wanted.",
    "Module.buffer": "Names a tensor that is saved and moved with the parameters but not trained.",
    "nn::Sequential": "Modules and functions, called one after the other.",
    "nn::ModuleList": "Several modules of one class.",
    "nn::GPT": "A stack of transformer blocks over tokens, with GPT-2's shapes.",
    "optim::Custom": "An optimizer with a rule of your own.",
    "LRScheduler.lr": "The rate of a group.",
    "ReduceOnPlateau.lr": "The rate of a group.",
    "io::Corpus": "Text as training data: bytes are the tokens, the last tenth of every file is held out.",
    "optim::LossScaler": "Scales the loss so that f16 gradients do not vanish.",
    "GPT.forward": "The logits of tokens [b, t], or of the rows of a flat batch over a cache.",
    "CausalSelfAttention.forward": "x: [b, t, width], or the rows [n, width] of a flat batch over a cache.",
    "foreach::apply": "Any pointwise operator, over lists.",
    "foreach::apply_": "The same, written to `self`.",
    "optim::name": "How it is called.",
    "Schedule.at": "The rate of a step, counted from 0, of a group with this base rate.",
    "x.uniform_": "Fills with uniform numbers in [low, high).",
    "x.random_": "Fills with whole numbers in [low, high).",
    "x.copy_": "Writes another tensor's elements, converted and broadcast.",
    "x.fill_": "Writes one value.",
    "x.zero_": "Writes 0.",
    "x.index_put_": "Writes to the elements that a list of numbers, slices and tensors selects, or adds.",
    "foreach::fill_": "Writes one value to all.",
    "foreach::zero_": "Writes 0 to all.",
    "x.cpu": "A copy on the CPU, or itself.",
    "x.cuda": "A copy on a GPU, or itself.",
    "Tensor": "A counted pointer to storage, layout and dtype. Copying it copies the pointer; views share the storage.",
    "Indexing/where": "The coordinates of the elements that are not 0, one vector a dimension.",
    "index_fill": "Writes one value at positions along dim.",
    "baddbmm": "addmm for batches of matrices.",
    "empty_pinned": "Uninitialised, in host memory that a GPU reads at the speed of the link.",
    "empty_managed": "Uninitialised, in memory of the device that moves to whoever touches it, page by page.",
    "nll_loss": "cross_entropy from log-probabilities, with class indices only.",
    "allclose": "Whether isclose holds everywhere.",
    "prod": "The product over one dimension, or over all.",
    "linear_aligned": "linear, with every row of the result at a multiple of 16 bytes.",
    "packed_attention": "scaled_dot_product_attention for q, k and v that one linear layer made: [b, t, 3 * width].",
    "log_softmax": "The logarithm of softmax.",
    "unique_consecutive": "The first of each run of equal elements.",
    "scatter_reduce": "scatter of the sum, product, mean, largest or smallest of what has one position.",
    "scatter": "Writes, adds or multiplies source at positions along dim: self[index[i][j]][j] = source[i][j].",
}


# ---- operators -------------------------------------------------------------------------------------------------------

# Composed of other operators, but nothing of a gradient comes through.
NO_GRADIENT = set("""
    empty_like zeros_like ones_like full_like rand_like randn_like randint_like one_hot isclose argsort
    unique_consecutive normal nonzero_static_with_count quantize int8_linear
    """.split())


def has_gradient(name, entry, pointwise, kinds, with_rules):
    """Whether gradients pass through an operator: by its rule, or by those of the operators that it is composed of."""
    if name in pointwise:
        return name in with_rules
    if name in NO_GRADIENT or kinds.get(name) == "constant":
        return False
    return entry.takes_tensor and not re.search(r"\b(bool|DType)\b", entry.result)


def called_on(scope):
    """What a method of the class `scope` is shown with."""
    owner = scope.split("::")[-1]
    return "x" if owner == "Tensor" else owner


def cell(text):
    return text.replace("|", "\\|")


class Reference:
    def __init__(self, root):
        self.root = root
        self.headers = {
            name: Header(root / "lorry" / name).entries for _, _, names in (*OPERATORS, *OTHERS) for name in names
        }
        functions, methods = reduction_entries(root)
        self.headers["ops/reduce.h"] = functions + self.headers["ops/reduce.h"]
        self.headers["tensor/tensor.h"] += methods
        self.headers["foreach/norm.h"] += list_reduction_entries(root)
        self.pointwise, self.kinds = pointwise_rows(root), operator_kinds(root)
        rules = "".join(file.read_text(encoding="utf-8") for file in (root / "lorry/autograd/rules").glob("*.cpp"))
        self.with_rules = set(re.findall(r"\bOp::(\w+)", rules))
        self.methods = {}
        for entry in self.headers["tensor/tensor.h"]:
            if entry.kind == "method" and entry.scope == "Tensor":
                self.methods.setdefault(entry.name, entry)
        self.functions = {
            entry.name
            for name, entries in self.headers.items()
            if name.startswith("ops/")
            for entry in entries
            if entry.kind == "function"
        }
        self.told, self.missing, self.listed = set(), [], set()

    def sentence(self, name, own):
        if name in SENTENCES:
            self.told.add(name)
            return SENTENCES[name]
        return own

    def forms(self, name):
        unary = self.pointwise.get(name, (0, 0, None, ""))[2] is not None
        have = [
            ("f", True),
            ("m", name in self.methods or unary),
            ("_", name + "_" in self.methods or name + "_" in self.functions or unary),
            ("out", name + "_out" in self.functions or unary),
        ]
        shown = {"f": f"{name}", "m": "method", "_": f"`{name}_`", "out": f"`{name}_out`"}
        return ", ".join(shown[form] for form, there in have if there and form != "f") or "function only"

    def operators(self, title, said, headers):
        dtypes = "ops/pointwise.h" in headers
        lines = [
            f"### {title}",
            "",
            *([said, ""] if said else []),
            prose("Declared in " + links(headers) + "."),
            "",
            (
                "| operator | also as | dtypes | gradient | what it gives |"
                if dtypes
                else "| operator | also as | gradient | what it gives |"
            ),
            "|---|---|---|---|---|" if dtypes else "|---|---|---|---|",
        ]
        rows, rest, of = {}, [], {}
        if "ops/pointwise.h" in headers:
            for name, (_, _, call, sentence) in self.pointwise.items():
                if call:
                    rows[name] = ([f"{name}({call})"], sentence)
        for header in headers:
            for entry in self.headers[header]:
                if (
                    entry.kind == "function"
                    and not entry.name.endswith("_out")
                    and not SKIPPED.fullmatch(entry.name)
                    or entry.name == "promote"
                ):
                    if entry.name.endswith("_") and (entry.name[:-1] in rows or entry.name[:-1] in self.methods):
                        continue
                    of.setdefault(entry.name, entry)
                    shown, own = rows.setdefault(entry.name, ([], entry.sentence))
                    if entry.shown[0] not in shown:
                        shown.append(entry.shown[0])
                    rows[entry.name] = (shown, own or entry.sentence)
                elif entry.kind in ("class", "struct", "enum"):
                    rest.append(entry)
        for name, (shown, own) in rows.items():
            if name in self.listed:  # where(condition), which is another operator than where(condition, x, y)
                lines.append(
                    f"| `{cell(shown[0])}` | function only | - | {cell(self.sentence(f'{title}/{name}', own))} |"
                )
                continue
            self.listed.add(name)
            sentence = self.sentence(name, own)
            if not sentence:
                self.missing.append(name)
            passes = has_gradient(name, of.get(name), self.pointwise, self.kinds, self.with_rules)
            cells = [
                f"`{max(shown, key=len)}`",
                self.forms(name),
                *([self.pointwise.get(name, ("",))[0]] if dtypes else []),
                "yes" if passes else "-",
                sentence,
            ]
            lines.append("| " + " | ".join(map(cell, cells)) + " |")
        types = [row for entry in rest if not self.is_skipped("", entry) for row in self.row(entry, ())]
        return lines + [""] + (["| type | what it is |", "|---|---|", *types, ""] if types else [])

    def row(self, entry, also):
        """The row of a type or function; `also`: methods that have no sentence of their own."""
        space = re.sub(r"(^|::)Tensor$", "", entry.scope)
        prefix = f"{space}::" if space else ""
        if entry.kind == "method":
            prefix = called_on(entry.scope) + "."
        name = entry.name
        if entry.kind in ("class", "struct"):
            name += "{" + ", ".join(entry.shown) + "}" if entry.shown else ""
        else:
            name = entry.shown[0]
        sentence = self.sentence(f"{prefix}{entry.name}", entry.sentence)
        if not sentence and not also:
            sentence = "Options and their defaults." if entry.name.endswith("Options") else ""
            if not sentence and entry.kind != "enum":
                self.missing.append(f"{prefix}{entry.name}")
        if also:
            sentence += (" " if sentence else "") + "Also " + ", ".join(f"`{call}`" for call in also) + "."
        return [f"| `{cell(prefix + name)}` | {cell(sentence)} |"]

    def is_skipped(self, header, entry):
        if any(SKIPPED.fullmatch(name) for name in (entry.name, *entry.scope.split("::"))):
            return True
        if header == "tensor/tensor.h" and entry.kind == "method":
            return entry.name.rstrip("_") in self.listed
        if header == "foreach/foreach.h" and entry.name.rstrip("_") in self.pointwise:
            return True
        return entry.scope.endswith("Function") and entry.name in ("name", "tensor_of")

    def others(self, title, said, headers):
        lines = [f"## {title}", "", *([said, ""] if said else [])]
        options = {
            entry.name: entry for header in headers for entry in self.headers[header] if entry.name.endswith("Options")
        }
        made_of = {
            base
            for header in headers
            for entry in self.headers[header]
            for base in re.findall(r"^OptimizerFor<(\w+)>", entry.base)
        }
        for header in headers:
            entries = [
                entry
                for entry in self.headers[header]
                if not self.is_skipped(header, entry) and entry.name not in made_of
            ]
            constructors, rows, also = {}, {}, {}
            for entry in entries:
                if entry.kind == "constructor":
                    constructors.setdefault((entry.scope.rpartition("::")[0], entry.name), []).append(entry)
            for entry in entries:
                if entry.kind == "constructor":
                    continue
                own = (
                    constructors.get((entry.scope, entry.name))
                    if entry.kind in ("class", "struct") and entry.name != "Tensor"
                    else None
                )
                if own:
                    entry = Entry(
                        entry.name,
                        entry.scope,
                        "constructor",
                        entry.sentence or own[0].sentence,
                        [max((c.shown[0] for c in own), key=len)],
                    )
                elif match := re.match(r"OptimizerFor<(\w+)>", entry.base):
                    shown = f"{entry.name}(params, {{{', '.join(options[match[1]].shown)}}})"
                    entry = Entry(entry.name, entry.scope, "constructor", entry.sentence, [shown])
                key = (entry.scope, entry.name, entry.kind)
                known = rows.setdefault(key, entry)
                known.sentence = known.sentence or entry.sentence
                if known.kind not in ("class", "struct") and entry.shown:
                    known.shown = [max(known.shown[0], entry.shown[0], key=len)]
            quiet = {
                key: entry
                for key, entry in rows.items()
                if entry.kind == "method"
                and not entry.sentence
                and f"{called_on(entry.scope)}.{entry.name}" not in SENTENCES
            }
            for entry in quiet.values():
                also.setdefault(entry.scope, []).append(entry.shown[0])
            out = []
            for key, entry in rows.items():
                if key not in quiet:
                    scope = (
                        f"{entry.scope}::{entry.name}".lstrip(":")
                        if entry.kind in ("class", "struct", "constructor")
                        else None
                    )
                    out += self.row(entry, also.get(scope, ()))
            if out:
                lines += [f"In {links((header,))}:", "", "| | |", "|---|---|", *out, ""]
        return lines

    def page(self):
        lines = [
            "# Reference",
            "",
            'What `#include "lorry/lorry.h"` gives, one line each, made from the headers by `tools/api_reference.py`.',
            "Everything is in the namespace `lorry`. A header says more: shapes, dtypes, errors, sources.",
            "",
            "## Operators",
            "",
            "Every operator runs on the CPU and on NVIDIA GPUs.",
            "",
            "- *Also as*: a method, `x.name(...)`; in place, `x.name_(...)`; into a tensor, `name_out(out, ...)`.",
            "- *Dtypes* are those that a pointwise operator takes. What other operators refuse, their headers say.",
            "- *Gradient*: whether gradients pass through it.",
            "",
        ]
        for theme in OPERATORS:
            lines += self.operators(*theme)
        second = ", ".join(f"`{alias}` ({original})" for alias, original in aliases(self.root))
        declared = links(("tensor/aliases.def",))
        lines += ["### Second names", "", prose(f"As in PyTorch: {second}. Declared in {declared}."), ""]
        for theme in OTHERS:
            lines += self.others(*theme)
        return "\n".join(lines).rstrip() + "\n"

    def problems(self):
        """What a page made of these headers would lack."""
        included = set()
        for header in ("lorry.h", "ops/ops.h", "optim/optimizers.h"):
            included |= set(
                re.findall(r'#include "lorry/([^"]+)"', (self.root / "lorry" / header).read_text(encoding="utf-8"))
            )
        yield from (
            f"no theme of tools/api_reference.py has lorry/{name}"
            for name in sorted(included - set(self.headers) - LISTS)
        )
        yield from (f"{name} has no sentence: give it a docstring, or its row a comment" for name in self.missing)
        yield from (f"SENTENCES has {name}, which no header declares" for name in sorted(set(SENTENCES) - self.told))


def prose(text):
    """A paragraph in lines of 120 columns; what stands between backticks is not broken."""
    glued = re.sub(r"`[^`]*`", lambda code: code.group().replace(" ", "\0"), text)
    return textwrap.fill(glued, 120, break_long_words=False, break_on_hyphens=False).replace("\0", " ")


def links(headers):
    return ", ".join(f"[{name}](../lorry/{name})" for name in headers)


def main(arguments):
    reference = Reference(ROOT)
    text = reference.page()
    problems = list(reference.problems())
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 1
    page = ROOT / PAGE
    if "--check" in arguments:
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            print(f"{PAGE} does not say what the headers say; run tools/api_reference.py", file=sys.stderr)
            return 1
        return 0
    page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
