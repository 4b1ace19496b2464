#!/usr/bin/env python3
"""Writes tests/data/quantize_values.json: what PyTorch makes of some numbers when it quantises them.

    tests/peers/make_quantize_values.py        (needs torch; the file is kept in the tree, so that the tests do not)

Numbers are stored as the bits of f32, codes as bytes.
- floats: the codes of numbers around every number of e4m3 (fn) and e5m2, and the numbers of all codes
- tensor, channel: torch.quantize_per_tensor and torch.quantize_per_channel to qint8, and their dequantize()
- products: torch._int_mm
"""
import json
import struct
from pathlib import Path

import torch


def bits(x):
    return [struct.unpack("<I", struct.pack("<f", v))[0] for v in x.flatten().tolist()]


def code_bytes(x):
    return x.view(torch.uint8).flatten().tolist()


def float_cases():
    every = torch.arange(256, dtype=torch.uint8)
    cases = {}
    for name, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)):
        numbers = every.view(dtype).float()
        known = numbers[numbers.isfinite()].sort().values.unique()
        middles = (known[1:] + known[:-1]) / 2
        least = torch.tensor([0.0, -0.0, 1e-45, -1e-45, 1e-38, 1e-30, 2.0**-10, 2.0**-17, 2.0**-18])
        beyond = torch.tensor([61439.0, 61440.0, 65536.0, 1e30, float("inf"), -float("inf"), float("nan")])
        inputs = torch.cat([known, middles, torch.nextafter(middles, torch.tensor(torch.inf)),
                            torch.nextafter(middles, torch.tensor(-torch.inf)), least, beyond])
        cases[name] = {"inputs": bits(inputs), "codes": code_bytes(inputs.to(dtype)), "numbers": bits(numbers)}
    return cases


def int8_cases(generator):
    x = torch.randn(6, 5, 4, generator=generator) * 3
    x[0, 0, 0], x[1, 1, 1], x[2, 2, 2] = 0.0, 1e6, -1e6  # beyond 2^31 scales PyTorch wraps around
    x[3, 0] = torch.tensor([0.05, 0.15, 0.25, -0.35])  # ties of a scale of 0.1, but for rounding
    cases = []
    for scale, zero in ((0.1, 0), (0.037, -5), (0.5, 100), (1e-3, -128)):
        q = torch.quantize_per_tensor(x, scale, zero, torch.qint8)
        cases.append({"scale": bits(torch.tensor(scale)), "zero_point": [zero], "dim": -1,
                      "codes": code_bytes(q.int_repr()), "numbers": bits(q.dequantize())})
    for dim in range(3):
        scale = torch.rand(x.size(dim), generator=generator) * 0.2 + 0.01
        zero = torch.randint(-100, 100, (x.size(dim),), generator=generator)
        q = torch.quantize_per_channel(x, scale.double(), zero, dim, torch.qint8)
        cases.append({"scale": bits(scale), "zero_point": zero.tolist(), "dim": dim,
                      "codes": code_bytes(q.int_repr()), "numbers": bits(q.dequantize())})
    return {"inputs": bits(x), "sizes": list(x.shape), "cases": cases}


def product_cases(generator):
    cases = []
    for m, k, n in ((3, 4, 2), (17, 40, 24), (33, 130, 8)):
        a = torch.randint(-128, 128, (m, k), generator=generator, dtype=torch.int8)
        b = torch.randint(-128, 128, (k, n), generator=generator, dtype=torch.int8)
        a[0], b[:, 0] = -128, -128
        cases.append({"sizes": [m, k, n], "a": a.flatten().tolist(), "b": b.flatten().tolist(),
                      "product": torch._int_mm(a, b).flatten().tolist()})
    return cases


def main():
    generator = torch.Generator().manual_seed(7)
    values = {"torch": torch.__version__, "floats": float_cases(), "int8": int8_cases(generator),
              "products": product_cases(generator)}
    path = Path(__file__).resolve().parent.parent / "data" / "quantize_values.json"
    path.write_text(json.dumps(values, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
