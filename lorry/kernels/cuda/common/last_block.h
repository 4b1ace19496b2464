#pragma once

// How a block finds out that it is the last one of a launch to finish. The counters are those of tickets.h. Kernels
// that are generated at run time include this header too.

#include <cstdint>

namespace lorry::kernels::cuda {

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
