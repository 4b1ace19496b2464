#include "lorry/kernels/matmul.h"

#include "lorry/base/env.h"

namespace lorry::kernels {

MatmulSettings& matmul_settings() {
  static MatmulSettings settings{.precision = Precision::full,
                                 .tuning = env::integer("LORRY_MATMUL_TUNE", 0, 1).value_or(0) == 1};
  return settings;
}

const char* name(MatmulEpilogue::Kind kind) {
  switch (kind) {
    case MatmulEpilogue::none:
      return "no epilogue";
    case MatmulEpilogue::gelu:
      return "GELU";
    case MatmulEpilogue::gelu_and_input:
      return "GELU and its input";
    case MatmulEpilogue::relu:
      return "ReLU";
    case MatmulEpilogue::gelu_backward:
      return "the gradient of GELU";
    case MatmulEpilogue::gelu_backward_and_sums:
      return "the gradient of GELU and its sums";
    case MatmulEpilogue::sums_of_a:
      return "the sums of its first operand";
  }
  return "";
}

}  // namespace lorry::kernels
