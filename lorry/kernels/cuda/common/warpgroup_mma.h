#pragma once

// Products of tiles on the tensor cores of compute capability 9.0 (PTX ISA, "Asynchronous warpgroup level matrix
// multiply-accumulate"): sums[64, 64] += a[64, 16] b[16, 64] of 16-bit floats. Four warps compute together: the first
// of them must be a multiple of four. Warp w has rows 16 w to 16 w + 15, with the elements of a lane as in mma.h. Only
// code for sm_90a has these instructions.
//
// In shared memory, operands are tiles of 64 rows and 64 columns. The 16 bytes c of row r are at position c ^ (r % 8)
// of the row's 128 bytes ("128-byte swizzle"), so that eight rows of one column are in different banks. A tile begins
// at a multiple of 1,024 bytes.

#include <cstdint>
#include <type_traits>

#include "lorry/kernels/cuda/common/element.h"

namespace lorry::kernels::cuda {

#ifdef __CUDACC__

/// A thread's elements of sums[64, 64]: rows g and g + 8 of its warp; c: column c / 2 * 8 + 2 t + c % 2.
using WarpgroupSums = float[2][16];

/// The position of 8 elements, columns from 8 `chunk` on, in a tile of 64 x 64.
__device__ __forceinline__ int swizzled(int row, int chunk) { return row * 64 + ((chunk ^ (row % 8)) * 8); }

/// An operand in shared memory, as products get it: groups of eight rows, 1,024 bytes apart.
class WarpgroupOperand {
 public:
  /// tile: its first element.
  __device__ __forceinline__ explicit WarpgroupOperand(const void* tile)
      : low_((static_cast<uint32_t>(__cvta_generic_to_shared(tile)) & 0x3ffff) >> 4) {}
  /// The operand that begins so many bytes further, a multiple of 16.
  __device__ __forceinline__ WarpgroupOperand after(int bytes) const { return WarpgroupOperand(low_ + bytes / 16); }
  __device__ __forceinline__ uint64_t descriptor() const {
    constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kGroup = uint64_t{1024 >> 4} << 32, kUnused = uint64_t{1} << 16;
    return (kSwizzle128 | kGroup | kUnused) + low_;
  }

 private:
  __device__ __forceinline__ explicit WarpgroupOperand(uint32_t low) : low_(low) {}
  uint32_t low_;
};

/// Makes the thread's writes to shared memory visible to products, of all threads that pass a barrier after it.
__device__ __forceinline__ void fence_operands() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Keeps the compiler from moving uses of registers over a begin or a wait.
template <int kRows, int kColumns>
__device__ __forceinline__ void pin(float (&x)[kRows][kColumns]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) asm volatile("" : "+f"(x[r][c])::"memory");
}

template <int kRows, int kColumns>
__device__ __forceinline__ void pin(uint32_t (&x)[kRows][kColumns]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) asm volatile("" : "+r"(x[r][c])::"memory");
}

// Products run from their start until a wait. Meanwhile nothing else may write registers of sums that products add to,
// those that are yet to start before the wait included: else the assembler waits after each product, and says so
// (C7515).

/// Before the first of several products. registers: the left operands that they have in registers, and all sums that
/// they, and later products before the next wait, add to.
template <class... Registers>
__device__ __forceinline__ void begin_products(Registers&... registers) {
  (pin(registers), ...);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
/// After the last of them.
__device__ __forceinline__ void commit_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/// Waits for the products of these sums: for all but those of the last kLater commits.
template <int kLater, class... Sums>
__device__ __forceinline__ void wait_for_products(Sums&... sums) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLater) : "memory");
#endif
  (pin(sums), ...);
}

#define LORRY_FOUR_SUMS(how, c) how(s[0][c]), how(s[0][c + 1]), how(s[1][c]), how(s[1][c + 1])
#define LORRY_SUMS(how)                                                                               \
  LORRY_FOUR_SUMS(how, 0), LORRY_FOUR_SUMS(how, 2), LORRY_FOUR_SUMS(how, 4), LORRY_FOUR_SUMS(how, 6), \
      LORRY_FOUR_SUMS(how, 8), LORRY_FOUR_SUMS(how, 10), LORRY_FOUR_SUMS(how, 12), LORRY_FOUR_SUMS(how, 14)
// adds: of the predicate p, whether the product is added to the sums.
#define LORRY_WGMMA(adds, type)                                              \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " adds                                   \
  ", 0;\n"                                                                   \
  "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                \
  " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "

/// Starts s = a b^T (kAdds: s += a b^T). a and b: from the first of 16 columns of a tile on.
template <class T, bool kAdds>
__device__ __forceinline__ void start_product(WarpgroupSums& s, WarpgroupOperand a, WarpgroupOperand b) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const uint64_t left = a.descriptor(), right = b.descriptor();
  if constexpr (kAdds && std::is_same_v<T, BFloat16>)
    asm volatile(LORRY_WGMMA("1", "bf16") "%32, %33, p, 1, 1, 0, 0;\n}" : LORRY_SUMS("+f") : "l"(left), "l"(right));
  else if constexpr (kAdds)
    asm volatile(LORRY_WGMMA("1", "f16") "%32, %33, p, 1, 1, 0, 0;\n}" : LORRY_SUMS("+f") : "l"(left), "l"(right));
  else if constexpr (std::is_same_v<T, BFloat16>)
    asm volatile(LORRY_WGMMA("0", "bf16") "%32, %33, p, 1, 1, 0, 0;\n}" : LORRY_SUMS("=f") : "l"(left), "l"(right));
  else
    asm volatile(LORRY_WGMMA("0", "f16") "%32, %33, p, 1, 1, 0, 0;\n}" : LORRY_SUMS("=f") : "l"(left), "l"(right));
#else
  __trap();
#endif
}

/// Starts s += a b. a: the fragment of the thread, as in mma.h; b: from the first of 16 rows of a tile on.
template <class T>
__device__ __forceinline__ void start_product(WarpgroupSums& s, const uint32_t (&a)[4], WarpgroupOperand b) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const uint64_t right = b.descriptor();
  if constexpr (std::is_same_v<T, BFloat16>)
    asm volatile(LORRY_WGMMA("1", "bf16") "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"
                 : LORRY_SUMS("+f")
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right));
  else
    asm volatile(LORRY_WGMMA("1", "f16") "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"
                 : LORRY_SUMS("+f")
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right));
#else
  __trap();
#endif
}

#undef LORRY_WGMMA
#undef LORRY_SUMS
#undef LORRY_FOUR_SUMS

#endif  // __CUDACC__

}  // namespace lorry::kernels::cuda
