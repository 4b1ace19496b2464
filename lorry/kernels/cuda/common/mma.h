#pragma once

// Products of small tiles on tensor cores, and their operands. In the tiles of a warp, lane 4 g + t has these elements:
// of a[16, 16] rows g and g + 8, columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9; of b[16, 8] the same rows of column g; of
// sums[16, 8] rows g and g + 8, columns 2 t and 2 t + 1. With tf32, of a[16, 8] rows g and g + 8, columns t and t + 4;
// of b[8, 8] the same rows of column g. (PTX ISA, "Matrix fragments for mma.m16n8k16" and "mma.m16n8k8".)

#include <cstdint>
#include <type_traits>

#include "lorry/kernels/cuda/common/element.h"

namespace lorry::kernels::cuda {

#ifdef __CUDACC__

/// sums[16, 8] += a[16, 16] b[16, 8], of 16-bit floats.
template <class T>
__device__ __forceinline__ void multiply_add(float& s0, float& s1, float& s2, float& s3, uint32_t a0, uint32_t a1,
                                             uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, BFloat16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(s0), "+f"(s1), "+f"(s2), "+f"(s3)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(s0), "+f"(s1), "+f"(s2), "+f"(s3)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
  __trap();
#endif
}

/// sums[16, 8] += a[16, 8] b[8, 8], of the first 19 bits of f32.
__device__ __forceinline__ void multiply_add_tf32(float& s0, float& s1, float& s2, float& s3, const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(s0), "+f"(s1), "+f"(s2), "+f"(s3)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();
#endif
}

// An f32 is split into two tf32: its first 11 digits, and the first 11 of what is left. Three products of such numbers,
// all but low * low, have the precision of f32 to about 2^-21, if the first digits of one factor are rounded: the error
// of low * low then has either sign. An infinity leaves a NaN: where high * high is infinite, it is the product.

__device__ __forceinline__ void split_cut(float x, uint32_t& high, uint32_t& low) {
  high = __float_as_uint(x);  // tensor cores read the first digits only
  low = __float_as_uint(x - __uint_as_float(high & 0xffffe000u));
}
/// Numbers beyond 3.402e38 become infinite.
__device__ __forceinline__ void split_rounded(float x, uint32_t& high, uint32_t& low) {
#if __CUDA_ARCH__ >= 800
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(high) : "f"(x));
#else
  high = __float_as_uint(x);
#endif
  low = __float_as_uint(x - __uint_as_float(high));
}

/// Four 8 x 8 tiles of 16-bit elements in shared memory; lane l gives the address of row l % 8 of tile l / 8, 16 bytes.
/// Lane 4 g + t gets columns 2 t and 2 t + 1 of row g of each tile; kTransposed: rows 2 t and 2 t + 1 of column g.
template <bool kTransposed>
__device__ __forceinline__ void load_tiles(uint32_t (&to)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

#endif  // __CUDACC__

}  // namespace lorry::kernels::cuda
