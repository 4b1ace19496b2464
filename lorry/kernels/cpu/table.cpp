#include "lorry/kernels/backend.h"

namespace lorry::kernels::cpu {

const Backend& table() {
  static constexpr Backend kTable{};
  return kTable;
}

}  // namespace lorry::kernels::cpu
