#pragma once

// A copy from global into shared memory that the memory system makes while the threads do something else (PTX ISA,
// cp.async.bulk). Needs compute capability 9.0.

#include <cstdint>

namespace lorry::kernels::cuda {

constexpr int kBulkCapability = 90;  ///< the least compute capability, 10 * major + minor

#ifdef __CUDACC__
/// The copies of a block: the parts of one stretch of memory, which arrive one after the other. An object of this type
/// must be in shared memory. Compiled for older devices it does nothing.
template <int kMostParts>
class BulkCopy {
 public:
  /// Starts copies of parts of `part` bytes each, the last one perhaps shorter, of `bytes` in all. Everything is a
  /// multiple of 16, the addresses too. One thread calls this. The others may call wait() only after a barrier.
  __device__ void start(void* to, const void* from, uint32_t bytes, uint32_t part) {
#if __CUDA_ARCH__ >= 900
    const uint32_t parts = (bytes + part - 1) / part;
    for (uint32_t k = 0; k < parts; ++k)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(barriers_ + k)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    for (uint32_t k = 0; k < parts; ++k) {
      const uint32_t barrier = address(barriers_ + k), size = min(part, bytes - k * part);
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(size) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       address(to) + k * part),
                   "l"(__cvta_generic_to_global(static_cast<const char*>(from) + k * part)), "r"(size), "r"(barrier)
                   : "memory");
    }
#endif
  }
  /// Returns when part k is there.
  __device__ void wait(int k) {
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
          : "r"(address(barriers_ + k))
          : "memory");
#endif
  }

 private:
  static __device__ uint32_t address(const void* shared) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  }
  uint64_t barriers_[kMostParts];
};
#endif

}  // namespace lorry::kernels::cuda
