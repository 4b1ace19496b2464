#pragma once

// Writes the argument of a generated kernel with sums: the bytes of ColumnArguments (column_kernel.h), whose size
// depends on the call.

#include <span>
#include <vector>

#include "lorry/kernels/cuda/fused/argument.h"
#include "lorry/kernels/cuda/fused/emit_columns.h"

namespace lorry::kernels::cuda {

class ColumnArgument {
 public:
  ColumnArgument(const MapCall& call, const EmittedColumns& emitted);

  /// Writes the argument of a run. inputs, outputs: as for FusedKernel::run. cells: memory for parts * part_cells f64
  /// for each sum; tickets: one for each tile; both null if there is one part. Returns false if an address is not
  /// aligned.
  bool write(ArgumentWords& to, std::span<void* const> inputs, std::span<void* const> outputs, void* cells,
             void* tickets) const;
  lorry::cuda::ParameterType type() const { return argument_type(words_.size()); }

 private:
  std::vector<uint64_t> words_;
  std::vector<size_t> inputs_;
  std::vector<uint64_t> access_masks_;  ///< of inputs, outputs and sums: the address bits that must be 0
};

}  // namespace lorry::kernels::cuda
