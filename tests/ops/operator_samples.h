#pragma once

// Samples of every operator of ops/dispatch/operators.def: how it is called, with what operands, in which dtypes, and
// its other forms. The tests of the table walk its rows, and fail where one has no sample: no operator comes without
// them.
//
// An operand has the same values in f64 as in the dtype under test, so the result in f64 is the oracle of all dtypes,
// layouts and forms. What f64 itself should give, plain loops say for the first sample of each row; each family's own
// test says more.

#include <optional>
#include <span>
#include <vector>

#include "lorry/ops/dispatch/table.h"
#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"

namespace lorry::test {

using Tensors = std::vector<Tensor>;

/// An operand of a sample.
struct SampleInput {
  enum class Role : uint8_t {
    value,     ///< of the dtype under test; differentiable where that is floating
    chance,    ///< the same, between 0 and 1
    position,  ///< i64, with the values given
  };
  Role role = Role::value;
  Dims sizes{};
  std::vector<double> values{};  ///< of positions, from the first again when they run out
  bool optional = false;         ///< may be undefined
  bool differentiable = true;    ///< for values and chances
};

inline SampleInput value(const Dims& sizes) { return {.sizes = sizes}; }
inline SampleInput optional(const Dims& sizes) { return {.sizes = sizes, .optional = true}; }
inline SampleInput chance(const Dims& sizes) { return {.role = SampleInput::Role::chance, .sizes = sizes}; }
inline SampleInput position(const Dims& sizes, const std::vector<double>& values, bool optional = false) {
  return {.role = SampleInput::Role::position,
          .sizes = sizes,
          .values = values,
          .optional = optional,
          .differentiable = false};
}

inline bool any_dtype(DType) { return true; }
inline bool number(DType t) { return t != kBool; }
inline bool floating(DType t) { return is_floating(t); }

struct Sample {
  Op op{};
  std::vector<SampleInput> inputs{};
  /// All results, as users call the operator. An operator that only writes in place writes a copy.
  Tensors (*call)(const Tensors& inputs) = nullptr;
  void (*in_place)(const Tensors& inputs) = nullptr;  ///< writes inputs[0]
  void (*out)(const Tensors& results, const Tensors& inputs) = nullptr;
  bool (*accepts)(DType) = any_dtype;  ///< dtypes of the values; others throw DTypeError
  /// What is true of the results whatever the numbers drawn. Such results are not compared across dtypes.
  bool (*holds)(const std::vector<double>& result) = nullptr;
  unsigned leading = 0;    ///< bit k: the first size of input k may be 0, together with the others'
  bool any_rank = false;   ///< all inputs may have the same sizes of any rank
  bool by_memory = false;  ///< the layout of the input decides what it means, or whether it is accepted
  bool internal = false;   ///< only rules call it, with operands that are already checked
  double step = 1e-6;      ///< of central differences
};

/// The samples, a list a family. A row may have several.
std::span<const Sample> view_samples();
std::span<const Sample> indexing_samples();
std::span<const Sample> reduction_samples();
std::span<const Sample> product_samples();
std::span<const Sample> quantize_samples();

/// The samples of a row.
std::vector<const Sample*> samples_of(Op op);
/// The rows that have samples: all but pointwise ones and lists, which have tests of their own.
std::vector<int> sampled_rows();

/// The operands in a dtype and a layout: distinct values of small magnitude, exact in every dtype.
Tensors make_inputs(const Sample& sample, DType dtype, Memory memory = Memory::contiguous);
/// The same values in f64, row-major; positions stay what they are.
Tensors in_f64(const Tensors& inputs);
/// The sample with a first size of 0 where that may be, or with operands of `rank` dimensions of size 2.
Sample without_rows(const Sample& sample);
Sample with_rank(const Sample& sample, int rank);

/// The elements of the first result of the first sample of a row, computed without operators from f64 operands; none
/// when that is not known for the row.
std::optional<std::vector<double>> oracle(const Sample& first, const Tensors& inputs);

/// A generator at the beginning of a fixed sequence.
Generator& fresh_generator();

}  // namespace lorry::test
