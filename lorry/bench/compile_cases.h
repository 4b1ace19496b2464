#pragma once

// Compiled functions beside the same functions as they are, two rows a case. Nothing is reported of a case whose two
// sides differ in a bit.

#include <optional>
#include <string>
#include <vector>

#include "lorry/bench/footprint.h"
#include "lorry/bench/suites.h"
#include "lorry/compile/compile.h"
#include "lorry/profile/ceilings.h"

namespace lorry::bench {

/// Throws CompileError, which names the case, unless the two have the same dtype, sizes and bits.
void require_same_bits(const std::string& name, const Tensor& eager, const Tensor& compiled);

/// What a case says of itself.
struct CompileCase {
  std::string name;
  std::optional<int64_t> bytes = {};   ///< that a call must read and write once, however it is run
  std::optional<int64_t> tokens = {};  ///< that a call trains on
};

class CompileCases {
 public:
  explicit CompileCases(const Filter& filter) : filter_(filter) {}

  bool wants(const std::string& name) const { return filter_(name); }
  std::vector<Result> rows() const { return rows_; }

  /// A function of tensors that changes none of them: rows of its calls, as it is and compiled, and of the first call
  /// of the compiled one.
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

  /// Recorded calls return when their kernels are compiled.
  static CompileOptions options() { return {.wait = true}; }

  /// Rows of eager() and call(), which calls `compiled`. Both return a tensor and may change what they work on, alike;
  /// the results of their first four calls are compared. False where the compiled function runs as it is: then there is
  /// no row of it, which is said. Throws CompileError for results that differ.
  template <class Eager, class Compiled, class Call>
  bool compare(const CompileCase& about, Eager&& eager, const Compiled& compiled, Call&& call) {
    for (int round = 0; round < 4; ++round) {
      const Tensor expected = eager();
      require_same_bits(about.name, expected, call());
    }
    add_row(about, kEager, eager);
    if (compiled.stats().hits == 0) {
      say_uncompiled(about, compiled.stats());
      return false;
    }
    Result& row = add_row(about, kCompiled, call);
    row.recordings = compiled.stats().recordings;
    row.variants = compiled.stats().variants;
    return true;
  }

  /// A row of the first call of what make() makes, which records and compiles. On a GPU this process has the kernels
  /// by now: lorry_first_compiled measures there.
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

  template <class F>
  Result& add_row(const CompileCase& about, const char* implementation, F&& call) {
    Result& row = rows_.emplace_back(head(about, implementation));
    count_call(row, [&] { profile::do_not_optimize(call()); });
    row.time = profile::benchmark([&] { profile::do_not_optimize(call()); }, {.device = row.device});
    if (about.bytes) {
      row.bytes = about.bytes;
      row.ratio_to_ceiling = static_cast<double>(*row.bytes) / row.time.median_us / copies_.of(*row.bytes);
    }
    if (about.tokens) row.tokens_per_s = 1e6 * static_cast<double>(*about.tokens) / row.time.median_us;
    return row;
  }

  const Filter& filter_;
  profile::CopyRate copies_{default_device()};
  std::vector<Result> rows_;
};

}  // namespace lorry::bench
