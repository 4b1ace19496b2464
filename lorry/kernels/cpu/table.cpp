#include "lorry/kernels/backend.h"
#include "lorry/kernels/cpu/attention.h"
#include "lorry/kernels/cpu/lists.h"
#include "lorry/kernels/cpu/matmul.h"
#include "lorry/kernels/cpu/optim.h"
#include "lorry/kernels/cpu/pointwise.h"
#include "lorry/kernels/cpu/reductions.h"
#include "lorry/kernels/cpu/rotary.h"
#include "lorry/kernels/cpu/simd.h"

namespace lorry::kernels::cpu {

const Backend& table() {
  static const Backend kTable = [] {
    simd_level();  // before Highway chooses for this processor
    return Backend{
        .attention = &attention_kernels(),
        .copy = &copy_kernels(),
        .creation = &kCreationKernels,
        .foreach = &kForeachKernels,
        .indexing = &kIndexingKernels,
        .list_norm = &kListNormKernels,
        .loss = &loss_kernels(),
        .matmul = &matmul_kernels(),
        .norm = &norm_kernels(),
        .optim = &optim_kernels(),
        .pointwise = &pointwise_kernels(),
        .random = &kRandomKernels,
        .reduce = &reduce_kernels(),
        .rotary = &rotary_kernels(),
        .softmax = &softmax_kernels(),
        .sort = &sort_kernels(),
    };
  }();
  return kTable;
}

}  // namespace lorry::kernels::cpu
