#!/usr/bin/env python3
"""Writes tests/data/flop_values.json: what torch.utils.flop_counter counts for operators and for a small GPT.

    tests/peers/make_flop_values.py        (needs torch; the file is kept in the tree, so that the tests do not)

A case names a call, its attributes and the shapes of its inputs, all of which require a gradient. `forward` is the
count of the call, `both` that of the call and the backward of its sum. PyTorch counts matrix products (mm, addmm, bmm,
baddbmm) and the attention kernels; other operators count nothing. `attention` is the part that attention kernels have.
Everything runs on the device meta, where shapes are computed and no elements, so attention is called as the GPU's
kernel.
"""
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

META = torch.device("meta")


def attention(q, k, v, causal=False):
    """[..., t, d]: the leading sizes broadcast, and the last of them counts heads."""
    leading = torch.broadcast_shapes(*(x.shape[:-2] for x in (q, k, v)))
    q, k, v = (x.expand(*leading, *x.shape[-2:]).reshape(-1, leading[-1], *x.shape[-2:]) for x in (q, k, v))
    return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal)[0]


def packed_attention(qkv, heads, causal=False):
    """qkv: [b, t, 3 * width], first all heads of q, then of k, then of v."""
    b, t, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    q, k, v = (x.view(b, t, heads, width // heads).transpose(1, 2) for x in qkv.split(width, 2))
    return attention(q, k, v, causal).transpose(1, 2).reshape(b, t, width)


CALLS = {
    "matmul": torch.matmul, "mm": torch.mm, "bmm": torch.bmm, "addmm": torch.addmm, "baddbmm": torch.baddbmm,
    "linear": F.linear, "attention": attention, "packed_attention": packed_attention,
    "add": torch.add, "mul": torch.mul, "relu": F.relu, "gelu": F.gelu, "sigmoid": torch.sigmoid,
    "softmax": lambda x: F.softmax(x, -1), "log_softmax": lambda x: F.log_softmax(x, -1),
    "layer_norm": lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), "sum": torch.sum, "mean": torch.mean,
    "cumsum": lambda x: torch.cumsum(x, -1), "transpose": lambda x: x.transpose(0, 1),
}
CASES = [
    ("matmul", [[5, 7], [7, 3]], {}),
    ("matmul", [[4, 5, 7], [7, 3]], {}),            # a batch of rows by one matrix
    ("matmul", [[2, 4, 5, 7], [2, 4, 7, 3]], {}),   # batches
    ("matmul", [[2, 1, 5, 7], [4, 7, 3]], {}),      # batches that broadcast
    ("mm", [[33, 17], [17, 9]], {}),
    ("bmm", [[6, 5, 8], [6, 8, 2]], {}),
    ("addmm", [[5, 3], [5, 7], [7, 3]], {}),
    ("addmm", [[3], [5, 7], [7, 3]], {}),           # a row that is added to all
    ("baddbmm", [[6, 5, 2], [6, 5, 8], [6, 8, 2]], {}),
    ("linear", [[5, 7], [3, 7]], {}),
    ("linear", [[5, 7], [3, 7], [3]], {}),
    ("linear", [[2, 5, 7], [3, 7]], {}),
    ("linear", [[2, 5, 7], [3, 7], [3]], {}),
    ("attention", [[2, 3, 8, 16], [2, 3, 8, 16], [2, 3, 8, 16]], {}),
    ("attention", [[2, 3, 8, 16], [2, 3, 10, 16], [2, 3, 10, 24]], {}),  # keys and values of other sizes than queries
    ("attention", [[2, 3, 8, 16], [2, 3, 8, 16], [2, 3, 8, 16]], {"causal": True}),
    ("attention", [[1, 2, 6, 8], [1, 2, 6, 8], [1, 2, 6, 4]], {"causal": True}),
    ("attention", [[3, 8, 16], [3, 8, 16], [3, 8, 16]], {}),             # without a batch
    ("attention", [[2, 4, 8, 16], [2, 1, 8, 16], [2, 1, 8, 16]], {}),    # keys and values that all heads share
    ("packed_attention", [[2, 8, 96]], {"heads": 4}),
    ("packed_attention", [[2, 8, 96]], {"heads": 4, "causal": True}),
    ("add", [[5, 7], [5, 7]], {}),
    ("mul", [[5, 7], [7]], {}),
    ("relu", [[5, 7]], {}),
    ("gelu", [[5, 7]], {}),
    ("sigmoid", [[5, 7]], {}),
    ("softmax", [[5, 7]], {}),
    ("log_softmax", [[5, 7]], {}),
    ("layer_norm", [[5, 7], [7], [7]], {}),
    ("sum", [[5, 7]], {}),
    ("mean", [[5, 7]], {}),
    ("cumsum", [[5, 7]], {}),
    ("transpose", [[5, 7]], {}),
]


class GPT(torch.nn.Module):
    """The products of lorry::nn::GPT: pre-norm blocks, one product for q, k and v, a head that reads the embedding.
    Rotary positions have no products and are left out."""

    def __init__(self, vocab, layers, heads, width):
        super().__init__()
        self.heads, self.tokens = heads, torch.nn.Embedding(vocab, width)
        self.blocks = torch.nn.ModuleList(torch.nn.ModuleDict({
            "norm1": torch.nn.LayerNorm(width), "qkv": torch.nn.Linear(width, 3 * width),
            "projection": torch.nn.Linear(width, width), "norm2": torch.nn.LayerNorm(width),
            "up": torch.nn.Linear(width, 4 * width), "down": torch.nn.Linear(4 * width, width)}) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        for b in self.blocks:
            x = x + b["projection"](packed_attention(b["qkv"](b["norm1"](x)), self.heads, causal=True))
            x = x + b["down"](F.gelu(b["up"](b["norm2"](x)), approximate="tanh"))
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def counted(counter):
    counts = {str(op): n for op, n in counter.get_flop_counts().get("Global", {}).items()}
    return {"all": sum(counts.values()), "attention": sum(n for op, n in counts.items() if "attention" in op)}


def count(run):
    """run() returns a tensor; what it counts, and what it counts with the backward of its sum."""
    with FlopCounterMode(display=False) as counter:
        out = run()
        forward = counted(counter)
        out.sum().backward()
    return {"forward": forward, "both": counted(counter)}


def case(name, shapes, attributes):
    inputs = [torch.empty(shape, device=META, requires_grad=True) for shape in shapes]
    return {"call": name, "shapes": shapes, "attributes": attributes,
            **count(lambda: CALLS[name](*inputs, **attributes))}


def gpt(preset, batch, context, **sizes):
    with META:
        model, tokens = GPT(**sizes), torch.zeros(batch, context, dtype=torch.int64)
    return {"preset": preset, "batch": batch, "context": context, **count(lambda: model(tokens, tokens))}


values = {
    "torch": torch.__version__,
    "calls": [case(*c) for c in CASES],
    "gpts": [gpt("nano", 3, 128, vocab=256, layers=4, heads=4, width=128),
             gpt("nano", 1, 50, vocab=256, layers=4, heads=4, width=128),
             gpt("tiny", 2, 64, vocab=256, layers=6, heads=6, width=384)],
}
path = Path(__file__).resolve().parents[1] / "data" / "flop_values.json"
lists = {k: ",\n    ".join(json.dumps(x) for x in values[k]) for k in ("calls", "gpts")}
path.write_text(f'{{\n  "torch": {json.dumps(values["torch"])},\n  "calls": [\n    {lists["calls"]}],\n'
                f'  "gpts": [\n    {lists["gpts"]}]\n}}\n')
