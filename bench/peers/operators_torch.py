#!/usr/bin/env python3
"""Measures the cases of `lorry bench operators`, or of `lorry bench attention`, in PyTorch, each in turn with Lorry:
round by round the two alternate, so that what disturbs the machine meets both. Shows the median of the rounds'
speed-ups, and the range that half of them lie in; a case counts as slower only where all of that range lies below 0.95.

    python bench/peers/operators_torch.py build/release/lorry [--suite attention] [--threads 2] [--device cuda]
        [--filter TEXT] [--rounds 7] [--runs 2] [--json F]

With --runs 2 all cases are measured, and then all again: a case is slower if it is in both runs. The report has the
schema of `lorry bench --json`: two results a case, Lorry's and PyTorch's, or Lorry's alone where PyTorch cannot compute
the case on the device; tools/operator_tables.py shows it. It is written after every case of the first run, so one that
is interrupted has the cases so far, and after each further run.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

try:
    import torch
    from torch.nn import functional as F
except ImportError as error:
    sys.exit(f"operators_torch.py: {error}; install PyTorch: pip install torch numpy")

import harness
import schema
import speedups

L, S = 1 << 22, 1 << 12
DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16, "i64": torch.int64,
          "i32": torch.int32, "u8": torch.uint8, "bool": torch.bool}


def rand(*sizes):
    return torch.rand(*sizes, device=DEVICE)


def operand(sizes, dtype="f32"):
    if dtype == "bool":
        return rand(*sizes) > 0.5
    if DTYPES[dtype].is_floating_point:
        return (rand(*sizes) * 0.8 + 0.1).to(DTYPES[dtype])
    return torch.randint(1, 9, sizes, dtype=DTYPES[dtype], device=DEVICE)


def integers(high, *sizes):
    return torch.randint(0, high, sizes, device=DEVICE)


class Cases(dict):
    """By name: a function that makes the inputs and returns the call."""
    family = ""  # of the cases that are added

    def __init__(self):
        super().__init__()
        self.families = {}

    def __setitem__(self, name, make):
        self.families[name] = self.family
        super().__setitem__(name, make)

    def of_one(self, name, sizes, dtype, call):
        def make():
            x = operand(sizes, dtype)
            return lambda: call(x)
        self[name] = make


def pointwise(cases):
    gelu_tanh = lambda x: F.gelu(x, approximate="tanh")
    unary = {name: getattr(torch, name) for name in (
        "abs neg sign square sqrt rsqrt floor reciprocal trunc exp expm1 log log1p log2 sin cos tan asin atan sinh "
        "tanh erf relu sigmoid round").split()} | {"gelu": F.gelu, "gelu_tanh": gelu_tanh, "silu": F.silu}
    into = {"abs": torch.abs, "sqrt": torch.sqrt, "exp": torch.exp, "tanh": torch.tanh,
            "reciprocal": torch.reciprocal, "gelu": torch._C._nn.gelu}

    def into_out(call, sizes, dtype, inputs):
        def make():
            xs = [operand(sizes, dtype) for _ in range(inputs)]
            out = torch.empty(sizes, dtype=DTYPES[dtype], device=DEVICE)
            return lambda: call(*xs, out=out)
        return make

    def of_two(call, sizes, dtype):
        def make():
            x, y = operand(sizes, dtype), operand(sizes, dtype)
            return lambda: call(x, y)
        return make

    for name, call in unary.items():
        for dtype in ("f32", "bf16"):
            cases.of_one(f"{name}, 4 M {dtype}", (L,), dtype, call)
        if name in into:
            cases[f"{name}, 4 M f32, out="] = into_out(into[name], (L,), "f32", 1)
        if name in "neg exp gelu gelu_tanh log silu sin tanh".split():
            cases.of_one(f"{name}, 4096 f32", (S,), "f32", call)
        if name in "abs sqrt exp log sin tanh erf tan".split():
            cases.of_one(f"{name}, 4 M f64", (L,), "f64", call)
        if name in "abs neg exp gelu sqrt".split():
            cases.of_one(f"{name}, 4 M f16", (L,), "f16", call)
    binary = {name: getattr(torch, name) for name in
              "add sub mul div pow maximum fmod remainder atan2 floor_divide eq lt".split()}
    for name, call in binary.items():
        cases[f"{name}, 4 M f32"] = of_two(call, (L,), "f32")
        if name in ("add", "mul", "div"):
            cases[f"{name}, 4 M f32, out="] = into_out(call, (L,), "f32", 2)
            cases[f"{name}, 4096 f32"] = of_two(call, (S,), "f32")
        if name in "add mul div pow maximum".split():
            cases[f"{name}, 4 M bf16"] = of_two(call, (L,), "bf16")
        if name in "add mul floor_divide remainder eq".split():
            cases[f"{name}, 4 M i64"] = of_two(call, (L,), "i64")
    cases["add, 64 f32"] = of_two(torch.add, (64,), "f32")
    cases["add, 4 M i32"] = of_two(torch.add, (L,), "i32")
    for name, dtype, call in (
            ("add a number", "f32", lambda x: x + 1.5), ("mul by a number", "bf16", lambda x: x * 1.5),
            ("pow 2", "f32", lambda x: x.pow(2)), ("pow 3", "f32", lambda x: x.pow(3)),
            ("pow 0.3", "f32", lambda x: x.pow(0.3)), ("floor_divide by 3", "f32", lambda x: x.floor_divide(3)),
            ("floor_divide by 3", "i64", lambda x: x.floor_divide(3)), ("clamp", "f32", lambda x: x.clamp(0.2, 0.8)),
            ("clamp", "bf16", lambda x: x.clamp(0.2, 0.8)), ("leaky_relu", "f32", F.leaky_relu),
            ("softplus", "f32", F.softplus), ("nan_to_num", "f32", torch.nan_to_num), ("isnan", "f32", torch.isnan)):
        cases.of_one(f"{name}, 4 M {dtype}", (L,), dtype, call)
    for name, sizes, other in (("add a row, 4096 x 1024 f32", (4096, 1024), (1024,)),
                               ("add a column, 4096 x 1024 f32", (4096, 1024), (4096, 1)),
                               ("add a row, 8 x 128 f32", (8, 128), (128,))):
        def make(sizes=sizes, other=other):
            x, y = operand(sizes), operand(other)
            return lambda: x + y
        cases[name] = make
    for name in ("lerp", "addcmul", "addcdiv"):
        def make(call=getattr(torch, name)):
            x, y, z = operand((L,)), operand((L,)), operand((L,))
            return lambda: call(x, y, z)
        cases[f"{name}, 4 M f32"] = make

    def where():
        x, y = operand((L,)), operand((L,))
        chosen = x < y
        return lambda: torch.where(chosen, x, y)

    def masked_fill():
        x = operand((L,))
        chosen = x < 0.5
        return lambda: x.masked_fill(chosen, 0)
    cases["where, 4 M f32"], cases["masked_fill, 4 M f32"] = where, masked_fill


def reductions(cases):
    def add(name, of_all, along, dtype="f32"):
        if of_all:
            cases.of_one(f"{name} of 16 M, {dtype}", (1 << 24,), dtype, of_all)
        if along:
            cases.of_one(f"{name} of rows of 4096 x 4096, {dtype}", (4096, 4096), dtype, lambda x: along(x, 1))
            cases.of_one(f"{name} of columns of 4096 x 4096, {dtype}", (4096, 4096), dtype, lambda x: along(x, 0))
    for dtype in ("f32", "bf16", "i64"):
        add("sum", lambda x: x.sum(), lambda x, d: x.sum(d), dtype)
    for dtype in ("f32", "bf16"):
        add("amax", lambda x: x.amax(), lambda x, d: x.amax(d), dtype)
    add("mean", lambda x: x.mean(), lambda x, d: x.mean(d))
    add("amin", lambda x: x.amin(), None)
    add("prod", lambda x: x.prod(), lambda x, d: x.prod(d))
    add("var", lambda x: x.var(), lambda x, d: x.var(d))
    add("norm", lambda x: x.norm(), lambda x, d: x.norm(2, d))
    add("argmax", lambda x: x.argmax(), lambda x, d: x.argmax(d))
    add("any", lambda x: (x > 2).any(), None)
    add("max with places", None, lambda x, d: x.max(d)[1])
    add("logsumexp", None, lambda x, d: x.logsumexp(d))

    def every_second():
        x = operand((1 << 24,))[::2]
        return lambda: x.sum()
    cases["sum of every second of 16 M f32"] = every_second
    cases.of_one("sum of 8 x 128 f32", (8, 128), "f32", lambda x: x.sum())
    cases.of_one("count_nonzero of 16 M f32", (1 << 24,), "f32", lambda x: x.count_nonzero())
    matrix = (4096, 1024)
    cases.of_one("cumsum of rows of 4096 x 1024 f32", matrix, "f32", lambda x: x.cumsum(1))
    cases.of_one("cumsum of columns of 4096 x 1024 f32", matrix, "f32", lambda x: x.cumsum(0))
    cases.of_one("cumsum of 4 M f32", (L,), "f32", lambda x: x.cumsum(0))
    cases.of_one("cumsum of rows of 4096 x 1024 i64", matrix, "i64", lambda x: x.cumsum(1))
    cases.of_one("cumprod of rows of 4096 x 1024 f32", matrix, "f32", lambda x: x.cumprod(1))


def rows(cases):
    for what, sizes, dtype in (("4096 x 1024", (4096, 1024), "f32"), ("4096 x 1024", (4096, 1024), "bf16"),
                               ("64 x 64", (64, 64), "f32"), ("8 x 128", (8, 128), "f32"),
                               ("16 M x 1", (1 << 24, 1), "f32"), ("1 x 16 M", (1, 1 << 24), "f32")):
        cases.of_one(f"softmax of rows of {what} {dtype}", sizes, dtype, lambda x: x.softmax(1))
    cases.of_one("softmax of columns of 4096 x 1024 f32", (4096, 1024), "f32", lambda x: x.softmax(0))

    def with_gradients(name, call):
        def forward():
            x, weight, bias = operand((4096, 1024)), operand((1024,)), operand((1024,))
            return lambda: call(x, weight, bias)

        def backward():
            inputs = [x.requires_grad_() for x in (operand((4096, 1024)), operand((1024,)), operand((1024,)))]
            y = call(*inputs)
            grad = operand(y.shape)
            return lambda: torch.autograd.grad(y, inputs, grad, retain_graph=True, allow_unused=True)
        cases[f"{name}, 4096 x 1024 f32"], cases[f"{name} backward, 4096 x 1024 f32"] = forward, backward
    with_gradients("softmax", lambda x, w, b: x.softmax(1))
    with_gradients("log_softmax", lambda x, w, b: x.log_softmax(1))
    with_gradients("layer_norm", lambda x, w, b: F.layer_norm(x, (1024,), w, b))
    with_gradients("rms_norm", lambda x, w, b: F.rms_norm(x, (1024,), w))
    with_gradients("gelu", lambda x, w, b: F.gelu(x))
    with_gradients("dropout", lambda x, w, b: F.dropout(x, 0.1))

    def cross_entropy():
        x, target = operand((4096, 1024)), integers(1024, 4096)
        return lambda: F.cross_entropy(x, target)

    def cross_entropy_backward():
        x = operand((4096, 1024)).requires_grad_()
        y = F.cross_entropy(x, integers(1024, 4096))
        return lambda: torch.autograd.grad(y, x, retain_graph=True)
    cases["cross_entropy, 4096 x 1024 f32"] = cross_entropy
    cases["cross_entropy backward, 4096 x 1024 f32"] = cross_entropy_backward
    for what, sizes in (("16 M x 1", (1 << 24, 1)), ("1 x 16 M", (1, 1 << 24)), ("16 x 1 M", (16, 1 << 20))):
        def make(sizes=sizes):
            x, weight, bias = operand(sizes), operand(sizes[1:]), operand(sizes[1:])
            return lambda: F.layer_norm(x, sizes[1:], weight, bias)
        cases[f"layer_norm of rows of {what} f32"] = make
    cases.of_one("layer_norm of rows of 4096 x 1024 bf16", (4096, 1024), "bf16", lambda x: F.layer_norm(x, (1024,)))


def sorting(cases):
    m = (4096, 1024)
    cases.of_one("sort of rows of 4096 x 1024 f32", m, "f32", lambda x: x.sort(stable=True, dim=1)[0])
    cases.of_one("sort of 4 M f32", (L,), "f32", lambda x: x.sort(stable=True, dim=0)[0])
    cases.of_one("topk 50 of rows of 4096 x 1024 f32", m, "f32", lambda x: x.topk(50, 1)[0])
    cases.of_one("topk 50 of rows of 1000 x 50000 f32", (1000, 50000), "f32", lambda x: x.topk(50, 1)[0])
    cases.of_one("topk 1 of rows of 1000 x 1000 f32", (1000, 1000), "f32", lambda x: x.topk(1, 1)[0])
    cases.of_one("kthvalue 100 of rows of 4096 x 1024 f32", m, "f32", lambda x: x.kthvalue(100, 1)[0])
    cases.of_one("median of rows of 4096 x 1024 f32", m, "f32", lambda x: x.median(1)[0])
    for name, high, call in (("sort of 4 M i64", 1 << 40, lambda x: x.sort(stable=True, dim=0)[0]),
                             ("argsort of 4 M i64 below 1000", 1000, lambda x: x.argsort(stable=True, dim=0)),
                             ("unique of 4 M i64", 1 << 40, lambda x: x.unique()),
                             ("unique of 4 M i64 below 1000", 1000, lambda x: x.unique())):
        def make(high=high, call=call):
            x = integers(high, L)
            return lambda: call(x)
        cases[name] = make
    cases["randperm of 1000"] = lambda: lambda: torch.randperm(1000, device=DEVICE)
    cases["randperm of 16 M"] = lambda: lambda: torch.randperm(1 << 24, device=DEVICE)


def indexing(cases):
    table_sizes = (50257, 768)

    def picked(call):
        def make():
            table, at = operand(table_sizes), integers(50257, 8192)
            return lambda: call(table, at)
        return make
    cases["index_select of 8192 rows of 50257 x 768 f32"] = picked(lambda t, at: t.index_select(0, at))
    cases["embedding of 8192 in 50257 x 768 f32"] = picked(lambda t, at: F.embedding(at, t))
    cases["index of rows by a vector, 8192 of 50257 x 768 f32"] = picked(lambda t, at: t[at])

    def columns():
        x, at = operand((4096, 1024)), integers(1024, 512)
        return lambda: x.index_select(1, at)

    def embedding_backward():
        table, at = operand(table_sizes).requires_grad_(), integers(50257, 8192)
        y = F.embedding(at, table)
        grad = operand(y.shape)
        return lambda: torch.autograd.grad(y, table, grad, retain_graph=True)

    def index_add():
        x, source, at = operand((4096, 768)), operand((8192, 768)), integers(4096, 8192)
        return lambda: x.index_add(0, at, source)

    def index_copy():
        x, source, at = operand((8192, 768)), operand((4096, 768)), torch.randperm(8192, device=DEVICE)[:4096].clone()
        return lambda: x.index_copy(0, at, source)

    def index_put():
        table, at, source = operand(table_sizes), integers(50257, 8192), operand((8192, 768))
        return lambda: table.index_put_((at,), source, True)
    cases["index_select of 512 columns of 4096 x 1024 f32"] = columns
    cases["embedding backward of 8192 in 50257 x 768 f32"] = embedding_backward
    cases["index_add of 8192 rows to 4096 x 768 f32"] = index_add
    cases["index_copy of 4096 rows to 8192 x 768 f32"] = index_copy
    cases["index_put of 8192 rows of 50257 x 768 f32, adding"] = index_put

    def at_places(call):
        def make():
            x, at, y = operand((4096, 1024)), integers(1024, 4096, 1024), operand((4096, 1024))
            return lambda: call(x, at, y)
        return make
    cases["gather along rows of 4096 x 1024 f32"] = at_places(lambda x, at, y: x.gather(1, at))
    cases["gather along columns of 4096 x 1024 f32"] = at_places(lambda x, at, y: x.gather(0, at))
    cases["scatter along rows of 4096 x 1024 f32"] = at_places(lambda x, at, y: x.scatter(1, at, y))
    cases["scatter_add along rows of 4096 x 1024 f32"] = at_places(lambda x, at, y: x.scatter_add(1, at, y))

    def masked_select():
        x = operand((L,))
        chosen = x < 0.5
        return lambda: x.masked_select(chosen)

    def nonzero():
        x = operand((1 << 24,)) > 0.9 - 0.8 / 6
        return lambda: x.nonzero()
    cases["masked_select of half of 4 M f32"], cases["nonzero of 16 M bool, a sixth"] = masked_select, nonzero

    def joined(count, sizes, call):
        def make():
            parts = [operand(sizes) for _ in range(count)]
            return lambda: call(parts)
        return make
    cases["cat of 64 of 4096 x 16 along rows f32"] = joined(64, (4096, 16), lambda x: torch.cat(x, 1))
    cases["cat of 4 of 1 M f32"] = joined(4, (L // 4,), torch.cat)
    cases["stack of 8 of 512 x 1024 along the last f32"] = joined(8, (512, 1024), lambda x: torch.stack(x, 2))
    m = (4096, 1024)
    cases.of_one("roll of 4096 x 1024 f32", m, "f32", lambda x: x.roll(100, 1))
    cases.of_one("flip of rows of 4096 x 1024 f32", m, "f32", lambda x: x.flip(1))
    cases.of_one("repeat of 1024 x 1024 4 times f32", (1024, 1024), "f32", lambda x: x.repeat(2, 2))
    cases.of_one("repeat_interleave by 4 of 1 M f32", (1 << 20,), "f32", lambda x: x.repeat_interleave(4))
    cases.of_one("tril of 2048 x 2048 f32", (2048, 2048), "f32", torch.tril)


def copies(cases):
    for dtype in ("f32", "bf16", "f64", "u8"):
        cases.of_one(f"contiguous of a transposed 4096 x 4096 {dtype}", (4096, 4096), dtype,
                     lambda x: x.t().contiguous())
    cases.of_one("contiguous of 64 x 32 x 32 x 64, channels first f32", (64, 32, 32, 64), "f32",
                 lambda x: x.permute(0, 3, 1, 2).contiguous())
    cases.of_one("contiguous of 4 x 1024 x 16 x 64, heads first f32", (4, 1024, 16, 64), "f32",
                 lambda x: x.transpose(1, 2).contiguous())
    cases.of_one("contiguous of every second of 8 M f32", (1 << 23,), "f32", lambda x: x[::2].contiguous())
    cases.of_one("add of a transposed 2048 x 2048 f32", (2048, 2048), "f32", lambda x: x + x.t())
    cases.of_one("clone of 16 M f32", (1 << 24,), "f32", lambda x: x.clone())
    cases.of_one("clone of 4096 f32", (S,), "f32", lambda x: x.clone())
    for a, b in (("f32", "bf16"), ("bf16", "f32"), ("f32", "f16"), ("f32", "f64"), ("i64", "f32"), ("f32", "i32"),
                 ("bool", "f32")):
        cases.of_one(f"cast of 4 M {a} to {b}", (L,), a, lambda x, to=DTYPES[b]: x.to(to))
    for name, call in (("zeros of 4 M f32", lambda: torch.zeros(L, device=DEVICE)),
                       ("full of 4 M f32", lambda: torch.full((L,), 1.5, device=DEVICE)),
                       ("arange of 4 M i64", lambda: torch.arange(L, device=DEVICE)),
                       ("rand of 4 M f32", lambda: torch.rand(L, device=DEVICE)),
                       ("randn of 4 M f32", lambda: torch.randn(L, device=DEVICE)),
                       ("randint of 4 M i64", lambda: torch.randint(0, 1000, (L,), device=DEVICE))):
        cases[name] = lambda call=call: call
    cases.of_one("bernoulli of 4 M f32", (L,), "f32", lambda x: x.bernoulli())
    cases.of_one("multinomial 64 of rows of 64 x 50257 f32", (64, 50257), "f32", lambda x: x.multinomial(64))


def products(cases):
    def product(name, dtype, sizes, other):
        def make():
            x, y = operand(sizes, dtype), operand(other, dtype)
            return lambda: x @ y
        cases[f"{name} {dtype}"] = make
    for n, dtype in ((64, "f32"), (256, "f32"), (1024, "f32"), (1024, "bf16"), (512, "f64"), (256, "i64")):
        product(f"matmul of {n} x {n}", dtype, (n, n), (n, n))
    product("bmm of 1024 of 16 x 16", "f32", (1024, 16, 16), (1024, 16, 16))
    product("bmm of 64 of 128 x 128", "f32", (64, 128, 128), (64, 128, 128))
    product("mv of 4096 x 4096", "f32", (4096, 4096), (4096,))
    product("dot of 4 M", "f32", (L,), (L,))

    def linear():
        x, w, b = operand((512, 768)), operand((3072, 768)), operand((3072,))
        return lambda: F.linear(x, w, b)
    cases["linear of 512 x 768 to 3072 f32"] = linear
    add_attention(cases, 4, 8, 256, 64, "f32")


def attention(cases):
    for t, d, batch, heads in ((2048, 64, 2, 8), (2048, 128, 1, 8), (4096, 128, 1, 8)):
        add_attention(cases, batch, heads, t, d, "f32")
    for t, d in ((1024, 64), (1000, 64), (1000, 128)):
        add_attention(cases, 4, 16, t, d, "bf16")
    for mask in ("bool", "bf16"):
        add_attention(cases, 4, 16, 1024, 64, "bf16", causal=False, mask=mask)
    add_attention(cases, 4, 16, 1024, 64, "bf16", dropout=0.1)


def add_attention(cases, batch, heads, t, d, dtype, causal=True, mask=None, dropout=0.0):
    """As many queries as keys; mask: the dtype of one [t, t]."""
    name = (f"{batch} x {heads} x {t} x {d}" + ", causal" * causal + f", {mask} mask" * bool(mask)
            + f", dropout {dropout}" * (dropout > 0) + f" {dtype}")

    def attend(qkv, weights):
        return F.scaled_dot_product_attention(*qkv, attn_mask=weights, dropout_p=dropout, is_causal=causal)

    def inputs(grad):
        qkv = [operand((batch, heads, t, d), dtype).requires_grad_(grad) for _ in range(3)]
        return qkv, operand((t, t), mask) if mask else None

    def forward():
        qkv, weights = inputs(False)
        return lambda: attend(qkv, weights)

    def backward():
        qkv, weights = inputs(True)
        y = attend(qkv, weights)
        grad = operand(y.shape, dtype)
        return lambda: torch.autograd.grad(y, qkv, grad, retain_graph=True)
    cases["attention of " + name] = forward
    cases["attention backward of " + name] = backward


def training(cases):
    def parameters(shapes):
        xs = [torch.nn.Parameter(operand(s)) for s in shapes]
        for x in xs:
            x.grad = operand(x.shape)
        return xs
    llama = [(32000, 512), (512,), (32000, 512)]
    for _ in range(8):
        llama += [(512, 512)] * 4 + [(1376, 512), (1376, 512), (512, 1376), (512,), (512,)]
    how = {"loop": {"foreach": False, "fused": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}

    def step(name, rule, shapes, **options):
        cases[name] = lambda: rule(parameters(shapes), **options).step
    for execution, options in how.items():
        step(f"AdamW {execution} over 10000 of 100 f32", torch.optim.AdamW, [(100,)] * 10000, **options)
    for execution in ("fused", "foreach"):
        step(f"AdamW {execution} over 20 M f32", torch.optim.AdamW, [(20 << 20,)], **how[execution])
        step(f"AdamW {execution} over llama-60m f32", torch.optim.AdamW, llama, **how[execution])
    step("SGD fused over llama-60m f32", torch.optim.SGD, llama, fused=True)

    def clip():
        xs = parameters(llama)
        return lambda: torch.nn.utils.clip_grad_norm_(xs, 1e9)

    def foreach():
        xs = [operand((1000,)) for _ in range(1000)]
        return lambda: torch._foreach_mul(xs, 1.5)

    def chain():
        x = operand((64,)).requires_grad_()

        def call():
            y = x
            for _ in range(50):
                y = (y * 1.01).tanh()
            return torch.autograd.grad(y.sum(), x)
        return call

    def nano():
        import train_torch
        model = train_torch.GPT(train_torch.PRESETS["nano"]).to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        tokens = integers(256, 16, 129)

        def call():
            optimizer.zero_grad(set_to_none=True)
            model(tokens[:, :-1], tokens[:, 1:]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
            optimizer.step()
        return call
    cases["clip_grad_norm over llama-60m f32"] = clip
    cases["foreach mul by a number, 1000 of 1000 f32"] = foreach
    cases["chain of 100 small operators with gradients f32"] = chain
    cases["training step of nano, 16 x 128 f32"] = nano


SUITES = {"operators": (pointwise, reductions, rows, sorting, indexing, copies, products, training),
          "attention": (attention,)}


class Lorry:
    """`lorry bench SUITE --rounds`."""

    def __init__(self, command, suite, device, threads, wanted):
        words = [command, "bench", suite, "--rounds", "--device", device, "--filter", wanted]
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment)
        self.names = self.reply()

    def reply(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("operators_torch.py: lorry has ended; its error is above")
        return json.loads(line)

    def round(self, name):
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        return self.reply()


def spread_of(own, theirs):
    """[low, median, high] of PyTorch's time over Lorry's: half of the rounds lie from low to high."""
    speedups = sorted(y / x for x, y in zip(own, theirs))
    quarter = (len(speedups) - 1) // 4
    return [speedups[quarter], statistics.median(speedups), speedups[-1 - quarter]]


class Measured:
    """A case: the times of all rounds, and the spread of each run."""

    def __init__(self, suite, name, family):
        self.suite, self.name, self.family = suite, name, family
        self.own, self.theirs, self.speedups = [], [], []
        self.reply = {}  # to the first round: bytes, dtype, and what bounds the case

    def run(self, lorry, call, rounds, device):
        """Rounds of both in turn, after one in which both warm up."""
        wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
        cpu = device == "cpu"
        effort = {"warmup_s": 0.02, "sample_s": 0.0005 if cpu else 0.004, "total_s": 0.1 if cpu else 0.05}
        own, theirs = [], []
        for i in range(rounds + 1):
            time.sleep(0.01)  # the other's threads may still spin
            reply = lorry.round(self.name)
            time.sleep(0.01)
            try:
                peer = harness.measure(call, wait, **effort)
            except NotImplementedError:
                peer = None
            if i == 0:
                self.reply = reply
                continue
            own.append(reply["median_us"])
            if peer:
                theirs.append(peer["median_us"])
        self.own += own
        self.theirs += theirs
        if theirs:
            self.speedups.append(spread_of(own, theirs))

    def rows(self, device):
        size = {"bytes": int(self.reply["bytes"])} if "bytes" in self.reply else {}
        for implementation, times in (("lorry", self.own), (f"pytorch {torch.__version__}", self.theirs)):
            if not times:
                continue
            row = {"suite": self.suite, "case": self.name, "family": self.family, "implementation": implementation,
                   "device": device, "dtype": self.reply["dtype"], "median_us": statistics.median(times),
                   "min_us": min(times), **size}
            if implementation == "lorry":
                row["speedups"] = self.speedups
                if "ceiling_us" in self.reply:
                    row["ratio_to_ceiling"] = self.reply["ceiling_us"] / row["median_us"]
            yield schema.with_rates(row)

    def show(self, device):
        own, *theirs = self.rows(device)
        best = f"  {100 * own['ratio_to_ceiling']:.0f} % of the best" if "ratio_to_ceiling" in own else ""
        peer = f"{theirs[0]['median_us']:12.2f} us  " if theirs else f"{'none':>15}  "
        beside = "{1:6.2f} x ({0:.2f} to {2:.2f})  ".format(*self.speedups[-1]) if theirs else ""
        print(f"{self.name:<58} {own['median_us']:12.2f} us {peer}{beside}{speedups.verdict(self.speedups[-1:])}{best}",
              flush=True)


def main():
    global DEVICE
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lorry", help="the command")
    parser.add_argument("--suite", choices=SUITES, default="operators")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--filter", default="")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--runs", type=int, default=1, help="of all cases, one after the other")
    parser.add_argument("--json")
    a = parser.parse_args()
    DEVICE = a.device
    torch.set_num_threads(a.threads)
    cases = Cases()
    for add in SUITES[a.suite]:
        cases.family = add.__name__
        add(cases)
    lorry = Lorry(a.lorry, a.suite, a.device, a.threads, a.filter)
    if missing := set(lorry.names) - set(cases):
        sys.exit(f"operators_torch.py: these cases of Lorry's are not here: {sorted(missing)}")
    if not a.filter and (missing := set(cases) - set(lorry.names)):
        sys.exit(f"operators_torch.py: Lorry does not have these cases: {sorted(missing)}")
    measured = [Measured(a.suite, name, cases.families[name]) for name in lorry.names]
    info = subprocess.run([a.lorry, "info", "--json", "-"], check=True, capture_output=True, text=True).stdout
    machine = json.loads(info)
    machine = machine.get("machine", machine)
    machine |= {"torch": torch.__version__, "threads": a.threads, "rounds": a.rounds}
    for run in range(a.runs):
        for case in measured:
            case.run(lorry, cases[case.name](), a.rounds, a.device)
            case.show(a.device)
            if run == 0:
                harness.write(a.json, machine, [row for case in measured if case.own for row in case.rows(a.device)])
        harness.write(a.json, machine, [row for case in measured for row in case.rows(a.device)])
        slower = [case for case in measured if speedups.verdict(case.speedups) == "slower"]
        print(f"{len(measured)} cases, {len(slower)} slower than {speedups.LEAST} of PyTorch beyond the spread"
              + (f" in each of {run + 1} runs" if run else ""))
        for case in sorted(slower, key=lambda x: x.speedups[-1][1]):
            print("  " + ", ".join(f"{middle:.2f}" for _, middle, _ in case.speedups) + f" x  {case.name}", flush=True)


if __name__ == "__main__":
    main()
