#pragma once

#include <gtest/gtest.h>

#include "lorry/kernels/backend.h"
#include "lorry/tensor/tensor.h"
#include "tests/support/scale.h"

namespace lorry::test {

/// Whether units of several nodes have kernels on the default device, and units over rows.
inline bool has_fused_kernels() { return kernels::backend(default_device()).fused != nullptr; }
inline bool has_row_kernels() {
  return has_fused_kernels() && kernels::backend(default_device()).fused->make_rows != nullptr;
}

/// The seeds of `count` random functions, scaled. A GPU compiles the kernels of each, 0.4 s beside an H200, so it gets
/// a tenth of them.
inline std::vector<uint64_t> function_seeds(int64_t count) {
  return seeds(default_device().is_cpu() ? count : count / 10);
}

}  // namespace lorry::test

#define LORRY_NEEDS_FUSED_KERNELS() \
  if (!has_fused_kernels()) GTEST_SKIP() << "no fused kernels on " << default_device()
