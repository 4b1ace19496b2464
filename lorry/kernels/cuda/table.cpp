#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {

const Backend& table() {
  static const Backend kTable{
      .attention = &attention_kernels(),
      .copy = &copy_kernels(),
      .creation = &creation_kernels(),
      .foreach = &foreach_kernels(),
      .fused = &fused_kernels(),
      .indexing = &indexing_kernels(),
      .list_norm = &list_norm_kernels(),
      .loss = &loss_kernels(),
      .matmul = &matmul_kernels(),
      .norm = &norm_kernels(),
      .optim = &optim_kernels(),
      .paged = &paged_kernels(),
      .pointwise = &pointwise_kernels(),
      .quantize = &quantize_kernels(),
      .random = &random_kernels(),
      .reduce = &reduce_kernels(),
      .rotary = &rotary_kernels(),
      .softmax = &softmax_kernels(),
      .sort = &sort_kernels(),
      .tokens = &token_kernels(),
  };
  return kTable;
}

}  // namespace lorry::kernels::cuda
