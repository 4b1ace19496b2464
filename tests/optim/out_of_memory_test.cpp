// Steps that run out of memory leave everything as it was.

#include "lorry/memory/memory.h"
#include "tests/optim/model.h"
#include "tests/optim/rules.h"

namespace lorry::optim::test {
namespace {

using kernels::Strategy;
using Adam3 = formula::AdamW<true>;

TEST(OutOfMemory, a_step_that_finds_no_memory_for_its_state_leaves_all_as_before) {
  const Device device = default_device();
  const int64_t count = device.is_cpu() ? 1 << 20 : 1 << 23;  // more than a GPU's segment may have left
  for (const Execution execution : executions()) {
    Model model(14);
    const Tensor large = parameter(zeros({count}));
    model.params.emplace_back("large", large);
    Any<Adam3> adam(model.params, settings_of<Adam3>(0), execution);
    model.give_gradients();
    large.set_grad({});
    adam.step();
    large.set_grad(ones({count}));
    const std::string before = model.all_bits() + all_bits(adam);
    memory::empty_cache(device);
    memory::set_limit(device, memory::stats(device).reserved + (1 << 20));
    EXPECT_THROW(adam.step(), OutOfMemory) << name(execution);
    memory::set_limit(device, 0);
    EXPECT_EQ(model.all_bits() + all_bits(adam), before) << name(execution);
    adam.step();
    EXPECT_EQ(steps_of(adam, "large"), 1);
    EXPECT_EQ(steps_of(adam, "p0"), 2);
  }
}

TEST(OutOfMemory, a_step_that_finds_no_memory_for_its_tables_leaves_all_as_before) {
  const Device device = default_device();
  if (device.is_cpu()) GTEST_SKIP() << "lists have no tables on a CPU";
  int failed = 0;
  for (const int room : {0, 1, 2, 3, 4, 5, 6, 8}) {
    Model model(15), narrow(16, kBF16);
    for (const auto& [name, p] : narrow.params) model.params.emplace_back("narrow." + name, p);
    Any<Adam3> adam(model.params, settings_of<Adam3>(0), Execution::fused);
    model.give_gradients();
    adam.step();
    adam.set_strategy(Strategy::device_table);
    const std::string before = model.all_bits() + all_bits(adam);
    memory::empty_cache(device);
    memory::set_limit(device, memory::stats(device).reserved);
    std::vector<void*> blocks;
    constexpr int64_t kBytes = 512;
    try {
      for (;;) blocks.push_back(memory::allocate(device, kBytes));
    } catch (const OutOfMemory&) {
    }
    for (int k = 0; k < room && !blocks.empty(); ++k) memory::release(device, blocks.back(), kBytes), blocks.pop_back();
    bool stepped = true;
    try {
      adam.step();
    } catch (const OutOfMemory&) {
      stepped = false;
    }
    for (void* const block : blocks) memory::release(device, block, kBytes);
    memory::set_limit(device, 0);
    failed += !stepped;
    EXPECT_NE(model.all_bits() + all_bits(adam) == before, stepped) << room;
  }
  EXPECT_GT(failed, 0);
}

}  // namespace
}  // namespace lorry::optim::test
