#!/usr/bin/env python3
"""Writes tests/data/print_values.json: how PyTorch prints tensors, for tests/tensor/print_test.cpp.

    tests/peers/make_print_values.py        (needs torch; the file is kept in the tree, so that the tests do not)

Each case gives a dtype, sizes, the values in row-major order (as text that strtod reads exactly) and PyTorch's text,
with its dtypes spelled as Lorry spells them.
"""
import json
import math
from pathlib import Path

import torch

NAMES = {torch.bool: "bool", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32",
         torch.int64: "i64",
         torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64"}
inf, nan = math.inf, math.nan


def cases():
    t = torch.tensor
    yield from (t(3), t(-2.5), t(1.0), t(True), t(nan), t(-inf), t(1e-10), t(123456789.0), t(0.0), t(-0.0))
    yield from (t([]), torch.zeros(0, 3), torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.float64),
                torch.zeros(3, 0, 2, dtype=torch.bool))
    yield from (t([1.0, 2.0, 3.0]), t([1.5, -2.25, 1000.0]), t([1.5, 2000.0]), t([1e-5, 1.0]), t([1e5, 1.0]),
                t([1e9, 2e9]), t([0.0001, 0.1]))
    yield from (t([1.0, nan, inf]), t([nan, nan]), t([inf, -inf, 0.0]), t([0.5, inf, -0.125]), t([1e-8, nan, 1e8]),
                t([-1.0, 10.0, 100.0, nan]))
    yield from (t([True, False]), t([[True], [False]]), t([1, -20, 300]), t([255, 0], dtype=torch.uint8),
                t([-128, 127], dtype=torch.int8))
    yield from (t([2**31 - 1, -2**31], dtype=torch.int32), t([2**63 - 1, -2**63]), t([7], dtype=torch.int16))
    yield from (t([0.1, 0.2], dtype=torch.float16), t([65504.0, 1.0], dtype=torch.float16),
                t([0.1, 3.0], dtype=torch.bfloat16), t([1 / 3, 2.0], dtype=torch.float64))
    yield from (torch.arange(30.0), torch.arange(100), torch.arange(24.0).reshape(2, 3, 4),
                torch.arange(16.0).reshape(2, 2, 2, 2) / 8)
    yield from (torch.ones(7, 143, 1), torch.arange(28.0, dtype=torch.float64) / 3)
    yield from (torch.arange(12, dtype=torch.int16), torch.arange(18, dtype=torch.int32) * 100,
                torch.full((14,), 0.5, dtype=torch.float64))
    generator = torch.Generator().manual_seed(0)
    for exponent in (-6, -3, 0, 3, 6):
        yield torch.randn(3, 5, generator=generator) * 10.0**exponent
        yield torch.randn(13, generator=generator, dtype=torch.float64) * 10.0**exponent
        yield (torch.randn(2, 3, 2, generator=generator) * 10.0**exponent).to(torch.bfloat16)


# Many elements: 0, 1, 2, ... times a number, over a number, both exact in f32.
LARGE = [((1000,), torch.int64, 1, 1), ((1001,), torch.int64, 1, 1), ((11, 100), torch.float32, 1, 1),
         ((4, 6, 100), torch.float32, 1, 7),
         ((20, 20, 20), torch.int64, 1, 1), ((1500, 1), torch.float32, 1, 1), ((1, 1500), torch.float32, 1, 1000000),
         ((2, 1000), torch.float32, 10000, 1)]


def text_of(x):
    return str(x).replace(f"dtype={x.dtype}", f"dtype={NAMES[x.dtype]}")


def main():
    out = []
    for x in cases():
        values = " ".join(repr(float(v)) if isinstance(v, float) else str(int(v)) for v in x.reshape(-1).tolist())
        out.append({"dtype": NAMES[x.dtype], "sizes": list(x.shape), "values": values, "text": text_of(x)})
    for sizes, dtype, times, over in LARGE:
        x = torch.arange(math.prod(sizes), dtype=dtype).reshape(sizes)
        x = x * times / over if dtype.is_floating_point else x
        out.append({"dtype": NAMES[dtype], "sizes": list(sizes), "times": times, "over": over, "text": text_of(x)})
    path = Path(__file__).resolve().parent.parent / "data" / "print_values.json"
    path.write_text(json.dumps({"torch": torch.__version__, "cases": out}, indent=0) + "\n")
    print(f"{path}: {len(out)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
