#pragma once

#include <cstdint>

namespace lorry {

/// a / b, rounded up; a of at least 0, b above 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace lorry
