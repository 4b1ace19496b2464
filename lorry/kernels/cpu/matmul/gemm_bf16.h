#pragma once

#include "lorry/kernels/cpu/matmul/gemm.h"

namespace lorry::kernels::cpu::onednn {

/// Computes the product with oneDNN's bf16 instructions (AVX512_BF16 or AMX), summed in f32. Returns false, with C
/// unchanged, if this machine has none, if alpha is not 1 or beta not 0, or if oneDNN does not support the product.
bool gemm_bf16(const Gemm<BFloat16, float>& g);

}  // namespace lorry::kernels::cpu::onednn
