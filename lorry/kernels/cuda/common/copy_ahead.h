#pragma once

// Copies of 16, 8 or 4 bytes from device memory to shared memory that go on while the thread does other things (PTX
// ISA, "cp.async"). Before compute capability 8.0 they are over when they return.

#include <cstdint>

namespace lorry::kernels::cuda {

#ifdef __CUDACC__
/// Starts a copy of 16, 8 or 4 bytes, of which those from `valid` on become zeros; both addresses are multiples of
/// kBytes. The thread that called it may read them after wait_for_copies.
template <int kBytes = 16>
__device__ __forceinline__ void start_copy(void* to, const void* from, int valid = kBytes) {
#if __CUDA_ARCH__ >= 800
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const auto device = __cvta_generic_to_global(from);
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(device), "r"(valid) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(device), "n"(kBytes), "r"(valid)
                 : "memory");
#else
  for (int n = 0; n < kBytes; ++n)
    static_cast<unsigned char*>(to)[n] = n < valid ? static_cast<const unsigned char*>(from)[n] : 0;
#endif
}
template <int kBytes = 16>
void start_copy(void* to, const void* from, bool valid) = delete;  // valid is a number of bytes

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
