// The fused kernels against the formula run as a scalar loop: the same rule, another execution, the same bits.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/backend.h"

namespace lorry {
namespace {

using formula::AdamWHyper;
using formula::SgdHyper;

const kernels::OptimKernels& kernel() { return *kernels::backend(kCPU, "test").optim; }
const Stream kStream = current_stream(kCPU);

/// Sizes around registers, blocks and tiles, empties among them.
const int64_t kSizes[] = {0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 64, 1000, 1023, 1025, 0, 16'383, 16'385, 40'001, 5};

/// What a step is done with beside its rule.
struct Means {
  bool masters = false;
  const double* grad_factor = nullptr;
};

/// One parameter with its master, gradient and states, each starting `shift` elements into its memory.
template <class Stored, class State>
struct Case {
  Case(int64_t count, int64_t shift, std::mt19937_64& random) : n(count), first(shift), param(count + shift), grad(count + shift) {
    for (auto& s : states) s.resize(static_cast<size_t>(count + shift));
    std::normal_distribution<double> normal;
    for (auto& p : param) p = Stored(static_cast<State>(normal(random)));
    for (const auto& p : param) master.push_back(static_cast<State>(p));
    for (auto& g : grad) g = Stored(static_cast<State>(normal(random) * std::pow(10.0, static_cast<int>(random() % 9) - 4)));
  }
  kernels::OptimTensor tensor(int state_count, bool masters = false) {
    kernels::OptimTensor t{param.data() + first, grad.data() + first, {}, n, masters ? master.data() + first : nullptr};
    for (int k = 0; k < state_count; ++k) t.states[k] = states[k].data() + first;
    return t;
  }
  template <class Rule, class Hyper>
  void step_by_scalars(const Hyper& block, const Means& means) {
    const auto hyper = block.template as<State>();
    const State factor = means.grad_factor ? static_cast<State>(*means.grad_factor) : 1;
    if (std::isnan(factor)) return;
    for (int64_t i = first; i < first + n; ++i) {
      State p = means.masters ? master[i] : static_cast<State>(param[i]), s[3] = {states[0][i], states[1][i], states[2][i]};
      Rule()(p, static_cast<State>(grad[i]) * factor, s, hyper);
      param[i] = Stored(p);
      if (means.masters) master[i] = p;
      for (int k = 0; k < Rule::kStates; ++k) states[k][i] = s[k];
    }
  }
  bool same_bits(const Case& other) const {
    const auto equal = [](const auto& a, const auto& b) { return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0; };
    return equal(param, other.param) && equal(master, other.master) && equal(states[0], other.states[0]) && equal(states[1], other.states[1]) &&
           equal(states[2], other.states[2]);
  }

  int64_t n, first;
  std::vector<Stored> param, grad;
  std::vector<State> master, states[3];
};

template <class Stored, class State>
std::vector<Case<Stored, State>> cases(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Case<Stored, State>> list;
  for (const int64_t size : kSizes) list.emplace_back(size, static_cast<int64_t>(random() % 4), random);
  return list;
}

template <class Rule, class Stored, class State, class Progress, class Settings, class Launch>
void expect_same_bits(const Settings& settings, const Means& means, int steps, Launch&& launch) {
  auto fused = cases<Stored, State>(7), scalar = fused;
  std::vector<Progress> progress(fused.size());
  std::vector<kernels::OptimTensor> tensors;
  for (auto& c : fused) tensors.push_back(c.tensor(Rule::kStates, means.masters));
  for (int step = 0; step < steps; ++step) {
    std::vector<decltype(formula::advance(progress[0], settings))> hypers;
    for (auto& p : progress) hypers.push_back(formula::advance(p, settings));
    launch(tensors, hypers);
    for (size_t t = 0; t < scalar.size(); ++t) scalar[t].template step_by_scalars<Rule>(hypers[t], means);
  }
  for (size_t t = 0; t < fused.size(); ++t) EXPECT_TRUE(fused[t].same_bits(scalar[t])) << "tensor " << t << " of " << fused[t].n;
}

template <bool kAmsgrad, class Stored, class State>
void adamw_is_the_formula(const formula::AdamWSettings& settings, const Means& means = {}) {
  SCOPED_TRACE(fmt::format("adamw {} amsgrad {}", dtype_of<Stored>, kAmsgrad));
  expect_same_bits<formula::AdamW<kAmsgrad>, Stored, State, formula::AdamWProgress>(settings, means, 5, [&](const auto& tensors, const auto& hypers) {
    kernel().adamw({tensors, hypers, dtype_of<Stored>, kAmsgrad, means.grad_factor}, kStream);
  });
}

template <bool kMomentum, class Stored, class State>
void sgd_is_the_formula(const formula::SgdSettings& settings, const Means& means = {}) {
  SCOPED_TRACE(fmt::format("sgd {} momentum {}", dtype_of<Stored>, kMomentum));
  expect_same_bits<formula::Sgd<kMomentum>, Stored, State, formula::SgdProgress>(settings, means, 5, [&](const auto& tensors, const auto& hypers) {
    kernel().sgd({tensors, hypers, dtype_of<Stored>, kMomentum, means.grad_factor}, kStream);
  });
}

TEST(OptimKernel, fused_adamw_gives_the_bits_of_the_scalar_formula) {
  for (const bool decoupled : {false, true}) {
    const formula::AdamWSettings settings{.lr = 0.01, .weight_decay = 0.1, .decoupled = decoupled, .maximize = !decoupled};
    adamw_is_the_formula<false, float, float>(settings);
    adamw_is_the_formula<true, float, float>(settings);
    adamw_is_the_formula<true, double, double>(settings);
    adamw_is_the_formula<false, Float16, float>(settings);
    adamw_is_the_formula<true, BFloat16, float>(settings);
  }
}

TEST(OptimKernel, fused_sgd_gives_the_bits_of_the_scalar_formula) {
  sgd_is_the_formula<false, float, float>({.lr = 0.1, .weight_decay = 0.01});
  sgd_is_the_formula<true, float, float>({.lr = 0.1, .momentum = 0.9, .dampening = 0.3});
  sgd_is_the_formula<true, double, double>({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true, .maximize = true});
  sgd_is_the_formula<false, Float16, float>({.lr = 0.1});
  sgd_is_the_formula<true, BFloat16, float>({.lr = 0.1, .momentum = 0.9, .nesterov = true});
}

TEST(OptimKernel, masters_are_stepped_and_parameters_are_their_rounded_copies) {
  const double third = 1.0 / 3;
  for (const double* factor : {static_cast<const double*>(nullptr), &third}) {
    const Means means{.masters = true, .grad_factor = factor};
    adamw_is_the_formula<false, BFloat16, float>({.lr = 0.01, .weight_decay = 0.1}, means);
    adamw_is_the_formula<true, Float16, float>({.lr = 0.01, .weight_decay = 0.1, .decoupled = false}, means);
    sgd_is_the_formula<false, Float16, float>({.lr = 0.1}, means);
    sgd_is_the_formula<true, BFloat16, float>({.lr = 0.1, .momentum = 0.9}, means);
  }
}

TEST(OptimKernel, gradients_are_multiplied_by_their_factor) {
  const double third = 1.0 / 3;
  const Means means{.grad_factor = &third};
  adamw_is_the_formula<false, float, float>({.weight_decay = 0.1}, means);
  adamw_is_the_formula<true, double, double>({}, means);
  adamw_is_the_formula<false, BFloat16, float>({}, means);
  sgd_is_the_formula<true, float, float>({.lr = 0.1, .momentum = 0.9}, means);
  sgd_is_the_formula<false, Float16, float>({.lr = 0.1}, means);
}

TEST(OptimKernel, a_factor_that_is_nan_leaves_everything_as_it_was) {
  const double nan = NAN;
  adamw_is_the_formula<false, float, float>({}, {.grad_factor = &nan});
  adamw_is_the_formula<false, Float16, float>({}, {.masters = true, .grad_factor = &nan});
  sgd_is_the_formula<true, double, double>({.lr = 0.1, .momentum = 0.9}, {.grad_factor = &nan});
}

TEST(OptimKernel, the_number_of_threads_changes_no_bit) {
  const int before = cpu::threads();
  const formula::AdamWSettings settings{.weight_decay = 0.1};
  std::vector<std::vector<Case<float, float>>> results;
  for (const int threads : {1, 2, 3, 7}) {
    cpu::set_threads(threads);
    auto& list = results.emplace_back(cases<float, float>(3));
    std::vector<kernels::OptimTensor> tensors;
    std::vector<AdamWHyper<double>> hypers;
    for (auto& c : list) {
      formula::AdamWProgress progress;
      tensors.push_back(c.tensor(2));
      hypers.push_back(formula::advance(progress, settings));
    }
    kernel().adamw({tensors, hypers, kF32, false}, kStream);
  }
  cpu::set_threads(before);
  for (const auto& other : results)
    for (size_t t = 0; t < other.size(); ++t) EXPECT_TRUE(other[t].same_bits(results[0][t]));
}

TEST(OptimKernel, amsgrad_keeps_the_largest_and_a_nan) {
  float param[3] = {1, 1, 1}, grad[3] = {1, 0, NAN}, states[3][3] = {};
  formula::AdamWProgress progress;
  const formula::AdamWSettings settings;
  const kernels::OptimTensor tensor{param, grad, {states[0], states[1], states[2]}, 3};
  for (int step = 0; step < 2; ++step) {
    const AdamWHyper<double> hyper = formula::advance(progress, settings);
    kernel().adamw({{&tensor, 1}, {&hyper, 1}, kF32, true}, kStream);
    grad[0] = 0;
  }
  EXPECT_LT(states[1][0], states[2][0]) << "the mean of squares fell, its largest value stayed";
  EXPECT_EQ(states[2][1], 0);
  EXPECT_TRUE(std::isnan(states[2][2]) && std::isnan(param[2]));
}

// ---- norms -----------------------------------------------------------------------------------------------------------

struct GradientList {
  explicit GradientList(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    for (const int64_t size : kSizes) {
      f32.emplace_back(size);
      f64.emplace_back(size);
      bf16.emplace_back(size);
      for (auto& x : f32.back()) x = static_cast<float>(normal(random));
      for (auto& x : f64.back()) x = normal(random);
      for (auto& x : bf16.back()) x = BFloat16(static_cast<float>(normal(random)));
    }
  }
  std::vector<kernels::ListTensor> tensors() {
    std::vector<kernels::ListTensor> list;
    for (size_t i = 0; i < f32.size(); ++i) {
      list.push_back({f32[i].data(), static_cast<int64_t>(f32[i].size()), kF32});
      list.push_back({f64[i].data(), static_cast<int64_t>(f64[i].size()), kF64});
      list.push_back({bf16[i].data(), static_cast<int64_t>(bf16[i].size()), kBF16});
    }
    return list;
  }
  template <class F>
  void each(F&& f) {
    for (size_t i = 0; i < f32.size(); ++i) {
      for (auto& x : f32[i]) f(static_cast<double>(x));
      for (auto& x : f64[i]) f(x);
      for (auto& x : bf16[i]) f(static_cast<double>(static_cast<float>(x)));
    }
  }
  std::vector<std::vector<float>> f32;
  std::vector<std::vector<double>> f64;
  std::vector<std::vector<BFloat16>> bf16;
};

double norm(const std::vector<kernels::ListTensor>& tensors, kernels::Norm kind) {
  double total = -1;
  kernel().norm({tensors, kind, &total}, kStream);
  return total;
}

TEST(OptimKernel, norms_over_mixed_lists_agree_with_a_plain_sum) {
  GradientList list(11);
  long double one = 0, two = 0, inf = 0;
  list.each([&](double x) { one += std::fabs(x), two += static_cast<long double>(x) * x, inf = std::max<long double>(inf, std::fabs(x)); });
  EXPECT_NEAR(norm(list.tensors(), kernels::Norm::one) / static_cast<double>(one), 1, 1e-13);
  EXPECT_NEAR(norm(list.tensors(), kernels::Norm::two) / static_cast<double>(std::sqrt(two)), 1, 1e-13);
  EXPECT_EQ(norm(list.tensors(), kernels::Norm::inf), static_cast<double>(inf));
  EXPECT_EQ(norm({}, kernels::Norm::two), 0);
}

TEST(OptimKernel, norms_do_not_overflow_where_squares_of_f32_would) {
  std::vector<float> x(100, 1e30f);
  EXPECT_NEAR(norm({{x.data(), 100, kF32}}, kernels::Norm::two), static_cast<double>(1e30f) * 10, 1e17);
}

TEST(OptimKernel, norms_do_not_depend_on_the_number_of_threads) {
  const int before = cpu::threads();
  GradientList list(12);
  std::vector<double> totals;
  for (const int threads : {1, 2, 5}) {
    cpu::set_threads(threads);
    totals.push_back(norm(list.tensors(), kernels::Norm::two));
  }
  cpu::set_threads(before);
  EXPECT_EQ(totals[0], totals[1]);
  EXPECT_EQ(totals[0], totals[2]);
}

TEST(OptimKernel, one_nan_makes_every_norm_nan) {
  for (const size_t place : {0u, 15u, 16u, 999u}) {
    std::vector<float> x(1000, 1);
    x[place] = NAN;
    for (const auto kind : {kernels::Norm::one, kernels::Norm::two, kernels::Norm::inf}) EXPECT_TRUE(std::isnan(norm({{x.data(), 1000, kF32}}, kind))) << place;
  }
}

TEST(OptimKernel, clipping_scales_to_the_norm_or_writes_nothing) {
  GradientList list(13), before = list;
  const auto tensors = list.tensors();
  const double total = norm(tensors, kernels::Norm::two);
  kernel().clip({tensors, &total, total * 2}, kStream);
  EXPECT_EQ(list.f32, before.f32);
  kernel().clip({tensors, &total, 3.0}, kStream);
  EXPECT_NEAR(norm(tensors, kernels::Norm::two), 3.0, 3.0 * 1e-3) << "bf16 gradients are rounded";
  const float factor = static_cast<float>(3.0 / (total + 1e-6));
  for (size_t i = 0; i < list.f32.size(); ++i)
    for (size_t k = 0; k < list.f32[i].size(); ++k) ASSERT_EQ(list.f32[i][k], before.f32[i][k] * factor);
}

}  // namespace
}  // namespace lorry
