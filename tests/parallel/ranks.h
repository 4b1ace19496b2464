#pragma once

// What tests that every rank runs share.

#include <gtest/gtest.h>

#include <vector>

#include "lorry/lorry.h"
#include "lorry/parallel/collectives.h"

namespace lorry::parallel {

/// All ranks. LORRY_TEST_REPRODUCIBLE=1: sums in rank order.
const ProcessGroup& world();

/// The CPU, and this rank's GPU where every rank has its own.
std::vector<Device> devices();

}  // namespace lorry::parallel
