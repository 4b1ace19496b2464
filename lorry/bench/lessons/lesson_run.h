#pragma once

// LessonRun: how a lesson measures. A lesson is a function that makes comparisons:
//
//   void layout(LessonRun& run) {
//     // given: sums of the columns of a transposed matrix
//     const Tensor x = randn({n, n}).t();
//
//     run.compare("sums of the columns of a transposed matrix");
//     run.way("copied first", {.bytes = 3.0 * x.nbytes()}, [&] { return x.contiguous().sum({0}); });
//     run.way("summed as it is", {.bytes = 1.0 * x.nbytes()}, [&] { return x.sum({0}); });
//     run.conclude({.faster = "...", .same = "...", .slower = "..."});
//   }
//
// The names are string literals, by which the code that is shown is found in the source (source.h).

#include <type_traits>
#include <utility>

#include "lorry/autograd/grad_mode.h"
#include "lorry/base/units.h"
#include "lorry/bench/lessons.h"
#include "lorry/device/device.h"
#include "lorry/memory/memory.h"
#include "lorry/profile/benchmark.h"

namespace lorry::bench::lessons {

/// What a comparison says for a ratio: if the good way is faster, if both are the same within the noise, or if the good
/// way is slower.
struct Conclusion {
  std::string faster, same, slower;
  bool clocks = false;  ///< the ways measure one call, and the first measures it wrongly
};

/// What is counted in one further call of each way, and becomes a figure of it.
struct Counting {
  bool memory = false;       ///< the most that tensors took beyond what they took before
  bool waits = false;        ///< how often the host waited for a device
  bool launches = false;     ///< kernels; only on a GPU
  bool page_faults = false;  ///< of this process
};

class LessonRun {
 public:
  LessonRun(Lesson& lesson, const Settings& settings, const Ceilings& ceilings, std::string_view source)
      : lesson_(lesson), settings_(settings), ceilings_(ceilings), source_(source) {}

  Device device() const { return settings_.device; }
  bool on_gpu() const { return !settings_.device.is_cpu(); }
  /// The first on a CPU, the second on a GPU.
  template <class T>
  T pick(T cpu, T gpu) const {
    return on_gpu() ? gpu : cpu;
  }
  const Settings& settings() const { return settings_; }
  const Ceilings& ceilings() const { return ceilings_; }

  /// Begins a comparison. Its code before the timed part is the paragraph "// given: key" of the source.
  void compare(const char* key, const std::string& title = {}, const Counting& counting = {});
  /// Measures a way: the median of many calls of fn().
  template <class F>
  Way& way(const char* key, const Work& work, F&& fn) {
    return way(key, key, work, fn);
  }
  /// The same under another name: ways in a loop share one text of code.
  template <class F>
  Way& way(const char* key, const std::string& name, const Work& work, F&& fn) {
    Way& way = add(key, name, work, profile::benchmark([&] { keep(fn); }, options()));
    count(way, [&] { keep(fn); });
    return way;
  }
  /// The same for calls that need an input of their own: setup() makes it, and is not timed.
  template <class Setup, class F>
  Way& way_with_setup(const char* key, const Work& work, Setup&& setup, F&& fn) {
    profile::BenchmarkOptions how = options();
    how.max_inputs = 1;
    const auto call = [&](auto& input) { keep([&] { return fn(input); }); };
    Way& way = add(key, key, work, profile::benchmark(setup, call, how));
    auto input = setup();
    count(way, [&] { call(input); });
    return way;
  }
  /// Adds a way that was timed elsewhere: once, or in another process.
  Way& add(const char* key, const std::string& name, const Work& work, const profile::BenchmarkResult& time);

  /// Sets which way the first is compared to (default: the last), and says what their ratio means.
  void conclude(const Conclusion& conclusion, std::optional<size_t> good = {});
  /// Adds a sentence to the reasons of the last comparison, after those that follow from the ceilings.
  void because(const std::string& sentence);
  /// Adds something that was tried, its code, and what became of it.
  void tried(const std::string& what, const std::string& code, const std::string& outcome) {
    lesson_.tried.push_back({what, code, outcome});
  }
  void note(const std::string& sentence) { lesson_.notes.push_back(sentence); }
  void absent(const std::string& sentence) { lesson_.absent.push_back(sentence); }
  /// Says that a part of the lesson needs a GPU, and why there is none.
  void needs_gpu(const std::string& what);

  Comparison& last() { return lesson_.comparisons.back(); }

 private:
  /// Short measurements of the device.
  profile::BenchmarkOptions options() const {
    return {.warmup_s = settings_.seconds / 4,
            .sample_s = settings_.seconds / 50,
            .total_s = settings_.seconds,
            .min_samples = 5,
            .device = settings_.device};
  }
  template <class F>
  static void keep(F&& fn) {
    if constexpr (std::is_void_v<std::invoke_result_t<F&>>)
      fn();
    else
      profile::do_not_optimize(fn());
  }

  /// Adds the figures that the comparison counts.
  void count(Way& way, const std::function<void()>& call) const;

  Lesson& lesson_;
  Counting counting_;
  const Settings& settings_;
  const Ceilings& ceilings_;
  std::string_view source_;
};

/// "2.13", "12.4", "130": a ratio in three digits.
std::string ratio_text(double ratio);

}  // namespace lorry::bench::lessons
