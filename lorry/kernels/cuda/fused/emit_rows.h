#pragma once

// A call over rows as the source of a CUDA kernel: a team of threads holds a row in registers through all steps. Each
// step over rows is that of the operator's own kernel (rowwise/row_steps.h), in the same order of sums, so that the
// bits are the same. The number of rows, their length, addresses and numbers are arguments.

#include <optional>
#include <string>
#include <vector>

#include "lorry/kernels/cuda/rowwise/rows.h"
#include "lorry/kernels/fused.h"

namespace lorry::kernels::cuda {

/// How a step over rows of n elements is dealt to threads, if its operator holds such rows in registers and they are
/// whole runs of 16 bytes. Else nullopt, for the reason `why`.
std::optional<RowPlan> plan_of(const RowStep& step, DType dtype, int64_t n, std::string& why);

struct EmittedRows {
  std::string name;    ///< of the kernel
  std::string source;  ///< whole
  RowPlan plan;
  /// Input `input` of the call, a number, as the kernel reads it; -1: eps of step `step`, or 1 / n.
  struct Number {
    int input;
    int step;
    DType as;
  };
  std::vector<Number> numbers;
  std::vector<size_t> inputs;  ///< those in memory: operands 0, 1, ... of the kernel; the outputs follow
  /// The bits of each operand's address that must be 0.
  std::vector<uint64_t> access_masks;
};

/// The steps of the call that are no maps have plans, which agree.
EmittedRows emit_rows(const RowCall& call);

}  // namespace lorry::kernels::cuda
