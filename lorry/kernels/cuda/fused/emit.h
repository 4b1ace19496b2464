#pragma once

// Generates the source of a CUDA kernel for a fused call. The source contains the formulas in order, their types, and
// how operands run along the innermost dimension. Sizes, strides, addresses and numbers are arguments, so calls that
// differ only in these have the same source. It includes only formulas and map_kernel.h.

#include <string>
#include <vector>

#include "lorry/kernels/common/walk.h"

namespace lorry::kernels::cuda {

/// Threads of a block.
inline constexpr int kMapBlock = 256;

/// A number that a kernel reads: input `input` of the call, as f32, f64 or i64.
struct MapNumber {
  size_t input;
  DType as;
};
/// The text of the steps of a call, in which register k is rk. The numbers that it reads are added to `numbers`.
std::string steps_text(const MapCall& call, std::vector<MapNumber>& numbers);

struct EmittedMap {
  std::string name;    ///< of the kernel
  std::string source;  ///< complete
  int width = 1;       ///< elements per group
  int groups = 1;      ///< per thread
  bool wide = false;   ///< positions need 64 bits

  std::vector<MapNumber> numbers;
  std::vector<size_t> inputs;  ///< inputs in memory; they are operands 0, 1, ... of the kernel, followed by the outputs
};

EmittedMap emit_map(const MapCall& call, const Walk& walk);

}  // namespace lorry::kernels::cuda
