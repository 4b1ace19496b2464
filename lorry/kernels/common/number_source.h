#pragma once

#include <cstdint>

#include "lorry/layout/dtype_enum.h"

namespace lorry::kernels {

/// A number among the settings of a hyper block, and where its value lies.
struct NumberSource {
  int32_t block;               ///< its number
  int32_t setting;             ///< in formula::SettingList of the rule
  const void* from = nullptr;  ///< an element on the device of the hyper blocks; null: `value`
  DType dtype = kF64;          ///< of the element, floating
  double value = 0;
};

}  // namespace lorry::kernels
