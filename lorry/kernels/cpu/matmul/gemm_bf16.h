#pragma once

#include "lorry/kernels/cpu/matmul/gemm.h"

namespace lorry::kernels::cpu::onednn {

/// The product by oneDNN's bf16 instructions (AVX512_BF16 or AMX) with sums in f32. False, with C untouched, when this
/// machine has none, when alpha is not 1 or beta not 0, or when oneDNN does not take the product.
bool gemm_bf16(const Gemm<BFloat16, float>& g);

}  // namespace lorry::kernels::cpu::onednn
