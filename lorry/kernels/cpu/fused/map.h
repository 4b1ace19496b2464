#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lorry/kernels/cpu/fused/addresses.h"
#include "lorry/kernels/cpu/fused/chain.h"

namespace lorry::kernels::cpu {

/// The parts of a blockwise call that are the same for every run.
struct BlockPlan {
  explicit BlockPlan(const MapCall& call, const Walk& walk);

  std::vector<bool> contiguous;  ///< per operand of the iteration: whether it is contiguous over the whole iteration
  std::vector<int> buffer;       ///< per register: its buffer; buffers are reused
  int buffers = 0;
};

/// Pointwise steps over a domain: as threaded code if possible, else block by block.
class MapKernel final : public FusedKernel {
 public:
  explicit MapKernel(MapCall call);
  bool run(std::span<void* const> inputs, std::span<void* const> outputs, Stream stream) const override;
  /// The same on the calling thread only.
  void run_here(std::span<void* const> inputs, std::span<void* const> outputs) const;

 private:
  const MapCall call_;
  const Walk walk_;
  int64_t elements_;
  std::optional<Chain> chain_;
  std::optional<BlockPlan> blocks_;
};

}  // namespace lorry::kernels::cpu
