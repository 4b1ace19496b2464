// Steps over lists give the same bits on the CPU and on CUDA, however the list reaches the device.

#include "lorry/ops/ops.h"
#include "lorry/optim/rules/adam.h"
#include "lorry/optim/rules/sgd.h"
#include "tests/optim/lists.h"
#include "tests/optim/support.h"

namespace lorry::optim {
namespace {

using namespace test;
using lorry::test::Copied;
using lorry::test::kGPU;

constexpr Strategy kAllStrategies[] = {Strategy::automatic,       Strategy::per_tensor,   Strategy::kernel_args_4k,
                                       Strategy::kernel_args_32k, Strategy::device_table, Strategy::mapped_table,
                                       Strategy::managed_table};

/// Counts around runs and tiles, empties among them, and then more tensors than one launch takes.
std::vector<int64_t> counts(int small) {
  std::vector<int64_t> list = {0, 1, 3, 7, 8, 15, 17, 1023, 1025, 0, 2047, 2048, 2049, 2053, 9'001};
  for (int i = 0; i < small; ++i) list.push_back(i % 37);
  return list;
}

/// The course of steps on both devices, compared after the one that moves arrays and after the last.
template <class Rule>
void expect_same_steps(const Spec& spec, const std::vector<int64_t>& counts, int variant,
                       const std::vector<Strategy>& strategies) {
  SCOPED_TRACE(fmt::format("{}, variant {}, {}", Rule::kName, variant, spec.text()));
  Steppable<Rule> cpu(kCPU, spec, counts, variant);
  std::vector<std::unique_ptr<Steppable<Rule>>> gpus;
  for (const Strategy strategy : strategies)
    gpus.push_back(std::make_unique<Steppable<Rule>>(kGPU, spec, counts, variant, strategy));
  for (size_t s = 0; s < std::size(kCourse); ++s) {
    const Doing& doing = kCourse[s];
    const Copied<double> cpu_factor(kCPU, {doing.factor.value_or(1)}), gpu_factor(kGPU, {doing.factor.value_or(1)});
    prepare(cpu, s);
    cpu.step(doing.factor ? cpu_factor.data() : nullptr, doing.zero_grads);
    for (size_t g = 0; g < gpus.size(); ++g) {
      prepare(*gpus[g], s);
      gpus[g]->step(doing.factor ? gpu_factor.data() : nullptr, doing.zero_grads);
      if (s + 1 < std::size(kCourse) && s != 2) continue;
      SCOPED_TRACE(lorry::name(strategies[g]));
      if (!same(*gpus[g], cpu, s)) return;
    }
  }
}

class OptimDevicesOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Specs, OptimDevicesOf, testing::Range(0, static_cast<int>(std::size(kSpecs))));

TEST_P(OptimDevicesOf, every_rule_gives_the_same_bits_on_either_device) {
  LORRY_SKIP_WITHOUT_CUDA();
  const Spec& spec = kSpecs[GetParam()];
  formula::Rules::each([&]<class Rule>() {
    for (int variant = 0; variant < kVariants && spec.fits(Rule::kStates); ++variant)
      expect_same_steps<Rule>(spec, counts(10), variant,
                              {variant == 0 ? Strategy::device_table : Strategy::kernel_args_4k});
  });
}

TEST(OptimDevices, every_strategy_gives_the_same_bits) {
  LORRY_SKIP_WITHOUT_CUDA();
  const std::vector<Strategy> all(std::begin(kAllStrategies), std::end(kAllStrategies));
  for (const Spec& spec : {kSpecs[0], kSpecs[1], kSpecs[4], kSpecs[6], kSpecs[8], kSpecs[18]}) {
    expect_same_steps<formula::AdamW<true>>(spec, counts(60), 1, all);
    expect_same_steps<formula::Sgd<false>>(spec, counts(60), 1, all);
  }
}

TEST(OptimDevices, thousands_of_tensors_and_a_large_one_step_alike) {
  LORRY_SKIP_WITHOUT_CUDA();
  std::vector<int64_t> many = counts(2'500);
  many.insert(many.begin() + 1'000, (1 << 20) + 5);
  for (const Strategy strategy : {Strategy::device_table, Strategy::kernel_args_32k})
    for (const Spec& spec : {kSpecs[0], kSpecs[6], kSpecs[8], kSpecs[17]})
      expect_same_steps<formula::AdamW<false>>(spec, many, 0, {strategy});
}

/// Kernels of compressed states choose their tile by the size of the list.
TEST(OptimDevices, a_large_parameter_steps_like_its_parts) {
  LORRY_SKIP_WITHOUT_CUDA();
  constexpr int64_t kCount = 50'000'007, kPart = 4'000'000 / formula::kQuantBlock * formula::kQuantBlock;
  for (const DType dtype : {kF32, kBF16}) {
    const Tensor whole = full({kCount}, 0.5, {.dtype = dtype, .device = kGPU}), parted = whole.clone();
    const Tensor grads[] = {randn({kCount}, {.dtype = dtype, .device = kGPU}),
                            randn({kCount}, {.dtype = dtype, .device = kGPU})};
    const AdamWOptions options{.lr = 0.1, .weight_decay = 0.1, .memory = {.states = StateType::q8}};
    AdamW all({{"whole", whole.requires_grad_()}}, options);
    for (const Tensor& grad : grads) whole.set_grad(grad), all.step();
    for (int64_t from = 0; from < kCount; from += kPart) {
      const int64_t count = std::min(kPart, kCount - from);
      const Tensor part = narrow(parted, 0, from, count).requires_grad_();
      AdamW own({{"part", part}}, options);
      for (const Tensor& grad : grads) part.set_grad(narrow(grad, 0, from, count)), own.step();
    }
    EXPECT_TRUE(equal(whole.detach(), parted)) << name(dtype);
    EXPECT_NE(parted[kCount - 1].item<float>(), 0.5f) << "it moved";
  }
}

TEST(OptimDevices, parameters_of_all_devices_step_in_one_optimizer) {
  const std::vector<Device> devices = lorry::test::all_devices();
  for (const Execution execution : kExecutions)
    for (const StateType states : {StateType::f32, StateType::q8}) {
      std::mt19937_64 random(7);
      const auto gradient = [&](const Dims& sizes) { return random_tensor(random, sizes, kF32).to(kCPU); };
      std::vector<NamedTensor> there, here;
      for (int i = 0; i < 12; ++i) {
        const Tensor value = random_tensor(random, {i % 4 == 3 ? 3'001 : 17 * i}, kF32).to(kCPU);
        there.emplace_back(fmt::format("p{}", i), parameter(value.clone().to(devices[i % devices.size()])));
        here.emplace_back(fmt::format("p{}", i), parameter(value));
      }
      AdamW mixed(there, {.lr = 0.1, .memory = {.states = states}}, execution),
          plain(here, {.lr = 0.1, .memory = {.states = states}}, execution);
      for (int step = 0; step < 4; ++step) {
        for (size_t i = 0; i < here.size(); ++i) {
          const Tensor grad = gradient(here[i].second.sizes());
          there[i].second.set_grad(grad.to(devices[i % devices.size()])), here[i].second.set_grad(grad);
        }
        mixed.step(), plain.step();
      }
      for (size_t i = 0; i < here.size(); ++i)
        EXPECT_TRUE(equal(there[i].second.detach().to(kCPU), here[i].second.detach()))
            << i << " by " << name(execution);
      // The common norm: sums of squares of several devices are added up in another order.
      const double ours = mixed.step({.max_norm = 1, .skip_nonfinite = true}).item<double>(),
                   expected = plain.step({.max_norm = 1, .skip_nonfinite = true}).item<double>();
      EXPECT_NEAR(ours, expected, 1e-12 * expected);
      for (size_t i = 0; i < here.size(); ++i)
        EXPECT_TRUE(allclose(there[i].second.detach().to(kCPU), here[i].second.detach(), 1e-5, 1e-6))
            << i << " by " << name(execution);
      const Tensor grad = there[1].second.grad().clone().fill_(NAN);
      there[1].second.set_grad(grad);
      const Tensor before = there[2].second.detach().clone();
      EXPECT_TRUE(std::isnan(mixed.step({.max_norm = 1, .skip_nonfinite = true}).item<double>()));
      EXPECT_TRUE(equal(there[2].second.detach(), before)) << "a NaN on one device skips the step on all";
    }
}

TEST(OptimDevices, hyper_blocks_of_lists_without_elements_advance) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const Strategy strategy : kAllStrategies)
    for (const std::vector<int64_t>& none : {std::vector<int64_t>{}, std::vector<int64_t>{0, 0}}) {
      Steppable<formula::AdamW<false>> cpu(kCPU, kSpecs[0], none, 0), gpu(kGPU, kSpecs[0], none, 0, strategy);
      for (int step = 0; step < 3; ++step) {
        cpu.step(), gpu.step();
        EXPECT_EQ(gpu.hyper_block_numbers(), cpu.hyper_block_numbers()) << lorry::name(strategy);
      }
    }
}

TEST(OptimDevices, a_list_may_be_stepped_on_one_stream_and_then_on_another) {
  LORRY_SKIP_WITHOUT_CUDA();
  const OwnedStream side(kGPU);
  for (const Strategy strategy : kAllStrategies) {
    Steppable<formula::AdamW<false>> cpu(kCPU, kSpecs[0], counts(60), 0), gpu(kGPU, kSpecs[0], counts(60), 0, strategy);
    for (int step = 0; step < 4; ++step) {
      cpu.new_gradients(static_cast<uint64_t>(step)), gpu.new_gradients(static_cast<uint64_t>(step));
      cpu.step();
      {
        const StreamScope scope(step % 2 == 0 ? current_stream(kGPU) : Stream(side));
        gpu.step();
        current_stream(kGPU).synchronize();
      }
      ASSERT_TRUE(same(gpu, cpu, static_cast<size_t>(step))) << lorry::name(strategy);
    }
  }
}

TEST(OptimDevices, what_an_earlier_kernel_reports_is_thrown_before_a_step_moves_anything) {
  LORRY_SKIP_WITHOUT_CUDA();
  const Tensor a = ones({2}, {kF32, kGPU}).requires_grad_(), b = ones({2}, {kF64, kGPU}).requires_grad_();
  SGD sgd({{"a", a}, {"b", b}}, {.lr = 0.25});
  for (const Tensor& x : {a, b}) x.set_grad(ones_like(x.detach()));
  sgd.step();
  const Tensor picked = index_select(a.detach(), 0, tensor({7}, {.dtype = kI64, .device = kGPU}));
  const Event done(kGPU);
  done.record(current_stream(kGPU));
  done.synchronize();
  EXPECT_THROW(sgd.step(), IndexError);
  EXPECT_EQ(a.detach().to_vector<float>(), (std::vector<float>{0.75, 0.75}));
  EXPECT_EQ(sgd.state_dict().at("a.step").item<double>(), 1);
  sgd.step();
  EXPECT_EQ(b.detach().to_vector<double>(), (std::vector<double>{0.5, 0.5}));
  for (const char* name : {"a.step", "b.step"}) EXPECT_EQ(sgd.state_dict().at(name).item<double>(), 2);
}

}  // namespace
}  // namespace lorry::optim
