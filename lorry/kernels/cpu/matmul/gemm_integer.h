#pragma once

// Integer products: plain loops over unsigned values, so that overflow is defined and wraps as in PyTorch.

#include <cstdint>
#include <type_traits>

#include "lorry/kernels/cpu/matmul/gemm.h"

namespace lorry::kernels::cpu {

template <class T>
requires std::is_integral_v<T>
void gemm(const Gemm<T, T>& g) {
  using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  const U alpha = static_cast<U>(g.alpha), beta = static_cast<U>(g.beta);
  for (int64_t i = 0; i < g.m; ++i) {
    T* const c = g.c + i * g.c_row;
    for (int64_t j = 0; j < g.n; ++j) c[j] = beta == 0 ? T(0) : static_cast<T>(beta * static_cast<U>(c[j]));
    for (int64_t p = 0; p < g.k; ++p) {
      const U scaled = alpha * static_cast<U>(g.a[i * g.a_row + p * g.a_col]);
      const T* const b = g.b + p * g.b_row;
      for (int64_t j = 0; j < g.n; ++j)
        c[j] = static_cast<T>(static_cast<U>(c[j]) + scaled * static_cast<U>(b[j * g.b_col]));
    }
  }
}

}  // namespace lorry::kernels::cpu
