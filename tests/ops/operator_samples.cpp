#include "tests/ops/operator_samples.h"
#include "tests/support/dtypes.h"

namespace lorry::test {
namespace {

/// Value i of operand k: numbers scattered over a small range, all different among the first 61.
double number_at(int64_t i, size_t k, DType dtype, bool chance) {
  const int64_t scattered = (i * 37 + static_cast<int64_t>(k) * 11) % 61;
  if (dtype == kBool) return static_cast<double>(scattered % 2);
  if (!is_floating(dtype)) return static_cast<double>(scattered % 5 - (is_unsigned(dtype) ? 0 : 2));
  return chance ? static_cast<double>(scattered + 1) / 64 : static_cast<double>(scattered - 30) / 16 + 1.0 / 32;
}

}  // namespace

std::vector<const Sample*> samples_of(Op op) {
  std::vector<const Sample*> found;
  for (const std::span<const Sample> family :
       {view_samples(), indexing_samples(), reduction_samples(), product_samples(), quantize_samples()})
    for (const Sample& sample : family)
      if (sample.op == op) found.push_back(&sample);
  return found;
}

std::vector<int> sampled_rows() {
  std::vector<int> rows;
  for (int i = 0; i < kOpCount; ++i)
    if (kOps[i].kind != OpKind::pointwise && kOps[i].kind != OpKind::list) rows.push_back(i);
  return rows;
}

Tensors make_inputs(const Sample& sample, DType dtype, Memory memory) {
  Tensors inputs;
  for (size_t k = 0; k < sample.inputs.size(); ++k) {
    const SampleInput& input = sample.inputs[k];
    const bool position = input.role == SampleInput::Role::position;
    const Tensor x = allocate(input.sizes, position ? kI64 : dtype, memory);
    for (int64_t i = 0; i < x.numel(); ++i)
      set_element(x, i,
                  position ? input.values[static_cast<size_t>(i) % input.values.size()]
                           : number_at(i, k, dtype, input.role == SampleInput::Role::chance));
    inputs.push_back(x);
  }
  return inputs;
}

Tensors in_f64(const Tensors& inputs) {
  Tensors wide;
  for (const Tensor& x : inputs) {
    wide.push_back(x.dtype() == kI64 ? x : empty(x.sizes(), {kF64}));
    if (x.dtype() != kI64)
      for (int64_t i = 0; i < x.numel(); ++i) set_element(wide.back(), i, element(x, i));
  }
  return wide;
}

Sample without_rows(const Sample& sample) {
  Sample empty = sample;
  for (size_t k = 0; k < empty.inputs.size(); ++k)
    if (sample.leading >> k & 1) empty.inputs[k].sizes[0] = 0;
  return empty;
}

Sample with_rank(const Sample& sample, int rank) {
  Sample ranked = sample;
  for (SampleInput& input : ranked.inputs) input.sizes = Dims::filled(rank, 2);
  return ranked;
}

Generator& fresh_generator() {
  static thread_local std::optional<Generator> generator;
  return generator.emplace(5);
}

}  // namespace lorry::test
