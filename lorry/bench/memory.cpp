// Operators that only move memory, compared with a copy of as many bytes: the difference is the operator's own cost.
// Bytes are those that must be read and written once. Results are written to existing memory. Cases that would fit a
// cache rotate over several tensors.

#include "lorry/autograd/grad_mode.h"
#include "lorry/bench/memory_cases.h"
#include "lorry/bench/suites.h"
#include "lorry/nn/layers.h"
#include "lorry/ops/ops.h"

namespace lorry::bench {
namespace {

using profile::do_not_optimize;

void add_rotary(MemoryCases& suite) {
  const int64_t texts = default_device().is_cpu() ? 4 : 64, heads = 16, d = 64;
  const Tensor packed = randn({texts, 1024, 3 * heads, d}).to(kBF16);
  const auto [cos, sin] = nn::rotation(0, 1024, d, {.device = default_device()});
  suite.add("rotary of q and k, bf16", kBF16, 2 * packed.nbytes(),
            [&, cos = cos, sin = sin] { do_not_optimize(rotary(packed, cos, sin, 2 * heads)); });
}

/// The suite `transfers` compares them with the link.
void add_transfers(MemoryCases& suite) {
  const std::string from_pageable = "to the GPU from pageable memory", from_pinned = "to the GPU from pinned memory";
  if (!suite.has_any({from_pageable, from_pinned})) return;
  const Tensor pageable = ones({64 << 20}, {.device = kCPU}), pinned = pageable.pin_memory();
  suite.add_transfer(from_pageable, kF32, pageable.nbytes(), 0,
                     [&] { do_not_optimize(pageable.to(default_device())); });
  suite.add_transfer(from_pinned, kF32, pinned.nbytes(), 0, [&] { do_not_optimize(pinned.to(default_device())); });
}

}  // namespace

std::vector<Result> memory_suite(const Filter& filter) {
  const NoGrad no_grad;
  // Much larger than the caches of either device.
  const int64_t rows = default_device().is_cpu() ? 4096 : 16384, columns = 4096, n = rows * columns;
  MemoryCases suite("memory", filter);
  const Tensor x = randn({rows, columns}), y = randn({rows, columns}), out = empty({rows, columns});
  const Tensor half = x.to(kBF16), other_half = y.to(kBF16), half_out = empty({rows, columns}, {.dtype = kBF16});
  const Tensor weight = randn({columns}), bias = randn({columns}), grad = randn({rows, columns});
  const int64_t f32 = 4 * n, bf16 = 2 * n;

  suite.add("copy", kF32, 2 * f32, [&] { out.copy_(x); });
  suite.add("fill", kF32, f32, [&] { out.fill_(1); });
  suite.add("add", kF32, 3 * f32, [&] { add_out(out, x, y); });
  suite.add("add bf16", kBF16, 3 * bf16, [&] { add_out(half_out, half, other_half); });
  suite.add("add a row", kF32, 2 * f32, [&] { add_out(out, x, bias); });
  suite.add("gelu", kF32, 2 * f32, [&] { gelu_out(out, x); });
  suite.add("cast f32 to bf16", kBF16, f32 + bf16, [&] { half_out.copy_(x); });
  suite.add("transpose", kF32, 2 * f32, [&] { do_not_optimize(x.t().contiguous()); });
  suite.add("transpose bf16", kBF16, 2 * bf16, [&] { do_not_optimize(half.t().contiguous()); });
  suite.add("sum of all", kF32, f32, [&] { do_not_optimize(x.sum()); });
  suite.add("sum of rows", kF32, f32, [&] { do_not_optimize(x.sum({1})); });
  suite.add("sum of columns", kF32, f32, [&] { do_not_optimize(x.sum({0})); });
  suite.add("sum of columns bf16", kBF16, bf16, [&] { do_not_optimize(half.sum({0})); });
  // gradients of a layer's outputs; the gradient of its bias is their column sums
  const int64_t gradients = 2 * 8192 * 3072;
  suite.add_rotating(
      "sum of columns 8192 x 3072 bf16", kBF16, gradients,
      [] {
        return randn({8192, 3072}).to(kBF16);
      },
      [](const Tensor& grads) { do_not_optimize(grads.sum({0})); });
  suite.add("max of rows", kF32, f32, [&] { do_not_optimize(x.amax({1})); });
  suite.add("softmax", kF32, 2 * f32, [&] { do_not_optimize(softmax(x, -1)); });
  suite.add("softmax bf16", kBF16, 2 * bf16, [&] { do_not_optimize(softmax(half, -1)); });
  suite.add("layer_norm", kF32, 2 * f32, [&] { do_not_optimize(layer_norm(x, {columns}, weight, bias)); });
  suite.add("rms_norm", kF32, 2 * f32, [&] { do_not_optimize(rms_norm(x, {columns}, weight)); });
  suite.add("cumsum", kF32, 2 * f32, [&] { do_not_optimize(x.cumsum(1)); });
  add_rotary(suite);
  suite.add("normal", kF32, f32, [&] { out.normal_(); });
  const Tensor sparse = randn({16 << 20}).gt(1);
  suite.add_rotating(
      "nonzero of 16 M", kBool, sparse.numel() + 8 * sparse.count_nonzero().item<int64_t>(),
      [&] { return sparse.clone(); }, [](const Tensor& mask) { do_not_optimize(mask.nonzero()); });
  const Tensor table = randn({4 * 50257, 768}).to(kBF16);
  suite.add_rotating(
      "embedding 8192 x 768 bf16", kBF16, 2 * 2 * 8192 * 768,
      [] { return randint(4 * 50257, {8192}, {.dtype = kI64}); },
      [&](const Tensor& picks) { do_not_optimize(index_select(table, 0, picks)); });
  if (default_device().is_cpu()) return suite.rows();
  add_transfers(suite);
  return suite.rows();
}

}  // namespace lorry::bench
