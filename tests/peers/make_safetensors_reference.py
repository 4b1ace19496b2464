#!/usr/bin/env python3
"""Writes tests/data/reference.safetensors with the reference implementation: one tensor of every dtype that Lorry has,
an empty one and a scalar, element i holding i. tests/io/safetensors_test.cpp writes the same tensors and compares the
bytes.

    tests/peers/make_safetensors_reference.py        (needs torch and safetensors; the file is kept in the tree)
"""
from pathlib import Path

import torch
from safetensors.torch import save

DTYPES = {"bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
          "i64": torch.int64,
          "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}


def main():
    tensors = {f"of {name}": torch.arange(6).reshape(2, 3).to(dtype) for name, dtype in DTYPES.items()}
    tensors["empty"] = torch.zeros(0, 4)
    tensors["scalar \u00e9"] = torch.tensor(1.5)
    path = Path(__file__).resolve().parent.parent / "data" / "reference.safetensors"
    path.write_bytes(save(tensors, metadata={"format": "pt"}))


if __name__ == "__main__":
    main()
