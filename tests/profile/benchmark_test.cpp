// What benchmark() reports, with a clock that moves only when a call says how long it takes: every figure is exact.

#include "lorry/profile/benchmark.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "lorry/base/error.h"
#include "lorry/lorry.h"

namespace lorry::profile {
namespace {

/// A machine whose calls take the seconds that a test says, on the host and then on the device.
struct Machine {
  double now = 0, device_done = 0;
  int64_t calls = 0, synchronisations = 0;

  void call(double host, double device) {
    ++calls;
    now += host;
    device_done = std::max(device_done, now) + device;
  }
  detail::Instruments instruments() {
    return {.seconds = [this] { return now; },
            .synchronize =
                [this] {
                  ++synchronisations;
                  now = std::max(now, device_done);
                }};
  }
};

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

TEST(Benchmark, a_sample_is_as_many_calls_as_take_the_time_asked_for) {
  Machine machine;
  const detail::Calls calls{.run = [&](int64_t n) {
    for (; n > 0; --n) machine.call(0.25, 0);
  }};
  const BenchmarkResult result = detail::take_samples(
      calls, {.warmup_s = 1, .sample_s = 2, .total_s = 20, .min_samples = 1, .max_calls_per_sample = kNoLimit},
      machine.instruments());
  EXPECT_EQ(result.calls_per_sample, 8);
  EXPECT_EQ(result.samples, 10);
  EXPECT_EQ(machine.calls, 4 + 8 * 10);  // warm-up, then samples
  EXPECT_EQ(result.median_us, 0.25e6);
  EXPECT_EQ(result.min_us, 0.25e6);
  EXPECT_EQ(result.p90_us, 0.25e6);
  EXPECT_EQ(result.spread, 0);
}

TEST(Benchmark, percentiles_are_those_of_the_samples) {
  // Eleven samples of one call: 11, 10, ..., 1 seconds.
  Machine machine;
  double next = 11;
  const detail::Calls calls{.run = [&](int64_t) { machine.call(next--, 0); }};
  const BenchmarkResult result = detail::take_samples(
      calls, {.warmup_s = 0, .sample_s = 1, .total_s = 0, .min_samples = 11, .max_calls_per_sample = kNoLimit},
      machine.instruments());
  EXPECT_EQ(result.samples, 11);
  EXPECT_EQ(result.calls_per_sample, 1);
  EXPECT_EQ(result.min_us, 1e6);
  EXPECT_EQ(result.median_us, 6e6);
  EXPECT_EQ(result.p90_us, 10e6);
  EXPECT_DOUBLE_EQ(result.spread, (8.0 - 3.0) / 6.0);
}

TEST(Benchmark, a_sample_ends_when_the_device_is_done_and_submission_before) {
  Machine machine;
  const detail::Calls calls{.run = [&](int64_t n) {
    for (; n > 0; --n) machine.call(0.125, 1);
  }};
  const BenchmarkResult result = detail::take_samples(
      calls, {.warmup_s = 4, .sample_s = 16, .total_s = 0, .min_samples = 3, .max_calls_per_sample = 16},
      machine.instruments());
  EXPECT_DOUBLE_EQ(result.submit_us, 0.125e6);
  // The first call of a sample reaches an idle device after 0.125 s; then the device is busy.
  EXPECT_DOUBLE_EQ(result.median_us, (0.125 + static_cast<double>(result.calls_per_sample)) /
                                         static_cast<double>(result.calls_per_sample) * 1e6);
}

TEST(Benchmark, a_long_warm_up_waits_for_the_device_now_and_then) {
  Machine machine;
  const detail::Calls calls{.run = [&](int64_t n) {
    for (; n > 0; --n) machine.call(1, 1);
  }};
  detail::take_samples(
      calls, {.warmup_s = 1000, .sample_s = 1, .total_s = 0, .min_samples = 1, .max_calls_per_sample = kNoLimit},
      machine.instruments());
  EXPECT_GE(machine.synchronisations, 1000 / 64 + 2);
}

TEST(Benchmark, what_sets_up_a_call_is_not_timed) {
  Machine machine;
  int64_t inputs = 0, most = 0;
  const detail::Calls calls{.run =
                                [&](int64_t n) {
                                  EXPECT_EQ(inputs, n);
                                  for (; n > 0; --n) machine.call(0.5, 0);
                                },
                            .set_up =
                                [&](int64_t n) {
                                  inputs = n;
                                  most = std::max(most, n);
                                  machine.call(100, 100);
                                },
                            .tear_down =
                                [&] {
                                  inputs = 0;
                                  machine.now += 50;
                                }};
  const BenchmarkResult result = detail::take_samples(
      calls, {.warmup_s = 1, .sample_s = 1000, .total_s = 0, .min_samples = 5, .max_calls_per_sample = 6},
      machine.instruments());
  EXPECT_EQ(result.median_us, 0.5e6);
  EXPECT_EQ(result.submit_us, 0.5e6);
  EXPECT_EQ(result.calls_per_sample, 6);
  EXPECT_EQ(most, 6);
  EXPECT_EQ(inputs, 0);
}

/// Calls that take the seconds that next() says.
template <class F>
detail::Calls taking(Machine& machine, F next) {
  return {.run = [&machine, next](int64_t n) mutable {
    for (; n > 0; --n) machine.call(next(), 0);
  }};
}

TEST(BenchmarkPair, samples_alternate_and_each_has_its_own_number_of_calls) {
  Machine machine;
  std::string order;
  const detail::Calls first{.run = [&](int64_t n) {
    order += 'a';
    for (; n > 0; --n) machine.call(0.5, 0);
  }};
  const detail::Calls second{.run = [&](int64_t n) {
    order += 'b';
    for (; n > 0; --n) machine.call(0.125, 0);
  }};
  const PairResult result = detail::take_pairs(
      first, second, {.warmup_s = 1, .sample_s = 2, .total_s = 0, .min_samples = 4, .max_calls_per_sample = kNoLimit},
      machine.instruments());
  EXPECT_EQ(order.substr(order.size() - 8), "abbaabba");
  EXPECT_EQ(result.first.samples, 4);
  EXPECT_EQ(result.second.samples, 4);
  EXPECT_EQ(result.first.calls_per_sample, 4);
  EXPECT_EQ(result.second.calls_per_sample, 16);
  EXPECT_EQ(result.first.median_us, 0.5e6);
  EXPECT_EQ(result.second.median_us, 0.125e6);
  EXPECT_EQ(result.ratio, 0.25);
  EXPECT_EQ(result.ratio_low, 0.25);
  EXPECT_EQ(result.ratio_high, 0.25);
  EXPECT_EQ(result.difference_us, -0.375e6);
  EXPECT_TRUE(result.differ());
}

TEST(BenchmarkPair, a_machine_that_slows_down_changes_both_and_not_their_ratio) {
  Machine machine;
  double a = 1, b = 2;
  const PairResult result = detail::take_pairs(
      taking(machine, [&] { return a *= 1.5; }), taking(machine, [&] { return b *= 1.5; }),
      {.warmup_s = 0, .sample_s = 1, .total_s = 0, .min_samples = 20, .max_calls_per_sample = kNoLimit},
      machine.instruments());
  EXPECT_DOUBLE_EQ(result.ratio, 2);
  EXPECT_DOUBLE_EQ(result.ratio_low, 2);
  EXPECT_DOUBLE_EQ(result.ratio_high, 2);
  EXPECT_GT(result.first.p90_us, 100 * result.first.min_us);
}

TEST(BenchmarkPair, the_interval_is_that_of_the_sign_test) {
  // The k-th smallest and k-th largest of n hold the median with 1 - 2 P(B < k), B of n tosses of a coin.
  struct Row {
    int64_t pairs;
    int64_t rank;
    double confidence;
  };
  for (const Row& row : {Row{1, 1, 0.0}, Row{5, 1, 0.9375}, Row{6, 1, 0.96875}, Row{9, 2, 0.9609375},
                         Row{10, 2, 0.978515625}, Row{15, 4, 0.96484375}}) {
    Machine machine;
    int64_t next = 0;
    // The ratios are 1 / pairs, 2 / pairs, ..., 1.
    const PairResult result = detail::take_pairs(
        taking(machine, [&] { return static_cast<double>(row.pairs); }),
        taking(machine, [&] { return static_cast<double>(++next); }),
        {.warmup_s = 0, .sample_s = 1, .total_s = 0, .min_samples = row.pairs, .max_calls_per_sample = 1},
        machine.instruments());
    const double n = static_cast<double>(row.pairs);
    EXPECT_NEAR(result.confidence, row.confidence, 1e-12) << row.pairs;
    EXPECT_DOUBLE_EQ(result.ratio_low, static_cast<double>(row.rank) / n) << row.pairs;
    EXPECT_DOUBLE_EQ(result.ratio_high, static_cast<double>(row.pairs + 1 - row.rank) / n) << row.pairs;
    EXPECT_DOUBLE_EQ(result.difference_low_us, 1e6 * (static_cast<double>(row.rank) - n)) << row.pairs;
  }
}

TEST(BenchmarkPair, calls_of_a_program_can_be_compared) {
  int64_t first = 0, second = 0;
  const PairResult result =
      benchmark_pair([&] { ++first; }, [&] { ++second; }, {.warmup_s = 1e-3, .total_s = 1e-3, .device = kCPU});
  EXPECT_GT(first, 0);
  EXPECT_GT(second, 0);
  EXPECT_EQ(result.first.samples, result.second.samples);
  EXPECT_LE(result.ratio_low, result.ratio);
  EXPECT_LE(result.ratio, result.ratio_high);
  EXPECT_THROW(benchmark_pair([] {}, [] { throw std::runtime_error("as expected"); }), std::runtime_error);
  EXPECT_THROW(benchmark_pair([] {}, [] {}, {.total_s = -1}), ValueError);
}

TEST(Benchmark, the_first_call_alone_can_be_measured) {
  int calls = 0;
  const BenchmarkResult result = benchmark([&] { ++calls; }, first_call(kCPU));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(result.samples, 1);
  EXPECT_GT(result.median_us, 0);
}

TEST(Benchmark, each_call_gets_an_input_of_its_own) {
  int64_t made = 0, used = 0;
  std::vector<int64_t> seen;
  const BenchmarkResult result = benchmark([&] { return made++; },
                                           [&](int64_t& input) {
                                             EXPECT_EQ(input, used++);
                                             seen.push_back(input);
                                           },
                                           {.warmup_s = 1e-4, .total_s = 0, .min_samples = 3, .max_inputs = 7});
  EXPECT_EQ(made, used);
  EXPECT_LE(result.calls_per_sample, 7);
  EXPECT_GE(static_cast<int64_t>(seen.size()), 3 * result.calls_per_sample);
}

TEST(Benchmark, what_the_call_throws_arrives) {
  EXPECT_THROW(benchmark([] { throw std::runtime_error("as expected"); }), std::runtime_error);
}

TEST(Benchmark, options_that_make_no_sense_are_refused) {
  const auto nothing = [] {};
  EXPECT_THROW(benchmark(nothing, {.warmup_s = -1}), ValueError);
  EXPECT_THROW(benchmark(nothing, {.sample_s = std::nan("")}), ValueError);
  EXPECT_THROW(benchmark(nothing, {.total_s = std::numeric_limits<double>::infinity()}), ValueError);
  EXPECT_THROW(benchmark(nothing, {.min_samples = 0}), ValueError);
  EXPECT_THROW(benchmark(nothing, {.max_inputs = 0}), ValueError);
  EXPECT_THROW(benchmark(nothing, {.device = Device{DeviceType::cuda, 99}}), DeviceError);
}

TEST(Rotation, its_inputs_exceed_the_caches_together_and_take_turns) {
  const int64_t bytes = bytes_beyond_caches(kCPU) / 3 + 1;
  int made = 0;
  Rotation inputs([&] { return made++; }, bytes, kCPU);
  EXPECT_EQ(inputs.size(), 3);
  for (const int expected : {0, 1, 2, 0, 1}) EXPECT_EQ(inputs.next(), expected);
  EXPECT_EQ(made, 3);
  EXPECT_EQ(rotation_length(bytes_beyond_caches(kCPU), kCPU), 1);
  EXPECT_EQ(rotation_length(bytes_beyond_caches(kCPU) - 1, kCPU), 2);
  EXPECT_EQ(rotation_length(kNoLimit, kCPU), 1);
  EXPECT_THROW(rotation_length(0, kCPU), ValueError);
}

}  // namespace
}  // namespace lorry::profile
