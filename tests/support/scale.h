#pragma once

// LORRY_TEST_SCALE=100 makes tests whose inputs are generated try a hundred times as many: too long for every day,
// right before a change to numerics lands.

#include <cstdint>

#include "lorry/base/env.h"

namespace lorry::test {

inline int64_t scaled(int64_t count) { return count * lorry::env::integer("LORRY_TEST_SCALE", 1, 10'000).value_or(1); }

}  // namespace lorry::test
