#pragma once

// A copy from global into shared memory that the memory system makes while the threads do something else (PTX ISA,
// cp.async.bulk). Needs compute capability 9.0.

#include <cstdint>

namespace lorry::kernels::cuda {

constexpr int kBulkCapability = 90;  ///< the least compute capability, 10 * major + minor

#ifdef __CUDACC__
/// One copy of a block. An object of this type must be in shared memory. Compiled for older devices it does nothing.
class BulkCopy {
 public:
  /// Starts the copy of `bytes`, a multiple of 16, between addresses that are multiples of 16. One thread calls this.
  /// The others may call wait() only after a barrier.
  __device__ void start(void* to, const void* from, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    const uint32_t barrier = address(&barrier_);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address(to)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
        : "memory");
#endif
  }
  /// Returns when the bytes are there.
  __device__ void wait() {
#if __CUDA_ARCH__ >= 900
    uint32_t done = 0;
    while (done == 0)
      asm volatile(
          "{\n"
          "  .reg .pred p;\n"
          "  mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
          "  selp.u32 %0, 1, 0, p;\n"
          "}"
          : "=r"(done)
          : "r"(address(&barrier_))
          : "memory");
#endif
  }

 private:
  static __device__ uint32_t address(const void* shared) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  }
  uint64_t barrier_;
};
#endif

}  // namespace lorry::kernels::cuda
