#pragma once

// Generates the source of a CUDA kernel for a call over rows. A team of threads holds a row in registers through all
// steps. Steps over rows use the code of the operators' own kernels (rowwise/row_steps.h) with the same order of sums,
// so the bits are the same. The number of rows, their length, addresses and numbers are arguments.

#include <optional>
#include <string>
#include <vector>

#include "lorry/kernels/cuda/rowwise/rows.h"
#include "lorry/kernels/fused.h"

namespace lorry::kernels::cuda {

/// How the kernel of a step distributes rows of n elements among threads. None if the operator does not hold such rows
/// in registers or if they are not whole runs of 16 bytes; `why` says why.
std::optional<RowPlan> plan_of(const RowStep& step, DType dtype, int64_t n, std::string& why);

struct EmittedRows {
  std::string name;    ///< of the kernel
  std::string source;  ///< complete
  RowPlan plan;
  /// A number that the kernel reads: input `input` of the call; if that is -1, eps of step `step`, or 1 / n.
  struct Number {
    int input;
    int step;
    DType as;
  };
  std::vector<Number> numbers;
  std::vector<size_t> inputs;  ///< inputs in memory; they are operands 0, 1, ... of the kernel, followed by the outputs
  /// Per operand: the bits of its address that must be 0.
  std::vector<uint64_t> access_masks;
};

/// All steps of the call that are not maps must have a plan, and the same one.
EmittedRows emit_rows(const RowCall& call);

}  // namespace lorry::kernels::cuda
