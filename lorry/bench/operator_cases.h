#pragma once

// The cases of the suites `operators` and `attention`. bench/peers/operators_torch.py makes the same calls in PyTorch,
// by the same names.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lorry/layout/dtype.h"
#include "lorry/tensor/tensor.h"

namespace lorry::bench {

using Call = std::function<void()>;

/// A call to measure on the default device.
struct OperatorCase {
  std::string name;
  DType dtype;
  double bytes;                ///< of each operand and result, read or written once
  double flops;                ///< 0: it is bound by memory
  std::function<Call()> make;  ///< makes the inputs; the call holds them
};

using OperatorCases = std::vector<OperatorCase>;

/// The common form: call(x) of one tensor, whose result is read or written `passes` times as often as x.
void add_case(OperatorCases& cases, const std::string& name, const Dims& sizes, DType dtype, double passes,
              Tensor (*call)(const Tensor& x));
/// A case whose make() says everything.
void add_case(OperatorCases& cases, const std::string& name, DType dtype, double bytes, std::function<Call()> make,
              double flops = 0);

void add_pointwise_cases(OperatorCases& cases);
void add_reduction_cases(OperatorCases& cases);
void add_row_cases(OperatorCases& cases);
void add_sorting_cases(OperatorCases& cases);
void add_indexing_cases(OperatorCases& cases);
void add_copy_cases(OperatorCases& cases);
void add_product_cases(OperatorCases& cases);
void add_training_cases(OperatorCases& cases);
/// All of them: the suite `operators`.
OperatorCases operator_cases();
/// The suite `attention`, of a GPU's size: long texts, lengths that are no multiple of 64, masks and dropout.
OperatorCases attention_cases();

/// 4 M elements in f32 are 16 MB: more than the caches of a core hold.
inline constexpr int64_t kLarge = 1 << 22;
/// 4096 elements in f32 fit the first-level cache, so that computation dominates.
inline constexpr int64_t kSmall = 1 << 12;

/// "4 M", "4096"
std::string count_text(int64_t elements);
/// Uniform between 0.1 and 0.9, where every operator is defined; small whole numbers from 1 on for integers.
Tensor operand(const Dims& sizes, DType dtype = kF32);

}  // namespace lorry::bench
