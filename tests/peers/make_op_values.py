#!/usr/bin/env python3
"""Writes tests/data/op_values.json: what PyTorch answers for operators whose semantics are easy to get wrong.

    python3 tests/peers/make_op_values.py tests/data/op_values.json

Needs torch. Inputs are multiples of 1/8, so that every floating dtype holds them exactly.
tests/ops/peer_values_test.cpp reads it.
"""
import json
import math
import random
import sys

import torch
import torch.nn.functional as F

NAMES = {torch.bool: "bool", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32",
         torch.int64: "i64",
         torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64"}
DTYPES = list(NAMES)
rng = random.Random(7)


def number(x):
    if isinstance(x, float) and not math.isfinite(x):
        return "nan" if math.isnan(x) else ("inf" if x > 0 else "-inf")
    return x


def stored(t):
    return {"dtype": NAMES[t.dtype], "shape": list(t.shape),
            "data": [number(v) for v in t.contiguous().flatten().tolist()]}


def make(shape, dtype=torch.float64, low=-3.0, high=3.0, special=False):
    n = math.prod(shape)
    if dtype == torch.bool:
        data = [rng.random() < 0.5 for _ in range(n)]
    elif dtype.is_floating_point:
        data = [round(rng.uniform(low, high) * 8) / 8 for _ in range(n)]
        if special:
            for i, v in enumerate([math.nan, math.inf, -math.inf, 0.0, -0.0]):
                if i < n:
                    data[(i * 3) % n] = v
    else:
        data = [rng.randint(max(0 if dtype == torch.uint8 else -9, int(low * 3)), int(high * 3)) for _ in range(n)]
    return torch.tensor(data, dtype=dtype).reshape(shape)


cases = []


def case(op, function, inputs, **args):
    """One call, with what PyTorch gives for it or the fact that PyTorch refuses it."""
    entry = {"op": op, "args": args, "inputs": [stored(t) for t in inputs]}
    try:
        out = function(*inputs)
        out = list(out) if isinstance(out, (tuple, list)) else [out]
        entry["outputs"] = [stored(t) for t in out]
    except (RuntimeError, IndexError, TypeError, ValueError):
        entry["error"] = True
    cases.append(entry)


def promotions():
    table = {}
    for op in ("add", "div", "maximum", "eq"):
        rows = []
        function = getattr(torch, op)
        for a in DTYPES:
            for b in DTYPES:
                for rank_a, rank_b in ((1, 1), (1, 0), (0, 1), (0, 0)):
                    x = torch.ones([2] * rank_a, dtype=a)
                    y = torch.ones([2] * rank_b, dtype=b)
                    rows.append([NAMES[a], rank_a, NAMES[b], rank_b, NAMES[function(x, y).dtype]])
            if op != "maximum":
                for kind, scalar in (("bool", True), ("int", 1), ("float", 1.5)):
                    for rank in (0, 1):
                        rows.append([NAMES[a], rank, kind, -1,
                                     NAMES[function(torch.ones([2] * rank, dtype=a), scalar).dtype]])
        table[op] = rows
    return table


FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
INTS = (torch.int64, torch.int32, torch.int8, torch.uint8)

# Division and powers of whole numbers and of specials.
for dtype in (torch.float64, torch.float32, torch.int64, torch.int8, torch.uint8):
    x = make([4, 3], dtype, special=dtype.is_floating_point)
    y = make([3], dtype, low=1)
    if not dtype.is_floating_point:
        y = torch.where(y == 0, torch.ones_like(y), y)
    for mode in ("floor", "trunc"):
        case("div_mode", lambda a, b: torch.div(a, b, rounding_mode=mode), [x, y], mode=mode)
    for op in ("remainder", "fmod", "maximum", "minimum", "fmax", "fmin", "floor_divide", "atan2", "eq", "lt",
               "logical_and", "logical_xor"):
        case(op, getattr(torch, op), [x, y])
    case("pow", torch.pow, [x, y.abs() if dtype != torch.uint8 else y])
    case("clamp", lambda a: torch.clamp(a, 1, 2), [x], min=1, max=2)
    case("sign", torch.sign, [x])
case("pow", torch.pow, [make([6], special=True), make([6], special=True)])
case("pow_scalar", lambda a: torch.pow(a, 2.5), [make([5], torch.int64, low=0)], exponent=2.5)
case("pow_scalar", lambda a: torch.pow(a, 3), [make([5], torch.int32)], exponent=3)
for op in ("round", "floor", "ceil", "trunc", "frac", "abs", "neg", "relu", "sigmoid", "tanh", "exp", "log", "log1p",
           "expm1", "sqrt", "rsqrt", "reciprocal", "erf", "erfc", "sin", "cos", "tan",
           "asin", "acos", "atan", "sinh", "cosh", "log2", "log10", "isnan", "isinf", "isfinite", "logical_not"):
    for dtype in (torch.float64, torch.float16, torch.int64):
        case(op, getattr(torch, op), [make([3, 5], dtype, special=dtype.is_floating_point)])
for dtype in FLOATS:
    x = make([4, 4], dtype)
    case("gelu", F.gelu, [x])
    case("gelu_tanh", lambda a: F.gelu(a, approximate="tanh"), [x])
    case("silu", F.silu, [x])
    case("softplus", F.softplus, [x * 10])
    case("lerp", lambda a, b: torch.lerp(a, b, 0.25), [x, make([4, 4], dtype)], weight=0.25)
    case("addcmul", lambda a, b, c: torch.addcmul(a, b, c, value=0.5), [x, make([4, 1], dtype), make([4], dtype)],
         value=0.5)
    case("addcdiv", lambda a, b, c: torch.addcdiv(a, b, c, value=-2.0),
         [x, make([4, 1], dtype), make([4], dtype, low=1)], value=-2.0)
    case("nan_to_num", torch.nan_to_num, [make([9], dtype, special=True)])

# Reductions over every kind of dimension list, with specials and empties.
for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool):
    x = make([2, 3, 4], dtype)
    for dims in ([], [0], [-1], [0, 2], [0, 1, 2]):
        for keep in (False, True):
            case("sum", lambda a: torch.sum(a, dims or None, keepdim=keep) if dims or keep else torch.sum(a), [x],
                 dims=dims, keepdim=keep)
            case("amax", lambda a: torch.amax(a, dims, keepdim=keep), [x], dims=dims, keepdim=keep)
            if dtype.is_floating_point:
                case("mean", lambda a: torch.mean(a, dims or None, keepdim=keep), [x], dims=dims, keepdim=keep)
                case("logsumexp", lambda a: torch.logsumexp(a, dims or [0, 1, 2], keepdim=keep), [x],
                     dims=dims or [0, 1, 2], keepdim=keep)
                for correction in (0, 1, 3):
                    case("var", lambda a: torch.var(a, dims or None, correction=correction, keepdim=keep), [x],
                         dims=dims, keepdim=keep, correction=correction)
                for p in (0.0, 1.0, 2.0, 3.0, math.inf, -math.inf):
                    case("norm", lambda a: torch.linalg.vector_norm(a, p, dims or None, keepdim=keep), [x], dims=dims,
                         keepdim=keep, p=number(p))
    for dim in (0, 1, -1):
        case("prod", lambda a: torch.prod(a, dim), [x], dim=dim)
        case("argmax", lambda a: torch.argmax(a, dim), [x if dtype != torch.bool else x.to(torch.int64)], dim=dim)
        case("argmin", lambda a: torch.argmin(a, dim, keepdim=True), [x if dtype != torch.bool else x.to(torch.int64)],
             dim=dim, keepdim=True)
        case("max_dim", lambda a: torch.max(a, dim), [x.unsqueeze(-1)[..., 0]], dim=dim)
        case("cumsum", lambda a: torch.cumsum(a, dim), [x], dim=dim)
        case("cumprod", lambda a: torch.cumprod(a, dim), [x], dim=dim)
        case("any", lambda a: torch.any(a, dim), [x], dims=[dim])
        case("all", lambda a: torch.all(a, dim), [x], dims=[dim])
        case("sort", lambda a: torch.sort(a, dim=dim, stable=True), [x], dim=dim, descending=False)
        case("sort", lambda a: torch.sort(a, dim=dim, stable=True, descending=True), [x], dim=dim, descending=True)
special = make([3, 5], special=True)
for op in ("amax", "amin", "sum", "mean"):
    case(op, lambda a: getattr(torch, op)(a, [1]), [special], dims=[1], keepdim=False)
case("argmax", lambda a: torch.argmax(a, 1), [special], dim=1)
case("sort", lambda a: torch.sort(a, dim=1, stable=True), [special], dim=1, descending=False)
case("topk", lambda a: torch.topk(a, 2, 1), [make([3, 5])], k=2, dim=1, largest=True)
case("topk", lambda a: torch.topk(a, 2, 0, largest=False), [make([3, 5])], k=2, dim=0, largest=False)
case("unique", lambda a: torch.unique(a, return_inverse=True, return_counts=True), [make([4, 5], torch.int64)])
for shape, dims in (([0], []), ([2, 0], [0]), ([2, 0], [1]), ([0, 3], [0])):
    x = torch.zeros(shape, dtype=torch.float64)
    for op in ("sum", "mean", "amax"):
        case(op, lambda a: getattr(torch, op)(a, dims) if dims or op == "amax" else getattr(torch, op)(a), [x],
             dims=dims, keepdim=False)
    for dim in dims:
        case("argmax", lambda a: torch.argmax(a, dim), [x], dim=dim)
        case("prod", lambda a: torch.prod(a, dim), [x], dim=dim)
case("sum", torch.sum, [torch.tensor(2.5, dtype=torch.float64)], dims=[], keepdim=False)

# Normalisation, softmax, losses.
for dtype in FLOATS:
    x = make([3, 4, 6], dtype)
    for dim in (0, 1, -1):
        case("softmax", lambda a: torch.softmax(a, dim), [x], dim=dim)
        case("log_softmax", lambda a: torch.log_softmax(a, dim), [x], dim=dim)
    case("layer_norm", lambda a, w, b: F.layer_norm(a, [6], w, b, 1e-5), [x, make([6], dtype), make([6], dtype)],
         shape=[6])
    case("layer_norm", lambda a, w, b: F.layer_norm(a, [4, 6], w, b, 1e-5),
         [x, make([4, 6], dtype), make([4, 6], dtype)], shape=[4, 6])
    case("rms_norm", lambda a, w: F.rms_norm(a, [6], w, 1e-6), [x, make([6], dtype)], shape=[6])
for dtype in (torch.float64, torch.float32):
    logits, weight = make([5, 4], dtype), make([4], dtype, low=0.5)
    target = torch.tensor([0, 3, -100, 1, 2])
    for reduction in ("none", "mean", "sum"):
        for smoothing in (0.0, 0.125):
            case("cross_entropy",
                 lambda a, w: F.cross_entropy(a, target, w, reduction=reduction, label_smoothing=smoothing),
                 [logits, weight], target=target.tolist(), reduction=reduction, smoothing=smoothing)
        other = make([5, 4], dtype, low=0, high=1)
        case("bce_logits", lambda a, b, w: F.binary_cross_entropy_with_logits(a, b, pos_weight=w, reduction=reduction),
             [logits, other, weight], reduction=reduction)
        case("mse_loss", lambda a, b: F.mse_loss(a, b, reduction=reduction), [logits, other], reduction=reduction)
        case("smooth_l1", lambda a, b: F.smooth_l1_loss(a, b, reduction=reduction, beta=0.5), [logits, other],
             reduction=reduction, beta=0.5)

# Indexing and joining.
x = make([4, 5, 3])
i = torch.tensor([[0, 3], [-1, 2]])
j = torch.tensor([1, 4])
m = make([4, 5], torch.bool)
m1 = torch.tensor([True, False, True, True])
for kind, index in (("i", (i,)), ("i:j", (i, slice(None), j % 3)), (":ij", (slice(None), i, j % 3)),
                    ("m1:j", (m1.logical_and(torch.tensor([True, False, True, False])), slice(None), j % 3)),
                    ("i0", (i, 0)), ("0:j", (0, slice(None), j % 3)), ("None i", (None, i)),
                    ("...j", (Ellipsis, j % 3)), ("1:3 j", (slice(1, 3), j)), ("True i", (True, i))):
    case("index", lambda a: a[index], [x], kind=kind)
case("index", lambda a, b: a[b], [x, m], kind="m")
case("gather", lambda a: torch.gather(a, 1, torch.tensor([[[0, 1, 2]], [[4, 4, 0]]])), [x], dim=1)
case("scatter_add", lambda a, s: torch.scatter_add(a, 0, torch.tensor([[0, 1, 2], [1, 1, 3]]), s),
     [make([4, 3]), make([2, 3])])
case("index_add", lambda a, s: torch.index_add(a, 1, torch.tensor([0, 2, 0]), s, alpha=2), [make([2, 4]), make([2, 3])])
case("take_along_dim", lambda a: torch.take_along_dim(a, torch.tensor([[[2]], [[-1]], [[0]], [[1]]]), 1), [x])
case("nonzero", torch.nonzero, [make([3, 4], torch.bool)])
case("masked_select", lambda a, b: torch.masked_select(a, b), [make([3, 4]), make([4], torch.bool)])
for a, b in ((torch.float32, torch.int64), (torch.int8, torch.uint8), (torch.bool, torch.int32),
             (torch.float16, torch.bfloat16)):
    case("cat", lambda u, v: torch.cat([u, v], 1), [make([2, 2], a), make([2, 3], b)], dim=1)
case("cat", lambda u, v: torch.cat([u, v], 1), [make([2, 2]), torch.zeros([0], dtype=torch.float64)], dim=1)
case("stack", lambda u, v: torch.stack([u, v], -1), [make([2, 2]), make([2, 2])], dim=-1)
for shifts, dims in (([1], []), ([1, -2], [0, 1]), ([7], [1])):
    case("roll", lambda a: torch.roll(a, shifts, dims), [make([3, 4])], shifts=shifts, dims=dims)
case("flip", lambda a: torch.flip(a, [0, -1]), [x], dims=[0, -1])
case("repeat", lambda a: a.repeat(2, 1, 3), [make([2, 3])], repeats=[2, 1, 3])
case("tile", lambda a: torch.tile(a, (2,)), [make([2, 3])], repeats=[2])
case("tril", lambda a: torch.tril(a, -1), [make([3, 4])], diagonal=-1)
case("triu", lambda a: torch.triu(a, 1), [make([2, 3, 3])], diagonal=1)
case("diagonal", lambda a: torch.diagonal(a, 1, 0, 2), [x], offset=1, dim1=0, dim2=2)
case("unfold", lambda a: a.unfold(1, 3, 2), [x], dim=1, size=3, step=2)
for args in ((5,), (0, 5, 2), (1.0, 2.0, 0.25), (5, 0, -2), (0, 1, 0.3)):
    case("arange", lambda: torch.arange(*args), [], args=list(args))
for steps in (1, 2, 5):
    case("linspace", lambda: torch.linspace(-1, 2, steps), [], steps=steps)

# Products and attention.
for a, b in (([3], [3]), ([3], [3, 2]), ([4, 3], [3]), ([4, 3], [3, 2]), ([5, 4, 3], [3]), ([3], [5, 3, 2]),
             ([5, 4, 3], [3, 2]), ([2, 1, 4, 3], [5, 3, 2]), ([4, 3], [5, 3, 2]), ([0, 3], [3, 2]), ([2, 0], [0, 3]),
             ([4, 3], [4, 3])):
    for dtype in (torch.float64, torch.float32, torch.int64):
        case("matmul", torch.matmul, [make(a, dtype), make(b, dtype)])
case("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2.0), [make([2]), make([3, 4]), make([4, 2])],
     beta=0.5, alpha=2.0)
q, k, v = make([2, 4, 5, 8]), make([2, 4, 7, 8]), make([2, 4, 7, 8])
case("attention", lambda a, b, c: F.scaled_dot_product_attention(a, b, c), [q, k, v], causal=False)
case("attention", lambda a, b, c: F.scaled_dot_product_attention(a, b, c, is_causal=True), [q, k, v], causal=True)
case("attention", lambda a, b, c: F.scaled_dot_product_attention(a, b, c, enable_gqa=True),
     [q, make([2, 2, 7, 8]), make([2, 2, 7, 8])], causal=False, gqa=True)
case("attention_mask", lambda a, b, c, d: F.scaled_dot_product_attention(a, b, c, attn_mask=d), [q, k, v, make([5, 7])])

# Shapes that must be refused, and those that must not.
case("add", torch.add, [make([2, 3]), make([2])])
case("add", torch.add, [make([2, 1, 3]), make([4, 1])])
case("add", torch.add, [make([0, 3]), make([1, 3])])
case("view", lambda a: a.view(-1, 0), [torch.zeros([2, 0], dtype=torch.float64)], sizes=[-1, 0])
case("view", lambda a: a.view(3, -1), [make([2, 3])], sizes=[3, -1])
case("view", lambda a: a.view(4, -1), [make([2, 3])], sizes=[4, -1])

if __name__ == "__main__":
    with open(sys.argv[1], "w") as out:
        out.write(json.dumps({"torch": torch.__version__.split("+")[0], "promotions": promotions()},
                             separators=(",", ":"))[:-1])
        out.write(',\n"cases":[\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]}\n")
    print(len(cases), "cases")
