// Compiled once for each instruction set: LORRY_SIMD. The loops are plain, so that the compiler vectorises them. Sums
// are unsigned, so that they wrap.

#include <type_traits>

#include "lorry/kernels/cpu/matmul/gemm_int8.h"

namespace lorry::kernels::cpu::LORRY_SIMD {
namespace {

/// The columns of b are contiguous, and so are the rows of a: every element of c is a sum of its own.
void by_sums(const Gemm<int8_t, int32_t>& g) {
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j) {
      const int8_t* __restrict a = g.a + i * g.a_row;
      const int8_t* __restrict b = g.b + j * g.b_col;
      uint32_t sum = 0;
      for (int64_t p = 0; p < g.k; ++p)
        sum += static_cast<uint32_t>(static_cast<int16_t>(a[p]) * static_cast<int16_t>(b[p]));
      g.c[i * g.c_row + j] = static_cast<int32_t>(sum);
    }
}

/// Any strides: rows of b, scaled, are added to a row of c.
template <bool kUnit>
void by_rows(const Gemm<int8_t, int32_t>& g) {
  for (int64_t i = 0; i < g.m; ++i) {
    int32_t* __restrict c = g.c + i * g.c_row;
    for (int64_t j = 0; j < g.n; ++j) c[j] = 0;
    for (int64_t p = 0; p < g.k; ++p) {
      const int32_t scale = g.a[i * g.a_row + p * g.a_col];
      const int8_t* __restrict b = g.b + p * g.b_row;
      for (int64_t j = 0; j < g.n; ++j)
        c[j] = static_cast<int32_t>(static_cast<uint32_t>(c[j]) +
                                    static_cast<uint32_t>(scale * b[kUnit ? j : j * g.b_col]));
    }
  }
}

void gemm(const Gemm<int8_t, int32_t>& g) {
  if (g.a_col == 1 && g.b_row == 1) return by_sums(g);
  g.b_col == 1 ? by_rows<true>(g) : by_rows<false>(g);
}

}  // namespace

void fill_int8_loops(Int8Loops& loops) { loops.gemm = gemm; }

}  // namespace lorry::kernels::cpu::LORRY_SIMD
