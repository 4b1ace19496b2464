#pragma once

// A fused call as the source of a CUDA kernel. The source says which formulas follow each other, in which types, and
// how operands lie along the innermost dimension. Sizes, strides, addresses and numbers are arguments: calls that
// differ in these alone have the same source. It includes nothing but formulas and map_kernel.h.

#include <string>
#include <vector>

#include "lorry/kernels/common/walk.h"

namespace lorry::kernels::cuda {

/// Threads of a block.
inline constexpr int kMapBlock = 256;

struct EmittedMap {
  std::string name;    ///< of the kernel
  std::string source;  ///< whole
  int width = 1;       ///< elements of a group
  int groups = 1;      ///< that a thread takes
  bool wide = false;   ///< positions need 64 bits

  /// Input `input` of the call, a number, as the kernel reads it: f32, f64 or i64.
  struct Number {
    size_t input;
    DType as;
  };
  std::vector<Number> numbers;
  std::vector<size_t> inputs;  ///< those in memory: operands 0, 1, ... of the kernel; the outputs follow
};

EmittedMap emit_map(const MapCall& call, const Walk& walk);

}  // namespace lorry::kernels::cuda
