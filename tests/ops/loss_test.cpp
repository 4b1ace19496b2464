#include "lorry/ops/loss.h"

#include <algorithm>
#include <limits>

#include "lorry/autograd/engine.h"
#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"
#include "tests/support/dtypes.h"

namespace lorry::test {
namespace {

constexpr Reduction kReductions[] = {Reduction::none, Reduction::mean, Reduction::sum};

/// Logits [N, C, inner] seen as samples of C classes.
struct Problem {
  Dims sizes;
  Tensor x, target, weight;
  int64_t ignore_index = -100;
  double smoothing = 0;

  int64_t classes() const { return sizes[sizes.size() == 1 ? 0 : 1]; }
  int64_t inner() const {
    int64_t n = 1;
    for (int d = 2; d < sizes.size(); ++d) n *= sizes[d];
    return n;
  }
  int64_t samples() const { return target.numel(); }
  double at(int64_t sample, int64_t c) const {
    return element(x, (sample / inner() * classes() + c) * inner() + sample % inner());
  }
  double weight_of(int64_t c) const { return weight.defined() ? element(weight, c) : 1.0; }
};

Problem problem(const Dims& sizes, DType dtype, uint64_t seed, bool weighted, Memory memory = Memory::contiguous) {
  Problem p{sizes, sample(sizes, dtype, seed, memory, 5), {}, {}};
  Dims samples = sizes;
  samples.erase(sizes.size() == 1 ? 0 : 1);
  p.target = empty(samples, {kI64});
  for (int64_t i = 0; i < p.target.numel(); ++i)
    set_element(p.target, i, static_cast<double>((i * 7 + static_cast<int64_t>(seed)) % p.classes()));
  if (weighted) {
    p.weight = empty({p.classes()}, {dtype});
    for (int64_t c = 0; c < p.classes(); ++c) set_element(p.weight, c, 0.5 + static_cast<double>(c % 4) / 4);
  }
  return p;
}

struct Expected {
  std::vector<double> losses;  // of each sample
  double total = 0, weight = 0;
  std::vector<double> result(Reduction r) const {
    return r == Reduction::none ? losses : std::vector<double>{r == Reduction::sum ? total : total / weight};
  }
};

/// Class losses in long double; `logits` false takes x as log-probabilities.
Expected expected_loss(const Problem& p, bool logits) {
  Expected e;
  for (int64_t s = 0; s < p.samples(); ++s) {
    const auto t = static_cast<int64_t>(element(p.target, s));
    if (t == p.ignore_index) {
      e.losses.push_back(0);
      continue;
    }
    long double sum = 0, smooth = 0;
    for (int64_t c = 0; c < p.classes(); ++c) sum += std::exp(static_cast<long double>(p.at(s, c)));
    const long double lse = logits ? std::log(sum) : 0;
    for (int64_t c = 0; c < p.classes(); ++c) smooth += p.weight_of(c) * (lse - p.at(s, c)) / p.classes();
    e.losses.push_back(
        static_cast<double>((1 - p.smoothing) * p.weight_of(t) * (lse - p.at(s, t)) + p.smoothing * smooth));
    e.total += e.losses.back();
    e.weight += p.weight_of(t);
  }
  return e;
}

TEST(loss, cross_entropy_and_nll_match_a_long_double_loop_in_every_form) {
  for (const Dims& sizes : {Dims{6}, Dims{1, 3}, Dims{37, 65}, Dims{4, 5, 3}, Dims{2, 7, 2, 3}})
    for (const DType dtype : kFloatingDTypes)
      for (const bool weighted : {false, true})
        for (const bool ignoring : {false, true})
          for (const double smoothing : {0.0, 0.2}) {
            Problem p = problem(sizes, dtype, 3, weighted, ignoring ? Memory::transposed : Memory::contiguous);
            if (ignoring) p.ignore_index = 2;
            p.smoothing = smoothing;
            const Expected e = expected_loss(p, true);
            for (const Reduction r : kReductions) {
              if (r == Reduction::mean && e.weight == 0) continue;
              const std::string what = fmt::format(" of {} {}, weighted {}, ignoring {}, smoothing {}", sizes, dtype,
                                                   weighted, ignoring, smoothing);
              const Tensor loss = cross_entropy(p.x, p.target, p.weight, p.ignore_index, r, smoothing);
              EXPECT_EQ(loss.dtype(), dtype);
              EXPECT_EQ(loss.sizes(), r == Reduction::none ? p.target.sizes() : Dims());
              EXPECT_TRUE(near(loss, e.result(r), 4 * tolerance(dtype))) << what;
              if (smoothing == 0) {
                EXPECT_TRUE(near(nll_loss(p.x, p.target, p.weight, p.ignore_index, r),
                                 expected_loss(p, false).result(r), 4 * tolerance(dtype)))
                    << what;
              }
            }
          }
}

TEST(loss, fused_gradients_match_the_derivative_in_long_double) {
  for (const Dims& sizes : {Dims{6}, Dims{37, 65}, Dims{4, 5, 3}})
    for (const DType dtype : {kBF16, kF32, kF64})
      for (const bool weighted : {false, true})
        for (const double smoothing : {0.0, 0.3}) {
          Problem p = problem(sizes, dtype, 4, weighted);
          p.ignore_index = 1;
          p.smoothing = smoothing;
          const Expected e = expected_loss(p, true);
          const Tensor x = p.x.requires_grad_();
          const Tensor g =
              autograd::grad({cross_entropy(x, p.target, p.weight, 1, Reduction::mean, smoothing)}, {x})[0];
          double all = 0;
          for (int64_t c = 0; c < p.classes(); ++c) all += p.weight_of(c) / static_cast<double>(p.classes());
          std::vector<double> want(static_cast<size_t>(x.numel()));
          for (int64_t s = 0; s < p.samples(); ++s) {
            const auto t = static_cast<int64_t>(element(p.target, s));
            if (t == 1) continue;
            long double sum = 0;
            for (int64_t c = 0; c < p.classes(); ++c) sum += std::exp(static_cast<long double>(p.at(s, c)));
            for (int64_t c = 0; c < p.classes(); ++c) {
              const double q = static_cast<double>(std::exp(static_cast<long double>(p.at(s, c))) / sum);
              const double d = (1 - smoothing) * p.weight_of(t) * (q - (c == t)) +
                               smoothing * (all * q - p.weight_of(c) / static_cast<double>(p.classes()));
              want[static_cast<size_t>((s / p.inner() * p.classes() + c) * p.inner() + s % p.inner())] = d / e.weight;
            }
          }
          EXPECT_TRUE(near(g, want, 4 * tolerance(dtype))) << sizes.size() << " dims " << name(dtype);
        }
}

TEST(loss, infinite_logits_and_ignored_samples_keep_to_their_rows) {
  const Tensor x = tensor_of({3, 3}, kF32, {kNaN, 0, 0, -kInf, 0, 0, kInf, 0, 0}).requires_grad_();
  const Tensor target = tensor_of({3}, kI64, {-100, 1, 1});
  const Tensor loss = cross_entropy(x, target, {}, -100, Reduction::none);
  EXPECT_TRUE(near(loss, {0, std::log(2.0), kNaN}, 1e-6));
  loss.sum().backward();
  EXPECT_TRUE(near(x.grad(), {0, 0, 0, 0, -0.5, 0.5, kNaN, kNaN, kNaN}, 1e-6));
}

TEST(loss, gradients_of_infinite_differences_are_those_of_large_ones) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double sign : {1.0, -1.0}) {
    const Tensor x = tensor({sign * inf, 0.5}).requires_grad_(), target = zeros({2}, {x.dtype()});
    const auto gradient = [&](const Tensor& loss) { return autograd::grad({loss}, {x})[0].to_vector<double>(); };
    EXPECT_EQ(gradient(huber_loss(x, target, Reduction::sum, 1)), (std::vector<double>{sign, 0.5}));
    EXPECT_EQ(gradient(smooth_l1_loss(x, target, Reduction::sum, 1)), (std::vector<double>{sign, 0.5}));
  }
}

TEST(loss, a_mean_has_the_bits_of_its_sums) {
  for (const DType dtype : {kF32, kF64, kBF16})
    for (const int64_t n : {1, 2, 4, 6, 31, 124, 132, 1000, 4096, 8196, 16384, 16388}) {
      const DType wide = dtype == kF64 ? kF64 : kF32;
      const Tensor x = sample({n, 5}, dtype, 51), weight = sample({5}, dtype, 52).abs(),
                   target = arange(n).remainder(5);
      const Tensor losses = cross_entropy(x, target, weight, -100, Reduction::none, 0.1, wide);
      const Tensor mean = losses.sum().div(weight.to(wide).index_select(0, target).sum());
      for (const DType out : {dtype, wide, kF16})
        EXPECT_TRUE(same_bits(cross_entropy(x, target, weight, -100, Reduction::mean, 0.1, out), mean.to(out)))
            << n << " of " << dtype << " as " << out;
    }
}

TEST(loss, a_mean_over_nothing_is_nan_and_a_sum_is_zero) {
  const Tensor x = sample({2, 3}, kF32, 1), ignored = tensor_of({2}, kI64, {-100, -100});
  EXPECT_TRUE(std::isnan(element(cross_entropy(x, ignored), 0)));
  EXPECT_EQ(element(cross_entropy(x, ignored, {}, -100, Reduction::sum), 0), 0);
  EXPECT_EQ(element(nll_loss(empty({0, 3}), empty({0}, {kI64}), {}, -100, Reduction::sum), 0), 0);
}

TEST(loss, class_probabilities_generalise_class_indices) {
  Problem p = problem({9, 4}, kF64, 5, true);
  Tensor one_hot = empty({9, 4}, {kF64});
  for (int64_t i = 0; i < 36; ++i) set_element(one_hot, i, element(p.target, i / 4) == static_cast<double>(i % 4));
  for (const double smoothing : {0.0, 0.1}) {
    EXPECT_TRUE(near(cross_entropy(p.x, one_hot, p.weight, -100, Reduction::none, smoothing),
                     elements(cross_entropy(p.x, p.target, p.weight, -100, Reduction::none, smoothing)), 1e-13));
    // Against probabilities the mean is over samples, not over weights.
    const double sum = element(cross_entropy(p.x, p.target, p.weight, -100, Reduction::sum, smoothing), 0);
    EXPECT_TRUE(near(cross_entropy(p.x, one_hot, p.weight, -100, Reduction::mean, smoothing), {sum / 9}, 1e-13));
  }
}

TEST(loss, regression_losses_match_their_formulas_and_broadcast) {
  for (const DType dtype : {kF32, kF64, kBF16}) {
    const Tensor x = sample({5, 4}, dtype, 6), y = sample({4}, dtype, 7);
    struct Form {
      std::function<Tensor(Reduction)> run;
      std::function<double(double)> of;
    };
    const Form forms[] = {
        {[&](Reduction r) { return mse_loss(x, y, r); }, [](double d) { return d * d; }},
        {[&](Reduction r) { return l1_loss(x, y, r); }, [](double d) { return std::fabs(d); }},
        {[&](Reduction r) { return huber_loss(x, y, r, 0.75); },
         [](double d) { return std::fabs(d) <= 0.75 ? d * d / 2 : 0.75 * (std::fabs(d) - 0.375); }},
        {[&](Reduction r) { return smooth_l1_loss(x, y, r, 0.5); },
         [](double d) { return std::fabs(d) <= 0.5 ? d * d : std::fabs(d) - 0.25; }},
        {[&](Reduction r) { return smooth_l1_loss(x, y, r, 0); }, [](double d) { return std::fabs(d); }},
    };
    for (const Form& form : forms) {
      Expected e;
      for (int64_t i = 0; i < 20; ++i) {
        e.losses.push_back(form.of(element(x, i) - element(y, i % 4)));
        e.total += e.losses.back();
        e.weight += 1;
      }
      for (const Reduction r : kReductions) EXPECT_TRUE(near(form.run(r), e.result(r), 4 * tolerance(dtype)));
    }
  }
}

TEST(loss, binary_cross_entropy_with_logits_is_right_for_huge_logits_too) {
  const std::vector<double> logits = {0, 3, -3, 50, -50, 300, -300, 0.5}, targets = {0, 1, 0.25, 1, 1, 0, 0, 0.5};
  for (const DType dtype : {kF32, kF64}) {
    const Tensor x = tensor_of({8}, dtype, logits).requires_grad_(), y = tensor_of({8}, dtype, targets),
                 weight = tensor_of({8}, dtype, {1, 2, 1, 1, 0.5, 1, 1, 3});
    const Tensor pos_weight = tensor_of({1}, dtype, {2.5});
    std::vector<double> plain, weighted, slopes;
    for (size_t i = 0; i < 8; ++i) {
      const long double l = logits[i], t = targets[i];
      const auto softplus = [](long double v) {
        return v > 0 ? v + std::log1p(std::exp(-v)) : std::log1p(std::exp(v));
      };
      plain.push_back(static_cast<double>(t * softplus(-l) + (1 - t) * softplus(l)));
      weighted.push_back(element(weight, static_cast<int64_t>(i)) *
                         static_cast<double>(2.5L * t * softplus(-l) + (1 - t) * softplus(l)));
      slopes.push_back(static_cast<double>(1 / (1 + std::exp(-l)) - t));
    }
    EXPECT_TRUE(near(binary_cross_entropy_with_logits(x, y, {}, Reduction::none), plain, tolerance(dtype)));
    EXPECT_TRUE(
        near(binary_cross_entropy_with_logits(x, y, weight, Reduction::none, pos_weight), weighted, tolerance(dtype)));
    EXPECT_TRUE(near(autograd::grad({binary_cross_entropy_with_logits(x, y, {}, Reduction::sum)}, {x})[0], slopes,
                     tolerance(dtype)));
  }
}

TEST(loss, results_do_not_depend_on_the_number_of_threads) {
  const Problem p = problem({1031, 257}, kF32, 8, true);
  const Tensor x = p.x.requires_grad_();
  expect_same_for_all_thread_counts([&] {
    const Tensor loss = cross_entropy(x, p.target, p.weight, 3, Reduction::mean, 0.1),
                 nll = nll_loss(x, p.target, p.weight, 3);
    return std::vector<Tensor>{loss, nll, autograd::grad({loss}, {x})[0], autograd::grad({nll}, {x})[0]};
  });
}

TEST(loss, huber_and_smooth_l1_of_16_bits_are_rounded_once) {
  for (const DType t : kNarrowDTypes) {
    const Tensor x = randn({500}).to(t), y = randn({500}).to(t), wide_x = x.to(kF32), wide_y = y.to(kF32);
    EXPECT_TRUE(
        same_bits(huber_loss(x, y, Reduction::none, 0.7), huber_loss(wide_x, wide_y, Reduction::none, 0.7).to(t)));
    EXPECT_TRUE(same_bits(smooth_l1_loss(x, y, Reduction::none, 0.7),
                          smooth_l1_loss(wide_x, wide_y, Reduction::none, 0.7).to(t)));
    EXPECT_EQ(huber_loss(x, y).dtype(), t);
  }
  EXPECT_EQ(huber_loss(tensor({1.0}).to(kF16), tensor({3.0})).dtype(), kF32);
}

TEST(loss, wrong_arguments_are_refused_with_the_operands_named) {
  const Tensor x = sample({2, 3}, kF32, 1), target = tensor_of({2}, kI64, {0, 3});
  if (x.device().is_cpu()) {
    expect_error<IndexError>([&] { cross_entropy(x, target); },
                             "cross_entropy: a target is no class; got 3 at position 1 for 3 classes; expected 0 to 2");
    expect_error<IndexError>(
        [&] {
          nll_loss(x, tensor_of({2}, kI64, {-1, 0}));
        },
        "nll_loss: a target is no class; got -1 at position 0");
  } else {  // which position it was, a GPU does not say
    expect_error<IndexError>(
        [&] {
          cross_entropy(x, target);
          device::synchronize(default_device());
        },
        "cross_entropy: a target is not a class; got 3; expected 0 to 2");
    expect_error<IndexError>(
        [&] {
          nll_loss(x, tensor_of({2}, kI64, {-1, 0}));
          device::synchronize(default_device());
        },
        "nll_loss: a target is not a class; got -1");
  }
  expect_error<ShapeError>(
      [&] {
        cross_entropy(x, tensor_of({3}, kI64, {0, 0, 0}));
      },
      "cross_entropy: sizes do not fit; got x: [2, 3] f32 cpu, target: [3] i64 cpu");
  expect_error<ShapeError>([&] { cross_entropy(x, sample({2}, kF32, 1)); },
                           "cross_entropy: class probabilities need x's sizes");
  expect_error<ShapeError>(
      [&] {
        nll_loss(x, tensor_of({2}, kI64, {0, 0}), sample({2}, kF32, 1));
      },
      "nll_loss: one weight a class is needed");
  expect_error<DTypeError>(
      [&] {
        cross_entropy(sample({2, 3}, kI32, 1), target);
      },
      "cross_entropy: the input is not floating");
  expect_error<DTypeError>([&] { nll_loss(x, sample({2}, kBool, 1)); }, "nll_loss: targets are not class indices");
  expect_error<ValueError>([&] { cross_entropy(x, target, {}, -100, Reduction::mean, 1.5); },
                           "cross_entropy: label_smoothing out of range; got 1.5");
  expect_error<ValueError>([&] { huber_loss(x, x, Reduction::mean, 0); }, "huber_loss: delta must be positive");
  expect_error<DTypeError>([&] { mse_loss(target, target); }, "mse_loss: neither operand is floating");
  expect_error<ShapeError>([&] { binary_cross_entropy_with_logits(x, sample({3}, kF32, 1)); },
                           "binary_cross_entropy_with_logits: sizes differ");
}

}  // namespace
}  // namespace lorry::test
