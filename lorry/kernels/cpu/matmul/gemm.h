#pragma once

// Matrix products of one tile on one thread, used by matmul and attention. `gemm` has two implementations: oneDNN for
// f32 and bf16, if the build has it, and this library's packed kernel for all types.

#include <cstdint>

#include "lorry/layout/dtype_enum.h"

namespace lorry::kernels::cpu {

/// C = alpha * A B + beta * C, with A m x k and B k x n of type S, and C m x n of type T in rows of unit stride.
/// Each of A and B has one unit stride. beta 0 does not read C.
template <class S, class T>
struct Gemm {
  int64_t m, n, k;
  const S* a = nullptr;
  int64_t a_row = 0, a_col = 1;
  const S* b = nullptr;
  int64_t b_row = 0, b_col = 1;
  T* c = nullptr;
  int64_t c_row = 0;
  T alpha = 1, beta = 0;
  bool in_batch = false;  ///< one of several products: a call of a library may cost more than the product
};

namespace packed {
#define LORRY_DTYPE(name, Name, text, type, dlpack, safetensors) void gemm(const Gemm<type, Accumulate<type>>& g);
#include "lorry/layout/dtypes.def"
}  // namespace packed

void gemm(const Gemm<float, float>& g);
void gemm(const Gemm<BFloat16, float>& g);
template <class S, class T>
void gemm(const Gemm<S, T>& g) {
  packed::gemm(g);
}

}  // namespace lorry::kernels::cpu
