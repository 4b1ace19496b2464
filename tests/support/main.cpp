// The main function of every room's tests. LORRY_TEST_DEVICE=cuda runs the same tests with tensors made there; without
// such a device the program says why and exits with 77, which ctest reports as skipped.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "lorry/base/env.h"
#include "lorry/device/device.h"
#include "lorry/tensor/tensor.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const lorry::Device device(lorry::env::text("LORRY_TEST_DEVICE").value_or("cpu"));
  if (!lorry::device::available(device.type)) {
    fmt::print("skipped: no device {}: {}\n", device, lorry::device::why_absent(device.type));
    return 77;
  }
  lorry::set_default_device(device);
  return RUN_ALL_TESTS();
}
