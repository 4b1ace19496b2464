#pragma once

// Writes the argument of a generated pointwise kernel: the bytes of MapArguments (map_kernel.h), whose size depends on
// the call.

#include <span>
#include <vector>

#include "lorry/kernels/cuda/fused/argument.h"
#include "lorry/kernels/cuda/fused/emit.h"

namespace lorry::kernels::cuda {

class MapArgument {
 public:
  /// The call must have elements.
  MapArgument(const MapCall& call, const Walk& walk, const EmittedMap& emitted);

  /// Writes the argument of a run. inputs, outputs: the address of the first element of each operand of the call; those
  /// of numbers are ignored.
  void write(ArgumentWords& to, std::span<void* const> inputs, std::span<void* const> outputs) const;
  lorry::cuda::ParameterType type() const { return argument_type(words_.size()); }
  unsigned blocks() const { return blocks_; }

 private:
  enum Word : size_t { elements, vectors, operands, first_address };

  std::vector<uint64_t> words_;
  std::vector<size_t> inputs_;          ///< the inputs of the call that are in memory
  std::vector<uint64_t> access_masks_;  ///< per operand: the address bits that must be 0 for aligned vector access
  bool vectors_ = true;                 ///< whether vector access is aligned if the addresses are
  unsigned blocks_ = 0;
};

}  // namespace lorry::kernels::cuda
