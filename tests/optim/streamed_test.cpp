// States in pinned memory that stream through the device: arrays are cut into chunks, small ones are stepped where they
// lie, and all bits are those of states on the device.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lorry/device/stream.h"
#include "lorry/memory/memory.h"
#include "lorry/memory/meta_allocator.h"
#include "lorry/optim/optimizers.h"
#include "tests/optim/support.h"

namespace lorry::optim::test {
namespace {

/// A cut array of an odd length, one that shares its last chunk, small ones, an empty one, and a transposed one.
std::vector<NamedTensor> large_params(DType dtype) {
  manual_seed(3);
  const auto make = [&](const Dims& sizes) { return randn(sizes).to(dtype); };
  std::vector<Tensor> tensors{make({3'000'005}), make({1'000}),          make({700'001}), make({0}),
                              make({}),          make({1'100, 900}).t(), make({65'536})};
  for (Tensor& x : tensors) x = parameter(x.detach());
  return numbered(tensors);
}

void give_gradients(const std::vector<NamedTensor>& params, int step) {
  manual_seed(100 + static_cast<uint64_t>(step));
  for (const auto& [name, p] : params) p.set_grad(empty_like(p.detach()).copy_(randn(p.sizes())));
}

std::vector<std::string> after_steps(DType dtype, const Memory& memory) {
  const std::vector<NamedTensor> params = large_params(dtype);
  AdamW adamw(params, {.lr = 1e-2, .memory = memory});
  for (int step = 0; step < 4; ++step) {
    if (step != 2) give_gradients(params, step);  // at the same addresses once
    if (step == 3) params[2].second.grad().fill_(std::numeric_limits<float>::infinity());
    adamw.step({.max_norm = 100, .skip_nonfinite = true, .zero_grad = step == 1});
  }
  std::vector<std::string> all;
  for (const auto& [name, p] : params) {
    all.push_back(bits(p));
    all.push_back(bits(p.grad()));
  }
  for (const auto& [key, x] : adamw.state_dict()) all.push_back(key + bits(x.clone()));
  return all;
}

/// Where two runs differ; empty where they do not.
std::string difference(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  if (a.size() != b.size()) return fmt::format("{} arrays and {}", a.size(), b.size());
  std::string text;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i])
      text += fmt::format("array {} ({}) from byte {} of {}; ", i, a[i].substr(0, 12),
                          std::ranges::mismatch(a[i], b[i]).in1 - a[i].begin(), a[i].size());
  return text;
}

std::pair<DType, Memory> choice(int index) {
  switch (index) {
    case 0:
      return {kF32, {}};
    case 1:
      return {kF64, {}};
    case 2:
      return {kF32, {.states = StateType::q8}};
    case 3:
      return {kF32, {.states = StateType::bf16}};
    case 4:
      return {kBF16, {.masters = Masters::f32}};
    case 5:
      return {kBF16, {.masters = Masters::split, .states = StateTypes(StateType::bf16, StateType::q8)}};
    case 6:
      return {kBF16, {.masters = Masters::stochastic, .states = StateTypes(StateType::q8, StateType::f32)}};
    default:
      return {kF16, {.masters = Masters::f32, .states = StateType::q8}};
  }
}

class Streamed : public testing::TestWithParam<int> {};

TEST_P(Streamed, states_take_the_same_bits_home) {
  if (default_device().is_cpu()) GTEST_SKIP() << "a CPU's states are at home";
  auto [dtype, memory] = choice(GetParam());
  memory.placement = Placement::device;
  const std::vector<std::string> expected = after_steps(dtype, memory);
  EXPECT_EQ(difference(expected, after_steps(dtype, memory)), "");
  for (const Placement placement : {Placement::pinned, Placement::managed}) {
    memory.placement = placement;
    EXPECT_EQ(difference(expected, after_steps(dtype, memory)), "") << name(placement);
  }
  const OwnedStream stream(default_device());
  const StreamScope scope(stream);
  memory.placement = Placement::pinned;
  EXPECT_EQ(difference(expected, after_steps(dtype, memory)), "") << "on a stream of its own";
}

TEST(OptimMemory, the_report_counts_the_chunks_of_pinned_states) {
  const bool on_cpu = default_device().is_cpu();
  const std::vector<NamedTensor> params = large_params(kF32);
  AdamW adamw(params, {.memory = {.placement = Placement::pinned}});
  give_gradients(params, 0);
  const MemoryReport estimate = adamw.memory_report();
  const int64_t before = memory::stats(default_device()).allocated;
  adamw.step();
  const MemoryReport report = adamw.memory_report();
  EXPECT_EQ(report.text(), estimate.text()) << "before the first step";
  if (on_cpu) {
    EXPECT_EQ(report.chunks, 0);
    return;
  }
  EXPECT_GT(report.chunks, 20 << 20);
  EXPECT_LT(report.chunks, 26 << 20);
  // States are not on the device; tables and the hyper block are.
  const int64_t taken = memory::stats(default_device()).allocated - before;
  EXPECT_GE(taken, report.chunks);
  EXPECT_LT(taken, report.chunks + (1 << 20));
  EXPECT_NE(report.text().find("chunks"), std::string::npos);
}

TEST(OptimMemory, pinned_states_stream_on_meta_as_on_the_device_that_it_stands_for) {
  const Device meta = memory::stand_in({DeviceType::cuda, 0});
  const Tensor x = empty({5'000'000}, {kF32, meta}).requires_grad_();
  x.set_grad(empty({5'000'000}, {kF32, meta}));
  AdamW adamw({{"x", x}}, {.memory = {.placement = Placement::pinned}});
  for (int step = 0; step < 3; ++step) adamw.step({.max_norm = 1.0});
  const int64_t chunks = adamw.memory_report().chunks;
  EXPECT_GT(chunks, 20 << 20);
  EXPECT_LT(chunks, 26 << 20);
}

INSTANTIATE_TEST_SUITE_P(OptimMemory, Streamed, testing::Range(0, 8));

}  // namespace
}  // namespace lorry::optim::test
