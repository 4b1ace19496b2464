#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lorry/kernels/cpu/fused/addresses.h"
#include "lorry/kernels/cpu/fused/chain.h"

namespace lorry::kernels::cpu {

/// What every run of a call by blocks has in common.
struct BlockPlan {
  explicit BlockPlan(const MapCall& call, const Walk& walk);

  std::vector<bool> contiguous;  ///< operands of the iteration that are one run of memory over the whole of it
  std::vector<int> buffer;       ///< of each register: the buffer that holds it, once no other needs it
  int buffers = 0;
};

/// Pointwise steps over a domain: as threaded code where that can be, else block by block.
class MapKernel final : public FusedKernel {
 public:
  explicit MapKernel(MapCall call);
  bool run(std::span<void* const> inputs, std::span<void* const> outputs, Stream stream) const override;
  /// The same on the calling thread alone.
  void run_here(std::span<void* const> inputs, std::span<void* const> outputs) const;

 private:
  const MapCall call_;
  const Walk walk_;
  int64_t elements_;
  std::optional<Chain> chain_;
  std::optional<BlockPlan> blocks_;
};

}  // namespace lorry::kernels::cpu
