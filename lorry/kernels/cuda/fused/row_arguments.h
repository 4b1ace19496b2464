#pragma once

// Writes the argument of a generated kernel over rows: the bytes of RowArguments (row_kernel.h), whose size depends on
// the call.

#include <span>
#include <vector>

#include "lorry/kernels/cuda/fused/argument.h"
#include "lorry/kernels/cuda/fused/emit_rows.h"

namespace lorry::kernels::cuda {

class RowArgument {
 public:
  RowArgument(const RowCall& call, const EmittedRows& emitted);

  /// Writes the argument of a run. inputs, outputs: the address of the first element of each operand of the call; those
  /// of numbers are ignored. Returns false if an address is not aligned.
  bool write(ArgumentWords& to, std::span<void* const> inputs, std::span<void* const> outputs) const;
  lorry::cuda::ParameterType type() const { return argument_type(words_.size()); }

 private:
  std::vector<uint64_t> words_;
  std::vector<size_t> inputs_;
  std::vector<uint64_t> access_masks_;
};

}  // namespace lorry::kernels::cuda
