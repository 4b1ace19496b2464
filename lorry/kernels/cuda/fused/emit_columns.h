#pragma once

// Generates the source of a CUDA kernel for a fused call with sums (FusedCall::sums). Like emit.h, but a thread keeps
// its columns and goes down the rows, so that it can add up results (column_kernel.h).

#include <string>
#include <vector>

#include "lorry/kernels/cuda/fused/emit.h"

namespace lorry::kernels::cuda {

/// How the domain [rows, n] is split among blocks; it depends only on the shape.
struct ColumnTiling {
  int64_t rows = 0, n = 0;
  int lane_bits = 0;       ///< 2^lane_bits threads of a block beside each other
  int64_t tiles = 1;       ///< of columns
  int64_t parts = 1;       ///< of rows
  int64_t part_cells = 0;  ///< sums of a part
  unsigned blocks() const { return static_cast<unsigned>(tiles * parts); }
};

struct EmittedColumns {
  std::string name;    ///< of the kernel
  std::string source;  ///< complete
  int width = 1;       ///< columns of a thread
  ColumnTiling tiling;
  std::vector<MapNumber> numbers;
  std::vector<size_t> inputs;  ///< inputs in memory; they are operands 0, 1, ... of the kernel
};

/// The call must have sums.
EmittedColumns emit_columns(const MapCall& call);

}  // namespace lorry::kernels::cuda
