#pragma once

#include <span>

#include "lorry/kernels/common/walk.h"

namespace lorry::kernels::cpu {

/// The addresses of a run's operands.
struct Addresses {
  std::span<void*const> inputs, outputs;
};

}  // namespace lorry::kernels::cpu
