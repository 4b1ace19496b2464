#pragma once

// Compiled functions compared with the same functions run eagerly: two rows per case. A case whose results differ in a
// bit, or by more than its tolerance, is not reported.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lorry/bench/footprint.h"
#include "lorry/bench/suites.h"
#include "lorry/compile/compile.h"
#include "lorry/profile/ceilings.h"

namespace lorry::bench {

/// Throws CompileError that names the case unless both have the same dtype, sizes and bits.
void require_same_bits(const std::string& name, const Tensor& eager, const Tensor& compiled);

/// The description of a case.
struct CompileCase {
  std::string name;
  std::optional<int64_t> bytes = {};   ///< bytes that a call must read and write once in any case
  std::optional<int64_t> tokens = {};  ///< tokens that a call trains on
  DType dtype = kF32;                  ///< of the row
  double tolerance = 0;  ///< by which results may differ, relative to the largest element; 0: the same bits
};

/// Throws CompileError that names the case unless both have the same dtype and sizes, and elements within its
/// tolerance.
void require_same(const CompileCase& about, const Tensor& eager, const Tensor& compiled);

class CompileCases {
 public:
  explicit CompileCases(const Filter& filter) : filter_(filter) {}

  bool wants(const std::string& name) const { return filter_(name); }
  std::vector<Result> rows() const { return rows_; }

  /// A function that does not change its tensors: rows for its calls, eager and compiled, and for the first call of the
  /// compiled function.
  template <class F, class... A>
  void add(const CompileCase& about, const F& function, const A&... arguments) {
    if (!wants(about.name)) return;
    const auto compiled = lorry::compile(function, options());
    const auto eager = [&] { return function(arguments...); };
    if (compare(about, eager, compiled, [&] { return compiled(arguments...); }))
      add_first(
          about, [&] { return lorry::compile(function, options()); },
          [&](const auto& fresh) { return fresh(arguments...); });
  }

  /// Recorded calls wait until their kernels are compiled.
  static CompileOptions options() { return {.wait = true}; }

  /// Rows for eager() and for call(), which calls `compiled`, measured side by side. Both return a tensor and may
  /// change their state, in the same way; the results of their first four calls are compared. Returns false if the
  /// compiled function runs uncompiled: then this is printed and there is no row for it. Throws CompileError if results
  /// differ.
  template <class Eager, class Compiled, class Call>
  bool compare(const CompileCase& about, Eager&& eager, const Compiled& compiled, Call&& call) {
    for (int round = 0; round < 4; ++round) {
      const Tensor expected = eager();
      require_same(about, expected, call());
    }
    const auto eager_call = [&] { profile::do_not_optimize(eager()); };
    const auto compiled_call = [&] { profile::do_not_optimize(call()); };
    Result before = head(about, kEager), after = head(about, kCompiled);
    const profile::BenchmarkOptions options{.total_s = 2, .device = before.device};
    count_call(before, eager_call);
    if (compiled.stats().hits == 0) {
      before.time = profile::benchmark(eager_call, {.device = before.device});
      add_row(about, before);
      say_uncompiled(about, compiled.stats());
      return false;
    }
    count_call(after, compiled_call);
    const profile::PairResult pair = profile::benchmark_pair(eager_call, compiled_call, options);
    before.time = pair.first;
    after.time = pair.second;
    after.compared_with = kEager;
    after.difference_us = pair.difference_us;
    after.difference_low_us = pair.difference_low_us;
    after.difference_high_us = pair.difference_high_us;
    after.recordings = compiled.stats().recordings;
    after.variants = compiled.stats().variants;
    add_row(about, before);
    add_row(about, after);
    return true;
  }

  /// A row for the first call of a function made by make(), which records and compiles. On a GPU this process has
  /// compiled the kernels already; lorry_first_compiled measures that case.
  template <class Make, class Call>
  void add_first(const CompileCase& about, Make&& make, Call&& call) {
    if (!default_device().is_cpu()) return;
    Result& row = rows_.emplace_back(head(about, kCompiled));
    row.name += ", the first call";
    row.time = profile::benchmark(make, [&](auto& fresh) { profile::do_not_optimize(call(fresh)); },
                                  {.warmup_s = 0, .total_s = 0.2, .min_samples = 5, .device = row.device});
  }

 private:
  static constexpr const char *kEager = "lorry eager", *kCompiled = "lorry compiled";

  static Result head(const CompileCase& about, const char* implementation);
  static void say_uncompiled(const CompileCase& about, const CompileStats& stats);

  /// Adds a row whose time is known.
  void add_row(const CompileCase& about, Result row) {
    if (about.bytes) {
      row.bytes = about.bytes;
      row.ratio_to_ceiling = static_cast<double>(*row.bytes) / row.time.median_us / copies_.of(*row.bytes);
    }
    if (about.tokens) row.tokens_per_s = 1e6 * static_cast<double>(*about.tokens) / row.time.median_us;
    rows_.push_back(std::move(row));
  }

  const Filter& filter_;
  profile::CopyRate copies_{default_device()};
  std::vector<Result> rows_;
};

}  // namespace lorry::bench
