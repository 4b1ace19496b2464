#pragma once

#include <cstdint>

namespace lorry {

/// a / b, rounded up; a of at least 0, b above 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// a, rounded up to a multiple of b.
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace lorry
