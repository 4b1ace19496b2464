#pragma once

// Counters by which the last block of a launch knows that it is the last, without a launch or a fill of their own. A stream has its
// counters: kernels of one stream do not overlap. They are zero between kernels, because the last block sets its counter back (atomicInc
// wraps around), and a launch is all or nothing. A kernel that is captured into a graph may be replayed beside the stream's own work, so it
// is given fresh ones.

#include <cstdint>
#include <optional>

#include "lorry/kernels/cuda/scratch.h"

namespace lorry::kernels::cuda {

class Tickets {
 public:
  /// `count` counters for one launch on the stream.
  Tickets(int64_t count, Stream stream);
  uint32_t* data() const { return data_; }

 private:
  std::optional<Scratch> own_;
  uint32_t* data_;
};

#ifdef __CUDACC__
/// Whether this block is the last of `blocks` to ask. What those before it wrote to device memory can then be read. For all threads, once.
__device__ __forceinline__ bool is_last_block(uint32_t* ticket, uint32_t blocks) {
  __threadfence();
  __syncthreads();
  const bool last = __syncthreads_or(threadIdx.x == 0 && atomicInc(ticket, blocks - 1) == blocks - 1);
  __threadfence();
  return last;
}
#endif

}  // namespace lorry::kernels::cuda
