#include "lorry/profile/memory_use.h"

#include <gtest/gtest.h>

#include "lorry/base/error.h"
#include "lorry/device/driver_facts.h"
#include "lorry/lorry.h"
#include "tests/support/on_cuda.h"
#include "tests/support/sanitizer.h"

namespace lorry::profile {
namespace {

using test::all_devices;

TEST(MemoryOwners, tensors_are_told_apart_from_what_is_cached) {
  for (const Device device : all_devices()) {
    constexpr int64_t kBytes = int64_t{64} << 20;
    memory::empty_cache(device);
    const MemoryOwners before = memory_owners(device);
    Tensor x = ones({kBytes / 4}, {.device = device});
    const MemoryOwners held = memory_owners(device);
    EXPECT_EQ(held.in_use - before.in_use, kBytes) << device;
    x = {};
    const MemoryOwners released = memory_owners(device);
    EXPECT_EQ(released.in_use, before.in_use);
    const bool caches = !(test::kAddressSanitizer && device.is_cpu());
    EXPECT_GE(released.cached - before.cached, caches ? kBytes : 0);
    memory::empty_cache(device);
    EXPECT_LT(memory_owners(device).cached - before.cached, kBytes);
  }
}

TEST(MemoryOwners, the_figures_are_parts_of_the_whole) {
  for (const Device device : all_devices()) {
    const MemoryOwners owners = memory_owners(device);
    EXPECT_GT(owners.total, 0);
    EXPECT_GE(owners.free, 0);
    EXPECT_LE(owners.free, owners.total);
    EXPECT_EQ(owners.in_use + owners.cached, memory::stats(device).reserved);
    if (device.is_cpu()) {
      EXPECT_GT(owners.rest_of_process.value(), 1 << 20) << "this program alone has more";
      EXPECT_FALSE(owners.others.has_value());
      EXPECT_FALSE(device::context_cost(device).has_value());
    } else {
      ASSERT_TRUE(owners.others.has_value());
      EXPECT_EQ(owners.in_use + owners.cached + owners.rest_of_process.value_or(0) + *owners.others + owners.free,
                owners.total);
    }
  }
}

TEST(MemoryOwners, the_bound_of_the_cache_is_the_one_that_was_set) {
  const int64_t before = memory::set_cache_bound(kCPU, 123 << 20);
  EXPECT_EQ(memory_owners(kCPU).cache_bound, 123 << 20);
  memory::set_cache_bound(kCPU, before);
  EXPECT_THROW(memory_owners(kMeta), DeviceError);
  EXPECT_THROW(memory_owners(Device{DeviceType::cuda, 99}), DeviceError);
}

}  // namespace
}  // namespace lorry::profile
