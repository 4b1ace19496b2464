#pragma once

// LORRY_TEST_SCALE=100 makes tests whose inputs are generated try a hundred times as many: too long for every day,
// right before a change to numerics lands.

#include <cstdint>
#include <vector>

#include "lorry/base/env.h"

namespace lorry::test {

inline int64_t scaled(int64_t count) { return count * lorry::env::integer("LORRY_TEST_SCALE", 1, 10'000).value_or(1); }

/// The seeds of `count` generated inputs, scaled. Processes share a long run: LORRY_TEST_PARTS=16 LORRY_TEST_PART=3
/// takes those whose remainder is 3.
inline std::vector<uint64_t> seeds(int64_t count) {
  const int64_t parts = lorry::env::integer("LORRY_TEST_PARTS", 1, 10'000).value_or(1),
                part = lorry::env::integer("LORRY_TEST_PART", 0, parts - 1).value_or(0);
  std::vector<uint64_t> made;
  for (int64_t seed = part; seed < scaled(count); seed += parts) made.push_back(static_cast<uint64_t>(seed));
  return made;
}

}  // namespace lorry::test
