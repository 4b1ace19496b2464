#pragma once

// The timer. benchmark(fn) says what a call costs: it warms up, chooses how many calls make a sample that the clock can
// resolve, takes samples for a second, and on a GPU ends each when the device is done. What makes the inputs of a call
// is kept out of the timed part, and a Rotation keeps inputs out of the caches.
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
  double warmup_s = 0.2;     ///< calls are made for so long first; 0: no warm-up, and each sample is a single call
  double sample_s = 0.0005;  ///< a sample is as many calls as take so long, on a GPU 0.004 at least
  double total_s = 1.0;      ///< samples are taken for so long,
  int64_t min_samples = 9;   ///< and until there are so many
  int64_t max_inputs = 128;  ///< with a set-up: inputs that exist at once, and so the most calls in a sample
  Device device = default_device();  ///< on which the calls work; a sample ends when it is done
};

/// Options that measure one single call, the first one.
inline BenchmarkOptions first_call(Device device) {
  return {.warmup_s = 0, .total_s = 0, .min_samples = 1, .device = device};
}

namespace detail {
/// Throws ValueError for options that make no sense, DeviceError for a device that does not exist.
BenchmarkResult benchmark(const Calls& calls, const BenchmarkOptions& options, bool has_setup);
}  // namespace detail

/// What a call of fn() costs. Throws ValueError for options that make no sense, DeviceError for a device that does not
/// exist, and whatever fn throws.
template <class F>
requires std::invocable<F&> BenchmarkResult benchmark(F&& fn, const BenchmarkOptions& options = {}) {
  return detail::benchmark({.run =
                                [&](int64_t count) {
                                  for (int64_t i = 0; i < count; ++i) fn();
                                }},
                           options, false);
}

/// What a call of fn(input) costs, where each call gets an input of its own, made by setup() before the clock runs and
/// destroyed after it has stopped: for calls that change their input. Throws as above, and what setup throws.
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

/// Keeps the compiler from dropping a computation whose result nobody reads.
template <class T>
inline void do_not_optimize(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

/// Bytes that no cache of a processor of today holds.
int64_t bytes_beyond_caches(Device device);

/// How many inputs of so many bytes exceed the caches together; 1 at least. Throws ValueError for no bytes.
int64_t rotation_length(int64_t bytes, Device device);

/// Inputs that take turns, so that a call does not find its own in a cache: a call that moves fewer bytes than the
/// caches hold would be timed at their speed.
///
///   profile::Rotation inputs([] { return randn({1 << 16}); }, 4 << 16);
///   profile::benchmark([&] { profile::do_not_optimize(inputs.next().sum()); });
template <class T>
class Rotation {
 public:
  /// As many results of make() as exceed the caches of `device` together, at `bytes` each. Throws ValueError for no
  /// bytes.
  template <class Make>
  Rotation(Make&& make, int64_t bytes, Device device = default_device()) {
    const int64_t length = rotation_length(bytes, device);
    for (int64_t i = 0; i < length; ++i) inputs_.push_back(make());
  }
  /// The one whose turn it is.
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
