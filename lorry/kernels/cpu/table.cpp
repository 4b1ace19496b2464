#include "lorry/kernels/backend.h"
#include "lorry/kernels/cpu/reduce.h"

namespace lorry::kernels::cpu {

const Backend& table() {
  static const Backend kTable{
      .reduce = &reduce_kernels(),
  };
  return kTable;
}

}  // namespace lorry::kernels::cpu
