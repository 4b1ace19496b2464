#include "tests/parallel/ranks.h"

#include "lorry/base/env.h"
#include "lorry/device/device.h"

namespace lorry::parallel {
namespace {

class Leave final : public testing::Environment {
  void SetUp() override { world(); }
  void TearDown() override { delete &world(); }
};
[[maybe_unused]] testing::Environment* const g_leave = testing::AddGlobalTestEnvironment(new Leave);

}  // namespace

const ProcessGroup& world() {
  static const ProcessGroup* const group =
      new ProcessGroup(join({.reproducible = env::integer("LORRY_TEST_REPRODUCIBLE", 0, 1).value_or(0) == 1}));
  return *group;
}

std::vector<Device> devices() {
  std::vector<Device> list{kCPU};
  if (device::count(DeviceType::cuda) >= world().size()) list.push_back(world().device());
  return list;
}

}  // namespace lorry::parallel
