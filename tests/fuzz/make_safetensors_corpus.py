#!/usr/bin/env python3
"""Writes the seeds of the safetensors fuzzer: small well-formed files of every dtype and shape class, and near misses.

    tests/fuzz/make_safetensors_corpus.py FOLDER
"""
import json
import struct
import sys
from pathlib import Path

SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "I32": 4, "I64": 8, "F16": 2, "BF16": 2, "F32": 4, "F64": 8}
WORDS = list(SIZES) + ["dtype", "shape", "data_offsets", "__metadata__", "[", "]", "{", "}", ":", ",", "null",
                       "18446744073709551615",
                       "9223372036854775807", "-1", "1e99", "\\u0000", "\\ud800", "F8_E4M3"]


def packed(text, data=b"", length=None):
    header = text.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def file_of(tensors, metadata=None):
    """tensors: (name, dtype, shape) in the order of their data."""
    header, at = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, dtype, shape in tensors:
        count = SIZES[dtype]
        for size in shape:
            count *= size
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + count]}
        at += count
    return packed(json.dumps(header, separators=(",", ":")), bytes(at))


def seeds():
    yield "nothing", file_of([])
    yield "metadata", file_of([], {"format": "pt", "": "\"\\\n"})
    for dtype in SIZES:
        yield f"one-{dtype}", file_of([("w", dtype, [2, 3])])
    yield "scalar-and-empty", file_of([("s", "F64", []), ("e", "F32", [0, 7]), ("t", "U8", [1])])
    yield "rank-8", file_of([("r", "I16", [1, 2, 1, 2, 1, 1, 1, 1])])
    yield "names", file_of([("transformer.h.0.attn.weight", "BF16", [2]), ("\u00e9\u4e2d\U0001f69a", "BF16", [1])])
    yield "hole", packed('{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', b"12")
    yield "overflow", packed('{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}')
    yield "twice", packed('{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"a":{}}', b"1")
    yield "nested", packed('{"a":{"shape":[[[[]]]]}}')
    yield "long-length", packed("{}", length=1 << 63)


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in seeds():
        (folder / name).write_bytes(content)
    escaped = (word.replace("\\", "\\\\").replace('"', '\\"') for word in WORDS)
    folder.with_suffix(".dict").write_text("".join(f'"{word}"\n' for word in escaped))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
