#include "lorry/kernels/backend.h"
#include "lorry/kernels/cpu/reduce.h"

namespace lorry::kernels::cpu {

const Backend& table() {
  static const Backend kTable{
      .creation = &kCreationKernels,
      .indexing = &kIndexingKernels,
      .random = &kRandomKernels,
      .reduce = &reduce_kernels(),
  };
  return kTable;
}

}  // namespace lorry::kernels::cpu
