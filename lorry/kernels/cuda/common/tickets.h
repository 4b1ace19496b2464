#pragma once

// Counters with which a block of a launch finds out that it is the last one to finish, without another launch or fill.
// Each stream has its own counters, because kernels of one stream do not overlap. Counters are zero between kernels:
// the last block resets its counter (atomicInc wraps around), and a launch runs completely or not at all. A captured
// kernel may be replayed at the same time as the stream's other work, so it gets fresh counters.

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
/// Whether this block is the last of `blocks` to call this. If so, it can read what the other blocks wrote to device
/// memory before, bypassing the multiprocessor's cache. All threads must call it, once. One thread's fence is enough
/// for the block: the barriers before and after order the accesses of the others.
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
