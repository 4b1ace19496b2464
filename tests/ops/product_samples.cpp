// Matrix products, attention, tokens and embedding.

#include <algorithm>
#include <cmath>

#include "lorry/ops/internal.h"
#include "tests/ops/operator_samples.h"

namespace lorry::test {
namespace {

using T = const Tensors&;

/// A table of rotary, of the type in which x is computed.
SampleInput table(const Dims& sizes) {
  return {.role = SampleInput::Role::chance, .sizes = sizes, .differentiable = false};
}
Tensor as_table(const Tensor& table, const Tensor& x) {
  return table.defined() ? table.to(x.defined() && x.dtype() == kF64 ? kF64 : kF32) : table;
}

/// Values, and settings of the type that the operator wants, without a gradient.
SampleInput constant_value(const Dims& sizes) { return {.sizes = sizes, .differentiable = false}; }
SampleInput setting(const Dims& sizes) {
  return {.role = SampleInput::Role::chance, .sizes = sizes, .differentiable = false};
}
Tensor as(DType dtype, const Tensor& x) { return x.defined() ? x.to(dtype) : x; }

/// Four rows: two of sequence 1, padding, and one of sequence 0. Blocks have two positions.
const SampleInput kBlockTable = position({2, 3}, {3, 0, 2, 1, 4, 5}), kSlots = position({4}, {1, 1, -1, 0}),
                  kPositions = position({4}, {3, 4, 0, 0});
SampleInput caches() { return constant_value({6, 2, 2, 3}); }

/// The caches after a write.
Tensors with_rows(T t) {
  const Tensor k = t[0].clone(), v = t[1].clone();
  paged_write(k, v, t[2], t[3], as(kI32, t[4]), as(kI32, t[5]), as(kI32, t[6]));
  return {k, v};
}

/// Three sequences: one goes on, one is padding, one ends behind the run 2, 4.
const std::vector<SampleInput> kSequences = {
    position({3}, {1, 2, 2}),   // tokens
    position({3}, {5, 0, 3}),   // positions
    position({3}, {1, -1, 0}),  // slots
    position({3}, {2, 3, 5}),   // drawn
    setting({3}),               // uniform
    position({3, 3}, {0, 1, 2, 3, 4, 0, 0, 2, 1}),
    position({2, 5}, {0, 1, 0, 0, 0, 0, 0, 1, 0, 1}),
    position({3}, {9, 9, 9}),  // limits
    position({3, 2}, {7, 0, 7, 1, 8, 0}),
    position({3, 2, 2}, {1, 2, -1, -1, 0, 0, 0, 0, -1, 0, 1, 4}),
    position({3}, {3, 1, 4}),  // next
};
SequenceRows sequences(T t) {
  return {t[0], as(kI32, t[1]), as(kI32, t[2]), t[3], as(kF64, t[4]), t[5], as(kBool, t[6]), t[7], t[8], t[9]};
}
/// All that is written, after a step.
Tensors advanced(T t) {
  SequenceRows rows = sequences(t);
  for (Tensor* x : {&rows.tokens, &rows.positions, &rows.slots, &rows.drawn, &rows.uniform, &rows.outputs, &rows.seen})
    *x = x->clone();
  advance_sequences(rows, t[10]);
  return {rows.tokens, rows.positions, rows.slots, rows.drawn, rows.uniform, rows.outputs, rows.seen};
}

const Sample kSamples[] = {
    {.op = Op::matmul,
     .inputs = {value({3, 4}), value({4, 2})},
     .call = [](T t) -> Tensors { return {matmul(t[0], t[1])}; },
     .out = [](T out, T t) { matmul_out(out[0], t[0], t[1]); },
     .accepts = number,
     .leading = 1},
    {.op = Op::matmul,
     .inputs = {value({3, 4}), value({4})},
     .call = [](T t) -> Tensors { return {mv(t[0], t[1])}; },
     .out = [](T out, T t) { mv_out(out[0], t[0], t[1]); },
     .accepts = number,
     .leading = 1},
    {.op = Op::matmul,
     .inputs = {value({4}), value({4})},
     .call = [](T t) -> Tensors { return {dot(t[0], t[1])}; },
     .out = [](T out, T t) { dot_out(out[0], t[0], t[1]); },
     .accepts = number,
     .leading = 3},
    {.op = Op::matmul,
     .inputs = {value({2, 3, 4}), value({2, 4, 2})},
     .call = [](T t) -> Tensors { return {bmm(t[0], t[1])}; },
     .out = [](T out, T t) { bmm_out(out[0], t[0], t[1]); },
     .accepts = number,
     .leading = 3},
    {.op = Op::addmm,
     .inputs = {value({3, 2}), value({3, 4}), value({4, 2})},
     .call = [](T t) -> Tensors { return {addmm(t[0], t[1], t[2], 2, 3)}; },
     .in_place = [](T t) { t[0].addmm_(t[1], t[2], 2, 3); },
     .out = [](T out, T t) { addmm_out(out[0], t[0], t[1], t[2], 2, 3); },
     .accepts = number,
     .leading = 3},
    {.op = Op::baddbmm,
     .inputs = {value({2, 3, 2}), value({2, 3, 4}), value({2, 4, 2})},
     .call = [](T t) -> Tensors { return {baddbmm(t[0], t[1], t[2], 2, 3)}; },
     .in_place = [](T t) { t[0].baddbmm_(t[1], t[2], 2, 3); },
     .out = [](T out, T t) { baddbmm_out(out[0], t[0], t[1], t[2], 2, 3); },
     .accepts = number,
     .leading = 7},
    {.op = Op::linear,
     .inputs = {value({3, 4}), value({2, 4}), optional({2})},
     .call = [](T t) -> Tensors { return {linear(t[0], t[1], t[2])}; },
     .accepts = number,
     .leading = 1},
    {.op = Op::linear_rows,
     .inputs = {value({3, 4}), value({2, 4}), optional({2})},
     .call = [](T t) -> Tensors {
       const BatchInvariant scope;
       return {linear(t[0], t[1], t[2])};
     },
     .accepts = number,
     .leading = 1},
    {.op = Op::attention,
     .inputs = {value({1, 2, 3, 4}), value({1, 2, 5, 4}), value({1, 2, 5, 4}), optional({3, 5})},
     .call = [](T t) -> Tensors { return {scaled_dot_product_attention(t[0], t[1], t[2], t[3])}; },
     .accepts = floating,
     .leading = 7},
    {.op = Op::attention,
     .inputs = {value({1, 2, 4, 2}), value({1, 2, 4, 2}), value({1, 2, 4, 2})},
     .call = [](T t) -> Tensors { return {scaled_dot_product_attention(t[0], t[1], t[2], {}, {.causal = true})}; },
     .accepts = floating,
     .leading = 7},
    {.op = Op::packed_attention,
     .inputs = {value({2, 3, 12})},
     .call = [](T t) -> Tensors { return {packed_attention(t[0], 2, {.causal = true})}; },
     .accepts = floating,
     .leading = 1},
    {.op = Op::paged_write,
     .inputs = {caches(), caches(), constant_value({4, 2, 3}), constant_value({4, 2, 3}), kBlockTable, kSlots,
                kPositions},
     .call = with_rows,
     .in_place = [](T t) { paged_write(t[0], t[1], t[2], t[3], as(kI32, t[4]), as(kI32, t[5]), as(kI32, t[6])); },
     .accepts = floating,
     .leading = 0b1101100},
    {.op = Op::paged_attention,
     .inputs = {constant_value({4, 4, 3}), caches(), caches(), kBlockTable, kSlots, kPositions},
     .call = [](T t) -> Tensors {
       return {paged_attention(t[0], t[1], t[2], as(kI32, t[3]), as(kI32, t[4]), as(kI32, t[5]), 0.5)};
     },
     .accepts = floating,
     .leading = 0b110001},
    {.op = Op::sample_tokens,
     .inputs = {constant_value({2, 5}), setting({2}), position({2}, {3, 0}), setting({2}), setting({2})},
     .call = [](T t) -> Tensors {
       return {sample_tokens(t[0], as(kF32, t[1]), as(kI32, t[2]), as(kF32, t[3]), as(kF64, t[4]))};
     },
     .accepts = floating,
     .holds =
         [](const std::vector<double>& tokens) {
           return std::ranges::all_of(tokens, [](double x) { return x == std::floor(x) && x >= 0 && x < 5; });
         },
     .leading = 0b11111},
    {.op = Op::repetition_penalty,
     .inputs = {constant_value({2, 4}), position({2, 4}, {0, 1, 0, 0, 1, 1, 0, 1}), position({2}, {1, -1}),
                setting({2})},
     .call = [](T t) -> Tensors { return {repetition_penalty(t[0], as(kBool, t[1]), as(kI32, t[2]), as(kF32, t[3]))}; },
     .accepts = floating,
     .leading = 0b1101},
    {.op = Op::advance_sequences,
     .inputs = kSequences,
     .call = advanced,
     .in_place = [](T t) { advance_sequences(sequences(t), t[10]); },
     .leading = 0b11110111111},
    {.op = Op::rotary,
     .inputs = {value({2, 3, 2, 4}), table({3, 2}), table({3, 2})},
     .call = [](T t) -> Tensors { return {rotary(t[0], as_table(t[1], t[0]), as_table(t[2], t[0]), 1)}; },
     .accepts = floating,
     .leading = 1},
    {.op = Op::rotary,
     .inputs = {value({3, 2, 6}), table({3, 3}), table({3, 3})},
     .call = [](T t) -> Tensors { return {rotary(t[0], as_table(t[1], t[0]), as_table(t[2], t[0]), {}, true)}; },
     .accepts = floating,
     .leading = 7},
    {.op = Op::embedding,
     .inputs = {position({2, 3}, {0, 4, 2, 2, 1, 0}), value({5, 4})},
     .call = [](T t) -> Tensors { return {embedding(t[0], t[1])}; },
     .leading = 1},
    {.op = Op::embedding_backward,
     .inputs = {value({2, 3, 4}), position({2, 3}, {0, 4, 2, 2, 1, 0})},
     .call = [](T t) -> Tensors { return {embedding_backward(t[0], t[1], 5, 1)}; },
     .accepts = floating,
     .leading = 3,
     .internal = true},
};

}  // namespace

std::span<const Sample> product_samples() { return kSamples; }

}  // namespace lorry::test
