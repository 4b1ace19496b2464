#include "lorry/nn/containers.h"

namespace lorry::nn {

Tensor Sequential::forward(const Tensor& x) const {
  const Scope here = scope();
  Tensor y = x;
  for (const auto& step : steps_) y = step(y);
  return y;
}

}  // namespace lorry::nn
