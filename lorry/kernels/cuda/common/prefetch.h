#pragma once

namespace lorry::kernels::cuda {

#ifdef __CUDACC__
/// Begins to bring a line of 128 bytes to the second-level cache. Unlike loads, that may happen while an earlier kernel
/// still writes it.
__device__ __forceinline__ void prefetch_line(const void* line) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(line)));
}
#endif

}  // namespace lorry::kernels::cuda
