#pragma once

#include <cstdint>

namespace lorry {

inline constexpr int64_t kMB = 1 << 20;

}  // namespace lorry
