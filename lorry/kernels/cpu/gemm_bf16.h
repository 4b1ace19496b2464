#pragma once

#include "lorry/kernels/cpu/gemm.h"

namespace lorry::kernels::cpu::onednn {

/// The product by oneDNN's bf16 instructions (AVX512_BF16 or AMX) with sums in f32. False when this machine has none, or
/// oneDNN does not take the product; C is untouched then.
bool gemm_bf16(const Gemm<BFloat16, float>& g);

}  // namespace lorry::kernels::cpu::onednn
