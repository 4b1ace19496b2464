#!/usr/bin/env python3
"""Writes param_shapes.json: the shapes of the parameters of the models that optimizers are measured over, in the
models' own order.

    bench/data/make_param_shapes.py            # rewrites param_shapes.json
    bench/data/make_param_shapes.py --check    # exits 1 when the file says something else

Each model is a list of runs [count, shape]: so many parameters of that shape, one after another. `lorry bench optim`
has the file built in; the peers read it through `load` below.
"""
import json
import math
import sys
from pathlib import Path

FILE = Path(__file__).resolve().with_name("param_shapes.json")


def norm(channels):
    """A scale and a shift."""
    return [[channels], [channels]]


def linear(out, inputs):
    return [[out, inputs], [out]]


def convolution(out, inputs, size):
    """Without a bias, and the normalisation after it."""
    return [[out, inputs, size, size], *norm(out)]


def resnet50():
    """He, Zhang, Ren, Sun 2016, table 1."""
    shapes = convolution(64, 3, 7)
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            shapes += convolution(width, inputs, 1) + convolution(width, width, 3) + convolution(4 * width, width, 1)
            if block == 0:
                shapes += convolution(4 * width, inputs, 1)
            inputs = 4 * width
    return shapes + linear(1000, inputs)


def efficientnet_b0():
    """Tan, Le 2019, table 1: inverted bottlenecks (expand, filter each channel, squeeze and excite, project)."""
    shapes = convolution(32, 3, 3)
    inputs = 32
    for expand, kernel, out, blocks in ((1, 3, 16, 1), (6, 3, 24, 2), (6, 5, 40, 2), (6, 3, 80, 3), (6, 5, 112, 3),
                                        (6, 5, 192, 4), (6, 3, 320, 1)):
        for _ in range(blocks):
            width, squeezed = expand * inputs, max(1, inputs // 4)
            if expand != 1:
                shapes += convolution(width, inputs, 1)
            shapes += convolution(width, 1, kernel)
            shapes += [[squeezed, width, 1, 1], [squeezed], [width, squeezed, 1, 1], [width]]
            shapes += convolution(out, width, 1)
            inputs = out
    return shapes + convolution(4 * inputs, inputs, 1) + linear(1000, 4 * inputs)


def vit_b_16():
    """Dosovitskiy et al. 2021, table 1, Base, with patches of 16 x 16 of an image of 224 x 224."""
    width, hidden = 768, 3072
    shapes = [[1, 1, width], [width, 3, 16, 16], [width], [1, 1 + (224 // 16) ** 2, width]]
    for _ in range(12):
        shapes += norm(width) + linear(3 * width, width) + linear(width, width)
        shapes += norm(width) + linear(hidden, width) + linear(width, hidden)
    return shapes + norm(width) + linear(1000, width)


def gpt2():
    """Radford et al. 2019, the 124 M model; weights lie [in, out] and the head is the token embedding."""
    width, hidden = 768, 3072
    shapes = [[50257, width], [1024, width]]
    for _ in range(12):
        shapes += norm(width) + [[width, 3 * width], [3 * width], [width, width], [width]]
        shapes += norm(width) + [[width, hidden], [hidden], [hidden, width], [width]]
    return shapes + norm(width)


def llama_1b():
    """Llama 3.2 1B (Grattafiori et al. 2024): 8 heads of keys and values for 32 of queries, a gated MLP, no biases, a
    tied head."""
    width, keys, hidden = 2048, 512, 8192
    layer = [[width, width], [keys, width], [keys, width], [width, width]]
    layer += [[hidden, width], [hidden, width], [width, hidden], [width], [width]]
    return [[128256, width]] + 16 * layer + [[width]]


MODELS = {
    "resnet50": resnet50,
    "vit_b_16": vit_b_16,
    "efficientnet_b0": efficientnet_b0,
    "gpt2": gpt2,
    "llama-1b": llama_1b,
    "tiny-4096x1024": lambda: 4096 * [[1024]],
    "one-huge-2^30": lambda: [[1 << 30]],
}


def runs(shapes):
    """[[count, shape], ...]: neighbours of one shape counted together."""
    found = []
    for shape in shapes:
        if found and found[-1][1] == shape:
            found[-1][0] += 1
        else:
            found.append([1, shape])
    return found


def load(file=FILE):
    """{model: [shape, ...]} as the file says."""
    models = json.loads(Path(file).read_text())
    return {model: [shape for count, shape in runs for _ in range(count)] for model, runs in models.items()}


def elements(shapes):
    return sum(math.prod(shape) for shape in shapes)


def text():
    """A model a paragraph, in lines of at most 160 columns."""
    paragraphs = []
    for model, make in MODELS.items():
        lines = [""]
        for run in map(json.dumps, runs(make())):
            if len(lines[-1]) + len(run) > 155:
                lines.append("")
            lines[-1] += (", " if lines[-1] else "") + run
        paragraphs.append(f'  "{model}": [\n    ' + ",\n    ".join(lines) + "\n  ]")
    return "{\n" + ",\n".join(paragraphs) + "\n}\n"


def main(arguments):
    if "--check" in arguments:
        if not FILE.exists() or FILE.read_text() != text():
            print(f"{FILE.name} differs from the models; run {Path(__file__).name}", file=sys.stderr)
            return 1
        return 0
    FILE.write_text(text())
    for model, shapes in load().items():
        print(f"{model:<16} {len(shapes):5} tensors {elements(shapes):13,} elements")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
