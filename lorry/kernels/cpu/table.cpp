#include "lorry/kernels/backend.h"
#include "lorry/kernels/cpu/matmul.h"
#include "lorry/kernels/cpu/reduce.h"

namespace lorry::kernels::cpu {

const Backend& table() {
  static const Backend kTable{
      .creation = &kCreationKernels,
      .indexing = &kIndexingKernels,
      .random = &kRandomKernels,
      .reduce = &reduce_kernels(),
      .matmul = &matmul_kernels(),
  };
  return kTable;
}

}  // namespace lorry::kernels::cpu
