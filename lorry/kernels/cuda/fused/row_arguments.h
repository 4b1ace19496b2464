#pragma once

// The argument of a generated kernel over rows as the host writes it: RowArguments (row_kernel.h), whose size depends
// on the call.

#include <array>
#include <span>
#include <vector>

#include "lorry/kernels/cuda/fused/argument.h"
#include "lorry/kernels/cuda/fused/emit_rows.h"

namespace lorry::kernels::cuda {

class RowArgument {
 public:
  RowArgument(const RowCall& call, const EmittedRows& emitted);

  using Words = std::array<uint64_t, 320>;
  /// That of a run. inputs, outputs: of the first element of each operand of the call; numbers have none. False: they
  /// are not aligned.
  bool write(Words& to, std::span<void* const> inputs, std::span<void* const> outputs) const;
  lorry::cuda::ParameterType type() const { return argument_type(words_.size()); }

 private:
  std::vector<uint64_t> words_;
  std::vector<size_t> inputs_;
  std::vector<uint64_t> access_masks_;
};

}  // namespace lorry::kernels::cuda
