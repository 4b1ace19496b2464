#pragma once

#include "lorry/kernels/attention.h"

namespace lorry::kernels::cuda {

/// Lorry's own kernels. Those without tensor cores support every call that tensor_attention_* do not.
void fma_attention_forward(const AttentionArgs& args, Stream stream);
void fma_attention_backward(const AttentionArgs& args, const AttentionGrads& grads, Stream stream);
/// Returns false, having done nothing, for f64, before compute capability 8.0, and forward for f32 over few keys.
bool tensor_attention_forward(const AttentionArgs& args, Stream stream);
bool tensor_attention_backward(const AttentionArgs& args, const AttentionGrads& grads, Stream stream);
/// Returns false, having done nothing, unless operands have 16 bits and at most 128 columns, and the device has compute
/// capability 9.0.
bool warpgroup_attention_forward(const AttentionArgs& args, Stream stream);
bool warpgroup_attention_backward(const AttentionArgs& args, const AttentionGrads& grads, Stream stream);

/// Whether cuDNN's fused attention suits the call (null grads: forward; on compute capability 9.0 warpgroups compute
/// some of the calls that it suits, see attention.cpp): f16 or bf16, no mask, no dropout, one head size of at most 128,
/// addresses and strides of multiples of 16 bytes, and lengths that are multiples of 64. A plan is specific to its
/// lengths and takes longer to make than a built-in kernel takes to run, so it does not pay for lengths that occur
/// once, as in text generation. The choice depends on the call only, not on earlier calls, so that a resumed run gives
/// the same bits.
bool suits_cudnn(const AttentionArgs& args, const AttentionGrads* grads = nullptr);
/// The number of equal parts of the batch in which the backward pass runs. cuDNN's deterministic backward pass on
/// Hopper stores the gradient of the weights, 2 bytes per query and key. Returns 0 if one batch entry would need more
/// than 512 MiB; then the built-in kernels are better.
int64_t cudnn_backward_parts(const AttentionArgs& args);

/// Runs the call with cuDNN: deterministic, and with the logsumexp of the contract. Returns false, having done nothing
/// but emit an event with the reason, if the library cannot be opened or has no plan for the call. Throws CudaError for
/// other failures.
bool cudnn_attention(const AttentionArgs& args, const AttentionGrads* grads, Stream stream);

}  // namespace lorry::kernels::cuda
