// The attention kernels of a GPU, called one by one: which of them a call gets depends on the device and the operands,
// and some are seldom chosen.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "lorry/device/cuda/runtime.h"
#include "lorry/kernels/cuda/attention/attention.h"
#include "lorry/lorry.h"
#include "lorry/ops/array.h"
#include "tests/support/on_cuda.h"

namespace lorry::test {
namespace {

/// How a mask lies in memory.
enum class MaskLayout {
  rows,        ///< rows of keys
  shifted,     ///< the same, one element further
  columns,     ///< columns of queries
  one_row,     ///< one row for all queries
  one_column,  ///< one element a query, for all keys
  whole        ///< rows of every batch entry and head
};
constexpr std::array kLayoutNames = {"rows", "shifted", "columns", "one row", "one column", "whole"};

/// A call on the GPU and its gradients.
struct Case {
  int64_t b, h, g, t, s, d, e;
  DType mask = kF64;  ///< kF64: none
  bool causal = false;
  double dropout = 0, scale = 0.2;
  int64_t shift = 0;  ///< elements from the start of memory, where the kernels cannot copy 16 bytes at once
  MaskLayout layout = MaskLayout::rows;

  std::string text() const {
    return fmt::format("{} x {} ({}) x {} x {} x {} ({}), mask {} ({}), causal {}, dropout {}, scale {}, shift {}", b,
                       h, g, t, s, d, e, mask, kLayoutNames[static_cast<size_t>(layout)], causal, dropout, scale,
                       shift);
  }
};

/// The operands of a case and the memory for what kernels write, in one dtype.
struct AttentionTensors {
  std::array<Tensor, 5> inputs;   ///< q, k, v, mask, grad_out
  std::array<Tensor, 5> results;  ///< out, logsumexp, grad_q, grad_k, grad_v
  kernels::AttentionArgs args;
  kernels::AttentionGrads grads;

  AttentionTensors(const Case& x, const std::array<Tensor, 5>& values, DType dtype) {
    const auto shifted = [&](const Tensor& y) {
      const Tensor memory = zeros({y.numel() + x.shift}, {.dtype = dtype, .device = kGPU});
      const Tensor at = memory.slice(0, x.shift).view(y.sizes());
      at.copy_(y.to(dtype));
      return at;
    };
    for (size_t i = 0; i < 5; ++i)
      inputs[i] = i != 3                                   ? shifted(values[i])
                  : values[3].defined() && x.mask != kBool ? values[3].to(dtype)
                                                           : values[3];
    const auto result = [&](const Dims& sizes, DType of) { return empty(sizes, {.dtype = of, .device = kGPU}); };
    results = {result({x.b, x.h, x.t, x.e}, dtype), result({x.b, x.h, x.t}, dtype == kF64 ? kF64 : kF32),
               result({x.b, x.h, x.t, x.d}, dtype), result({x.b, x.g, x.s, x.d}, dtype),
               result({x.b, x.g, x.s, x.e}, dtype)};
    args.q = array(inputs[0]), args.k = array(inputs[1]), args.v = array(inputs[2]);
    args.out = array(results[0]), args.logsumexp = array(results[1]);
    if (values[3].defined()) {
      inputs[3] = laid_out(inputs[3], x);
      args.mask = array(inputs[3].expand({x.b, x.h, x.t, x.s}));
    }
    args.scale = x.scale, args.causal = x.causal, args.dropout = x.dropout;
    args.key.seed = 3, args.key.offset = 5;
    grads = {array(inputs[4]), array(results[2]), array(results[3]), array(results[4])};
  }

 private:
  static Tensor laid_out(const Tensor& mask, const Case& x) {
    switch (x.layout) {
      case MaskLayout::rows:
        return mask;
      case MaskLayout::shifted: {
        const Tensor memory = zeros({mask.numel() + 1}, {.dtype = mask.dtype(), .device = kGPU});
        const Tensor at = memory.slice(0, 1).view(mask.sizes());
        at.copy_(mask);
        return at;
      }
      case MaskLayout::columns:
        return mask.transpose(-1, -2).contiguous().transpose(-1, -2);
      case MaskLayout::one_row:
        return mask.slice(-2, 0, 1);
      case MaskLayout::one_column:
        return mask.slice(-1, 0, 1);
      case MaskLayout::whole:
        return mask.expand({x.b, x.h, x.t, x.s}).contiguous();
    }
    return mask;
  }
};

void expect_close(const AttentionTensors& got, const AttentionTensors& expected, const std::string& what) {
  const DType dtype = got.inputs[0].dtype();
  const double tolerance = dtype == kF32 ? 3e-5 : dtype == kF16 ? 4e-3 : 3e-2;
  for (size_t i = 0; i < 5; ++i) {
    const Tensor &y = expected.results[i], x = got.results[i].to(kF64), finite = y.isfinite();
    if (y.numel() == 0) continue;
    const double size = std::max(1.0, where(finite, y.abs(), zeros_like(y)).max().item<double>());
    const Tensor difference = where(x.eq(y), zeros_like(y), x.sub(y).abs());  // two infinities are equal
    EXPECT_LT(difference.max().item<double>(), tolerance * size) << what << ", result " << i << " of " << name(dtype);
  }
}

/// All kernels that compute the case, beside those of f64 on the same rounded numbers.
void check(const Case& x) {
  SCOPED_TRACE(x.text());
  const Stream stream = current_stream(kGPU);
  const int capability = cuda::properties(kGPU.index).compute_capability;
  const auto made = [&](int64_t heads, int64_t length, int64_t width) {
    return randn({x.b, heads, length, width}, {.device = kGPU});
  };
  std::array<Tensor, 5> values = {made(x.h, x.t, x.d), made(x.g, x.s, x.d), made(x.g, x.s, x.e), Tensor(),
                                  made(x.h, x.t, x.e)};
  if (x.mask == kBool) {
    values[3] = rand({x.t, x.s}, {.device = kGPU}).gt(0.3);
    if (x.t > 2) values[3].select(0, 2).fill_(false);  // a query without keys
  } else if (x.mask != kF64) {
    values[3] = randn({x.h, x.t, x.s}, {.device = kGPU});
    if (x.t > 2) values[3].select(1, 2).fill_(-3.38e38);  // nearly the least of bf16, as masks for padding have it
  }
  for (const DType dtype : {kF32, kF16, kBF16}) {
    std::array<Tensor, 5> rounded;
    for (size_t i = 0; i < 5; ++i)
      rounded[i] = values[i].defined() && values[i].dtype() != kBool ? values[i].to(dtype) : values[i];
    const AttentionTensors expected(x, rounded, kF64);
    kernels::cuda::fma_attention_forward(expected.args, stream);
    kernels::cuda::fma_attention_backward(expected.args, expected.grads, stream);
    const AttentionTensors by_warp(x, rounded, dtype);
    if (!kernels::cuda::tensor_attention_forward(by_warp.args, stream)) {
      ASSERT_TRUE(capability < 80 || (dtype == kF32 && x.s <= 256));
      kernels::cuda::fma_attention_forward(by_warp.args, stream);
    }
    if (kernels::cuda::tensor_attention_backward(by_warp.args, by_warp.grads, stream))
      expect_close(by_warp, expected, "one warp at a time");
    else
      ASSERT_LT(capability, 80);
#ifdef LORRY_WITH_WARPGROUPS
    const bool suits = capability == 90 && dtype != kF32 && x.d <= 128 && x.e <= 128;
    const AttentionTensors by_group(x, rounded, dtype);
    ASSERT_EQ(kernels::cuda::warpgroup_attention_forward(by_group.args, stream), suits);
    ASSERT_EQ(kernels::cuda::warpgroup_attention_backward(by_group.args, by_group.grads, stream), suits);
    if (suits) expect_close(by_group, expected, "warpgroups");
#endif
  }
}

TEST(AttentionKernels, each_agrees_with_those_of_f64) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const Case& x : {Case{2, 4, 2, 70, 150, 16, 16},
                        {1, 2, 2, 130, 300, 64, 64},
                        {1, 70, 70, 200, 129, 40, 24},
                        {1, 2, 1, 200, 257, 128, 72},
                        {1, 2, 1, 70, 300, 5, 13},
                        {1, 70, 70, 66, 70, 200, 136},
                        {1, 2, 1, 66, 70, 16, 200},
                        {1, 140, 140, 130, 200, 48, 64},   // so many heads that a block has several warpgroups,
                        {1, 140, 70, 260, 130, 128, 72}})  // some of them without queries
    for (const DType mask : {kF64, kBool, kF32})
      for (const double dropout : {0.0, 0.3}) {
        Case y = x;
        y.mask = mask, y.dropout = dropout;
        check(y);
        y.causal = true, y.mask = kF64;
        if (mask == kF64) check(y);
      }
}

TEST(AttentionKernels, rows_need_no_alignment) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const bool causal : {false, true}) {
    check({.b = 1, .h = 2, .g = 1, .t = 70, .s = 290, .d = 64, .e = 64, .causal = causal, .shift = 1});
    check({.b = 1, .h = 2, .g = 2, .t = 100, .s = 67, .d = 72, .e = 128, .causal = causal, .shift = 3});
  }
}

TEST(AttentionKernels, masks_of_any_strides) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const DType mask : {kBool, kF32})
    for (const MaskLayout layout : {MaskLayout::rows, MaskLayout::shifted, MaskLayout::columns, MaskLayout::one_row,
                                    MaskLayout::one_column, MaskLayout::whole}) {
      check({.b = 2, .h = 2, .g = 1, .t = 200, .s = 320, .d = 64, .e = 64, .mask = mask, .layout = layout});
      check({.b = 1,
             .h = 2,
             .g = 2,
             .t = 192,
             .s = 264,
             .d = 128,
             .e = 96,
             .mask = mask,
             .dropout = 0.2,
             .layout = layout});
      check({.b = 1, .h = 1, .g = 1, .t = 65, .s = 131, .d = 32, .e = 32, .mask = mask, .layout = layout});
    }
}

TEST(AttentionKernels, any_scale_and_any_lengths) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const double scale : {-0.3, 0.0, 1e-4})
    check({.b = 1, .h = 2, .g = 2, .t = 70, .s = 300, .d = 16, .e = 16, .scale = scale});
  for (const DType mask : {kBool, kF32}) {
    check({.b = 1, .h = 2, .g = 2, .t = 70, .s = 300, .d = 16, .e = 16, .mask = mask, .scale = -0.3});
    check({.b = 1, .h = 2, .g = 2, .t = 70, .s = 300, .d = 16, .e = 16, .mask = mask, .causal = true});
    check({.b = 1, .h = 2, .g = 2, .t = 1, .s = 300, .d = 16, .e = 16, .mask = mask});
    check({.b = 1, .h = 1, .g = 1, .t = 1, .s = 320, .d = 16, .e = 16, .mask = mask, .layout = MaskLayout::whole});
    check({.b = 1, .h = 2, .g = 2, .t = 300, .s = 1, .d = 16, .e = 16, .mask = mask});
    check({.b = 1, .h = 2, .g = 2, .t = 70, .s = 0, .d = 16, .e = 16, .mask = mask});
  }
  check({.b = 1, .h = 2, .g = 2, .t = 70, .s = 300, .d = 16, .e = 16, .dropout = 1});
  check({.b = 1, .h = 2, .g = 2, .t = 70, .s = 0, .d = 16, .e = 16});
  check({.b = 1, .h = 2, .g = 2, .t = 0, .s = 70, .d = 16, .e = 16});
  check({.b = 1, .h = 2, .g = 2, .t = 1, .s = 300, .d = 16, .e = 16, .causal = true});
  check({.b = 1, .h = 2, .g = 2, .t = 300, .s = 1, .d = 16, .e = 16, .causal = true});
}

TEST(AttentionKernels, a_nan_query_spoils_only_the_keys_it_attends_to) {
  LORRY_SKIP_WITHOUT_CUDA();
  const Stream stream = current_stream(kGPU);
  for (const DType dtype : {kF32, kF16, kBF16})
    for (const int64_t heads : {1, 70})
      for (const int64_t width : {16, 72}) {
        const Case x{.b = 1, .h = heads, .g = heads, .t = 70, .s = 70, .d = width, .e = width, .causal = true};
        std::array<Tensor, 5> values;
        for (size_t i : {0u, 1u, 2u, 4u}) values[i] = randn({1, heads, 70, width}, {.device = kGPU});
        values[0].select(2, 10).fill_(std::nan(""));
        const auto expect_clean = [&](const AttentionTensors& y, const char* what) {
          EXPECT_TRUE(y.results[4].slice(2, 11).isfinite().all().item<bool>()) << what << " of " << name(dtype);
          EXPECT_FALSE(y.results[4].slice(2, 0, 11).isfinite().any().item<bool>()) << what << " of " << name(dtype);
        };
        const AttentionTensors by_warp(x, values, dtype);
        if (!kernels::cuda::tensor_attention_forward(by_warp.args, stream))
          kernels::cuda::fma_attention_forward(by_warp.args, stream);
        if (kernels::cuda::tensor_attention_backward(by_warp.args, by_warp.grads, stream))
          expect_clean(by_warp, "one warp at a time");
#ifdef LORRY_WITH_WARPGROUPS
        const AttentionTensors by_group(x, values, dtype);
        if (kernels::cuda::warpgroup_attention_forward(by_group.args, stream) &&
            kernels::cuda::warpgroup_attention_backward(by_group.args, by_group.grads, stream))
          expect_clean(by_group, "warpgroups");
#endif
      }
}

}  // namespace
}  // namespace lorry::test
