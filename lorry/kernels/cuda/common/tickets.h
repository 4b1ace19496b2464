#pragma once

// Counters by which the last block of a launch knows that it is the last, without a launch or a fill of their own. A
// stream has its counters: kernels of one stream do not overlap. They are zero between kernels, because the last block
// sets its counter back (atomicInc wraps around), and a launch is all or nothing. A kernel that is captured into a
// graph may be replayed beside the stream's own work, so it is given fresh ones.

#include <cstdint>
#include <optional>

#include "lorry/kernels/cuda/common/scratch.h"

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
/// Whether this block is the last of `blocks` to ask. If so, what those before it wrote to device memory can be read,
/// past the cache of the multiprocessor. For all threads, once. One thread's fence serves the block: the barriers
/// before and after order the others' accesses.
__device__ __forceinline__ bool is_last_block(uint32_t* ticket, uint32_t blocks) {
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(ticket)), "r"(blocks - 1)
                 : "memory");
    last = before == blocks - 1;
  }
  return __syncthreads_or(last);
}
#endif

}  // namespace lorry::kernels::cuda
