#include "lorry/kernels/cuda/attention.h"

#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {

const AttentionKernels& attention_kernels() {
  static constexpr AttentionKernels kKernels{.forward = plain_attention_forward, .backward = plain_attention_backward};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
