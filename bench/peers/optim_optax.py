#!/usr/bin/env python3
"""AdamW of optax under jit over the shapes of `lorry bench optim`: what a compiler of whole steps reaches. Parameters
and state are donated.

    python bench/peers/optim_optax.py [--device cpu|cuda] [--json FILE] [--models NAME...] [--filter TEXT]
                                      [--limit SECONDS]

Same schema as `lorry bench --json`. Each model runs in a process of its own, which ends after the limit: compiling
thousands of tensors takes minutes. Without optax the same update is written out in jax, and the case says so; without
jax the report is empty.
"""
import argparse
import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

from harness import SMALL_MODELS, Report, elements, first_ms, load_shapes, write  # noqa: E402

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    jax = None
try:
    import optax
except ImportError:
    optax = None

LR, BETA1, BETA2, EPS, DECAY = 1e-6, 0.9, 0.999, 1e-8, 1e-2


def adamw():
    """(state of new parameters, step of parameters, gradients and state), by optax where it is there."""
    if optax:
        rule = optax.adamw(LR, b1=BETA1, b2=BETA2, eps=EPS, weight_decay=DECAY)

        def step(params, grads, state):
            updates, state = rule.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        return rule.init, step

    each = jax.tree_util.tree_map

    def init(params):
        return 0, each(jnp.zeros_like, params), each(jnp.zeros_like, params)

    def step(params, grads, state):
        count, means, squares = state
        count = count + 1
        means = each(lambda m, g: BETA1 * m + (1 - BETA1) * g, means, grads)
        squares = each(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, squares, grads)
        corrected, root = 1 - BETA1**count, (1 - BETA2**count) ** 0.5
        move = lambda p, m, v: p - LR * ((m / corrected) / (v**0.5 / root + EPS) + DECAY * p)
        return each(move, params, means, squares), (count, means, squares)

    return init, step


def one_model(report, model, shapes):
    init, step = adamw()
    step = jax.jit(step, donate_argnums=(0, 2))
    params = [jnp.full(shape, 0.5, jnp.float32) for shape in shapes]
    grads = [jnp.full(shape, 0.01, jnp.float32) for shape in shapes]
    now = [params, init(params)]

    def call():
        now[0], now[1] = step(now[0], grads, now[1])

    wait = lambda: jax.block_until_ready(now)
    report.wait = wait
    case = f"{model} adamw jit" if optax else f"{model} adamw jit, written in jax"
    first = first_ms(call, wait)
    report.add(case, call, 4 * elements(shapes) * 7, effort={"warmup_s": 0.1, "total_s": 0.4}, first_ms=first)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"), help="falls back to what jax has")
    parser.add_argument("--json")
    parser.add_argument("--models", nargs="+")
    parser.add_argument("--filter", default="")
    parser.add_argument("--limit", type=float, default=90)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if jax is None:
        print("optim_optax: this Python has no jax; nothing was measured", file=sys.stderr)
        write(arguments.json, {}, [])
        return
    if arguments.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    shapes = load_shapes()
    if arguments.only:  # the parent must not touch the device, whose memory the children need
        platform = jax.devices()[0].platform
        name = f"optax {optax.__version__}, jax {jax.__version__}" if optax else f"jax {jax.__version__}"
        report = Report("optim", name, "cpu" if platform == "cpu" else "cuda:0")
        one_model(report, arguments.only, shapes[arguments.only])
    else:
        report = Report("optim", "jax", arguments.device, arguments.filter)
        models = arguments.models or (SMALL_MODELS if arguments.device == "cpu"
                                      else [model for model in shapes if elements(shapes[model]) < 1 << 28])
        for model in models:
            report.add_limited(f"{model} adamw jit", __file__, ["--device", arguments.device, "--only", model],
                               arguments.limit)
    write(arguments.json, {}, report.rows)


if __name__ == "__main__":
    main()
