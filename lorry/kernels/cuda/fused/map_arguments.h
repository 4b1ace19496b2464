#pragma once

// The argument of a generated map kernel as the host writes it: MapArguments (map_kernel.h), whose size depends on the
// call.

#include <array>
#include <span>
#include <vector>

#include "lorry/kernels/cuda/fused/argument.h"
#include "lorry/kernels/cuda/fused/emit.h"

namespace lorry::kernels::cuda {

class MapArgument {
 public:
  /// The call has elements.
  MapArgument(const MapCall& call, const Walk& walk, const EmittedMap& emitted);

  /// More than any call has.
  using Words = std::array<uint64_t, 320>;
  /// That of a run. inputs, outputs: of the first element of each operand of the call; numbers have none.
  void write(Words& to, std::span<void* const> inputs, std::span<void* const> outputs) const;
  lorry::cuda::ParameterType type() const { return argument_type(words_.size()); }
  unsigned blocks() const { return blocks_; }

 private:
  enum Word : size_t { elements, vectors, operands, first_address };

  std::vector<uint64_t> words_;
  std::vector<size_t> inputs_;          ///< of the call that lie in memory
  std::vector<uint64_t> access_masks_;  ///< of each operand: the address bits that are 0 where its groups are aligned
  bool vectors_ = true;                 ///< groups of several elements are aligned where the addresses are
  unsigned blocks_ = 0;
};

}  // namespace lorry::kernels::cuda
