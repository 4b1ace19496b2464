#pragma once

#include "lorry/kernels/attention.h"

namespace lorry::kernels::cuda {

/// Kernels of our own, for every case of the contract.
void builtin_attention_forward(const AttentionArgs& args, Stream stream);
void builtin_attention_backward(const AttentionArgs& args, const AttentionGrads& grads, Stream stream);

/// Whether cuDNN's fused attention is asked for the call (grads null: forward): f16 or bf16, no mask, no dropout, one
/// width of at most 128, starts and strides of 16 bytes. The lengths are multiples of 64: a plan belongs to its lengths
/// and takes longer to make than a built-in kernel to run, so lengths that come one at a time, as while a text is
/// generated, are not worth one. Nothing but the call decides, never what was called before, so that a resumed run
/// gives the same bits.
bool suits_cudnn(const AttentionArgs& args, const AttentionGrads* grads = nullptr);
/// Into how many equal parts of the batch the backward pass is cut. cuDNN's deterministic one on Hopper stores the
/// weights' gradient, 2 bytes for each query and key; 0 when a single batch entry would take more than 512 MiB, and the
/// built-in kernels are the better ones.
int64_t cudnn_backward_parts(const AttentionArgs& args);

/// By cuDNN: deterministic, with the logsumexp of the contract. False, with nothing done and the reason in an event,
/// when the library cannot be opened or has no plan for the call. Throws CudaError for what fails beyond that.
bool cudnn_attention(const AttentionArgs& args, const AttentionGrads* grads, Stream stream);

}  // namespace lorry::kernels::cuda
