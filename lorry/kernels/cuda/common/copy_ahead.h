#pragma once

// Copies of 16 or 4 bytes from device memory to shared memory that go on while the thread does other things (PTX ISA,
// "cp.async"). Before compute capability 8.0 they are over when they return.

#include <cstdint>

namespace lorry::kernels::cuda {

#ifdef __CUDACC__
/// Starts a copy, or fills the 16 bytes with zeros. The thread that called it may read them after wait_for_copies.
__device__ __forceinline__ void start_copy(void* to, const void* from, bool valid = true) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(__cvta_generic_to_global(from)), "r"(valid ? 16 : 0)
      : "memory");
#else
  *static_cast<uint4*>(to) = valid ? *static_cast<const uint4*>(from) : uint4{};
#endif
}

/// The same for 4 bytes; both addresses are multiples of 4.
__device__ __forceinline__ void start_copy_of_word(void* to, const void* from, bool valid = true) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(__cvta_generic_to_global(from)), "r"(valid ? 4 : 0)
      : "memory");
#else
  *static_cast<uint32_t*>(to) = valid ? *static_cast<const uint32_t*>(from) : 0;
#endif
}

/// Ends a group of copies.
__device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Waits for this thread's copies; with kLater > 0, for all but those of the last kLater groups.
template <int kLater = 0>
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  if constexpr (kLater == 0)
    asm volatile("cp.async.wait_all;" ::: "memory");
  else
    asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
#endif
}
#endif

}  // namespace lorry::kernels::cuda
