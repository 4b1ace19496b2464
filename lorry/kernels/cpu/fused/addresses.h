#pragma once

#include <span>

#include "lorry/kernels/common/walk.h"

namespace lorry::kernels::cpu {

/// Where the operands of a run lie.
struct Addresses {
  std::span<void*const> inputs, outputs;
};

}  // namespace lorry::kernels::cpu
