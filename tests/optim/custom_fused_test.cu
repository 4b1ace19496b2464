// A rule of one's own compiled by nvcc: its fused kernels give the bits of the CPU.

#include "lorry/optim/custom.h"
#include "tests/optim/support.h"
#include "tests/support/dtypes.h"
#include "tests/support/on_cuda.h"

namespace lorry::optim::test {
namespace {

/// Everything that an update may use: both states, both numbers, the step, a choice by the step alone, and masks that
/// are compared. One rule, because each is 42 kernels: fourteen types of arrays, three ways to pass a list.
struct Everything {
  static constexpr const char* kName = "everything";
  template <class V, class H>
  LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {
    using namespace formula;
    const V moved = select(h.steps > h[0], grad, states[1]);
    states[1] = states[0];
    states[0] = h[1] * states[0] + (V(1) - h[1]) * select((grad < V(0)) != (states[0] < V(0)), V(0), grad);
    param = param - h.lr * select(states[0] > V(0), V(1), select(states[0] < V(0), V(-1), V(0))) -
            h.lr * moved / (sqrt(abs(states[0])) + h[1]) - states[1] / (sqrt(abs(states[0])) + h.steps);
  }
};

/// A rule as if it were not Lorry's own.
template <class Rule>
struct Foreign : Rule {};

/// Parameters and states after a few steps on a device.
template <class Make>
std::string after_steps(Device device, DType dtype, const Make& make) {
  std::mt19937_64 random(5);
  std::vector<NamedTensor> params;
  for (const Dims& sizes : {Dims{}, Dims{0}, Dims{3, 5}, Dims{17}, Dims{33, 61}})
    params.emplace_back(fmt::format("p{}", params.size()), parameter(random_tensor(random, sizes, dtype).to(device)));
  const auto optimizer = make(params);
  EXPECT_EQ(optimizer->execution(), Execution::fused);
  for (int step = 0; step < 6; ++step) {
    for (const auto& [name, param] : params) param.set_grad(random_tensor(random, param.sizes(), dtype).to(device));
    if (step == 3) optimizer->set_lr(0.05);
    optimizer->step({.max_norm = step == 2 ? 0.5 : 100, .skip_nonfinite = true});
  }
  std::string after;
  for (const auto& [name, param] : params) after += bits(param.detach().to(kCPU));
  for (const auto& [name, state] : optimizer->state_dict()) after += name + bits(state.to(kCPU));
  return after;
}

template <class Make>
void expect_same_bits(const Make& make) {
  const auto expect = [&](DType dtype, const Memory& memory) {
    const auto with = [&](const auto& params) { return make(params, memory); };
    EXPECT_TRUE(after_steps(kCPU, dtype, with) == after_steps(lorry::test::kGPU, dtype, with))
        << fmt::format("{}, {} masters, {} states", dtype, name(memory.masters), name(memory.states));
  };
  for (const DType dtype : lorry::test::kFloatingDTypes)
    for (const Masters masters : {Masters::none, Masters::f32}) expect(dtype, {.masters = masters});
  for (const DType dtype : {kF32, kBF16, kF16})
    for (const StateType states : {StateType::q8, StateType::bf16})
      expect(dtype, {.masters = dtype == kF32 ? Masters::none : Masters::f32, .states = states});
  expect(kBF16, {.masters = Masters::stochastic, .states = StateType::q8});
}

TEST(CustomFused, gives_the_bits_of_the_cpu) {
  LORRY_SKIP_WITHOUT_CUDA();
  expect_same_bits([](const auto& params, const Memory& memory) {
    const auto own = rule<2>(Everything(), 0.01, {2, 0.5});
    return std::make_unique<Custom<ShortRule<Everything, 2, 2>>>(params, own, Execution::automatic, memory);
  });
  expect_same_bits([](const auto& params, const Memory& memory) {
    return std::make_unique<Custom<Foreign<formula::NAdam>>>(params, formula::NAdam::Settings{}, Execution::automatic,
                                                             memory);
  });
}

}  // namespace
}  // namespace lorry::optim::test
