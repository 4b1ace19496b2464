#!/usr/bin/env python3
"""The cases of `lorry bench generate` in PyTorch: decoding with a static cache, eager, captured by torch.cuda.graph,
compiled, and compiled in a graph.

    python bench/peers/generate_torch.py [--json FILE] [--filter TEXT] [--eager-only]

Same model shapes, prompts and lengths; the same schema as `lorry bench --json`. A step draws its token by
softmax and multinomial and keeps it on the device, as a captured step must. Weights are random.
"""
import argparse

import torch
import torch.nn.functional as F

from graph_torch import captured
from harness import Report, measure, write

PRESETS = {"gpt2": dict(vocab=50257, context=1024, layers=12, heads=12, width=768),
           "nano": dict(vocab=256, context=128, layers=4, heads=4, width=128)}
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)


class Decoder:
    """A GPT with learned positions that decodes one token of every row at a position that lies on the device."""

    def __init__(self, vocab, context, layers, heads, width, batch, dtype, device):
        torch.manual_seed(1)
        make = lambda *sizes: torch.randn(sizes, device=device, dtype=dtype) * 0.02
        cache = lambda: make(batch, heads, context, width // heads)
        self.heads, self.width, self.context = heads, width, context
        self.tokens, self.positions = make(vocab, width), make(context, width)
        self.layers = [dict(n1=(1 + make(width), make(width)), qkv=(make(3 * width, width), make(3 * width)),
                            out=(make(width, width), make(width)), n2=(1 + make(width), make(width)),
                            up=(make(4 * width, width), make(4 * width)), down=(make(width, 4 * width), make(width)),
                            k=cache(), v=cache())
                       for _ in range(layers)]
        self.norm = (1 + make(width), make(width))
        self.at = torch.arange(context, device=device)
        self.token = torch.zeros(batch, dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)

    def norm_of(self, x, weights):
        return F.layer_norm(x, (self.width,), *weights)

    def step(self):
        x = self.tokens[self.token] + self.positions[self.position]
        mask = (self.at <= self.position).view(1, 1, 1, -1)
        for layer in self.layers:
            q, k, v = F.linear(self.norm_of(x, layer["n1"]), *layer["qkv"]).view(
                len(x), 3, self.heads, 1, self.width // self.heads).unbind(1)
            layer["k"].index_copy_(2, self.position, k)
            layer["v"].index_copy_(2, self.position, v)
            seen = F.scaled_dot_product_attention(q, layer["k"], layer["v"], attn_mask=mask)
            x = x + F.linear(seen.view(len(x), self.width), *layer["out"])
            hidden = F.gelu(F.linear(self.norm_of(x, layer["n2"]), *layer["up"]), approximate="tanh")
            x = x + F.linear(hidden, *layer["down"])
        logits = F.linear(self.norm_of(x, self.norm), self.tokens).float()
        self.token.copy_(torch.multinomial(logits.softmax(-1), 1).view(-1))
        self.position.add_(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    parser.add_argument("--filter", default="")
    parser.add_argument("--eager-only", action="store_true", help="no torch.compile, whose first call takes a minute")
    options = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    device = "cuda:0" if on_gpu else "cpu"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    preset, dtype, prompt, count = ("gpt2", torch.bfloat16, 512, 64) if on_gpu else ("nano", torch.float32, 32, 64)
    ways = (["eager", "graph"] if on_gpu else ["eager"]) + (
        [] if options.eager_only else ["compiled", "compiled, graph"] if on_gpu else ["compiled"])
    reports = {how: Report("generate", f"PyTorch {torch.__version__} {how}", device, options.filter, wait)
               for how in ways}
    with torch.no_grad():
        for batch in BATCHES:
            case = f"decode {preset}, context {prompt}, batch {batch}"
            if options.filter not in case:
                continue
            for how in ways:
                torch.compiler.reset()
                model = Decoder(**PRESETS[preset], batch=batch, dtype=dtype, device=device)
                step = torch.compile(model.step) if "compiled" in how else model.step
                call = captured(step) if "graph" in how else step

                def run():
                    model.position.fill_(prompt)
                    for _ in range(count):
                        call()

                run()
                figures = {name: us / count for name, us in measure(run, wait).items()}  # of a step
                reports[how].take({"case": case, **reports[how].head, "dtype": "bf16" if on_gpu else "f32",
                                   **figures, "tokens_per_s": batch * 1e6 / figures["median_us"]})
    write(options.json, {"gpu": torch.cuda.get_device_name()} if on_gpu else {"cpu_threads": torch.get_num_threads()},
          [row for report in reports.values() for row in report.rows])


if __name__ == "__main__":
    main()
