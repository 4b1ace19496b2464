#pragma once

// A function and its compiled form over arguments of many sizes: the same bits, and the same errors.

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "lorry/compile/compile.h"
#include "tests/trace/support.h"

namespace lorry::test {

inline constexpr int64_t kLengths[] = {8, 16, 24, 33, 64, 7, 8, 100, 2, 24, 3};

/// Calls f and its compiled form with arguments of each length, and expects the same bits. Returns the statistics.
template <class F, class Make>
CompileStats expect_same_over(const F& f, const Compiled<F>& compiled, const Make& make,
                              std::span<const int64_t> lengths = kLengths) {
  for (const int64_t length : lengths) {
    SCOPED_TRACE(fmt::format("length {}\n{}", length, compiled.explain()));
    manual_seed(5);
    Outcome expected{.results = {}, .arguments = make(length)}, got{.results = {}, .arguments = make(length)};
    run_seeded(1, expected, [&](const Tensors& x) { return f(x); });
    run_seeded(1, got, [&](const Tensors& x) { return compiled(x); });
    expect_same(got, expected, "compiled");
  }
  return compiled.stats();
}

template <class F, class Make>
CompileStats expect_same_over(const F& f, const Make& make, const CompileOptions& options = {.wait = true},
                              std::span<const int64_t> lengths = kLengths) {
  return expect_same_over(f, compile(f, options), make, lengths);
}

/// One row of `length` elements, from a seed that makes the same elements for both executions.
inline Tensors row(int64_t length) {
  manual_seed(static_cast<uint64_t>(length));
  return {randn({length})};
}
inline Tensors rows(int64_t length) {
  manual_seed(static_cast<uint64_t>(length));
  return {randn({length, 12}), randn({12})};
}

inline Tensors wide(int64_t length) {
  manual_seed(static_cast<uint64_t>(length));
  return {randn({3, length})};
}

/// Calls f and its compiled form with arguments of each list of sizes, and expects the same bits or errors.
template <class F>
CompileStats expect_same_for(const F& f, const std::vector<std::vector<Dims>>& all,
                             const CompileOptions& options = {.wait = true}) {
  const auto compiled = compile(f, options);
  for (const std::vector<Dims>& sizes : all) {
    SCOPED_TRACE(fmt::format("{}\n{}", fmt::join(sizes, ", "), compiled.explain()));
    const auto run = [&](const auto& call, Outcome& out) -> std::string {
      out.arguments = randoms(sizes)(7);
      try {
        run_seeded(1, out, call);
      } catch (const Error& error) {
        return error.what();
      }
      return {};
    };
    Outcome expected, got;
    const std::string error = run([&](const Tensors& x) { return f(x); }, expected);
    EXPECT_EQ(run([&](const Tensors& x) { return compiled(x); }, got), error);
    if (error.empty()) expect_same(got, expected, "compiled");
  }
  return compiled.stats();
}

}  // namespace lorry::test
