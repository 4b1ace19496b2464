#pragma once

// The timer. benchmark(fn) measures the time of a call: it warms up, chooses how many calls make a sample that the
// clock can resolve, and takes samples for a second; on a GPU a sample ends when the device is done. Making a call's
// inputs is not timed, and a Rotation keeps inputs out of the caches.
//
//   const Tensor x = randn({1 << 20}), y = randn({1 << 20});
//   const profile::BenchmarkResult add = profile::benchmark([&] { profile::do_not_optimize(x.add(y)); });
//   fmt::print("{:.1f} us, least {:.1f}\n", add.median_us, add.min_us);

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "lorry/layout/device.h"
#include "lorry/profile/sampling.h"
#include "lorry/tensor/tensor.h"

namespace lorry::profile {

struct BenchmarkOptions {
  double warmup_s = 0.2;     ///< duration of the warm-up; 0: no warm-up, and each sample is a single call
  double sample_s = 0.0005;  ///< duration of a sample; on a GPU at least 0.004
  double total_s = 1.0;      ///< samples are taken for this long,
  int64_t min_samples = 9;   ///< and until there are this many
  int64_t max_inputs = 128;  ///< with a set-up: maximum of inputs that exist at once, and so of calls per sample
  Device device = default_device();  ///< the device of the calls; a sample ends when it is done
};

/// Options that measure a single call, the first one.
inline BenchmarkOptions first_call(Device device) {
  return {.warmup_s = 0, .total_s = 0, .min_samples = 1, .device = device};
}

namespace detail {
/// Throws ValueError for invalid options, DeviceError for a device that does not exist.
BenchmarkResult benchmark(const Calls& calls, const BenchmarkOptions& options, bool has_setup);
PairResult benchmark_pair(const Calls& first, const Calls& second, const BenchmarkOptions& options);
/// Calls of f, as the samplers take them. f must outlive them.
template <class F>
Calls calls_of(F& f) {
  return {.run = [&f](int64_t count) {
    for (int64_t i = 0; i < count; ++i) f();
  }};
}
}  // namespace detail

/// Measures a call of fn(). Throws ValueError for invalid options, DeviceError for a device that does not exist, and
/// the errors of fn.
template <class F>
requires std::invocable<F&> BenchmarkResult benchmark(F&& fn, const BenchmarkOptions& options = {}) {
  return detail::benchmark(detail::calls_of(fn), options, false);
}

/// Measures first() and second() side by side. Samples of the two alternate, so a clock that changes or another program
/// that starts meets both, and each pair of neighbouring samples gives a ratio and a difference. Both are warmed up;
/// options.total_s is the time for both together. Throws the errors of benchmark, and those of both.
///
///   const profile::PairResult r = profile::benchmark_pair([&] { eager(x); }, [&] { compiled(x); });
///   fmt::print("{:.2f} of the time ({:.2f} to {:.2f})\n", r.ratio, r.ratio_low, r.ratio_high);
template <class F, class G>
requires std::invocable<F&> && std::invocable<G&> PairResult benchmark_pair(F&& first, G&& second,
                                                                            const BenchmarkOptions& options = {}) {
  return detail::benchmark_pair(detail::calls_of(first), detail::calls_of(second), options);
}

/// Measures a call of fn(input). Each call gets an input of its own, made by setup() before the clock starts and
/// destroyed after it has stopped: for calls that change their input. Throws the same errors, and those of setup.
template <class Setup, class F>
requires std::invocable < F&, std::invoke_result_t<Setup&>
& > BenchmarkResult benchmark(Setup&& setup, F&& fn, const BenchmarkOptions& options = {}) {
  std::vector<std::invoke_result_t<Setup&>> inputs;
  return detail::benchmark({.run =
                                [&](int64_t) {
                                  for (auto& input : inputs) fn(input);
                                },
                            .set_up =
                                [&](int64_t count) {
                                  for (int64_t i = 0; i < count; ++i) inputs.push_back(setup());
                                },
                            .tear_down = [&] { inputs.clear(); }},
                           options, true);
}

/// Keeps the compiler from removing a computation whose result is not used.
template <class T>
inline void do_not_optimize(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

/// More bytes than the caches of any present-day processor hold.
int64_t bytes_beyond_caches(Device device);

/// The number of inputs of `bytes` bytes that together exceed the caches; at least 1. Throws ValueError for 0 bytes.
int64_t rotation_length(int64_t bytes, Device device);

/// Inputs used in turn, so that a call does not find its input in a cache. A call that moves fewer bytes than the
/// caches hold would otherwise be measured at cache speed.
///
///   profile::Rotation inputs([] { return randn({1 << 16}); }, 4 << 16);
///   profile::benchmark([&] { profile::do_not_optimize(inputs.next().sum()); });
template <class T>
class Rotation {
 public:
  /// Makes as many inputs with make() as together exceed the caches of `device`, with `bytes` each. Throws ValueError
  /// for 0 bytes.
  template <class Make>
  Rotation(Make&& make, int64_t bytes, Device device = default_device()) {
    const int64_t length = rotation_length(bytes, device);
    for (int64_t i = 0; i < length; ++i) inputs_.push_back(make());
  }
  /// The next input.
  T& next() {
    T& input = inputs_[turn_];
    turn_ = turn_ + 1 < inputs_.size() ? turn_ + 1 : 0;
    return input;
  }
  int64_t size() const { return static_cast<int64_t>(inputs_.size()); }

 private:
  std::vector<T> inputs_;
  size_t turn_ = 0;
};
template <class Make>
Rotation(Make&&, int64_t) -> Rotation<std::invoke_result_t<Make&>>;
template <class Make>
Rotation(Make&&, int64_t, Device) -> Rotation<std::invoke_result_t<Make&>>;

}  // namespace lorry::profile
