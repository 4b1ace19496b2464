#pragma once

#include <cstdint>

#include "lorry/layout/dtype_enum.h"

namespace lorry::kernels {

/// The value of a setting of a hyper block, in device memory or given by the host.
struct NumberSource {
  int32_t block;               ///< the hyper block's number
  int32_t setting;             ///< index in the rule's formula::SettingList
  const void* from = nullptr;  ///< an element on the device of the hyper blocks; null: use `value`
  DType dtype = kF64;          ///< of the element, floating
  double value = 0;
};

}  // namespace lorry::kernels
