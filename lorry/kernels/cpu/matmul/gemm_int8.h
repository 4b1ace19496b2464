#pragma once

// Products of i8 with sums in i32, of one tile on one thread: oneDNN's where it is exact, else this library's loops.

#include "lorry/kernels/cpu/matmul/gemm.h"

namespace lorry::kernels::cpu {

/// C = A B. Sums wrap. alpha is 1 and beta 0.
void gemm_int8(const Gemm<int8_t, int32_t>& g);

/// The loops, compiled once for each instruction set (gemm_int8_loops.cpp).
struct Int8Loops {
  void (*gemm)(const Gemm<int8_t, int32_t>& g);
};
const Int8Loops& int8_loops();

}  // namespace lorry::kernels::cpu
