// Quantisation and products of i8.

#include "tests/ops/operator_samples.h"

namespace lorry::test {
namespace {

using T = const Tensors&;

SampleInput constant_value(const Dims& sizes) { return {.sizes = sizes, .differentiable = false}; }
/// Scales of 1/8, 1/16, ... from whole numbers.
Tensor scales(const Tensor& x) { return x.defined() ? x.to(kF32).div(16) : x; }
Tensor whole(const Tensor& x) { return x.defined() ? x.to(kI32) : x; }
/// Values as codes: 16 of them to 1.
Tensor as_codes(const Tensor& x, DType dtype) { return x.mul(16).to(dtype); }

const Sample kSamples[] = {
    {.op = Op::quantize_linear,
     .inputs = {constant_value({3, 4}), position({3}, {2, 1, 4}, true), position({3}, {-3, 0, 100}, true)},
     .call = [](T t) -> Tensors { return {quantize_linear(t[0], scales(t[1]), whole(t[2]), 0)}; },
     .accepts = floating,
     .leading = 0b111},
    {.op = Op::quantize_linear,
     .inputs = {constant_value({3, 4})},
     .call = [](T t) -> Tensors { return {quantize_linear(t[0], {}, {}, {}, CodeFormat::e4m3)}; },
     .accepts = floating,
     .leading = 1,
     .any_rank = true},
    {.op = Op::quantize_linear,
     .inputs = {constant_value({3, 4}), position({4}, {2, 1, 4, 3}, true)},
     .call = [](T t) -> Tensors { return {quantize_linear(t[0], scales(t[1]), {}, -1, CodeFormat::e5m2)}; },
     .accepts = floating,
     .leading = 1},
    {.op = Op::dequantize_linear,
     .inputs = {constant_value({3, 4}), position({4}, {2, 1, 4, 7}, true), position({4}, {-3, 0, 100, 1}, true)},
     .call = [](T t) -> Tensors { return {dequantize_linear(as_codes(t[0], kI8), scales(t[1]), whole(t[2]), 1)}; },
     .leading = 1},
    {.op = Op::dequantize_linear,
     .inputs = {constant_value({3, 4})},
     .call = [](T t) -> Tensors {
       return {dequantize_linear(as_codes(t[0], kU8).clamp_max(120), {}, {}, {}, CodeFormat::e4m3, kF64)};
     },
     .leading = 1,
     .any_rank = true},
    {.op = Op::quantize_blocks,
     .inputs = {constant_value({3, 4})},
     .call = [](T t) -> Tensors {
       const auto [codes, block_scales] = quantize_blocks(t[0]);
       return {codes, block_scales};
     },
     .accepts = floating,
     .leading = 1,
     .any_rank = true},
    {.op = Op::dequantize_blocks,
     .inputs = {constant_value({3, 4}), position({1}, {40})},
     .call = [](T t) -> Tensors { return {dequantize_blocks(as_codes(t[0], kU8), scales(t[1]))}; },
     .leading = 0b11},
    {.op = Op::int8_matmul,
     .inputs = {constant_value({3, 4}), constant_value({4, 2})},
     .call = [](T t) -> Tensors { return {int8_matmul(as_codes(t[0], kI8), as_codes(t[1], kI8))}; },
     .leading = 1},
    {.op = Op::int8_matmul,
     .inputs = {constant_value({2, 3, 4}), constant_value({2, 4, 2})},
     .call = [](T t) -> Tensors { return {int8_matmul(as_codes(t[0], kI8), as_codes(t[1], kI8))}; },
     .leading = 0b11},
};

}  // namespace

std::span<const Sample> quantize_samples() { return kSamples; }

}  // namespace lorry::test
