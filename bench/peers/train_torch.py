#!/usr/bin/env python3
"""Times training steps of a small GPT in PyTorch: the peer of `lorry bench train`.

Same model (pre-norm GPT-2, tied embeddings, GPT-2 initialisation), same batch, eager mode unless --compile, fused
AdamW, gradient clipping; reports the median over many steps as one JSON line. Run it beside Lorry on an otherwise idle
machine:

    python bench/peers/train_torch.py --preset nano --batch 16 --threads 2
    python bench/peers/train_torch.py --preset gpt2 --batch 8 --device cuda --bf16 [--compile]
    torchrun --nproc-per-node 2 bench/peers/train_torch.py --ddp --preset gpt2 --batch 8 --device cuda --bf16

--ddp is DistributedDataParallel over NCCL with gradients that are views of its buckets, --fsdp is FSDP2 by blocks with
bf16 parameters and gradients and f32 shards; --batch is that of one GPU, and the tokens per second are those of all.
--over-bytes is the model that `lorry train` makes of a preset.

--profile measures the steps under torch.profiler with shapes, stacks, modules, FLOPs and memory.

--bf16 is autocast: parameters and optimizer stay in f32. On a GPU the loss is read one step late, as `lorry train`
does.
"""

import argparse
import json
import math
import os
import statistics
import time
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    vocab: int = 256
    context: int = 128
    layers: int = 4
    heads: int = 4
    width: int = 128
    bias: bool = True
    over_bytes: bool = False  # rotary positions, embeddings times sqrt(width), a start with variance 1 / width


PRESETS = {
    "nano": Config(over_bytes=True),
    "tiny": Config(context=256, layers=6, heads=6, width=384, over_bytes=True),
    "small": Config(context=512, layers=8, heads=8, width=512, over_bytes=True),
    "gpt2": Config(vocab=50257, context=1024, layers=12, heads=12, width=768),
    "wide": Config(context=1024, layers=16, heads=32, width=2048),  # as llama-1b
}


class Attention(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.heads = c.heads
        self.qkv = nn.Linear(c.width, 3 * c.width, bias=c.bias)
        self.proj = nn.Linear(c.width, c.width, bias=c.bias)
        self.rotary = c.over_bytes
        if self.rotary:
            d = c.width // c.heads
            angles = torch.outer(torch.arange(c.context), 1e4 ** (-2.0 * torch.arange(d // 2) / d))
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)

    def turn(self, x):
        cos, sin = self.cos[: x.shape[2]], self.sin[: x.shape[2]]
        a, b = x.float().chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = (y.view(b, t, self.heads, w // self.heads).transpose(1, 2) for y in self.qkv(x).split(w, dim=2))
        if self.rotary:
            q, k = self.turn(q), self.turn(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, w))


class Block(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.norm1 = nn.LayerNorm(c.width, bias=c.bias)
        self.attention = Attention(c)
        self.norm2 = nn.LayerNorm(c.width, bias=c.bias)
        self.up = nn.Linear(c.width, 4 * c.width, bias=c.bias)
        self.down = nn.Linear(4 * c.width, c.width, bias=c.bias)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.tokens = nn.Embedding(c.vocab, c.width)
        self.positions = None if c.over_bytes else nn.Embedding(c.context, c.width)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = nn.LayerNorm(c.width, bias=c.bias)
        self.head = nn.Linear(c.width, c.vocab, bias=False)
        self.head.weight = self.tokens.weight
        self.scale = math.sqrt(c.width) if c.over_bytes else 1
        inside = 1 / math.sqrt(c.width) if c.over_bytes else 0.02
        for name, p in self.named_parameters():
            if p.dim() == 2:
                residual = name.endswith(("proj.weight", "down.weight"))
                std = 0.02 if name.startswith(("tokens", "positions", "head")) else inside
                nn.init.normal_(p, std=std / math.sqrt(2 * c.layers) if residual else std)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) * self.scale
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=PRESETS, default="nano")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--text", help="a file of bytes to train on; random bytes without it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--ddp", action="store_true", help="data parallel, started by torchrun")
    parser.add_argument("--fsdp", action="store_true", help="sharded (FSDP2), started by torchrun")
    parser.add_argument("--over-bytes", action="store_true", help="256 tokens, rotary positions, scaled embeddings")
    parser.add_argument("--profile", action="store_true", help="steps under torch.profiler, with everything on")
    a = parser.parse_args()

    torch.manual_seed(a.seed)
    torch.set_num_threads(a.threads)
    config = PRESETS[a.preset]
    if a.over_bytes:
        config = replace(config, vocab=256, over_bytes=True)
    gpu = a.device != "cpu"
    rank, ranks = 0, 1
    if a.ddp or a.fsdp:
        torch.distributed.init_process_group("nccl" if gpu else "gloo")
        rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        if gpu:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = GPT(config).to(a.device)
    run = torch.compile(model) if a.compile else model
    if a.ddp:
        run = nn.parallel.DistributedDataParallel(run, gradient_as_bucket_view=True)
    if a.fsdp:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        dtype = torch.bfloat16 if a.bf16 else torch.float32
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)
        for block in model.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)
    if a.text:
        with open(a.text, "rb") as f:
            data = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8)
    else:
        data = torch.randint(0, min(config.vocab, 256), (1 << 20,), dtype=torch.uint8)

    if a.profile:
        activities = [torch.profiler.ProfilerActivity.CPU] + ([torch.profiler.ProfilerActivity.CUDA] if gpu else [])
        profiler = torch.profiler.profile(activities=activities, record_shapes=True, profile_memory=True,
                                          with_stack=True, with_flops=True, with_modules=True)
        profiler.start()
    times, late, first = [], None, None
    for step in range(a.warmup + a.steps):
        if gpu and step == a.warmup:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        starts = torch.randint(0, len(data) - config.context - 1, (a.batch,)).tolist()
        window = torch.stack([data[i : i + config.context + 1] for i in starts]).long()
        x, y = window[:, :-1].contiguous(), window[:, 1:].contiguous()
        if gpu:
            x, y = (t.pin_memory().to(a.device, non_blocking=True) for t in (x, y))
        with torch.autocast(a.device, dtype=torch.bfloat16, enabled=a.bf16 and not a.fsdp):
            loss = run(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if a.clip > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), a.clip)
        optimizer.step()
        if gpu:
            if late is not None:
                late[1].synchronize()
            late = (loss.detach().to("cpu", non_blocking=True), torch.cuda.Event())
            late[1].record()
        else:
            late = (loss.detach(), None)
            loss.item()
        if step == 0:
            if gpu:
                torch.cuda.synchronize()
            first = time.perf_counter() - begin
        if step >= a.warmup:
            times.append(time.perf_counter() - begin)
    if gpu:
        torch.cuda.synchronize()
    last = late[0].item()
    if a.profile:
        profiler.stop()

    if a.ddp or a.fsdp:
        torch.distributed.destroy_process_group()
    if rank > 0:
        return
    times.sort()
    median = statistics.median(times)
    print(
        json.dumps(
            {
                "framework": f"pytorch {torch.__version__}" + (", compiled" if a.compile else "")
                + (f", {'FSDP2' if a.fsdp else 'DDP'} on {ranks}" if ranks > 1 else "")
                + (", profiled" if a.profile else ""),
                "device": torch.cuda.get_device_name() if gpu else "cpu",
                "dtype": "bf16 autocast" if a.bf16 else "f32",
                "first_step_s": round(first, 3),
                **({"peak_reserved_bytes": torch.cuda.max_memory_reserved(),
                    "peak_allocated_bytes": torch.cuda.max_memory_allocated()} if gpu else {}),
                "preset": a.preset,
                "parameters": sum(p.numel() for p in model.parameters()),
                "batch": a.batch,
                "context": config.context,
                "threads": a.threads,
                "steps": a.steps,
                "ms_per_step": round(median * 1e3, 3),
                "ms_per_step_p10": round(times[len(times) // 10] * 1e3, 3),
                "ms_per_step_p90": round(times[len(times) * 9 // 10] * 1e3, 3),
                "tokens_per_s": round(ranks * a.batch * config.context / median),
                "loss": round(last, 4),
            }
        )
    )


if __name__ == "__main__":
    main()
