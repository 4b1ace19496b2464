// Chooses the attention kernels: cuDNN's where they are faster, otherwise Lorry's own.

#include "lorry/kernels/cuda/attention/attention.h"

#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

/// Whether addresses and strides are multiples of 16 bytes, no dimension is repeated, and offsets fit 31 bits.
bool rows_suit(const Array& x) {
  constexpr int64_t kRun = 8;
  if (reinterpret_cast<uintptr_t>(x.data) % 16 != 0 || x.numel() == 0 || x.layout.extent() > INT32_MAX) return false;
  for (int i = 0; i < 3; ++i)
    if (x.size(i) > 1 && (x.stride(i) <= 0 || x.stride(i) % kRun != 0)) return false;
  return true;
}

#ifdef LORRY_WITH_WARPGROUPS
/// Whether the warpgroups' kernels are faster than cuDNN's, measured on an H200. cuDNN's deterministic backward pass
/// stores the gradient of the weights: the more keys, the longer that takes.
bool prefers_warpgroups(const AttentionArgs& args, bool gradients) {
  const int64_t s = args.k.size(2);
  return args.q.size(3) <= 64 && (gradients ? s > 256 : args.causal && s >= 512 && s <= 4096);
}
#endif

void forward(const AttentionArgs& args, Stream stream) {
#ifdef LORRY_WITH_WARPGROUPS
  if (prefers_warpgroups(args, false) && warpgroup_attention_forward(args, stream)) return;
#endif
#ifdef LORRY_WITH_CUDNN
  if (suits_cudnn(args) && cudnn_attention(args, nullptr, stream)) return;
#endif
#ifdef LORRY_WITH_WARPGROUPS
  if (warpgroup_attention_forward(args, stream)) return;
#endif
  if (!tensor_attention_forward(args, stream)) fma_attention_forward(args, stream);
}

void backward(const AttentionArgs& args, const AttentionGrads& grads, Stream stream) {
#ifdef LORRY_WITH_WARPGROUPS
  if (prefers_warpgroups(args, true) && warpgroup_attention_backward(args, grads, stream)) return;
#endif
#ifdef LORRY_WITH_CUDNN
  if (suits_cudnn(args, &grads) && cudnn_attention(args, &grads, stream)) return;
#endif
#ifdef LORRY_WITH_WARPGROUPS
  if (warpgroup_attention_backward(args, grads, stream)) return;
#endif
  if (!tensor_attention_backward(args, grads, stream)) fma_attention_backward(args, grads, stream);
}

}  // namespace

bool suits_cudnn(const AttentionArgs& args, const AttentionGrads* grads) {
  const int64_t t = args.q.size(2), s = args.k.size(2), d = args.q.size(3), e = args.v.size(3);
  if ((args.q.dtype != kF16 && args.q.dtype != kBF16) || args.mask.data != nullptr || args.dropout > 0) return false;
  if (d != e || d > 128 || d % 8 != 0 || t % 64 != 0 || s % 64 != 0) return false;
  for (const Array* const x : {&args.q, &args.k, &args.v, &args.out})
    if (!rows_suit(*x)) return false;
  if (grads == nullptr) return true;
  for (const Array* const x : {&grads->grad_out, &grads->grad_q, &grads->grad_k, &grads->grad_v})
    if (!rows_suit(*x)) return false;
  return cudnn_backward_parts(args) > 0;
}

int64_t cudnn_backward_parts(const AttentionArgs& args) {
  constexpr int64_t kMost = int64_t{512} << 20;
  const int64_t b = args.q.size(0), s = (args.k.size(2) + 127) / 128 * 128;
  const double entry =
      2.0 * static_cast<double>(args.q.size(1)) * static_cast<double>(args.q.size(2)) * static_cast<double>(s);
  for (int64_t parts = 1; parts <= b; ++parts)
    if (b % parts == 0 && static_cast<double>(b / parts) * entry <= kMost) return parts;
  return 0;
}

const AttentionKernels& attention_kernels() {
  static constexpr AttentionKernels kKernels{.forward = forward, .backward = backward};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
