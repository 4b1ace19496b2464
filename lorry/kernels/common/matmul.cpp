#include "lorry/kernels/matmul.h"

#include "lorry/base/env.h"

namespace lorry::kernels {

MatmulSettings& matmul_settings() {
  static MatmulSettings settings{.precision = Precision::full,
                                 .tuning = env::integer("LORRY_MATMUL_TUNE", 0, 1).value_or(0) == 1};
  return settings;
}

}  // namespace lorry::kernels
