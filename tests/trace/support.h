#pragma once

// A function of tensors four ways: as it is, recorded, and its graph by the interpreter, over the recorded elements and
// over others. Results, what it wrote, the gradients that it set and the generator's state are compared by their bits.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "lorry/lorry.h"
#include "lorry/trace/functionalise.h"
#include "lorry/trace/interpreter.h"
#include "lorry/trace/recorder.h"

namespace lorry::test {

using Tensors = std::vector<Tensor>;
using Function = std::function<Tensors(const Tensors& arguments)>;
/// Arguments of one seed; the same seed gives the same elements in new memory.
using MakeArguments = std::function<Tensors(uint64_t seed)>;

/// Normal numbers.
inline MakeArguments randoms(std::vector<Dims> sizes) {
  return [=](uint64_t seed) {
    manual_seed(seed);
    Tensors all;
    for (const Dims& s : sizes) all.push_back(randn(s));
    return all;
  };
}

/// Sizes, strides, dtype and elements.
inline std::string bits_of(const Tensor& x) {
  if (!x.defined()) return "undefined";
  const NoGrad quiet;
  const Tensor row = x.detach().to(kCPU).contiguous();
  std::string text = fmt::format("{} {} {} ", x.dtype(), x.sizes(), x.strides());
  if (x.numel() > 0) text.append(static_cast<const char*>(row.data_ptr()), static_cast<size_t>(row.nbytes()));
  return text;
}

struct Outcome {
  Tensors results, arguments;
  Generator::State drawn{};  ///< of the default generator afterwards
  std::vector<std::string> bits() const {
    std::vector<std::string> all;
    for (const Tensor& x : results) all.push_back(bits_of(x));
    for (const Tensor& x : arguments) {
      all.push_back(bits_of(x));
      all.push_back(bits_of(x.is_leaf() ? x.grad() : Tensor()));
    }
    return all;
  }
};

inline void expect_same(const Outcome& got, const Outcome& expected, const char* what) {
  const std::vector<std::string> a = got.bits(), b = expected.bits();
  ASSERT_EQ(a.size(), b.size()) << what;
  EXPECT_EQ(got.drawn, expected.drawn) << what << ": other draws";
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(a[i] == b[i]) << what << ": "
                              << (i < got.results.size()
                                      ? fmt::format("result {}: got {}, expected {}", i, got.results[i],
                                                    expected.results[i])
                                      : fmt::format("argument {} or its gradient", (i - got.results.size()) / 2));
}

/// Which results share memory with which results and arguments.
inline std::vector<bool> sharing(const Outcome& x) {
  std::vector<bool> pairs;
  const auto shares = [](const Tensor& a, const Tensor& b) {
    return a.defined() && b.defined() && a.numel() > 0 && b.numel() > 0 &&
           spans_overlap(a.data_ptr(), a.layout(), size_of(a.dtype()), b.data_ptr(), b.layout(), size_of(b.dtype()));
  };
  for (size_t i = 0; i < x.results.size(); ++i) {
    for (size_t j = 0; j < i; ++j) pairs.push_back(shares(x.results[i], x.results[j]));
    for (const Tensor& a : x.arguments) pairs.push_back(shares(x.results[i], a));
  }
  return pairs;
}

/// Runs a part of a test that draws random numbers: with others for each seed.
template <class F>
void run_seeded(uint64_t seed, Outcome& outcome, const F& f) {
  manual_seed(seed + 7);
  outcome.results = f(outcome.arguments);
  outcome.drawn = default_generator().state();
}

inline Outcome run_plain(const MakeArguments& make, const Function& f, uint64_t seed) {
  Outcome out{.results = {}, .arguments = make(seed)};
  run_seeded(seed, out, f);
  return out;
}

struct Traced {
  Outcome outcome;
  trace::Graph graph;
};

inline Traced run_traced(const MakeArguments& make, const Function& f, uint64_t seed) {
  Traced out;
  out.outcome.arguments = make(seed);
  run_seeded(seed, out.outcome, [&](const Tensors& arguments) {
    trace::Recorder recorder(arguments);
    const Tensors results = f(arguments);
    out.graph = trace::functionalise(recorder.finish(results));
    return results;
  });
  return out;
}

inline Outcome run_graph(const MakeArguments& make, const trace::Graph& graph, uint64_t seed) {
  Outcome out{.results = {}, .arguments = make(seed)};
  run_seeded(seed, out, [&](const Tensors& arguments) { return trace::interpret(graph, arguments); });
  return out;
}

/// Records f over arguments of one seed, and expects the same of its graph over those and over others. Returns the
/// graph.
inline trace::Graph expect_traced(const MakeArguments& make, const Function& f) {
  const Outcome plain = run_plain(make, f, 1);
  const Traced traced = run_traced(make, f, 1);
  expect_same(traced.outcome, plain, "recorded");
  SCOPED_TRACE(trace::to_string(traced.graph));
  for (const uint64_t seed : {1, 2}) {
    const Outcome expected = seed == 1 ? plain : run_plain(make, f, seed);
    const Outcome got = run_graph(make, traced.graph, seed);
    expect_same(got, expected, seed == 1 ? "interpreted" : "interpreted, other elements");
    EXPECT_EQ(sharing(got), sharing(expected)) << "memory is shared otherwise";
  }
  return traced.graph;
}

}  // namespace lorry::test
