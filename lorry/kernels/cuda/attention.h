#pragma once

#include "lorry/kernels/attention.h"

namespace lorry::kernels::cuda {

/// Kernels of our own, for every case of the contract.
void plain_attention_forward(const AttentionArgs& args, Stream stream);
void plain_attention_backward(const AttentionArgs& args, const AttentionGrads& grads, Stream stream);

}  // namespace lorry::kernels::cuda
